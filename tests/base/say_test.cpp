#include <gnstor/base/say.hpp>

#include <gtest/gtest.h>

namespace gnstor {
namespace {

TEST(Say, WritesTheFormattedText) {
    testing::internal::CaptureStderr();
    say(stderr, "{} of {}\n", 1, "two");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "1 of two\n");
}

TEST(Say, AClosedStreamNeitherEndsTheProgramNorSetsItsErrorFlag) {
    std::FILE* const full = std::fopen("/dev/full", "w");
    ASSERT_NE(full, nullptr);
    say(full, "{}\n", "lost");
    EXPECT_EQ(std::ferror(full), 0);
    EXPECT_EQ(std::fflush(full), 0) << "the stream still holds unwritten text";
    std::fclose(full);
}

TEST(Say, AnErrorFlagOfEarlierWritesIsKept) {
    std::FILE* const full = std::fopen("/dev/full", "w");
    ASSERT_NE(full, nullptr);
    std::fputs("wanted", full);
    say(full, "{}\n", "lost");
    EXPECT_NE(std::ferror(full), 0);
    std::fclose(full);
}

}  // namespace
}  // namespace gnstor
