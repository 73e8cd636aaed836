// hang_runs.hpp: the cases of hang_cases.hpp against model drives, for CPU and GPU lanes alike: what the host
// does before, between and after the kernels.
#pragma once

#include <algorithm>
#include <cstdio>
#include <vector>

#include "gnor/bench.hpp"
#include "gnor/hang_cases.hpp"

namespace gnstor::test {

/// Resets every queue pair of every channel and connects it again.
inline void reclaim_all(Rig& rig) {
    for (std::uint32_t i = 0; i < rig.channels.size(); ++i)
        for (std::uint32_t slot = 0; slot < rig.options.ssds; ++slot) {
            rig.channels[i]->reclaim(slot).value();
            rig.connect(i, slot);
        }
}

/// Answers go missing under many lanes; afterwards the host ends what is left, and the same channels serve as
/// if nothing had been. Returns how many commands were in quarantine.
inline std::uint64_t run_without_answers(const RigOptions& options, std::uint32_t blocks,
                                         std::uint32_t threads) {
    Bench b(options, 1, 64);
    const std::uint32_t lanes = blocks * threads;
    auto memory = simt::DeviceMemory::allocate(std::size_t{lanes} * 8, options.lanes).value();
    const KeptBuffers kept{memory.lane_as<std::uint64_t>()};
    for (auto& d : b.rig.drives)
        d->set_rule([n = 0u](const nvme::Command&, const nvme::IoFields&) mutable {
            return Decision{++n % 9 == 5 ? Decision::kNever : Decision::kServe, {}, 0};
        });
    b.launch(blocks, threads, LanesWithoutAnswers{b.common, kept, 3, kShort});
    b.expect_good(std::uint64_t{lanes} * 4);
    std::uint64_t quarantined = 0;
    for (auto& c : b.rig.channels) {
        const auto counters = c->counters().value();
        quarantined += counters.quarantined;
        const auto quiet = c->quiesce(simt::Deadline::in_ns(kShort));
        EXPECT_EQ(quiet.ok(), counters.quarantined == 0);
        if (!quiet.ok()) {
            EXPECT_NE(quiet.error().message.find("without an answer"), std::string::npos);
        }
    }
    for (auto& d : b.rig.drives) d->set_rule({});
    reclaim_all(b.rig);
    b.launch(blocks, threads, GiveKeptBack{b.common, kept});
    b.rig.expect_clean();
    b.launch(blocks, threads, WarpsComeAndGo{b.common, 2});
    b.expect_good(std::uint64_t{lanes} * 4);
    b.rig.expect_clean();
    std::printf("  %llu commands in quarantine were ended by reclaim\n",
                static_cast<unsigned long long>(quarantined));
    return quarantined;
}

/// Some lanes leave their kernel with requests under way and nobody to wait for them.
inline void run_with_requests_left_behind(const RigOptions& options, std::uint32_t blocks,
                                          std::uint32_t threads) {
    constexpr std::uint32_t kLeaving = 24;
    Bench b(options, 1, 64);
    auto memory = simt::DeviceMemory::allocate(std::size_t{blocks} * threads * 8, options.lanes).value();
    auto tokens = simt::DeviceMemory::allocate(kLeaving * sizeof(Token), options.lanes).value();
    const KeptBuffers kept{memory.lane_as<std::uint64_t>()};
    LanesThatLeaveRequests kernel{b.common, kept, tokens.lane_as<Token>(), kLeaving, false};
    b.launch(blocks, threads, kernel);
    std::uint32_t left = 0, dropped = 0;
    for (auto& c : b.rig.channels) {
        c->quiesce(simt::Deadline::in_ns(kLong)).value();
        left += c->usage().value().commands_with_tokens;
        dropped += c->drop_tokens().value();
        EXPECT_EQ(c->usage().value().slots_taken, 0u);
        EXPECT_EQ(c->drop_tokens().value(), 0u);
    }
    EXPECT_EQ(left, kLeaving);
    EXPECT_EQ(dropped, kLeaving);
    kernel.later = true;
    b.launch(blocks, threads, kernel);
    b.launch(blocks, threads, GiveKeptBack{b.common, kept});
    b.expect_good(kLeaving * 3 + (std::uint64_t{blocks} * threads - kLeaving) * 3);
    b.rig.expect_clean();
}

inline void expect_fair(Bench& b, const simt::DeviceMemory& done, std::uint32_t warps, std::uint32_t share) {
    std::vector<std::uint32_t> requests(warps);
    done.download(0, requests.data(), requests.size() * 4).value();
    const auto [least, most] = std::minmax_element(requests.begin(), requests.end());
    EXPECT_GE(*least, share) << "a warp was starved, GN_SEED=" << b.common.seed;
    std::printf("  requests a warp: %u to %u, %u were its share\n", *least, *most, share);
    b.expect_good(std::uint64_t{warps} * (share + 1));
    b.rig.expect_clean();
}

}  // namespace gnstor::test
