#include "nvmf/target/controllers.hpp"

#include "nvmf/protocol/capsule.hpp"

#include <gnstor/nvme/discovery.hpp>
#include <gnstor/nvme/features.hpp>

#include <algorithm>
#include <cstring>

namespace gnstor::nvmf {

using nvme::Status;

namespace {

constexpr std::uint16_t kControllerIdMax = 0xFFEF;  // FFF0h and above are reserved (Base 2.0, 3.1.1)
constexpr std::uint64_t kNever = ~0ull;
constexpr std::uint8_t kSqEntryLog2 = 6;
constexpr std::uint8_t kCqEntryLog2 = 4;
constexpr std::uint8_t kArbitrationRoundRobin = 0;
constexpr std::uint8_t kArbitrationWeighted = 1;
constexpr std::uint8_t kShutdownNone = 0, kShutdownOccurring = 1, kShutdownComplete = 2;  // CSTS.SHST
constexpr std::uint8_t kTransferLog2 = 8;  // MDTS: 2^8 pages of 4 KiB
static_assert((4096u << kTransferLog2) == kTransferBytesMax,
              "the transfer limit in Identify must be the limit that capsules are checked against");

ConnectOutcome refused(const ConnectVerdict& verdict) {
    return {verdict.status, verdict.dw0, {}};
}
ConnectOutcome refused(Status status) {
    return {status, 0, {}};
}

nvme::PropertyCommand property_of(const nvme::Command& command) {
    nvme::PropertyCommand wire;
    std::memcpy(&wire, &command, sizeof wire);
    return wire;
}

/// Bytes that the command names; 0 unless the property exists and has that size.
std::uint32_t checked_property_bytes(const nvme::PropertyCommand& wire) {
    const std::uint32_t bytes = nvme::property_bytes(wire.offset);
    const std::uint8_t size = wire.attributes & 7u;
    if (size > 1 || bytes != (size == 1 ? 8u : 4u)) return 0;
    return bytes;
}

}  // namespace

Controllers::Controllers(std::string subsystem_nqn, ControllerOptions options, ControllerKind kind)
    : subsystem_nqn_(std::move(subsystem_nqn)), options_(std::move(options)), kind_(kind) {}

Controllers::Controller* Controllers::find(std::uint16_t controller_id) {
    const auto at = controllers_.find(controller_id);
    return at == controllers_.end() || at->second.expired ? nullptr : &at->second;
}
const Controllers::Controller* Controllers::find(std::uint16_t controller_id) const {
    const auto at = controllers_.find(controller_id);
    return at == controllers_.end() || at->second.expired ? nullptr : &at->second;
}

std::uint16_t Controllers::free_id() {
    do {
        last_id_ = last_id_ >= kControllerIdMax ? 1 : static_cast<std::uint16_t>(last_id_ + 1);
    } while (controllers_.contains(last_id_));
    return last_id_;
}

void Controllers::set_keep_alive(Controller& controller, std::uint32_t ms, std::uint64_t now_ns) const {
    controller.keep_alive_ms = ms;
    const std::uint32_t wanted = ms == 0 && kind_ == ControllerKind::kDiscovery ? kDiscoveryIdleMs : ms;
    const std::uint64_t units =
        (std::uint64_t{wanted} + kKeepAliveGranularityMs - 1) / kKeepAliveGranularityMs;
    controller.expires_ns = wanted == 0 ? kNever : now_ns + units * kKeepAliveGranularityMs * 1'000'000u;
}

void Controllers::heard(std::uint16_t controller_id, std::uint64_t now_ns) {
    Controller* const controller = kind_ == ControllerKind::kDiscovery ? find(controller_id) : nullptr;
    if (controller != nullptr && controller->keep_alive_ms == 0) set_keep_alive(*controller, 0, now_ns);
}

ConnectOutcome Controllers::connect(const ConnectRequest& request, const TransportRequest& transport,
                                    std::uint64_t now_ns) {
    // The RDMA connection was made for one queue id and a number of capsules: Connect must match both.
    if (request.queue_id != transport.queue_id)
        return refused(bad_parameter(offsetof(nvme::ConnectCommand, queue_id), false));
    if (std::uint32_t{request.sq_size} + 1 > transport.entries)
        return refused(bad_parameter(offsetof(nvme::ConnectCommand, sq_size), false));
    if (request.subsystem_nqn != subsystem_nqn_)
        return refused(bad_parameter(offsetof(nvme::ConnectData, subsystem_nqn), true));
    ConnectOutcome outcome = request.queue_id == 0 ? connect_admin(request, now_ns) : connect_io(request);
    outcome.binding.sq_flow = (request.attributes & nvme::kConnectDisableSqFlow) == 0;
    return outcome;
}

ConnectOutcome Controllers::connect_admin(const ConnectRequest& request, std::uint64_t now_ns) {
    if (request.controller_id != nvme::kAnyController)
        return refused(bad_parameter(offsetof(nvme::ConnectData, controller_id), true));
    if (controllers_.size() >= std::min<std::size_t>(options_.controllers_max, kControllerIdMax))
        return refused(Status::kConnectControllerBusy);
    const std::uint16_t id = free_id();
    Controller& controller = controllers_[id];
    controller.host_id = request.host_id;
    controller.host_nqn = request.host_nqn;
    // A discovery controller does not authenticate hosts, so the name proves nothing there.
    controller.privileged = kind_ == ControllerKind::kIo && request.host_nqn == options_.admin_host_nqn;
    controller.client = client_of_host_nqn(request.host_nqn).value_or(0);
    controller.io_queues_granted = options_.queues.io_queues_max;
    controller.queues.insert(0);
    set_keep_alive(controller, request.keep_alive_ms, now_ns);
    QueueBinding binding;
    binding.controller_id = id;
    binding.client = controller.client;
    binding.privileged = controller.privileged;
    return {Status::kSuccess, id, binding};
}

ConnectOutcome Controllers::connect_io(const ConnectRequest& request) {
    Controller* controller = find(request.controller_id);
    if (controller == nullptr)
        return refused(bad_parameter(offsetof(nvme::ConnectData, controller_id), true));
    // Host id and NQNs as at the admin Connect: a controller belongs to one host (Base 2.0, 6.3).
    if (request.host_id != controller->host_id)
        return refused(bad_parameter(offsetof(nvme::ConnectData, host_id), true));
    if (request.host_nqn != controller->host_nqn)
        return refused(bad_parameter(offsetof(nvme::ConnectData, host_nqn), true));
    if (kind_ == ControllerKind::kDiscovery || request.queue_id > controller->io_queues_granted)
        return refused(bad_parameter(offsetof(nvme::ConnectCommand, queue_id), false));
    if (!controller->status.ready) return refused(Status::kCommandSequenceError);
    if (!controller->queues.insert(request.queue_id).second) return refused(Status::kCommandSequenceError);
    QueueBinding binding;  // I/O queues are never privileged: vendor commands are admin commands
    binding.controller_id = request.controller_id;
    binding.queue_id = request.queue_id;
    binding.client = controller->client;
    if (controller->configuration.arbitration == kArbitrationWeighted)
        binding.priority = static_cast<ssd::Priority>(request.attributes & nvme::kConnectPriorityMask);
    return {Status::kSuccess, request.controller_id, binding};
}

void Controllers::disconnect(std::uint16_t controller_id, std::uint16_t queue_id) {
    const auto at = controllers_.find(controller_id);
    if (at == controllers_.end()) return;
    if (queue_id == 0)
        controllers_.erase(at);
    else
        at->second.queues.erase(queue_id);
}

PropertyOutcome Controllers::property_get(std::uint16_t controller_id, const nvme::Command& command) const {
    const Controller* controller = find(controller_id);
    if (controller == nullptr) return {Status::kCommandSequenceError, 0, false};
    const nvme::PropertyCommand wire = property_of(command);
    if (checked_property_bytes(wire) == 0) return {Status::kInvalidField, 0, false};
    switch (static_cast<nvme::Property>(wire.offset)) {
        case nvme::Property::kCap: {
            nvme::Capabilities capabilities;
            capabilities.max_queue_entries = static_cast<std::uint16_t>(options_.queues.io_entries_max - 1);
            capabilities.weighted_round_robin = true;
            capabilities.timeout_500ms = kEnableTimeout500ms;
            return {Status::kSuccess, capabilities.encode(), false};
        }
        case nvme::Property::kVs:
            return {Status::kSuccess, nvme::kVersion20, false};
        case nvme::Property::kCc:
            return {Status::kSuccess, controller->configuration.encode(), false};
        case nvme::Property::kCsts:
            return {Status::kSuccess, controller->status.encode(), false};
        case nvme::Property::kNssr:
            break;  // CAP.NSSRS is 0
    }
    return {Status::kInvalidField, 0, false};
}

PropertyOutcome Controllers::property_set(std::uint16_t controller_id, const nvme::Command& command) {
    Controller* controller = find(controller_id);
    if (controller == nullptr) return {Status::kCommandSequenceError, 0, false};
    const nvme::PropertyCommand wire = property_of(command);
    if (checked_property_bytes(wire) == 0 || wire.offset != static_cast<std::uint32_t>(nvme::Property::kCc))
        return {Status::kInvalidField, 0, false};  // the others are read only
    return configure(*controller, nvme::Configuration::decode(static_cast<std::uint32_t>(wire.value)));
}

PropertyOutcome Controllers::configure(Controller& controller, nvme::Configuration wanted) {
    PropertyOutcome outcome;
    const bool was_enabled = controller.configuration.enable;
    controller.configuration = wanted;
    nvme::ControllerStatus& status = controller.status;
    if (wanted.enable && !was_enabled) {
        const bool fits =
            wanted.command_set == 0 && wanted.page_size == 0 && wanted.sq_entry_log2 == kSqEntryLog2 &&
            wanted.cq_entry_log2 == kCqEntryLog2 &&
            (wanted.arbitration == kArbitrationRoundRobin || wanted.arbitration == kArbitrationWeighted);
        status = {.ready = fits, .fatal = !fits, .shutdown = 0};
    } else if (!wanted.enable && was_enabled) {
        status = {};
        controller.io_queues_granted = options_.queues.io_queues_max;
        outcome.close_io_queues = outcome.reset = true;
    }
    // Complete when the device has been flushed (Base 2.0, 3.6). A later write to CC with CC.SHN still set
    // begins no second shutdown.
    if (wanted.shutdown != 0 && status.shutdown == kShutdownNone) {
        status.shutdown = kShutdownOccurring;
        outcome.close_io_queues = true;
        outcome.shutdown = ++controller.shutdowns;
    }
    return outcome;
}

void Controllers::shutdown_ended(std::uint16_t controller_id, std::uint32_t shutdown, bool stable) {
    Controller* const controller = find(controller_id);
    if (controller == nullptr || controller->shutdowns != shutdown ||
        controller->status.shutdown != kShutdownOccurring)
        return;
    if (stable)
        controller->status.shutdown = kShutdownComplete;
    else
        controller->status.fatal = true;
}

nvme::Status Controllers::keep_alive(std::uint16_t controller_id, std::uint64_t now_ns) {
    Controller* controller = find(controller_id);
    if (controller == nullptr) return Status::kKeepAliveExpired;
    set_keep_alive(*controller, controller->keep_alive_ms, now_ns);
    return Status::kSuccess;
}

std::vector<std::uint16_t> Controllers::expire(std::uint64_t now_ns) {
    std::vector<std::uint16_t> ids;
    for (auto& [id, controller] : controllers_) {
        if (controller.expired || controller.expires_ns == kNever || now_ns < controller.expires_ns) continue;
        controller.expired = true;
        controller.status = {.ready = false, .fatal = true, .shutdown = 0};
        ids.push_back(id);
    }
    return ids;
}

FeatureOutcome Controllers::set_feature(std::uint16_t controller_id, const nvme::Command& command,
                                        std::uint64_t now_ns) {
    Controller* controller = find(controller_id);
    if (controller == nullptr) return {Status::kCommandSequenceError, 0, true};
    if ((command.cdw10 & nvme::kFeatureSave) != 0) return {Status::kFeatureNotSaveable, 0, true};
    switch (static_cast<nvme::Feature>(command.cdw10 & 0xFFu)) {
        case nvme::Feature::kNumberOfQueues: {
            if (kind_ == ControllerKind::kDiscovery) return {Status::kInvalidField, 0, true};
            if ((command.cdw11 & 0xFFFFu) == 0xFFFFu || (command.cdw11 >> 16) == 0xFFFFu)
                return {Status::kInvalidField, 0, true};
            // Not after I/O queues exist (Base 2.0, 5.27.1.5).
            if (controller->queues.size() > 1) return {Status::kCommandSequenceError, 0, true};
            const auto wanted = nvme::QueueCount::decode(command.cdw11);
            // Over fabrics a queue is a pair; the smaller number counts.
            const std::uint32_t granted =
                std::min({wanted.submission, wanted.completion, options_.queues.io_queues_max});
            controller->io_queues_granted = granted;
            return {Status::kSuccess, nvme::QueueCount{granted, granted}.encode(), true};
        }
        case nvme::Feature::kKeepAliveTimer:
            set_keep_alive(*controller, command.cdw11, now_ns);
            return {Status::kSuccess, 0, true};
        default:
            return {};
    }
}

FeatureOutcome Controllers::get_feature(std::uint16_t controller_id, const nvme::Command& command) const {
    const Controller* controller = find(controller_id);
    if (controller == nullptr) return {Status::kCommandSequenceError, 0, true};
    const auto select = static_cast<nvme::FeatureSelect>((command.cdw10 >> 8) & 7u);
    std::uint32_t current = 0;
    std::uint32_t initial = 0;
    switch (static_cast<nvme::Feature>(command.cdw10 & 0xFFu)) {
        case nvme::Feature::kNumberOfQueues:
            if (kind_ == ControllerKind::kDiscovery) return {Status::kInvalidField, 0, true};
            current = nvme::QueueCount{controller->io_queues_granted, controller->io_queues_granted}.encode();
            initial = nvme::QueueCount{options_.queues.io_queues_max, options_.queues.io_queues_max}.encode();
            break;
        case nvme::Feature::kKeepAliveTimer:
            current = controller->keep_alive_ms;
            break;
        default:
            return {};
    }
    switch (select) {
        case nvme::FeatureSelect::kCurrent:
            return {Status::kSuccess, current, true};
        case nvme::FeatureSelect::kDefault:
        case nvme::FeatureSelect::kSaved:
            return {Status::kSuccess, initial, true};
        case nvme::FeatureSelect::kSupported:
            return {Status::kSuccess, nvme::kFeatureChangeable, true};
    }
    return {Status::kInvalidField, 0, true};
}

bool Controllers::ready(std::uint16_t controller_id) const {
    const Controller* controller = find(controller_id);
    return controller != nullptr && controller->status.ready;
}

bool Controllers::has_queue(std::uint16_t controller_id, std::uint16_t queue_id) const {
    const auto at = controllers_.find(controller_id);
    return at != controllers_.end() && at->second.queues.contains(queue_id);
}

void Controllers::complete_identify(std::uint16_t controller_id, nvme::IdentifyController& identify) const {
    identify.cntlid = controller_id;
    identify.ver = nvme::kVersion20;
    identify.ctratt |= nvme::kCtrattHostId128;
    identify.kas = kKeepAliveGranularityMs / 100;
    identify.mdts = kTransferLog2;
    identify.aerl = kAsyncEventsMax - 1;
    identify.maxcmd = static_cast<std::uint16_t>(options_.queues.io_entries_max);
    identify.sgls = nvme::kSglsSupported | nvme::kSglsKeyed | nvme::kSglsOffset;
    identify.fcatt = 0;  // dynamic controller model
    identify.msdbd = 1;
    identify.ofcs = 0;  // no Disconnect command
    (void)put_nqn(identify.subnqn, subsystem_nqn_);
    if (kind_ == ControllerKind::kDiscovery) {
        identify.cntrltype = nvme::kControllerTypeDiscovery;
        return;
    }
    identify.cntrltype = nvme::kControllerTypeIo;
    identify.sqes = (kSqEntryLog2 << 4) | kSqEntryLog2;
    identify.cqes = (kCqEntryLog2 << 4) | kCqEntryLog2;
    identify.ioccsz = kCapsuleBytesMax / 16;
    identify.iorcsz = sizeof(nvme::Completion) / 16;
    identify.icdoff = 0;
}

}  // namespace gnstor::nvmf
