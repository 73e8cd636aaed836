#include <gnstor/base/uuid.hpp>

#include <gtest/gtest.h>

#include <cctype>
#include <set>

namespace gnstor {
namespace {

TEST(Uuid, RandomOnesAreVersion4AndDiffer) {
    std::set<Uuid> seen;
    for (int i = 0; i < 2000; ++i) {
        const Uuid uuid = Uuid::random();
        EXPECT_EQ(uuid.bytes[6] >> 4, 4);
        EXPECT_EQ(uuid.bytes[8] >> 6, 2);
        EXPECT_FALSE(uuid.is_nil());
        EXPECT_TRUE(seen.insert(uuid).second);
    }
}

TEST(Uuid, PrintsAsItReads) {
    const std::string text = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
    const auto uuid = Uuid::parse("F81D4FAE-7dec-11d0-A765-00a0c91e6bf6");
    ASSERT_TRUE(uuid.ok());
    EXPECT_EQ(uuid->to_string(), text);
    EXPECT_EQ(uuid->bytes[0], 0xF8);
    EXPECT_EQ(uuid->bytes[15], 0xF6);
    EXPECT_EQ(*Uuid::parse(uuid->to_string()), *uuid);
}

TEST(Uuid, EveryBrokenCharacterIsRefused) {
    const std::string text = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
    for (std::size_t i = 0; i < text.size(); ++i) {
        std::string broken = text;
        broken[i] = 'g';
        EXPECT_FALSE(Uuid::parse(broken).ok()) << broken;
        broken[i] = text[i] == '-' ? '0' : '-';
        EXPECT_FALSE(Uuid::parse(broken).ok()) << broken;
    }
    EXPECT_FALSE(Uuid::parse("").ok());
    EXPECT_FALSE(Uuid::parse(text + "0").ok());
    EXPECT_FALSE(Uuid::parse("{" + text + "}").ok());
}

}  // namespace
}  // namespace gnstor
