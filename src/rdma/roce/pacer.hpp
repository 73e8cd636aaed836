// pacer.hpp: how fast the answers to long READs go to one address, whatever its connections ask for.
//
// A requester of our own asks for what it has room for. Others ask for many megabytes at once (Linux's
// target: 16 READs of 256 KiB a queue): sent as fast as we can, the answers overrun queues on the way that
// hold a thousand packets. So what is asked for beyond `free_bytes` of a connection goes at a rate. Nothing
// tells the answering side how far its answers have come, but that a peer with all its READs under way asks
// for the next when one has ended: as long as what goes out is followed by new READs about as fast, the rate
// is doubled, and slowly raised once it was too much; where they come more slowly it goes back to what they
// show, and where answers are asked for again it is halved. Who asks for no more is answered at the rate that
// there was.
//
// Invariants: rate_min <= rate <= rate_max; what goes out in any time t is at most burst + rate * t, and a
// packet. Pure; one thread at a time, shared by the connections to one address.
#pragma once

#include "rdma/roce/transport.hpp"

#include <cstdint>

namespace gnstor::rdma::roce {

struct PacerOptions {
    std::uint32_t free_bytes = 64 * 1024;    ///< asked for and not sent, of a connection: not paced
    std::uint64_t rate_first = 64'000'000;   ///< bytes a second
    std::uint64_t rate_min = 8'000'000;      ///< 1 MiB, the longest transfer, in an eighth of a second
    std::uint64_t rate_max = 8'000'000'000;  ///< no limit any more
    std::uint32_t burst_bytes = 64 * 1024;   ///< at least; and what the rate gives in 250 us
    TimeNs look_ns = 10'000'000;             ///< at what new READs show: so often, while they show no limit
    TimeNs look_later_ns = 50'000'000;       ///< afterwards
    std::uint64_t look_bytes = 2 << 20;      ///< and not before so much has arrived: READs end in bunches
    TimeNs losses_apart_ns = 100'000'000;    ///< within that they are one
};

class Pacer {
  public:
    explicit Pacer(const PacerOptions& options = {}) : options_(options), rate_(options.rate_first) {}

    [[nodiscard]] bool may_send(TimeNs now) noexcept {
        fill(now);
        return credit_ > 0;
    }
    /// When may_send() is true again, for some packets in a row.
    [[nodiscard]] TimeNs next_time(TimeNs now) const noexcept;
    /// So many bytes of answers went out; `paced`: they had to ask.
    void sent(TimeNs now, std::uint32_t bytes, bool paced) noexcept;
    /// A new READ was asked for.
    void asked(TimeNs now, std::uint32_t bytes) noexcept;
    /// Answers were asked for again.
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
    std::uint64_t unproven_ = 0;  ///< bytes that went out, and no new READ has shown that they arrived
    std::uint64_t sent_ = 0, proven_ = 0;  ///< since `looked_at_`
    std::uint64_t arrives_ = 0;            ///< bytes a second, as last seen; 0: not known
    TimeNs sent_at_ = 0, looked_at_ = 0, lost_at_ = kNever;
    bool looking_ = false;      ///< since `looked_at_`
    bool limit_known_ = false;  ///< it was too much once
};

}  // namespace gnstor::rdma::roce
