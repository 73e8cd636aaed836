// rebuild_seeds.hpp: histories of the rebuild's simulator, one a seed, and what they did. GN_SEED=<n> replays one history
// instead, GN_SIM_FIRST and GN_SIM_SEEDS choose others, with other options if GN_TRIMS, GN_TOMBSTONES, GN_WRITERS give them; GN_TRACE=1 prints what happens in it.
#pragma once

#include "array/rebuild_sim.hpp"
#include "support/count.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace gnstor::test {

/// `outs_of_hundred`: events that take a drive out or back.
inline void run_rebuild_seeds(std::uint64_t first, std::uint64_t seeds, std::uint32_t outs_of_hundred = 0) {
    if (const char* one = std::getenv("GN_SEED"); one != nullptr) {
        first = std::strtoull(one, nullptr, 10);
        seeds = 1;
    }
    if (const char* begin = std::getenv("GN_SIM_FIRST"); begin != nullptr)
        first = std::strtoull(begin, nullptr, 10);
    if (const char* number = std::getenv("GN_SIM_SEEDS"); number != nullptr)
        seeds = std::strtoull(number, nullptr, 10);
    RebuildSimCounts c;
    for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
        RebuildSimOptions options;
        options.seed = seed;
        options.outs_of_hundred = outs_of_hundred;
        options.trace = std::getenv("GN_TRACE") != nullptr;
        const auto from_environment = [](const char* name, std::uint32_t& value) {
            if (const char* given = std::getenv(name); given != nullptr)
                value = static_cast<std::uint32_t>(std::strtoul(given, nullptr, 10));
        };
        from_environment("GN_TRIMS", options.trims_of_ten);
        from_environment("GN_TOMBSTONES", options.max_tombstones);
        from_environment("GN_WRITERS", options.writers_of_hundred);
        RebuildSim sim(options);
        const std::string violation = sim.run();
        ASSERT_EQ(violation, "") << "GN_SEED=" << seed;
        c.add(sim.counts());
    }
    if (outs_of_hundred != 0) {
        count("array_out_outs", c.outs);
        count("array_out_in_rebuild", c.outs_in_rebuild);
        count("array_out_rebuilds", c.rebuilds);
        count("array_out_lost_writers", c.lost_writers);
        count("array_out_reads", c.reads);
        count("array_out_compared", c.blocks_compared);
        count("array_out_reconciled", c.reconciled);
        count("array_out_reconcile_put", c.reconcile_put);
        count("array_out_in_reconcile", c.outs_in_reconcile);
        return;
    }
    count("array_rebuild_changes", c.changes);
    count("array_rebuild_reads", c.reads);
    count("array_rebuild_lost_drives", c.lost_drives);
    count("array_rebuild_lost_writers", c.lost_writers);
    count("array_rebuild_lost_in_rebuild", c.lost_in_rebuild);
    count("array_rebuild_rebuilds", c.rebuilds);
    count("array_rebuild_kills", c.kills_in_rebuild);
    count("array_rebuild_copied", c.copied);
    count("array_rebuild_late_copies", c.late_copies);
    count("array_rebuild_unreadable", c.unreadable);
    count("array_rebuild_compared", c.blocks_compared);
    count("array_reconciled", c.reconciled);
    count("array_reconciled_in_rebuild", c.reconciled_in_rebuild);
    count("array_reconcile_put", c.reconcile_put);
    count("array_reconcile_kills", c.kills_in_reconcile);
    count("array_scrub_passes", c.scrub_passes);
    count("array_scrub_compared", c.scrubbed);
    count("array_scrub_mended", c.mended);
}

}  // namespace gnstor::test
