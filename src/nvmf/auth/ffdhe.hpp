// ffdhe.hpp: Diffie-Hellman key pairs of the finite-field groups of RFC 7919.
//
// Invariants
//   * a public value, ours or the peer's, lies in 2 .. p-2 and has the length of p, zeros in front;
//   * a shared secret has the length of p, zeros in front, as in NVMe Base 2.0, 8.13.5.4.
// Private exponents have 512 bits in every group: twice the strength of the largest group and more, so that
// a peer that insists on the largest group costs milliseconds. Pure: randomness is an argument; one owner a
// pair.
#pragma once

#include "nvmf/auth/dhchap_ids.hpp"
#include "nvmf/auth/secret.hpp"

#include <gnstor/base/result.hpp>

#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace gnstor::nvmf::auth {

/// Fills a span with unpredictable bytes; false: the source failed. In production system_random()
/// (random.hpp).
using FillRandom = std::function<bool(std::span<std::byte>)>;

class FfdheKeyPair {
  public:
    /// A new pair. Errors: the NULL group, no randomness, libcrypto.
    static Result<FfdheKeyPair> generate(GroupId group, const FillRandom& random);
    /// The pair of a known private exponent, big endian: for test vectors.
    static Result<FfdheKeyPair> from_private(GroupId group, Secret exponent);

    [[nodiscard]] GroupId group() const { return group_; }
    [[nodiscard]] std::span<const std::byte> public_value() const { return public_; }
    /// Error kInvalidArgument: the peer's value has a wrong length, or is 0, 1, p-1 or more.
    [[nodiscard]] Result<Secret> shared_secret(std::span<const std::byte> peer_public) const;

  private:
    FfdheKeyPair(GroupId group, Secret exponent) : group_(group), exponent_(std::move(exponent)) {}

    GroupId group_;
    Secret exponent_;
    std::vector<std::byte> public_;
};

}  // namespace gnstor::nvmf::auth
