// target_auth.cpp: the control thread authenticates hosts, and ends the queues of those that are no longer
// let in.
//
// NVMe Base 2.0, 8.13 (in-band authentication); the transactions are auth/dhchap_controller.hpp. What an
// attacker who cannot authenticate may occupy is bounded: the number of queues that are authenticating, of
// one address and of all, the time that each has, and one attempt a connection.
#include "nvmf/auth/auth_command.hpp"
#include "nvmf/auth/random.hpp"
#include "nvmf/target/target_control.hpp"

#include <gnstor/base/log.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

namespace gnstor::nvmf {

using nvme::Status;

namespace {

/// Commands answered before the thread looks at Connects and time limits again: a Diffie-Hellman exchange
/// takes some milliseconds.
constexpr std::size_t kCommandsARound = 4;
/// How long a host that failed keeps its connection, to fetch AUTH_Failure1.
constexpr std::uint64_t kFailedNs = 1'000'000'000;
/// How long HOST SET waits for queues to end before it is answered Busy: a drive may hold their commands.
constexpr std::uint64_t kHostSetNs = 1'000'000'000;

/// Lines of refusals that may be written at once, and the time after which one more may.
constexpr std::uint64_t kLogBurst = 64, kLogEveryNs = 1'000'000'000;

/// A host chooses its name, and the log goes to terminals.
std::string printable(std::string name) {
    std::ranges::replace_if(
        name, [](char c) { return c < ' ' || c > '~'; }, '?');
    return name;
}

/// Connections that have not proven a key: how many, the queue entries that they hold, and the oldest of them.
struct Crowd {
    std::uint32_t count = 0;
    std::uint64_t entries = 0;
    TargetConnection* oldest = nullptr;
    void add(TargetConnection& connection) {
        ++count;
        entries += connection.transport().entries;
        if (oldest == nullptr || connection.record.accepted_ns < oldest->record.accepted_ns)
            oldest = &connection;
    }
};

/// Those of one peer, and those of all.
struct Crowds {
    Crowd of_peer, all;
    template <class Counts>
    Crowds(const std::vector<TargetConnection*>& connections, const std::string& peer, Counts counts) {
        for (TargetConnection* connection : connections) {
            if (!counts(connection->record)) continue;
            all.add(*connection);
            if (connection->record.peer == peer) of_peer.add(*connection);
        }
    }
};

/// Finds one host, whose keys it holds.
class OneHost final : public auth::DhchapKeyStore {
  public:
    explicit OneHost(const std::optional<HostRegistry::Host>& host) : host_(host) {}
    [[nodiscard]] const auth::DhchapKeys* find(std::string_view) const override {
        return host_ ? &host_->keys : nullptr;
    }

  private:
    const std::optional<HostRegistry::Host>& host_;
};

bool is_authenticating(const TargetConnection::Record& record) {
    return record.bound && record.must_authenticate && !record.authenticated && !record.closing;
}

}  // namespace

bool TargetControl::must_authenticate(const TargetConnection& connection, const Subsystem& subsystem) const {
    return options_.hosts != nullptr && connection.record.kind != rdma::PeerKind::kSameUser &&
           &subsystem != discovery_.get();
}

/// Whether a Connect may be decided. Where authentication follows, an I/O queue needs an admin queue that
/// has authenticated, and comes from the same address: otherwise a stranger could occupy a host's queue ids.
Status TargetControl::may_begin(const TargetConnection& connection, const Subsystem& subsystem) const {
    const ConnectRequest& request = connection.connect_request();
    if (!must_authenticate(connection, subsystem)) {
        const bool claims_admin = connection.record.kind == rdma::PeerKind::kOtherUser &&
                                  request.host_nqn == options_.controllers.admin_host_nqn;
        // Of a process of the same user no key is asked; that it was removed counts once a list has said so.
        const bool removed = options_.hosts != nullptr &&
                             connection.record.kind == rdma::PeerKind::kSameUser &&
                             options_.hosts->version() != first_hosts_version_ &&
                             client_of_host_nqn(request.host_nqn) && !options_.hosts->stamp(request.host_nqn);
        return claims_admin || removed ? Status::kConnectInvalidHost : Status::kSuccess;
    }
    if (request.queue_id == 0) return Status::kSuccess;
    const bool admitted = std::ranges::any_of(snapshot(), [&](const TargetConnection* other) {
        const TargetConnection::Record& record = other->record;
        return record.subsystem == &subsystem && record.bound && record.authenticated &&
               record.peer == connection.record.peer && record.binding.queue_id == 0 &&
               record.binding.controller_id == request.controller_id;
    });
    return admitted ? Status::kSuccess : Status::kConnectInvalidHost;
}

/// Ends the oldest queue that is authenticating, if as many as may do so already are when `newcomer` begins. A
/// host that has its key is done within milliseconds, so only queues that merely occupy their places grow
/// old.
void TargetControl::make_room(const TargetConnection& newcomer) {
    const Crowds waiting(snapshot(), newcomer.record.peer, is_authenticating);
    TargetConnection* const oldest = waiting.of_peer.count >= options_.authenticating_of_peer_max
                                         ? waiting.of_peer.oldest
                                     : waiting.all.count >= options_.authenticating_max ? waiting.all.oldest
                                                                                        : nullptr;
    if (oldest == nullptr) return;
    log_refusal(*oldest,
                fmt::format("{} queues are authenticating, {} of this address, and the oldest is ended",
                            waiting.all.count, waiting.of_peer.count));
    end_late(*oldest);
}

/// Connecting takes no key. So the number of strangers, and the queue entries that they hold, are bounded in
/// every state: before Connect, at the discovery controller, and while they authenticate. A host that has its
/// key is a stranger for milliseconds only.
void TargetControl::end_oldest_strangers(const TargetConnection& newcomer) {
    for (;;) {
        const Crowds strangers(snapshot(), newcomer.record.peer, [](const TargetConnection::Record& record) {
            return record.stranger && !record.closing;
        });
        const auto& [of_peer, all] = strangers;
        const bool peer_crowded =
            of_peer.count > options_.strangers_of_peer_max || of_peer.entries > options_.entries_max / 16;
        const bool crowded = all.count > options_.strangers_max || all.entries > options_.entries_max / 4;
        TargetConnection* const oldest = peer_crowded ? of_peer.oldest : crowded ? all.oldest : nullptr;
        if (oldest == nullptr || oldest == &newcomer) return;
        log_refusal(*oldest,
                    fmt::format("no host has proven a key at the addresses of {} connections with {} queue "
                                "entries, {} connections with {} entries of them at this address; the oldest "
                                "is ended",
                                all.count, all.entries, of_peer.count, of_peer.entries));
        end_late(*oldest);
    }
}

/// From now on its peer is known: further connections of this address are not strangers.
void TargetControl::prove(TargetConnection& connection) {
    TargetConnection::Record& record = connection.record;
    if (std::exchange(record.authenticated, true)) return;
    const std::lock_guard lock(mutex_);
    ++proven_of_[record.peer];
    if (!std::exchange(record.stranger, false)) return;
    --strangers_;
    stranger_entries_ -= connection.transport().entries;
}

/// One line for a refused host. Strangers decide how often, so lines have a budget: kLogBurst at once, one a
/// second after that; the next line says how many were left out.
void TargetControl::log_refusal(const TargetConnection& connection, const std::string& why) {
    const std::uint64_t now = options_.now_ns();
    refusals_logged_ -= std::min(refusals_logged_, (now - refusals_counted_ns_) / kLogEveryNs);
    if (now - refusals_counted_ns_ >= kLogEveryNs) refusals_counted_ns_ = now;
    if (refusals_logged_ >= kLogBurst) {
        ++refusals_left_out_;
        return;
    }
    ++refusals_logged_;
    const std::uint64_t left_out = std::exchange(refusals_left_out_, 0);
    const TargetConnection::Record& record = connection.record;
    // Before its Connect is decided, the reactor may be writing the request.
    const std::string host =
        record.bound ? printable(connection.connect_request().host_nqn) : "(before Connect)";
    log_warn("{}: host {} at {} is not let in on queue {}: {}{}",
             record.subsystem != nullptr ? record.subsystem->config.nqn : listeners_[record.door]->service,
             host, record.peer, record.bound ? record.binding.queue_id : 0, why,
             left_out == 0 ? "" : fmt::format(" ({} such lines were left out before this one)", left_out));
}

void TargetControl::answer_commands() {
    for (std::size_t i = 0; i < kCommandsARound && !commands_.empty(); ++i) {
        TargetConnection* const connection = take_next(commands_, false);
        if (connection->record.closing)
            refuse_command(*connection, Status::kAborted);
        else if (is_fabrics(connection->control_request().command))
            authenticate(*connection);
        else
            set_hosts(*connection);
    }
    check_hosts();
}

void TargetControl::refuse_command(TargetConnection& connection, Status status) {
    ControlCommand::Reply refusal;
    refusal.status = status;
    connection.answer_control_command(std::move(refusal));
}

void TargetControl::authenticate(TargetConnection& connection) {
    TargetConnection::Record& record = connection.record;
    const ControlCommand::Request& request = connection.control_request();
    const bool sends = nvme::fabrics_type(request.command) == nvme::FabricsType::kAuthenticationSend;
    ControlCommand::Reply reply;
    if (sends && !record.auth_failed && begin_authentication(connection)) {
        record.authentication->on_send(request.data);
    } else if (!sends && record.authentication != nullptr) {
        auth::DhchapController::Answer answer = record.authentication->on_receive(request.room);
        reply.status = answer.status;
        reply.data = std::move(answer.message);
    } else {
        reply.status = Status::kCommandSequenceError;
    }
    if (record.authentication != nullptr) judge_authentication(connection, reply);
    connection.answer_control_command(std::move(reply));
}

/// Makes the transaction, unless one is under way. A host that has authenticated may do so again.
bool TargetControl::begin_authentication(TargetConnection& connection) {
    TargetConnection::Record& record = connection.record;
    if (record.authentication != nullptr &&
        record.authentication->outcome().state == auth::AuthState::kRunning)
        return true;
    const std::string& host_nqn = connection.connect_request().host_nqn;
    const std::optional<HostRegistry::Host> host = options_.hosts->find(host_nqn);
    if (host) record.offered_stamp = host->stamp;
    auto begun = auth::DhchapController::create(
        {host_nqn, record.subsystem->config.nqn, options_.auth_policy}, OneHost(host), auth::system_random());
    if (!begun.ok()) {
        log_error("{}: no authentication of {} at {}: {}", record.subsystem->config.nqn, host_nqn,
                  record.peer, begun.error().message);
        return false;
    }
    record.authentication = std::make_unique<auth::DhchapController>(std::move(begun).value());
    return true;
}

void TargetControl::judge_authentication(TargetConnection& connection, ControlCommand::Reply& reply) {
    TargetConnection::Record& record = connection.record;
    const auth::AuthOutcome& outcome = record.authentication->outcome();
    const std::string& host_nqn = connection.connect_request().host_nqn;
    if (outcome.state == auth::AuthState::kRunning) return;
    if (outcome.state == auth::AuthState::kAuthenticated) {
        // The key may have been replaced since the transaction began.
        if (options_.hosts->stamp(host_nqn) == record.offered_stamp) {
            record.host_stamp = record.offered_stamp;
            prove(connection);
            reply.authenticated = true;
            return;
        }
    }
    if (std::exchange(record.auth_failed, true)) return;
    log_refusal(connection,
                outcome.state == auth::AuthState::kFailed ? outcome.why : "its key was replaced or removed");
    // A queue that was let in before must not serve another command.
    if (record.authenticated) return end_host(connection, "it failed to authenticate again");
    record.auth_until_ns = options_.now_ns() + kFailedNs;
}

void TargetControl::set_hosts(TargetConnection& connection) {
    const ControlCommand::Request& request = connection.control_request();
    nvme::HostSetPage page{};
    Status status = Status::kInvalidOpcode;
    // TargetConnection has refused it from any host but the array's admin; here again, because this decides
    // who is let in.
    const TargetConnection::Record& record = connection.record;
    const bool proven = record.authenticated || record.kind == rdma::PeerKind::kSameUser;
    if (!record.binding.privileged || !proven || record.subsystem == discovery_.get()) {
        status = options_.hosts != nullptr ? Status::kAccessDenied : Status::kInvalidOpcode;
    } else if (options_.hosts != nullptr && request.data.size() == sizeof page) {
        std::memcpy(&page, request.data.data(), sizeof page);
        status = options_.hosts->set(page);
    }
    if (nvme::ok(status)) {
        connection.record.host_set_ns = options_.now_ns();
        host_sets_.push_back(&connection);
        return;
    }
    refuse_command(connection, status);
}

/// Ends the queues of hosts that lost their key; then, once those have ended, answers HOST SET.
void TargetControl::check_hosts() {
    if (options_.hosts == nullptr) return;
    if (const std::uint64_t version = options_.hosts->version(); version != hosts_version_) {
        hosts_version_ = version;
        for (TargetConnection* connection : snapshot()) end_unless_listed(*connection);
    }
    if (!host_sets_.empty()) answer_host_sets();
}

void TargetControl::end_unless_listed(TargetConnection& connection) {
    TargetConnection::Record& record = connection.record;
    const bool same_user = record.kind == rdma::PeerKind::kSameUser;
    if (!record.bound || (!record.authenticated && !same_user)) return;
    const std::string& nqn = connection.connect_request().host_nqn;
    const std::optional<std::uint64_t> stamp = options_.hosts->stamp(nqn);
    // A client of the same user proves no key, but it, too, is ended when it is removed.
    const bool listed = record.authenticated ? stamp == record.host_stamp : stamp || !client_of_host_nqn(nqn);
    if (listed) return;
    if (record.closing)
        record.evicted = true;
    else
        end_host(connection, stamp ? "its key was replaced" : "its key was removed");
}

/// Waits for the queues of the command's own SSD alone: where another one hangs, its own HOST SET says so.
void TargetControl::answer_host_sets() {
    const std::vector<TargetConnection*> all = snapshot();
    std::erase_if(host_sets_, [&](TargetConnection* connection) {
        const bool ended = std::ranges::none_of(all, [&](const TargetConnection* c) {
            return c->record.evicted && c->record.subsystem == connection->record.subsystem;
        });
        if (!ended && options_.now_ns() < connection->record.host_set_ns + kHostSetNs) return false;
        ControlCommand::Reply reply;
        reply.status = ended ? Status::kSuccess : Status::kBusy;
        connection->answer_control_command(std::move(reply));
        return true;
    });
}

void TargetControl::end_host(TargetConnection& connection, const char* why) {
    TargetConnection::Record& record = connection.record;
    log_warn("{}: queue {} of host {} at {} is ended: {}", record.subsystem->config.nqn,
             record.binding.queue_id, printable(connection.connect_request().host_nqn), record.peer, why);
    record.closing = record.evicted = true;
    connection.request_fail();
}

/// Logs that a host gave up before it authenticated, as a Linux host without a key does.
void TargetControl::note_stranger(const TargetConnection& connection) {
    const TargetConnection::Record& record = connection.record;
    if (!is_authenticating(record) || record.auth_failed) return;
    log_refusal(connection, "it ended the queue without authenticating, as a host without a key");
}

void TargetControl::expire_authentication(TargetConnection& connection, std::uint64_t now_ns) {
    TargetConnection::Record& record = connection.record;
    const bool due = record.bound && record.must_authenticate && !record.authenticated && !record.closing &&
                     now_ns >= record.auth_until_ns;
    if (!due) return;
    if (!record.auth_failed)
        log_refusal(connection,
                    fmt::format("it has not authenticated within {} ms", options_.auth_timeout_ms));
    end_late(connection);
}

}  // namespace gnstor::nvmf
