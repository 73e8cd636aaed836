// derived_keys.hpp: the keys of a host at a node, which follow from one secret, the node key.
//
// HMAC-SHA-512(node key, purpose || 0 || host NQN || 0 || generation). gnstord knows the node key too, and
// hands a client its own keys; a client learns nothing about the keys of others. Pure.
#pragma once

#include "nvmf/auth/dhchap_controller.hpp"
#include "nvmf/auth/dhchap_key.hpp"

#include <gnstor/base/result.hpp>

#include <cstdint>
#include <string_view>

namespace gnstor::nvmf::auth {

/// The generation of the admin host's keys (gnstord's): fixed, as only a new node key replaces them.
inline constexpr std::uint32_t kAdminGeneration = 0;

/// Both keys of a host at the node with this key. The errors are libcrypto's.
Result<DhchapKeys> derive_keys(const DhchapKey& node_key, std::string_view host_nqn,
                               std::uint32_t generation);

}  // namespace gnstor::nvmf::auth
