// peer_watch.hpp: detects that the process at a peer's address has ended. RFC 792, RFC 4443: port
// unreachable.
//
// The host of a killed process answers each packet for its UDP port with "port unreachable", which quotes
// that packet. Such a message can be forged, so one proves nothing. The peer counts as ended when
//   * a message quotes an unanswered packet (Requester::unanswered(): queue pair and PSN, which a forged
//     NAK would need, too), and
//   * another one comes kConfirmNs later or after that, and
//   * no packet of the peer came in between. On the first message (Verdict::kProbe) and when probe_due()
//     says so, the caller sends something that a living peer must answer.
// A host that limits the rate of its ICMP messages (Linux: six at once, then one a second) may omit the
// second one: then the timeouts of the connections decide. While the peer owes messages and is silent, a
// probe goes out now and then: if the process died after it had taken all packets, its host answers
// nothing but a new packet. Pure; one thread at a time.
#pragma once

#include "rdma/roce/transport.hpp"

#include <algorithm>
#include <cstdint>

namespace gnstor::rdma::roce {

class PeerWatch {
  public:
    /// How long a peer that owes messages may be silent before a probe goes out.
    static constexpr TimeNs kSilenceNs = 20'000'000;
    /// A living peer answers a probe within this time.
    static constexpr TimeNs kConfirmNs = 10'000'000;
    /// Each unanswered probe doubles the time to the next one, at most so many times.
    static constexpr std::uint32_t kBackOffShiftMax = 3;

    enum class Verdict : std::uint8_t {
        kProbe,  ///< first message: send something that must be answered
        kWait,   ///< too soon after the first
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
    /// Whether to send a probe now; `owes`: the peer owes messages. Call when next_deadline() has come,
    /// and when the peer begins to owe messages.
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
    /// A "port unreachable" came after the peer's last packet.
    [[nodiscard]] bool doubted() const noexcept { return refused_at_ != kNever; }
    [[nodiscard]] TimeNs next_deadline() const noexcept {
        if (quiet_since_ == kNever) return kNever;
        return quiet_since_ + ((refused_at_ == kNever ? kSilenceNs : kConfirmNs) << probes_);
    }

  private:
    TimeNs quiet_since_ = kNever;  ///< last packet, probe, or first message owed; kNever: not watched
    TimeNs refused_at_ = kNever;   ///< the first message since the peer was last heard
    std::uint32_t probes_ = 0;     ///< unanswered, kBackOffShiftMax at most
};

}  // namespace gnstor::rdma::roce
