#include "nvmf/auth/secret.hpp"

#include <openssl/crypto.h>

namespace gnstor::nvmf::auth {

Secret& Secret::operator=(Secret&& other) noexcept {
    if (this != &other) {
        wipe();
        bytes_ = std::move(other.bytes_);
    }
    return *this;
}

bool Secret::equals(std::span<const std::byte> other) const {
    if (other.size() != bytes_.size()) return false;
    return bytes_.empty() || CRYPTO_memcmp(bytes_.data(), other.data(), bytes_.size()) == 0;
}

void Secret::wipe() noexcept {
    if (!bytes_.empty()) OPENSSL_cleanse(bytes_.data(), bytes_.size());
    bytes_.clear();
}

}  // namespace gnstor::nvmf::auth
