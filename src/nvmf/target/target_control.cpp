#include "nvmf/target/target_control.hpp"

#include "nvmf/target/shared_budget.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/simt/time.hpp>

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

namespace gnstor::nvmf {

using nvme::Status;

namespace {

constexpr std::chrono::milliseconds kTick{50};        // period of expire()
constexpr std::chrono::milliseconds kConnectWait{1};  // retry period of a Connect that waits for its queue id
/// Connects that are decided before commands are answered: a host that sends commands is nearer to the end of
/// its authentication than one that connects.
constexpr std::size_t kConnectsARound = 4;
constexpr std::size_t kServedPeersMax = 4096;  // of which take_next() remembers the turn
constexpr std::uint32_t kRefusalsQuiet = 200;  // ticks before a queue pair that cannot be destroyed is logged

}  // namespace

TargetControl::TargetControl(rdma::SoftNic& nic, TargetOptions options)
    : nic_(nic),
      options_(std::move(options)),
      first_hosts_version_(options_.hosts != nullptr ? options_.hosts->version() : 0),
      hosts_version_(first_hosts_version_) {}

Result<std::unique_ptr<TargetControl>> TargetControl::open(rdma::SoftNic& nic,
                                                           std::span<const SubsystemConfig> subsystems,
                                                           TargetOptions options) {
    if (!options.now_ns) options.now_ns = [] { return simt::now_ns(); };
    const QueueLimits& limits = options.controllers.queues;
    if (limits.admin_entries_max < 2 || limits.io_entries_max < 2 || limits.io_entries_max > 32768 ||
        limits.admin_entries_max > 4096 || limits.io_queues_max == 0 || limits.io_queues_max > 65535)
        return error(Errc::kInvalidArgument,
                     "a target cannot have admin queues of {} entries, I/O queues of {} entries and {} I/O "
                     "queues for each controller; give 2 to 4096, 2 to 32768 and 1 to 65535",
                     limits.admin_entries_max, limits.io_entries_max, limits.io_queues_max);
    if (options.turns.staging_bytes < kStagingBytesMin || options.turns.places == 0)
        return error(Errc::kInvalidArgument,
                     "a target needs at least {} bytes of staging memory and room for at least 1 command at "
                     "each drive, not {} bytes and {} commands",
                     kStagingBytesMin, options.turns.staging_bytes, options.turns.places);
    std::unique_ptr<TargetControl> control(new TargetControl(nic, std::move(options)));
    GN_TRY(control->make_subsystems(subsystems));
    control->thread_ = std::thread([c = control.get()] { c->run(); });
    GN_TRY(control->listen());
    return control;
}

Subsystem* TargetControl::subsystem_named(std::string_view nqn) const {
    const auto at = std::ranges::find_if(all_, [&](const auto& each) { return each->config.nqn == nqn; });
    return at == all_.end() ? nullptr : *at;
}

TargetControl::~TargetControl() {
    for (std::size_t i = 0; i < listening_; ++i) nic_.unlisten(listeners_[i]->service);
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(options_.drain_timeout_ms);
    std::unique_lock lock(mutex_);
    stopping_ = true;
    (void)progress_.wait_until(lock, deadline, [&] { return accepting_ == 0; });
    for (const auto& connection : connections_) connection->request_fail();
    if (!progress_.wait_until(lock, deadline, [&] { return connections_.empty(); }))
        log_error("{} connections have not drained in {} ms: a drive holds their commands",
                  connections_.size(), options_.drain_timeout_ms);
    stop_thread_ = true;
    wake_.notify_one();
    lock.unlock();
    if (thread_.joinable()) thread_.join();
    // A stuck drive may still hold commands: stop polling, then delete the queues; both waits are bounded.
    for (const auto& each : shards_) each.second->stop();
    for (auto& connection : connections_) {
        if (connection->record.queue != nullptr)
            (void)connection->record.subsystem->config.device->delete_queue(connection->record.queue);
        const auto destroyed = nic_.destroy_queue_pair(connection->qp());
        if (destroyed.ok() || destroyed.error().code != Errc::kBusy) continue;
        log_error("{}: {}", listeners_[connection->record.door]->service, destroyed.error().message);
        nic_.keep(std::shared_ptr<TargetConnection>(std::move(connection)));  // the NIC still has its address
    }
}

void TargetControl::post(Event event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
    wake_.notify_one();
}

void TargetControl::on_connect_command(TargetConnection& connection) {
    post({EventKind::kConnect, &connection, nullptr, 0});
}
void TargetControl::on_control_command(TargetConnection& connection) {
    post({EventKind::kCommand, &connection, nullptr, 0});
}
void TargetControl::on_controller_disabled(Subsystem& subsystem, std::uint16_t controller_id) {
    post({EventKind::kDisabled, nullptr, &subsystem, controller_id});
}
void TargetControl::on_shutdown(Subsystem& subsystem, std::uint16_t controller_id, std::uint32_t shutdown) {
    post({EventKind::kShutdown, nullptr, &subsystem, controller_id, shutdown});
}
void TargetControl::on_draining(TargetConnection& connection) {
    post({EventKind::kDraining, &connection, nullptr, 0});
}
void TargetControl::on_quiesced(TargetConnection& connection) {
    post({EventKind::kQuiesced, &connection, nullptr, 0});
}

std::size_t TargetControl::connections_open() const {
    const std::lock_guard lock(mutex_);
    return connections_.size();
}

/// The counters to which the connection's are added when it is destroyed. Under mutex_.
SubsystemCounters& TargetControl::tally_of(const TargetConnection& connection) {
    const TargetConnection::Record& record = connection.record;
    return record.subsystem != nullptr ? record.subsystem->closed : listeners_[record.door]->strayed;
}

void TargetControl::add_counters(const Subsystem& subsystem, nvme::SsdCountersLog& log) {
    const Result<SubsystemCounters> counted = counters(subsystem.config.nqn);
    if (!counted.ok()) return;
    log.capsules = counted->capsules;
    log.connections_accepted = counted->connections_accepted;
    log.connections_refused = counted->connections_refused;
    log.connections_failed = counted->connections_failed;
    log.connections_disconnected = counted->connections_disconnected;
    log.keep_alive_expired = counted->keep_alive_expired;
}

Result<SubsystemCounters> TargetControl::counters(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const Subsystem* subsystem = subsystem_named(name);
    const TargetListener* port = nullptr;
    for (const auto& door : listeners_) {
        if (door->service != name) continue;
        subsystem = door->only;
        port = door->only == nullptr ? door.get() : nullptr;
    }
    if (subsystem == nullptr && port == nullptr)
        return error(Errc::kNotFound, "the target has no subsystem '{}', and no listener of that name", name);
    SubsystemCounters sum = subsystem != nullptr ? subsystem->closed : port->strayed;
    for (const auto& connection : connections_) {
        const TargetConnection::Record& record = connection->record;
        if (record.subsystem != subsystem) continue;
        if (subsystem == nullptr && listeners_[record.door].get() != port) continue;
        connection->counters().add_to(sum);
        ++sum.connections_open;
    }
    return sum;
}

void TargetControl::check_time() {
    const std::lock_guard lock(mutex_);
    check_now_ = true;
    wake_.notify_one();
}

// The control thread.

void TargetControl::run() {
    auto next_tick = std::chrono::steady_clock::now();
    std::vector<Event> events;
    for (;;) {
        bool look = false;
        {
            std::unique_lock lock(mutex_);
            const bool waits = !connects_.empty() || !host_sets_.empty();
            const auto until = waits ? std::chrono::steady_clock::now() + kConnectWait : next_tick;
            (void)wake_.wait_until(lock, until, [&] {
                return stop_thread_ || check_now_ || !events_.empty() || !commands_.empty();
            });
            if (stop_thread_) return;
            events.clear();
            events.swap(events_);
            look = check_now_ || std::chrono::steady_clock::now() >= next_tick;
            check_now_ = false;
        }
        for (const Event& event : events) handle(event);
        if (look) {
            expire();
            next_tick = std::chrono::steady_clock::now() + kTick;
        }
        decide_connects();
        answer_commands();
        destroy_quiesced(look);
    }
}

void TargetControl::handle(const Event& event) {
    switch (event.kind) {
        case EventKind::kAccepted:
            end_oldest_strangers(*event.connection);
            return;
        case EventKind::kConnect:
            connects_.push_back(event.connection);
            return;
        case EventKind::kCommand:
            commands_.push_back(event.connection);
            return;
        case EventKind::kDisabled:
            close_queues(*event.subsystem, event.controller_id, false);
            return;
        case EventKind::kShutdown: {
            std::unique_lock lock(event.subsystem->mutex);
            event.subsystem->flushes.want(event.controller_id, event.shutdown);
            lock.unlock();
            flush_for_shutdowns(*event.subsystem);
            return;
        }
        case EventKind::kDraining: {
            TargetConnection::Record& record = event.connection->record;
            note_stranger(*event.connection);
            record.closing = true;
            // An association ends with its admin queue (Base 2.0, 3.1.1).
            if (record.bound && record.binding.queue_id == 0)
                close_queues(*record.subsystem, record.binding.controller_id, false);
            return;
        }
        case EventKind::kQuiesced:
            event.connection->record.quiesced = true;
            return;
    }
}

std::vector<TargetConnection*> TargetControl::snapshot() const {
    const std::lock_guard lock(mutex_);
    std::vector<TargetConnection*> all;
    all.reserve(connections_.size());
    for (const auto& connection : connections_) all.push_back(connection.get());
    return all;
}

void TargetControl::close_queues(Subsystem& subsystem, std::uint16_t controller_id, bool admin_too, Why why) {
    for (TargetConnection* connection : snapshot()) {
        TargetConnection::Record& record = connection->record;
        if (record.subsystem != &subsystem || !record.bound || record.binding.controller_id != controller_id)
            continue;
        if (record.binding.queue_id == 0 && !admin_too) continue;
        record.closing = true;
        record.failed = record.failed || why == Why::kSilence;
        connection->request_fail();
    }
}

/// One flush at a time; expire() calls this again for shutdowns that came meanwhile. The device may answer
/// after the target is destroyed, so the callback shares ownership of the subsystem.
void TargetControl::flush_for_shutdowns(Subsystem& subsystem) {
    ShutdownFlushes::Wanted wanted;
    {
        const std::lock_guard lock(subsystem.mutex);
        wanted = subsystem.flushes.begin();
    }
    if (wanted.empty()) return;
    subsystem.config.device->flush([of = subsystem.shared_from_this(), wanted](bool stable) {
        if (!stable)
            log_error(
                "{}: the drive cannot flush its acknowledged writes, so {} controllers do not complete their "
                "shutdown",
                of->config.nqn, wanted.size());
        const std::lock_guard lock(of->mutex);
        of->flushes.ended();
        for (const auto& [id, shutdown] : wanted) of->controllers.shutdown_ended(id, shutdown, stable);
    });
}

void TargetControl::expire() {
    const std::uint64_t now = options_.now_ns();
    for (Subsystem* const subsystem : all_) {
        std::vector<std::uint16_t> expired;
        {
            const std::lock_guard lock(subsystem->mutex);
            expired = subsystem->controllers.expire(now);
        }
        for (const std::uint16_t id : expired) {
            log_warn(
                "{}: controller {} received no command within its keep-alive time; its connections are ended",
                subsystem->config.nqn, id);
            close_queues(*subsystem, id, true, Why::kSilence);
        }
        {
            const std::lock_guard lock(mutex_);
            subsystem->closed.keep_alive_expired += expired.size();
        }
        flush_for_shutdowns(*subsystem);
    }
    const std::uint64_t patience = std::uint64_t{options_.connect_timeout_ms} * 1'000'000u;
    for (TargetConnection* connection : snapshot()) {
        TargetConnection::Record& record = connection->record;
        expire_authentication(*connection, now);
        if (record.bound || record.closing || now < record.accepted_ns + patience) continue;
        end_late(*connection);
    }
}

TargetConnection* TargetControl::take_next(std::deque<TargetConnection*>& waiting, bool connects) {
    const auto last_turn = [&](const TargetConnection* connection) {
        const auto served = served_.find(connection->record.peer);
        return served == served_.end() ? 0 : served->second;
    };
    auto next = waiting.end();
    for (auto at = waiting.begin(); at != waiting.end(); ++at) {
        if (next != waiting.end() && last_turn(*at) >= last_turn(*next)) continue;
        if (connects && must_wait(**at)) continue;
        next = at;
    }
    if (next == waiting.end()) return nullptr;
    TargetConnection* const taken = *next;
    waiting.erase(next);
    if (served_.size() >= kServedPeersMax) served_.clear();
    served_[taken->record.peer] = ++turns_;
    return taken;
}

void TargetControl::decide_connects() {
    for (std::size_t i = 0; i < kConnectsARound; ++i) {
        TargetConnection* const connection = take_next(connects_, true);
        if (connection == nullptr) return;
        decide(*connection);
    }
}

/// The subsystem that the Connect names; null: there is none of that name.
Subsystem* TargetControl::wanted(const TargetConnection& connection) const {
    if (connection.record.subsystem != nullptr) return connection.record.subsystem;
    return subsystem_named(connection.connect_request().subsystem_nqn);
}

/// Ends a connection whose time is over.
void TargetControl::end_late(TargetConnection& connection) {
    connection.record.closing = connection.record.failed = true;
    connection.request_fail();
}

/// Whether a connection that is closing still has the queue id.
bool TargetControl::must_wait(const TargetConnection& connection) const {
    const ConnectRequest& request = connection.connect_request();
    const Subsystem* const subsystem = wanted(connection);
    if (subsystem == nullptr || request.queue_id == 0 || connection.is_draining()) return false;
    for (TargetConnection* other : snapshot()) {
        const TargetConnection::Record& record = other->record;
        if (record.subsystem == subsystem && record.bound &&
            record.binding.controller_id == request.controller_id &&
            record.binding.queue_id == request.queue_id)
            return record.closing || other->is_draining();
    }
    return false;
}

void TargetControl::decide(TargetConnection& connection) {
    // A drive queue takes time to make: none is made for a connection that has ended.
    if (connection.record.closing || connection.is_draining())
        return connection.answer_connect({Status::kAborted, 0, {}}, nullptr, nullptr);
    Subsystem* const subsystem = wanted(connection);
    if (subsystem == nullptr) {
        const ConnectVerdict stranger = bad_parameter(offsetof(nvme::ConnectData, subsystem_nqn), true);
        return connection.answer_connect({stranger.status, stranger.dw0, {}}, nullptr, nullptr);
    }
    const ConnectOutcome outcome = make_queue(connection, *subsystem);
    const bool good = nvme::ok(outcome.status);
    if (good && connection.record.subsystem == nullptr) {
        const std::lock_guard lock(mutex_);
        connection.record.subsystem = subsystem;
        ++subsystem->closed.connections_accepted;
    }
    connection.answer_connect(outcome, good ? subsystem : nullptr, connection.record.queue);
}

ConnectOutcome TargetControl::make_queue(TargetConnection& connection, Subsystem& subsystem) {
    if (const Status begins = may_begin(connection, subsystem); !nvme::ok(begins)) return {begins, 0, {}};
    ConnectOutcome outcome;
    {
        const std::lock_guard lock(subsystem.mutex);
        outcome = subsystem.controllers.connect(connection.connect_request(), connection.transport(),
                                                options_.now_ns());
    }
    if (!nvme::ok(outcome.status)) return outcome;
    const QueueBinding& binding = outcome.binding;
    // Deeper than the most outstanding capsules: a queue of n holds n - 1 commands.
    const std::uint32_t depth = std::bit_ceil(connection.transport().entries + 1);
    auto made = subsystem.config.device->create_queue(
        binding.queue_id, depth, binding.client, binding.priority, binding.privileged, binding.controller_id);
    if (made.ok()) {
        connection.record.binding = binding;
        connection.record.bound = true;
        connection.record.queue = *made;
        if (must_authenticate(connection, subsystem)) {
            make_room(connection);
            connection.record.must_authenticate = true;
            outcome.dw0 |= nvme::kConnectAuthenticate;
            connection.record.auth_until_ns =
                options_.now_ns() + std::uint64_t{options_.auth_timeout_ms} * 1'000'000u;
        }
        return outcome;
    }
    log_error("{}: no device queue for controller {} queue {}: {}", subsystem.config.nqn,
              binding.controller_id, binding.queue_id, made.error().message);
    const std::lock_guard lock(subsystem.mutex);
    subsystem.controllers.disconnect(binding.controller_id, binding.queue_id);
    return {Status::kInternalError, 0, {}};
}

void TargetControl::destroy_quiesced(bool again) {
    for (TargetConnection* connection : snapshot()) {
        const TargetConnection::Record& record = connection->record;
        if (record.quiesced && (record.refusals == 0 || again)) destroy(*connection);
    }
}

/// Never blocks, because all connections depend on this thread: a queue pair that the NIC still needs is
/// tried again at the next tick, and its connection is kept until then.
void TargetControl::destroy(TargetConnection& connection) {
    TargetConnection::Record& record = connection.record;
    if (record.refusals == 0) connection.shard().remove(connection);
    if (ssd::NvmeQueue* const queue = std::exchange(record.queue, nullptr)) {
        const auto deleted = record.subsystem->config.device->delete_queue(queue);
        if (!deleted.ok()) log_error("{}: {}", record.subsystem->config.nqn, deleted.error().message);
    }
    const auto destroyed = nic_.destroy_queue_pair(connection.qp(), 0);
    if (!destroyed.ok() && destroyed.error().code == Errc::kBusy) {
        if (++record.refusals == kRefusalsQuiet)
            log_warn(
                "{}: a connection of {} has ended, but its queue pair could not be destroyed for {} s: {}",
                listeners_[record.door]->service, record.peer,
                std::chrono::duration_cast<std::chrono::seconds>(kRefusalsQuiet * kTick).count(),
                destroyed.error().message);
        return;
    }
    if (!destroyed.ok()) log_error("{}: {}", listeners_[record.door]->service, destroyed.error().message);
    if (record.bound) {
        Subsystem& subsystem = *record.subsystem;
        if (record.binding.queue_id == 0) close_queues(subsystem, record.binding.controller_id, false);
        const std::lock_guard lock(subsystem.mutex);
        subsystem.controllers.disconnect(record.binding.controller_id, record.binding.queue_id);
        if (record.binding.queue_id == 0) subsystem.flushes.forget(record.binding.controller_id);
    }
    const std::lock_guard lock(mutex_);
    SubsystemCounters& tally = tally_of(connection);
    connection.counters().add_to(tally);
    const bool failed = record.failed || connection.broke_rules();
    ++(failed ? tally.connections_failed : tally.connections_disconnected);
    give_back(record.peer, connection.transport().entries, record.stranger);
    if (record.authenticated)
        if (const auto of_peer = proven_of_.find(record.peer); --of_peer->second == 0)
            proven_of_.erase(of_peer);
    connections_.remove_if([&](const auto& each) { return each.get() == &connection; });
    progress_.notify_all();
}

}  // namespace gnstor::nvmf
