// peer_trust.cpp: see peer_trust.hpp.
#include "rdma/roce/peer_trust.hpp"

#include <gnstor/base/hash.hpp>

#include <cstring>

namespace gnstor::rdma::roce {
namespace {

constexpr std::uint32_t ms_of(TimeNs time) noexcept {
    return static_cast<std::uint32_t>(time / 1'000'000);
}
constexpr std::uint32_t tag_of(std::uint64_t hash) noexcept {
    return static_cast<std::uint32_t>(hash >> 32) | 1u;
}

}  // namespace

PeerTrustTable::PeerTrustTable(std::uint64_t seed) : seed_(seed), requests_(kRequests), peers_(kPeers) {}

std::uint64_t PeerTrustTable::hash(const Gid& source, std::uint64_t what) const noexcept {
    std::uint64_t halves[2];
    static_assert(sizeof halves == sizeof(Gid));
    std::memcpy(halves, source.data(), sizeof halves);
    return mix64(mix64(mix64(halves[0] ^ seed_) ^ halves[1]) ^ what);
}

PeerTrust PeerTrustTable::of_peer(TimeNs now, const Gid& source) const noexcept {
    const std::uint64_t at = hash(source, 0);
    const Mark& mark = peers_[at % kPeers];
    const bool proven = mark.tag == tag_of(at) && ms_of(now) - mark.at_ms < kProvenNs / 1'000'000;
    return proven ? PeerTrust::kProven : PeerTrust::kNew;
}

PeerTrust PeerTrustTable::of_request(TimeNs now, const Gid& source, const CmMessage& request) noexcept {
    const std::uint64_t at = hash(source, mix64(request.transaction) ^ request.local_id);
    Mark& mark = requests_[at % kRequests];
    const std::uint32_t age_ms = ms_of(now) - mark.at_ms;
    const bool heard = mark.tag == tag_of(at) && age_ms < kRetryMaxNs / 1'000'000;
    if (!heard) mark = {tag_of(at), ms_of(now)};
    if (of_peer(now, source) == PeerTrust::kProven) return PeerTrust::kProven;
    return heard && age_ms >= kRetryMinNs / 1'000'000 ? PeerTrust::kRetried : PeerTrust::kNew;
}

void PeerTrustTable::prove(TimeNs now, const Gid& source) noexcept {
    const std::uint64_t at = hash(source, 0);
    peers_[at % kPeers] = {tag_of(at), ms_of(now)};
}

}  // namespace gnstor::rdma::roce
