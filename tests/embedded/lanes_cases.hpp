// lanes_cases.hpp: kernels against a whole array; one source for CPU lanes, test warps and GPU warps.
//
// A block's contents follow from (seed, block, tag); the tag is its first word, so that a block says by
// itself which write it came from and whether it is whole. Tag 0: the block reads as zeroes. The kernels of
// tests/gnor/cases.hpp run here too.
#pragma once

#include "gnor/cases.hpp"

namespace gnstor::test {

inline constexpr std::uint32_t kWordsPerBlock = nvme::kBlockBytes / 8;

GN_HD
inline std::uint64_t tag_of(std::uint32_t writer, std::uint32_t round) {
    return (std::uint64_t{writer + 1} << 32) | (round + 1);
}
GN_HD
inline std::uint64_t word_of(std::uint64_t seed, std::uint32_t block, std::uint64_t tag, std::uint32_t i) {
    if (tag == 0 || i == 0) return tag;
    return mix64(tag + mix64(seed + block) + std::uint64_t{i} * 0x9E3779B97F4A7C15ull);
}
/// Whether a block is one whole version of itself, by its own tag.
GN_HD
inline bool is_whole(const std::uint64_t* words, std::uint64_t seed, std::uint32_t block) {
    for (std::uint32_t i = 1; i < kWordsPerBlock; ++i)
        if (words[i] != word_of(seed, block, words[0], i)) return false;
    return true;
}

/// The group fills `blocks` blocks with one tag.
template <class Group>
GN_HD void fill_tagged(Group group, std::uint64_t* to, std::uint64_t seed, std::uint32_t block,
                       std::uint32_t blocks, std::uint64_t tag) {
    for (std::uint32_t i = group.rank(); i < blocks * kWordsPerBlock; i += group.size())
        to[i] = word_of(seed, block + i / kWordsPerBlock, tag, i % kWordsPerBlock);
    group.sync();
}
/// How many of this member's words differ from what `tags` says of the blocks.
template <class Group>
GN_HD std::uint64_t wrong_words(Group group, const std::uint64_t* at, std::uint64_t seed, std::uint32_t block,
                                std::uint32_t blocks, const std::uint64_t* tags) {
    std::uint64_t bad = 0;
    group.sync();
    for (std::uint32_t i = group.rank(); i < blocks * kWordsPerBlock; i += group.size()) {
        const std::uint32_t b = block + i / kWordsPerBlock;
        bad += at[i] != word_of(seed, b, tags[b], i % kWordsPerBlock) ? 1 : 0;
    }
    group.sync();
    return bad;
}

/// What a callback leaves for the lane that waits for it.
struct Called {
    std::uint32_t done;  // atomic
    std::uint32_t status;
};
GN_HD
inline void note_call(void* argument, Status status) {
    auto* called = static_cast<Called*>(argument);
    called->status = static_cast<std::uint32_t>(status);
    // Publishes the status, and the data that the request moved, to the lane that waits (RandomMix::called).
    simt::store_release<simt::Scope::kDevice>(&called->done, 1u);
}

/// Each warp owns `blocks_each` blocks and does everything to them, at random, keeping in `tags` what they
/// must hold. Memory a warp: kMixBlocks blocks, then one for requests and statuses.
struct RandomMix {
    static constexpr std::uint32_t kMixBlocks = 24;
    static constexpr std::uint32_t kKinds = 11;
    static constexpr std::uint64_t kStride = (kMixBlocks + 1) * 4096ull;

    Common common;
    std::uint64_t* tags;  ///< one a block of the volume
    std::uint32_t blocks_each;
    std::uint32_t rounds;
    std::uint32_t first_round;  ///< of this launch: tags of several launches differ
    bool leave_early;

    struct Warp {
        std::uint32_t rank, base;
        ChannelRef channel;
        std::uint64_t* data;
        IoRequest* requests;
        Status* statuses;
        Called* called;
    };

    GN_HD
    void operator()(simt::Lane lane) const {
        if (leave_early && lane.lanes_per_warp() > 1 && lane.index_in_warp % 3 == 2) return;
        Warp w{};
        w.rank = static_cast<std::uint32_t>(lane.warp_rank());
        w.base = w.rank * blocks_each;
        w.channel = common.channels.mine(lane);
        std::byte* const memory = common.memory + w.rank * common.stride;
        w.data = reinterpret_cast<std::uint64_t*>(memory);
        std::byte* const tail = memory + std::uint64_t{kMixBlocks} * 4096;
        w.requests = reinterpret_cast<IoRequest*>(tail);
        w.statuses = reinterpret_cast<Status*>(tail + kMixBlocks * sizeof(IoRequest));
        w.called = reinterpret_cast<Called*>(tail + 2048);
        const auto group = simt::warp(lane);
        SplitMix64 random(mix64(common.seed) + w.rank + (std::uint64_t{first_round} << 32));
        for (std::uint32_t round = first_round; round < first_round + rounds; ++round)
            step(group, lane, w, random, round);
        group.sync();
        check(group, w, w.base, blocks_each < kMixBlocks ? blocks_each : kMixBlocks);
    }

  private:
    template <class Group>
    GN_HD void step(Group group, simt::Lane lane, const Warp& w, SplitMix64& random,
                    std::uint32_t round) const {
        const auto kind = static_cast<std::uint32_t>(random.below(kKinds));
        const std::uint32_t room = blocks_each < kMixBlocks ? blocks_each : kMixBlocks;
        const auto blocks = static_cast<std::uint32_t>(1 + random.below(room));
        const std::uint32_t block =
            w.base + static_cast<std::uint32_t>(random.below(blocks_each - blocks + 1));
        const auto detail = static_cast<std::uint32_t>(random.below(1u << 16));
        const std::uint64_t tag = tag_of(w.rank, round);
        const auto& v = common.volume;
        switch (kind) {
            case 0:
            case 1:
                fill_tagged(group, w.data, common.seed, block, blocks, tag);
                expect(group, v.write(group, w.channel, block, blocks, w.data, common.deadline()));
                return set_tags(group, block, blocks, tag);
            case 2:
                return check(group, w, block, blocks);
            case 3:
                return many(group, w, block, blocks, tag, true);
            case 4:
                return many(group, w, block, blocks, tag, false);
            case 5:
                expect(group, v.trim(group, w.channel, block, blocks, common.deadline()));
                return set_tags(group, block, blocks, 0);
            case 6:
                expect(group, v.write_zeroes(group, w.channel, block, blocks, common.deadline()));
                return set_tags(group, block, blocks, 0);
            case 7:
                return sectors(group, w, block, detail % 8, 1 + (detail >> 8) % (8 - detail % 8));
            case 8:
                return expect(group, v.flush(group, w.channel, common.deadline()));
            case 9:
                return alone(group, lane, w, block, blocks, tag, true);
            default:
                return alone(group, lane, w, block, blocks, tag, false);
        }
    }

    template <class Group>
    GN_HD void expect(Group group, Status got) const {
        if (group.is_leader()) common.expect(got);
    }
    template <class Group>
    GN_HD void set_tags(Group group, std::uint32_t block, std::uint32_t blocks, std::uint64_t tag) const {
        group.sync();
        for (std::uint32_t i = group.rank(); i < blocks; i += group.size()) tags[block + i] = tag;
        group.sync();
    }
    template <class Group>
    GN_HD void check(Group group, const Warp& w, std::uint32_t block, std::uint32_t blocks) const {
        expect(group, common.volume.read(group, w.channel, block, blocks, w.data, common.deadline()));
        add(&common.report->mismatches, wrong_words(group, w.data, common.seed, block, blocks, tags));
    }

    template <class Group>
    GN_HD void many(Group group, const Warp& w, std::uint32_t block, std::uint32_t blocks, std::uint64_t tag,
                    bool write) const {
        for (std::uint32_t i = group.rank(); i < blocks; i += group.size())
            w.requests[i] = IoRequest{block + i, 1, w.data + i * kWordsPerBlock, 0, 0};
        if (write) fill_tagged(group, w.data, common.seed, block, blocks, tag);
        group.sync();
        const auto& v = common.volume;
        expect(group, write
                          ? v.write_many(group, w.channel, w.requests, blocks, w.statuses, common.deadline())
                          : v.read_many(group, w.channel, w.requests, blocks, w.statuses, common.deadline()));
        if (group.is_leader())
            for (std::uint32_t i = 0; i < blocks; ++i) common.expect(w.statuses[i]);
        if (write) return set_tags(group, block, blocks, tag);
        add(&common.report->mismatches, wrong_words(group, w.data, common.seed, block, blocks, tags));
    }

    template <class Group>
    GN_HD void sectors(Group group, const Warp& w, std::uint32_t block, std::uint32_t first,
                       std::uint32_t count) const {
        expect(group,
               common.volume.read_sectors(group, w.channel, block, first, count, w.data, common.deadline()));
        group.sync();
        std::uint64_t bad = 0;
        for (std::uint32_t i = group.rank(); i < count * 64; i += group.size())
            bad += w.data[i] != word_of(common.seed, block, tags[block], first * 64 + i) ? 1 : 0;
        add(&common.report->mismatches, bad);
        group.sync();
    }

    /// The leader alone, through a pool buffer: token waited for, polled, or a callback.
    template <class Group>
    GN_HD void alone(Group group, simt::Lane lane, const Warp& w, std::uint32_t block, std::uint32_t blocks,
                     std::uint64_t tag, bool write) const {
        auto* buffer = static_cast<std::uint64_t*>(w.channel.alloc(group, blocks * 4096u));
        if (buffer == nullptr) return;  // the pool is shared: another time
        if (write) fill_tagged(group, buffer, common.seed, block, blocks, tag);
        if (group.is_leader()) {
            const Status status = (tag + block) % 3 == 0
                                      ? called(lane, w, block, blocks, buffer, write)
                                      : token(lane, w, block, blocks, buffer, write, (tag + block) % 3 == 1);
            common.expect(status);
        }
        group.sync();
        if (write)
            set_tags(group, block, blocks, tag);
        else
            add(&common.report->mismatches, wrong_words(group, buffer, common.seed, block, blocks, tags));
        expect(group, w.channel.free(group, buffer));
    }
    GN_HD
    Status token(simt::Lane lane, const Warp& w, std::uint32_t block, std::uint32_t blocks,
                 std::uint64_t* buffer, bool write, bool polled) const {
        const auto& v = common.volume;
        const Token t = write ? v.write_async(lane, w.channel, block, blocks, buffer, common.deadline())
                              : v.read_async(lane, w.channel, block, blocks, buffer, common.deadline());
        if (!polled) return w.channel.wait(simt::self(lane), t, common.deadline());
        Status status = t.status;
        const Deadline deadline = common.deadline();
        while (!w.channel.poll(lane, t, status))
            if (deadline.passed()) return Status::kTimedOut;
        return status;
    }
    GN_HD
    Status called(simt::Lane lane, const Warp& w, std::uint32_t block, std::uint32_t blocks,
                  std::uint64_t* buffer, bool write) const {
        const auto& v = common.volume;
        simt::store_relaxed<simt::Scope::kDevice>(&w.called->done, 0u);
        const Status sent = write ? v.write_async(lane, w.channel, block, blocks, buffer, note_call, w.called,
                                                  common.deadline())
                                  : v.read_async(lane, w.channel, block, blocks, buffer, note_call, w.called,
                                                 common.deadline());
        if (!nvme::ok(sent)) return sent;
        const Deadline deadline = common.deadline();
        // Pairs with the release of note_call.
        while (simt::load_acquire<simt::Scope::kDevice>(&w.called->done) == 0) {
            w.channel.poll(simt::self(lane));
            if (deadline.passed()) return Status::kTimedOut;
        }
        add(&common.report->callbacks, 1);
        return static_cast<Status>(w.called->status);
    }
};

/// Every warp writes ranges of the same few blocks; reads on the way must show whole blocks. Range and tag of
/// each write follow from seed, rank and round, so that the host knows what may be left.
struct ContendedWriters {
    static constexpr std::uint32_t kMaxBlocks = 20;
    static constexpr std::uint64_t kStride = kMaxBlocks * 4096ull;
    struct Range {
        std::uint32_t block, blocks;
    };

    Common common;
    std::uint32_t blocks_shared;
    std::uint32_t rounds;

    GN_HD
    static Range range_of(std::uint64_t seed, std::uint32_t blocks_shared, std::uint32_t rank,
                          std::uint32_t round) {
        SplitMix64 random(mix64(seed + 77) + tag_of(rank, round));
        const auto most = blocks_shared < kMaxBlocks ? blocks_shared : kMaxBlocks;
        const auto blocks = static_cast<std::uint32_t>(1 + random.below(most));
        return Range{static_cast<std::uint32_t>(random.below(blocks_shared - blocks + 1)), blocks};
    }
    GN_HD
    void operator()(simt::Lane lane) const {
        const auto group = simt::warp(lane);
        const auto rank = static_cast<std::uint32_t>(lane.warp_rank());
        const ChannelRef channel = common.channels.mine(lane);
        auto* const data = reinterpret_cast<std::uint64_t*>(common.memory + rank * common.stride);
        for (std::uint32_t round = 0; round < rounds; ++round) {
            const Range r = range_of(common.seed, blocks_shared, rank, round);
            fill_tagged(group, data, common.seed, r.block, r.blocks, tag_of(rank, round));
            const Status wrote =
                common.volume.write(group, channel, r.block, r.blocks, data, common.deadline());
            if (group.is_leader()) common.expect(wrote);
            const Status read =
                common.volume.read(group, channel, r.block, r.blocks, data, common.deadline());
            if (group.is_leader()) common.expect(read);
            group.sync();
            for (std::uint32_t b = group.rank(); b < r.blocks; b += group.size())
                add(&common.report->mismatches,
                    is_whole(data + b * kWordsPerBlock, common.seed, r.block + b) ? 0 : 1);
            group.sync();
        }
    }
};

/// Each warp writes blocks of its own, one at a time, through whatever happens, and keeps for each the round
/// that was acknowledged last and the one that was tried last; reads must show one of those between.
struct ThroughFaults {
    static constexpr std::uint64_t kStride = 4096;
    Common common;
    std::uint32_t* acknowledged;  ///< a block: rounds + 1; 0: none
    std::uint32_t* tried;
    std::uint32_t blocks_each;
    std::uint32_t first_round;
    std::uint32_t rounds;
    std::uint64_t* progress;  // atomic: operations of all warps
    std::uint64_t* failed;    // atomic: those that ended with kQueueError, at their deadlines, others

    GN_HD
    void note(Status status) const {
        if (nvme::ok(status)) return;
        const bool late = status == Status::kTimedOut || status == Status::kNotSent;
        add(failed + (status == Status::kQueueError ? 0 : late ? 1 : 2), 1);
        if (status != Status::kQueueError && !late)
            simt::store_relaxed<simt::Scope::kDevice>(&common.report->last_status,
                                                      static_cast<std::uint32_t>(status));
    }
    GN_HD
    void operator()(simt::Lane lane) const {
        const auto group = simt::warp(lane);
        const auto rank = static_cast<std::uint32_t>(lane.warp_rank());
        const ChannelRef channel = common.channels.mine(lane);
        auto* const data = reinterpret_cast<std::uint64_t*>(common.memory + rank * common.stride);
        for (std::uint32_t round = first_round; round < first_round + rounds; ++round) {
            const std::uint32_t block = rank * blocks_each + round % blocks_each;
            fill_tagged(group, data, common.seed, block, 1, tag_of(rank, round));
            if (group.is_leader()) tried[block] = round + 1;
            const Status wrote = common.volume.write(group, channel, block, 1, data, common.deadline());
            if (group.is_leader()) {
                note(wrote);
                if (nvme::ok(wrote)) acknowledged[block] = round + 1;
                add(progress, 1);
            }
            group.sync();
            const Status read = common.volume.read(group, channel, block, 1, data, common.deadline());
            if (group.is_leader()) note(read);
            group.sync();
            if (nvme::ok(read) && group.is_leader()) {
                const std::uint64_t seen = data[0] == 0 ? 0 : data[0] & 0xFFFFFFFFu;
                const bool good = is_whole(data, common.seed, block) && seen >= acknowledged[block] &&
                                  seen <= tried[block] && (seen == 0 || data[0] >> 32 == rank + 1);
                add(&common.report->mismatches, good ? 0 : 1);
            }
            group.sync();
        }
    }
};

}  // namespace gnstor::test
