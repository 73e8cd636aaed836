// build_name_test.cpp: what programs call themselves, and when two of them are one.
#include "daemon/http/build_name.hpp"

#include <gtest/gtest.h>

#include <regex>
#include <string>

namespace gnstor::daemon {
namespace {

TEST(BuildName, IsAVersionAndTheGitCommit) {
    EXPECT_TRUE(std::regex_match(std::string(build_name()),
                                 std::regex(R"(\d+\.\d+\.\d+(\+[0-9a-f]{12,64}(\.dirty\.[0-9a-f]{8})?)?)")))
        << build_name();
}

TEST(BuildName, DistinguishesCommitsAndAcceptsAMissingCommit) {
    EXPECT_TRUE(same_build("1.2.3+abc", "1.2.3+abc"));
    EXPECT_FALSE(same_build("1.2.3+abc", "1.2.3+abd"));
    EXPECT_FALSE(same_build("1.2.3+abc", "1.2.3+abc.dirty"));
    EXPECT_TRUE(same_build("1.2.3", "1.2.3+abc"));
    EXPECT_TRUE(same_build("1.2.3+abc", "1.2.3"));
    EXPECT_FALSE(same_build("1.2.4", "1.2.3+abc"));
    EXPECT_FALSE(same_build("1.2.3+abc", "1.2"));
    EXPECT_TRUE(same_build("", ""));
    EXPECT_FALSE(same_build("", "1.2.3"));
}

}  // namespace
}  // namespace gnstor::daemon
