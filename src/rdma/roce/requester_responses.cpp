// requester_responses.cpp: how a requester handles acknowledgements, NAKs and READ responses. IBA
// 9.7.5.1, 9.7.5.2.
#include "rdma/roce/requester.hpp"

#include <algorithm>

namespace gnstor::rdma::roce {

void Requester::on_response(TimeNs now, const Packet& packet) {
    if (failed_) return;
    probed_ = false;
    const Sequence sequence = extend(packet.psn, unacknowledged_);
    // Beyond what was sent: from an earlier connection, or forged. Before `unacknowledged_`: a duplicate.
    if (sequence >= highest_) {
        ++counters_.ghosts;
        return;
    }
    switch (packet.opcode) {
        case Opcode::kAcknowledge:
            return on_acknowledge(now, packet, sequence);
        case Opcode::kReadResponseFirst:
        case Opcode::kReadResponseMiddle:
        case Opcode::kReadResponseLast:
        case Opcode::kReadResponseOnly:
            return on_read_response(now, packet, sequence);
        default:
            return;  // atomics are never requested
    }
}

void Requester::on_acknowledge(TimeNs now, const Packet& packet, Sequence sequence) {
    const std::uint8_t value = ack_value(packet.syndrome);
    // The newest acknowledgement counts, and unsolicited ones that repeat its number (9.7.7.2), which may be
    // before READs whose responses have come. An older one is late, or forged by one who did not have to know
    // more than the queue pair.
    if (ack_kind(packet.syndrome) == AckKind::kAck && sequence >= acknowledgement_) {
        acknowledgement_ = sequence;
        note_credits(packet);
    }
    if (sequence < unacknowledged_) return;
    switch (ack_kind(packet.syndrome)) {
        case AckKind::kAck:
            if (!advance(now, sequence + 1)) responses_lost();
            return;
        case AckKind::kRnrNak:
            return on_rnr(now, value, sequence);
        case AckKind::kNak:
            return on_nak(now, static_cast<NakCode>(value), sequence);
        case AckKind::kReserved:
            return;
    }
}

// A NAK acknowledges all packets before its number (9.7.5.2.8), except READs whose responses are missing.
void Requester::on_nak(TimeNs now, NakCode code, Sequence sequence) {
    const bool all = advance(now, sequence);
    mlx5::Syndrome status = mlx5::kBadResponse;
    switch (code) {
        case NakCode::kSequenceError:
            ++counters_.sequence_naks;
            return all ? retransmit_once() : responses_lost();
        case NakCode::kInvalidRequest:
            status = mlx5::kRemoteInvalidRequest;
            break;
        case NakCode::kRemoteAccess:
            status = mlx5::kRemoteAccessError;
            break;
        case NakCode::kRemoteOperational:
            status = mlx5::kRemoteOperationError;
            break;
        default:
            break;
    }
    // The peer is in error and answers earlier READs no more. The entry with the NAK's number gets the
    // syndrome.
    std::uint64_t index = done_;
    while (slot(index).end() <= sequence) ++index;
    fail(index, status);
}

void Requester::on_rnr(TimeNs now, std::uint8_t timer, Sequence sequence) {
    if (!advance(now, sequence)) return responses_lost();
    if (rnr_until_ != kNever) return;  // duplicate
    ++counters_.rnr_naks;
    if (rnr_naks_++ == 0) rnr_since_ = now;
    const bool enough = options_.rnr_retries == kRnrByTime ? now - rnr_since_ >= kRnrPatienceNs
                                                           : rnr_naks_ > options_.rnr_retries;
    if (enough) return fail(done_, mlx5::kRnrRetryExceeded);
    // The peer chooses the pause, possibly only 10 us. Each NAK costs another window, and NAKs may come
    // for seconds.
    rnr_until_ = now + std::max(rnr_timer_ns(timer), rnr_naks_ > kRnrByTime ? kRnrPauseNs : TimeNs{0});
    timeouts_ = 0;  // the peer is alive
    timer_at_ = kNever;
    rewind();
}

void Requester::on_read_response(TimeNs now, const Packet& packet, Sequence sequence) {
    if (sequence < unacknowledged_) return;
    // A response acknowledges all that was sent before its READ; if an earlier READ is unfinished,
    // responses were lost.
    std::uint64_t index = done_;
    while (slot(index).end() <= sequence) ++index;
    if (!slot(index).read()) {
        ++counters_.ghosts;
        return;
    }
    if (!advance(now, slot(index).first) || sequence != unacknowledged_) return responses_lost();
    const Slot& entry = slot(index);
    const std::uint64_t offset = (sequence - entry.first) * options_.mtu;
    const auto wanted =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(options_.mtu, entry.bytes - offset));
    const bool last = sequence + 1 == entry.end();
    const bool piece_done = sequence + 1 == piece_end(entry, sequence);
    // The response to a READ that was repeated from the middle has a "first" opcode there, so check only
    // the end by the opcode.
    if (packet.payload.bytes != wanted || traits(packet.opcode).last != piece_done)
        return fail(index, mlx5::kBadResponse);
    scatter(packet.payload.pieces[0], std::span(entry.request.pieces).first(entry.request.count), offset);
    ++unacknowledged_;
    reads_out_ -= piece_done ? 1 : 0;
    if (last) finish_oldest();
    progress(now);
}

bool Requester::advance(TimeNs now, Sequence target) {
    const Sequence before = unacknowledged_;
    while (unacknowledged_ < target && !slot(done_).read()) {
        unacknowledged_ = std::min(slot(done_).end(), target);
        if (unacknowledged_ == slot(done_).end()) finish_oldest();
    }
    if (unacknowledged_ != before) progress(now);
    return unacknowledged_ >= target;
}

void Requester::finish_oldest() noexcept {
    messages_done_ += messages_of(slot(done_));
    ++done_;
}

void Requester::progress(TimeNs now) noexcept {
    timeouts_ = rnr_naks_ = 0;
    window_ = std::min(2 * window_, options_.window_packets);
    timer_at_ = unacknowledged_ < highest_ && rnr_until_ == kNever ? now + options_.ack_timeout_ns : kNever;
    // Packets that were being retransmitted have been acknowledged meanwhile.
    if (cursor_ < unacknowledged_) rewind();
}

// The peer answered something after a READ whose responses are incomplete (9.7.5.1.1): request the rest
// again.
void Requester::responses_lost() {
    ++counters_.implied_naks;
    retransmit_once();
}

void Requester::retransmit_once() {
    if (retransmitted_at_ == unacknowledged_) return;
    retransmitted_at_ = unacknowledged_;
    rewind();
}

// 9.7.7.2: the message number and the credits of an answer limit the SENDs that may begin.
void Requester::note_credits(const Packet& packet) noexcept {
    const std::uint8_t code = ack_value(packet.syndrome);
    if (code == kCreditsUnlimited) {
        send_limit_ = kNever;
        return;
    }
    const std::uint64_t number =
        extend(packet.message_number, messages_done_ + kSequenceBase) - kSequenceBase;
    if (number <= messages_) send_limit_ = number + credits_of(code);
}

}  // namespace gnstor::rdma::roce
