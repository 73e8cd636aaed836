#include "nvmf/auth/random.hpp"

#include "base/random.hpp"
#include "nvmf/auth/dhchap_ids.hpp"

namespace gnstor::nvmf::auth {

FillRandom system_random() {
    return [](std::span<std::byte> out) {
        fill_random(out);
        return true;
    };
}

Result<DhchapKey> make_key(KeyTransform transform) {
    Secret bytes(hash_bytes(static_cast<HashId>(transform)));
    fill_random(bytes.writable());
    return DhchapKey::from_bytes(transform, bytes.view());
}

}  // namespace gnstor::nvmf::auth
