// block_table.hpp: a central engine's mapping table: where each block of each volume lies in the pool, and a
// lock a block. Host; any thread.
//
// The lock of a block is shared by requests that read it and held alone by one that writes it, for as long as
// the request is under way. Addresses of a block are read and changed only under its lock. Finer than the one
// lock of a conventional engine, in its favour: what is left of "the lock" is what no engine of this kind can
// do without.
#pragma once

#include <gnstor/placement/placement.hpp>

#include <atomic>
#include <cstdint>
#include <vector>

namespace gnstor::bench {

class BlockTable {
  public:
    static constexpr std::uint32_t kNowhere = 0xFFFFFFFFu;

    BlockTable(std::uint32_t volumes, std::uint32_t blocks_each, std::uint32_t replicas)
        : blocks_each_(blocks_each),
          replicas_(replicas),
          locks_(std::size_t{volumes} * blocks_each),
          addresses_(std::size_t{volumes} * blocks_each * replicas, kNowhere) {}

    [[nodiscard]] bool contains(std::uint32_t volume, std::uint32_t first, std::uint32_t count) const {
        return std::uint64_t{volume + 1} * blocks_each_ <= locks_.size() &&
               std::uint64_t{first} + count <= blocks_each_;
    }
    /// All of the blocks, or none. Never waits.
    [[nodiscard]] bool try_lock(std::uint32_t volume, std::uint32_t first, std::uint32_t count, bool write) {
        for (std::uint32_t i = 0; i < count; ++i) {
            if (try_lock_one(locks_[at(volume, first + i)], write)) continue;
            unlock(volume, first, i, write);
            return false;
        }
        return true;
    }
    void unlock(std::uint32_t volume, std::uint32_t first, std::uint32_t count, bool write) {
        for (std::uint32_t i = 0; i < count; ++i)
            // Release: pairs with the acquire of try_lock_one; the next owner of the lock sees the addresses.
            locks_[at(volume, first + i)].fetch_sub(write ? kWriter : 1, std::memory_order_release);
    }
    /// Under the block's lock.
    [[nodiscard]] std::uint32_t address(std::uint32_t volume, std::uint32_t block,
                                        std::uint32_t replica) const {
        return addresses_[at(volume, block) * replicas_ + replica];
    }
    /// Under the block's lock, for writing. Returns where it was.
    std::uint32_t exchange(std::uint32_t volume, std::uint32_t block, std::uint32_t replica,
                           std::uint32_t address) {
        std::uint32_t& there = addresses_[at(volume, block) * replicas_ + replica];
        const std::uint32_t before = there;
        there = address;
        return before;
    }

  private:
    static constexpr std::uint32_t kWriter = 0x80000000u;
    [[nodiscard]] std::size_t at(std::uint32_t volume, std::uint32_t block) const {
        return std::size_t{volume} * blocks_each_ + block;
    }
    static bool try_lock_one(std::atomic<std::uint32_t>& lock, bool write) {
        std::uint32_t seen = lock.load(std::memory_order_relaxed);
        while ((seen & kWriter) == 0 && (!write || seen == 0))
            // Acquire: pairs with the release of unlock.
            if (lock.compare_exchange_weak(seen, write ? kWriter : seen + 1, std::memory_order_acquire,
                                           std::memory_order_relaxed))
                return true;
        return false;
    }

    const std::uint32_t blocks_each_;
    const std::uint32_t replicas_;
    std::vector<std::atomic<std::uint32_t>> locks_;
    std::vector<std::uint32_t> addresses_;
};

}  // namespace gnstor::bench
