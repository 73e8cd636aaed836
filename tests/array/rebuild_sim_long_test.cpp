// rebuild_sim_long_test.cpp: more histories of the rebuild's simulator.
#include "array/rebuild_seeds.hpp"

namespace gnstor::test {
namespace {

TEST(RebuildSimulation, EveryReplicaHoldsTheLastAcknowledgedVersionInManyHistories) {
    run_rebuild_seeds(10'000, 10'000);
}

TEST(RebuildSimulation, ADriveThatWasOutIsFilledWithWhatItMissedInManyHistories) {
    run_rebuild_seeds(60'000, 2'500, 2);
}

}  // namespace
}  // namespace gnstor::test
