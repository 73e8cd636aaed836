// long_test.cpp: millions of operations, every cut of thousands of short histories, every history of a few
// commands, and every mutation: about a minute.
#include "deengine/sim/test_run.hpp"

namespace gnstor::deengine::sim {
namespace {

TEST(SimulationLong, ShortHistoriesSurviveACutAtEveryFlashOperation) {
    SimCounters sum;
    run_seeds("short", 100'000, scaled(1500), Mutation::kNone, sum);
    print_counts("sim_long", sum);
}

TEST(SimulationLong, LongHistoriesSurviveCutsAndContinue) {
    SimCounters sum;
    run_seeds("long", 100'000, scaled(350), Mutation::kNone, sum);
    print_counts("sim_long", sum);
}

TEST(SimulationLong, EveryHistoryOfAFewCommandsSurvivesEveryCut) {
    enumerate_all(4, "sim_long");
}

}  // namespace
}  // namespace gnstor::deengine::sim
