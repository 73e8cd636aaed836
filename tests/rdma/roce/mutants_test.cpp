// mutants_test.cpp: the simulated network must notice a planted fault. Built once for each of mutation.hpp.
#include "network_sim.hpp"
#include "rdma/roce/mutation.hpp"

#include <gtest/gtest.h>

#include <cstdio>

using namespace gnstor::rdma::roce;

namespace {

TEST(RoceMutant, IsFoundByTheSimulatedNetwork) {
    static_assert(GN_ROCE_MUTATION >= 1 && GN_ROCE_MUTATION <= 5, "a fault of mutation.hpp");
    constexpr std::uint64_t kRuns = 200;
    std::uint64_t found = 0;
    std::string what;
    for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
        const sim::Report report = sim::run(seed);
        if (report.violation.empty()) continue;
        if (found++ == 0) {
            what = report.violation;
            std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), what.c_str());
        }
    }
    std::printf("GN_COUNT roce_mutant_%d_found=%llu\n", GN_ROCE_MUTATION,
                static_cast<unsigned long long>(found));
    EXPECT_GT(found, 0u) << "the planted fault " << GN_ROCE_MUTATION << " went unnoticed in " << kRuns
                         << " runs";
}

}  // namespace
