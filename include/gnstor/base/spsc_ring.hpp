// spsc_ring.hpp: a bounded queue from one thread to one other. Host code.
//
// Invariants
//   * one thread pushes, one thread pops (another thread may take over a side only if it is synchronised with
//     the one before);
//   * head <= tail <= head + capacity; both only grow (64 bits never wrap in practice);
//   * each side owns one index and keeps a stale copy of the other's, so that it touches the other's cache
//     line only when the ring looks full (producer) or empty (consumer).
// No allocation after construction.
#pragma once

#include <gnstor/base/result.hpp>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

namespace gnstor {

template <class T>
class SpscRing {
    static_assert(std::is_trivially_copyable_v<T>,
                  "a ring copies its values as raw bytes: their type must be trivially copyable");

  public:
    /// `capacity`: a power of two, 2 to 2^24 entries.
    static Result<std::unique_ptr<SpscRing>> create(std::size_t capacity) {
        if (!std::has_single_bit(capacity) || capacity < 2 || capacity > (std::size_t{1} << 24))
            return error(Errc::kInvalidArgument,
                         "a ring cannot have {} entries; use a power of two from 2 to 2^24", capacity);
        return std::make_unique<SpscRing>(Private{}, capacity);
    }

  private:
    struct Private {};

  public:
    SpscRing(Private, std::size_t capacity) : slots_(new T[capacity]), mask_(capacity - 1) {}
    SpscRing(const SpscRing&) = delete;
    SpscRing& operator=(const SpscRing&) = delete;

    [[nodiscard]] std::size_t capacity() const noexcept { return mask_ + 1; }

    /// Producer. False: full.
    [[nodiscard]] bool try_push(const T& value) noexcept { return push_some(std::span(&value, 1)) == 1; }

    /// Producer. Pushes as many of `values`, in order, as there is room for; one publication. Returns how
    /// many.
    [[nodiscard]] std::size_t push_some(std::span<const T> values) noexcept {
        const std::uint64_t tail = producer_.tail.load(std::memory_order_relaxed);  // own word
        std::uint64_t room = capacity() - (tail - producer_.head_seen);
        if (room < values.size()) {
            // Acquire: the consumer's copies out of these slots are over (its release in pop_some).
            producer_.head_seen = consumer_.head.load(std::memory_order_acquire);
            room = capacity() - (tail - producer_.head_seen);
        }
        const std::size_t n = values.size() < room ? values.size() : static_cast<std::size_t>(room);
        for (std::size_t i = 0; i < n; ++i) slots_[(tail + i) & mask_] = values[i];
        // Release: publishes the slots; pairs with the acquire of tail in pop_some.
        if (n != 0) producer_.tail.store(tail + n, std::memory_order_release);
        return n;
    }

    /// Consumer. False: empty.
    [[nodiscard]] bool try_pop(T& value) noexcept { return pop_some(std::span(&value, 1)) == 1; }

    /// Consumer. Pops up to values.size() entries, oldest first; returns how many.
    [[nodiscard]] std::size_t pop_some(std::span<T> values) noexcept {
        const std::uint64_t head = consumer_.head.load(std::memory_order_relaxed);  // own word
        std::uint64_t ready = consumer_.tail_seen - head;
        if (ready < values.size()) {
            // Acquire: pairs with the producer's release of tail, so the slots below it are complete.
            consumer_.tail_seen = producer_.tail.load(std::memory_order_acquire);
            ready = consumer_.tail_seen - head;
        }
        const std::size_t n = values.size() < ready ? values.size() : static_cast<std::size_t>(ready);
        for (std::size_t i = 0; i < n; ++i) values[i] = slots_[(head + i) & mask_];
        // Release: the copies are over, the producer may overwrite (its acquire of head).
        if (n != 0) consumer_.head.store(head + n, std::memory_order_release);
        return n;
    }

    /// Any thread; outdated as soon as it is read: for counters, not for decisions.
    [[nodiscard]] std::size_t size_now() const noexcept {
        const std::uint64_t head = consumer_.head.load(std::memory_order_relaxed);
        const std::uint64_t tail = producer_.tail.load(std::memory_order_relaxed);
        return tail > head ? static_cast<std::size_t>(tail - head) : 0;
    }

  private:
    static constexpr std::size_t kCacheLine = 64;
    struct alignas(kCacheLine) Producer {
        std::atomic<std::uint64_t> tail{0};
        std::uint64_t head_seen = 0;
    };
    struct alignas(kCacheLine) Consumer {
        std::atomic<std::uint64_t> head{0};
        std::uint64_t tail_seen = 0;
    };
    Producer producer_;
    Consumer consumer_;
    std::unique_ptr<T[]> slots_;
    std::size_t mask_;
};

}  // namespace gnstor
