// pool_mix.hpp: the allocators that `bench pool` holds against each other, and the lane that uses them.
// Device code in form; the benchmark runs it on CPU lanes.
#pragma once

#include <gnstor/base/hash.hpp>
#include <gnstor/gnor/detail/resources/pool_levels.hpp>
#include <gnstor/simt/group.hpp>
#include <gnstor/simt/time.hpp>

#include <cstdint>

namespace gnstor::bench::pool_bench {

using gnor::kNone;

inline constexpr std::uint32_t kLarge = 256;    ///< blocks of 1 MiB
inline constexpr std::uint32_t kDraws = 65536;  ///< sizes drawn ahead, in a ring; a power of two

/// The allocator of a channel's pool.
struct Levels {
    static constexpr std::uint32_t kMost = kLarge;  ///< longest run
    gnor::LevelsRef levels;
    GN_HD
    std::uint32_t take(std::uint32_t blocks, std::uint32_t hint) const { return levels.take(blocks, hint); }
    GN_HD
    void give(std::uint32_t first, std::uint32_t blocks) const { levels.give(first, blocks); }
};

/// One bitmap of 4 KiB blocks, as channels had before: short runs from the low half on, where the hint says,
/// long ones from the high end.
struct Bitmap {
    static constexpr std::uint32_t kMost = gnor::kMaxRun;
    static constexpr std::uint32_t kLong = 16;
    std::uint64_t* words;
    std::uint32_t count;
    GN_HD
    std::uint32_t take(std::uint32_t blocks, std::uint32_t hint) const {
        if (blocks < kLong) return gnor::take_run(words, count, blocks, hint % (count > 1 ? count / 2 : 1));
        for (std::uint32_t w = count; w-- > 0;) {
            const std::uint32_t first = gnor::take_run(words + w, 1, blocks, 0);
            if (first != kNone) return w * 64 + first;
        }
        return kNone;
    }
    GN_HD
    void give(std::uint32_t first, std::uint32_t blocks) const { gnor::give_run(words, first, blocks); }
};

/// The same bitmap, every run from the lowest address that has room.
struct FirstFit {
    static constexpr std::uint32_t kMost = gnor::kMaxRun;
    std::uint64_t* words;
    std::uint32_t count;
    GN_HD
    std::uint32_t take(std::uint32_t blocks, std::uint32_t) const {
        return gnor::take_run(words, count, blocks, 0);
    }
    GN_HD
    void give(std::uint32_t first, std::uint32_t blocks) const { gnor::give_run(words, first, blocks); }
};

/// The pieces of requests, by the first block of each: its length and the next piece of the same request.
struct Pieces {
    std::uint32_t* length;
    std::uint32_t* next;
};

/// What one lane did.
struct LaneLog {
    std::uint64_t allocations, frees, failed;
    std::uint64_t alloc_ns, free_ns;
    std::uint64_t large, large_pieces;  ///< requests of 1 MiB; pieces that do not follow each other
    std::uint32_t held;                 ///< requests, at the end
};

/// Takes a request in as few pieces as it finds: halves what it asks for until there is some. Its first
/// piece, or kNone: not even in pieces.
template <class Allocator>
GN_HD std::uint32_t take_pieces(const Allocator& from, const Pieces& pieces, std::uint32_t blocks,
                                std::uint32_t hint, std::uint32_t& apart) {
    std::uint32_t head = kNone, last = kNone, length = blocks < from.kMost ? blocks : from.kMost;
    apart = 0;
    while (blocks != 0) {
        if (length > blocks) length = blocks;
        const std::uint32_t first = from.take(length, hint);
        if (first == kNone) {
            if ((length /= 2) != 0) continue;
            for (std::uint32_t p = head; p != kNone; p = pieces.next[p]) from.give(p, pieces.length[p]);
            return kNone;
        }
        pieces.length[first] = length;
        pieces.next[first] = kNone;
        // Two that follow each other in memory are one buffer.
        const bool follows = last != kNone && (last + pieces.length[last] == first || first + length == last);
        apart += follows ? 0 : 1;
        (last == kNone ? head : pieces.next[last]) = first;
        last = first;
        blocks -= length;
    }
    return head;
}

/// Allocates until the high mark, frees at random down to the low mark, and again.
template <class Allocator>
struct MixLane {
    Allocator from;
    Pieces pieces;
    const std::uint32_t* sizes;  ///< kDraws of them
    std::uint32_t* held;         ///< `low` to `high` blocks a lane: first pieces of what it holds
    LaneLog* logs;
    std::uint64_t allocations;  ///< a lane
    std::uint32_t low, high;    ///< blocks a lane
    std::uint64_t seed;

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto rank = static_cast<std::uint32_t>(lane.grid_rank());
        SplitMix64 random(seed * 7919 + rank);
        LaneLog log{};
        std::uint32_t* const mine = held + std::uint64_t{rank} * (high + kLarge);
        std::uint32_t used = 0;
        auto draw = static_cast<std::uint32_t>(random.next());
        while (log.allocations < allocations) {
            bool full = false;
            const std::uint64_t begin = simt::now_ns();
            while (used < high && !full) {
                const std::uint32_t blocks = sizes[++draw % kDraws];
                std::uint32_t apart = 0;
                const std::uint32_t head = take_pieces(from, pieces, blocks, draw, apart);
                ++log.allocations;
                full = head == kNone;
                log.failed += full ? 1 : 0;
                if (full) break;
                if (blocks == kLarge) {
                    ++log.large;
                    log.large_pieces += apart;
                }
                mine[log.held++] = head;
                used += blocks;
            }
            const std::uint64_t middle = simt::now_ns();
            if (log.allocations < allocations)
                while (used > low) {
                    const auto which = static_cast<std::uint32_t>(random.below(log.held));
                    used -= give_request(mine[which]);
                    mine[which] = mine[--log.held];
                    ++log.frees;
                }
            log.alloc_ns += middle - begin;
            log.free_ns += simt::now_ns() - middle;
        }
        logs[rank] = log;
    }
    GN_HD
    std::uint32_t give_request(std::uint32_t head) const {
        std::uint32_t blocks = 0;
        for (std::uint32_t p = head, next = kNone; p != kNone; p = next) {
            next = pieces.next[p];  // read first: the block may be another's right after
            const std::uint32_t length = pieces.length[p];
            blocks += length;
            from.give(p, length);
        }
        return blocks;
    }
};

}  // namespace gnstor::bench::pool_bench
