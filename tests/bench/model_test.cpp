// What `bench model` expects of a profile, and says of what came: arithmetic that a person can follow.
#include "bench/model_figures.hpp"
#include "bench/model_verdict.hpp"

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

TEST(ModelFigures, LatencyIsThatOfTheDrivePlusBothDirectionsOfTheLink) {
    const auto paper = embedded::load_profile("gnstor-paper").value();
    const double byte_ns = 1e9 / (21.6 * 1024 * kMb);
    EXPECT_NEAR(figures_of(paper, false, 4096, 1, 1).latency_ns,
                40'000 + 276 + 2'000 + (64 + 16 + 4096) * byte_ns, 1);
    // Payload above 4 KiB is fetched: both ways once more.
    EXPECT_NEAR(figures_of(paper, true, 65536, 1, 1).latency_ns,
                20'000 + 276 + 4'000 + (64 + 16 + 65536) * byte_ns, 1);
}

TEST(ModelFigures, ProfileNoneHasNoLimit) {
    const ModelFigures none = figures_of(embedded::load_profile("none").value(), false, 4096, 4, 2);
    EXPECT_EQ(none.limit(), 0);
    EXPECT_EQ(none.latency_ns, 0);
}

/// A drive of 100,000 operations a second and 40 us, on a host that adds 2 us to an operation alone.
Expectation idle_drive() {
    return {{23'800, 25'000}, {40'000, 42'000}, true, 1'000'000, 2'000};
}

TEST(ModelVerdict, ThreePercentOutsideTheBandIsAcceptedAndFourIsNot) {
    for (const double rate : {23'800 * 0.971, 24'000.0, 25'000 * 1.029})
        EXPECT_EQ(verdict_of(idle_drive(), rate, 41'000), Verdict::kWithin) << rate;
    for (const double rate : {23'800 * 0.96, 25'000 * 1.04})
        EXPECT_EQ(verdict_of(idle_drive(), rate, 41'000), Verdict::kRateOutside) << rate;
    for (const double latency : {40'000 * 0.971, 42'000 * 1.029})
        EXPECT_EQ(verdict_of(idle_drive(), 24'000, latency), Verdict::kWithin) << latency;
    for (const double latency : {40'000 * 0.96, 42'000 * 1.04})
        EXPECT_EQ(verdict_of(idle_drive(), 24'000, latency), Verdict::kLatencyOutside) << latency;
}

TEST(ModelVerdict, LatencyHasNoValueWhereOperationsQueue) {
    Expectation queues = idle_drive();
    queues.idle = false;
    EXPECT_EQ(verdict_of(queues, 24'000, 900'000), Verdict::kWithin);
    EXPECT_EQ(verdict_of(queues, 20'000, 41'000), Verdict::kRateOutside);
}

TEST(ModelVerdict, ACaseThatNeedsNearlyAllOfTheHostIsAttributedToTheHost) {
    Expectation wants = idle_drive();
    wants.host_per_second = 25'000 / 0.86;
    EXPECT_EQ(verdict_of(wants, 5, 5), Verdict::kRateOfTheHost);
    wants.host_per_second = 25'000 / 0.84;
    EXPECT_EQ(verdict_of(wants, 5, 5), Verdict::kRateOutside);
}

TEST(ModelVerdict, ABusyHostExplainsOnlyItsOwnDelayAndNeverALowRate) {
    Expectation crowded = idle_drive();
    crowded.host_crowded_ns = 100'000;
    EXPECT_EQ(verdict_of(crowded, 24'000, 41'000), Verdict::kWithin);
    EXPECT_EQ(verdict_of(crowded, 24'000, 120'000), Verdict::kLatencyOfTheHost);
    EXPECT_EQ(verdict_of(crowded, 24'000, 140'000 * 1.04), Verdict::kLatencyOutside);
    EXPECT_EQ(verdict_of(crowded, 24'000, 38'000), Verdict::kLatencyOutside)
        << "a latency below that of the drive is outside";
    EXPECT_EQ(verdict_of(crowded, 20'000, 41'000), Verdict::kRateOutside);
    crowded.host_crowded_ns = 0;
    EXPECT_EQ(verdict_of(crowded, 24'000, 120'000), Verdict::kLatencyOutside);
}

TEST(ModelVerdict, OnlyDeviationsNotCausedByTheHostAreOutside) {
    for (const Verdict outside : {Verdict::kRateOutside, Verdict::kLatencyOutside})
        EXPECT_TRUE(is_outside(outside)) << words_of(outside);
    for (const Verdict other : {Verdict::kWithin, Verdict::kRateOfTheHost, Verdict::kLatencyOfTheHost})
        EXPECT_FALSE(is_outside(other)) << words_of(other);
}

}  // namespace
}  // namespace gnstor::bench
