#include "nvmf/host/host.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/nvme/features.hpp>
#include <gnstor/simt/time.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>

namespace gnstor::nvmf {

using nvme::Status;

namespace {

constexpr std::uint32_t kSpins = 256;  // polls before the waiting thread sleeps between polls
constexpr std::chrono::microseconds kLookEvery{20};

nvme::Command fabrics_command(nvme::FabricsType type) {
    nvme::Command command{};
    command.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kFabrics);
    command.flags = nvme::kFlagsSgl;
    command.namespace_id = static_cast<std::uint8_t>(type);
    // A keyed descriptor of length 0: Linux's target refuses other types, even without data.
    command.data.type = nvme::kSglKeyedAddress;
    return command;
}

nvme::Command admin_command(nvme::AdminOpcode opcode) {
    nvme::Command command{};
    command.opcode = static_cast<std::uint8_t>(opcode);
    command.flags = nvme::kFlagsSgl;
    return command;
}

struct StatusMeaning {
    Errc code;
    const char* advice;
};

StatusMeaning meaning(Status status) {
    switch (status) {
        case Status::kAuthenticationRequired:
            return {Errc::kPermission, "the queue must authenticate first"};
        case Status::kAccessDenied:
            return {Errc::kPermission, "this host lacks the right to do that; use the array's admin host"};
        case Status::kStaleTerm:
            return {Errc::kState, "a newer gnstord has taken over the array; this gnstord must stop"};
        case Status::kVolumeExists:
            return {Errc::kExists, "choose another name or VID"};
        case Status::kNoSuchVolume:
            return {Errc::kNotFound, "the SSD knows no such volume"};
        case Status::kStaleEpoch:
            return {Errc::kState,
                    "the volume has been opened for writing again in the meantime; open it again"};
        case Status::kStaleMap:
            return {Errc::kState, "the SSD has another map version; fetch the map and try again"};
        case Status::kNotGranted:
        case Status::kBusy:
        case Status::kConnectControllerBusy:
            return {Errc::kBusy, "try again"};
        case Status::kCapacityExceeded:
            return {Errc::kNoSpace, "a table or the drive is full"};
        case Status::kInvalidField:
        case Status::kInvalidOpcode:
        case Status::kConnectInvalidParameters:
        case Status::kConnectInvalidHost:
        case Status::kDataSglLengthInvalid:
            return {Errc::kInvalidArgument, "the SSD does not accept these values"};
        case Status::kCommandSequenceError:
        case Status::kKeepAliveExpired:
            return {Errc::kState, "the association is not in that state; connect again"};
        default:
            return {Errc::kIo, "see the log of the process that serves the SSD"};
    }
}

}  // namespace

Error status_error(const std::string& what, Status status, std::uint32_t dw0) {
    const StatusMeaning m = meaning(status);
    return error(m.code, "{}: {} ({:#05x}); {}", what, connect_refusal_text(status, dw0),
                 static_cast<std::uint32_t>(status), m.advice);
}

std::array<std::byte, 32> IoQueueConnect::transport_data() const {
    return transport_request_data(request_.queue_id, entries(), request_.controller_id);
}

Result<void> IoQueueConnect::check_accept(std::span<const std::byte> private_data) const {
    return check_transport_accept(private_data, entries());
}

nvme::Command IoQueueConnect::command(std::uint16_t command_id) const {
    nvme::Command command = connect_command(request_);
    command.command_id = command_id;
    command.data = nvme::SglDescriptor::unkeyed(nvme::kSglDataBlockOffset, 0, sizeof(nvme::ConnectData));
    return command;
}

nvme::Command IoQueueConnect::command_keyed(std::uint16_t command_id, std::uint64_t address,
                                            std::uint32_t rkey) const {
    nvme::Command keyed = command(command_id);
    keyed.data = nvme::SglDescriptor::keyed(address, sizeof(nvme::ConnectData), rkey);
    return keyed;
}

Result<void> IoQueueConnect::check(const nvme::Completion& completion) const {
    if (nvme::ok(completion.result())) return {};
    Error refused =
        status_error(fmt::format("cannot connect queue {} to {}", request_.queue_id, request_.subsystem_nqn),
                     completion.result(), completion.dw0);
    // The target answers but does not serve this SSD, such as a node that left out a damaged one.
    const ConnectVerdict unknown = bad_parameter(offsetof(nvme::ConnectData, subsystem_nqn), true);
    if (completion.result() == unknown.status && completion.dw0 == unknown.dw0)
        refused.code = Errc::kNotFound;
    return refused;
}

Result<nvme::Completion> await_response(HostQueue& queue, std::uint64_t deadline_ns) {
    nvme::Completion completion;
    for (std::uint32_t looks = 0;; ++looks) {
        if (queue.poll(completion)) return completion;
        if (queue.broken()) return error(Errc::kState, "the connection has ended");
        if (simt::now_ns() >= deadline_ns) return error(Errc::kTimedOut, "no answer in time");
        if (looks > kSpins)
            std::this_thread::sleep_for(kLookEvery);
        else
            std::this_thread::yield();
    }
}

/// The answer may be a refusal.
static Result<nvme::Completion> ask_to_connect(HostQueue& queue, const IoQueueConnect& connect,
                                               std::uint64_t deadline_ns) {
    const nvme::ConnectData data = connect.data();
    if (queue.post(connect.command(0), std::as_bytes(std::span(&data, 1))) != HostQueue::Posted::kYes)
        return error(Errc::kState, "cannot connect queue {}: its queue pair is in error", connect.queue_id());
    return await_response(queue, deadline_ns);
}

Result<void> connect_queue(HostQueue& queue, const IoQueueConnect& connect, std::uint64_t deadline_ns) {
    GN_ASSIGN(const nvme::Completion completion, ask_to_connect(queue, connect, deadline_ns));
    return connect.check(completion);
}

HostController::HostController(rdma::Nic& nic, HostOptions options)
    : nic_(nic), options_(std::move(options)) {}

Result<std::unique_ptr<HostController>> HostController::connect(rdma::Nic& nic, const HostOptions& options) {
    std::unique_ptr<HostController> controller(new HostController(nic, options));
    GN_TRY(controller->open());
    return controller;
}

HostController::~HostController() {
    queue_.reset();
    if (!bounce_registered_) return;
    const auto gone = nic_.deregister_memory(bounce_keys_);
    if (!gone.ok()) log_error("an admin buffer could not be deregistered: {}", gone.error().message);
}

std::uint64_t HostController::deadline(std::uint32_t timeout_ms) const {
    return simt::now_ns() + std::uint64_t{timeout_ms != 0 ? timeout_ms : options_.timeout_ms} * 1'000'000u;
}

Result<void> HostController::open() {
    const std::uint64_t until = deadline(0);
    GN_ASSIGN(bounce_, rdma::NicMemory::map(nic_, kAdminDataBytes));
    GN_ASSIGN(bounce_keys_, nic_.register_memory(bounce_.data(), kAdminDataBytes,
                                                 rdma::kLocalWrite | rdma::kRemoteRead | rdma::kRemoteWrite));
    bounce_registered_ = true;
    GN_TRY(connect_admin(until));
    GN_TRY(enable(until));
    if (options_.discovery) return {};
    GN_ASSIGN(const nvme::IdentifyController identify, identify_controller());
    if (identify.ioccsz * 16 < kCapsuleBytesMax || identify.msdbd < 1)
        return error(Errc::kUnsupported, "{} takes capsules of {} bytes only; {} are needed",
                     options_.subsystem_nqn, identify.ioccsz * 16, kCapsuleBytesMax);
    // 0 means no limit; so does a limit of 2^64 or more.
    const std::uint32_t log2 = page_bytes_log2_ + identify.mdts;
    if (identify.mdts != 0 && log2 < 64) transfer_bytes_max_ = std::uint64_t{1} << log2;
    GN_ASSIGN(io_queues_, set_queue_count(options_.io_queues));
    return {};
}

Result<void> HostController::check_transfer(std::uint64_t bytes) const {
    if (bytes <= transfer_bytes_max_) return {};
    return error(
        Errc::kInvalidArgument,
        "a command to {} cannot move {} bytes: its controller takes {} at most (MDTS); use several commands",
        options_.subsystem_nqn, bytes, transfer_bytes_max_);
}

Result<void> HostController::connect_admin(std::uint64_t deadline_ns) {
    GN_ASSIGN(queue_, HostQueue::create(nic_, options_.admin_entries, rdma::RingUse::kAdmin));
    ConnectRequest request;
    request.queue_id = 0;
    request.sq_size = static_cast<std::uint16_t>(options_.admin_entries - 1);
    request.keep_alive_ms = options_.keep_alive_ms;
    request.host_id = options_.host_id;
    request.controller_id = nvme::kAnyController;
    request.subsystem_nqn = options_.subsystem_nqn;
    request.host_nqn = options_.host_nqn;
    const IoQueueConnect connect(std::move(request));
    const auto private_data = transport_request_data(0, options_.admin_entries, 0);
    GN_ASSIGN(const std::vector<std::byte> accepted,
              queue_->connect(options_.peer_address, options_.service, private_data, options_.timeout_ms));
    GN_TRY(connect.check_accept(accepted));
    // Keyed, so the target fetches it: admin capsules may have no room for data (Linux's target has none).
    const nvme::ConnectData data = connect.data();
    std::memcpy(bounce_.data(), &data, sizeof data);
    const auto address = reinterpret_cast<std::uintptr_t>(bounce_.data());
    GN_ASSIGN(const nvme::Completion completion,
              exchange(connect.command_keyed(0, address, bounce_keys_.rkey), {}, deadline_ns));
    GN_TRY(connect.check(completion));
    controller_id_ = static_cast<std::uint16_t>(completion.dw0);
    return authenticate_admin(completion.dw0, deadline_ns);
}

AuthCommands HostController::commands_on(
    std::function<Result<nvme::Completion>(const nvme::Command&)> execute) {
    const auto keyed = [this](nvme::Command command, std::size_t bytes) {
        command.data = nvme::SglDescriptor::keyed(reinterpret_cast<std::uintptr_t>(bounce_.data()),
                                                  static_cast<std::uint32_t>(bytes), bounce_keys_.rkey);
        return command;
    };
    return {.send =
                [this, execute, keyed](const nvme::Command& command, std::span<const std::byte> message) {
                    std::copy(message.begin(), message.end(), bounce_.data());
                    return execute(keyed(command, message.size()));
                },
            .receive = [this, execute, keyed](const nvme::Command& command,
                                              std::span<std::byte> buffer) -> Result<nvme::Completion> {
                std::fill_n(bounce_.data(), buffer.size(), std::byte{0});
                GN_ASSIGN(const nvme::Completion completion, execute(keyed(command, buffer.size())));
                std::copy_n(bounce_.data(), buffer.size(), buffer.begin());
                return completion;
            }};
}

Result<void> HostController::authenticate_admin(std::uint32_t connect_dw0, std::uint64_t deadline_ns) {
    if (options_.discovery) return {};  // a discovery controller tells addresses to everybody
    return authenticate(
        {options_.host_nqn, options_.subsystem_nqn, 0}, connect_dw0, options_.authentication.get(),
        commands_on([&](const nvme::Command& command) { return exchange(command, {}, deadline_ns); }));
}

Result<void> HostController::authenticate_queue(const IoQueueConnect& queue, const nvme::Completion& answer,
                                                const AuthCommands& commands) const {
    return authenticate({options_.host_nqn, options_.subsystem_nqn, queue.queue_id()}, answer.dw0,
                        options_.authentication.get(), commands);
}

Result<void> HostController::enable(std::uint64_t deadline_ns) {
    GN_ASSIGN(const std::uint64_t capabilities, property_get(nvme::Property::kCap));
    nvme::Configuration configuration;
    configuration.enable = true;
    // Queue priorities, if the controller supports them.
    const auto can = nvme::Capabilities::decode(capabilities);
    configuration.arbitration = can.weighted_round_robin ? 1 : 0;
    page_bytes_log2_ = 12u + can.page_size_min;
    io_entries_max_ = std::uint32_t{can.max_queue_entries} + 1;
    configuration.sq_entry_log2 = 6;
    configuration.cq_entry_log2 = 4;
    GN_TRY(property_set(nvme::Property::kCc, configuration.encode()));
    for (;;) {
        GN_ASSIGN(const std::uint64_t value, property_get(nvme::Property::kCsts));
        const auto status = nvme::ControllerStatus::decode(static_cast<std::uint32_t>(value));
        if (status.ready) return {};
        if (status.fatal)
            return error(Errc::kIo, "{} reports a fatal controller status", options_.subsystem_nqn);
        if (simt::now_ns() >= deadline_ns)
            return error(Errc::kTimedOut, "{} did not become ready in {} ms", options_.subsystem_nqn,
                         options_.timeout_ms);
        std::this_thread::yield();
    }
}

/// One command at a time, so the next response is its own. The caller holds the mutex, or is open().
Result<nvme::Completion> HostController::exchange(nvme::Command command,
                                                  std::span<const std::byte> in_capsule,
                                                  std::uint64_t deadline_ns) {
    if (queue_ == nullptr)
        return error(Errc::kState, "the association with {} has ended; connect again",
                     options_.subsystem_nqn);
    command.command_id = next_command_id_++;
    if (queue_->post(command, in_capsule) != HostQueue::Posted::kYes) {
        give_up();
        return error(Errc::kState,
                     "the association with {} has ended: its queue pair is in error; connect again",
                     options_.subsystem_nqn);
    }
    auto response = await_response(*queue_, deadline_ns);
    if (response.ok() && response->command_id == command.command_id) return response;
    give_up();
    if (response.ok())
        return error(Errc::kIo, "{} answered the command with identifier {} with the identifier {}",
                     options_.subsystem_nqn, command.command_id, response->command_id);
    return error(response.error().code, "admin command {:#04x} to {}: {}; the association is ended",
                 command.opcode, options_.subsystem_nqn, response.error().message);
}

/// Ends the association. Without the queue pair nothing can write to the bounce buffer any more.
void HostController::give_up() {
    queue_.reset();
}

bool HostController::connected() const {
    const std::lock_guard lock(mutex_);
    return queue_ != nullptr && !queue_->broken();
}

Result<nvme::Completion> HostController::admin(const nvme::Command& command, std::span<std::byte> data,
                                               Direction direction, std::uint32_t timeout_ms) {
    if (data.size() > kAdminDataBytes)
        return error(Errc::kInvalidArgument, "an admin command moves at most {} bytes, not {}",
                     kAdminDataBytes, data.size());
    GN_TRY(check_transfer(data.size()));
    const std::lock_guard lock(mutex_);
    nvme::Command sent = command;
    sent.data = {};
    sent.data.type = nvme::kSglKeyedAddress;
    if (direction != Direction::kNone)
        sent.data = nvme::SglDescriptor::keyed(reinterpret_cast<std::uintptr_t>(bounce_.data()),
                                               static_cast<std::uint32_t>(data.size()), bounce_keys_.rkey);
    if (direction == Direction::kToDrive) std::copy(data.begin(), data.end(), bounce_.data());
    GN_ASSIGN(const nvme::Completion completion, exchange(sent, {}, deadline(timeout_ms)));
    if (direction == Direction::kToHost && nvme::ok(completion.result()))
        std::copy_n(bounce_.data(), data.size(), data.begin());
    return completion;
}

Result<std::uint32_t> HostController::admin_checked(const char* what, const nvme::Command& command,
                                                    std::span<std::byte> data, Direction direction,
                                                    std::uint32_t timeout_ms) {
    GN_ASSIGN(const nvme::Completion completion, admin(command, data, direction, timeout_ms));
    if (!nvme::ok(completion.result()))
        return status_error(fmt::format("{} at {}", what, options_.subsystem_nqn), completion.result(),
                            completion.dw0);
    return completion.dw0;
}

Result<std::uint64_t> HostController::property_get(nvme::Property property) {
    nvme::PropertyCommand wire{};
    const nvme::Command head = fabrics_command(nvme::FabricsType::kPropertyGet);
    std::memcpy(&wire, &head, sizeof wire);
    wire.offset = static_cast<std::uint32_t>(property);
    wire.attributes = nvme::property_bytes(wire.offset) == 8 ? 1 : 0;
    nvme::Command command;
    std::memcpy(&command, &wire, sizeof command);
    const std::lock_guard lock(mutex_);
    GN_ASSIGN(const nvme::Completion completion, exchange(command, {}, deadline(0)));
    if (!nvme::ok(completion.result()))
        return status_error(fmt::format("Property Get {:#x} at {}", wire.offset, options_.subsystem_nqn),
                            completion.result());
    return std::uint64_t{completion.dw0} | (std::uint64_t{completion.dw1} << 32);
}

Result<void> HostController::property_set(nvme::Property property, std::uint64_t value) {
    nvme::PropertyCommand wire{};
    const nvme::Command head = fabrics_command(nvme::FabricsType::kPropertySet);
    std::memcpy(&wire, &head, sizeof wire);
    wire.offset = static_cast<std::uint32_t>(property);
    wire.attributes = nvme::property_bytes(wire.offset) == 8 ? 1 : 0;
    wire.value = value;
    nvme::Command command;
    std::memcpy(&command, &wire, sizeof command);
    const std::lock_guard lock(mutex_);
    GN_ASSIGN(const nvme::Completion completion, exchange(command, {}, deadline(0)));
    if (!nvme::ok(completion.result()))
        return status_error(fmt::format("Property Set {:#x} at {}", wire.offset, options_.subsystem_nqn),
                            completion.result());
    return {};
}

Result<nvme::IdentifyController> HostController::identify_controller() {
    nvme::IdentifyController identify{};
    nvme::Command command = admin_command(nvme::AdminOpcode::kIdentify);
    command.cdw10 = static_cast<std::uint32_t>(nvme::IdentifyCns::kController);
    GN_TRY(admin_checked("Identify Controller", command, bytes_of(identify), Direction::kToHost));
    return identify;
}

Result<nvme::IdentifyNamespace> HostController::identify_namespace() {
    nvme::IdentifyNamespace identify{};
    nvme::Command command = admin_command(nvme::AdminOpcode::kIdentify);
    command.namespace_id = 1;
    command.cdw10 = static_cast<std::uint32_t>(nvme::IdentifyCns::kNamespace);
    GN_TRY(admin_checked("Identify Namespace", command, bytes_of(identify), Direction::kToHost));
    return identify;
}

Result<nvme::HealthLog> HostController::health_log() {
    nvme::HealthLog log{};
    nvme::Command command = admin_command(nvme::AdminOpcode::kGetLogPage);
    command.namespace_id = 0xFFFFFFFFu;  // controller-wide
    command.cdw10 = static_cast<std::uint32_t>(nvme::LogPage::kHealth) | ((sizeof log / 4 - 1) << 16);
    GN_TRY(admin_checked("Get Log Page (health)", command, bytes_of(log), Direction::kToHost));
    return log;
}

Result<void> HostController::keep_alive() {
    GN_TRY(admin_checked("Keep Alive", admin_command(nvme::AdminOpcode::kKeepAlive), {}, Direction::kNone));
    return {};
}

Result<std::uint32_t> HostController::set_queue_count(std::uint32_t wanted) {
    nvme::Command command = admin_command(nvme::AdminOpcode::kSetFeatures);
    command.cdw10 = static_cast<std::uint32_t>(nvme::Feature::kNumberOfQueues);
    command.cdw11 = nvme::QueueCount{wanted, wanted}.encode();
    GN_ASSIGN(const std::uint32_t granted,
              admin_checked("Set Features (number of queues)", command, {}, Direction::kNone));
    const auto count = nvme::QueueCount::decode(granted);
    return std::min(count.submission, count.completion);
}

IoQueueConnect HostController::io_queue(std::uint16_t queue_id, std::uint32_t entries,
                                        ssd::Priority priority) const {
    ConnectRequest request;
    request.queue_id = queue_id;
    request.sq_size = static_cast<std::uint16_t>(entries - 1);
    request.attributes = static_cast<std::uint8_t>(priority);
    request.host_id = options_.host_id;
    request.controller_id = controller_id_;
    request.subsystem_nqn = options_.subsystem_nqn;
    request.host_nqn = options_.host_nqn;
    return IoQueueConnect(std::move(request));
}

Result<void> HostController::connect_transport(rdma::QpNumber qp, const IoQueueConnect& queue,
                                               std::uint32_t timeout_ms) {
    // Checked here for a readable message: the target would reject the connection with a number.
    if (queue.entries() > io_entries_max_)
        return error(Errc::kInvalidArgument,
                     "{} has I/O queues of {} commands at most, not of {}; use a smaller depth",
                     options_.subsystem_nqn, io_entries_max_, queue.entries());
    GN_ASSIGN(const std::vector<std::byte> accepted,
              nic_.connect(qp, options_.peer_address, options_.service, queue.transport_data(),
                           timeout_ms != 0 ? timeout_ms : options_.timeout_ms));
    return queue.check_accept(accepted);
}

Result<std::unique_ptr<HostQueue>> HostController::open_io_queue(std::uint16_t queue_id,
                                                                 std::uint32_t entries,
                                                                 ssd::Priority priority) {
    const IoQueueConnect connect = io_queue(queue_id, entries, priority);
    GN_ASSIGN(std::unique_ptr<HostQueue> queue, HostQueue::create(nic_, entries));
    GN_TRY(connect_transport(queue->qp(), connect));
    const std::uint64_t until = deadline(0);
    GN_ASSIGN(const nvme::Completion answer, ask_to_connect(*queue, connect, until));
    GN_TRY(connect.check(answer));
    const std::lock_guard lock(mutex_);  // of the bounce buffer
    GN_TRY(authenticate_queue(
        connect, answer, commands_on([&](nvme::Command command) -> Result<nvme::Completion> {
            command.command_id = 1;
            if (queue->post(command) != HostQueue::Posted::kYes)
                return error(Errc::kState, "queue {}: its queue pair is in error", connect.queue_id());
            return await_response(*queue, until);
        })));
    return queue;
}

}  // namespace gnstor::nvmf
