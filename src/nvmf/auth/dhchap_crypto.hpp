// dhchap_crypto.hpp: hash, HMAC and the values of DH-HMAC-CHAP that are made of them.
//
// NVMe Base 2.0, 8.13.5.4 (response of the host) and 8.13.5.5 (response of the controller). OpenSSL does the
// mathematics; its types appear in no header. Pure: no state, no randomness; any thread. An Error means that
// libcrypto refused to work (no memory, a provider without the hash), never that a value is wrong.
#pragma once

#include "nvmf/auth/dhchap_ids.hpp"
#include "nvmf/auth/secret.hpp"

#include <gnstor/base/result.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

namespace gnstor::nvmf::auth {

Result<Secret> hash(HashId id, std::span<const std::byte> data);
/// HMAC (RFC 2104) of the parts one after the other.
Result<Secret> hmac(HashId id, std::span<const std::byte> key,
                    std::initializer_list<std::span<const std::byte>> parts);

/// The augmented challenge: HMAC(H(session key), challenge), or the challenge itself with the NULL group,
/// whose session key is empty.
Result<Secret> augmented_challenge(HashId id, std::span<const std::byte> session_key,
                                   std::span<const std::byte> challenge);

/// What a response depends on, besides who gives it.
struct ResponseInput {
    HashId hash;
    std::span<const std::byte> key;        ///< transformed: DhchapKey::transform()
    std::span<const std::byte> challenge;  ///< augmented
    std::uint32_t sequence;                ///< S1 for the host, S2 for the controller
    std::uint16_t transaction;             ///< T_ID
    std::uint8_t concatenation;            ///< SC_C
    std::string_view host_nqn;
    std::string_view subsystem_nqn;
};
Result<Secret> host_response(const ResponseInput& input);
Result<Secret> controller_response(const ResponseInput& input);

/// The Error of a call to libcrypto that failed; `tried`: what it was to do. Empties this thread's queue of
/// OpenSSL errors, so that later calls do not report this one.
Error crypto_error(const char* tried);

inline std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace gnstor::nvmf::auth
