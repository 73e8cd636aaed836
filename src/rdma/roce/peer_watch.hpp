// peer_watch.hpp: whether the process that answers at a peer's address has ended. RFC 792, RFC 4443: port
// unreachable.
//
// A host whose process was killed answers each packet for its UDP port with "port unreachable", which quotes
// that packet. Anybody can send such a message in the host's name, so one proves nothing. The peer counts as
// ended when
//   * a message quotes a packet that is unanswered (Requester::unanswered(): queue pair and PSN, which a
//     forged NAK would need, too), and
//   * a further one does kConfirmNs later or after that, and
//   * no packet of the peer came in between. The caller sends something that the peer must answer when the
//     first message counts (Verdict::kProbe), and again when probe_due() says so.
// A host that limits the rate of its ICMP messages (Linux: six at once, then one a second) may leave the
// second one out: then the timeouts of the connections decide. While the peer owes messages and is silent, a
// probe goes out now and then: a host answers nothing else for a process that had taken all packets before it
// died. Pure; one thread at a time.
#pragma once

#include "rdma/roce/transport.hpp"

#include <algorithm>
#include <cstdint>

namespace gnstor::rdma::roce {

class PeerWatch {
  public:
    /// Silence of a peer that owes messages, before a probe goes out.
    static constexpr TimeNs kSilenceNs = 20'000'000;
    /// A living peer answers a probe within this time.
    static constexpr TimeNs kConfirmNs = 10'000'000;
    /// Each probe without an answer doubles the time to the next one, so many times.
    static constexpr std::uint32_t kBackOffShiftMax = 3;

    enum class Verdict : std::uint8_t {
        kProbe,  ///< the first such message: something that must be answered is to go out now
        kWait,   ///< too early after the first
        kEnded,
    };

    /// A packet of one of the peer's connections came, with a good ICRC.
    void heard(TimeNs now) noexcept {
        if (quiet_since_ != kNever) quiet_since_ = now;
        refused_at_ = kNever;
        probes_ = 0;
    }
    /// "Port unreachable", from the peer's own address, which quotes an unanswered packet.
    [[nodiscard]] Verdict refused(TimeNs now) noexcept {
        if (refused_at_ == kNever) {
            refused_at_ = quiet_since_ = now;
            probes_ = 0;
            return Verdict::kProbe;
        }
        return now - refused_at_ >= kConfirmNs ? Verdict::kEnded : Verdict::kWait;
    }
    /// Whether a probe is to go out now; `owes`: the peer owes messages. To be asked when next_deadline() has
    /// come, and once when the peer begins to owe messages.
    [[nodiscard]] bool probe_due(TimeNs now, bool owes) noexcept {
        if (!owes && refused_at_ == kNever) {
            quiet_since_ = kNever;
            return false;
        }
        if (quiet_since_ == kNever) {
            quiet_since_ = now;
            probes_ = 0;
        }
        if (now < next_deadline()) return false;
        quiet_since_ = now;
        probes_ = std::min(probes_ + 1, kBackOffShiftMax);
        return true;
    }
    /// Such a message came since the peer was last heard.
    [[nodiscard]] bool doubted() const noexcept { return refused_at_ != kNever; }
    [[nodiscard]] TimeNs next_deadline() const noexcept {
        if (quiet_since_ == kNever) return kNever;
        return quiet_since_ + ((refused_at_ == kNever ? kSilenceNs : kConfirmNs) << probes_);
    }

  private:
    TimeNs quiet_since_ = kNever;  ///< last packet, probe, or first message owed; kNever: nothing is owed
    TimeNs refused_at_ = kNever;   ///< the first message since the peer was last heard
    std::uint32_t probes_ = 0;     ///< without an answer, kBackOffShiftMax at most
};

}  // namespace gnstor::rdma::roce
