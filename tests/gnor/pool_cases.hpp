// pool_cases.hpp: kernels that only take and give pool memory, one source for CPU lanes, test warps and GPU
// warps.
//
// Every block of the pool has an owner word; a lane that gets a buffer swaps its own number in and finds
// nobody there, or two lanes hold one block. Words are relaxed between lanes on purpose for the payload:
// each lane also writes its buffers plainly, so that ThreadSanitizer sees whether giving and taking order
// them.
#pragma once

#include "gnor/cases.hpp"

namespace gnstor::test {

inline constexpr std::uint32_t kHeldMost = 4;

/// What a lane holds, and how it takes note of it.
struct PoolHolder {
    std::uint32_t* owners;  ///< a word a block of the whole pool, 0: nobody
    std::uint64_t base;     ///< address of the pool
    std::uint32_t me;       ///< not 0

    GN_HD
    std::uint32_t block_of(const void* at) const {
        return static_cast<std::uint32_t>((reinterpret_cast<std::uint64_t>(at) - base) / 4096);
    }
    /// How many of the blocks somebody else holds.
    GN_HD
    std::uint64_t claim(void* at, std::uint32_t blocks) const {
        std::uint64_t wrong = 0;
        for (std::uint32_t i = 0; i < blocks; ++i) {
            wrong += simt::exchange<simt::Scope::kDevice>(&owners[block_of(at) + i], me) != 0 ? 1 : 0;
            static_cast<std::uint64_t*>(at)[i * 512] = me;
        }
        return wrong;
    }
    GN_HD
    std::uint64_t give_up(void* at, std::uint32_t blocks) const {
        std::uint64_t wrong = 0;
        for (std::uint32_t i = 0; i < blocks; ++i) {
            wrong += static_cast<std::uint64_t*>(at)[i * 512] != me ? 1 : 0;
            wrong += simt::exchange<simt::Scope::kDevice>(&owners[block_of(at) + i], 0u) != me ? 1 : 0;
        }
        return wrong;
    }
};

/// Sizes as I/O has them: mostly one block, some 64 KiB, few up to 1 MiB, and odd ones between.
GN_HD
inline std::uint32_t draw_blocks(SplitMix64& random, std::uint32_t most) {
    const std::uint64_t kind = random.below(16);
    std::uint64_t blocks = 1 + random.below(4);
    if (kind >= 10) blocks = 16;
    if (kind == 14) blocks = 1 + random.below(256);
    if (kind == 15) blocks = 256;
    return static_cast<std::uint32_t>(blocks < most ? blocks : most);
}

/// Single lanes hold up to kHeldMost buffers of all sizes at once and give them back in any order; one at a
/// time where they wait for it (who holds one and waits for another may wait for somebody who does the same).
struct PoolMix {
    Common common;
    std::uint32_t* owners;
    std::uint32_t rounds;
    std::uint32_t blocks_most;
    std::uint64_t wait_ns;  ///< 0: calls that try

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto rank = static_cast<std::uint32_t>(lane.grid_rank());
        const auto me = simt::self(lane);
        const ChannelRef channel = common.channels.mine(lane);
        const PoolHolder holder{owners, channel.state().pool_base, rank + 1};
        SplitMix64 random(common.seed * 40503 + rank);
        void* held[kHeldMost] = {};
        std::uint32_t blocks[kHeldMost] = {};
        std::uint64_t wrong = 0;
        const std::uint32_t at_once = wait_ns == 0 ? kHeldMost : 1;
        for (std::uint32_t round = 0; round < rounds + at_once; ++round) {
            const std::uint32_t i =
                round < rounds ? static_cast<std::uint32_t>(random.below(at_once)) : round - rounds;
            if (held[i] != nullptr) {
                wrong += holder.give_up(held[i], blocks[i]);
                common.expect(channel.free(me, held[i]));
                held[i] = nullptr;
                continue;
            }
            if (round >= rounds) continue;
            blocks[i] = draw_blocks(random, blocks_most);
            auto status = Status::kSuccess;
            const std::uint64_t bytes = blocks[i] * 4096ull - random.below(4096);
            held[i] = wait_ns == 0 ? channel.alloc(me, bytes, &status)
                                   : channel.alloc(me, bytes, Deadline::in_ns(wait_ns), &status);
            common.expect(status, held[i] != nullptr ? Status::kSuccess : Status::kNoBuffer);
            if (held[i] != nullptr) wrong += holder.claim(held[i], blocks[i]);
        }
        add(&common.report->mismatches, wrong);
    }
};

/// All lanes of a warp hold a buffer at once, again and again, and there is room for all of them: nobody may
/// be told that there is none while others split and merge.
struct PoolFits {
    Common common;
    std::uint32_t rounds;
    std::uint32_t blocks;

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto group = simt::warp(lane);
        const auto me = simt::self(lane);
        const ChannelRef channel = common.channels.mine(lane);
        for (std::uint32_t round = 0; round < rounds; ++round) {
            auto status = Status::kSuccess;
            void* const at = channel.alloc(me, blocks * 4096ull, &status);
            common.expect(status);
            group.sync();
            if (at != nullptr) common.expect(channel.free(me, at));
            group.sync();
        }
    }
};

/// Groups take a buffer for each of some members in one call; members give theirs back alone.
struct PoolEach {
    Common common;
    std::uint32_t* owners;
    std::uint32_t rounds;

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto rank = static_cast<std::uint32_t>(lane.grid_rank());
        const auto group = simt::warp(lane);
        const auto me = simt::self(lane);
        const ChannelRef channel = common.channels.mine(lane);
        const PoolHolder holder{owners, channel.state().pool_base, rank + 1};
        SplitMix64 same(common.seed * 69069 + lane.warp_rank());
        SplitMix64 own(common.seed * 1103 + rank);
        std::uint64_t wrong = 0;
        for (std::uint32_t round = 0; round < rounds; ++round) {
            const std::uint32_t blocks = draw_blocks(same, 24);
            const bool wants = own.below(4) != 0;
            auto status = Status::kSuccess;
            void* const at = channel.alloc_each(group, wants, blocks * 4096ull, &status);
            common.expect(status, wants && at == nullptr ? Status::kNoBuffer : Status::kSuccess);
            if (!wants && at != nullptr) ++wrong;
            if (at == nullptr) continue;
            wrong += holder.claim(at, blocks);
            wrong += holder.give_up(at, blocks);
            common.expect(channel.free(me, at));
        }
        if (channel.alloc_each(group, true, (1u << 20) + 1) != nullptr) ++wrong;
        add(&common.report->mismatches, wrong);
    }
};

/// Warps hold a buffer for the whole of their life while others wait for one, write and read through it: the
/// pool has to grow under them, and what it grew by is registered.
struct PoolGrows {
    Common common;
    std::uint32_t* arrived;  ///< atomic: warps that hold one
    std::uint32_t warps;     ///< all of them run at once
    std::uint32_t blocks;

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto group = simt::warp(lane);
        const ChannelRef channel = common.channels.mine(lane);
        auto status = Status::kSuccess;
        void* const at = channel.alloc(group, blocks * 4096ull, common.deadline(), &status);
        if (group.is_leader()) {
            common.expect(status);
            simt::fetch_add<simt::Scope::kDevice>(arrived, 1u);
        }
        // Everybody holds one at the same moment. On a GPU the grid is smaller than what runs at once.
        const Deadline deadline = common.deadline();
        std::uint32_t backoff = 0;
        while (true) {
            const bool there =
                group.is_leader() &&
                (simt::load_acquire<simt::Scope::kDevice>(arrived) >= warps || deadline.passed());
            if (group.shfl(there, group.leader())) break;
            simt::pause(backoff);
        }
        if (at == nullptr) return;
        auto* const buffer = static_cast<std::byte*>(at);
        const auto block = static_cast<std::uint32_t>(lane.warp_rank()) * 512;
        const std::uint64_t found = channel.is_registered(buffer, blocks * 4096ull) ? 0 : 1;
        fill(group, buffer, block, blocks, 7);
        const Status wrote = common.volume.write(group, channel, block, blocks, buffer, common.deadline());
        fill(group, buffer, block, blocks, 0xFFFF);
        const Status read = common.volume.read(group, channel, block, blocks, buffer, common.deadline());
        const std::uint64_t bad = differences(group, buffer, block, blocks, 7);
        add(&common.report->mismatches, bad + found);
        const Status freed = channel.free(group, at);
        if (!group.is_leader()) return;
        common.expect(wrote);
        common.expect(read);
        common.expect(freed);
    }
};

}  // namespace gnstor::test
