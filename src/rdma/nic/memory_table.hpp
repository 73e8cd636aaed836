// memory_table.hpp: the NIC's memory regions: keys, bounds, rights, and counts of current users (pins).
//
// Invariants
//   * a key is (tag << 18 | index << 8 | generation); the key of an index is 0 while nothing is registered
//     there. The tag is 0, or random where packets name keys (make_unpredictable);
//   * the bounds of a region are written only while its key is 0 and no thread has it pinned;
//   * indices are reused in the order in which they became free, so that a revoked key is given out again
//     only after all others: with few regions in use, 250,000 registrations later;
//   * pin() succeeds only while the key is registered, and deregistration waits for all pins: so the NIC
//     touches memory only between a successful pin and its unpin.
// register/deregister: any host thread, under the table's mutex. pin/unpin: any thread, no locks.
#pragma once

#include <gnstor/base/result.hpp>

#include "base/random.hpp"
#include "rdma/nic/nic.hpp"
#include "rdma/nic/stripes.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

namespace gnstor::rdma {

/// One registered region. Pins are counted in stripes, one per thread where possible, so that threads do
/// not share cache lines.
class MemoryRegion {
  public:
    void unpin() noexcept;

  private:
    friend class MemoryTable;
    struct alignas(64) Stripe {
        std::atomic<std::int64_t> pins{0};
    };
    [[nodiscard]] std::int64_t pins() const noexcept;

    std::atomic<std::uint32_t> key_{0};
    std::atomic<std::uint32_t> access_{0};
    std::byte* base_ = nullptr;  ///< address in its owner's process
    std::size_t bytes_ = 0;
    std::ptrdiff_t here_ = 0;  ///< address in this process minus `base_`
    std::uint8_t generation_ = 0;
    Stripe stripes_[kStripes];
};

/// Why a range must not be accessed.
enum class MemoryFault : std::uint8_t { kNone, kKey, kBounds, kRights };

class MemoryTable {
  public:
    static constexpr std::uint32_t kRegions = 1024;

    MemoryTable() : regions_(std::make_unique<MemoryRegion[]>(kRegions)) {
        for (std::uint32_t i = 0; i < kRegions; ++i) free_.push_back(i);
    }

    /// Before the first add(): from now on keys are random in all their 32 bits, so that a sender of packets
    /// has to be told them. The order in which keys are given out again stays.
    void make_unpredictable();
    /// `here`: address of the memory in this process, if another process owns it; null: at `base`. `key`:
    /// the key to use (kExists: its index is taken), for an owner that keeps the order of free keys
    /// itself because it registers in several processes; 0: any.
    Result<MemoryKeys> add(void* base, std::size_t bytes, std::uint32_t access, std::byte* here = nullptr,
                           std::uint32_t key = 0);
    /// Waits until no pin is left, for at most `timeout_ms`; then returns kBusy and leaves the region
    /// registered.
    Result<void> remove(MemoryKeys keys, std::uint32_t timeout_ms);

    struct Pin {
        MemoryRegion* region = nullptr;
        std::byte* data = nullptr;
        MemoryFault fault = MemoryFault::kNone;
    };
    /// Pins [address, address + bytes) under `key` with the rights `needed`; on success unpin the region when
    /// done.
    [[nodiscard]] Pin pin(std::uint32_t key, std::uint64_t address, std::uint64_t bytes,
                          std::uint32_t needed) noexcept;
    /// SEND_WITH_INVALIDATE: removes the peer's rights to a region. False: no such key.
    bool invalidate(std::uint32_t rkey) noexcept;

  private:
    static constexpr std::uint32_t kIndexBits = 10;
    static_assert(kRegions == 1u << kIndexBits);
    static std::uint32_t index_of(std::uint32_t key) noexcept { return (key >> 8) & (kRegions - 1); }
    Result<MemoryKeys> fill(std::uint32_t key, std::byte* base, std::size_t bytes, std::uint32_t access,
                            std::byte* here);
    Result<MemoryKeys> add_as(std::uint32_t key, std::byte* base, std::size_t bytes, std::uint32_t access,
                              std::byte* here);

    std::mutex mutex_;
    std::unique_ptr<MemoryRegion[]> regions_;
    std::deque<std::uint32_t> free_;      ///< under the mutex
    std::optional<RandomSource> random_;  ///< of tags; under the mutex
};

}  // namespace gnstor::rdma
