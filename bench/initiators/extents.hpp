// extents.hpp: a central engine's allocator: runs of 1, 2, 4, 8 or 16 blocks of the pool on a named SSD.
// Host; any thread (a mutex an SSD).
//
// A run lies in one chunk of the pool, so on one SSD, and is aligned to its length. Larger runs are split for
// smaller ones; halves are not joined again, since what a benchmark writes over has the size of what it
// writes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace gnstor::bench {

class Extents {
  public:
    static constexpr std::uint32_t kOrders = 5;  ///< runs of 2^0 .. 2^4 blocks
    static constexpr std::uint32_t kChunkBlocks = 16;
    static constexpr std::uint32_t kNone = 0xFFFFFFFFu;

    /// `ssd_of_chunk[c]`: which SSD holds blocks 16c .. 16c + 15 of the pool.
    Extents(std::vector<std::uint8_t> ssd_of_chunk, std::uint32_t ssds)
        : ssd_of_chunk_(std::move(ssd_of_chunk)) {
        for (std::uint32_t i = 0; i < ssds; ++i) ssds_.push_back(std::make_unique<Ssd>());
        for (std::size_t c = ssd_of_chunk_.size(); c-- > 0;)
            ssds_[ssd_of_chunk_[c]]->free[kOrders - 1].push_back(static_cast<std::uint32_t>(c) *
                                                                 kChunkBlocks);
    }

    /// First block of a run of 2^order, or kNone.
    [[nodiscard]] std::uint32_t take(std::uint32_t ssd, std::uint32_t order) {
        Ssd& s = *ssds_[ssd];
        const std::lock_guard lock(s.mutex);
        std::uint32_t from = order;
        while (from < kOrders && s.free[from].empty()) ++from;
        if (from == kOrders) return kNone;
        const std::uint32_t first = s.free[from].back();
        s.free[from].pop_back();
        // What is left over, in halves from the end.
        while (from > order) {
            --from;
            s.free[from].push_back(first + (1u << from));
        }
        return first;
    }
    void give(std::uint32_t first, std::uint32_t order) {
        Ssd& s = *ssds_[ssd_of(first)];
        const std::lock_guard lock(s.mutex);
        s.free[order].push_back(first);
    }
    /// Up to `count` runs onto the end of `to`, under one lock; runs of other lengths are split for one only.
    void take_some(std::uint32_t ssd, std::uint32_t order, std::size_t count,
                   std::vector<std::uint32_t>& to) {
        {
            Ssd& s = *ssds_[ssd];
            const std::lock_guard lock(s.mutex);
            for (; count != 0 && !s.free[order].empty(); --count) {
                to.push_back(s.free[order].back());
                s.free[order].pop_back();
            }
        }
        if (!to.empty()) return;
        if (const std::uint32_t first = take(ssd, order); first != kNone) to.push_back(first);
    }
    /// The last `count` of `from`, all of one SSD, under one lock.
    void give_some(std::uint32_t ssd, std::uint32_t order, std::size_t count,
                   std::vector<std::uint32_t>& from) {
        Ssd& s = *ssds_[ssd];
        const std::lock_guard lock(s.mutex);
        for (; count != 0 && !from.empty(); --count) {
            s.free[order].push_back(from.back());
            from.pop_back();
        }
    }
    [[nodiscard]] std::uint32_t ssd_of(std::uint32_t block) const {
        return ssd_of_chunk_[block / kChunkBlocks];
    }
    [[nodiscard]] std::uint32_t ssds() const { return static_cast<std::uint32_t>(ssds_.size()); }
    /// Blocks that nobody has.
    [[nodiscard]] std::uint64_t free_blocks() const {
        std::uint64_t all = 0;
        for (const auto& s : ssds_) {
            const std::lock_guard lock(s->mutex);
            for (std::uint32_t o = 0; o < kOrders; ++o) all += std::uint64_t{s->free[o].size()} << o;
        }
        return all;
    }

  private:
    struct alignas(64) Ssd {
        mutable std::mutex mutex;
        std::vector<std::uint32_t> free[kOrders];  // guarded by `mutex`
    };
    const std::vector<std::uint8_t> ssd_of_chunk_;
    std::vector<std::unique_ptr<Ssd>> ssds_;
};

/// One thread's own stock of runs, so that most requests need no lock: filled and emptied in batches.
class ExtentStock {
  public:
    explicit ExtentStock(Extents& extents) : extents_(extents), runs_(extents.ssds() * Extents::kOrders) {}

    [[nodiscard]] std::uint32_t take(std::uint32_t ssd, std::uint32_t order) {
        std::vector<std::uint32_t>& runs = runs_[ssd * Extents::kOrders + order];
        if (runs.empty()) extents_.take_some(ssd, order, batch(order), runs);
        if (runs.empty()) return Extents::kNone;
        const std::uint32_t first = runs.back();
        runs.pop_back();
        return first;
    }
    void give(std::uint32_t first, std::uint32_t order) {
        const std::uint32_t ssd = extents_.ssd_of(first);
        std::vector<std::uint32_t>& runs = runs_[ssd * Extents::kOrders + order];
        if (runs.size() >= 2 * batch(order)) extents_.give_some(ssd, order, batch(order), runs);
        runs.push_back(first);
    }
    /// Blocks that a stock holds at most on one SSD, of one order.
    static constexpr std::uint32_t kBlocksMost = 128;

  private:
    static constexpr std::size_t batch(std::uint32_t order) { return std::size_t{32} >> order; }
    Extents& extents_;
    std::vector<std::vector<std::uint32_t>> runs_;  // by SSD and order
};

}  // namespace gnstor::bench
