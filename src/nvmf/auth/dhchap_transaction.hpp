// dhchap_transaction.hpp: what both ends of a DH-HMAC-CHAP transaction have in common: policy, outcome,
// checks.
//
// NVMe Base 2.0, 8.13.5. Invariant: an outcome never turns from failed into anything else. Pure.
#pragma once

#include "nvmf/auth/dhchap_ids.hpp"
#include "nvmf/auth/ffdhe.hpp"
#include "nvmf/auth/secret.hpp"

#include <gnstor/base/result.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace gnstor::nvmf::auth {

/// What an end accepts, most preferred first: the controller takes the first that the host offers as well.
/// No key protects the negotiation: an attacker on the path can make the ends use another entry of this list,
/// but none outside it.
struct DhchapPolicy {
    std::vector<HashId> hashes{HashId::kSha512, HashId::kSha384, HashId::kSha256};
    /// 3072 bits come first: the smallest group with the strength of AES-128. The two largest are not offered
    /// by default: a stranger could make this end compute tens of milliseconds for each attempt.
    std::vector<GroupId> groups{GroupId::kFfdhe3072, GroupId::kFfdhe4096, GroupId::kFfdhe2048};
    /// Adds the NULL group as the last one. Without Diffie-Hellman, who records an exchange can try keys on
    /// it.
    bool allow_null_group = false;
    /// The controller must prove its key, too.
    bool require_bidirectional = false;

    /// Errors: a list is empty or repeats an entry, or `groups` names the NULL group.
    [[nodiscard]] Result<void> check() const;
    [[nodiscard]] std::vector<GroupId> all_groups() const;
    [[nodiscard]] bool allows(HashId hash) const;
    [[nodiscard]] bool allows(GroupId group) const;
};

enum class AuthState : std::uint8_t { kRunning, kAuthenticated, kFailed };

struct AuthOutcome {
    AuthState state = AuthState::kRunning;
    AuthFailure failure{};  ///< kFailed: the explanation that was sent or received
    bool failed_by_peer = false;
    const char* why = "";  ///< kFailed: for the log; a text of ours, so it holds neither keys nor names
};

/// A sequence number S1 or S2: random, never 0. nullopt: the kernel gave no random bytes.
std::optional<std::uint32_t> draw_sequence(const FillRandom& random);

}  // namespace gnstor::nvmf::auth
