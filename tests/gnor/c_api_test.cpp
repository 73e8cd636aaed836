// c_api_test.cpp: each call under its C name does what its namesake does, and returns the number of its
// status.
#include <gnstor/gnor/c_api.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "gnor/rig.hpp"

namespace gnstor::test {
namespace {

constexpr std::uint64_t kTimeoutNs = 20'000'000'000;
constexpr gnstor_lane kLane{};

void count_status(void* argument, Status status) {
    *static_cast<std::uint64_t*>(argument) += nvme::ok(status) ? 1 : 1'000'000;
}

class CApi : public ::testing::Test {
  protected:
    void SetUp() override {
        buffer = static_cast<std::byte*>(gnstor_alloc(kLane, ch, 2 * 4096));
        ASSERT_NE(buffer, nullptr);
    }
    void TearDown() override {
        EXPECT_EQ(gnstor_free(kLane, ch, buffer), 0);
        rig.expect_clean();
    }
    void fill(int byte) { std::memset(buffer, byte, 2 * 4096); }
    [[nodiscard]] bool holds(int byte) const {
        return std::all_of(buffer, buffer + 2 * 4096, [&](std::byte b) { return b == std::byte(byte); });
    }
    void poll_until(const std::uint64_t& count, std::uint64_t wanted) {
        for (const Deadline end = late(); count < wanted && !end.passed();) ch.poll(kMe);
        EXPECT_EQ(count, wanted);
    }

    Rig rig{};
    gnstor_volume v = rig.volume();
    gnstor_channel ch = rig.channel();
    std::byte* buffer = nullptr;
};

TEST_F(CApi, ReadsGiveWhatWasWrittenAndZeroesAfterATrim) {
    fill(7);
    EXPECT_EQ(gnstor_write(kLane, v, ch, 4, 2, buffer, kTimeoutNs), 0);
    std::atomic<std::uint32_t> flushes{0};
    for (auto& drive : rig.drives)
        drive->set_rule([&](const nvme::Command& command, const nvme::IoFields&) {
            if (command.opcode == static_cast<std::uint8_t>(nvme::IoOpcode::kFlush)) ++flushes;
            return Decision{};
        });
    EXPECT_EQ(gnstor_flush(kLane, v, ch, kTimeoutNs), 0);
    EXPECT_EQ(flushes, rig.drives.size());
    fill(0);
    EXPECT_EQ(gnstor_read(kLane, v, ch, 4, 2, buffer, kTimeoutNs), 0);
    EXPECT_TRUE(holds(7));
    EXPECT_EQ(gnstor_trim(kLane, v, ch, 4, 2, kTimeoutNs), 0);
    EXPECT_EQ(gnstor_read(kLane, v, ch, 4, 2, buffer, kTimeoutNs), 0);
    EXPECT_TRUE(holds(0));
}

TEST_F(CApi, StatusesAreTheNumbersOfTheNvmeStatuses) {
    EXPECT_EQ(gnstor_read(kLane, v, ch, 1u << 20, 1, buffer, kTimeoutNs),
              static_cast<int>(Status::kLbaOutOfRange));
    EXPECT_EQ(gnstor_write(kLane, v, ch, 0, 0, buffer, kTimeoutNs), static_cast<int>(Status::kBadArgument));
    EXPECT_EQ(gnstor_trim(kLane, v, ch, 0, 0, kTimeoutNs), static_cast<int>(Status::kBadArgument));
    EXPECT_EQ(gnstor_free(kLane, ch, buffer + 1), static_cast<int>(Status::kBadArgument));
    EXPECT_EQ(gnstor_status(Status::kSuccess), 0);
}

TEST_F(CApi, ACallbackRunsOnceForEachRequestAndAnIndexOutsideTheTableIsRefused) {
    std::uint64_t ended = 0;
    fill(9);
    ASSERT_EQ(gnstor_write_async(kLane, v, ch, 8, 2, buffer, count_status, &ended, kTimeoutNs), 0);
    poll_until(ended, 1);
    fill(0);
    ASSERT_EQ(gnstor_read_async(kLane, v, ch, 8, 2, buffer, count_status, &ended, kTimeoutNs), 0);
    poll_until(ended, 2);
    EXPECT_TRUE(holds(9));
    const gnstor_callback_table empty{};
    EXPECT_EQ(gnstor_read_async_by_index(kLane, v, ch, 8, 2, buffer, empty, 0, &ended, kTimeoutNs),
              static_cast<int>(Status::kBadArgument));
    EXPECT_EQ(gnstor_write_async_by_index(kLane, v, ch, 8, 2, buffer, empty, 0, &ended, kTimeoutNs),
              static_cast<int>(Status::kBadArgument));
    for (int i = 0; i < 10; ++i) ch.poll(kMe);
    EXPECT_EQ(ended, 2u);
}

TEST_F(CApi, TheStepsOfABatchSendAWriteAndThenARead) {
    gnstor_batch<32> batch;
    std::memset(static_cast<void*>(&batch), 0xFF, sizeof batch);
    gnstor_batch_init(kLane, batch);
    for (const bool is_write : {true, false}) {
        fill(is_write ? 5 : 0);
        const gnstor_request request{16, 2, buffer, 0, 0};
        ASSERT_EQ(gnstor_submit(kLane, batch, v, ch, is_write, &request), 0);
        gnstor_commit(kLane, batch, ch);
        BatchResult result{};
        for (const Deadline end = late(); !result.finished && !end.passed();) {
            (void)gnstor_poll(kLane, batch, ch);
            result = gnstor_dispatch(kLane, batch, ch);
        }
        ASSERT_TRUE(result.finished);
        EXPECT_EQ(gnstor_status(result.status), 0);
    }
    EXPECT_TRUE(holds(5));
}

}  // namespace
}  // namespace gnstor::test
