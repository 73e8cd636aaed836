// cases.hpp: test bodies as kernels, one source for CPU lanes, test warps and GPU warps.
//
// Each kernel does its work, checks every byte itself and adds to a Report in lane memory; the host looks at
// the sums.
#pragma once

#include <gnstor/base/hash.hpp>
#include <gnstor/gnor/c_api.hpp>

namespace gnstor::test {

struct Report {
    std::uint64_t operations;
    std::uint64_t failures;     ///< statuses other than expected
    std::uint64_t mismatches;   ///< 8-byte words
    std::uint64_t last_status;  ///< of a failure
    std::uint64_t callbacks;
};

GN_HD
inline std::uint64_t pattern_word(std::uint32_t vba, std::uint32_t version, std::uint32_t i) {
    return mix64((std::uint64_t{version} << 48) ^ (std::uint64_t{vba} << 10) ^ i);
}

GN_HD
inline void add(std::uint64_t* word, std::uint64_t n) {
    if (n != 0) simt::fetch_add<simt::Scope::kDevice>(word, n);
}

/// The group fills `blocks` blocks; any alignment.
template <class Group>
GN_HD void fill(Group group, std::byte* to, std::uint32_t vba, std::uint32_t blocks, std::uint32_t version) {
    for (std::uint32_t i = group.rank(); i < blocks * 512; i += group.size()) {
        const std::uint64_t word = pattern_word(vba + i / 512, version, i % 512);
        __builtin_memcpy(to + std::uint64_t{i} * 8, &word, 8);
    }
    group.sync();
}
/// How many words of this member's share are not the pattern.
template <class Group>
GN_HD std::uint64_t differences(Group group, const std::byte* at, std::uint32_t vba, std::uint32_t blocks,
                                std::uint32_t version) {
    std::uint64_t bad = 0;
    group.sync();
    for (std::uint32_t i = group.rank(); i < blocks * 512; i += group.size()) {
        std::uint64_t word;
        __builtin_memcpy(&word, at + std::uint64_t{i} * 8, 8);
        bad += word != pattern_word(vba + i / 512, version, i % 512) ? 1 : 0;
    }
    group.sync();
    return bad;
}

struct Common {
    VolumeRef volume;
    ChannelSet channels;
    Report* report;
    std::byte* memory;  ///< unregistered, `stride` bytes a warp or lane
    std::uint64_t stride;
    std::uint64_t seed;
    std::uint64_t timeout_ns;

    GN_HD
    Deadline deadline() const { return Deadline::in_ns(timeout_ns); }
    GN_HD
    void expect(Status got, Status wanted = Status::kSuccess) const {
        add(&report->operations, 1);
        if (got == wanted) return;
        add(&report->failures, 1);
        simt::store_relaxed<simt::Scope::kDevice>(&report->last_status, static_cast<std::uint32_t>(got));
    }
};

/// A kernel for lanes of another sharing mode; kernels that have `run` say by its parameter which views they
/// take.
template <Sharing kMode, class Kernel>
struct SharedBy {
    Kernel kernel;
    GN_HD
    void operator()(simt::Lane lane) const { kernel.template run<kMode>(lane); }
};
template <Sharing kMode, class Kernel>
SharedBy<kMode, Kernel> shared_by(const Kernel& kernel) {
    return SharedBy<kMode, Kernel>{kernel};
}

/// Each warp writes and reads ranges of its own, of all sizes and at all alignments, through unregistered
/// memory and pool buffers; some lanes leave before the others.
struct WarpsWriteAndRead {
    Common common;
    std::uint32_t rounds;
    std::uint32_t blocks_max;
    bool leave_early;

    GN_HD
    void operator()(simt::Lane lane) const { run<Sharing::kGrid>(lane); }
    template <Sharing kMode>
    GN_HD void run(simt::Lane lane) const {
        const auto rank = static_cast<std::uint32_t>(lane.warp_rank());
        // Lanes of the upper half leave: the warp goes on without them.
        if (leave_early && lane.lanes_per_warp() > 1 && lane.index_in_warp % 5 == 4) return;
        const auto group = simt::warp(lane);
        SplitMix64 random(common.seed * 1000003 + rank);
        const auto channel = common.channels.template shared<kMode>().mine(lane);
        for (std::uint32_t round = 0; round < rounds; ++round) {
            const auto blocks = static_cast<std::uint32_t>(1 + random.below(blocks_max));
            const std::uint32_t block = rank * 512 + static_cast<std::uint32_t>(random.below(512 - blocks));
            const auto odd = random.below(4) == 0 ? random.below(16) : random.below(4) * 16;
            std::byte* buffer = common.memory + rank * common.stride + odd;
            void* own = nullptr;
            if (random.below(2) == 0 && blocks <= 16) own = channel.alloc(group, blocks * 4096u);
            if (own != nullptr) buffer = static_cast<std::byte*>(own);
            fill(group, buffer, block, blocks, round + 1);
            const Status wrote =
                common.volume.write(group, channel, block, blocks, buffer, common.deadline());
            if (group.is_leader()) common.expect(wrote);
            fill(group, buffer, block, blocks, 0xFFFF);
            const Status read = common.volume.read(group, channel, block, blocks, buffer, common.deadline());
            if (group.is_leader()) common.expect(read);
            add(&common.report->mismatches, differences(group, buffer, block, blocks, round + 1));
            if (own != nullptr) {
                const Status freed = channel.free(group, own);
                if (group.is_leader()) common.expect(freed);
            }
        }
    }
};

/// Each lane alone: writes, reads, sectors, zeroes and trims on blocks of its own; some lanes leave early.
struct LanesAlone {
    Common common;
    std::uint32_t rounds;
    std::uint32_t leave_every;  ///< 0: nobody leaves early

    GN_HD
    void operator()(simt::Lane lane) const { run<Sharing::kGrid>(lane); }
    template <Sharing kMode>
    GN_HD void run(simt::Lane lane) const {
        const auto rank = static_cast<std::uint32_t>(lane.grid_rank());
        const auto me = simt::self(lane);
        SplitMix64 random(common.seed * 7919 + rank);
        const auto channel = common.channels.template shared<kMode>().mine(lane);
        std::byte* const buffer = common.memory + rank * common.stride;
        for (std::uint32_t round = 0; round < rounds; ++round) {
            if (leave_every != 0 && rank % leave_every == 1 && round > 0) return;
            const auto blocks = static_cast<std::uint32_t>(1 + random.below(3));
            const std::uint32_t block = rank * 8 + static_cast<std::uint32_t>(random.below(5));
            fill(me, buffer, block, blocks, round + 1);
            common.expect(common.volume.write(me, channel, block, blocks, buffer, common.deadline()));
            fill(me, buffer, block, blocks, 0xFFFF);
            common.expect(common.volume.read(me, channel, block, blocks, buffer, common.deadline()));
            add(&common.report->mismatches, differences(me, buffer, block, blocks, round + 1));
            const auto first = static_cast<std::uint32_t>(random.below(8));
            const auto sectors = static_cast<std::uint32_t>(1 + random.below(8 - first));
            common.expect(
                common.volume.read_sectors(me, channel, block, first, sectors, buffer, common.deadline()));
            std::uint64_t bad = 0;
            for (std::uint32_t i = 0; i < sectors * 64; ++i) {
                std::uint64_t word;
                __builtin_memcpy(&word, buffer + i * 8, 8);
                bad += word != pattern_word(block, round + 1, first * 64 + i) ? 1 : 0;
            }
            add(&common.report->mismatches, bad);
            const bool trim = random.below(2) == 0;
            common.expect(trim ? common.volume.trim(me, channel, block, 1, common.deadline())
                               : common.volume.write_zeroes(me, channel, block, 1, common.deadline()));
            common.expect(common.volume.read(me, channel, block, 1, buffer, common.deadline()));
            for (std::uint32_t i = 0; i < 4096; ++i) bad += buffer[i] != std::byte{0} ? 1 : 0;
            add(&common.report->mismatches, bad);
            common.expect(common.volume.flush(me, channel, common.deadline()));
        }
    }
};

/// write_many and read_many of blocks all over the volume, by warps, one wrong request among them.
struct WarpsMany {
    Common common;
    std::uint32_t count;  ///< requests a warp, at most 48

    GN_HD
    void operator()(simt::Lane lane) const { run<Sharing::kGrid>(lane); }
    template <Sharing kMode>
    GN_HD void run(simt::Lane lane) const {
        const auto rank = static_cast<std::uint32_t>(lane.warp_rank());
        const auto group = simt::warp(lane);
        const auto channel = common.channels.template shared<kMode>().mine(lane);
        std::byte* const memory = common.memory + rank * common.stride;
        auto* const requests = reinterpret_cast<IoRequest*>(memory);
        auto* const statuses = reinterpret_cast<Status*>(memory + 64 * sizeof(IoRequest));
        std::byte* const data = memory + 4096;
        if (group.is_leader())
            for (std::uint32_t i = 0; i < count; ++i)
                requests[i] = IoRequest{rank * 1024 + i * 17, 1, data + i * 4096, 0, 0};
        group.sync();
        for (std::uint32_t i = 0; i < count; ++i) fill(group, data + i * 4096, rank * 1024 + i * 17, 1, 5);
        const Status wrote =
            common.volume.write_many(group, channel, requests, count, statuses, common.deadline());
        if (group.is_leader()) common.expect(wrote);
        for (std::uint32_t i = 0; i < count; ++i)
            fill(group, data + i * 4096, rank * 1024 + i * 17, 1, 0xFFFF);
        if (group.is_leader()) requests[count / 2].blocks = 0;
        group.sync();
        const Status read =
            common.volume.read_many(group, channel, requests, count, statuses, common.deadline());
        if (group.is_leader()) common.expect(read, Status::kBadArgument);
        for (std::uint32_t i = 0; i < count; ++i) {
            const bool wrong = i == count / 2;
            if (group.is_leader())
                common.expect(statuses[i], wrong ? Status::kBadArgument : Status::kSuccess);
            add(&common.report->mismatches,
                differences(group, data + i * 4096, rank * 1024 + i * 17, 1, wrong ? 0xFFFF : 5));
        }
    }
};

GN_HD
inline void count_callback(void* argument, Status status) {
    auto* report = static_cast<Report*>(argument);
    add(&report->callbacks, 1);
    if (!nvme::ok(status)) add(&report->failures, 1);
}

/// The same as a functor.
struct CountHandler {
    Report* report;
    GN_HD
    void operator()(Status status) const { count_callback(report, status); }
};

/// Tokens that are waited for, polled and dropped, and callbacks, by single lanes into pool buffers.
struct LanesAsync {
    Common common;
    std::uint32_t rounds;

    GN_HD
    void operator()(simt::Lane lane) const { run<Sharing::kGrid>(lane); }
    template <Sharing kMode>
    GN_HD void run(simt::Lane lane) const {
        const auto rank = static_cast<std::uint32_t>(lane.grid_rank());
        const auto me = simt::self(lane);
        const auto channel = common.channels.template shared<kMode>().mine(lane);
        const std::uint32_t block = rank * 8 + 2;  // 4 blocks from here cross a chunk of 4
        auto* buffer = static_cast<std::byte*>(channel.alloc(me, 4 * 4096));
        // Stays in use by callbacks' and dropped requests until they end, so nobody looks at it or gives it
        // back.
        auto* shared = static_cast<std::byte*>(channel.alloc(me, 4 * 4096));
        if (buffer == nullptr || shared == nullptr) return common.expect(Status::kNoBuffer);
        const std::uint32_t other = block + 4096;
        for (std::uint32_t round = 0; round < rounds; ++round) {
            fill(me, buffer, block, 4, round + 1);
            const Token wrote = common.volume.write_async(lane, channel, block, 4, buffer, common.deadline());
            common.expect(channel.wait(me, wrote, common.deadline()));
            common.expect(channel.wait(me, wrote, common.deadline()), Status::kStaleToken);
            fill(me, buffer, block, 4, 0xFFFF);
            const Token read = common.volume.read_async(lane, channel, block, 4, buffer, common.deadline());
            Status status = read.status;
            const Deadline deadline = common.deadline();
            while (!channel.poll(lane, read, status) && !deadline.passed()) {
            }
            common.expect(status);
            add(&common.report->mismatches, differences(me, buffer, block, 4, round + 1));
            common.expect(channel.drop(read), Status::kStaleToken);
            common.expect(common.volume.write_async(lane, channel, other, 4, shared, count_callback,
                                                    common.report, common.deadline()));
            common.expect(common.volume.write_async(lane, channel, other, 4, shared, count_callback,
                                                    common.report, common.deadline()));
            const Token dropped =
                common.volume.write_async(lane, channel, other, 4, shared, common.deadline());
            common.expect(channel.drop(dropped));
        }
        common.expect(channel.free(me, buffer));
    }
};

/// Single lanes whose asynchronous requests each take more than half of the channel's command slots: they
/// have to come one after the other, and none may wait for slots that another holds while it waits itself.
struct LanesWithLargeRequests {
    Common common;
    std::uint32_t rounds;
    std::uint32_t blocks;  ///< one command each

    GN_HD
    void operator()(simt::Lane lane) const { run<Sharing::kGrid>(lane); }
    template <Sharing kMode>
    GN_HD void run(simt::Lane lane) const {
        const auto rank = static_cast<std::uint32_t>(lane.grid_rank());
        const auto me = simt::self(lane);
        const auto channel = common.channels.template shared<kMode>().mine(lane);
        const std::uint32_t block = rank * 1024;
        auto* buffer = static_cast<std::byte*>(channel.alloc(me, std::uint64_t{blocks} * 4096));
        if (buffer == nullptr) return common.expect(Status::kNoBuffer);
        for (std::uint32_t round = 0; round < rounds; ++round) {
            fill(me, buffer, block, blocks, round + 1);
            const Token wrote =
                common.volume.write_async(lane, channel, block, blocks, buffer, common.deadline());
            common.expect(channel.wait(me, wrote, common.deadline()));
            fill(me, buffer, block, blocks, 0xFFFF);
            const Token read =
                common.volume.read_async(lane, channel, block, blocks, buffer, common.deadline());
            common.expect(channel.wait(me, read, common.deadline()));
            add(&common.report->mismatches, differences(me, buffer, block, blocks, round + 1));
        }
        common.expect(channel.free(me, buffer));
    }
};

/// A buffer on a lane's stack: good for that lane alone, refused for a group (on a GPU, where lanes have one
/// each at the same address).
struct BuffersOnTheStack {
    Common common;

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto group = simt::warp(lane);
        const auto me = simt::self(lane);
        const ChannelRef channel = common.channels.mine(lane);
        const auto block = static_cast<std::uint32_t>(lane.grid_rank());
        std::byte buffer[nvme::kBlockBytes];
        fill(me, buffer, block, 1, 9);
        common.expect(common.volume.write(me, channel, block, 1, buffer, common.deadline()));
        fill(me, buffer, block, 1, 0xFFFF);
        common.expect(common.volume.read(me, channel, block, 1, buffer, common.deadline()));
        add(&common.report->mismatches, differences(me, buffer, block, 1, 9));
        if (group.size() == 1) return;
        common.expect(common.volume.read(group, channel, 0, 1, buffer, common.deadline()),
                      Status::kBadArgument);
        common.expect(common.volume.write(group, channel, 0, 1, buffer, common.deadline()),
                      Status::kBadArgument);
        add(&common.report->mismatches, differences(me, buffer, block, 1, 9));
    }
};

/// Runs callbacks whose commands ended after the last lane had left. In device tests: the base of a type in
/// the source that sent them (callbacks.hpp, "module").
struct RunDueCallbacks {
    Common common;
    GN_HD void operator()(simt::Lane lane) const { common.channels.mine(lane).poll(simt::self(lane)); }
};

/// The four steps of a batch, warps on a batch in shared memory of their block (CPU lanes: memory of their
/// own).
template <std::uint32_t kThreads>
struct WarpsBatch {
    Common common;
    Batch<kThreads, CountHandler>* batches;  ///< CPU lanes: one a block
    std::uint32_t rounds;

    GN_HD
    void operator()(simt::Lane lane) const { run<Sharing::kGrid>(lane); }
    template <Sharing kMode>
    GN_HD void run(simt::Lane lane) const {
        const auto group = simt::warp(lane);
        const auto me = simt::self(lane);
        const auto rank = static_cast<std::uint32_t>(lane.grid_rank());
        const auto channel = common.channels.template shared<kMode>().mine(lane);
#if GN_DEVICE_PASS
        __shared__ Batch<kThreads, CountHandler> batch;
#else
        Batch<kThreads, CountHandler>& batch = batches[lane.block];
#endif
        batch.init(group, lane);
        auto* buffer = static_cast<std::byte*>(channel.alloc(me, 4096));
        std::uint32_t done = 0;
        bool writing = true;
        const Deadline deadline = common.deadline();
        while (group.any(done < rounds * 2) && !group.any(deadline.passed())) {
            // Writes and reads alternate for the whole warp, each round until all members are through.
            const bool want = done < rounds * 2 && (done % 2 == 0) == writing && !batch.is_pending(lane);
            const std::uint32_t block = rank;
            if (want) fill(me, buffer, block, 1, writing ? done / 2 + 1 : 0xFFFF);
            const IoRequest request{block, 1, buffer, 0, 0};
            const auto opcode = writing ? nvme::IoOpcode::kWrite : nvme::IoOpcode::kRead;
            const Status sent = batch.submit(group, lane, common.volume, channel, opcode,
                                             want ? &request : nullptr, CountHandler{common.report});
            if (want && sent != Status::kSuccess && sent != Status::kTooManyPending) common.expect(sent);
            batch.commit(group, lane, channel);
            batch.poll(group, channel);
            const BatchResult result = batch.dispatch(group, lane, channel);
            if (result.finished) {
                common.expect(result.status);
                if (!writing)
                    add(&common.report->mismatches, differences(me, buffer, block, 1, done / 2 + 1));
                ++done;
            }
            const bool unfinished = done < rounds * 2 && (done % 2 == 0) == writing;
            if (!group.any(unfinished)) writing = !writing;
        }
        if (done != rounds * 2) common.expect(Status::kTimedOut);
        common.expect(channel.free(me, buffer));
    }
};

/// Lanes allocate and free; each marks its blocks and finds its own marks again, so that an overlap shows.
struct PoolStress {
    Common common;
    std::uint32_t rounds;

    GN_HD
    void operator()(simt::Lane lane) const { run<Sharing::kGrid>(lane); }
    template <Sharing kMode>
    GN_HD void run(simt::Lane lane) const {
        const auto rank = static_cast<std::uint32_t>(lane.grid_rank());
        const auto me = simt::self(lane);
        SplitMix64 random(common.seed * 31337 + rank);
        const auto channel = common.channels.template shared<kMode>().mine(lane);
        for (std::uint32_t round = 0; round < rounds; ++round) {
            const std::uint64_t blocks = random.below(4) == 0 ? 1 + random.below(64) : 1 + random.below(4);
            auto status = Status::kSuccess;
            auto* at =
                static_cast<std::uint64_t*>(channel.alloc(me, blocks * 4096 - random.below(4096), &status));
            if (at == nullptr) {
                common.expect(status, Status::kNoBuffer);
                continue;
            }
            for (std::uint64_t i = 0; i < blocks; ++i) at[i * 512] = (std::uint64_t{rank} << 32) | round;
            std::uint64_t bad = 0;
            for (std::uint64_t i = 0; i < blocks; ++i)
                bad += at[i * 512] != ((std::uint64_t{rank} << 32) | round) ? 1 : 0;
            add(&common.report->mismatches, bad);
            common.expect(channel.free(me, at));
        }
        int local = 0;
        common.expect(channel.free(me, &local), Status::kBadArgument);
        auto status = Status::kSuccess;
        if (channel.alloc(me, (1u << 20) + 1, &status) != nullptr)
            common.expect(Status::kSuccess, Status::kBadArgument);
        common.expect(status, Status::kBadArgument);
    }
};

}  // namespace gnstor::test
