// raw_admin_test.cpp: seeded bytes as admin commands (raw_admin.hpp).
#include "raw_admin.hpp"
#include "support/count.hpp"
#include "support/seed.hpp"

#include <gnstor/base/hash.hpp>

namespace gnstor::nvmf {
namespace {

TEST(RawAdmin, ArbitraryCommandsAreAnsweredAndRevealNoDataOfOthers) {
    SplitMix64 random(test::run_seed());
    RawAdmin raw;
    std::vector<std::uint8_t> bytes(600);
    for (int round = 0; round < 500; ++round) {
        for (std::uint8_t& b : bytes) b = static_cast<std::uint8_t>(random.next());
        raw.feed(bytes);
    }
    test::count("nvmf_raw_admin_commands", raw.commands());
    test::count("nvmf_raw_admin_good", raw.good());
    test::count("nvmf_raw_admin_compared", raw.compared());
}

}  // namespace
}  // namespace gnstor::nvmf
