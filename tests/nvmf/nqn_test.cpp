// nqn_test.cpp: which names are well formed, and whom a host NQN binds.
#include "nvmf/protocol/nqn.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

namespace gnstor::nvmf {
namespace {

TEST(Nqn, EveryClientIdRoundTripsThroughItsHostName) {
    for (std::uint32_t id = 1; id <= 0xFFFF; ++id) {
        const auto name = client_host_nqn(static_cast<nvme::ClientId>(id));
        ASSERT_TRUE(is_valid_nqn(name)) << name;
        ASSERT_EQ(client_of_host_nqn(name), static_cast<nvme::ClientId>(id)) << name;
    }
}

TEST(Nqn, OnlyTheCanonicalNameBindsAClient) {
    const std::string prefix{kClientHostNqnPrefix};
    for (const char* tail :
         {"", "0", "00", "07", "+7", "-7", " 7", "7 ", "7a", "65536", "99999", "100000", "4294967297", "0x7"})
        EXPECT_FALSE(client_of_host_nqn(prefix + tail)) << tail;
    EXPECT_FALSE(client_of_host_nqn("nqn.2026-11.io.gnstor:clienT:7"));
    EXPECT_FALSE(client_of_host_nqn(std::string{"x"} + prefix + "7"));
    EXPECT_FALSE(client_of_host_nqn(kAdminHostNqn));
}

TEST(Nqn, MalformedNamesAreRefused) {
    EXPECT_TRUE(is_valid_nqn("nqn.2014-08.org.nvmexpress:uuid:12345678-1234-1234-1234-123456789abc"));
    EXPECT_TRUE(is_valid_nqn(kAdminHostNqn));
    for (const char* bad : {"", "nqn", "nqn.", "nqn.2014-08", "nqn.2014-08.", "nqn.201a-08.org",
                            "nqn.2014/08.org", "NQN.2014-08.org", "nqn.2014-08.o\nrg"})
        EXPECT_FALSE(is_valid_nqn(bad)) << bad;
    EXPECT_TRUE(is_valid_nqn("nqn.2014-08." + std::string(kNqnBytesMax - 12, 'a')));
    EXPECT_FALSE(is_valid_nqn("nqn.2014-08." + std::string(kNqnBytesMax - 11, 'a')));
}

TEST(Nqn, ANameFieldWithoutATerminatingZeroIsRefused) {
    std::array<char, kNqnFieldBytes> field;
    ASSERT_TRUE(put_nqn(field, kAdminHostNqn));
    EXPECT_EQ(nqn_in_field(field), kAdminHostNqn);
    std::fill(field.begin() + 20, field.end(), 'a');
    EXPECT_FALSE(nqn_in_field(field));
    EXPECT_FALSE(put_nqn(field, std::string(kNqnBytesMax + 1, 'a')));
}

TEST(Nqn, ADriveIsNamedAfterItsUuid) {
    std::array<std::uint8_t, 16> uuid{};
    uuid[0] = 0xAB;
    uuid[15] = 0x01;
    EXPECT_EQ(ssd_subsystem_nqn(uuid), "nqn.2026-11.io.gnstor:ssd:ab000000-0000-0000-0000-000000000001");
    EXPECT_TRUE(is_valid_nqn(ssd_subsystem_nqn(uuid)));
}

}  // namespace
}  // namespace gnstor::nvmf
