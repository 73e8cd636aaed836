// random.hpp: the random source of a process that authenticates: the kernel's (base/random.hpp). The only
// file of this room that is not pure. Any thread.
#pragma once

#include "nvmf/auth/dhchap_key.hpp"
#include "nvmf/auth/ffdhe.hpp"

#include <gnstor/base/result.hpp>

namespace gnstor::nvmf::auth {

/// The random source that the state machines of this folder take as an argument; it never fails.
FillRandom system_random();
/// A new key, as long as the hash that transforms it before use, of 64 random bytes by default.
/// kInvalidArgument: no hash.
Result<DhchapKey> make_key(KeyTransform transform = KeyTransform::kSha512);

}  // namespace gnstor::nvmf::auth
