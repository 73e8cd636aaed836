// fairness_test.cpp: lanes that press on a channel with far fewer credits than lanes take turns. Under a
// seeded scheduler that gives the processor to one lane at a time, at each atomic to any of them with the
// same chance; the test's NIC is one more of them. So a seed is a history, the same on every machine, and who
// was served when is counted in requests, not in time. Where atomics do not yield (no GN_TEST_WARPS) there is
// nothing to schedule, and no test here.
#include <gtest/gtest.h>

#if defined(GN_TEST_WARPS)
#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "gnor/left_runs.hpp"
#include "rdma/nic/completion_queue.hpp"
#include "support/count.hpp"

namespace gnstor::test {
namespace {

namespace mlx5 = rdma::mlx5;

/// Whose turn it is. All players are threads, of which one runs.
class TurnTable {
  public:
    TurnTable(std::uint32_t players, std::uint64_t seed) : random_(seed), waiting_(players) {
        for (std::uint32_t i = 0; i < players; ++i) live_.push_back(i);
    }
    /// Comes in, and waits for its first turn: that of the first player, once all have come.
    void enter(std::uint32_t me) {
        std::unique_lock lock(mutex_);
        if (++entered_ == waiting_.size()) give_to(live_.front());
        wait_for_turn(lock, me);
    }
    void pass(std::uint32_t me) {
        std::unique_lock lock(mutex_);
        const std::uint32_t next = live_[random_.below(live_.size())];
        if (next == me) return;
        give_to(next);
        wait_for_turn(lock, me);
    }
    void leave(std::uint32_t me) {
        std::lock_guard lock(mutex_);
        live_.erase(std::find(live_.begin(), live_.end(), me));
        if (!live_.empty()) give_to(live_[random_.below(live_.size())]);
    }

  private:
    void give_to(std::uint32_t next) {
        turn_ = next;
        waiting_[next].notify_one();
    }
    void wait_for_turn(std::unique_lock<std::mutex>& lock, std::uint32_t me) {
        waiting_[me].wait(lock, [this, me] { return turn_ == me; });
    }
    std::mutex mutex_;
    SplitMix64 random_;
    std::vector<std::condition_variable> waiting_;
    std::vector<std::uint32_t> live_;
    std::size_t entered_ = 0;
    std::uint32_t turn_ = ~0u;
};

class Player final : public simt::YieldHook {
  public:
    Player(TurnTable& table, std::uint32_t me) : table_(table), me_(me) {
        table_.enter(me_);
        simt::this_thread_yield_hook() = this;
    }
    ~Player() override {
        simt::this_thread_yield_hook() = nullptr;
        table_.leave(me_);
    }
    void on_atomic() override { table_.pass(me_); }

  private:
    TurnTable& table_;
    const std::uint32_t me_;
};

/// The NIC and the drive of one queue pair: answers each command, in order, with success and no data.
class AnsweringNic {
  public:
    explicit AnsweringNic(gnor::ChannelState& c)
        : c_(c),
          q_(c.queue(0)),
          responses_({.ring = c.completion_ring,
                      .entries = 1u << c.completion_entries_log2,
                      .consumer_record = c.consumer_record}) {
        rdma::prepare_completions(c_.completion_queue());
        std::copy_n(q_.doorbell_record, records_.size(), records_.begin());
    }
    /// As if nothing had happened, for the NIC that goes on.
    ~AnsweringNic() {
        std::copy(records_.begin(), records_.end(), q_.doorbell_record);
        *q_.bell = 0;
    }
    void look() {
        const std::uint32_t record =
            be32(simt::load_acquire<simt::Scope::kSystem>(q_.doorbell_record + mlx5::kSendRecord));
        if (((record - static_cast<std::uint32_t>(done_)) & mlx5::kIndexMask) == 0) return;
        const nvme::Command& command = q_.capsules[done_ % c_.depth];
        nvme::Completion answer{};
        answer.command_id = command.command_id;
        auto* const sent = const_cast<mlx5::Cqe64*>(q_.send_completion);
        const auto index = static_cast<std::uint16_t>(done_);
        rdma::release_last_words(sent, {0, mlx5::make_counter_own(index, mlx5::kCqeRequest << 4)});
        rdma::CompletionFields fields;
        fields.qpn = q_.qpn;
        fields.wqe_counter = index;
        fields.opcode = mlx5::kCqeSend;
        fields.bytes = sizeof(answer);
        fields.inline_data = reinterpret_cast<const std::byte*>(&answer);
        EXPECT_TRUE(responses_.write(fields));
        ++done_;
    }

  private:
    gnor::ChannelState& c_;
    gnor::QueueLane& q_;
    rdma::CompletionQueue responses_;
    std::array<std::uint32_t, 4> records_{};
    std::uint64_t done_ = 0;
};

/// Which lane's requests ended, in order.
using History = std::vector<std::uint32_t>;

History press(std::uint32_t lanes, std::uint32_t depth, std::uint32_t requests, std::uint64_t seed) {
    RigOptions o;
    o.ssds = o.replicas = 1;
    o.depth = depth;
    Rig rig(o);
    StandingStill real(*rig.reactor);
    const VolumeRef v = rig.volume();
    const ChannelRef ch = rig.channel();
    std::vector<void*> buffers;
    for (std::uint32_t i = 0; i < lanes; ++i) buffers.push_back(ch.alloc(simt::self(simt::Lane{}), 4096));
    History history;  // whoever has the turn
    {
        AnsweringNic nic(ch.state());
        TurnTable table(lanes + 1, seed);
        std::vector<std::thread> threads;
        for (std::uint32_t me = 0; me < lanes; ++me)
            threads.emplace_back([&, me] {
                const Player player(table, me);
                const auto self = simt::self(simt::Lane{});
                const Deadline late = Deadline::in_ns(kLong);
                while (history.size() < requests) {
                    EXPECT_EQ(v.read(self, ch, me * 16, 1, buffers[me], late), Status::kSuccess);
                    history.push_back(me);
                }
            });
        threads.emplace_back([&] {
            Player player(table, lanes);
            // Until all lanes are through with what they began.
            for (std::size_t over = 0; over < 4096;) {
                nic.look();
                over = history.size() < requests ? 0 : over + 1;
            }
        });
        for (auto& thread : threads) thread.join();
    }
    return history;
}

/// The most requests of others that ended between two of one lane, or before its first, or behind its last.
std::size_t longest_wait(const History& history, std::uint32_t lanes) {
    std::size_t longest = 0;
    for (std::uint32_t me = 0; me < lanes; ++me) {
        std::size_t since = 0;
        for (const std::uint32_t who : history) {
            since = who == me ? 0 : since + 1;
            longest = std::max(longest, since);
        }
    }
    return longest;
}

TEST(Fairness, LanesThatCompeteForFewCreditsAreServedInTurns) {
    constexpr std::uint32_t kLanes = 8, kRequests = 240;
    for (const std::uint32_t depth : {2u, 4u})
        for (const std::uint64_t seed : {1u, 2u, 3u}) {
            const History history = press(kLanes, depth, kRequests, seed);
            std::vector<std::size_t> each;
            for (std::uint32_t me = 0; me < kLanes; ++me)
                each.push_back(static_cast<std::size_t>(std::count(history.begin(), history.end(), me)));
            const auto [least, most] = std::minmax_element(each.begin(), each.end());
            const std::size_t wait = longest_wait(history, kLanes);
            std::printf(
                "  depth %u, seed %llu: %zu to %zu requests a lane, %zu of others at most between two\n",
                depth, static_cast<unsigned long long>(seed), *least, *most, wait);
            EXPECT_GE(*least * 3, history.size() / kLanes) << "a third of its share";
            EXPECT_LE(*most, 3 * history.size() / kLanes);
            EXPECT_LE(wait, kLanes * 8u);
            count("gnor_turns_of_lanes", history.size());
        }
}

TEST(Fairness, ASeedReplaysTheSameHistory) {
    EXPECT_EQ(press(5, 2, 60, 7), press(5, 2, 60, 7));
    EXPECT_NE(press(5, 2, 60, 7), press(5, 2, 60, 8));
}

}  // namespace
}  // namespace gnstor::test
#endif
