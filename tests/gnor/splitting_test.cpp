// splitting_test.cpp: properties of splitting, of runs in bitmaps, of the order of statuses, of a channel's
// layout.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdio>

#include "gnor/channel.hpp"

namespace gnstor::gnor {
namespace {

RC_GTEST_PROP(Splitting, PiecesCoverTheRangeExactlyAndCrossNoChunk, ()) {
    const auto shift = *rc::gen::inRange<std::uint32_t>(0, 9);
    const auto blocks = *rc::gen::inRange<std::uint32_t>(1, 5000);
    const auto from_end = *rc::gen::arbitrary<bool>();
    const std::uint32_t room = 0u - blocks;  // 2^32 - blocks
    const std::uint32_t block = from_end ? room : *rc::gen::inRange<std::uint32_t>(0, room);
    const std::uint32_t n = piece_count(block, blocks, shift);
    std::uint64_t at = block;
    for (std::uint32_t i = 0; i < n; ++i) {
        const Piece p = piece_at(block, blocks, shift, i);
        RC_ASSERT(p.block == at);
        RC_ASSERT(p.offset == at - block);
        RC_ASSERT(p.blocks >= 1u);
        RC_ASSERT((p.block >> shift) == ((p.block + p.blocks - 1) >> shift));
        at += p.blocks;
    }
    RC_ASSERT(at == std::uint64_t{block} + blocks);
}

RC_GTEST_PROP(Bitmap, RunsDoNotOverlapAndComeBack, ()) {
    const auto lengths =
        *rc::gen::container<std::vector<std::uint32_t>>(rc::gen::inRange<std::uint32_t>(1, 65));
    std::uint64_t words[4] = {~0ull, ~0ull, ~0ull, ~0ull};
    std::vector<bool> used(256);
    std::vector<std::pair<std::uint32_t, std::uint32_t>> runs;
    for (const auto length : lengths) {
        const std::uint32_t first = take_run(words, 4, length, length);
        if (first == kNone) {
            if (!runs.empty()) {
                RC_ASSERT(give_run(words, runs.back().first, runs.back().second));
                for (std::uint32_t i = 0; i < runs.back().second; ++i) used[runs.back().first + i] = false;
                runs.pop_back();
            }
            continue;
        }
        RC_ASSERT(first / 64 == (first + length - 1) / 64);
        for (std::uint32_t i = 0; i < length; ++i) {
            RC_ASSERT(!used[first + i]);
            used[first + i] = true;
        }
        runs.emplace_back(first, length);
    }
    for (const auto& [first, length] : runs) RC_ASSERT(give_run(words, first, length));
    RC_ASSERT(count_free(words, 4) == 256u);
}

RC_GTEST_PROP(Bitmap, RunStartsAreExactlyThoseOfAPlainSearch, (std::uint64_t free)) {
    const auto length = *rc::gen::inRange<std::uint32_t>(1, 65);
    std::uint64_t wanted = 0;
    for (std::uint32_t at = 0; at + length <= 64; ++at)
        if ((free >> at & detail::run_mask(length)) == detail::run_mask(length)) wanted |= 1ull << at;
    RC_ASSERT(detail::run_starts(free, length) == wanted);
}

TEST(StatusOrder, WorstIsATotalOrderAndTheDeadlineOutranksAll) {
    const nvme::Status all[] = {
        nvme::Status::kSuccess,        nvme::Status::kStaleMap,   nvme::Status::kNotGranted,
        nvme::Status::kAccessDenied,   nvme::Status::kStaleEpoch, nvme::Status::kQueueError,
        nvme::Status::kTimedOut,       nvme::Status::kNoBuffer,   nvme::Status::kNotSent,
        nvme::Status::kTooManyPending, nvme::Status::kBadArgument};
    for (const auto a : all)
        for (const auto b : all) {
            EXPECT_EQ(worst(a, b), worst(b, a));
            for (const auto c : all) EXPECT_EQ(worst(worst(a, b), c), worst(a, worst(b, c)));
            EXPECT_EQ(worst(a, nvme::Status::kTimedOut), nvme::Status::kTimedOut);
        }
    EXPECT_EQ(worst(nvme::Status::kStaleMap, nvme::Status::kAccessDenied), nvme::Status::kAccessDenied);
    // What says that a buffer may be in use is never hidden by what says that it is not.
    for (const auto b : all)
        if (b != nvme::Status::kTimedOut) {
            EXPECT_EQ(worst(nvme::Status::kQueueError, b), nvme::Status::kQueueError);
        }
}

TEST(ChannelMemory, FollowsTheDocumentedFormula) {
    for (std::uint32_t ssds : {1u, 2u, 4u, 12u, 64u})
        for (std::uint32_t depth : {2u, 8u, 32u, 64u}) {
            const auto l = ChannelLayout::of(depth, ssds, PoolPlan::of({}));
            // As channel.hpp states it; parts begin at multiples of 64, slots of 128, which costs less than
            // that each.
            std::size_t completions = 1;
            while (completions < std::size_t{depth} * ssds) completions *= 2;
            const std::size_t slots = completions < 64 ? 64 : completions;
            const std::size_t nic = ssds * (depth * 160u + 256) + 64 * completions + 768;
            const std::size_t lane = 1024 + ssds * (4u * depth + 240) + slots * 128 + slots / 4;
            EXPECT_EQ(l.command_slots, slots);
            EXPECT_LE(l.nic_bytes, nic) << ssds << " x " << depth;
            EXPECT_GT(l.nic_bytes + ssds * 64u + 64, nic) << ssds << " x " << depth;
            EXPECT_LE(l.lane_fixed, lane + 6 * 64) << ssds << " x " << depth;
            EXPECT_GT(l.lane_fixed + 64, lane) << ssds << " x " << depth;
        }
    EXPECT_LE(memory_bytes(32, 4), 50'000u) << "the target that docs/performance.md states";
    std::printf("  4 SSDs x depth 32: %zu bytes\n", memory_bytes(32, 4));
}

}  // namespace
}  // namespace gnstor::gnor
