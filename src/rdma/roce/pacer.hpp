// pacer.hpp: limits the rate of responses to long READs to one address, over all its connections.
//
// Our own requester asks only for what it has room for. Others request many megabytes at once (Linux's
// target: 16 READs of 256 KiB a queue): sent at full speed, the responses overrun queues on the path,
// which hold about a thousand packets. So what a connection has outstanding beyond `free_bytes` is sent
// at a limited rate. The responder gets no feedback on arrival, except that a peer with all its READs
// outstanding issues a new one when one has ended. So the rate follows new READs: while they come about
// as fast as responses go out, it doubles, or grows slowly once a limit was found; if they come more
// slowly, it falls to a little less than they show; if responses are requested again, it falls too, to
// half if nothing better is known. While a peer uses less than the rate, the rate stays.
//
// Invariants: rate_min <= rate <= rate_max; in any time t at most burst + rate * t bytes go out, plus one
// packet. Pure; one thread at a time, shared by the connections to one address.
#pragma once

#include "rdma/roce/transport.hpp"

#include <cstdint>

namespace gnstor::rdma::roce {

struct PacerOptions {
    std::uint32_t free_bytes = 64 * 1024;    ///< outstanding READ bytes of a connection that are not paced
    std::uint64_t rate_first = 64'000'000;   ///< bytes per second, like the next two
    std::uint64_t rate_min = 8'000'000;      ///< 1 MiB, the longest transfer, in an eighth of a second
    std::uint64_t rate_max = 8'000'000'000;  ///< practically no limit
    std::uint32_t burst_bytes = 64 * 1024;   ///< at least; or what the rate gives in 250 us
    TimeNs look_ns = 10'000'000;             ///< interval of rate decisions until a limit is found
    TimeNs look_later_ns = 50'000'000;       ///< interval afterwards
    std::uint64_t look_bytes = 2 << 20;      ///< bytes to arrive before a decision: READs end in bunches
    TimeNs losses_apart_ns = 100'000'000;    ///< losses within this time count as one
};

class Pacer {
  public:
    explicit Pacer(const PacerOptions& options = {}) : options_(options), rate_(options.rate_first) {}

    [[nodiscard]] bool may_send(TimeNs now) noexcept {
        fill(now);
        return credit_ > 0;
    }
    /// When may_send() will be true again, and stay so for several packets.
    [[nodiscard]] TimeNs next_time(TimeNs now) const noexcept;
    /// `bytes` of responses went out; `paced`: after may_send().
    void sent(TimeNs now, std::uint32_t bytes, bool paced) noexcept;
    /// The peer issued a new READ.
    void asked(TimeNs now, std::uint32_t bytes) noexcept;
    /// The peer requested responses again.
    void lost(TimeNs now) noexcept;

    [[nodiscard]] std::uint32_t free_bytes() const noexcept { return options_.free_bytes; }
    [[nodiscard]] std::uint64_t rate() const noexcept { return rate_; }

  private:
    [[nodiscard]] std::int64_t burst() const noexcept;
    void fill(TimeNs now) noexcept;
    void look(TimeNs now) noexcept;

    const PacerOptions options_;
    std::uint64_t rate_;
    std::int64_t credit_ = 0;  ///< bytes
    TimeNs filled_at_ = 0;
    std::uint64_t unproven_ = 0;           ///< bytes sent whose arrival no new READ has shown yet
    std::uint64_t sent_ = 0, proven_ = 0;  ///< since `looked_at_`
    std::uint64_t arrives_ = 0;            ///< bytes per second, as last measured; 0: unknown
    TimeNs sent_at_ = 0, looked_at_ = 0, lost_at_ = kNever;
    bool looking_ = false;      ///< measuring since `looked_at_`
    bool limit_known_ = false;  ///< the rate was too high once
};

}  // namespace gnstor::rdma::roce
