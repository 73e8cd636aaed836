// connect.hpp: the messages of a connecting host: private data of the RDMA connection, the Connect command
// and its data. Pure.
//
// NVMe RDMA Transport 1.0, 3.2 (private data); NVMe Base 2.0, 6.3 (Connect). Both ends use it: the target
// parses and validates, the host builds. Any bytes are acceptable input.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/nvme/fabrics.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gnstor::nvmf {

using HostId = std::array<std::uint8_t, 16>;

/// Reject reason "consumer defined" of an RDMA connection manager (InfiniBand 1.4, 12.6.7.2); the private
/// data says why.
inline constexpr std::uint16_t kRejectConsumerDefined = 28;

struct QueueLimits {
    std::uint32_t admin_entries_max = 128;
    std::uint32_t io_entries_max = 1024;  ///< CAP.MQES + 1
    std::uint32_t io_queues_max = 1024;   ///< queue ids 1 .. this
    [[nodiscard]] std::uint32_t entries_max(std::uint16_t queue_id) const {
        return queue_id == 0 ? admin_entries_max : io_entries_max;
    }
};

/// A connection request that may be accepted.
struct TransportRequest {
    std::uint16_t queue_id;
    std::uint32_t entries;        ///< capsules that the host may have outstanding (HSQSIZE + 1)
    std::uint16_t controller_id;  ///< 0: not given
};
struct TransportVerdict {
    std::optional<nvme::RdmaRejectStatus> reject;
    TransportRequest request{};
};
/// Checks the private data of a connection request.
TransportVerdict check_transport_request(std::span<const std::byte> private_data, const QueueLimits& limits);
std::vector<std::byte> transport_reject_data(nvme::RdmaRejectStatus status);
std::vector<std::byte> transport_accept_data(std::uint32_t receive_entries);
/// Private data of the host's request for a queue of `entries` commands.
std::array<std::byte, 32> transport_request_data(std::uint16_t queue_id, std::uint32_t entries,
                                                 std::uint16_t controller_id);
/// Host: checks the private data of the target's reply; an Error unless it grants at least `entries`
/// receives.
Result<void> check_transport_accept(std::span<const std::byte> private_data, std::uint32_t entries);

/// A Connect command and its data, parsed.
struct ConnectRequest {
    std::uint16_t queue_id = 0;
    std::uint16_t sq_size = 0;  ///< 0's based
    std::uint8_t attributes = 0;
    std::uint32_t keep_alive_ms = 0;
    HostId host_id{};
    std::uint16_t controller_id = nvme::kAnyController;
    std::string subsystem_nqn;
    std::string host_nqn;
};
struct ConnectVerdict {
    nvme::Status status = nvme::Status::kSuccess;
    std::uint32_t dw0 = 0;  ///< with Connect Invalid Parameters: which field
    ConnectRequest request;
};
/// Parses a Connect command and its 1024 bytes of data; checks only their format; Controllers checks the
/// meaning.
ConnectVerdict parse_connect(const nvme::Command& command,
                             std::span<const std::byte, sizeof(nvme::ConnectData)> data);

/// Refuses with Connect Invalid Parameters, naming a field of the command or of the data.
ConnectVerdict bad_parameter(std::size_t offset, bool in_data);

/// Host: the command (all but its id and data pointer) and its data.
nvme::Command connect_command(const ConnectRequest& request);
nvme::ConnectData connect_data(const ConnectRequest& request);

/// "Connect Invalid Parameters: host NQN", for people.
std::string connect_refusal_text(nvme::Status status, std::uint32_t dw0);

}  // namespace gnstor::nvmf
