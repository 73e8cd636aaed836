#include "nvmf/protocol/connect.hpp"

#include "nvmf/protocol/nqn.hpp"

#include <algorithm>
#include <cstring>

namespace gnstor::nvmf {

using nvme::RdmaRejectStatus;
using nvme::Status;

namespace {

template <class T>
std::vector<std::byte> bytes_of(const T& record) {
    std::vector<std::byte> bytes(sizeof record);
    std::memcpy(bytes.data(), &record, sizeof record);
    return bytes;
}

constexpr std::uint32_t kEntriesMin = 2;

}  // namespace

TransportVerdict check_transport_request(std::span<const std::byte> private_data, const QueueLimits& limits) {
    // A connection manager pads private data, so more than 32 bytes are fine; fewer are not.
    nvme::RdmaConnectRequest wire;
    if (private_data.size() < sizeof wire) return {RdmaRejectStatus::kInvalidLength, {}};
    std::memcpy(&wire, private_data.data(), sizeof wire);
    if (wire.record_format != 0) return {RdmaRejectStatus::kInvalidRecordFormat, {}};
    if (wire.queue_id > limits.io_queues_max) return {RdmaRejectStatus::kInvalidQueueId, {}};
    const std::uint32_t entries = std::uint32_t{wire.host_send_queue_size} + 1;
    if (entries < kEntriesMin || entries > limits.entries_max(wire.queue_id))
        return {RdmaRejectStatus::kInvalidHostSendQueueSize, {}};
    // All outstanding commands may be answered at once: the host must post a receive for each.
    if (wire.host_receive_queue_size + 1u < entries)
        return {RdmaRejectStatus::kInvalidHostReceiveQueueSize, {}};
    return {std::nullopt, TransportRequest{wire.queue_id, entries, wire.controller_id}};
}

std::vector<std::byte> transport_reject_data(RdmaRejectStatus status) {
    return bytes_of(nvme::RdmaConnectReject{0, static_cast<std::uint16_t>(status)});
}

std::vector<std::byte> transport_accept_data(std::uint32_t receive_entries) {
    nvme::RdmaConnectReply reply{};
    reply.controller_receive_queue_size = static_cast<std::uint16_t>(std::min(receive_entries, 0xFFFFu));
    return bytes_of(reply);
}

std::array<std::byte, 32> transport_request_data(std::uint16_t queue_id, std::uint32_t entries,
                                                 std::uint16_t controller_id) {
    nvme::RdmaConnectRequest wire{};
    wire.queue_id = queue_id;
    wire.host_receive_queue_size = static_cast<std::uint16_t>(entries);
    wire.host_send_queue_size = static_cast<std::uint16_t>(entries - 1);
    wire.controller_id = controller_id;
    std::array<std::byte, 32> bytes;
    std::memcpy(bytes.data(), &wire, sizeof wire);
    return bytes;
}

Result<void> check_transport_accept(std::span<const std::byte> private_data, std::uint32_t entries) {
    nvme::RdmaConnectReply reply;
    if (private_data.size() < sizeof reply)
        return error(Errc::kIo, "the target accepted with {} bytes of private data; NVMe/RDMA requires {}",
                     private_data.size(), sizeof reply);
    std::memcpy(&reply, private_data.data(), sizeof reply);
    if (reply.record_format != 0)
        return error(Errc::kUnsupported,
                     "the target answers with record format {}; this program knows only format 0",
                     reply.record_format);
    if (reply.controller_receive_queue_size < entries)
        return error(Errc::kNoSpace,
                     "the target provides only {} receives for a queue of {} commands; use a smaller depth",
                     reply.controller_receive_queue_size, entries);
    return {};
}

ConnectVerdict bad_parameter(std::size_t offset, bool in_data) {
    return {Status::kConnectInvalidParameters,
            nvme::connect_bad_parameter(static_cast<std::uint16_t>(offset), in_data),
            {}};
}

ConnectVerdict parse_connect(const nvme::Command& command,
                             std::span<const std::byte, sizeof(nvme::ConnectData)> data) {
    nvme::ConnectCommand wire;
    std::memcpy(&wire, &command, sizeof wire);
    nvme::ConnectData record;
    std::memcpy(&record, data.data(), sizeof record);
    if (wire.record_format != 0) return {Status::kConnectIncompatibleFormat, 0, {}};

    const auto subsystem = nqn_in_field(record.subsystem_nqn);
    if (!subsystem) return bad_parameter(offsetof(nvme::ConnectData, subsystem_nqn), true);
    const auto host = nqn_in_field(record.host_nqn);
    if (!host) return bad_parameter(offsetof(nvme::ConnectData, host_nqn), true);

    ConnectVerdict verdict;
    ConnectRequest& request = verdict.request;
    request.queue_id = wire.queue_id;
    request.sq_size = wire.sq_size;
    request.attributes = wire.attributes;
    request.keep_alive_ms = wire.keep_alive_ms;
    std::copy_n(record.host_id, request.host_id.size(), request.host_id.begin());
    request.controller_id = record.controller_id;
    request.subsystem_nqn = *subsystem;
    request.host_nqn = *host;
    // A host must identify itself: with a zero id unrelated hosts would share an association (Base 2.0,
    // 5.27.1.19).
    if (request.host_id == HostId{}) return bad_parameter(offsetof(nvme::ConnectData, host_id), true);
    if (request.sq_size == 0) return bad_parameter(offsetof(nvme::ConnectCommand, sq_size), false);
    return verdict;
}

nvme::Command connect_command(const ConnectRequest& request) {
    nvme::ConnectCommand wire{};
    wire.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kFabrics);
    wire.flags = nvme::kFlagsSgl;
    wire.type = static_cast<std::uint8_t>(nvme::FabricsType::kConnect);
    wire.queue_id = request.queue_id;
    wire.sq_size = request.sq_size;
    wire.attributes = request.attributes;
    wire.keep_alive_ms = request.keep_alive_ms;
    nvme::Command command;
    std::memcpy(&command, &wire, sizeof command);
    return command;
}

nvme::ConnectData connect_data(const ConnectRequest& request) {
    nvme::ConnectData record{};
    std::copy(request.host_id.begin(), request.host_id.end(), record.host_id);
    record.controller_id = request.controller_id;
    // Names that do not fit stay empty, and the target refuses them by field.
    (void)put_nqn(record.subsystem_nqn, request.subsystem_nqn);
    (void)put_nqn(record.host_nqn, request.host_nqn);
    return record;
}

std::string connect_refusal_text(Status status, std::uint32_t dw0) {
    if (status != Status::kConnectInvalidParameters) return nvme::status_name(status);
    const bool in_data = ((dw0 >> 16) & 1u) != 0;
    const std::uint32_t offset = dw0 & 0xFFFFu;
    const char* field = "an unknown field";
    if (in_data) {
        if (offset == offsetof(nvme::ConnectData, host_id)) field = "host id";
        if (offset == offsetof(nvme::ConnectData, controller_id)) field = "controller id";
        if (offset == offsetof(nvme::ConnectData, subsystem_nqn)) field = "subsystem NQN";
        if (offset == offsetof(nvme::ConnectData, host_nqn)) field = "host NQN";
    } else {
        if (offset == offsetof(nvme::ConnectCommand, queue_id)) field = "queue id";
        if (offset == offsetof(nvme::ConnectCommand, sq_size)) field = "queue size";
        if (offset == offsetof(nvme::ConnectCommand, keep_alive_ms)) field = "keep-alive time";
    }
    return fmt::format("{}: {}", nvme::status_name(status), field);
}

}  // namespace gnstor::nvmf
