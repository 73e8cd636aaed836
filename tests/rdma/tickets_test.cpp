// tickets_test.cpp: a completion ring that several processes fill, here threads with a view of it each:
// nothing is lost, nothing comes twice, whoever ends half way keeps nobody, and words that make no sense cost
// a bounded time.
#include <gtest/gtest.h>
#include <gnstor/base/hash.hpp>
#include <gnstor/rdma/poller.hpp>
#include <gnstor/simt/time.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "rdma/nic/completion_queue.hpp"
#include "rdma/rig.hpp"
#include "support/count.hpp"

namespace gnstor::rdma::test {
namespace {

constexpr std::uint32_t kEntriesLog2 = 5;
constexpr std::uint32_t kEntries = 1u << kEntriesLog2;
constexpr QpNumber kFirst = 0x100;
constexpr std::uint32_t kNobody = 0xFFFF;

/// The ring, with the consumer's side of it. `first`: the position that it begins at.
struct Ring {
    explicit Ring(std::uint64_t first = 0) {
        const CompletionQueueConfig config = this->config();
        prepare_ring(config);
        for (std::uint32_t i = 0; i < kEntries; ++i) words[i] = tickets::make(first + i - kEntries, 0);
        state.consumer = first;
        record = be32(static_cast<std::uint32_t>(first) & mlx5::kConsumerMask);
        prepare_completions(ref());
    }
    [[nodiscard]] CompletionQueueConfig config() {
        return {.ring = ring, .entries = kEntries, .consumer_record = &record, .tickets = words};
    }
    [[nodiscard]] CompletionQueueRef ref() { return {ring, &record, &state, kEntriesLog2}; }
    /// What has come since: numbers of queue pairs, with their counters and syndromes.
    struct Came {
        QpNumber qpn;
        std::uint16_t counter;
        std::uint8_t syndrome;
    };
    std::vector<Came> take() {
        std::vector<Came> all;
        (void)poll(simt::self(single_lane()), ref(), ReceiveSet{nullptr, 0}, [&](const Arrival& a) {
            all.push_back({a.qpn, a.wqe_counter, a.syndrome});
        });
        return all;
    }

    alignas(64) mlx5::Cqe64 ring[kEntries] = {};
    alignas(64) std::uint64_t words[kEntries] = {};
    alignas(64) std::uint32_t record = 0;
    CompletionQueueState state{};
};

CompletionFields receive_of(QpNumber qpn, std::uint64_t counter) {
    CompletionFields fields;
    fields.qpn = qpn;
    fields.wqe_counter = static_cast<std::uint16_t>(counter);
    fields.opcode = mlx5::kCqeSend;
    fields.bytes = 16;
    return fields;
}
CompletionFields flushed() {
    CompletionFields fields;
    fields.opcode = mlx5::kCqeResponseError;
    fields.syndrome = mlx5::kFlushed;
    return fields;
}

TEST(Tickets, NoCompletionOfSeveralWritersIsLostOrDuplicatedAndEachWritersOrderIsKept) {
    constexpr std::uint32_t kWriters = 4;
    constexpr std::uint64_t kEach = 30'000;
    constexpr std::uint32_t kRoom = kEntries / kWriters;  // receives of each
    // Begins where the tickets' positions wrap around soon.
    Ring ring((std::uint64_t{1} << tickets::kPositionBits) - 1000 * kEntries);
    std::atomic<std::uint64_t> consumed[kWriters] = {};
    std::atomic<std::uint32_t> refused{0};
    std::vector<std::thread> writers;
    for (std::uint32_t w = 0; w < kWriters; ++w)
        writers.emplace_back([&, w] {
            CompletionQueue queue(ring.config());
            for (std::uint64_t n = 0; n < kEach; ++n) {
                if (!eventually([&] { return n - consumed[w].load(std::memory_order_acquire) < kRoom; }) ||
                    !queue.write(receive_of(kFirst + w, n))) {
                    ++refused;
                    return;
                }
            }
        });
    std::uint64_t next[kWriters] = {};
    const bool whole = eventually([&] {
        for (const Ring::Came& came : ring.take()) {
            const std::uint32_t w = came.qpn - kFirst;
            if (w >= kWriters || came.counter != static_cast<std::uint16_t>(next[w])) return ++refused, true;
            consumed[w].store(++next[w], std::memory_order_release);
        }
        std::uint64_t all = 0;
        for (const std::uint64_t n : next) all += n;
        return all == kWriters * kEach;
    });
    EXPECT_TRUE(whole);
    EXPECT_EQ(refused.load(), 0u);
    for (auto& thread : writers) thread.join();
    gnstor::test::count("rdma_tickets_taken", kWriters * kEach);
}

TEST(Tickets, AWriterThatIsLateOrWasAwayForManyLapsFindsTheNextEntry) {
    Ring ring;
    CompletionQueue busy(ring.config()), idle(ring.config());
    ASSERT_TRUE(idle.write(receive_of(kFirst + 1, 0)));
    for (std::uint32_t i = 0; i < 10 * kEntries + 7; ++i) {
        ASSERT_TRUE(busy.write(receive_of(kFirst, i)));
        (void)ring.take();
    }
    CompletionQueue late(ring.config());
    ASSERT_TRUE(late.write(receive_of(kFirst + 2, 0)));
    ASSERT_TRUE(idle.write(receive_of(kFirst + 1, 1)));
    const auto came = ring.take();
    ASSERT_EQ(came.size(), 2u);
    EXPECT_EQ(came[0].qpn, kFirst + 2);
    EXPECT_EQ(came[1].qpn, kFirst + 1);
}

#if defined(GN_TEST_WARPS)  // where atomics have yield points (simt/yield.hpp)
/// Does something before the n-th atomic of this thread from now on.
class Before final : public simt::YieldHook {
  public:
    Before(std::uint32_t atomic, std::function<void()> act) : left_(atomic), act_(std::move(act)) {
        simt::this_thread_yield_hook() = this;
    }
    ~Before() override { simt::this_thread_yield_hook() = nullptr; }
    Before(const Before&) = delete;
    Before& operator=(const Before&) = delete;
    void on_atomic() override {
        if (--left_ != 0) return;
        simt::this_thread_yield_hook() = nullptr;
        act_();
    }

  private:
    std::uint32_t left_;
    std::function<void()> act_;
};

TEST(Tickets, AWriterOvertakenAtAnyStepTakesTheNextEntry) {
    for (const std::uint32_t overtaken_by : {1u, 2u, kEntries - 1, kEntries, 5 * kEntries + 3})
        for (const bool from_full : {false, true})
            for (std::uint32_t atomic = 1; atomic <= 24; ++atomic) {
                Ring ring;
                CompletionQueue slow(ring.config()), quick(ring.config());
                // `slow` knows the front, and in one case that the ring is full as far as it has looked.
                for (std::uint32_t i = 0; i < (from_full ? kEntries : 3); ++i)
                    ASSERT_TRUE(slow.write(receive_of(kFirst, i)));
                while (!ring.take().empty()) {
                }
                std::vector<Ring::Came> all;
                const auto look = [&] {
                    const auto came = ring.take();
                    all.insert(all.end(), came.begin(), came.end());
                    return !came.empty();
                };
                std::uint16_t passed = 0;
                {
                    const Before overtaken(atomic, [&] {
                        // Where `slow` has its place already, nobody gets more than a lap ahead of it.
                        for (; passed < overtaken_by && passed < all.size() + kEntries - 1; ++passed) {
                            EXPECT_TRUE(quick.write(receive_of(kFirst + 1, passed)));
                            (void)look();
                        }
                    });
                    ASSERT_TRUE(slow.write(receive_of(kFirst, 7))) << overtaken_by << " at " << atomic;
                }
                while (look()) {
                }
                ASSERT_EQ(all.size(), passed + 1u);
                std::uint16_t next = 0;
                for (const Ring::Came& came : all) EXPECT_EQ(came.counter, came.qpn == kFirst ? 7 : next++);
                EXPECT_EQ(next, passed);
            }
}

// The owner of the ring looks at what a writer that ended has left, while lanes consume and others go on.
TEST(Tickets, ACompletionOverwrittenWhileItIsReadIsNeitherAHoleNorAnError) {
    constexpr QpNumber kGone = kFirst + 9;
    std::uint32_t interrupted = 0;
    for (const bool counted : {false, true})
        for (std::uint32_t atomic = 1; atomic <= 3 * kEntries; ++atomic) {
            Ring ring;
            CompletionQueue mine(ring.config()), ends(ring.config()), lives(ring.config());
            for (std::uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(ends.write(receive_of(kGone, i)));
            std::uint32_t of_gone = 0;
            {
                const Before consumed(atomic, [&] {
                    ++interrupted;
                    for (const Ring::Came& came : ring.take()) of_gone += came.qpn == kGone ? 1 : 0;
                    CompletionFields fields = flushed();
                    fields.qpn = kFirst;
                    for (std::uint32_t i = 0; i < kEntries; ++i) ASSERT_TRUE(lives.write(fields));
                });
                if (counted)
                    ASSERT_EQ(mine.waiting_of(kGone).errors, 0u) << atomic;
                else
                    ASSERT_TRUE(mine.complete_for([](QpNumber qp) { return qp == kGone; }, flushed()).empty())
                        << atomic;
            }
            std::uint32_t of_living = 0;
            for (auto came = ring.take(); !came.empty(); came = ring.take())
                for (const Ring::Came& one : came) ++(one.qpn == kGone ? of_gone : of_living);
            ASSERT_EQ(of_gone, 3u);
            ASSERT_TRUE(of_living == 0 || of_living == kEntries) << of_living;
        }
    EXPECT_GT(interrupted, 2 * kEntries);
}

/// How many atomics a call takes, and something done before each.
class Counting final : public simt::YieldHook {
  public:
    explicit Counting(std::function<void()> also = [] {}) : also_(std::move(also)) {
        simt::this_thread_yield_hook() = this;
    }
    ~Counting() override { simt::this_thread_yield_hook() = nullptr; }
    Counting(const Counting&) = delete;
    Counting& operator=(const Counting&) = delete;
    void on_atomic() override {
        ++atomics;
        also_();
    }
    std::uint64_t atomics = 0;

  private:
    std::function<void()> also_;
};

TEST(Tickets, AWritersWorkIsIndependentOfTheRingSizeWhateverTheTickets) {
    constexpr std::uint32_t kMany = 1u << 18;
    SplitMix64 random(seed_from_environment(8));
    std::vector<std::uint64_t> words(kMany);
    std::uint32_t record = 0;
    std::uint64_t most = 0;
    const auto take = [&](std::uint32_t times) {
        const Counting count;
        tickets::Taker taker(words.data(), kMany, &record);
        std::uint64_t place = 0;
        std::uint32_t taken = 0;
        for (std::uint32_t i = 0; i < times; ++i) {
            const std::uint64_t before = i == 0 ? 0 : count.atomics;  // of the first, with finding the front
            taken += taker.take(kFirst, place) == tickets::Taker::Outcome::kTaken ? 1 : 0;
            most = std::max(most, count.atomics - before);
        }
        return taken;
    };
    // Where a newcomer's front is anywhere in the ring, it is found by halving.
    for (const std::uint32_t front : {0u, 1u, 77u, kMany / 2, kMany - 1}) {
        for (std::uint32_t i = 0; i < kMany; ++i)
            words[i] = tickets::make(kMany + i - (i < front ? 0 : kMany), 1);
        record = be32((kMany + front) & mlx5::kConsumerMask);
        most = 0;
        EXPECT_EQ(take(1), 1u) << front;
        EXPECT_LT(most, 30u) << front;
    }
    // Who was passed by many finds it again, too.
    {
        tickets::Taker slow(words.data(), kMany, &record), quick(words.data(), kMany, &record);
        record = be32((2 * kMany) & mlx5::kConsumerMask);
        std::uint64_t place = 0;
        for (std::uint32_t i = 0; i < 10'000; ++i)
            ASSERT_EQ(quick.take(kFirst, place), tickets::Taker::Outcome::kTaken);
        const Counting count;
        ASSERT_EQ(slow.take(kFirst, place), tickets::Taker::Outcome::kTaken);
        EXPECT_EQ(place, 2 * kMany + 10'000u);
        EXPECT_LT(count.atomics, 100u);
    }
    // Others are always faster, as it seems.
    {
        std::uint64_t word = 0, place = 0;
        const Counting count([&] { word += std::uint64_t{1} << tickets::kQpnBits; });
        tickets::Taker taker(&word, 1, &record);
        EXPECT_EQ(taker.take(kFirst, place), tickets::Taker::Outcome::kScribbled);
        EXPECT_LT(count.atomics, 12'000u);
    }
    most = 0;
    for (int round = 0; round < 200; ++round) {
        const std::uint64_t kind = random.below(3);
        for (std::uint32_t i = 0; i < kMany; i += kind == 2 ? 64 : 1)
            words[i] = kind == 0 ? random.next() : tickets::make(random.below(4 * kMany), kFirst);
        record = static_cast<std::uint32_t>(random.next());
        (void)take(3);
    }
    EXPECT_LT(most, 12'000u);
}
#endif

TEST(Tickets, AWriterThatFindsTheRingFullReportsAnOverrunAndOverwritesNothing) {
    Ring ring;
    CompletionQueue one(ring.config()), other(ring.config());
    for (std::uint32_t i = 0; i < kEntries; ++i)
        ASSERT_TRUE((i % 2 == 0 ? one : other).write(receive_of(kFirst, i)));
    EXPECT_FALSE(one.write(receive_of(kFirst, kNobody)));
    EXPECT_TRUE(one.overrun());
    std::uint32_t next = 0;
    while (true) {
        const auto came = ring.take();
        if (came.empty()) break;
        for (const auto& each : came) EXPECT_EQ(each.counter, next++);
    }
    EXPECT_EQ(next, kEntries);
    EXPECT_TRUE(other.write(receive_of(kFirst, 1)))
        << "there is room again, and it has not met the end of it";
    EXPECT_FALSE(one.write(receive_of(kFirst, 1))) << "an overrun must persist";
}

TEST(Tickets, AnEntryReservedByAnEndedWriterIsCompletedForIt) {
    constexpr QpNumber kGone = kFirst + 9;
    SplitMix64 random(seed_from_environment(5));
    std::uint64_t holes = 0;
    Ring ring;
    CompletionQueue mine(ring.config()), lives(ring.config());
    std::uint16_t next = 0;
    for (int round = 0; round < 2000; ++round) {
        // A fresh process that ends: some completions, then perhaps a place without one, with words half
        // written.
        CompletionQueue ends(ring.config());
        tickets::Taker dies(ring.words, kEntries, &ring.record);
        std::uint32_t of_gone = 0, of_living = 0;
        for (std::uint64_t i = random.below(6); i != 0; --i) {
            ASSERT_TRUE(ends.write(receive_of(kGone, i)));
            if (random.below(2) == 0) {
                ++of_living;
                ASSERT_TRUE(lives.write(receive_of(kFirst, next++)));
            }
            ++of_gone;
        }
        const bool hole = random.below(3) != 0;
        std::uint64_t at = 0;
        if (hole) {
            ASSERT_EQ(dies.take(kGone, at), tickets::Taker::Outcome::kTaken);
            if (random.below(2) == 0) ring.ring[at & (kEntries - 1)].inline_data[3] = 0x1234;
        }
        for (std::uint64_t i = random.below(6); i != 0; --i) {
            ++of_living;
            ASSERT_TRUE(lives.write(receive_of(kFirst, next++)));
        }
        if (random.below(2) == 0) {  // lanes get so far, and no farther
            for (const auto& came : ring.take()) came.qpn == kGone ? --of_gone : --of_living;
            EXPECT_EQ(mine.waiting_of(kGone).completions, of_gone + (hole ? 1 : 0));
        }
        const auto written = mine.complete_for([](QpNumber qp) { return qp == kGone; }, flushed());
        ASSERT_EQ(written.size(), hole ? 1u : 0u);
        ASSERT_TRUE(mine.complete_for([](QpNumber qp) { return qp == kGone; }, flushed()).empty());
        std::uint32_t errors = 0;
        while (true) {
            const auto all = ring.take();
            if (all.empty()) break;
            for (const auto& came : all) {
                errors += came.syndrome == mlx5::kFlushed ? 1 : 0;
                if (came.syndrome != mlx5::kFlushed) came.qpn == kGone ? --of_gone : --of_living;
            }
        }
        ASSERT_EQ(errors, hole ? 1u : 0u);
        ASSERT_EQ(of_gone + of_living, 0u);
        ASSERT_EQ(mine.waiting_of(kGone).completions, 0u);
        holes += hole ? 1 : 0;
    }
    gnstor::test::count("rdma_tickets_holes", holes);
}

TEST(Tickets, AQueueIsSettledOnceNoEntryBeforeItsNewestCompletionIsOpen) {
    // Also where the consumer's record, of 24 bits, begins anew.
    for (const std::uint64_t lap : {0u, 5u, (1u << 24) / kEntries - 1}) {
        Ring ring(lap * kEntries);
        CompletionQueue one(ring.config()), other(ring.config()), mine(ring.config());
        const auto write = [&](CompletionQueue& queue, QpNumber qp) {
            EXPECT_TRUE(queue.write(receive_of(qp, 0)));
        };
        for (std::uint32_t i = 0; i < kEntries - 3; ++i) write(other, kFirst + 2);
        while (!ring.take().empty()) {
        }
        EXPECT_TRUE(mine.is_settled(kFirst)) << "nothing came yet";
        write(one, kFirst);
        EXPECT_TRUE(mine.is_settled(kFirst));
        tickets::Taker stands(ring.words, kEntries, &ring.record);
        std::uint64_t hole = 0;
        ASSERT_EQ(stands.take(kFirst + 1, hole), tickets::Taker::Outcome::kTaken);
        EXPECT_TRUE(mine.is_settled(kFirst)) << "the place lies behind its newest";
        EXPECT_FALSE(mine.is_settled(kFirst + 1)) << "it is its own";
        write(other, kFirst + 2);
        EXPECT_TRUE(mine.is_settled(kFirst));
        EXPECT_FALSE(mine.is_settled(kFirst + 2));
        write(one, kFirst);
        EXPECT_FALSE(mine.is_settled(kFirst)) << "it has one behind the place now";
        while (!ring.take().empty()) {
        }
        EXPECT_FALSE(mine.is_settled(kFirst)) << "lanes got as far as the place";
        EXPECT_EQ(mine.complete_for([](QpNumber qp) { return qp == kFirst + 1; }, flushed()).size(), 1u);
        for (const QpNumber qp : {kFirst, kFirst + 1, kFirst + 2}) EXPECT_TRUE(mine.is_settled(qp));
        while (!ring.take().empty()) {
        }
        for (std::uint32_t i = 0; i < 3 * kEntries; ++i) {
            write(other, kFirst + 2);
            (void)ring.take();
        }
        ASSERT_EQ(stands.take(kFirst + 1, hole), tickets::Taker::Outcome::kTaken);
        EXPECT_TRUE(mine.is_settled(kFirst)) << "all of its own was consumed laps ago";
    }
}

TEST(Tickets, OverwrittenTicketsEndOnlyTheirOwnQueue) {
    SplitMix64 random(seed_from_environment(6));
    auto ring = std::make_unique<Ring>();
    std::uint32_t taken = 0, ended = 0;
    for (int round = 0; round < 300; ++round) {
        CompletionQueue queue(ring->config());
        ring->record = static_cast<std::uint32_t>(random.next());
        for (std::uint64_t& word : ring->words)
            word = random.below(2) == 0 ? random.next() : tickets::make(random.below(4 * kEntries), kFirst);
        (queue.write(receive_of(kFirst, 0)) ? taken : ended) += 1;
        (void)queue.complete_for([](QpNumber qp) { return qp == kFirst; }, flushed());
        (void)queue.waiting_of(kFirst);
    }
    EXPECT_GT(ended, 100u) << taken;
}

}  // namespace
}  // namespace gnstor::rdma::test
