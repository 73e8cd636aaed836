// peer_trust.hpp: how far a sender of connection requests can be trusted, since source addresses can be
// forged.
//
// A first REQ does not show whether its source address is forged, and connection management has no
// cookies. But a real peer repeats its REQ; and one that was connected before has proven its address: its
// RTU carried an id that only our REP had told it. So a flood of first requests is kept apart from both.
// Invariants
//   * memory is constant: two tables of fixed size, indexed by a keyed hash; a new entry overwrites an
//     old one;
//   * a request counts as repeated only after kRetryMinNs, so sending it twice at once gains nothing.
// A forger can still send each request again later. It then competes with real peers that retry, at half
// its rate, but not with peers that were connected before. Pure; one thread at a time.
#pragma once

#include "rdma/roce/cm_messages.hpp"
#include "rdma/roce/transport.hpp"

#include <cstdint>
#include <vector>

namespace gnstor::rdma::roce {

enum class PeerTrust : std::uint8_t {
    kNew,      ///< unknown
    kRetried,  ///< repeats an earlier request
    kProven,   ///< was connected before, from that address
};

class PeerTrustTable {
  public:
    /// Peers repeat after half a second (ours) to 4.3 s (Linux).
    static constexpr TimeNs kRetryMinNs = 100'000'000, kRetryMaxNs = 10'000'000'000;
    static constexpr TimeNs kProvenNs = 24 * 3600ull * 1'000'000'000;
    static constexpr std::size_t kRequests = 1u << 17, kPeers = 1u << 12;

    explicit PeerTrustTable(std::uint64_t seed);
    /// Trust in the sender of a REQ that arrived; remembers the REQ, whether it is processed or not.
    PeerTrust of_request(TimeNs now, const Gid& source, const CmMessage& request) noexcept;
    /// Trust in the sender of any other message.
    [[nodiscard]] PeerTrust of_peer(TimeNs now, const Gid& source) const noexcept;
    /// The source has completed a connection: what we sent to its address reached it.
    void prove(TimeNs now, const Gid& source) noexcept;

  private:
    struct Mark {
        std::uint32_t tag = 0;  ///< 0: none
        std::uint32_t at_ms = 0;
    };
    [[nodiscard]] std::uint64_t hash(const Gid& source, std::uint64_t what) const noexcept;

    const std::uint64_t seed_;
    std::vector<Mark> requests_, peers_;
};

}  // namespace gnstor::rdma::roce
