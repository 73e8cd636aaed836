// histories.hpp: for each promise of the simulation the histories that try to break it, in two parts. The
// label `fast` has some seeds of each profile (short_test.cpp), `long` the others (seeds_test.cpp): together
// they run every seed from 1 to `all`, and none twice.
#pragma once

#include "deengine/sim/test_run.hpp"

#include <algorithm>

namespace gnstor::deengine::sim {

enum class Part { kFast, kOthers };

/// Consecutive seeds, so chosen that every kind of fault of the profile occurs (floors.json, `fast`).
struct Seeds {
    std::uint64_t first;
    std::uint64_t count;
};

/// A sanitizer has time for a part of `fast`, and none for the others (UNSANITIZED).
inline void run_part(Part part, const char* profile, Seeds fast, std::uint64_t all, SimCounters& sum) {
    if (part == Part::kFast) {
        run_seeds(profile, fast.first, std::min(fast.count, scaled(all)), Mutation::kNone, sum);
        return;
    }
    const std::uint64_t behind = fast.first + fast.count;
    run_seeds(profile, 1, fast.first - 1, Mutation::kNone, sum);
    run_seeds(profile, behind, all + 1 - behind, Mutation::kNone, sum);
}

inline void cut_short_histories_everywhere(Part part) {
    SimCounters sum;
    run_part(part, "short", {1, 40}, 300, sum);
    print_counts("sim", sum);
}

inline void cut_long_histories(Part part) {
    SimCounters sum;
    run_part(part, "long", {12, 6}, 30, sum);
    print_counts("sim", sum);
}

inline void rot(Part part) {
    SimCounters sum;
    run_part(part, "rot", {12, 5}, 20, sum);
    gnstor::test::count("sim_rotten", sum.rotten);
    print_counts("sim", sum);
}

inline void fill_the_map(Part part) {
    SimCounters sum;
    run_part(part, "tight", {3, 2}, 4, sum);
    gnstor::test::count("sim_displaced", sum.displaced);
    gnstor::test::count("sim_displaced_in_slices", sum.displaced_in_slices);
    gnstor::test::count("sim_tombstones_full", sum.tombstones_full);
    gnstor::test::count("sim_groups_aged", sum.groups_aged);
    print_counts("sim", sum);
}

inline void send_invalid_commands(Part part) {
    SimCounters sum;
    run_part(part, "clients", {1, 4}, 8, sum);
    gnstor::test::count("sim_strangers", sum.strangers);
    gnstor::test::count("sim_grants_ended", sum.grants_ended);
    gnstor::test::count("sim_suspensions", sum.suspensions);
    gnstor::test::count("sim_states_rotten", sum.states_rotten);
    print_counts("sim", sum);
}

inline void kill_and_cut_the_recovery(Part part) {
    SimCounters sum;
    run_part(part, "kills", {1, 2}, 4, sum);
    run_part(part, "spare", {1, 2}, 4, sum);
    gnstor::test::count("sim_kills_first", sum.kills_first);
    print_counts("sim", sum);
}

inline void fill_the_disk_below(Part part) {
    SimCounters sum;
    run_part(part, "sparse", {1, 6}, 20, sum);
    gnstor::test::count("sim_disks_full", sum.disks_full);
    gnstor::test::count("sim_mounts_waiting", sum.mounts_waiting);
    gnstor::test::count("sim_settled", sum.settled);
    print_counts("sim", sum);
}

inline void cut_full_drives(Part part) {
    SimCounters sum;
    run_part(part, "full", {1, 5}, 20, sum);
    print_counts("sim", sum);
}

inline void lose_blocks(Part part) {
    SimCounters sum;
    run_part(part, "loss", {42, 15}, 60, sum);
    gnstor::test::count("sim_losses_accepted", sum.losses_accepted);
    gnstor::test::count("sim_reads_of_lost_blocks", sum.blocks_lost);
    print_counts("sim", sum);
}

inline void poll_rarely(Part part) {
    SimCounters sum;
    for (const char* profile : {"lazy", "idle", "wide"}) run_part(part, profile, {1, 3}, 20, sum);
    print_counts("sim", sum);
}

inline void lose_records(Part part) {
    SimCounters sum;
    run_part(part, "records", {1, 10}, 40, sum);
    gnstor::test::count("sim_records_lost", sum.records_lost);
    print_counts("sim", sum);
}

}  // namespace gnstor::deengine::sim
