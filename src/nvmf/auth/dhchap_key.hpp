// dhchap_key.hpp: a DH-HMAC-CHAP key as administrators keep it: "DHHC-1:hh:BASE64:".
//
// NVMe Base 2.0, 8.13.5.7 (transformation) and 8.13.5.8 (secret representation), and what `nvme
// gen-dhchap-key` makes: hh is the hash that transforms the key (00: none, 01 to 03: SHA-256, 384, 512),
// and BASE64 is that of the key's bytes and their CRC-32 (IEEE 802.3), little endian.
// Invariants
//   * a key has 32, 48 or 64 bytes, and as many as the hash that transforms it: older Linux kernels take
//     the length of the one for the other, and nvme-cli makes no others;
//   * no Error holds a part of a key.
// Pure; one owner at a time.
#pragma once

#include "nvmf/auth/secret.hpp"

#include <gnstor/base/result.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace gnstor::nvmf::auth {

/// The hash that transforms a key before use.
enum class KeyTransform : std::uint8_t { kNone = 0, kSha256 = 1, kSha384 = 2, kSha512 = 3 };

class DhchapKey {
  public:
    /// Parses the text form. Each kind of malformed text has an Error of its own, kInvalidArgument.
    static Result<DhchapKey> parse(std::string_view text);
    /// A key of these bytes, which came from a random source (or from a test vector).
    static Result<DhchapKey> from_bytes(KeyTransform transform, std::span<const std::byte> bytes);

    /// The text form, which is as secret as the key.
    [[nodiscard]] Secret text() const;
    /// The key that responses are made with: HMAC(key, NQN || "NVMe-over-Fabrics"), or the key itself where
    /// it is not transformed. The name is the host's for the host's key, the subsystem's for the
    /// controller's.
    [[nodiscard]] Result<Secret> transform(std::string_view nqn) const;

    [[nodiscard]] KeyTransform transform_hash() const { return transform_; }
    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_.view(); }
    [[nodiscard]] DhchapKey clone() const { return {transform_, bytes_.clone()}; }

  private:
    DhchapKey(KeyTransform transform, Secret bytes) : transform_(transform), bytes_(std::move(bytes)) {}

    KeyTransform transform_;
    Secret bytes_;
};

}  // namespace gnstor::nvmf::auth
