// requester.cpp: posting, sending in order within the window, retransmission, completions.
// requester_responses.cpp handles responses.
#include "rdma/roce/requester.hpp"

#include <algorithm>

namespace gnstor::rdma::roce {
namespace {

constexpr std::uint32_t kProbePackets = 2;  // if one is lost, the other reveals it

Opcode opcode_of(RequestKind kind, bool first, bool last) noexcept {
    if (kind == RequestKind::kWrite) {
        if (first) return last ? Opcode::kWriteOnly : Opcode::kWriteFirst;
        return last ? Opcode::kWriteLast : Opcode::kWriteMiddle;
    }
    if (!last) return first ? Opcode::kSendFirst : Opcode::kSendMiddle;
    if (kind == RequestKind::kSendInvalidate)
        return first ? Opcode::kSendOnlyInvalidate : Opcode::kSendLastInvalidate;
    return first ? Opcode::kSendOnly : Opcode::kSendLast;
}

}  // namespace

Requester::Requester(const RequesterOptions& options)
    : options_(options),
      read_packets_(std::max<std::uint32_t>(options.window_packets / 2, 1)),
      slots_(std::max<std::uint32_t>(options.depth, 1)),
      next_(first_sequence(options.start_psn)),
      cursor_(next_),
      highest_(next_),
      unacknowledged_(next_),
      acknowledgement_(next_ - 1),
      window_(options.window_packets) {}

Result<void> Requester::post(const Request& request) {
    if (full()) {
        return error(Errc::kBusy, "all {} send entries of the queue pair are in use; take completions first",
                     slots_.size());
    }
    std::uint64_t bytes = 0;
    for (std::uint32_t i = 0; i < std::min(request.count, kPiecesMax); ++i) bytes += request.pieces[i].size();
    if (request.count > kPiecesMax || bytes > kMessageBytesMax) {
        return error(Errc::kInvalidArgument,
                     "a request has {} pieces and {} bytes, but at most {} pieces and {} bytes are allowed",
                     request.count, bytes, kPiecesMax, kMessageBytesMax);
    }
    Slot& entry = slot(posted_);
    entry.request = request;
    entry.first = next_;
    entry.packets = packets_of(bytes, options_.mtu);
    entry.bytes = static_cast<std::uint32_t>(bytes);
    entry.status = failed_ ? mlx5::kFlushed : mlx5::kSyndromeNone;
    next_ += entry.packets;
    entry.messages_before = messages_;
    messages_ += messages_of(entry);
    ++posted_;
    if (failed_) done_ = cursor_entry_ = posted_;
    return {};
}

// Checks the window, the peer's resources for READs, and its credits for SENDs.
bool Requester::may_send(const Slot& entry) noexcept {
    if (cursor_ - unacknowledged_ >= window_) return false;
    const bool fresh = cursor_ >= highest_;
    if (entry.read()) {
        const Sequence out = piece_end(entry, cursor_) - unacknowledged_;
        // 9.7.1: at most 2^23 outstanding, otherwise old numbers would be ambiguous.
        const bool room = out <= window_ || cursor_ == unacknowledged_;
        return room && out < kPsnHalf && (!fresh || reads_out_ < options_.reads_max);
    }
    const bool send = entry.request.kind != RequestKind::kWrite;
    // Without credits one message may go out alone; its ACK or RNR NAK reports the peer's credits.
    return !send || !fresh || cursor_ != entry.first || entry.messages_before < send_limit_ ||
           cursor_ == unacknowledged_;
}

void Requester::build(const Slot& entry, Packet& packet) const {
    packet = Packet{};
    packet.queue_pair = options_.peer_queue_pair;
    packet.psn = psn_of(cursor_);
    const auto offset = static_cast<std::uint32_t>((cursor_ - entry.first) * options_.mtu);
    if (entry.read()) {
        packet.opcode = Opcode::kReadRequest;
        packet.ack_request = true;
        packet.address = entry.request.address + offset;
        packet.rkey = entry.request.rkey;
        const std::uint64_t piece = (piece_end(entry, cursor_) - cursor_) * options_.mtu;
        packet.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(entry.bytes - offset, piece));
        return;
    }
    const bool first = cursor_ == entry.first;
    const bool last = cursor_ + 1 == entry.end();
    packet.opcode = opcode_of(entry.request.kind, first, last);
    packet.solicited = last && entry.request.solicited;
    // Request an acknowledgement at the end of a message, where the window closes, at each half of it,
    // and at the last retransmitted packet.
    const std::uint32_t half = std::max<std::uint32_t>(options_.window_packets / 2, 1);
    packet.ack_request = last || cursor_ + 1 - unacknowledged_ >= window_ || (cursor_ + 1) % half == 0 ||
                         cursor_ + 1 == highest_;
    if (first && entry.request.kind == RequestKind::kWrite) {
        packet.address = entry.request.address;
        packet.rkey = entry.request.rkey;
        packet.length = entry.bytes;
    }
    if (last && entry.request.kind == RequestKind::kSendInvalidate) {
        packet.invalidate_rkey = entry.request.invalidate_rkey;
    }
    std::uint32_t skip = offset, left = std::min(options_.mtu, entry.bytes - offset);
    for (std::uint32_t i = 0; i < entry.request.count && left > 0; ++i) {
        const auto piece = entry.request.pieces[i];
        if (skip >= piece.size()) {
            skip -= static_cast<std::uint32_t>(piece.size());
            continue;
        }
        const auto take = std::min<std::size_t>(left, piece.size() - skip);
        packet.payload.add(piece.subspan(skip, take));
        left -= static_cast<std::uint32_t>(take);
        skip = 0;
    }
}

void Requester::build_duplicate(Packet& packet) const {
    packet = Packet{};
    packet.queue_pair = options_.peer_queue_pair;
    packet.psn = psn_of(unacknowledged_ - 1);
    packet.opcode = Opcode::kSendOnly;
    packet.ack_request = true;
}

bool Requester::next_packet(TimeNs now, Packet& packet) {
    if (probe_due_) {
        build_duplicate(packet);
        ++counters_.probes;
        probe_due_ = false;
        probed_ = true;
        return true;
    }
    if (failed_ || rnr_until_ != kNever || cursor_entry_ == posted_) return false;
    const Slot& entry = slot(cursor_entry_);
    if (!may_send(entry)) return false;
    build(entry, packet);
    ++counters_.packets;
    if (cursor_ >= highest_) {
        reads_out_ += entry.read() ? 1 : 0;
    } else {
        ++counters_.retransmitted;
    }
    cursor_ = entry.read() ? piece_end(entry, cursor_) : cursor_ + 1;
    if (cursor_ == entry.end()) ++cursor_entry_;
    highest_ = std::max(highest_, cursor_);
    if (timer_at_ == kNever) timer_at_ = now + back_off_ns(options_.ack_timeout_ns, timeouts_);
    return true;
}

void Requester::on_time(TimeNs now) {
    if (now >= rnr_until_) rnr_until_ = kNever;
    if (failed_ || now < timer_at_) return;
    timer_at_ = kNever;
    ++counters_.timeouts;
    if (++timeouts_ > options_.retries) return fail(done_, mlx5::kTransportRetryExceeded);
    window_ = std::min(kProbePackets, options_.window_packets);
    rewind();
}

bool Requester::probe() {
    if (failed_ || highest_ == first_sequence(options_.start_psn)) return false;
    if (unacknowledged_ == highest_) {
        probe_due_ = true;
        return true;
    }
    window_ = std::min(kProbePackets, options_.window_packets);
    rewind();
    return true;
}

bool Requester::unanswered(std::uint32_t psn) const noexcept {
    const Sequence sequence = extend(psn, unacknowledged_);
    return !failed_ && sequence < highest_ && sequence >= unacknowledged_ - (probed_ ? 1 : 0);
}

void Requester::rewind() noexcept {
    cursor_ = unacknowledged_;
    cursor_entry_ = done_;
}

bool Requester::next_completion(Completion& completion) {
    if (popped_ == done_) return false;
    const Slot& entry = slot(popped_++);
    completion = {entry.request.id, entry.request.kind, entry.status, entry.bytes};
    return true;
}

void Requester::flush() {
    if (!failed_) fail(posted_, mlx5::kFlushed);
}

void Requester::give_up() {
    if (!failed_) fail(done_, mlx5::kTransportRetryExceeded);
}

void Requester::fail(std::uint64_t index, mlx5::Syndrome status) noexcept {
    for (std::uint64_t i = done_; i < posted_; ++i) slot(i).status = i == index ? status : mlx5::kFlushed;
    done_ = cursor_entry_ = posted_;
    timer_at_ = rnr_until_ = kNever;
    probe_due_ = probed_ = false;
    failed_ = true;
    failure_ = status;
}

}  // namespace gnstor::rdma::roce
