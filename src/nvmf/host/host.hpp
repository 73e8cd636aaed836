// host.hpp: the host side of a controller: its admin queue, and the messages that connect I/O queues.
//
// One HostController is one association with one SSD. The daemon has one for each drive as the array's admin
// host, each client one for each drive. Control path only: I/O queues are the channels' own (gnor);
// io_queue() gives them private data and Connect.
//
// Threads: any; calls are serialized by one mutex and each ends by its deadline. A command that misses its
// deadline ends the association (the drive may still write to its buffer, so the queue pair is destroyed
// first); later calls return kState.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/nvme/fabrics.hpp>
#include <gnstor/nvme/identify.hpp>
#include <gnstor/nvme/vendor.hpp>

#include "nvmf/host/authenticate.hpp"
#include "nvmf/host/host_queue.hpp"
#include "nvmf/protocol/capsule.hpp"
#include "nvmf/protocol/connect.hpp"
#include "rdma/nic/nic_memory.hpp"
#include "ssd/queues/nvme_queue.hpp"

#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace gnstor::nvmf {

/// The bytes of a structure that a command carries.
template <class T>
std::span<std::byte> bytes_of(T& record) {
    return std::as_writable_bytes(std::span<T, 1>(&record, 1));
}

/// Most bytes of data that an admin command may move.
inline constexpr std::uint32_t kAdminDataBytes = 64u << 10;

struct HostOptions {
    std::string peer_address;  ///< of the node's NIC
    std::string service;       ///< name of the listener there
    std::string subsystem_nqn;
    std::string host_nqn;                 ///< client_host_nqn(id), kAdminHostNqn or any other
    HostId host_id{};                     ///< not all zero; the same for all queues of a host
    std::uint32_t keep_alive_ms = 15000;  ///< 0: no keep-alive timer
    std::uint32_t timeout_ms = 10000;     ///< deadline of connecting, and default of each admin command
    std::uint32_t admin_entries = 32;
    std::uint32_t io_queues = 128;  ///< number requested with Set Features
    bool discovery = false;         ///< a discovery controller: only admin commands
    /// This host's keys with the subsystem: every queue must then authenticate. Null: it has none, and a
    /// controller that demands authentication is refused.
    std::shared_ptr<const HostAuthentication> authentication{};
};

/// The messages that connect one I/O queue, in three steps. Memory and queue pair are the caller's.
class IoQueueConnect {
  public:
    explicit IoQueueConnect(ConnectRequest request) : request_(std::move(request)) {}
    [[nodiscard]] std::uint16_t queue_id() const { return request_.queue_id; }
    [[nodiscard]] std::uint32_t entries() const { return std::uint32_t{request_.sq_size} + 1; }

    /// 1. Private data for Nic::connect, and the check of the private data that it returns.
    [[nodiscard]] std::array<std::byte, 32> transport_data() const;
    [[nodiscard]] Result<void> check_accept(std::span<const std::byte> private_data) const;
    /// 2. The first capsule: command() with data() in the capsule (1024 bytes), or command_keyed() with
    /// data() in registered memory.
    [[nodiscard]] nvme::Command command(std::uint16_t command_id) const;
    [[nodiscard]] nvme::Command command_keyed(std::uint16_t command_id, std::uint64_t address,
                                              std::uint32_t rkey) const;
    [[nodiscard]] nvme::ConnectData data() const { return connect_data(request_); }
    /// 3. Checks the response. Then HostController::authenticate_queue().
    [[nodiscard]] Result<void> check(const nvme::Completion& completion) const;

  private:
    ConnectRequest request_;
};

struct VolumeList {
    std::uint64_t term = 0;  ///< newest that the drive has seen
    std::vector<nvme::VolumeRecord> records;
};

class HostController {
  public:
    /// Makes the RDMA connection; then Connect, enable, Identify, Set Features (number of queues).
    static Result<std::unique_ptr<HostController>> connect(rdma::Nic& nic, const HostOptions& options);
    ~HostController();
    HostController(const HostController&) = delete;
    HostController& operator=(const HostController&) = delete;

    /// Runs one admin command. `data`: at most 64 KiB and transfer_bytes_max(); moved through a bounce
    /// buffer. An NVMe error status is a completion, not an Error.
    Result<nvme::Completion> admin(const nvme::Command& command, std::span<std::byte> data,
                                   Direction direction, std::uint32_t timeout_ms = 0);
    /// The same, with any status but success turned into an Error; returns DW0.
    Result<std::uint32_t> admin_checked(const char* what, const nvme::Command& command,
                                        std::span<std::byte> data, Direction direction,
                                        std::uint32_t timeout_ms = 0);

    Result<std::uint64_t> property_get(nvme::Property property);
    Result<void> property_set(nvme::Property property, std::uint64_t value);
    Result<nvme::IdentifyController> identify_controller();
    Result<nvme::IdentifyNamespace> identify_namespace();
    Result<nvme::HealthLog> health_log();
    /// To be called at a third of the keep-alive time.
    Result<void> keep_alive();
    /// Number of I/O queues granted for `wanted`.
    Result<std::uint32_t> set_queue_count(std::uint32_t wanted);

    // GNStor's vendor commands; only for the array's admin host (others: kPermission). nvme/vendor.hpp.
    Result<void> volume_add(std::uint64_t term, const nvme::VolumeRecord& record);
    Result<void> volume_chmod(std::uint64_t term, const nvme::VolumeRecord& record);
    Result<void> volume_delete(std::uint64_t term, nvme::VolumeId volume);
    Result<VolumeList> volume_list(std::uint64_t term);
    Result<void> map_set(std::uint64_t term, const nvme::MapSet& map);

    /// The messages that connect I/O queue `queue_id` (1 .. io_queues()) of `entries` commands.
    [[nodiscard]] IoQueueConnect io_queue(std::uint16_t queue_id, std::uint32_t entries,
                                          ssd::Priority priority = ssd::Priority::kMedium) const;
    /// Step 1 of IoQueueConnect for a queue pair of the caller: makes the RDMA connection and checks the
    /// reply.
    Result<void> connect_transport(rdma::QpNumber qp, const IoQueueConnect& queue,
                                   std::uint32_t timeout_ms = 0);
    /// After step 3 of IoQueueConnect for a queue of the caller: authenticates it, if this host has a key.
    /// `answer`: of Connect. kPermission: nvmf/host/authenticate.hpp.
    Result<void> authenticate_queue(const IoQueueConnect& queue, const nvme::Completion& answer,
                                    const AuthCommands& commands) const;
    /// A connected I/O queue driven by the CPU.
    Result<std::unique_ptr<HostQueue>> open_io_queue(std::uint16_t queue_id, std::uint32_t entries,
                                                     ssd::Priority priority = ssd::Priority::kMedium);

    /// False once the association is known to have ended: connect again.
    [[nodiscard]] bool connected() const;
    /// Most bytes that one command may move (MDTS of Identify Controller); the largest number if there is no
    /// limit. Not read from a discovery controller: its log is read in pages of 4 KiB, which are always
    /// allowed.
    [[nodiscard]] std::uint64_t transfer_bytes_max() const { return transfer_bytes_max_; }
    /// kInvalidArgument for more bytes than that. admin() calls it. Commands on I/O queues do not pass
    /// through here: their poster must call it if the controller may be another product's.
    [[nodiscard]] Result<void> check_transfer(std::uint64_t bytes) const;
    [[nodiscard]] std::uint16_t controller_id() const { return controller_id_; }
    [[nodiscard]] std::uint32_t io_queues() const { return io_queues_; }
    [[nodiscard]] const HostOptions& options() const { return options_; }

  private:
    HostController(rdma::Nic& nic, HostOptions options);
    Result<void> open();
    Result<void> connect_admin(std::uint64_t deadline_ns);
    Result<void> enable(std::uint64_t deadline_ns);
    Result<nvme::Completion> exchange(nvme::Command command, std::span<const std::byte> in_capsule,
                                      std::uint64_t deadline_ns);
    Result<void> vendor(const char* what, nvme::AdminOpcode opcode, std::uint64_t term,
                        std::span<std::byte> data, Direction direction, std::uint32_t cdw10 = 0,
                        std::uint32_t cdw11 = 0);
    Result<void> authenticate_admin(std::uint32_t connect_dw0, std::uint64_t deadline_ns);
    /// Commands of the exchange on a queue driven by the CPU, whose data lies in the bounce buffer. The
    /// caller holds the mutex, or is open().
    [[nodiscard]] AuthCommands commands_on(
        std::function<Result<nvme::Completion>(const nvme::Command&)> execute);
    void give_up();
    [[nodiscard]] std::uint64_t deadline(std::uint32_t timeout_ms) const;

    rdma::Nic& nic_;
    const HostOptions options_;
    mutable std::mutex mutex_;  // guards everything below that changes after connect()
    std::unique_ptr<HostQueue> queue_;
    rdma::NicMemory bounce_;  ///< data of admin commands
    rdma::MemoryKeys bounce_keys_{};
    bool bounce_registered_ = false;
    std::uint16_t next_command_id_ = 0;
    std::uint16_t controller_id_ = 0;
    std::uint32_t io_queues_ = 0;
    std::uint32_t page_bytes_log2_ = 12;  ///< CAP.MPSMIN, the unit of MDTS
    std::uint32_t io_entries_max_ = 0;    ///< CAP.MQES, as a number of entries
    std::uint64_t transfer_bytes_max_ = std::numeric_limits<std::uint64_t>::max();
};

/// An NVMe status as an Error: "what" was refused, why, what to do.
Error status_error(const std::string& what, nvme::Status status, std::uint32_t dw0 = 0);

/// Posts the Connect of an I/O queue on a CPU-driven queue pair that is connected, and waits for its answer.
Result<void> connect_queue(HostQueue& queue, const IoQueueConnect& connect, std::uint64_t deadline_ns);
/// Waits for the next response of a queue.
Result<nvme::Completion> await_response(HostQueue& queue, std::uint64_t deadline_ns);

}  // namespace gnstor::nvmf
