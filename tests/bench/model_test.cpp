// What `bench model` expects of a profile: arithmetic that a person can follow.
#include "bench/model_figures.hpp"

#include <gtest/gtest.h>

namespace gnstor::bench {
namespace {

constexpr double kMb = 1024.0 * 1024.0;

TEST(ModelFigures, ThePapersFourDrivesAreLimitedByDrivesAt4KiBAndByTheNetworkAt64KiB) {
    const auto paper = embedded::load_profile("gnstor-paper").value();
    const ModelFigures small = figures_of(paper, false, 4096, 4, 2);
    EXPECT_NEAR(small.limit(), 4 * 3250 * kMb / 4096, 1);
    const ModelFigures large = figures_of(paper, false, 65536, 4, 2);
    EXPECT_NEAR(large.limit(), 21.6 * 1024 * kMb / (65536 + 16), 1);
    EXPECT_LT(large.limit(), large.drives_per_second);
}

TEST(ModelFigures, AWriteCostsEveryReplicaItsShare) {
    const auto paper = embedded::load_profile("gnstor-paper").value();
    EXPECT_NEAR(figures_of(paper, true, 4096, 4, 2).drives_per_second, 4 * 2980 * kMb / 4096 / 2, 1);
    EXPECT_NEAR(figures_of(paper, true, 65536, 4, 2).network_per_second,
                21.6 * 1024 * kMb / (2 * (64 + 65536)), 1);
}

TEST(ModelFigures, LatencyIsThatOfTheDriveAndBothWays) {
    const auto paper = embedded::load_profile("gnstor-paper").value();
    const double byte_ns = 1e9 / (21.6 * 1024 * kMb);
    EXPECT_NEAR(figures_of(paper, false, 4096, 1, 1).latency_ns,
                40'000 + 276 + 2'000 + (64 + 16 + 4096) * byte_ns, 1);
    // Payload above 4 KiB is fetched: both ways once more.
    EXPECT_NEAR(figures_of(paper, true, 65536, 1, 1).latency_ns,
                20'000 + 276 + 4'000 + (64 + 16 + 65536) * byte_ns, 1);
}

TEST(ModelFigures, NoneHasNoLimit) {
    const ModelFigures none = figures_of(embedded::load_profile("none").value(), false, 4096, 4, 2);
    EXPECT_EQ(none.limit(), 0);
    EXPECT_EQ(none.latency_ns, 0);
}

}  // namespace
}  // namespace gnstor::bench
