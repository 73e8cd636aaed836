// target_listen.cpp: makes a target's subsystems and listeners, and accepts RDMA connections, up to Connect.
#include <gnstor/base/log.hpp>

#include "nvmf/target/shared_budget.hpp"
#include "nvmf/target/target_control.hpp"

#include <algorithm>

namespace gnstor::nvmf {

namespace {

rdma::ConnectReply reject(nvme::RdmaRejectStatus status) {
    return {.accept = false,
            .reject_reason = kRejectConsumerDefined,
            .private_data = transport_reject_data(status),
            .qp = 0};
}

}  // namespace

/// Runs before the control thread starts: the lists of subsystems never change afterwards.
Result<void> TargetControl::make_subsystems(std::span<const SubsystemConfig> subsystems) {
    for (SubsystemConfig config : subsystems) {
        if (config.device == nullptr || (config.service.empty() && options_.ports.empty()))
            return error(
                Errc::kInvalidArgument,
                "a subsystem needs a device, and a service name to listen on or a port of its target");
        if (config.nqn.empty()) config.nqn = ssd_subsystem_nqn(config.device->uuid());
        if (!is_valid_nqn(config.nqn))
            return error(Errc::kInvalidArgument,
                         "'{}' is not an NVMe qualified name (nqn.yyyy-mm.domain:name)", config.nqn);
        const auto same = [&](const auto& each) { return each->config.nqn == config.nqn; };
        if (!options_.ports.empty() &&
            (config.nqn == kDiscoveryNqn || std::ranges::any_of(subsystems_, same)))
            return error(Errc::kExists,
                         "two subsystems of one target have the NQN {}: a port cannot distinguish them; give "
                         "each subsystem another NQN",
                         config.nqn);
        subsystems_.push_back(std::make_shared<Subsystem>(std::move(config), options_.controllers));
        const auto& made = subsystems_.back();
        if (!made->config.service.empty()) add_listener(made->config.service, made.get());
    }
    for (const auto& each : subsystems_) all_.push_back(each.get());
    if (options_.ports.empty()) return {};
    for (const PortConfig& port : options_.ports) add_listener(port.service, nullptr);
    return make_discovery();
}

/// One record for each subsystem at each port.
Result<void> TargetControl::make_discovery() {
    std::vector<DiscoveryRecord> records;
    for (std::size_t i = 0; i < options_.ports.size(); ++i)
        for (const auto& subsystem : subsystems_)
            records.push_back(
                {.nqn = subsystem->config.nqn,
                 .address = options_.ports[i].address.empty() ? nic_.address() : options_.ports[i].address,
                 .service = options_.ports[i].service,
                 .port_id = static_cast<std::uint16_t>(i + 1),
                 .admin_entries_max =
                     static_cast<std::uint16_t>(options_.controllers.queues.admin_entries_max)});
    Reactor* reactor = options_.discovery_reactor;
    if (reactor == nullptr && !subsystems_.empty()) reactor = subsystems_.front()->config.drive_reactor;
    if (reactor == nullptr)
        return error(Errc::kInvalidArgument,
                     "a target with ports needs a reactor for discovery: set discovery_reactor, or the "
                     "drive_reactor of the first subsystem");
    GN_ASSIGN(DiscoveryLog log, DiscoveryLog::make(records));
    discovery_device_ = std::make_unique<DiscoveryDevice>(std::move(log), *reactor);
    SubsystemConfig config;
    config.device = discovery_device_.get();
    config.nqn = kDiscoveryNqn;
    config.drive_reactor = reactor;
    discovery_ =
        std::make_shared<Subsystem>(std::move(config), options_.controllers, ControllerKind::kDiscovery);
    all_.push_back(discovery_.get());
    return {};
}

void TargetControl::add_listener(const std::string& service, Subsystem* only) {
    listeners_.push_back(std::make_unique<TargetListener>(*this, listeners_.size(), service, only));
}

Result<void> TargetControl::listen() {
    for (; listening_ < listeners_.size(); ++listening_)
        GN_TRY(nic_.listen(listeners_[listening_]->service, *listeners_[listening_]));
    return {};
}

OffloadShard& TargetControl::shard_of(Reactor& reactor) {
    const std::lock_guard lock(mutex_);
    auto& shard = shards_[&reactor];
    if (shard == nullptr) {
        SharedBudgetOptions turns = options_.turns;
        turns.staging_bytes = staging_share(turns.staging_bytes, subsystems_.size());
        shard = std::make_unique<OffloadShard>(reactor, turns);
    }
    return *shard;
}

rdma::ConnectReply TargetControl::refuse(TargetListener& door, nvme::RdmaRejectStatus status) {
    const std::lock_guard lock(mutex_);
    ++door.tally().connections_refused;
    return reject(status);
}

bool TargetControl::is_stranger(const rdma::ConnectRequest& request) const {
    if (options_.hosts == nullptr || request.kind == rdma::PeerKind::kSameUser) return false;
    const std::lock_guard lock(mutex_);
    return !proven_of_.contains(request.peer);
}

/// Reserves entries for a connection that accept() is about to make. False: no room, or stopping.
bool TargetControl::reserve(const std::string& peer, std::uint32_t entries, bool stranger) {
    const std::lock_guard lock(mutex_);
    if (stopping_ || connections_.size() + accepting_ >= options_.connections_max) return false;
    // Twice what end_oldest_strangers() leaves: those that it ended need some time to end.
    const bool crowded =
        strangers_ >= 2 * options_.strangers_max || stranger_entries_ + entries > options_.entries_max / 2;
    if (stranger && crowded) return false;
    const auto of_peer = entries_of_.find(peer);
    const std::uint64_t before = of_peer == entries_of_.end() ? 0 : of_peer->second;
    const bool fits =
        entries_ + entries <= options_.entries_max && before + entries <= options_.entries_max / 2;
    if (!fits) {
        log_warn(
            "a connection of {} queue entries from {} is rejected: all hosts together use {} of the {} "
            "entries of this target, and this host uses {}; one host may use half of them",
            entries, peer, entries_, options_.entries_max, before);
        return false;
    }
    entries_ += entries;
    entries_of_[peer] += entries;
    strangers_ += stranger ? 1 : 0;
    stranger_entries_ += stranger ? entries : 0;
    ++accepting_;
    return true;
}

/// Under mutex_.
void TargetControl::give_back(const std::string& peer, std::uint32_t entries, bool stranger) {
    entries_ -= entries;
    strangers_ -= stranger ? 1 : 0;
    stranger_entries_ -= stranger ? entries : 0;
    const auto of_peer = entries_of_.find(peer);
    of_peer->second -= entries;
    if (of_peer->second == 0) entries_of_.erase(of_peer);
}

/// Any thread of the NIC. Makes the queue pair; what may block is left to Connect.
rdma::ConnectReply TargetControl::accept(std::size_t door, const rdma::ConnectRequest& request) {
    const TransportVerdict verdict =
        check_transport_request(request.private_data, options_.controllers.queues);
    if (verdict.reject) return refuse(*listeners_[door], *verdict.reject);
    const std::uint32_t entries = verdict.request.entries;
    const bool stranger = is_stranger(request);
    // Its Connect would be refused: an I/O queue follows an admin queue that has authenticated.
    if (stranger && verdict.request.queue_id != 0)
        return refuse(*listeners_[door], nvme::RdmaRejectStatus::kInvalidQueueId);
    if (!reserve(request.peer, entries, stranger))
        return refuse(*listeners_[door], nvme::RdmaRejectStatus::kNoResources);
    Subsystem* const only = listeners_[door]->only;
    auto connection = std::make_unique<TargetConnection>(nic_, only, *this, verdict.request, options_.now_ns);
    connection->record.accepted_ns = options_.now_ns();
    connection->record.subsystem = only;
    connection->record.door = door;
    connection->record.peer = request.peer;
    connection->record.kind = request.kind;
    connection->record.stranger = stranger;
    const Result<rdma::QpNumber> qp = nic_.create_offload_queue_pair(*connection, request.affinity);
    if (qp.ok()) connection->attach(*qp, shard_of(nic_.owner(*qp)));
    const std::lock_guard lock(mutex_);
    --accepting_;
    progress_.notify_all();
    if (!qp.ok()) {
        give_back(request.peer, entries, stranger);
        ++listeners_[door]->tally().connections_refused;
        log_warn("cannot create a queue pair for a connection from {}: {}", request.peer, qp.error().message);
        return reject(nvme::RdmaRejectStatus::kNoResources);
    }
    ++tally_of(*connection).connections_accepted;
    if (stranger) {
        events_.push_back({EventKind::kAccepted, connection.get(), nullptr, 0});
        wake_.notify_one();
    }
    connections_.push_back(std::move(connection));
    return {.accept = true,
            .reject_reason = 0,
            .private_data = transport_accept_data(verdict.request.entries),
            .qp = *qp,
            .messages = verdict.request.entries,
            .message_bytes = kCapsuleBytesMax};
}

}  // namespace gnstor::nvmf
