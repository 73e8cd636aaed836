// pins_test.cpp: memory that was deregistered is touched by nobody, whatever threads pin it meanwhile: those
// with a stripe of their own, those that share one, and threads that come and go.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "rdma/nic/memory_table.hpp"
#include "support/count.hpp"

namespace gnstor::rdma {
namespace {

constexpr std::uint32_t kRemovals = 10'000;
constexpr std::uint32_t kRemoveMs = 10'000;

struct Memory {
    std::byte bytes[64] = {};
    std::atomic<bool> given_back{false};
};

/// Stores to lines that are in no cache: the count of a pin waits behind them, while loads go ahead.
class Ballast {
  public:
    void store_some() {
        for (std::uint32_t i = 0; i < 16; ++i) {
            at_ = at_ * 6364136223846793005ull + 1442695040888963407ull;
            bytes_[(at_ >> 33) % bytes_.size()] = 1;
        }
    }

    std::uint32_t uses = 0;

  private:
    std::vector<std::uint8_t> bytes_ = std::vector<std::uint8_t>(std::size_t{16} << 20);
    std::uint64_t at_ = 1;
};

/// One region that is registered and taken back again and again, and threads that use whatever key it has.
class Fought {
  public:
    /// Pins once; counts what should not be.
    void use(Ballast& ballast) {
        ballast.store_some();
        // So that a machine of two cores runs the remover more than once a time slice.
        if (++ballast.uses % 256 == 0) std::this_thread::yield();
        const std::uint32_t key = key_.load(std::memory_order_relaxed);
        const MemoryTable::Pin pin =
            table_.pin(key, reinterpret_cast<std::uint64_t>(memory_.bytes), 64, kLocalWrite);
        if (pin.fault != MemoryFault::kNone) {
            std::this_thread::yield();  // a machine of two cores runs the remover too
            return;
        }
        for (std::uint32_t looks = 0; looks < 8; ++looks)
            if (memory_.given_back.load(std::memory_order_relaxed)) ++touched_;
        ++pinned_;
        pin.region->unpin();
    }
    void register_once() {
        memory_.given_back.store(false, std::memory_order_relaxed);
        const auto keys = table_.add(memory_.bytes, 64, kLocalWrite);
        ASSERT_TRUE(keys.ok());
        keys_ = *keys;
        key_.store(keys_.lkey, std::memory_order_release);
    }
    void take_back() {
        const auto removed = table_.remove(keys_, kRemoveMs);
        ASSERT_TRUE(removed.ok()) << removed.error().message;
        memory_.given_back.store(true, std::memory_order_relaxed);
    }
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> touched_{0}, pinned_{0};

  private:
    MemoryTable table_;
    Memory memory_;
    MemoryKeys keys_{};
    std::atomic<std::uint32_t> key_{0};
};

/// So many threads at once, each ending after `uses` uses and beginning anew; 0: at the end.
void fight(std::uint32_t threads_at_once, std::uint32_t uses, std::uint32_t removals) {
    Fought fought;
    std::atomic<std::uint64_t> begun{0};
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < threads_at_once; ++i)
        threads.emplace_back([&] {
            Ballast ballast;
            while (!fought.stop.load(std::memory_order_relaxed)) {
                ++begun;
                const auto work = [&] {
                    for (std::uint32_t n = 0;
                         (uses == 0 || n < uses) && !fought.stop.load(std::memory_order_relaxed); ++n)
                        fought.use(ballast);
                };
                if (uses == 0)
                    work();
                else
                    std::thread(work).join();
            }
        });
    while (begun < threads_at_once) std::this_thread::yield();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    std::uint32_t done = 0;
    for (; done < removals && std::chrono::steady_clock::now() < deadline; ++done) {
        fought.register_once();
        const std::uint64_t before = fought.pinned_.load(std::memory_order_relaxed);
        for (std::uint32_t looks = 0; looks < 100 && fought.pinned_ == before; ++looks)
            std::this_thread::yield();
        fought.take_back();
        if (::testing::Test::HasFatalFailure()) break;
    }
    fought.stop = true;
    for (std::thread& thread : threads) thread.join();
    std::printf("%u removals under %llu pins by %llu threads\n", done,
                static_cast<unsigned long long>(fought.pinned_.load()),
                static_cast<unsigned long long>(begun.load()));
    EXPECT_EQ(fought.touched_, 0u) << "used after it was given back";
    EXPECT_GT(fought.pinned_, 0u);
    gnstor::test::count("rdma_removals_fought", done);
}

TEST(Pins, NoThreadTouchesDeregisteredMemory) {
    fight(3, 0, kRemovals);
}

TEST(Pins, NoThreadTouchesDeregisteredMemoryWithMoreThreadsThanStripes) {
    fight(kStripes + 8, 0, 50);
}

TEST(Pins, NoThreadTouchesDeregisteredMemoryWhileThreadsStartAndEnd) {
    fight(3, 50, kRemovals / 10);
}

TEST(MemoryTable, OthersRegisterWhileARemovalWaitsForItsLastPin) {
    MemoryTable table;
    Memory one, other;
    const auto keys = table.add(one.bytes, 64, kLocalWrite).value();
    const auto at = reinterpret_cast<std::uint64_t>(one.bytes);
    const MemoryTable::Pin pin = table.pin(keys.lkey, at, 64, kLocalWrite);
    ASSERT_EQ(pin.fault, MemoryFault::kNone);
    bool removed = false;
    std::thread remover([&] { removed = table.remove(keys, kRemoveMs).ok(); });
    for (;;) {  // until it has begun
        const MemoryTable::Pin late = table.pin(keys.lkey, at, 64, kLocalWrite);
        if (late.fault != MemoryFault::kNone) break;
        late.region->unpin();
        std::this_thread::yield();
    }
    const auto more = table.add(other.bytes, 64, kLocalWrite);
    ASSERT_TRUE(more.ok());
    EXPECT_NE(more->lkey >> 8, keys.lkey >> 8) << "its place is not free";
    EXPECT_FALSE(table.remove(keys, kRemoveMs).ok()) << "the region is already being removed";
    EXPECT_TRUE(table.remove(*more, kRemoveMs).ok());
    pin.region->unpin();
    remover.join();
    EXPECT_TRUE(removed) << "the removal must end in time";
}

}  // namespace
}  // namespace gnstor::rdma
