// read_ahead_test.cpp: which buffer an announced page gets, and who loses one.
#include "ssd/flash/direct/read_ahead.hpp"

#include <gtest/gtest.h>

namespace gnstor::ssd {
namespace {

constexpr std::uint32_t kBuffers = 4;

class Ahead : public ::testing::Test {
  protected:
    /// Announced and read.
    std::uint32_t read(deengine::PageNumber page) {
        const std::uint32_t buffer = ahead.announce(page);
        if (buffer != ReadAhead::kNone) ahead.ended(buffer, true);
        return buffer;
    }
    ReadAhead ahead{kBuffers};
};

TEST_F(Ahead, ABufferedPageIsNotReadAgain) {
    EXPECT_NE(read(7), ReadAhead::kNone);
    EXPECT_EQ(ahead.announce(7), ReadAhead::kNone);
}

TEST_F(Ahead, ReleasedBuffersAreReusedBeforeUnreadPages) {
    for (deengine::PageNumber page = 0; page < kBuffers; ++page) ASSERT_NE(read(page), ReadAhead::kNone);
    ahead.release(ahead.find(2));
    EXPECT_NE(read(100), ReadAhead::kNone);
    for (const deengine::PageNumber kept : {0u, 1u, 3u, 100u})
        EXPECT_NE(ahead.find(kept), ReadAhead::kNone) << "page " << kept << " was thrown away";
}

TEST_F(Ahead, WithoutAFreeBufferTheOldestIsReused) {
    for (deengine::PageNumber page = 0; page < kBuffers; ++page) ASSERT_NE(read(page), ReadAhead::kNone);
    EXPECT_NE(read(100), ReadAhead::kNone);
    EXPECT_EQ(ahead.find(0), ReadAhead::kNone);
    EXPECT_NE(read(101), ReadAhead::kNone);
    EXPECT_EQ(ahead.find(1), ReadAhead::kNone);
    EXPECT_NE(ahead.find(2), ReadAhead::kNone);
}

TEST_F(Ahead, ABufferBeingReadIntoIsNotReused) {
    for (deengine::PageNumber page = 0; page < kBuffers; ++page)
        ASSERT_NE(ahead.announce(page), ReadAhead::kNone);
    EXPECT_EQ(ahead.announce(100), ReadAhead::kNone);
    ahead.forget(0, 1);  // the page, not the read
    EXPECT_EQ(ahead.announce(100), ReadAhead::kNone);
    ahead.ended(0, true);
    EXPECT_EQ(ahead.announce(100), 0u);
}

}  // namespace
}  // namespace gnstor::ssd
