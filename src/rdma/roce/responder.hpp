// responder.hpp: the receiving half of a reliable connection. IBA volume 1, 9.7.2 to 9.7.5 and 9.9.3.
//
// Owns the expected sequence number, the message that is being received, responder resources for READs, and
// the one acknowledgement and the one NAK that may be due. Invariants
//   * a request is executed at the expected number only, so once and in order; an older one is answered again
//   and, but
//     for a READ, not executed; a newer one is dropped, with one NAK a gap;
//   * no byte is read or written that MemoryPort::reach did not give for this packet, with the right that it
//   needs;
//   * nothing is acknowledged before it was executed, and answers go out in the order of the requests: READ
//   responses
//     before a NAK or an acknowledgement that would cover them;
//   * what is asked for at once beyond what a requester has room for goes out at a rate (pacer.hpp), and what
//     comes after it waits;
//   * memory is constant: `reads_max` resources, no queue.
// After an error of the peer it answers only with that error's NAK, again for each request that asks again.
// Pure; one thread at a time.
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
    /// Builds the next answer that is due; false where there is none now. The payload of a READ response is
    /// the node's memory itself, good until the next call.
    bool next_packet(TimeNs now, Packet& packet);
    /// When next_packet() will have something that it does not have now.
    [[nodiscard]] TimeNs next_deadline() const noexcept {
        return paced_until_ != kNever ? paced_until_ : acknowledge_at_;
    }

    /// Ends it: nothing is executed or answered any more; a receive that is being filled is flushed.
    void flush();
    [[nodiscard]] bool failed() const noexcept { return failed_; }
    [[nodiscard]] mlx5::Syndrome failure() const noexcept { return failure_; }
    [[nodiscard]] const ResponderCounters& counters() const noexcept { return counters_; }

  private:
    /// A READ that was accepted; remembered after its end, until its place is needed.
    struct Read {
        Sequence first = 0, end = 0;
        Sequence next = 0;   ///< response to send next; `end`: all are sent
        Sequence start = 0;  ///< where the newest request for it began: its response is a "first"
        std::uint64_t address = 0;
        std::uint32_t rkey = 0;
        std::uint32_t bytes = 0;
        std::uint32_t message_number = 0;
        bool answered = false;  ///< all responses went out once: what is being sent is a repetition
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
    [[maybe_unused]] Sequence seen_ = 0;  ///< highest number seen; only a planted fault looks at it
    std::uint32_t message_number_ = 0;    ///< requests executed to their end, 24 bits (9.7.7.1)
    std::vector<Read> reads_;             ///< ring; `reads_begun_` of them were accepted
    std::uint64_t reads_begun_ = 0;

    Message message_ = Message::kNone;
    bool receiving_ = false;  ///< `receive_` was taken and is not complete
    ReceiveBuffer receive_;
    std::uint32_t received_bytes_ = 0;
    std::uint64_t write_address_ = 0;
    std::uint32_t write_rkey_ = 0, write_left_ = 0;

    bool nak_due_ = false;
    bool nak_sent_ = false;  ///< for the gap (or the missing receive) at `expected_`
    std::uint8_t nak_syndrome_ = 0;
    TimeNs acknowledge_at_ = kNever;
    TimeNs paced_until_ = kNever;   ///< responses wait until then, and all that goes out behind them
    std::uint32_t unanswered_ = 0;  ///< packets executed since the last acknowledgement
    bool failed_ = false;
    mlx5::Syndrome failure_ = mlx5::kSyndromeNone;
    ResponderCounters counters_;
};

}  // namespace gnstor::rdma::roce
