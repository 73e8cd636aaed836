// memory_table.cpp: see memory_table.hpp.
#include "rdma/nic/memory_table.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace gnstor::rdma {

namespace {
constexpr std::uint32_t kLatePinTries = 2000;  // of 50 us; a pin() with an old key takes ns
}

void MemoryRegion::unpin() noexcept {
    // Release: pairs with the loads of pins(): all accesses to the memory end before the count drops.
    add_to_mine(stripes_[my_stripe()].pins, std::int64_t{-1});
}

std::int64_t MemoryRegion::pins() const noexcept {
    // A pin and its unpin may be counted in different stripes, so one stripe may be negative. The sum is
    // exact once no new pin can succeed (the key is 0): all pins are then visible, and unpins only lower
    // the sum.
    std::int64_t sum = 0;
    for (const Stripe& stripe : stripes_) sum += stripe.pins.load(std::memory_order_seq_cst);
    return sum;
}

void MemoryTable::make_unpredictable() {
    const std::lock_guard lock(mutex_);
    random_.emplace();
    for (std::size_t left = free_.size(); left > 1; --left)
        std::swap(free_[left - 1], free_[random_->below(left)]);
    for (std::uint32_t i = 0; i < kRegions; ++i)
        regions_[i].generation_ = static_cast<std::uint8_t>(random_->next());
}

/// Under the mutex; no thread has the region pinned.
Result<MemoryKeys> MemoryTable::fill(std::uint32_t key, std::byte* base, std::size_t bytes,
                                     std::uint32_t access, std::byte* here) {
    MemoryRegion& region = regions_[index_of(key)];
    region.generation_ = static_cast<std::uint8_t>(key);
    region.base_ = base;
    region.bytes_ = bytes;
    region.here_ = here == nullptr ? 0 : here - base;
    region.access_.store(access, std::memory_order_relaxed);
    // Publishes the bounds: pairs with the load in pin().
    region.key_.store(key, std::memory_order_seq_cst);
    return MemoryKeys{key, key};
}

Result<MemoryKeys> MemoryTable::add_as(std::uint32_t key, std::byte* base, std::size_t bytes,
                                       std::uint32_t access, std::byte* here) {
    const std::uint32_t index = index_of(key);
    if (key >> 8 != index || (key & 0xFF) == 0)
        return error(Errc::kInvalidArgument,
                     "cannot register memory under key {:#x}: no region can have this key", key);
    std::unique_lock lock(mutex_);
    for (std::uint32_t tries = 0;; ++tries) {
        const auto at = std::ranges::find(free_, index);
        if (at == free_.end() || tries == kLatePinTries)
            return error(
                Errc::kExists,
                "cannot register memory under key {:#x}: another region has that key, or its index, already",
                key);
        if (regions_[index].pins() == 0) {
            free_.erase(at);
            return fill(key, base, bytes, access, here);
        }
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        lock.lock();
    }
}

Result<MemoryKeys> MemoryTable::add(void* base, std::size_t bytes, std::uint32_t access, std::byte* here,
                                    std::uint32_t key) {
    const auto address = reinterpret_cast<std::uintptr_t>(base);
    if (base == nullptr || bytes == 0 || address + bytes < address)
        return error(Errc::kInvalidArgument,
                     "cannot register {} bytes at {}: the range is empty or wraps around", bytes, base);
    if ((access & ~(kLocalWrite | kRemoteRead | kRemoteWrite)) != 0)
        return error(Errc::kInvalidArgument,
                     "cannot register memory with access rights {:#x}: some of these bits are unknown",
                     access);
    if (key != 0) return add_as(key, static_cast<std::byte*>(base), bytes, access, here);
    const std::lock_guard lock(mutex_);
    for (std::size_t left = free_.size(); left != 0; --left) {
        const std::uint32_t i = free_.front();
        free_.pop_front();
        MemoryRegion& region = regions_[i];
        // A late pin() with an old key may still read the region's fields: they must not change
        // meanwhile.
        if (region.pins() != 0) {
            free_.push_back(i);
            continue;
        }
        auto generation = static_cast<std::uint8_t>(region.generation_ + 1);
        if (generation == 0) generation = 1;  // key 0 stands for "none"
        const auto tag = static_cast<std::uint32_t>(random_ ? random_->next() : 0) << (kIndexBits + 8);
        return fill(tag | i << 8 | generation, static_cast<std::byte*>(base), bytes, access, here);
    }
    return error(Errc::kNoSpace,
                 "cannot register memory: all {} regions of the NIC are in use; deregister some", kRegions);
}

Result<void> MemoryTable::remove(MemoryKeys keys, std::uint32_t timeout_ms) {
    std::unique_lock lock(mutex_);
    const std::uint32_t index = index_of(keys.lkey);
    if (keys.lkey == 0 || regions_[index].key_.load(std::memory_order_relaxed) != keys.lkey)
        return error(Errc::kNotFound, "cannot deregister key {:#x}: no region has it", keys.lkey);
    MemoryRegion& region = regions_[index];
    // Sequentially consistent with pin(), which counts and then checks the key: either pin() sees key 0,
    // or the loop below sees its count.
    region.key_.store(0, std::memory_order_seq_cst);
    heavy_fence();
    // Unlocked while waiting: this index is not free, and the key is gone, so no other call can touch the
    // region.
    lock.unlock();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    while (region.pins() != 0) {
        if (std::chrono::steady_clock::now() >= deadline) {
            region.key_.store(keys.lkey, std::memory_order_seq_cst);
            return error(Errc::kBusy,
                         "cannot deregister key {:#x}: its memory is still in use after {} ms; reset the "
                         "queue pairs that use it",
                         keys.lkey, timeout_ms);
        }
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    lock.lock();
    free_.push_back(index);
    return {};
}

MemoryTable::Pin MemoryTable::pin(std::uint32_t key, std::uint64_t address, std::uint64_t bytes,
                                  std::uint32_t needed) noexcept {
    Pin result;
    if (key == 0) {
        result.fault = MemoryFault::kKey;
        return result;
    }
    MemoryRegion& region = regions_[index_of(key)];
    // A stale key is rejected before it is counted: remove() waits for a moment with no counts, and
    // threads preempted between count and check would leave it none. Relaxed: the key is checked again
    // below.
    if (region.key_.load(std::memory_order_relaxed) != key) {
        result.fault = MemoryFault::kKey;
        return result;
    }
    std::atomic<std::int64_t>& pins = region.stripes_[my_stripe()].pins;
    add_to_mine_first(pins, std::int64_t{1});
    // After the count (see remove); pairs with the store in fill(), which published the bounds.
    if (region.key_.load(std::memory_order_seq_cst) != key) {
        result.fault = MemoryFault::kKey;
    } else {
        const auto base = reinterpret_cast<std::uint64_t>(region.base_);
        if (address < base || bytes > region.bytes_ || address - base > region.bytes_ - bytes)
            result.fault = MemoryFault::kBounds;
        else if ((region.access_.load(std::memory_order_relaxed) & needed) != needed)
            result.fault = MemoryFault::kRights;
    }
    if (result.fault != MemoryFault::kNone) {
        add_to_mine(pins, std::int64_t{-1});
        return result;
    }
    result.region = &region;
    result.data = reinterpret_cast<std::byte*>(address) + region.here_;
    return result;
}

bool MemoryTable::invalidate(std::uint32_t rkey) noexcept {
    if (rkey == 0) return false;
    MemoryRegion& region = regions_[index_of(rkey)];
    if (region.key_.load(std::memory_order_seq_cst) != rkey) return false;
    region.access_.fetch_and(kLocalWrite, std::memory_order_relaxed);
    return true;
}

}  // namespace gnstor::rdma
