// cpu_meter_test.cpp: the initiator's CPU time is what the process took between two moments less what its
// hardware took between the same two.
#include "bench/cpu_meter.hpp"

#include <gtest/gtest.h>

#include <ctime>

namespace gnstor::bench {
namespace {

constexpr double kWork = 0.02;  ///< seconds of this thread's CPU time

void use_the_cpu(double seconds) {
    const auto now = [] {
        timespec t{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
    };
    for (const double end = now() + seconds; now() < end;) {
    }
}

class Meter : public testing::Test {
  protected:
    std::vector<EngineThread> threads_{{"gn-nic-0", 7'000'000'000, 0}, {"gn-ssd-1", 3'000'000'000, 0}};
    int readings_ = 0;
    CpuMeter meter_{[this] {
        ++readings_;
        return threads_;
    }};
};

TEST_F(Meter, CpuTimeOutsideTheMeasuredPeriodIsNotCounted) {
    use_the_cpu(kWork);
    threads_[0].cpu_time_ns += 5'000'000'000;
    meter_.begin();
    use_the_cpu(kWork);
    meter_.end();
    threads_[1].cpu_time_ns += 5'000'000'000;
    use_the_cpu(kWork);
    EXPECT_EQ(readings_, 2);
    EXPECT_GE(meter_.initiator_seconds(), kWork);
    EXPECT_LT(meter_.initiator_seconds(), 2 * kWork) << "of this process, which has one thread";
    ASSERT_EQ(meter_.hardware_before().size(), 2u);
    EXPECT_EQ(meter_.hardware_before()[0].cpu_time_ns, 12'000'000'000u);
    EXPECT_EQ(meter_.hardware_after()[1].cpu_time_ns, 3'000'000'000u);
}

TEST_F(Meter, HardwareThreadsAreSubtractedAndANegativeDifferenceIsKept) {
    meter_.begin();
    threads_[0].cpu_time_ns += 1'000'000'000;
    threads_[1].cpu_time_ns += 2'000'000'000;
    meter_.end();
    EXPECT_NEAR(meter_.initiator_seconds(), -3, 0.5);
}

TEST_F(Meter, AHardwareThreadStartedDuringTheMeasurementIsSubtractedToo) {
    meter_.begin();
    threads_.push_back({"gn-pages", 2'000'000'000, 0});
    meter_.end();
    EXPECT_NEAR(meter_.initiator_seconds(), -2, 0.5);
}

}  // namespace
}  // namespace gnstor::bench
