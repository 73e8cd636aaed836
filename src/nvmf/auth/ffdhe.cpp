#include "nvmf/auth/ffdhe.hpp"

#include "nvmf/auth/dhchap_crypto.hpp"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <memory>
#include <utility>

namespace gnstor::nvmf::auth {

namespace {

struct FreeNumber {
    void operator()(BIGNUM* number) const { BN_clear_free(number); }
    void operator()(BN_CTX* context) const { BN_CTX_free(context); }
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
    void operator()(EVP_PKEY_CTX* context) const { EVP_PKEY_CTX_free(context); }
};
using Number = std::unique_ptr<BIGNUM, FreeNumber>;

constexpr std::size_t kExponentBytes = 64;

const char* group_name(GroupId group) {
    switch (group) {
        case GroupId::kNull:
            return nullptr;
        case GroupId::kFfdhe2048:
            return SN_ffdhe2048;
        case GroupId::kFfdhe3072:
            return SN_ffdhe3072;
        case GroupId::kFfdhe4096:
            return SN_ffdhe4096;
        case GroupId::kFfdhe6144:
            return SN_ffdhe6144;
        case GroupId::kFfdhe8192:
            return SN_ffdhe8192;
    }
    return nullptr;
}

/// The prime, out of OpenSSL's own table. Null: libcrypto failed.
Number prime_of(GroupId group) {
    const std::unique_ptr<EVP_PKEY_CTX, FreeNumber> context(
        EVP_PKEY_CTX_new_from_name(nullptr, "DH", nullptr));
    OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, const_cast<char*>(group_name(group)), 0),
        OSSL_PARAM_construct_end()};
    EVP_PKEY* made = nullptr;
    if (!context || EVP_PKEY_fromdata_init(context.get()) != 1 ||
        EVP_PKEY_fromdata(context.get(), &made, EVP_PKEY_KEY_PARAMETERS, parameters) != 1)
        return nullptr;
    const std::unique_ptr<EVP_PKEY, FreeNumber> key(made);
    BIGNUM* prime = nullptr;
    if (EVP_PKEY_get_bn_param(key.get(), OSSL_PKEY_PARAM_FFC_P, &prime) != 1) return nullptr;
    return Number(prime);
}

Number number_of(std::span<const std::byte> bytes) {
    return Number(BN_bin2bn(reinterpret_cast<const unsigned char*>(bytes.data()),
                            static_cast<int>(bytes.size()), nullptr));
}

/// Whether 2 <= value <= p-2: neither the neutral element, nor that of order 2, nor outside of the field.
bool is_public_value(const BIGNUM& value, const BIGNUM& prime) {
    const Number last(BN_dup(&prime));
    return last && BN_sub_word(last.get(), 1) == 1 && BN_cmp(&value, BN_value_one()) > 0 &&
           BN_cmp(&value, last.get()) < 0;
}

/// base ^ exponent mod p, as long as p. The time does not depend on the exponent's bits.
Result<Secret> power(const BIGNUM& base, const Secret& exponent, const BIGNUM& prime) {
    const Number secret = number_of(exponent.view());
    const Number result(BN_new());
    const std::unique_ptr<BN_CTX, FreeNumber> context(BN_CTX_new());
    if (!secret || !result || !context) return crypto_error("allocate numbers");
    BN_set_flags(secret.get(), BN_FLG_CONSTTIME);
    if (BN_mod_exp_mont_consttime(result.get(), &base, secret.get(), &prime, context.get(), nullptr) != 1)
        return crypto_error("exponentiate");
    if (!is_public_value(*result, prime))
        return error(Errc::kInvalidArgument,
                     "Diffie-Hellman: the result of an exponentiation is 0, 1 or p-1");
    Secret bytes(static_cast<std::size_t>(BN_num_bytes(&prime)));
    auto* out = reinterpret_cast<unsigned char*>(bytes.writable().data());
    if (BN_bn2binpad(result.get(), out, static_cast<int>(bytes.size())) < 0)
        return crypto_error("write a number");
    return bytes;
}

}  // namespace

Result<FfdheKeyPair> FfdheKeyPair::generate(GroupId group, const FillRandom& random) {
    Secret exponent(kExponentBytes);
    if (!random(exponent.writable()))
        return error(Errc::kInternal, "Diffie-Hellman: no random bytes for a private exponent");
    // The highest bit is set so that every exponent has the same length, on which the time does depend.
    exponent.writable()[0] |= std::byte{0x80};
    return from_private(group, std::move(exponent));
}

Result<FfdheKeyPair> FfdheKeyPair::from_private(GroupId group, Secret exponent) {
    if (group_bytes(group) == 0)
        return error(Errc::kInvalidArgument, "Diffie-Hellman: the NULL group has no key pairs");
    FfdheKeyPair pair(group, std::move(exponent));
    const Number prime = prime_of(group);
    const Number generator(BN_new());
    if (!prime || !generator || BN_set_word(generator.get(), 2) != 1)
        return crypto_error("find an FFDHE group");
    GN_ASSIGN(const Secret value, power(*generator, pair.exponent_, *prime));
    pair.public_.assign(value.view().begin(), value.view().end());
    return pair;
}

Result<Secret> FfdheKeyPair::shared_secret(std::span<const std::byte> peer_public) const {
    if (peer_public.size() != group_bytes(group_))
        return error(Errc::kInvalidArgument,
                     "Diffie-Hellman: the peer's public value has {} bytes instead of {}", peer_public.size(),
                     group_bytes(group_));
    const Number prime = prime_of(group_);
    const Number peer = number_of(peer_public);
    if (!prime || !peer) return crypto_error("find an FFDHE group");
    if (!is_public_value(*peer, *prime))
        return error(Errc::kInvalidArgument, "Diffie-Hellman: the peer's public value is not in 2 .. p-2");
    return power(*peer, exponent_, *prime);
}

}  // namespace gnstor::nvmf::auth
