// test_run.hpp: what the simulation's test programs share: running seeds, printing counts for the floors.
#pragma once

#include <gtest/gtest.h>

#include "deengine/sim/campaign.hpp"
#include "deengine/sim/enumerate.hpp"
#include "support/count.hpp"
#include "support/seed.hpp"

#include <cstring>
#include <string>

namespace gnstor::deengine::sim {

/// Sanitizers take their time.
inline std::uint64_t scaled(std::uint64_t n) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return n / 30 + 1;
#else
    return n;
#endif
}

/// Histories of `seeds` seeds from `first` on (GN_SEED moves the beginning); a violation fails the test and
/// says how to replay it.
inline void run_seeds(const char* profile, std::uint64_t first, std::uint64_t seeds, Mutation mutation,
                      SimCounters& sum) {
    first += (gnstor::test::run_seed() - 1) * 1'000'000;
    for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
        const SimConfig config = make_config(profile, seed, 0, mutation);
        const RunResult r = run_history(config);
        sum.add(r.counters);
        ASSERT_EQ(r.failure, "") << config.describe() << "\nreplay: "
                                 << replay_command(profile, seed, config.operations, mutation);
    }
    gnstor::test::count("sim_seeds", seeds);
}

inline void print_counts(const std::string& prefix, const SimCounters& c) {
    const auto print = [&](const char* name, std::uint64_t n) {
        gnstor::test::count((prefix + "_" + name).c_str(), n);
    };
    print("operations", c.operations);
    print("cuts", c.cuts);
    print("recoveries", c.recoveries);
    print("cuts_in_recovery", c.cuts_in_recovery);
    print("crashes", c.crashes);
    print("torn", c.torn);
    print("programs_failed", c.programs_failed);
    print("blocks_compared", c.blocks_compared);
}

inline void enumerate_all(std::uint32_t length, const std::string& prefix) {
    SimCounters sum;
    std::uint64_t histories = 0;
    for (const Mode mode : modes()) {
        for (const bool waits : {true, false}) {
            // The modes that are nearly another's: one command less.
            const bool alike = mode == Mode::kProcessKillSync || mode == Mode::kProcessPower;
            const std::uint32_t commands = scaled(30) != 30      ? 1
                                           : alike && length > 1 ? length - 1
                                                                 : length;  // a letter less: a 13th
            const EnumerationResult r = enumerate(mode, waits, commands, Mutation::kNone);
            sum.add(r.counters);
            histories += r.histories;
            ASSERT_EQ(r.failure, "");
        }
    }
    gnstor::test::count((prefix + "_histories_enumerated").c_str(), histories);
    print_counts(prefix, sum);
}

}  // namespace gnstor::deengine::sim
