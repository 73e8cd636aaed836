// dhchap_key_test.cpp: keys in text form are those of nvme-cli, and nothing malformed passes for one.
//
// The texts were made by nvme-cli 2.3 (`nvme gen-dhchap-key -m M -l LENGTH -s SECRET -n NQN`), which prints
// the transformed key where M is a hash.
#include "nvmf/auth/dhchap_key.hpp"

#include "support/count.hpp"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <vector>

namespace gnstor::nvmf::auth::dhchap_key_test {
namespace {

constexpr const char* kNqn = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";

struct Vector {
    unsigned hash;
    std::size_t bytes;
    std::string text;
};
const std::vector<Vector>& plain_vectors() {
    static const std::vector<Vector> vectors = {
        {0, 32, "DHHC-1:00:ICcuNTxDSlFYX2ZtdHuCiZCXnqWss7rByM/W3eTr8vmMpzdS:"},
        {0, 48, "DHHC-1:00:MDc+RUxTWmFob3Z9hIuSmaCnrrW8w8rR2N/m7fT7AgkQFx4lLDM6QUhPVl1ka3J51wkKvA==:"},
        {0, 64,
         "DHHC-1:00:QEdOVVxjanF4f4aNlJuiqbC3vsXM09rh6O/"
         "2/QQLEhkgJy41PENKUVhfZm10e4KJkJeepayzusHIz9bd5Ovy+eQYloY=:"}};
    return vectors;
}
const std::vector<Vector>& transformed_vectors() {
    static const std::vector<Vector> vectors = {
        {1, 32, "DHHC-1:01:ET8QM9GQnQ5Gnu9Iuw8zjGCKzLdQcSZqtPEmR8HB7txbITm7:"},
        {2, 48, "DHHC-1:02:g8LLYku7vhh/depyEMWZS86Zq3OPNFOYKFJxUfNuNoPFVOBV/GFZ2BuyFkonZM2YTs0jQg==:"},
        {3, 64,
         "DHHC-1:03:9xP3ScnEOmE3snsdpNtOjRXPze6tvDOuaKTplc6TBXhP+"
         "61261trHMi7GaIl3V59oJ2i4OYQgFi7gefRlPOY5lz9YGo="
         ":"}};
    return vectors;
}
/// The secret that was given to nvme-cli for the vector.
std::vector<std::byte> secret_of(const Vector& v) {
    std::vector<std::byte> bytes(v.bytes);
    for (std::size_t i = 0; i < v.bytes; ++i) bytes[i] = std::byte((i * 7 + v.hash * 31 + v.bytes) & 0xFF);
    return bytes;
}
std::string_view chars(const Secret& secret) {
    return {reinterpret_cast<const char*>(secret.view().data()), secret.size()};
}
std::string refusal(std::string_view text) {
    const auto key = DhchapKey::parse(text);
    if (key.ok()) return "";
    EXPECT_EQ(key.error().code, Errc::kInvalidArgument);
    return key.error().message;
}

static_assert(!std::is_copy_constructible_v<Secret> && !std::is_copy_assignable_v<Secret>);
static_assert(!std::is_copy_constructible_v<DhchapKey>, "keys are copied by clone() alone");

TEST(DhchapKey, TextsOfNvmeCliAreParsedAndWrittenAgain) {
    for (const Vector& v : plain_vectors()) {
        const auto key = DhchapKey::parse(v.text);
        ASSERT_TRUE(key.ok()) << key.error().message;
        EXPECT_EQ(key->transform_hash(), KeyTransform::kNone);
        EXPECT_TRUE(Secret(std::span<const std::byte>(secret_of(v))).equals(key->bytes()));
        EXPECT_EQ(chars(key->text()), v.text);
    }
    for (const Vector& v : transformed_vectors()) {
        const auto key = DhchapKey::parse(v.text);
        ASSERT_TRUE(key.ok()) << key.error().message;
        EXPECT_EQ(static_cast<unsigned>(key->transform_hash()), v.hash);
        EXPECT_EQ(key->bytes().size(), v.bytes);
        EXPECT_EQ(chars(key->text()), v.text);
    }
}

TEST(DhchapKey, TheTransformIsThatOfNvmeCli) {
    for (const Vector& v : transformed_vectors()) {
        const auto key = DhchapKey::from_bytes(static_cast<KeyTransform>(v.hash), secret_of(v));
        ASSERT_TRUE(key.ok());
        EXPECT_TRUE(key->transform(kNqn)->equals(DhchapKey::parse(v.text)->bytes()));
        EXPECT_FALSE(key->transform("nqn.2014-08.org.nvmexpress:uuid:other")
                         ->equals(DhchapKey::parse(v.text)->bytes()));
    }
    const auto plain = DhchapKey::parse(plain_vectors()[0].text);
    EXPECT_TRUE(plain->transform(kNqn)->equals(plain->bytes()));
}

TEST(DhchapKey, EachKindOfMalformedTextHasItsOwnError) {
    const std::string good = plain_vectors()[0].text;
    const std::string body = good.substr(10, good.size() - 11);
    const auto has = [](const std::string& message, const char* words) {
        return message.find(words) != std::string::npos;
    };
    EXPECT_TRUE(has(refusal(""), "does not begin with DHHC-1:"));
    EXPECT_TRUE(has(refusal("DHHC-2:00:" + body + ":"), "does not begin with DHHC-1:"));
    for (const char* hash : {"", "0:", "04:", "0a:", "1:", "000:", "00", "-1:", "10:"})
        EXPECT_TRUE(has(refusal(std::string("DHHC-1:") + hash + body + ":"), "not followed by the hash"))
            << hash;
    EXPECT_TRUE(has(refusal("DHHC-1:00:" + body), "does not end with a colon"));
    EXPECT_TRUE(has(refusal("DHHC-1:00:"), "does not end with a colon"));
    EXPECT_TRUE(has(refusal("DHHC-1:00::"), "is not Base64"));
    EXPECT_TRUE(has(refusal("DHHC-1:00:" + body.substr(1) + ":"), "is not Base64"));
    EXPECT_TRUE(has(refusal("DHHC-1:00:*" + body.substr(1) + ":"), "is not Base64"));
    EXPECT_TRUE(has(refusal("DHHC-1:00:" + body + "\n:"), "is not Base64"));
    EXPECT_TRUE(has(refusal("DHHC-1:00:====:"), "is not Base64"));
    EXPECT_TRUE(has(refusal("DHHC-1:00:AA=A:"), "is not Base64"));
    EXPECT_TRUE(has(refusal("DHHC-1:00:AAAA:"), "neither 32, 48 nor 64"));
    EXPECT_TRUE(has(refusal("DHHC-1:00:" + body.substr(4) + ":"), "neither 32, 48 nor 64"));
    EXPECT_TRUE(has(refusal("DHHC-1:00:B" + body.substr(1) + ":"), "checksum"));
    EXPECT_TRUE(has(refusal("DHHC-1:02:" + body + ":"), "does not go with hash 02"));
    EXPECT_TRUE(has(refusal(good + std::string(200, ':')), "longer than any key"));
    // The unused bits of the last character: 0 in the one text of a key.
    std::string loose = plain_vectors()[1].text;
    loose[loose.size() - 4] = 'B';
    EXPECT_TRUE(has(refusal(loose), "is not Base64"));
}

TEST(DhchapKey, EveryChangedCharacterIsNoticedAndNoErrorHoldsAPartOfTheKey) {
    std::uint64_t changed = 0;
    for (const Vector& v : plain_vectors()) {
        for (std::size_t i = 0; i < v.text.size(); ++i) {
            for (const char c : {'A', 'z', '0', '/', '=', ':', ' ', '\0', '\xFF'}) {
                if (v.text[i] == c) continue;
                std::string text = v.text;
                text[i] = c;
                const std::string message = refusal(text);
                ASSERT_FALSE(message.empty()) << "character " << i;
                for (std::size_t at = 10; at + 6 < text.size(); ++at)
                    ASSERT_EQ(message.find(text.substr(at, 6)), std::string::npos);
                ++changed;
            }
        }
        for (std::size_t n = 0; n < v.text.size(); ++n) EXPECT_NE(refusal(v.text.substr(0, n)), "");
    }
    test::count("nvmf_auth_keys_changed", changed);
}

TEST(DhchapKey, LengthsAreThoseOfTheHash) {
    for (std::size_t n = 0; n < 100; ++n) {
        const std::vector<std::byte> bytes(n, std::byte{7});
        for (unsigned hash = 0; hash <= 3; ++hash) {
            const bool good = hash == 0 ? n == 32 || n == 48 || n == 64 : n == 16 * (hash + 1);
            const auto key = DhchapKey::from_bytes(static_cast<KeyTransform>(hash), bytes);
            EXPECT_EQ(key.ok(), good) << n << " " << hash;
            if (!key.ok()) continue;
            EXPECT_EQ(chars(DhchapKey::parse(chars(key->text()))->text()), chars(key->text()));
        }
    }
}

TEST(DhchapKey, ASecretIsEmptyAfterItWasMovedOrWiped) {
    Secret a(std::span<const std::byte>(secret_of(plain_vectors()[0])));
    Secret b(std::move(a));
    EXPECT_TRUE(a.empty());  // NOLINT: what a move leaves is the matter of this test
    Secret c(std::size_t{5});
    c = std::move(b);
    EXPECT_EQ(c.size(), 32u);
    EXPECT_TRUE(c.clone().equals(c.view()));
    c.wipe();
    EXPECT_TRUE(c.empty());
    EXPECT_FALSE(c.equals(std::vector<std::byte>(32)));
}

}  // namespace
}  // namespace gnstor::nvmf::auth::dhchap_key_test
