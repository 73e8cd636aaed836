// requester.hpp: the sending half of a reliable connection. IBA volume 1, 9.7.5 to 9.7.7 and 9.9.2.
//
// Owns the send entries between post() and their completions. Sequence numbers count in 64 bits
// (psn.hpp).
// Invariants
//   * popped <= done <= cursor entry <= posted; an entry between popped and done awaits
//     next_completion();
//   * unacknowledged <= cursor <= next to assign, and cursor <= highest sent; retransmission moves the
//     cursor back to `unacknowledged`, never elsewhere (go back N);
//   * only its responses acknowledge a READ's sequence numbers: an acknowledgement beyond an unfinished
//     READ means that responses were lost;
//   * READ responses count in the window like our own packets: a long READ is requested in pieces of half
//     the window, at fixed boundaries, so that its responses do not overrun our own receiver;
//   * between two steps of progress the peer's answers cause at most one retransmission; all others need
//     a timeout. Consecutive timeouts are limited in number, RNR NAKs in number or by time: so the peer
//     cannot make it send for ever;
//   * after a timeout the window is two packets (or one piece of a READ) until an answer comes, and
//     doubles with each answer: a peer that has not processed its buffer yet does not get another full
//     window.
// After an error all entries are flushed in order, and later ones at once. Pure; one thread at a time.
#pragma once

#include "rdma/roce/psn.hpp"
#include "rdma/roce/transport.hpp"

#include <vector>

namespace gnstor::rdma::roce {

struct RequesterCounters {
    std::uint64_t packets = 0, retransmitted = 0, timeouts = 0, sequence_naks = 0, implied_naks = 0,
                  rnr_naks = 0, ghosts = 0, probes = 0;
};

class Requester {
  public:
    explicit Requester(const RequesterOptions& options);

    /// Appends a request. kBusy: all entries are in use. kInvalidArgument: too many pieces, or too long.
    Result<void> post(const Request& request);
    [[nodiscard]] bool full() const noexcept { return posted_ - popped_ == slots_.size(); }

    /// Builds the next packet to send; false: none now. Its payload refers to the request's memory.
    bool next_packet(TimeNs now, Packet& packet);
    /// Takes an acknowledgement or a READ response.
    void on_response(TimeNs now, const Packet& packet);
    /// Call when next_deadline() has come (earlier does no harm).
    void on_time(TimeNs now);
    [[nodiscard]] TimeNs next_deadline() const noexcept {
        return timer_at_ < rnr_until_ ? timer_at_ : rnr_until_;
    }

    bool next_completion(Completion& completion);
    /// Ends the connection: unfinished entries are flushed.
    void flush();
    /// Ends the connection as too many timeouts do.
    void give_up();
    /// Makes the next packet one that a living peer answers: the oldest unacknowledged one, without
    /// waiting for its timeout; if there is none, an empty SEND with the last PSN that the peer has (a
    /// duplicate is acknowledged and not executed, 9.7.4.3). False: no packet was sent on this connection
    /// yet, or it has failed.
    bool probe();
    /// Whether a packet with this PSN was sent and is not answered yet.
    [[nodiscard]] bool unanswered(std::uint32_t psn) const noexcept;
    [[nodiscard]] bool failed() const noexcept { return failed_; }
    [[nodiscard]] mlx5::Syndrome failure() const noexcept { return failure_; }
    /// All posted requests have completed.
    [[nodiscard]] bool idle() const noexcept { return done_ == posted_; }
    /// Packets in flight: unacknowledged ones, and READ responses.
    [[nodiscard]] std::uint32_t on_their_way() const noexcept {
        return failed_ ? 0 : static_cast<std::uint32_t>(highest_ - unacknowledged_);
    }
    /// The next packet is a retransmission or a probe.
    [[nodiscard]] bool sending_again() const noexcept { return cursor_ < highest_ || probe_due_; }
    [[nodiscard]] const RequesterCounters& counters() const noexcept { return counters_; }

  private:
    struct Slot {
        Request request;
        Sequence first = 0;
        std::uint64_t messages_before = 0;  ///< messages before it; each piece of a READ counts
        std::uint32_t packets = 0;
        std::uint32_t bytes = 0;
        mlx5::Syndrome status = mlx5::kSyndromeNone;

        [[nodiscard]] Sequence end() const noexcept { return first + packets; }
        [[nodiscard]] bool read() const noexcept { return request.kind == RequestKind::kRead; }
    };

    Slot& slot(std::uint64_t index) noexcept { return slots_[index % slots_.size()]; }
    /// End of the READ's piece that contains `sequence`.
    [[nodiscard]] Sequence piece_end(const Slot& read, Sequence sequence) const noexcept {
        const Sequence end = sequence - (sequence - read.first) % read_packets_ + read_packets_;
        return end < read.end() ? end : read.end();
    }
    [[nodiscard]] std::uint32_t messages_of(const Slot& entry) const noexcept {
        return entry.read() ? (entry.packets + read_packets_ - 1) / read_packets_ : 1;
    }
    bool may_send(const Slot& entry) noexcept;
    void build(const Slot& entry, Packet& packet) const;
    void build_duplicate(Packet& packet) const;
    void on_acknowledge(TimeNs now, const Packet& packet, Sequence sequence);
    void on_nak(TimeNs now, NakCode code, Sequence sequence);
    void on_rnr(TimeNs now, std::uint8_t timer, Sequence sequence);
    void on_read_response(TimeNs now, const Packet& packet, Sequence sequence);
    /// Acknowledges all packets before `target`, up to the first unfinished READ; false: a READ stopped
    /// it.
    bool advance(TimeNs now, Sequence target);
    void progress(TimeNs now) noexcept;
    void finish_oldest() noexcept;
    void responses_lost();
    void retransmit_once();
    void rewind() noexcept;
    void note_credits(const Packet& packet) noexcept;
    void fail(std::uint64_t index, mlx5::Syndrome status) noexcept;

    const RequesterOptions options_;
    const std::uint32_t read_packets_;  ///< length of a piece of a READ
    std::vector<Slot> slots_;
    std::uint64_t posted_ = 0, done_ = 0, popped_ = 0;
    std::uint64_t cursor_entry_ = 0;  ///< entry of `cursor_`, or `posted_`
    Sequence next_;                   ///< first number of the next request to be posted
    Sequence cursor_;                 ///< next packet to send
    Sequence highest_;                ///< end of all that was ever sent
    Sequence unacknowledged_;
    Sequence acknowledgement_;       ///< number of the newest acknowledgement
    Sequence retransmitted_at_ = 0;  ///< `unacknowledged_` at the last retransmission that an answer caused
    std::uint32_t window_;           ///< packets; window_packets except after a timeout
    std::uint32_t reads_out_ = 0;    ///< pieces of READs outstanding
    std::uint32_t timeouts_ = 0, rnr_naks_ = 0;  ///< consecutive
    TimeNs timer_at_ = kNever, rnr_until_ = kNever;
    TimeNs rnr_since_ = 0;                            ///< time of the first of rnr_naks_
    std::uint64_t messages_ = 0, messages_done_ = 0;  ///< in entries posted, and in entries done
    std::uint64_t send_limit_ = kNever;  ///< SENDs from this message number on wait for credits (9.7.7.2)
    bool probe_due_ = false;             ///< a duplicate of the last acknowledged packet is to be sent
    bool probed_ = false;                ///< it was sent, and no answer has come since
    bool failed_ = false;
    mlx5::Syndrome failure_ = mlx5::kSyndromeNone;
    RequesterCounters counters_;
};

}  // namespace gnstor::rdma::roce
