// recorder_test.cpp: what a lane notes: quotas, failures, and a fair sample of latencies.
#include "bench/recorder.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace gnstor::bench {
namespace {

class RecorderTest : public testing::Test {
  protected:
    Plan plan(std::uint32_t samples, std::uint64_t quota) {
        samples_.assign(samples, 0);
        Plan p{};
        p.bytes = 4096;
        p.units = 1000;
        p.order_seed = 5;
        p.duration_ns = 3'600'000'000'000;
        p.quota = quota;
        p.samples_a_lane = samples;
        p.results = &result_;
        p.samples = samples_.data();
        return p;
    }
    LaneResult result_{};
    std::vector<std::uint32_t> samples_;
};

TEST_F(RecorderTest, IssuesNoMoreThanItsQuota) {
    const Plan p = plan(8, 3);
    Recorder recorder(p, 0);
    recorder.begin();
    int issued = 0;
    for (; recorder.wants_more(simt::now_ns()); ++issued) recorder.issued();
    recorder.end();
    EXPECT_EQ(issued, 3);
    EXPECT_EQ(result_.quota_used, 1u);
    EXPECT_GE(result_.end_ns, result_.begin_ns);
}

TEST_F(RecorderTest, InAnOpenLoopIntendedTimesAreOneIntervalApartEvenIfTheLaneIsLate) {
    Plan p = plan(8, 100);
    p.interval_ps = 1'500'500;  // 1500.5 ns
    Recorder recorder(p, 0);
    recorder.begin();
    const std::uint64_t begin = simt::now_ns();
    const std::uint64_t first = recorder.take_intended(0);
    EXPECT_LE(first, begin + 1501);
    for (std::uint64_t i = 1; i < 1000; ++i) {
        const std::uint64_t next = first + i * 1'500'500 / 1000;
        EXPECT_FALSE(recorder.due(next - 2));
        EXPECT_TRUE(recorder.due(next + 2));
        EXPECT_NEAR(static_cast<double>(recorder.take_intended(0) - first), static_cast<double>(next - first),
                    1.0);
    }
}

TEST_F(RecorderTest, InAClosedLoopEveryOperationIsDueAtOnce) {
    const Plan p = plan(8, 100);
    Recorder recorder(p, 0);
    recorder.begin();
    EXPECT_TRUE(recorder.due(0));
    EXPECT_EQ(recorder.take_intended(77), 77u);
}

TEST_F(RecorderTest, EndsWithItsTimeAndAfterAFailure) {
    Plan p = plan(8, 100);
    p.duration_ns = 1000;
    Recorder late(p, 0);
    late.begin();
    late.issued();
    EXPECT_FALSE(late.wants_more(simt::now_ns() + 1'000'000'000));
    const Plan q = plan(8, 100);
    Recorder failed(q, 0);
    failed.begin();
    failed.failure(nvme::Status::kAccessDenied, 4096);
    failed.failure(nvme::Status::kTimedOut, 8192);
    EXPECT_FALSE(failed.wants_more(simt::now_ns()));
    failed.end();
    EXPECT_EQ(result_.failures, 2u);
    EXPECT_EQ(static_cast<nvme::Status>(result_.first_status), nvme::Status::kAccessDenied);
    EXPECT_EQ(result_.first_offset, 4096u);
}

TEST_F(RecorderTest, IssuesItsFirstOperationEvenIfItsTimeIsOver) {
    Plan p = plan(8, 100);
    p.duration_ns = 1000;
    for (const std::uint64_t interval_ps : {std::uint64_t{0}, std::uint64_t{900'000}}) {
        p.interval_ps = interval_ps;
        Recorder recorder(p, 0);
        recorder.begin();
        const std::uint64_t late = simt::now_ns() + 1'000'000'000;
        EXPECT_TRUE(recorder.wants_more(late));
        EXPECT_TRUE(recorder.due(late));
        recorder.take_intended(late);
        recorder.issued();
        EXPECT_FALSE(recorder.wants_more(late));
    }
    const Plan q = plan(8, 0);
    Recorder without_quota(q, 0);
    without_quota.begin();
    EXPECT_FALSE(without_quota.wants_more(simt::now_ns() + 2 * q.duration_ns));
}

TEST_F(RecorderTest, IssuesNoOperationIntendedForATimeAfterTheEnd) {
    Plan p = plan(8, 100);
    p.duration_ns = 1;
    p.interval_ps = 3'600'000'000'000'000;  // an hour: where in it the lane begins is drawn, and after 1 ns
    Recorder recorder(p, 0);
    recorder.begin();
    EXPECT_FALSE(recorder.wants_more(simt::now_ns() + 1));
}

TEST_F(RecorderTest, KeepsAllLatenciesThatFitAndAUniformSampleOfMore) {
    constexpr std::uint32_t kKept = 1000, kMany = 100'000;
    const Plan p = plan(kKept, kMany);
    Recorder recorder(p, 0);
    recorder.begin();
    for (std::uint32_t i = 0; i < kKept; ++i) recorder.success(i);
    for (std::uint32_t i = 0; i < kKept; ++i) ASSERT_EQ(samples_[i], i);
    for (std::uint32_t i = kKept; i < kMany; ++i) recorder.success(i);
    recorder.end();
    EXPECT_EQ(result_.operations, kMany);
    EXPECT_EQ(result_.samples, kKept);
    // Each tenth of the operations is one tenth of the sample, within six standard deviations.
    std::vector<int> tenths(10);
    for (const std::uint32_t s : samples_) ++tenths[s / (kMany / 10)];
    EXPECT_GT(*std::min_element(tenths.begin(), tenths.end()), 100 - 57);
    EXPECT_LT(*std::max_element(tenths.begin(), tenths.end()), 100 + 57);
    std::printf("GN_COUNT bench_recorded=%u\n", kMany);
}

TEST_F(RecorderTest, DrawsEveryUnitOfTheWorkingSetAndNothingElse) {
    const Plan p = plan(8, 1);
    Recorder recorder(p, 0);
    std::vector<int> drawn(p.units);
    for (int i = 0; i < 20'000; ++i) {
        const std::uint64_t offset = recorder.draw_offset();
        ASSERT_EQ(offset % p.bytes, 0u);
        ASSERT_LT(offset / p.bytes, p.units);
        ++drawn[offset / p.bytes];
    }
    EXPECT_GT(*std::min_element(drawn.begin(), drawn.end()), 0);
}

}  // namespace
}  // namespace gnstor::bench
