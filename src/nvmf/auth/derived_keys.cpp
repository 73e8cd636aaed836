#include "nvmf/auth/derived_keys.hpp"

#include "nvmf/auth/dhchap_crypto.hpp"

#include <array>
#include <utility>

namespace gnstor::nvmf::auth {

namespace {

Result<DhchapKey> derive(const DhchapKey& node_key, std::string_view purpose, std::string_view host_nqn,
                         std::uint32_t generation) {
    const std::array<std::byte, 4> number{std::byte(generation & 0xFF), std::byte((generation >> 8) & 0xFF),
                                          std::byte((generation >> 16) & 0xFF),
                                          std::byte((generation >> 24) & 0xFF)};
    const std::byte zero{0};
    GN_ASSIGN(const Secret bytes, hmac(HashId::kSha512, node_key.bytes(),
                                       {bytes_of(purpose), std::span(&zero, 1), bytes_of(host_nqn),
                                        std::span(&zero, 1), number}));
    return DhchapKey::from_bytes(KeyTransform::kSha512, bytes.view());
}

}  // namespace

Result<DhchapKeys> derive_keys(const DhchapKey& node_key, std::string_view host_nqn,
                               std::uint32_t generation) {
    GN_ASSIGN(DhchapKey host, derive(node_key, "gnstor host key 1", host_nqn, generation));
    GN_ASSIGN(DhchapKey controller, derive(node_key, "gnstor controller key 1", host_nqn, generation));
    return DhchapKeys{std::move(host), std::move(controller)};
}

}  // namespace gnstor::nvmf::auth
