// dhchap_ids.hpp: the identifiers of DH-HMAC-CHAP: hash functions, Diffie-Hellman groups, reasons of failure.
//
// NVMe Base 2.0, 8.13.5.2 (hash functions and groups) and 8.13.4 (AUTH_Failure1 and AUTH_Failure2). The
// values are those on the wire. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gnstor::nvmf::auth {

/// Hash function of responses and challenges; 0 is reserved.
enum class HashId : std::uint8_t { kSha256 = 1, kSha384 = 2, kSha512 = 3 };

/// Diffie-Hellman group: the finite-field groups of RFC 7919, or none at all.
enum class GroupId : std::uint8_t {
    kNull = 0,
    kFfdhe2048 = 1,
    kFfdhe3072 = 2,
    kFfdhe4096 = 3,
    kFfdhe6144 = 4,
    kFfdhe8192 = 5,
};

/// Reason code explanation of AUTH_Failure1 and AUTH_Failure2; their reason code is always 01h.
enum class AuthFailure : std::uint8_t {
    kAuthenticationFailed = 1,
    kProtocolNotUsable = 2,
    kConcatenationMismatch = 3,  ///< of a secure channel (SC_C)
    kHashNotUsable = 4,
    kGroupNotUsable = 5,
    kIncorrectPayload = 6,
    kIncorrectMessage = 7,  ///< a message that was not expected
};

inline constexpr std::size_t kHashBytesMax = 64;

constexpr bool is_hash(std::uint8_t id) {
    return id >= 1 && id <= 3;
}
constexpr bool is_group(std::uint8_t id) {
    return id <= 5;
}
/// Length of a hash, and of a challenge and a response that use it.
constexpr std::size_t hash_bytes(HashId id) {
    switch (id) {
        case HashId::kSha256:
            return 32;
        case HashId::kSha384:
            return 48;
        case HashId::kSha512:
            return 64;
    }
    return 0;
}
/// Length of the prime of a group, and of a public value and a shared secret; 0 for the NULL group.
constexpr std::size_t group_bytes(GroupId id) {
    switch (id) {
        case GroupId::kNull:
            return 0;
        case GroupId::kFfdhe2048:
            return 256;
        case GroupId::kFfdhe3072:
            return 384;
        case GroupId::kFfdhe4096:
            return 512;
        case GroupId::kFfdhe6144:
            return 768;
        case GroupId::kFfdhe8192:
            return 1024;
    }
    return 0;
}

}  // namespace gnstor::nvmf::auth
