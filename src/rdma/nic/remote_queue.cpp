// remote_queue.cpp: see remote_queue.hpp.
#include "rdma/nic/remote_queue.hpp"

#include <gnstor/base/log.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

namespace gnstor::rdma {

namespace {
constexpr std::uint32_t kLongestLanding = 1u << 20;  // of a message to a plain queue pair
constexpr std::size_t kSendsInWindow = 64;           // of the transport, as many packets at most

// Requests of an offload queue pair: what they are in the lowest bit, which one above it.
constexpr std::uint64_t kSendId = 0, kWindowId = 1;
constexpr std::uint64_t request_id(std::uint64_t kind, std::uint32_t index) {
    return (std::uint64_t{index} << 1) | kind;
}
constexpr std::uint64_t window_cookie(std::uint32_t index, std::uint32_t generation) {
    return (std::uint64_t{generation} << 32) | index;
}
}  // namespace

RemoteQueue::RemoteQueue(NicEngine& engine, QueuePair& qp, Side side, std::uint32_t messages,
                         std::uint32_t message_bytes)
    : engine_(engine), qp_(qp), side_(side), message_bytes_(message_bytes), buffer_held_(messages) {
    if (messages != 0)
        message_memory_ = std::make_unique_for_overwrite<std::byte[]>(std::size_t{messages} * message_bytes);
    for (std::uint32_t i = messages; i > 0; --i) free_buffers_.push_back(i - 1);
}

RemoteQueue::~RemoteQueue() {
    shut();
    engine_.forget(*this);
}

QueuePair::QueuePair() = default;
QueuePair::~QueuePair() = default;

std::uint32_t RemoteQueue::depth() const noexcept {
    // Offload: what is under way of each message's command is a window and a SEND; more wait here.
    if (!qp_.offload()) return qp_.config.send_entries;
    return std::clamp(2 * static_cast<std::uint32_t>(buffer_held_.size()), 16u, 512u);
}

// Failed or disconnected before the answer to the peer was ready.
void RemoteQueue::on_accepted(Link& link) {
    accepted_ = &link;
    if (qp_.in_error()) end_accepted();
}

// destroy_queue_pair() waits until this returns, and not for the peer.
void RemoteQueue::end_accepted() {
    Link* const link = std::exchange(accepted_, nullptr);
    if (link == nullptr) return;
    failed_ = true;
    link->close();
    connecting.store(false, std::memory_order_release);
}

void RemoteQueue::start(Link& link) {
    accepted_ = nullptr;
    if (qp_.in_error()) {  // failed or disconnected while it was connecting
        failed_ = true;
        link.close();
        connecting.store(false, std::memory_order_release);
        return;
    }
    link_ = &link;
    ++qp_.incarnation;
    qp_.state.store(QpState::kReadyToSend, std::memory_order_release);
    if (!qp_.offload()) engine_.attach(qp_);
    connecting.store(false, std::memory_order_release);
}

void RemoteQueue::shut() {
    if (Link* const link = std::exchange(link_, nullptr)) link->close();
    end_accepted();
    drop_pin();
    waiting_.clear();
    for (std::uint32_t i = 0; i < windows_.size(); ++i) {
        if (!windows_[i]->at_link) continue;
        windows_[i]->at_link = false;
        finish_window(i, false);
    }
}

void RemoteQueue::drop_pin() noexcept {
    if (pin_.region != nullptr) pin_.region->unpin();
    pin_ = {};
}

void RemoteQueue::on_round() {
    drop_pin();
    if (broken_ && !qp_.in_error()) engine_.fail(qp_);
}

/// Messages that the sink has keep their memory, so the queue pair (QueuePair::holds).
void RemoteQueue::hold(std::uint32_t buffer, bool held) {
    buffer_held_[buffer] = held;
    const std::uint32_t holds = qp_.holds.load(std::memory_order_relaxed);
    // Release: pairs with quiesce's load: the message is no longer touched.
    qp_.holds.store(held ? holds + 1 : holds - 1, std::memory_order_release);
}

// What the queue pair sends.

std::uint8_t RemoteQueue::post(std::uint64_t index, const mlx5::SendEntry& entry, std::uint8_t opcode,
                               std::span<const Segment> parts) {
    if (link_ == nullptr) return mlx5::kTransportRetryExceeded;
    roce::Request request;
    request.id = index;
    for (const Segment& part : parts)  // a READ writes there: its rights were checked when it was pinned
        request.pieces[request.count++] = {const_cast<std::byte*>(part.data), part.bytes};
    switch (opcode) {
        case mlx5::kRdmaWrite:
        case mlx5::kRdmaRead:
            request.kind = opcode == mlx5::kRdmaWrite ? roce::RequestKind::kWrite : roce::RequestKind::kRead;
            request.address = be64(entry.segment[0].remote.address);
            request.rkey = be32(entry.segment[0].remote.rkey);
            break;
        case mlx5::kSendInvalidate:
            request.kind = roce::RequestKind::kSendInvalidate;
            request.invalidate_rkey = be32(entry.control.imm);
            break;
        default:
            request.kind = roce::RequestKind::kSend;
            break;
    }
    // The link is as deep as the send ring: it cannot be full.
    return link_->post(request).ok() ? mlx5::kSyndromeNone : mlx5::kLocalQpOperationError;
}

void RemoteQueue::submit(const roce::Request& request) {
    if (link_ == nullptr) return;
    if (!waiting_.empty() || link_->full()) {
        waiting_.push_back(request);
        return;
    }
    if (const auto posted = link_->post(request); !posted.ok()) refused(posted.error());
}

/// Does not fail the queue pair at once, because the caller that sent the request is still running.
void RemoteQueue::refused(const Error& why) {
    log_error("rdma: queue pair {:#x}: {}", qp_.qpn, why.message);
    broken_ = true;
    engine_.note(*this);
}

void RemoteQueue::submit_waiting() {
    while (link_ != nullptr && !waiting_.empty() && !link_->full()) {
        const roce::Request request = waiting_.front();
        waiting_.pop_front();
        const auto posted = link_->post(request);
        if (posted.ok()) continue;
        return refused(posted.error());
    }
}

void RemoteQueue::send(const void* data, std::uint32_t bytes, std::uint32_t invalidate_rkey) {
    if (broken_) return;
    if (free_sends_.empty()) {
        if (small_sends_.size() >= 2 * buffer_held_.size() + kSendsInWindow)
            return refused(error(Errc::kState,
                                 "the peer keeps sending requests but has acknowledged none of {} responses; "
                                 "the connection is ended",
                                 small_sends_.size()));
        free_sends_.push_back(static_cast<std::uint32_t>(small_sends_.size()));
        small_sends_.push_back(std::make_unique<SmallSend>());
    }
    const std::uint32_t index = free_sends_.back();
    free_sends_.pop_back();
    SmallSend& room = *small_sends_[index];
    std::memcpy(room.data(), data, bytes);
    roce::Request request;
    request.kind = invalidate_rkey != 0 ? roce::RequestKind::kSendInvalidate : roce::RequestKind::kSend;
    request.id = request_id(kSendId, index);
    request.invalidate_rkey = invalidate_rkey;
    request.pieces[0] = std::span(room).first(bytes);
    request.count = 1;
    submit(request);
}

bool RemoteQueue::open_window(std::uint64_t address, std::uint32_t bytes, std::uint32_t rkey, WindowUse use,
                              Window& window) {
    if (link_ == nullptr || bytes == 0) return false;
    if (free_windows_.empty()) {
        free_windows_.push_back(static_cast<std::uint32_t>(windows_.size()));
        windows_.push_back(std::make_unique<StagedWindow>());
    }
    const std::uint32_t index = free_windows_.back();
    free_windows_.pop_back();
    StagedWindow& opened = *windows_[index];
    opened.memory = qp_.nic->windows.take(bytes);
    opened.address = address;
    opened.bytes = bytes;
    opened.rkey = rkey;
    opened.use = use;
    opened.open = true;
    ++opened.generation;
    window.data = opened.memory.get();
    window.bytes = bytes;
    window.cookie = window_cookie(index, opened.generation);
    window.ready = use == WindowUse::kWrite;
    count(use == WindowUse::kWrite ? qp_.nic->tally.mine().rdma_writes : qp_.nic->tally.mine().rdma_reads);
    if (use == WindowUse::kWrite) return true;
    roce::Request request;
    request.kind = roce::RequestKind::kRead;
    request.id = request_id(kWindowId, index);
    request.address = address;
    request.rkey = rkey;
    request.pieces[0] = {window.data, bytes};
    request.count = 1;
    opened.at_link = true;
    submit(request);
    return true;
}

RemoteQueue::StagedWindow* RemoteQueue::find_window(std::uint64_t cookie) noexcept {
    const auto index = static_cast<std::uint32_t>(cookie);
    if (index >= windows_.size()) return nullptr;
    StagedWindow& window = *windows_[index];
    return window.open && window.generation == cookie >> 32 ? &window : nullptr;
}

void RemoteQueue::close_window(const Window& closed, bool filled) {
    StagedWindow* const window = find_window(closed.cookie);
    if (window == nullptr) return;
    const auto index = static_cast<std::uint32_t>(closed.cookie);
    window->open = false;
    if (window->use == WindowUse::kWrite && filled && link_ != nullptr) {
        roce::Request request;
        request.kind = roce::RequestKind::kWrite;
        request.id = request_id(kWindowId, index);
        request.address = window->address;
        request.rkey = window->rkey;
        request.pieces[0] = {closed.data, closed.bytes};
        request.count = 1;
        window->at_link = true;
        submit(request);
    }
    if (!window->at_link) recycle(index);
}

void RemoteQueue::finish_window(std::uint32_t index, bool good) {
    StagedWindow& window = *windows_[index];
    const bool tell = window.use == WindowUse::kRead && window.open;
    if (!window.open) recycle(index);
    if (tell) qp_.sink->on_window_ready(qp_.qpn, window_cookie(index, window.generation), good);
}

void RemoteQueue::recycle(std::uint32_t index) {
    StagedWindow& window = *windows_[index];
    qp_.nic->windows.give(std::move(window.memory), window.bytes);
    free_windows_.push_back(index);
    if (qp_.sink != nullptr) qp_.sink->on_window_freed(qp_.qpn, window_room(window.bytes));
}

void RemoteQueue::release(std::uint64_t token) {
    const std::uint64_t index = token_index(token);
    if (token_incarnation(token) != (qp_.incarnation & 0xFFFFu) || index >= buffer_held_.size() ||
        !buffer_held_[index])
        return;
    hold(static_cast<std::uint32_t>(index), false);
    free_buffers_.push_back(static_cast<std::uint32_t>(index));
}

// What comes.

std::byte* RemoteQueue::reach(std::uint32_t rkey, std::uint64_t address, std::uint32_t bytes,
                              roce::Right right) {
    drop_pin();
    if (qp_.offload()) return nullptr;  // a target's memory is nobody's: it comes and gets
    const MemoryTable::Pin pin = qp_.nic->memory.pin(
        rkey, address, bytes, right == roce::Right::kRemoteRead ? kRemoteRead : kRemoteWrite);
    if (pin.fault != MemoryFault::kNone) return nullptr;
    pin_ = pin;
    engine_.note(*this);
    return pin.data;
}

bool RemoteQueue::invalidate(std::uint32_t rkey) {
    return !qp_.offload() && qp_.nic->memory.invalidate(rkey);
}

bool RemoteQueue::take_receive(roce::ReceiveBuffer& receive) {
    if (broken_) return false;
    if (qp_.offload()) {
        if (free_buffers_.empty()) {
            count(qp_.nic->tally.mine().rnr);
            return false;
        }
        const std::uint32_t index = free_buffers_.back();
        free_buffers_.pop_back();
        receive.id = index;
        receive.pieces[0] = {buffer(index), message_bytes_};
        receive.count = 1;
        return true;
    }
    const mlx5::DataSegment* const posted = engine_.next_receive(qp_);
    if (posted == nullptr) {
        count(qp_.nic->tally.mine().rnr);
        return false;
    }
    const std::uint32_t bytes = std::min(be32(posted->byte_count), kLongestLanding);
    if (landing_.size() < bytes) landing_.resize(bytes);
    receive.id = 0;
    receive.pieces[0] = std::span(landing_).first(bytes);
    receive.count = 1;
    return true;
}

void RemoteQueue::received(const roce::Received& received) {
    const bool good = received.status == mlx5::kSyndromeNone;
    if (qp_.offload()) {
        const auto index = static_cast<std::uint32_t>(received.id);
        if (good)
            arrived_.push_back({index, received.bytes});
        else
            free_buffers_.push_back(index);
        return;
    }
    if (!good) {  // what was flushed was not used up, and is flushed with the others
        if (received.status != mlx5::kFlushed) engine_.fail_receive(qp_, received.status);
        return;
    }
    const Segment part{landing_.data(), received.bytes};
    if (engine_.deliver(qp_, {&part, 1}, received.bytes, received.invalidated_rkey, received.invalidated) !=
        mlx5::kSyndromeNone)
        broken_ = true;
}

void RemoteQueue::on_completion(const roce::Completion& completion) {
    if (!qp_.offload()) {
        engine_.finish_entry(qp_, completion.id, completion.status);
        return;
    }
    const auto index = static_cast<std::uint32_t>(completion.id >> 1);
    if ((completion.id & 1) == kSendId) {
        free_sends_.push_back(index);
    } else {
        windows_[index]->at_link = false;
        finish_window(index, completion.status == mlx5::kSyndromeNone);
    }
    submit_waiting();
}

void RemoteQueue::on_batch() {
    drop_pin();
    for (std::size_t i = 0; i < arrived_.size() && !qp_.in_error(); ++i) {
        const Message arrived = arrived_[i];
        hold(arrived.buffer, true);
        InboundMessage message{};
        message.qp = qp_.qpn;
        message.token = make_token(arrived.buffer, qp_.incarnation);
        message.segments[0] = {buffer(arrived.buffer), arrived.bytes};
        message.segment_count = 1;
        message.bytes = arrived.bytes;
        qp_.sink->on_message(message);
    }
    arrived_.clear();
    if (broken_ && !qp_.in_error()) engine_.fail(qp_);
}

void RemoteQueue::on_failed(mlx5::Syndrome why) {
    link_ = accepted_ = nullptr;
    failed_ = true;
    // Where this side connects, its thread looks at both once more, and ends it (UdpNic::connect).
    if (side_ == Side::kAccepts) connecting.store(false, std::memory_order_release);
    if (!qp_.in_error())
        log_info("rdma: queue pair {:#x}: its connection ended, syndrome {:#x}", qp_.qpn,
                 static_cast<unsigned>(why));
    engine_.fail(qp_);
}

}  // namespace gnstor::rdma
