// connection_manager_messages.cpp: handles each message in each state. IBA volume 1, 12.9.7 and 12.9.8.
#include "rdma/roce/connection_manager.hpp"

#include <gnstor/base/hash.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace gnstor::rdma::roce {
namespace {
constexpr TimeNs kReceiptWaitMaxNs = 60'000'000'000;  // limit on the time that a peer may ask for (MRA)
/// A living peer answers our REP within this time.
constexpr TimeNs kAnswersWithinNs = 100'000'000;
constexpr std::uint8_t bit(CmEventKind kind) noexcept {
    return static_cast<std::uint8_t>(1u << static_cast<unsigned>(kind));
}
bool is_v4(const Gid& gid) noexcept {
    constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
    return std::equal(kMapped.begin(), kMapped.end(), gid.begin());
}
/// Whether both keys name the same partition and not both are limited members (10.9.3). We are a full
/// member of the default partition.
bool may_talk(std::uint16_t one, std::uint16_t other) noexcept {
    constexpr std::uint16_t kFullMember = 0x8000;
    return ((one ^ other) & ~kFullMember) == 0 && ((one | other) & kFullMember) != 0;
}
}  // namespace

ConnectionManager::Slot* ConnectionManager::find_request(const Gid& peer, const CmMessage& request) noexcept {
    for (Slot& slot : slots_) {
        // A restarted peer may use the same id again, in another transaction.
        if (slot.state != State::kFree && slot.passive && slot.remote_id == request.local_id &&
            slot.transaction == request.transaction && slot.peer == peer) {
            return &slot;
        }
    }
    return nullptr;
}

std::uint32_t ConnectionManager::half_open_of(const Gid& peer) const noexcept {
    return static_cast<std::uint32_t>(std::count_if(
        half_open_.begin(), half_open_.end(), [&](std::uint16_t at) { return slots_[at].peer == peer; }));
}

// Quota of a peer: half of what is free, at least what is assured: the first peer gets half, the next a
// quarter, and so on, so that a few peers cannot take all. A host can use any IPv6 address of its
// network, so all addresses of one /64 share a quota, and each address leaves its neighbours as many as
// it has. A connection that we have ended counts until the peer acknowledges that or it times out:
// otherwise a silent peer would exceed its quota.
bool ConnectionManager::peer_may_begin(const Gid& peer) const noexcept {
    const std::int64_t assured = options_.assured_of_peer;
    const auto left = std::int64_t{static_cast<std::uint32_t>(slots_.size())} - options_.own_places -
                      std::int64_t{of_peers_};
    if (of_peers_ < assured || 2 * std::int64_t{of_peers_} < left) return true;  // plenty is free: no quota
    constexpr std::size_t kNetworkBytes = 8;
    const bool v4 = is_v4(peer);
    const std::size_t told_apart = v4 ? peer.size() : kNetworkBytes;
    std::int64_t of_network = 0, of_peer = 0;
    for (const Slot& slot : slots_) {
        if (!of_peers(slot, slot.state) || std::memcmp(slot.peer.data(), peer.data(), told_apart) != 0)
            continue;
        ++of_network;
        of_peer += slot.peer == peer ? 1 : 0;
    }
    if (of_network >= std::max(assured, left)) return false;
    return v4 || of_peer < std::max(assured, left - of_network);
}

// Chooses a half-open connection to drop where each peer has few: forged addresses have one each, as real
// ones do. Candidates: those of lower standing than the newcomer's; with `of_its_like` also those of
// equal standing, except proven ones. Lowest standing first, then those whose peer should have answered
// by now; ties at random, so that even in a flood some survive until an answer comes.
ConnectionManager::Slot* ConnectionManager::least_worth_keeping(TimeNs now, PeerTrust standing,
                                                                bool of_its_like) noexcept {
    const auto rank = [&](const Slot& slot) {
        return std::pair{slot.standing, now < slot.begun + kAnswersWithinNs};
    };
    Slot* chosen = nullptr;
    std::uint64_t alike = 0;
    for (const std::uint16_t at : half_open_) {
        Slot& slot = slots_[at];
        const bool may_lose = slot.standing < standing ||
                              (of_its_like && slot.standing == standing && standing != PeerTrust::kProven);
        if (!may_lose) continue;
        if (chosen != nullptr && rank(slot) > rank(*chosen)) continue;
        if (chosen == nullptr || rank(slot) < rank(*chosen)) alike = 0;
        if (dice_.below(++alike) == 0) chosen = &slot;
    }
    return chosen;
}

// Drops a half-open connection in favour of `peer`: the oldest of the peer that has most of them, if
// those are at least two more than `peer` has; never one of higher standing. Peers are identified by a
// keyed hash here, so two may be counted as one.
bool ConnectionManager::make_room_for(TimeNs now, const Gid& peer, PeerTrust standing) {
    std::array<std::uint16_t, 4096> counts{};
    const auto place = [&](const Gid& gid) {
        std::uint64_t halves[2];
        std::memcpy(halves, gid.data(), sizeof halves);
        return mix64(mix64(halves[0] ^ hash_key_) ^ halves[1]) % counts.size();
    };
    std::uint32_t own = 0;  // of any standing
    for (const std::uint16_t at : half_open_) {
        const Slot& slot = slots_[at];
        own += place(slot.peer) == place(peer) ? 1 : 0;
        if (slot.standing <= standing) ++counts[place(slot.peer)];
    }
    const auto most = std::max_element(counts.begin(), counts.end());
    Slot* oldest = nullptr;
    if (*most < own + 2) {  // no peer has two more than this one
        const bool has_few = own <= 1;
        oldest = least_worth_keeping(now, standing, has_few);
        if (oldest == nullptr) return false;
        close(now, *oldest, CmEnd::kTimedOut);
        return true;
    }
    for (const std::uint16_t at : half_open_) {
        Slot& slot = slots_[at];
        if (slot.standing > standing) continue;
        if (place(slot.peer) != static_cast<std::size_t>(most - counts.begin())) continue;
        if (oldest == nullptr || slot.begun < oldest->begun) oldest = &slot;
    }
    close(now, *oldest, CmEnd::kTimedOut);
    return true;
}

// Drops one of the half-open connections of a peer that has all it may have: one whose RTU is overdue, or
// else a random one. A real peer has few, and answers at once; requests forged in its name are never
// answered, and must not keep it from connecting. One that the listener has not answered yet stays.
bool ConnectionManager::make_room_of(TimeNs now, const Gid& peer) {
    Slot* chosen = nullptr;
    std::uint64_t alike = 0;
    const auto young = [now](const Slot& slot) { return now < slot.begun + kAnswersWithinNs; };
    for (const std::uint16_t at : half_open_) {
        Slot& slot = slots_[at];
        if (slot.peer != peer || slot.state != State::kReplySent) continue;
        if (chosen != nullptr && young(slot) && !young(*chosen)) continue;
        if (chosen == nullptr || (!young(slot) && young(*chosen))) alike = 0;
        if (dice_.below(++alike) == 0) chosen = &slot;
    }
    if (chosen == nullptr) return false;
    close(now, *chosen, CmEnd::kTimedOut);
    return true;
}

// Queues an answer that belongs to no connection. Dropped if the ring is full: the peer sends again.
void ConnectionManager::answer(const Gid& peer, const CmMessage& to, CmKind kind, RejectReason reason,
                               std::uint8_t about) noexcept {
    if (stateless_count_ == stateless_.size()) return;
    Stateless& one = stateless_[(stateless_first_ + stateless_count_++) % stateless_.size()];
    one.peer = peer;
    one.message = CmMessage{};
    one.message.kind = kind;
    one.message.transaction = to.transaction;
    one.message.local_id = to.remote_id;
    one.message.remote_id = to.local_id;
    one.message.reason = reason;
    one.message.about = about;
}

void ConnectionManager::on_request(TimeNs now, const Gid& peer, const CmMessage& request,
                                   PeerTrust standing) {
    if (Slot* known = find_request(peer, request)) {
        // A repeated REQ: our answer, if there was one, got lost.
        const bool answered =
            known->state == State::kReplySent ||
            (known->state == State::kClosed && known->words->message.kind == CmKind::kReject);
        if (answered) known->send = true;
        return;
    }
    if (std::find(services_.begin(), services_.end(), request.service_id) == services_.end()) {
        return answer(peer, request, CmKind::kReject, RejectReason::kInvalidService, 0);
    }
    if (request.transport_service != kReliableConnection)
        return answer(peer, request, CmKind::kReject, RejectReason::kInvalidTransport, 0);
    if (!may_talk(request.partition_key, kDefaultPkey))
        return answer(peer, request, CmKind::kReject, RejectReason::kInvalidPath, 0);
    const bool mine = half_open() < options_.half_open_of_peer_max ||
                      half_open_of(peer) < options_.half_open_of_peer_max || make_room_of(now, peer);
    // Dropped, so that the peer repeats it: a REJ would end its connect() for what was forged in its name.
    if (!mine) return;
    const bool full =
        half_open() >= options_.half_open_max || of_peers_ + options_.own_places >= slots_.size();
    const bool room = peer_may_begin(peer) && (!full || make_room_for(now, peer, standing));
    Slot* slot = room ? take() : nullptr;
    // The table may be full because of our own connections beyond their reserved places. A slot that was
    // just closed may become free only after its kClosed was taken: then the peer's next retry gets it.
    if (slot == nullptr && room && (full || make_room_for(now, peer, standing))) {
        slot = take();
        if (slot == nullptr) return;
    }
    if (slot == nullptr) return answer(peer, request, CmKind::kReject, RejectReason::kNoResources, 0);
    slot->passive = true;
    slot->begun = now;
    slot->standing = standing;
    slot->peer = peer;
    slot->remote_id = request.local_id;
    slot->transaction = request.transaction;
    slot->remote_queue_pair = request.queue_pair;
    slot->words->received = request;
    set_state(*slot, State::kRequested);
    slot->deadline = half_open_until(*slot);
    slot->events = bit(CmEventKind::kRequested);
}

bool ConnectionManager::expects(const Gid& peer, const CmMessage& message) noexcept {
    if (message.kind == CmKind::kRequest) return false;
    return find_authentic(peer, message) != nullptr;
}

ConnectionManager::Slot* ConnectionManager::find_authentic(const Gid& peer,
                                                           const CmMessage& message) noexcept {
    Slot* const slot = find(message.remote_id);
    if (slot == nullptr || slot->peer != peer) return nullptr;
    // Before the REP we do not know the peer's id.
    if (slot->state != State::kRequestSent && slot->remote_id != message.local_id) return nullptr;
    bool known = message.transaction == slot->transaction;
    // 12.6.10: a DREQ begins an exchange of its own, and names our queue pair.
    if (message.kind == CmKind::kDisconnect) known = message.queue_pair == slot->queue_pair;
    if (message.kind == CmKind::kDisconnected)
        known =
            slot->state == State::kDisconnectSent && message.transaction == slot->words->message.transaction;
    return known ? slot : nullptr;
}

void ConnectionManager::on_reply(TimeNs now, Slot& slot, const CmMessage& reply) {
    if (slot.state == State::kEstablished && !slot.passive) {
        // The peer repeats its REP: our RTU was lost.
        slot.send = true;
        return;
    }
    if (slot.state != State::kRequestSent) return;
    slot.remote_id = reply.local_id;
    slot.remote_queue_pair = reply.queue_pair;
    slot.words->received = reply;
    set_state(slot, State::kEstablished);
    say(now, slot, begin(slot, CmKind::kReadyToUse, reply.transaction));
    slot.deadline = kNever;
    slot.events |= bit(CmEventKind::kConnected);
}

void ConnectionManager::on_message(TimeNs now, const Gid& peer, const CmMessage& message,
                                   PeerTrust standing) {
    if (message.kind == CmKind::kRequest) return on_request(now, peer, message, standing);
    Slot* const slot = find_authentic(peer, message);
    if (slot == nullptr) {
        // 12.9.8.3: a DREQ for an unknown connection is answered all the same; an unexpected REP is
        // rejected.
        if (message.kind == CmKind::kDisconnect)
            answer(peer, message, CmKind::kDisconnected, RejectReason::kNone, 0);
        if (message.kind == CmKind::kReply)
            answer(peer, message, CmKind::kReject, RejectReason::kInvalidId, 1);
        // Its slot was given to another before its RTU came: the peer believes that it is connected.
        if (message.kind == CmKind::kReadyToUse)
            answer(peer, message, CmKind::kReject, RejectReason::kInvalidId, 2);
        return;
    }
    switch (message.kind) {
        case CmKind::kReply:
            return on_reply(now, *slot, message);
        case CmKind::kReadyToUse:
            return heard(now, slot->id);
        case CmKind::kReceipt:
            if ((slot->state == State::kRequestSent || slot->state == State::kReplySent) &&
                slot->tries < retries_of(*slot)) {
                const TimeNs wait = TimeNs{4096} << (message.service_timeout & 31u);
                slot->deadline = std::min(half_open_until(*slot),
                                          std::max(slot->deadline, now + std::min(wait, kReceiptWaitMaxNs)));
                ++slot->tries;
            }
            return;
        case CmKind::kReject:
            // The peer rejected our REQ, gave up after our REP, or has no record of an established
            // connection.
            if (slot->state == State::kRequested || slot->state == State::kClosed) return;
            slot->words->received = message;
            return close(now, *slot, CmEnd::kRejected);
        case CmKind::kDisconnect: {
            if (slot->state == State::kRequestSent || slot->state == State::kRequested) return;
            answer(peer, message, CmKind::kDisconnected, RejectReason::kNone, 0);
            return close(now, *slot, CmEnd::kDisconnected);
        }
        case CmKind::kDisconnected:
            if (slot->state != State::kDisconnectSent) return;
            return close(now, *slot, CmEnd::kDisconnected);
        default:
            return;
    }
}

}  // namespace gnstor::rdma::roce
