// output_test.cpp: what the gnstor command shows of a long copy.
#include "cli/output.hpp"

#include <gtest/gtest.h>

namespace gnstor::cli {
namespace {

TEST(Progress, ShowsABarAndTheRemainingTimeIfTheTotalIsKnown) {
    EXPECT_EQ(progress_text("put a", 0, 8u << 20, 0),
              "put a: [........................] 0 %, 0 B of 8 MiB, 0 B/s");
    const std::string half = progress_text("put a", 4u << 20, 8u << 20, 2);
    EXPECT_TRUE(half.starts_with("put a: [############............] 50 %, 4 MiB of 8 MiB, ")) << half;
    EXPECT_TRUE(half.ends_with(", 2 s left")) << half;
    const std::string all = progress_text("put a", 8u << 20, 8u << 20, 4);
    EXPECT_TRUE(all.starts_with("put a: [########################] 100 %, 8 MiB of 8 MiB, ")) << all;
    EXPECT_EQ(all.find("left"), std::string::npos) << all;
}

TEST(Progress, ShowsTheBytesMovedIfTheTotalIsUnknown) {
    const std::string text = progress_text("get a", 4u << 20, ~0ull, 2);
    EXPECT_TRUE(text.starts_with("get a: 4 MiB, ")) << text;
    EXPECT_EQ(text.find('['), std::string::npos) << text;
}

TEST(Progress, NeverExceedsItsTotal) {
    // A file that grows while it is read.
    const std::string text = progress_text("put a", 9u << 20, 8u << 20, 1);
    EXPECT_TRUE(text.starts_with("put a: [########################] 100 %")) << text;
}

}  // namespace
}  // namespace gnstor::cli
