// mutants_test.cpp: the simulated network must notice each planted fault (rdma/roce/mutation.hpp).
#include "network_sim.hpp"
#include "rdma/roce/mutation.hpp"

#include <gtest/gtest.h>

#include <cstdio>

using namespace gnstor::rdma::roce;

namespace {

constexpr int kMutations = 5;

class RoceMutant : public ::testing::TestWithParam<int> {
  protected:
    void TearDown() override { planted_mutation = Mutation::kNone; }
};

TEST_P(RoceMutant, IsFoundByTheSimulatedNetwork) {
    planted_mutation = static_cast<Mutation>(GetParam());
    constexpr std::uint64_t kRuns = 200;
    std::uint64_t found = 0;
    for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
        const sim::Report report = sim::run(seed);
        if (report.violation.empty()) continue;
        if (found++ == 0)
            std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), report.violation.c_str());
    }
    std::printf("GN_COUNT roce_mutant_%d_found=%llu\n", GetParam(), static_cast<unsigned long long>(found));
    EXPECT_GT(found, 0u) << "the planted fault " << GetParam() << " was not detected in " << kRuns << " runs";
}
INSTANTIATE_TEST_SUITE_P(Each, RoceMutant, ::testing::Range(1, kMutations + 1));

/// Else a fault might be found that these sources have anyway.
TEST(RoceUnmutated, WithoutAPlantedFaultNoViolationIsFound) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) EXPECT_EQ(sim::run(seed).violation, "") << seed;
}

}  // namespace
