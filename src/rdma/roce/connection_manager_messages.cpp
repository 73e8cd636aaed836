// connection_manager_messages.cpp: what each message does in each state. IBA volume 1, 12.9.7 and 12.9.8.
#include "rdma/roce/connection_manager.hpp"

#include <gnstor/base/hash.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace gnstor::rdma::roce {
namespace {
constexpr TimeNs kReceiptWaitMaxNs = 60'000'000'000;  // a peer may ask for patience, not for ever
/// A peer that is there answers our REP before that.
constexpr TimeNs kAnswersWithinNs = 100'000'000;
constexpr std::uint8_t bit(CmEventKind kind) noexcept {
    return static_cast<std::uint8_t>(1u << static_cast<unsigned>(kind));
}
bool is_v4(const Gid& gid) noexcept {
    constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
    return std::equal(kMapped.begin(), kMapped.end(), gid.begin());
}
/// The same partition, and not both its limited members (10.9.3). We are a full member of the default one.
bool may_talk(std::uint16_t one, std::uint16_t other) noexcept {
    constexpr std::uint16_t kFullMember = 0x8000;
    return ((one ^ other) & ~kFullMember) == 0 && ((one | other) & kFullMember) != 0;
}
}  // namespace

ConnectionManager::Slot* ConnectionManager::find_request(const Gid& peer, const CmMessage& request) noexcept {
    for (Slot& slot : slots_) {
        // A peer that was started anew may use the same id again, in another transaction.
        if (slot.state != State::kFree && slot.passive && slot.remote_id == request.local_id &&
            slot.request_transaction == request.transaction && slot.peer == peer) {
            return &slot;
        }
    }
    return nullptr;
}

std::uint32_t ConnectionManager::half_open_of(const Gid& peer) const noexcept {
    return static_cast<std::uint32_t>(std::count_if(
        half_open_.begin(), half_open_.end(), [&](std::uint16_t at) { return slots_[at].peer == peer; }));
}

// As many as it leaves to others: the first gets half, who comes then a quarter, and so on, down to what is
// assured, so that no few take all. IPv6 addresses are had by the network, so all of one are one peer here,
// and each of them leaves to its neighbours as many as it has. One that we have ended is the peer's until it
// has said that it knows, or is given up: else one who says nothing has more than its part.
bool ConnectionManager::peer_may_begin(const Gid& peer) const noexcept {
    const std::int64_t assured = options_.assured_of_peer;
    const auto left = std::int64_t{static_cast<std::uint32_t>(slots_.size())} - options_.own_places -
                      std::int64_t{of_peers_};
    if (of_peers_ < assured || 2 * std::int64_t{of_peers_} < left) return true;  // whoever has them
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

// Forged addresses have one half-open connection each, as real ones have. Of those of the lowest standing,
// not above that of who comes: one whose peer should have answered long ago, else any; by chance, so that a
// flood cannot but leave some for as long as an answer takes. Those who were connected before lose none so.
ConnectionManager::Slot* ConnectionManager::least_worth_keeping(TimeNs now, Standing standing,
                                                                bool of_its_like) noexcept {
    const auto rank = [&](const Slot& slot) {
        return std::pair{slot.standing, now < slot.begun + kAnswersWithinNs};
    };
    Slot* chosen = nullptr;
    std::uint64_t alike = 0;
    for (const std::uint16_t at : half_open_) {
        Slot& slot = slots_[at];
        const bool may_lose = slot.standing < standing ||
                              (of_its_like && slot.standing == standing && standing != Standing::kProven);
        if (!may_lose) continue;
        if (chosen != nullptr && rank(slot) > rank(*chosen)) continue;
        if (chosen == nullptr || rank(slot) < rank(*chosen)) alike = 0;
        if (dice_.below(++alike) == 0) chosen = &slot;
    }
    return chosen;
}

// Who has many half-open connections loses them to those who have fewer, but none to who is of lower
// standing. Peers are told apart by a keyed hash here, so one may be counted with another.
bool ConnectionManager::make_room_for(TimeNs now, const Gid& peer, Standing standing) {
    std::array<std::uint16_t, 4096> counts{};
    const auto place = [&](const Gid& gid) {
        std::uint64_t halves[2];
        std::memcpy(halves, gid.data(), sizeof halves);
        return mix64(mix64(halves[0] ^ options_.seed) ^ halves[1]) % counts.size();
    };
    std::uint32_t own = 0;  // whatever their standing
    for (const std::uint16_t at : half_open_) {
        const Slot& slot = slots_[at];
        own += place(slot.peer) == place(peer) ? 1 : 0;
        if (slot.standing <= standing) ++counts[place(slot.peer)];
    }
    const auto most = std::max_element(counts.begin(), counts.end());
    Slot* oldest = nullptr;
    if (*most < own + 2) {  // nobody has so many that it would be just
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

// An answer that belongs to no connection. Where the ring is full it is left out: the peer asks again.
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

void ConnectionManager::on_request(TimeNs now, const Gid& peer, const CmMessage& request, Standing standing) {
    if (Slot* known = find_request(peer, request)) {
        // The same REQ again: our answer, if there is one already, was lost.
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
    const bool mine =
        half_open() < options_.half_open_of_peer_max || half_open_of(peer) < options_.half_open_of_peer_max;
    const bool full =
        half_open() >= options_.half_open_max || of_peers_ + options_.own_places >= slots_.size();
    const bool room = mine && peer_may_begin(peer) && (!full || make_room_for(now, peer, standing));
    Slot* slot = room ? take() : nullptr;
    // Our own connections may have more than the places that are kept for them. A place that is made now may
    // be free only when its end has been told: who asks again, as all do who hear nothing, gets it then.
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
    slot->request_transaction = request.transaction;
    slot->remote_queue_pair = request.queue_pair;
    slot->words->received = request;
    set_state(*slot, State::kRequested);
    slot->deadline = half_open_until(*slot);
    slot->events = bit(CmEventKind::kRequested);
}

bool ConnectionManager::expects(const Gid& peer, const CmMessage& message) noexcept {
    if (message.kind == CmKind::kRequest) return false;
    const Slot* const slot = find(message.remote_id);
    return slot != nullptr && slot->peer == peer;
}

void ConnectionManager::on_reply(TimeNs now, Slot& slot, const CmMessage& reply) {
    if (slot.state == State::kEstablished && !slot.passive) {
        // Our RTU was lost.
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

void ConnectionManager::on_message(TimeNs now, const Gid& peer, const CmMessage& message, Standing standing) {
    if (message.kind == CmKind::kRequest) return on_request(now, peer, message, standing);
    Slot* slot = find(message.remote_id);
    // Before the REP we do not know the peer's id.
    const bool new_peer = slot != nullptr && slot->state == State::kRequestSent;
    if (slot == nullptr || slot->peer != peer || (!new_peer && slot->remote_id != message.local_id)) {
        // 12.9.8.3: a DREQ for what is gone is answered all the same; a REP that nobody waits for is
        // rejected.
        if (message.kind == CmKind::kDisconnect)
            answer(peer, message, CmKind::kDisconnected, RejectReason::kNone, 0);
        if (message.kind == CmKind::kReply)
            answer(peer, message, CmKind::kReject, RejectReason::kInvalidId, 1);
        // Its place was given away before its RTU came: it takes itself for connected.
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
            // A REQ that the peer rejected, a REP that it gave up on, or an established connection that it
            // forgot.
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
