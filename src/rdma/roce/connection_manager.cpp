// connection_manager.cpp: the table, calls of the owner, timers, and what the owner pulls.
// connection_manager_messages.cpp handles messages.
#include "rdma/roce/connection_manager.hpp"

#include <gnstor/base/hash.hpp>

#include <algorithm>

namespace gnstor::rdma::roce {
namespace {
constexpr std::uint32_t kIndexBits = 12;
constexpr std::uint32_t kIndexMask = (1u << kIndexBits) - 1;
constexpr std::uint32_t kGenerations = 1u << (32 - kIndexBits);
}  // namespace

ConnectionManager::ConnectionManager(const CmOptions& options)
    : options_(options),
      slots_(std::clamp<std::uint32_t>(options.connections_max, 1, kIndexMask + 1)),
      random_(options.seed),
      hash_key_(random_.next()),
      dice_(random_.next()) {
    half_open_.reserve(slots_.size());
}

Result<void> ConnectionManager::listen(std::uint64_t service_id) {
    if (std::find(services_.begin(), services_.end(), service_id) != services_.end()) {
        return error(Errc::kExists, "cannot listen for service {:#x}: it has a listener already", service_id);
    }
    services_.push_back(service_id);
    return {};
}

void ConnectionManager::unlisten(std::uint64_t service_id) {
    std::erase(services_, service_id);
}

ConnectionManager::Slot* ConnectionManager::take() noexcept {
    const bool full = used_ == slots_.size();
    // From a random place on: the place is part of the id, and must not be known to one who sees none.
    const auto size = static_cast<std::uint32_t>(slots_.size());
    const auto first = static_cast<std::uint32_t>(random_.below(size));
    for (std::uint32_t tried = 0; tried < size; ++tried) {
        const std::uint32_t index = (first + tried) % size;
        Slot& slot = slots_[index];
        // A closed slot serves only a peer that repeats itself: reuse it if the table is full.
        if (full && slot.state == State::kClosed && slot.events == 0) release(slot);
        if (slot.state != State::kFree) continue;
        // Any but the last one: a late message of the earlier connection must not meet this one.
        const std::uint32_t generation =
            slot.generation + 1 + static_cast<std::uint32_t>(random_.below(kGenerations - 1));
        slot = Slot{};
        slot.generation = generation;
        slot.id = (generation << kIndexBits) | index;
        slot.words = std::make_unique<Words>();
        ++used_;
        return &slot;
    }
    return nullptr;
}

ConnectionManager::Slot* ConnectionManager::find(CmId id) noexcept {
    const std::uint32_t index = id & kIndexMask;
    if (index >= slots_.size()) return nullptr;
    Slot& slot = slots_[index];
    return slot.state != State::kFree && slot.id == id ? &slot : nullptr;
}

void ConnectionManager::set_state(Slot& slot, State state) noexcept {
    const auto half = [&](State s) {
        return slot.passive && (s == State::kRequested || s == State::kReplySent);
    };
    const auto place = static_cast<std::uint16_t>(slot.id & kIndexMask);
    if (half(slot.state) && !half(state)) std::erase(half_open_, place);
    if (half(state) && !half(slot.state)) half_open_.push_back(place);
    of_peers_ += (of_peers(slot, state) ? 1u : 0u) - (of_peers(slot, slot.state) ? 1u : 0u);
    slot.state = state;
    slot.tries = 0;
}

void ConnectionManager::close(TimeNs now, Slot& slot, CmEnd end, const CmMessage* farewell) {
    if (slot.state == State::kClosed) return;
    set_state(slot, State::kClosed);
    slot.deadline = kNever;
    slot.send = false;
    slot.end = end;
    if (farewell != nullptr) say(now, slot, *farewell);
    // If the owner never saw the request, it gets no kClosed either.
    const bool unseen =
        slot.passive && (slot.events & (1u << static_cast<unsigned>(CmEventKind::kRequested))) != 0;
    slot.events = unseen ? 0 : slot.events | (1u << static_cast<unsigned>(CmEventKind::kClosed));
    if (slot.events == 0 && farewell == nullptr) release(slot);
}

// 12.9.8: when we give up a connection that a peer began, send a REJ, in case the peer is still there;
// not a DREQ, which a peer that has sent no RTU ignores (Linux, and we). 12.6.7.2: with reason "timeout"
// the peer finds its connection by the GUID in our REP.
void ConnectionManager::give_up(TimeNs now, Slot& slot, CmEnd end) {
    CmMessage message = begin(slot, CmKind::kReject, slot.transaction);
    message.reason = RejectReason::kTimeout;
    if (slot.state == State::kReplySent) {
        message.about = 1;
        message.ca_guid = slot.words->message.ca_guid;
    }
    close(now, slot, end, &message);
}

void ConnectionManager::release(Slot& slot) noexcept {
    set_state(slot, State::kFree);
    slot.words.reset();
    --used_;
}

CmMessage ConnectionManager::begin(const Slot& slot, CmKind kind, std::uint64_t transaction) noexcept {
    CmMessage message;
    message.kind = kind;
    message.transaction = transaction;
    message.local_id = slot.id;
    message.remote_id = slot.remote_id;
    return message;
}

void ConnectionManager::fill(CmMessage& message, const CmParameters& mine) noexcept {
    message.queue_pair = mine.queue_pair & kQpMask;
    message.start_psn = mine.start_psn & 0xFFFFFFu;
    message.responder_resources = mine.responder_resources;
    message.initiator_depth = mine.initiator_depth;
    message.rnr_retries = mine.rnr_retries;
    message.ca_guid = mine.ca_guid;
    message.private_bytes = static_cast<std::uint32_t>(mine.private_data.size());
    std::copy(mine.private_data.begin(), mine.private_data.end(), message.private_data.begin());
}

void ConnectionManager::say(TimeNs now, Slot& slot, const CmMessage& message) {
    slot.words->message = message;
    slot.send = true;
    slot.sent = false;
    slot.deadline = std::min(now + options_.response_timeout_ns, half_open_until(slot));
}

Result<CmId> ConnectionManager::connect(TimeNs now, const Gid& peer, const CmParameters& mine) {
    if (mine.private_data.size() > private_room(CmKind::kRequest)) {
        return error(Errc::kInvalidArgument,
                     "{} bytes of private data do not fit in a REQ, which has room for {}",
                     mine.private_data.size(), private_room(CmKind::kRequest));
    }
    Slot* slot = take();
    if (slot == nullptr) {
        return error(
            Errc::kNoSpace,
            "cannot connect: all {} connections of the connection manager are in use; end some first",
            slots_.size());
    }
    slot->peer = peer;
    slot->transaction = random_.next();
    slot->queue_pair = mine.queue_pair & kQpMask;
    CmMessage request = begin(*slot, CmKind::kRequest, slot->transaction);
    fill(request, mine);
    request.service_id = mine.service_id;
    request.mtu_code = mine.mtu_code;
    request.ack_timeout = mine.ack_timeout;
    request.local_gid = mine.local_gid;
    request.remote_gid = mine.remote_gid;
    set_state(*slot, State::kRequestSent);
    say(now, *slot, request);
    return slot->id;
}

Result<void> ConnectionManager::accept(TimeNs now, CmId id, const CmParameters& mine) {
    Slot* slot = find(id);
    if (slot == nullptr || slot->state != State::kRequested) {
        return error(Errc::kState,
                     "cannot answer connection request {:#x}: it has been answered already, or has ended",
                     id);
    }
    if (mine.private_data.size() > private_room(CmKind::kReply)) {
        return error(Errc::kInvalidArgument,
                     "{} bytes of private data do not fit in a REP, which has room for {}",
                     mine.private_data.size(), private_room(CmKind::kReply));
    }
    slot->queue_pair = mine.queue_pair & kQpMask;
    CmMessage reply = begin(*slot, CmKind::kReply, slot->transaction);
    fill(reply, mine);
    set_state(*slot, State::kReplySent);
    say(now, *slot, reply);
    return {};
}

Result<void> ConnectionManager::reject(TimeNs now, CmId id, RejectReason reason,
                                       std::span<const std::byte> private_data) {
    Slot* slot = find(id);
    const bool unanswered = slot != nullptr && (slot->state == State::kRequested ||
                                                (slot->state == State::kReplySent && !slot->sent));
    if (!unanswered)
        return error(Errc::kState,
                     "cannot answer connection request {:#x}: it has been answered already, or has ended",
                     id);
    CmMessage message = begin(*slot, CmKind::kReject, slot->transaction);
    message.reason = reason;
    message.private_bytes =
        static_cast<std::uint32_t>(std::min<std::size_t>(private_data.size(), private_room(CmKind::kReject)));
    std::copy_n(private_data.begin(), message.private_bytes, message.private_data.begin());
    close(now, *slot, CmEnd::kRejected, &message);
    return {};
}

void ConnectionManager::disconnect(TimeNs now, CmId id) {
    Slot* slot = find(id);
    if (slot == nullptr) return;
    switch (slot->state) {
        case State::kRequested:
        case State::kReplySent:
            if (!reject(now, id, RejectReason::kConsumer, {})) give_up(now, *slot, CmEnd::kDisconnected);
            return;
        case State::kEstablished: {
            CmMessage message = begin(*slot, CmKind::kDisconnect, random_.next());
            message.queue_pair = slot->remote_queue_pair;
            set_state(*slot, State::kDisconnectSent);
            return say(now, *slot, message);
        }
        case State::kRequestSent: {
            // A REP that comes later matches no connection and is rejected.
            return close(now, *slot, CmEnd::kDisconnected);
        }
        default:
            return;
    }
}

void ConnectionManager::heard(TimeNs, CmId id) {
    Slot* slot = find(id);
    if (slot == nullptr || slot->state != State::kReplySent) return;
    set_state(*slot, State::kEstablished);
    slot->deadline = kNever;
    slot->send = false;
    slot->events |= 1u << static_cast<unsigned>(CmEventKind::kConnected);
}

void ConnectionManager::on_time(TimeNs now) {
    for (Slot& slot : slots_) {
        if (slot.state == State::kFree || now < slot.deadline) continue;
        if (slot.state == State::kClosed) {
            slot.deadline = kNever;
            if (slot.events == 0) release(slot);
            continue;
        }
        if (slot.state != State::kRequested && slot.tries < retries_of(slot) && now < half_open_until(slot)) {
            ++slot.tries;
            slot.send = true;
            slot.deadline = std::min(now + options_.response_timeout_ns, half_open_until(slot));
            continue;
        }
        const bool ended = slot.state == State::kDisconnectSent;
        if (slot.passive && !ended)
            give_up(now, slot, CmEnd::kTimedOut);
        else
            close(now, slot, ended ? CmEnd::kDisconnected : CmEnd::kTimedOut);
    }
}

TimeNs ConnectionManager::next_deadline() const noexcept {
    TimeNs next = kNever;
    for (const Slot& slot : slots_) {
        if (slot.state != State::kFree) next = std::min(next, slot.deadline);
    }
    return next;
}

std::uint32_t ConnectionManager::disconnecting() const noexcept {
    return static_cast<std::uint32_t>(std::count_if(
        slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.state == State::kDisconnectSent; }));
}

bool ConnectionManager::next_message(Gid& peer, CmMessage& message) {
    if (stateless_count_ > 0) {
        const Stateless& one = stateless_[stateless_first_];
        peer = one.peer;
        message = one.message;
        stateless_first_ = (stateless_first_ + 1) % stateless_.size();
        --stateless_count_;
        return true;
    }
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        Slot& slot = slots_[next_to_send_];
        next_to_send_ = (next_to_send_ + 1) % static_cast<std::uint32_t>(slots_.size());
        if (slot.state == State::kFree || !slot.send) continue;
        slot.send = false;
        slot.sent = true;
        peer = slot.peer;
        message = slot.words->message;
        return true;
    }
    return false;
}

bool ConnectionManager::next_event(CmEvent& event) {
    // Starts where the last search ended, so that no slot is told of twice before another once.
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        Slot& slot = slots_[next_to_tell_];
        if (slot.state == State::kFree || slot.events == 0) {
            next_to_tell_ = (next_to_tell_ + 1) % static_cast<std::uint32_t>(slots_.size());
            continue;
        }
        unsigned kind = 0;
        while ((slot.events & (1u << kind)) == 0) ++kind;
        slot.events = static_cast<std::uint8_t>(slot.events & ~(1u << kind));
        event.kind = static_cast<CmEventKind>(kind);
        event.id = slot.id;
        event.end = event.kind == CmEventKind::kClosed ? slot.end : CmEnd::kNone;
        event.peer = slot.peer;
        event.message = slot.words->received;
        // Keeps the slot until the deadline while a message must still be sent or a REJ may have to be
        // repeated.
        if (event.kind == CmEventKind::kClosed && !slot.send && slot.deadline == kNever) release(slot);
        return true;
    }
    return false;
}

}  // namespace gnstor::rdma::roce
