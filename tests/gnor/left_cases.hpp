// left_cases.hpp: kernels that leave something behind, or find nobody who answers: callbacks and buffers that
// nobody takes back, tokens that are dropped, a NIC that stands still, channels of other lanes; and kernels
// that share a set of channels with others. One source for CPU lanes, test warps and GPU warps.
#pragma once

#include "gnor/hang_cases.hpp"

namespace gnstor::test {

/// A callback that nobody may call.
struct Stray {
    std::uint64_t* calls;
    GN_HD
    void operator()(Status) const { add(calls, 1); }
};

/// Lanes that send what they can with callbacks, and leave without polling, waiting or freeing.
struct LanesThatLeaveCallbacks {
    Common common;
    std::uint64_t* calls;

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto view = common.channels.mine(lane).with<Stray>();
        const auto rank = static_cast<std::uint32_t>(lane.grid_rank());
        auto* const buffer = view.alloc(simt::self(lane), 4 * 4096);
        if (buffer == nullptr) return common.expect(Status::kNoBuffer);
        for (std::uint32_t i = 0; i < 8; ++i) {
            const Status sent =
                rank % 2 == 0 ? common.volume.try_read_async(lane, view, rank * 64, 4, buffer, Stray{calls})
                              : common.volume.try_write_async(lane, view, rank * 64, 4, buffer, Stray{calls});
            common.expect(sent == Status::kTooManyPending ? Status::kSuccess : sent);
        }
    }
};

/// Lanes that give their tokens up at once. Afterwards those are nobody's, and the buffer is in use for as
/// long as the request is.
struct LanesThatDropTokens {
    Common common;
    KeptBuffers kept;

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto rank = static_cast<std::uint32_t>(lane.grid_rank());
        const auto me = simt::self(lane);
        const ChannelRef channel = common.channels.mine(lane);
        void* const buffer = channel.alloc(me, 4096, common.deadline());
        if (buffer == nullptr) return common.expect(Status::kNoBuffer);
        const Token token = rank % 2 == 0
                                ? common.volume.try_read_async(lane, channel, rank * 16, 1, buffer)
                                : common.volume.try_write_async(lane, channel, rank * 16, 1, buffer);
        if (token.in_flight()) {
            common.expect(channel.drop(token));
            common.expect(channel.drop(token), Status::kStaleToken);
            common.expect(channel.wait(me, token, common.deadline()), Status::kStaleToken);
        } else {
            common.expect(token.status, Status::kTooManyPending);
        }
        const Status freed = channel.free(me, buffer);
        const bool held = token.in_flight() && freed == Status::kBufferInUse;
        common.expect(held ? Status::kSuccess : freed);
        if (held) kept.addresses[rank] = reinterpret_cast<std::uint64_t>(buffer);
    }
};

/// Lanes whose calls cannot succeed: each comes back at its deadline and says whether anything of it is under
/// way, and so does a buffer that is given back.
struct LanesThatNobodyAnswers {
    Common common;
    KeptBuffers kept;
    std::uint64_t* timed_out;  ///< atomic: calls that a drive may have
    std::uint32_t rounds;
    std::uint64_t wait_ns;

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto rank = static_cast<std::uint32_t>(lane.grid_rank());
        const auto me = simt::self(lane);
        const ChannelRef channel = common.channels.mine(lane);
        void* const buffer = channel.alloc(me, 4096);
        if (buffer == nullptr) return common.expect(Status::kNoBuffer);
        std::uint64_t late = 0;
        for (std::uint32_t round = 0; round < rounds; ++round) {
            const Deadline soon = Deadline::in_ns(wait_ns);
            Status status;
            if (round % 3 == 0) {
                status = common.volume.write(me, channel, rank * 16, 1, buffer, soon);
            } else if (round % 3 == 1) {
                status = common.volume.read(me, channel, rank * 16, 1, buffer, soon);
            } else {
                const Token token = common.volume.read_async(lane, channel, rank * 16, 1, buffer, soon);
                status = channel.wait(me, token, soon);
            }
            late += status == Status::kTimedOut ? 1 : 0;
            common.expect(status, status == Status::kTimedOut ? Status::kTimedOut : Status::kNotSent);
        }
        add(timed_out, late);
        common.expect(channel.free(me, buffer), late != 0 ? Status::kBufferInUse : Status::kSuccess);
        if (late != 0) kept.addresses[rank] = reinterpret_cast<std::uint64_t>(buffer);
    }
};

/// Lanes that are given channels of the other kind of lanes, whose memory is out of their reach: every call
/// says so, and nothing is looked at.
struct LanesOnChannelsOfOthers {
    Common common;
    ChannelRef channel;

    GN_HD
    void operator()(simt::Lane lane) const {
        constexpr Status kNo = Status::kWrongLanes;
        const auto me = simt::self(lane);
        const VolumeRef& v = common.volume;
        std::byte buffer[512];
        const IoRequest request{0, 1, buffer, 0, 0};
        const ChannelRef all[] = {channel, common.channels.mine(lane), common.channels[0]};
        for (const ChannelRef& ch : all) {
            common.expect(ch.usable(), kNo);
            common.expect(v.read(me, ch, 0, 1, buffer, common.deadline()), kNo);
            common.expect(v.write(me, ch, 0, 1, buffer, common.deadline()), kNo);
            common.expect(v.read_sectors(me, ch, 0, 0, 1, buffer, common.deadline()), kNo);
            common.expect(v.flush(me, ch, common.deadline()), kNo);
            common.expect(v.trim(me, ch, 0, 1, common.deadline()), kNo);
            common.expect(v.read_many(me, ch, &request, 1, nullptr, common.deadline()), kNo);
            common.expect(v.read_async(lane, ch, 0, 1, buffer, common.deadline()).status, kNo);
            common.expect(v.try_write_async(lane, ch, 0, 1, buffer).status, kNo);
            auto status = Status::kSuccess;
            if (ch.alloc(me, 4096, &status) != nullptr) common.expect(Status::kSuccess, kNo);
            common.expect(status, kNo);
            common.expect(ch.free(me, buffer), kNo);
            common.expect(ch.wait(me, Token{0, 1, Status::kSuccess}, common.deadline()), kNo);
            common.expect(ch.drop(Token{0, 1, Status::kSuccess}), kNo);
            common.expect(ch.poll(me) == 0 && !ch.is_registered(buffer, 1) ? kNo : Status::kSuccess, kNo);
        }
    }
    static constexpr std::uint64_t kExpectations = 3 * 14;
};

/// One of several kernels that use the same channels at once: its warps write and read blocks of their own,
/// from registered memory and from their own by turns.
struct WarpsOfOneKernelOfSeveral {
    Common common;
    std::uint32_t first;  ///< warp of all warps of all kernels
    std::uint32_t rounds;
    static constexpr std::uint32_t kBlocksMost = 24;

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto rank = first + static_cast<std::uint32_t>(lane.warp_rank());
        const auto group = simt::warp(lane);
        const ChannelRef channel = common.channels.mine(lane);
        SplitMix64 random(common.seed * 7919 + rank);
        const std::uint32_t block = rank * 64;
        for (std::uint32_t round = 0; round < rounds; ++round) {
            const auto blocks = static_cast<std::uint32_t>(1 + random.below(kBlocksMost));
            std::byte* buffer = common.memory + rank * common.stride;
            void* own = nullptr;
            if (round % 2 == 0) own = channel.alloc(group, blocks * 4096ull, common.deadline());
            if (own != nullptr) buffer = static_cast<std::byte*>(own);
            fill(group, buffer, block, blocks, round + 1);
            const Status wrote =
                common.volume.write(group, channel, block, blocks, buffer, common.deadline());
            fill(group, buffer, block, blocks, 0xFFFF);
            const Status read = common.volume.read(group, channel, block, blocks, buffer, common.deadline());
            add(&common.report->mismatches, differences(group, buffer, block, blocks, round + 1));
            const Status freed = own != nullptr ? channel.free(group, own) : Status::kSuccess;
            if (!group.is_leader()) continue;
            common.expect(wrote);
            common.expect(read);
            common.expect(freed);
        }
    }
};

/// Finds what all those kernels wrote last.
struct WarpsThatFindWhatOthersWrote {
    Common common;
    std::uint32_t rounds;

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto rank = static_cast<std::uint32_t>(lane.warp_rank());
        const auto group = simt::warp(lane);
        std::byte* const buffer = common.memory + rank * common.stride;
        const Status read =
            common.volume.read(group, common.channels.mine(lane), rank * 64, 1, buffer, common.deadline());
        if (group.is_leader()) common.expect(read);
        add(&common.report->mismatches, differences(group, buffer, rank * 64, 1, rounds));
    }
};

}  // namespace gnstor::test
