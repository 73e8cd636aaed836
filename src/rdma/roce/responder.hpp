// responder.hpp: the receiving half of a reliable connection. IBA volume 1, 9.7.2 to 9.7.5 and 9.9.3.
//
// Owns the expected sequence number, the message that is being received, responder resources for READs,
// and at most one acknowledgement and one NAK that are due.
// Invariants
//   * a request is executed at the expected number only, so once and in order; an older one is answered
//     again and, unless it is a READ, not executed; a newer one is dropped, with one NAK per gap;
//   * a byte is read or written only if MemoryPort::reach granted it for this packet, with the right that
//     the operation needs;
//   * a request is acknowledged only after it was executed, and answers go out in the order of the
//     requests: READ responses before a NAK or an acknowledgement that would cover them;
//   * an acknowledgement names a number of a SEND or WRITE, never one of a READ, which only its responses
//     acknowledge: a peer that lacks the last response could take it for that response;
//   * READs beyond what a requester like ours has outstanding are answered at a limited rate (pacer.hpp),
//     and later answers wait behind them;
//   * memory is constant: `reads_max` resources, no queue.
// After an error of the peer it sends only that error's NAK, again for each further request. Pure; one
// thread at a time.
#pragma once

#include "rdma/roce/psn.hpp"
#include "rdma/roce/transport.hpp"

#include <vector>

namespace gnstor::rdma::roce {

struct ResponderCounters {
    std::uint64_t executed = 0, duplicates = 0, gaps = 0, reads_repeated = 0, acknowledgements = 0, naks = 0,
                  rnr_naks = 0, dropped = 0;
};

class Responder {
  public:
    /// `port` must outlive it.
    Responder(const ResponderOptions& options, MemoryPort& port);

    void on_request(TimeNs now, const Packet& packet);
    /// Builds the next answer that is due; false: none now. The payload of a READ response is the node's
    /// memory itself, valid until the next call.
    bool next_packet(TimeNs now, Packet& packet);
    /// When next_packet() may return a packet that it does not return now.
    [[nodiscard]] TimeNs next_deadline() const noexcept {
        return paced_until_ != kNever ? paced_until_ : acknowledge_at_;
    }

    /// Ends the connection: nothing is executed or answered any more; a receive in progress is flushed.
    void flush();
    [[nodiscard]] bool failed() const noexcept { return failed_; }
    [[nodiscard]] mlx5::Syndrome failure() const noexcept { return failure_; }
    [[nodiscard]] const ResponderCounters& counters() const noexcept { return counters_; }

  private:
    /// An accepted READ; kept after its end until another READ needs its place.
    struct Read {
        Sequence first = 0, end = 0;
        Sequence next = 0;   ///< next response to send; `end`: all are sent
        Sequence start = 0;  ///< start of the newest request for it: that response is a "first"
        std::uint64_t address = 0;
        std::uint32_t rkey = 0;
        std::uint32_t bytes = 0;
        std::uint32_t message_number = 0;
        bool answered = false;  ///< all responses were sent once: further ones are repetitions
    };
    enum class Message : std::uint8_t { kNone, kSend, kWrite };

    void execute(TimeNs now, const Packet& packet);
    bool fits(const Packet& packet);
    bool execute_send(const Packet& packet);
    bool execute_write(const Packet& packet);
    bool execute_read(TimeNs now, const Packet& packet);
    void repeat(TimeNs now, const Packet& packet, Sequence sequence);
    void repeat_read(TimeNs now, const Packet& packet, Sequence sequence);
    void acknowledge_later(TimeNs now, const Packet& packet) noexcept;
    Read* oldest_unsent() noexcept;
    [[nodiscard]] bool paced() const noexcept;
    bool next_response(TimeNs now, Read& read, Packet& packet);
    void begin_answer(Packet& packet, Opcode opcode, std::uint8_t syndrome) const noexcept;
    void nak(std::uint8_t syndrome) noexcept;
    bool refuse(NakCode code, mlx5::Syndrome local);

    const ResponderOptions options_;
    MemoryPort& port_;
    Sequence expected_;
    /// What an acknowledgement acknowledges: all before this, the end of the newest SEND or WRITE packet.
    Sequence acknowledged_end_;
    [[maybe_unused]] Sequence seen_ = 0;  ///< highest number seen; used by a planted fault only
    std::uint32_t message_number_ = 0;    ///< requests executed to their end, 24 bits (9.7.7.1)
    std::vector<Read> reads_;             ///< ring, indexed by `reads_begun_`
    std::uint64_t reads_begun_ = 0;

    Message message_ = Message::kNone;
    bool receiving_ = false;  ///< `receive_` was taken, and its message is incomplete
    ReceiveBuffer receive_;
    std::uint32_t received_bytes_ = 0;
    std::uint64_t write_address_ = 0;
    std::uint32_t write_rkey_ = 0, write_left_ = 0;

    bool nak_due_ = false;
    bool nak_sent_ = false;  ///< for the gap (or the missing receive) at `expected_`
    std::uint8_t nak_syndrome_ = 0;
    TimeNs acknowledge_at_ = kNever;
    TimeNs paced_until_ = kNever;   ///< READ responses, and all answers after them, wait until then
    std::uint32_t unanswered_ = 0;  ///< packets executed since the last acknowledgement
    bool failed_ = false;
    mlx5::Syndrome failure_ = mlx5::kSyndromeNone;
    ResponderCounters counters_;
};

}  // namespace gnstor::rdma::roce
