#include <gnstor/base/log.hpp>

#include <gtest/gtest.h>

namespace gnstor {
namespace {

class Log : public testing::Test {
  protected:
    void SetUp() override { before_ = log_level(); }
    void TearDown() override { set_log_level(before_); }
    LogLevel before_ = LogLevel::kWarn;
};

TEST_F(Log, OnlyLinesOfTheLevelAndAboveAreWritten) {
    set_log_level(LogLevel::kWarn);
    testing::internal::CaptureStderr();
    log_debug("not {}", "this");
    log_info("nor {}", 1);
    log_warn("but {} and {:#x}", "this", 255);
    log_error("{}", "that");
    const std::string out = testing::internal::GetCapturedStderr();
    EXPECT_EQ(out.find("not this"), std::string::npos);
    EXPECT_EQ(out.find("nor 1"), std::string::npos);
    EXPECT_NE(out.find("but this and 0xff"), std::string::npos);
    EXPECT_NE(out.find("that"), std::string::npos);
}

TEST_F(Log, TextFromOutsideIsNeverTakenForAFormat) {
    set_log_level(LogLevel::kInfo);
    testing::internal::CaptureStderr();
    log_line(LogLevel::kInfo, "braces {} {0} %s stay");
    log_info("{}", "{}{}{}");
    const std::string out = testing::internal::GetCapturedStderr();
    EXPECT_NE(out.find("braces {} {0} %s stay"), std::string::npos);
    EXPECT_NE(out.find("{}{}{}"), std::string::npos);
}

TEST_F(Log, OffIsSilent) {
    set_log_level(LogLevel::kOff);
    testing::internal::CaptureStderr();
    log_error("nothing");
    log_line(LogLevel::kOff, "nothing");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(Log, LevelsHaveNames) {
    EXPECT_EQ(log_level_from("debug"), LogLevel::kDebug);
    EXPECT_EQ(log_level_from("warning"), LogLevel::kWarn);
    EXPECT_EQ(log_level_from("loud"), std::nullopt);
}

}  // namespace
}  // namespace gnstor
