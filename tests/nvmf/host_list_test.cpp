// host_list_test.cpp: which hosts a list lets in, and what a target is told when the list changes.
#include "nvmf/access/host_list.hpp"

#include <gtest/gtest.h>

namespace gnstor::nvmf::auth {
namespace {

constexpr char kA[] = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
constexpr char kB[] = "nqn.2026-11.com.example:b";

DhchapKey key(std::uint8_t first) {
    std::vector<std::byte> bytes(32);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(first + i);
    return DhchapKey::from_bytes(KeyTransform::kSha256, bytes).value();
}

std::vector<ListedHost> one(const std::string& nqn, std::uint8_t host,
                            std::optional<std::uint8_t> controller) {
    std::vector<ListedHost> list;
    list.push_back({nqn, {key(host), std::nullopt}});
    if (controller) list.back().keys.controller = key(*controller);
    return list;
}

std::vector<ListedHost> two(std::vector<ListedHost> first, std::vector<ListedHost> second) {
    first.push_back(std::move(second.front()));
    return first;
}

TEST(HostList, ANewListLetsNobodyIn) {
    const HostList list;
    EXPECT_EQ(list.size(), 0u);
    EXPECT_FALSE(list.find(kA));
    EXPECT_FALSE(list.find(""));
}

TEST(HostList, AListedHostIsFoundWithItsKeysAndNoOther) {
    HostList list;
    ASSERT_TRUE(list.replace(two(one(kA, 1, 2), one(kB, 3, std::nullopt))).ok());
    const auto a = list.find(kA);
    ASSERT_TRUE(a);
    EXPECT_TRUE(std::ranges::equal(a->keys.host.bytes(), key(1).bytes()));
    ASSERT_TRUE(a->keys.controller);
    EXPECT_TRUE(std::ranges::equal(a->keys.controller->bytes(), key(2).bytes()));
    const auto b = list.find(kB);
    ASSERT_TRUE(b);
    EXPECT_FALSE(b->keys.controller);
    for (const std::string& other : {std::string(kA, sizeof kA - 2), std::string(kA) + "5", std::string()})
        EXPECT_FALSE(list.find(other)) << other;
}

TEST(HostList, AStampChangesWithEitherKeyAndOnlyThen) {
    HostList list;
    const auto stamp = [&] { return list.find(kA)->stamp; };
    ASSERT_TRUE(list.replace(one(kA, 1, 2)).ok());
    const std::uint64_t first = stamp(), version = list.version();
    ASSERT_TRUE(list.replace(two(one(kB, 1, 2), one(kA, 1, 2))).ok());
    EXPECT_EQ(stamp(), first);
    EXPECT_NE(list.version(), version);
    std::vector<std::uint64_t> seen{first};
    for (auto changed : {std::pair{9, std::optional<std::uint8_t>(2)}, {9, 3}, {9, std::nullopt}, {1, 2}}) {
        ASSERT_TRUE(list.replace(one(kA, static_cast<std::uint8_t>(changed.first), changed.second)).ok());
        EXPECT_EQ(std::ranges::count(seen, stamp()), 0);
        seen.push_back(stamp());
    }
    ASSERT_TRUE(list.replace({}).ok());
    ASSERT_TRUE(list.replace(one(kA, 1, 2)).ok());
    EXPECT_EQ(std::ranges::count(seen, stamp()), 0) << "a host that was removed meanwhile is another one";
}

TEST(HostList, TheVersionStaysWhileTheListDoes) {
    HostList list;
    const std::uint64_t empty = list.version();
    ASSERT_TRUE(list.replace({}).ok());
    EXPECT_EQ(list.version(), empty);
    ASSERT_TRUE(list.replace(two(one(kA, 1, 2), one(kB, 3, 4))).ok());
    const std::uint64_t version = list.version();
    EXPECT_NE(version, empty);
    ASSERT_TRUE(list.replace(two(one(kB, 3, 4), one(kA, 1, 2))).ok());
    EXPECT_EQ(list.version(), version);
    ASSERT_TRUE(list.replace(one(kA, 1, 2)).ok());
    EXPECT_NE(list.version(), version);
}

TEST(HostList, OfABadListNothingIsTaken) {
    HostList list;
    ASSERT_TRUE(list.replace(one(kA, 1, 2)).ok());
    const std::uint64_t version = list.version();
    for (const std::string& name : {std::string(), std::string("not-an-nqn"), std::string("nqn.2026-11.x y"),
                                    std::string("nqn.2026-11.\xC3\xA4"
                                                "b"),
                                    "nqn.2026-11." + std::string(220, 'a')}) {
        const auto done = list.replace(two(one(kB, 3, 4), one(name, 5, 6)));
        ASSERT_FALSE(done.ok()) << name;
        EXPECT_EQ(done.error().code, Errc::kInvalidArgument);
        if (!name.empty()) {
            EXPECT_EQ(done.error().message.find(name), std::string::npos);
        }
    }
    EXPECT_FALSE(list.replace(two(one(kB, 3, 4), one(kB, 5, 6))).ok()) << "listed twice";
    EXPECT_EQ(list.version(), version);
    EXPECT_FALSE(list.find(kB));
    EXPECT_TRUE(list.find(kA));
}

}  // namespace
}  // namespace gnstor::nvmf::auth
