// hang_cases.hpp: kernels in which something goes missing: lanes, answers, tokens. One source for CPU lanes,
// test warps and GPU warps. What must hold: every call comes back, with a status that says what happened.
#pragma once

#include "gnor/cases.hpp"

namespace gnstor::test {

/// Warps that each write and read a little, through pool buffers that they wait for: grids of any size, also
/// far larger than what runs at once. Some lanes leave before the others, some whole warps after the first
/// round.
struct WarpsComeAndGo {
    Common common;
    std::uint32_t rounds;

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto rank = static_cast<std::uint32_t>(lane.warp_rank());
        if (lane.lanes_per_warp() > 1 && (lane.index_in_warp + rank) % 3 == 2) return;
        const auto group = simt::warp(lane);
        const ChannelRef channel = common.channels.mine(lane);
        for (std::uint32_t round = 0; round < rounds; ++round) {
            if (round != 0 && rank % 4 == 1) return;
            const std::uint32_t blocks = 1 + rank % 2;
            auto status = Status::kSuccess;
            auto* const at =
                static_cast<std::byte*>(channel.alloc(group, blocks * 4096ull, common.deadline(), &status));
            if (group.is_leader()) common.expect(status);
            if (at == nullptr) return;
            fill(group, at, rank * 4, blocks, round + 1);
            const Status wrote = common.volume.write(group, channel, rank * 4, blocks, at, common.deadline());
            fill(group, at, rank * 4, blocks, 0xFFFF);
            const Status read = common.volume.read(group, channel, rank * 4, blocks, at, common.deadline());
            add(&common.report->mismatches, differences(group, at, rank * 4, blocks, round + 1));
            const Status freed = channel.free(group, at);
            if (!group.is_leader()) continue;
            common.expect(wrote);
            common.expect(read);
            common.expect(freed);
        }
    }
};

/// A pool buffer that a command may still touch, kept for a later kernel to give back.
struct KeptBuffers {
    std::uint64_t* addresses;  ///< one a lane, 0: none
    GN_HD
    void* at(std::uint32_t rank) const { return reinterpret_cast<void*>(addresses[rank]); }
};

/// Single lanes read and write while drives leave some commands without an answer: each call ends with
/// success or at its deadline, and a buffer that was part of one that timed out is not to be had back.
struct LanesWithoutAnswers {
    Common common;
    KeptBuffers kept;
    std::uint32_t rounds;
    std::uint64_t wait_ns;

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto rank = static_cast<std::uint32_t>(lane.grid_rank());
        const auto me = simt::self(lane);
        const ChannelRef channel = common.channels.mine(lane);
        auto* const buffer = static_cast<std::byte*>(channel.alloc(me, 4096));
        if (buffer == nullptr) return common.expect(Status::kNoBuffer);
        bool missing = false;
        for (std::uint32_t round = 0; round < rounds; ++round) {
            const Deadline soon = Deadline::in_ns(wait_ns);
            const Status status = (round + rank) % 2 == 0
                                      ? common.volume.read(me, channel, rank * 16, 1, buffer, soon)
                                      : common.volume.write(me, channel, rank * 16, 1, buffer, soon);
            missing = missing || status == Status::kTimedOut;
            const bool late = status == Status::kTimedOut || status == Status::kNotSent;
            common.expect(late ? Status::kSuccess : status);
        }
        // What was not sent holds nothing; a late answer may have come.
        const Status freed = channel.free(me, buffer);
        const bool held = missing && freed == Status::kBufferInUse;
        common.expect(held ? Status::kSuccess : freed);
        if (held) kept.addresses[rank] = reinterpret_cast<std::uint64_t>(buffer);
    }
};

/// Gives back what was kept, after the host has ended the commands.
struct GiveKeptBack {
    Common common;
    KeptBuffers kept;
    GN_HD
    void operator()(simt::Lane lane) const {
        const auto rank = static_cast<std::uint32_t>(lane.grid_rank());
        if (kept.addresses[rank] == 0) return;
        common.expect(common.channels.mine(lane).free(simt::self(lane), kept.at(rank)));
        kept.addresses[rank] = 0;
    }
};

/// The first lanes send a request each and leave with it under way; the others work on. A later kernel asks
/// for the tokens that were left behind.
struct LanesThatLeaveRequests {
    Common common;
    KeptBuffers kept;
    Token* tokens;  ///< one of each lane that leaves
    std::uint32_t leaving;
    bool later;

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto rank = static_cast<std::uint32_t>(lane.grid_rank());
        const auto me = simt::self(lane);
        const ChannelRef channel = common.channels.mine(lane);
        if (later) {
            if (rank < leaving)
                common.expect(channel.wait(me, tokens[rank], common.deadline()), Status::kStaleToken);
            return;
        }
        auto* const buffer = static_cast<std::byte*>(channel.alloc(me, 4096, common.deadline()));
        if (buffer == nullptr) return common.expect(Status::kNoBuffer);
        if (rank < leaving) {
            kept.addresses[rank] = reinterpret_cast<std::uint64_t>(buffer);
            tokens[rank] = common.volume.read_async(lane, channel, rank, 1, buffer, common.deadline());
            return common.expect(tokens[rank].status);
        }
        fill(me, buffer, rank, 1, 3);
        common.expect(common.volume.write(me, channel, rank, 1, buffer, common.deadline()));
        fill(me, buffer, rank, 1, 0xFFFF);
        common.expect(common.volume.read(me, channel, rank, 1, buffer, common.deadline()));
        add(&common.report->mismatches, differences(me, buffer, rank, 1, 3));
        common.expect(channel.free(me, buffer));
    }
};

/// Warps that all run at once press on a channel until the last of them has done its share: who is starved
/// keeps everybody at it, up to the deadline. Nobody is left out for ever: that alone; who is served how
/// often is fairness_test.cpp's.
struct WarpsShareFairly {
    Common common;
    std::uint32_t* finished;  ///< atomic: warps that have done their share
    std::uint32_t* done;      ///< requests of each warp
    std::uint32_t warps;
    std::uint32_t share;

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto rank = static_cast<std::uint32_t>(lane.warp_rank());
        const auto group = simt::warp(lane);
        const ChannelRef channel = common.channels.mine(lane);
        auto* const at = static_cast<std::byte*>(channel.alloc(group, 4096, common.deadline()));
        const Deadline deadline = common.deadline();
        std::uint32_t mine = 0;
        for (bool on = at != nullptr; on;) {
            const Status status = common.volume.read(group, channel, rank * 16, 1, at, deadline);
            if (group.is_leader()) common.expect(status);
            if (++mine == share && group.is_leader()) simt::fetch_add<simt::Scope::kDevice>(finished, 1u);
            const bool over =
                group.is_leader() &&
                (simt::load_relaxed<simt::Scope::kDevice>(finished) >= warps || deadline.passed());
            on = !group.shfl(over, group.leader());
        }
        const Status freed = channel.free(group, at);
        if (!group.is_leader()) return;
        common.expect(freed);
        done[rank] = mine;
    }
};

}  // namespace gnstor::test
