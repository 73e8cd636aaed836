// responder.cpp: decides which packets are executed, repeated or dropped, and when answers go out.
// responder_execute.cpp executes each kind of request.
#include "rdma/roce/responder.hpp"

#include "rdma/roce/mutation.hpp"
#include "rdma/roce/pacer.hpp"

#include <algorithm>

namespace gnstor::rdma::roce {

Responder::Responder(const ResponderOptions& options, MemoryPort& port)
    : options_(options),
      port_(port),
      expected_(first_sequence(options.start_psn)),
      acknowledged_end_(expected_),
      reads_(std::max<std::uint32_t>(options.reads_max, 1)) {}

void Responder::on_request(TimeNs now, const Packet& packet) {
    const Sequence sequence = extend(packet.psn, expected_);
    if (failed_) {
        // The NAK with the reason may have been lost: send it again for each further request.
        if (nak_sent_ && sequence >= expected_) nak_due_ = true;
        return;
    }
    seen_ = std::max(seen_, sequence);
    if (sequence == expected_) return execute(now, packet);
    if (sequence < expected_) return repeat(now, packet, sequence);
    if (planted(Mutation::kAcknowledgeEarly)) {
        acknowledge_at_ = now;
        return;
    }
    // A gap: 9.7.5.2.8 allows one NAK for it until the expected packet comes.
    ++counters_.gaps;
    if (!nak_sent_) nak(nak_syndrome(NakCode::kSequenceError));
}

void Responder::nak(std::uint8_t syndrome) noexcept {
    nak_syndrome_ = syndrome;
    nak_due_ = nak_sent_ = true;
}

// Ends the connection with a NAK at the expected number. Always returns false.
bool Responder::refuse(NakCode code, mlx5::Syndrome local) {
    nak(nak_syndrome(code));
    failed_ = true;
    failure_ = local;
    acknowledge_at_ = kNever;
    if (receiving_) {
        receiving_ = false;
        port_.received({receive_.id, local, received_bytes_, false, false, 0});
    }
    return false;
}

void Responder::flush() {
    if (receiving_) {
        receiving_ = false;
        port_.received({receive_.id, mlx5::kFlushed, received_bytes_, false, false, 0});
    }
    if (!failed_) {
        // Send nothing from now on; after a refusal its NAK may still be repeated.
        failure_ = mlx5::kFlushed;
        nak_due_ = nak_sent_ = false;
    }
    failed_ = true;
    acknowledge_at_ = paced_until_ = kNever;
    for (Read& read : reads_) read.next = read.end;
}

void Responder::execute(TimeNs now, const Packet& packet) {
    nak_sent_ = nak_due_ = false;
    if (!fits(packet)) return;
    const Sequence before = expected_;
    bool done = false;
    if (packet.opcode == Opcode::kReadRequest) {
        done = execute_read(now, packet);
    } else if (message_ == Message::kWrite) {
        done = execute_write(packet);
    } else {
        done = execute_send(packet);
    }
    if (!done) return;
    ++counters_.executed;
    if (expected_ == before) ++expected_;
    if (traits(packet.opcode).last) {
        message_ = Message::kNone;
        message_number_ = (message_number_ + 1) & 0xFFFFFFu;
    }
    // A READ is answered by its responses, not by an acknowledgement.
    if (packet.opcode == Opcode::kReadRequest) return;
    acknowledged_end_ = expected_;
    acknowledge_later(now, packet);
}

// Coalesces acknowledgements: one covers all before it; it goes out after `ack_every` packets or
// `ack_delay_ns`.
void Responder::acknowledge_later(TimeNs now, const Packet& packet) noexcept {
    ++unanswered_;
    if (unanswered_ >= options_.ack_every) {
        acknowledge_at_ = now;
    } else if (packet.ack_request && acknowledge_at_ == kNever) {
        acknowledge_at_ = now + options_.ack_delay_ns;
    }
}

// 9.7.4.3: an old SEND or WRITE is acknowledged and not executed, an old READ is executed again.
void Responder::repeat(TimeNs now, const Packet& packet, Sequence sequence) {
    ++counters_.duplicates;
    if (packet.opcode == Opcode::kReadRequest) return repeat_read(now, packet, sequence);
    if (planted(Mutation::kExecuteOldWrite)) {
        if (packet.opcode == Opcode::kWriteOnly && packet.payload.bytes > 0) {
            std::byte* to =
                port_.reach(packet.rkey, packet.address, packet.payload.bytes, Right::kRemoteWrite);
            if (to != nullptr) std::copy_n(packet.payload.pieces[0].data(), packet.payload.bytes, to);
        }
    }
    acknowledge_at_ = std::min(acknowledge_at_, now);
    // Within a READ: a probe (Requester::probe()), whose sender has the response with that number.
    acknowledged_end_ = std::max(acknowledged_end_, sequence + 1);
}

void Responder::repeat_read(TimeNs now, const Packet& packet, Sequence sequence) {
    if (planted(Mutation::kForgetRetransmittedRead)) return;
    for (Read& read : reads_) {
        if (sequence < read.first || sequence >= read.end) continue;
        const std::uint64_t offset = (sequence - read.first) * options_.mtu;
        // Only the exact rest of the original READ may be requested again (9.7.4.3.1).
        if (packet.rkey != read.rkey || packet.address != read.address + offset ||
            packet.length != read.bytes - offset) {
            break;
        }
        // Responses not sent yet will be sent anyway; go back only for those that were sent.
        if (sequence >= read.next) return;
        read.next = read.start = sequence;
        ++counters_.reads_repeated;
        if (options_.pacer != nullptr) options_.pacer->lost(now);
        return;
    }
    ++counters_.dropped;
}

void Responder::begin_answer(Packet& packet, Opcode opcode, std::uint8_t syndrome) const noexcept {
    packet = Packet{};
    packet.opcode = opcode;
    packet.queue_pair = options_.peer_queue_pair;
    packet.syndrome = syndrome;
    packet.message_number = message_number_;
}

bool Responder::next_packet(TimeNs now, Packet& packet) {
    paced_until_ = kNever;
    if (Read* const read = oldest_unsent()) {
        if (paced() && !options_.pacer->may_send(now)) {
            paced_until_ = options_.pacer->next_time(now);
            return false;
        }
        if (next_response(now, *read, packet)) return true;
    }
    if (nak_due_) {
        nak_due_ = false;
        begin_answer(packet, Opcode::kAcknowledge, nak_syndrome_);
        packet.psn = psn_of(expected_);
        ack_kind(nak_syndrome_) == AckKind::kRnrNak ? ++counters_.rnr_naks : ++counters_.naks;
        acknowledge_at_ = kNever;
        unanswered_ = 0;
        return true;
    }
    if (now < acknowledge_at_) return false;
    acknowledge_at_ = kNever;
    unanswered_ = 0;
    begin_answer(packet, Opcode::kAcknowledge, ack_syndrome());
    packet.psn = psn_of(acknowledged_end_ - 1);
    if (planted(Mutation::kAcknowledgeEarly)) packet.psn = psn_of(seen_);
    ++counters_.acknowledgements;
    return true;
}

// The oldest READ with unsent responses.
Responder::Read* Responder::oldest_unsent() noexcept {
    Read* oldest = nullptr;
    for (Read& read : reads_) {
        if (read.next < read.end && (oldest == nullptr || read.first < oldest->first)) oldest = &read;
    }
    return oldest;
}

// Whether more is outstanding than a requester with a window like ours requests at once.
bool Responder::paced() const noexcept {
    if (options_.pacer == nullptr) return false;
    std::uint64_t packets = 0;
    for (const Read& read : reads_) packets += read.end - read.next;
    return packets * options_.mtu > options_.pacer->free_bytes();
}

bool Responder::next_response(TimeNs now, Read& read, Packet& packet) {
    const bool first = read.next == read.start;
    const bool last = read.next + 1 == read.end;
    const std::uint64_t offset = (read.next - read.first) * options_.mtu;
    const auto bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(options_.mtu, read.bytes - offset));
    const std::byte* from = nullptr;
    if (bytes > 0) {
        from = port_.reach(read.rkey, read.address + offset, bytes, Right::kRemoteRead);
        if (from == nullptr) {
            // The key was revoked meanwhile. The NAK carries the number of the response that cannot be
            // sent.
            for (Read& other : reads_) other.next = other.end;
            if (!failed_) {
                expected_ = read.first + (offset / options_.mtu);
                refuse(NakCode::kRemoteAccess, mlx5::kLocalAccessError);
            }
            return false;
        }
    }
    Opcode opcode = first ? Opcode::kReadResponseFirst : Opcode::kReadResponseMiddle;
    if (last) opcode = first ? Opcode::kReadResponseOnly : Opcode::kReadResponseLast;
    begin_answer(packet, opcode, traits(opcode).aeth ? ack_syndrome() : 0);
    packet.message_number = traits(opcode).aeth ? read.message_number : 0;
    packet.psn = psn_of(read.next);
    packet.payload.add({from, bytes});
    if (options_.pacer != nullptr) options_.pacer->sent(now, bytes, paced());
    ++read.next;
    read.answered |= last;
    // The newest request was this READ: its last response acknowledges everything before.
    if (last && read.end == expected_ && !nak_due_) {
        acknowledge_at_ = kNever;
        unanswered_ = 0;
    }
    return true;
}

}  // namespace gnstor::rdma::roce
