// standing.hpp: what is known of who asks for a connection, where source addresses can be forged.
//
// Nothing in a first REQ tells a peer from a forgery, and connection management has no cookie that would. But
// a real peer repeats its REQ, and one that was connected before has answered to its address: its RTU carried
// an id that only our REP had told it. So a flood of first requests is kept apart from both. Invariants
//   * memory is constant: two tables of fixed size, addressed by a keyed hash; the newest takes a place;
//   * a request counts as repeated only after kRetryMinNs: who says everything twice at once gains nothing.
// What forgers can do all the same: send each request again later. Then they compete with those who mean it,
// at half their rate; with peers that were connected before they do not. Pure; one thread at a time.
#pragma once

#include "rdma/roce/cm_messages.hpp"
#include "rdma/roce/transport.hpp"

#include <cstdint>
#include <vector>

namespace gnstor::rdma::roce {

enum class Standing : std::uint8_t {
    kNew,      ///< never heard of
    kRetried,  ///< asks again what it asked before
    kProven,   ///< was connected before, from that address
};

class PeerStanding {
  public:
    /// Peers repeat after half a second (ours) to 4.3 s (Linux).
    static constexpr TimeNs kRetryMinNs = 100'000'000, kRetryMaxNs = 10'000'000'000;
    static constexpr TimeNs kProvenNs = 24 * 3600ull * 1'000'000'000;
    static constexpr std::size_t kRequests = 1u << 17, kPeers = 1u << 12;

    explicit PeerStanding(std::uint64_t seed);
    /// Of a REQ that has arrived; it is remembered, whether it is looked at or not.
    Standing of_request(TimeNs now, const Gid& source, const CmMessage& request) noexcept;
    /// Of whatever else comes from there.
    [[nodiscard]] Standing of_peer(TimeNs now, const Gid& source) const noexcept;
    /// It has taken part in a connection: what it was sent has reached it.
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
