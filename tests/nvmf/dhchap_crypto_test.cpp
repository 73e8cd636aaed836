// dhchap_crypto_test.cpp: hashes, responses and Diffie-Hellman give what others compute.
//
// Expected values come from Python's hashlib, hmac and integers; the primes of RFC 7919 from their formula
// there (2^b - 2^(b-64) + (floor(2^(b-130) e) + X) 2^64 - 1).
#include "nvmf/auth/dhchap_crypto.hpp"
#include "nvmf/auth/ffdhe.hpp"

#include <gtest/gtest.h>

#include <openssl/core_names.h>
#include <openssl/evp.h>

#include <string>
#include <vector>

namespace gnstor::nvmf::auth::dhchap_crypto_test {
namespace {

using Bytes = std::vector<std::byte>;

Bytes stepped(std::size_t count, unsigned step, unsigned first) {
    Bytes bytes(count);
    for (std::size_t i = 0; i < count; ++i) bytes[i] = std::byte((first + i * step) & 0xFF);
    return bytes;
}
std::string hex(std::span<const std::byte> bytes) {
    std::string text;
    for (const std::byte b : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
    return text;
}
std::string digest(std::span<const std::byte> bytes) {
    return hex(hash(HashId::kSha256, bytes)->view());
}

TEST(DhchapCrypto, HashAndHmacHaveTheValuesOfTheirStandards) {
    // FIPS 180-4 examples, "abc"; RFC 4231, test case 2.
    EXPECT_EQ(hex(hash(HashId::kSha256, bytes_of("abc"))->view()),
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(
        hex(hash(HashId::kSha384, bytes_of("abc"))->view()),
        "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7");
    EXPECT_EQ(hex(hash(HashId::kSha512, bytes_of("abc"))->view()).substr(0, 64),
              "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a");
    EXPECT_EQ(
        hex(hmac(HashId::kSha256, bytes_of("Jefe"), {bytes_of("what do ya want "), bytes_of("for nothing?")})
                ->view()),
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

struct ResponseVector {
    HashId hash;
    const char* augmented;
    const char* host;
    const char* controller;
};
const ResponseVector kResponses[] = {
    {HashId::kSha256, "5a5880cb28247f55eaab0bd3a1dbeff84c8395bf1f32e0aec56c1b7a62fad415",
     "be04ee725dc89655fd69361574b6a6ac6b3a2832e1e3fa17a8f9851f5c09740b",
     "3fdbcbfe48f4b0622110752a70e886b6db97eedd228f5aadf7aea803e2fd07f8"},
    {HashId::kSha384,
     "1ad7824f3b4ed9c270d9b7fcfa317d2a2b09d5e94eb622cfa07f40904af6afcb189518b36e096ac3eb7a9c07d0fe8cf1",
     "1bc76290f9b9ed2dc7024ed202ca0d264e1cf9bf3f1888f042ee50bf925ee60a7a1400231b2cd74d20de668ba3b3ddb1",
     "d27f8ff301bd87b5b3c7caa3c3eb0b5545c5dd27f72b6bfe671fafaa4d3fd2558fee630cb8bdde115297a58e5cdd655d"},
    {HashId::kSha512,
     "724b401d7ee6ea54b51970284edb5eafc990a447bdd7a4f938071b32694a071e0d8ab48f59867a68f63e1cdf3898225b"
     "2a452d13bc4d6f50c7caa2b45215db65",
     "6b65efaf74d102479d5b6bdea5a5c590072781d131a5913cc60f8c6f38b0a5c8a8c66d2759f9d8828aacee00d0b43ddf"
     "daa4aef6508b382a84da8f31b1e7fc24",
     "ea1ef49e242784d7bc804645139e070f0ab200631535f6009c649453f6c9172d3db511302f7ffb27b274a7a89a6f03f9"
     "fd58dc3cf3842a32ac426b17eff46a35"},
};

TEST(DhchapCrypto, ResponsesAreThoseOfTheSpecification) {
    for (const ResponseVector& v : kResponses) {
        const std::size_t n = hash_bytes(v.hash);
        const Bytes challenge = stepped(n, 5, 1);
        const Bytes key = stepped(n, 1, 1);
        const auto augmented = augmented_challenge(v.hash, stepped(256, 7, 3), challenge);
        ASSERT_TRUE(augmented.ok());
        EXPECT_EQ(hex(augmented->view()), v.augmented);
        const ResponseInput input{
            .hash = v.hash,
            .key = key,
            .challenge = augmented->view(),
            .sequence = 0x01020304,
            .transaction = 0xABCD,
            .concatenation = 0,
            .host_nqn = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555",
            .subsystem_nqn = "nqn.2026-11.io.gnstor:ssd:x"};
        EXPECT_EQ(hex(host_response(input)->view()), v.host);
        EXPECT_EQ(hex(controller_response(input)->view()), v.controller);
        // Without Diffie-Hellman the challenge is used as it is.
        EXPECT_TRUE(augmented_challenge(v.hash, {}, challenge)->equals(challenge));
    }
}

struct GroupVector {
    GroupId group;
    const char* public_a;  ///< SHA-256 of each value
    const char* public_b;
    const char* shared;
};
const GroupVector kGroups[] = {
    {GroupId::kFfdhe2048, "2b722a46e8105b9639e5722ed97fd466aadc46cdfab907c6aeca4c0d1eed94b2",
     "56077adec1f66f140fb0eaead08aad934d31594165fb1f470d969a6889b82c97",
     "24cd3666d210996611ce8202e5224490ea76d3e9242acb9fcadb477792589349"},
    {GroupId::kFfdhe3072, "6bf22d8a1bdf8c2d69632c9d9d814d357f5d13367dfbd3739eae8d664894d890",
     "8a03612c2d5da2cc97dcf00a23bd19188d8c1a7ae58240e5c35fdd172638297b",
     "3dce3b17500143a9762c040fe9c461e4a68cf1a790ff6672fca494d59daa53fd"},
    {GroupId::kFfdhe4096, "8464aad4b0b0e864300edefee311d7405577eefbdd09488257ccfdcc8906618d",
     "91ca310923aec97f42778d74fde9a89276d258947e76b6aff34a834ab6c8dc2b",
     "0e6cdbd3d4edfea439dbb0e96933bb0582df856c8d8f96fb1fc323bf4204aff2"},
    {GroupId::kFfdhe6144, "1ef9a398d24a0764a49f2449ccad63650b5fd289ae1cf7fc9511b0583c08e0e9",
     "d1f64d41418fb0ac81e776bf05ef00200d233463f7447d27259dd01363be2d2b",
     "35a1de047b4be9bd6cdffdcc71f6d099c5288c0010fd7894d82b1a9da9638025"},
    {GroupId::kFfdhe8192, "0e499d2b4e3564cc8860d86aed7df53d6e7f70078e9808a5f89bda7f3400c45f",
     "49a7d167bb9a2c929e9b63f1fce4efbfb0414ed0d1073934cda6118bb97c511c",
     "1261cb3a762f2ea6d94b7d1e2862b4704d6620c83063575f82cc4980e2b24f74"},
};

TEST(Ffdhe, PublicValuesAndSharedSecretsAreThoseOfPlainArithmetic) {
    for (const GroupVector& v : kGroups) {
        const auto a =
            FfdheKeyPair::from_private(v.group, Secret(std::span<const std::byte>(stepped(64, 11, 5))));
        const auto b =
            FfdheKeyPair::from_private(v.group, Secret(std::span<const std::byte>(stepped(64, 13, 9))));
        ASSERT_TRUE(a.ok() && b.ok());
        EXPECT_EQ(a->public_value().size(), group_bytes(v.group));
        EXPECT_EQ(digest(a->public_value()), v.public_a);
        EXPECT_EQ(digest(b->public_value()), v.public_b);
        EXPECT_EQ(digest(a->shared_secret(b->public_value())->view()), v.shared);
        EXPECT_EQ(digest(b->shared_secret(a->public_value())->view()), v.shared);
    }
}

TEST(Ffdhe, ASharedSecretKeepsItsLeadingZeros) {
    const auto a = FfdheKeyPair::from_private(GroupId::kFfdhe2048,
                                              Secret(std::span<const std::byte>(stepped(64, 11, 5))));
    const Bytes small{std::byte{1}, std::byte{230}};
    const auto b = FfdheKeyPair::from_private(GroupId::kFfdhe2048, Secret(std::span<const std::byte>(small)));
    const auto shared = a->shared_secret(b->public_value());
    ASSERT_TRUE(shared.ok());
    ASSERT_EQ(shared->size(), 256u);
    EXPECT_EQ(shared->view()[0], std::byte{0});
    EXPECT_EQ(digest(shared->view()), "6fb583f593c02d82b93da82dde410a085b992961b085ddcc2deb45a19459ad77");
    EXPECT_TRUE(b->shared_secret(a->public_value())->equals(shared->view()));
}

/// The prime of ffdhe2048, big endian.
Bytes prime_2048() {
    EVP_PKEY_CTX* context = EVP_PKEY_CTX_new_from_name(nullptr, "DH", nullptr);
    char name[] = "ffdhe2048";
    OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_PKEY_PARAM_GROUP_NAME, name, 0),
                               OSSL_PARAM_construct_end()};
    EVP_PKEY* key = nullptr;
    BIGNUM* prime = nullptr;
    Bytes bytes(256);
    EXPECT_EQ(EVP_PKEY_fromdata_init(context), 1);
    EXPECT_EQ(EVP_PKEY_fromdata(context, &key, EVP_PKEY_KEY_PARAMETERS, parameters), 1);
    EXPECT_EQ(EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_FFC_P, &prime), 1);
    EXPECT_EQ(BN_bn2binpad(prime, reinterpret_cast<unsigned char*>(bytes.data()), 256), 256);
    BN_free(prime);
    EVP_PKEY_free(key);
    EVP_PKEY_CTX_free(context);
    return bytes;
}

TEST(Ffdhe, PublicValuesThatGiveTheSecretAwayAreRefused) {
    const Bytes prime = prime_2048();
    EXPECT_EQ(digest(prime), "9cd3b7f336872f46c09428d1bbc19877a4d440512cda8d1c1cf0cd6e33698966");
    const auto pair = FfdheKeyPair::from_private(GroupId::kFfdhe2048,
                                                 Secret(std::span<const std::byte>(stepped(64, 3, 1))));
    const auto refused = [&](const Bytes& value) {
        const auto shared = pair->shared_secret(value);
        return !shared.ok() && shared.error().code == Errc::kInvalidArgument;
    };
    Bytes value(256);
    EXPECT_TRUE(refused(value));  // 0
    value[255] = std::byte{1};
    EXPECT_TRUE(refused(value));
    value[255] = std::byte{2};
    EXPECT_FALSE(refused(value));
    value = prime;
    EXPECT_TRUE(refused(value));
    value[255] = std::byte{0xFE};  // p ends in FFh
    EXPECT_TRUE(refused(value));
    value[255] = std::byte{0xFD};  // p-2
    EXPECT_FALSE(refused(value));
    EXPECT_TRUE(refused(Bytes(256, std::byte{0xFF})));
    for (const std::size_t wrong : {0u, 1u, 255u, 257u, 384u})
        EXPECT_TRUE(refused(Bytes(wrong, std::byte{2})));
}

TEST(Ffdhe, ThereIsNoPairWithoutRandomnessOrWithoutAGroup) {
    EXPECT_FALSE(
        FfdheKeyPair::generate(GroupId::kFfdhe2048, [](std::span<std::byte>) { return false; }).ok());
    EXPECT_FALSE(FfdheKeyPair::generate(GroupId::kNull, [](std::span<std::byte>) { return true; }).ok());
    EXPECT_FALSE(
        FfdheKeyPair::from_private(GroupId::kFfdhe2048, Secret(std::size_t{64})).ok());  // x = 0: value 1
}

}  // namespace
}  // namespace gnstor::nvmf::auth::dhchap_crypto_test
