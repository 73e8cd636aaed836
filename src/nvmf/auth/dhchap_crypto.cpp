#include "nvmf/auth/dhchap_crypto.hpp"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <array>
#include <memory>

namespace gnstor::nvmf::auth {

namespace {

struct FreeMac {
    void operator()(EVP_MAC* mac) const { EVP_MAC_free(mac); }
    void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
};

const EVP_MD* hash_method(HashId id) {
    switch (id) {
        case HashId::kSha256:
            return EVP_sha256();
        case HashId::kSha384:
            return EVP_sha384();
        case HashId::kSha512:
            return EVP_sha512();
    }
    return nullptr;
}

const unsigned char* raw(std::span<const std::byte> bytes) {
    return reinterpret_cast<const unsigned char*>(bytes.data());
}

/// What both responses have in common: the order of the names and the word before them differ.
Result<Secret> response(const ResponseInput& in, std::string_view role, std::string_view first,
                        std::string_view second) {
    const std::array<std::byte, 7> numbers{
        std::byte(in.sequence & 0xFF),         std::byte((in.sequence >> 8) & 0xFF),
        std::byte((in.sequence >> 16) & 0xFF), std::byte((in.sequence >> 24) & 0xFF),
        std::byte(in.transaction & 0xFF),      std::byte((in.transaction >> 8) & 0xFF),
        std::byte(in.concatenation),
    };
    const std::byte zero{0};
    return hmac(
        in.hash, in.key,
        {in.challenge, numbers, bytes_of(role), bytes_of(first), std::span(&zero, 1), bytes_of(second)});
}

}  // namespace

Error crypto_error(const char* tried) {
    ERR_clear_error();
    return error(Errc::kInternal, "libcrypto could not {}: see whether its default provider is configured",
                 tried);
}

Result<Secret> hash(HashId id, std::span<const std::byte> data) {
    Secret digest(hash_bytes(id));
    unsigned int length = 0;
    auto* out = reinterpret_cast<unsigned char*>(digest.writable().data());
    if (EVP_Digest(data.data(), data.size(), out, &length, hash_method(id), nullptr) != 1 ||
        length != digest.size())
        return crypto_error("compute a hash");
    return digest;
}

Result<Secret> hmac(HashId id, std::span<const std::byte> key,
                    std::initializer_list<std::span<const std::byte>> parts) {
    const std::unique_ptr<EVP_MAC, FreeMac> method(EVP_MAC_fetch(nullptr, OSSL_MAC_NAME_HMAC, nullptr));
    if (!method) return crypto_error("find HMAC");
    const std::unique_ptr<EVP_MAC_CTX, FreeMac> context(EVP_MAC_CTX_new(method.get()));
    // OpenSSL takes the name without const and does not write to it.
    const OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST,
                                         const_cast<char*>(EVP_MD_get0_name(hash_method(id))), 0),
        OSSL_PARAM_construct_end()};
    if (!context || EVP_MAC_init(context.get(), raw(key), key.size(), parameters) != 1)
        return crypto_error("begin an HMAC");
    for (const auto part : parts)
        if (EVP_MAC_update(context.get(), raw(part), part.size()) != 1)
            return crypto_error("continue an HMAC");
    Secret code(hash_bytes(id));
    std::size_t length = 0;
    auto* out = reinterpret_cast<unsigned char*>(code.writable().data());
    if (EVP_MAC_final(context.get(), out, &length, code.size()) != 1 || length != code.size())
        return crypto_error("finish an HMAC");
    return code;
}

Result<Secret> augmented_challenge(HashId id, std::span<const std::byte> session_key,
                                   std::span<const std::byte> challenge) {
    if (session_key.empty()) return Secret(challenge);
    GN_ASSIGN(const Secret key, hash(id, session_key));
    return hmac(id, key.view(), {challenge});
}

Result<Secret> host_response(const ResponseInput& input) {
    return response(input, "HostHost", input.host_nqn, input.subsystem_nqn);
}

Result<Secret> controller_response(const ResponseInput& input) {
    return response(input, "Controller", input.subsystem_nqn, input.host_nqn);
}

}  // namespace gnstor::nvmf::auth
