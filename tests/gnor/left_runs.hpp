// left_runs.hpp: the cases of left_cases.hpp against model drives, for CPU and GPU lanes alike: what the host
// does before, between and after the kernels.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "gnor/hang_runs.hpp"
#include "gnor/left_cases.hpp"

namespace gnstor::test {

/// Keeps the thread of NIC and drives from doing anything until resume() or its end: as if the NIC stood
/// still. One host thread.
class StandingStill {
  public:
    explicit StandingStill(Reactor& reactor) : thread_([this, &reactor] { hold(reactor); }) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return held_; });
    }
    ~StandingStill() { resume(); }
    void resume() {
        {
            std::lock_guard lock(mutex_);
            over_ = true;
        }
        changed_.notify_all();
        if (thread_.joinable()) thread_.join();
    }

  private:
    void hold(Reactor& reactor) {
        reactor.run([this] {
            std::unique_lock lock(mutex_);
            held_ = true;
            changed_.notify_all();
            changed_.wait(lock, [this] { return over_; });
        });
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    bool held_ = false, over_ = false;
    std::thread thread_;  // the last: it uses the others
};

/// Kernels end with callbacks and buffers that nobody takes back; the host gives both up, ends what drives
/// still owe, and the channels serve as if nothing had been. `launch` runs a kernel on all lanes.
template <class Launch>
void run_with_callbacks_left_behind(Bench& b, std::uint32_t rounds, Launch launch) {
    auto memory = simt::DeviceMemory::allocate(sizeof(std::uint64_t), b.rig.options.lanes).value();
    const auto calls = [&memory] {
        std::uint64_t n = 0;
        memory.download(0, &n, sizeof(n)).value();
        return n;
    };
    for (std::uint32_t round = 0; round < rounds; ++round) {
        for (auto& d : b.rig.drives)
            d->set_rule([n = 0u](const auto&, const auto&) mutable {
                return Decision{++n % 3 == 0 ? Decision::kNever : Decision::kServe, {}, n % 4};
            });
        launch(LanesThatLeaveCallbacks{b.common, memory.lane_as<std::uint64_t>()});
        std::uint32_t dropped = 0;
        for (auto& c : b.rig.channels) dropped += c->drop_callbacks().value();
        EXPECT_GT(dropped, 0u);
        const std::uint64_t before = calls();
        reclaim_all(b.rig);
        for (auto& d : b.rig.drives) d->set_rule({});
        std::uint32_t freed = 0;
        for (auto& c : b.rig.channels) {
            const auto left = c->free_left_buffers().value();
            EXPECT_EQ(left.in_use, 0u);
            freed += left.freed;
        }
        EXPECT_GT(freed, 0u);
        b.rig.expect_clean();
        launch(WarpsComeAndGo{b.common, 2});
        EXPECT_EQ(calls(), before) << "a cancelled callback ran";
        b.rig.expect_clean();
    }
}

/// Lanes drop their tokens while some drives' answers are missing. Returns how many buffers were held then.
inline std::uint64_t run_with_dropped_tokens(const RigOptions& options, std::uint32_t blocks,
                                             std::uint32_t threads) {
    Bench b(options, 1, 64);
    const std::uint32_t lanes = blocks * threads;
    auto memory = simt::DeviceMemory::allocate(std::size_t{lanes} * 8, options.lanes).value();
    const KeptBuffers kept{memory.lane_as<std::uint64_t>()};
    for (auto& d : b.rig.drives)
        d->set_rule([n = 0u](const auto&, const auto&) mutable {
            return Decision{++n % 2 == 0 ? Decision::kNever : Decision::kServe, {}, 0};
        });
    b.launch(blocks, threads, LanesThatDropTokens{b.common, kept});
    b.expect_good(std::uint64_t{lanes} * 2);
    for (auto& c : b.rig.channels) EXPECT_EQ(c->usage().value().commands_with_tokens, 0u);
    std::vector<std::uint64_t> held(lanes);
    memory.download(0, held.data(), held.size() * 8).value();
    for (auto& d : b.rig.drives) d->set_rule({});
    // Until all are there and answered: a command may be on its way to its drive.
    const Deadline end = Deadline::in_ns(kLong);
    for (auto& c : b.rig.channels) {
        bool quiet = false;
        while (!quiet && !end.passed()) {
            for (auto& d : b.rig.drives) d->answer_kept();
            quiet = c->quiesce(Deadline::in_ns(kShort)).ok();
        }
        EXPECT_TRUE(quiet) << "a dropped command was never answered";
    }
    b.launch(blocks, threads, GiveKeptBack{b.common, kept});
    b.expect_good(std::uint64_t{lanes} * 2);
    b.rig.expect_clean();
    return lanes - static_cast<std::uint64_t>(std::count(held.begin(), held.end(), 0u));
}

enum class Silent { kNic, kDrives };

/// Nothing that lanes send is ever answered while they run. Afterwards a NIC that goes on brings the answers,
/// and commands that drives keep are ended by reclaim(); the same channels serve then. Returns how many calls
/// had something under way at their deadline.
inline std::uint64_t run_without_any_answer(const RigOptions& options, std::uint32_t blocks,
                                            std::uint32_t threads, Silent who) {
    Bench b(options, 1, 64);
    const std::uint32_t lanes = blocks * threads;
    auto memory = simt::DeviceMemory::allocate(std::size_t{lanes} * 8 + 8, options.lanes).value();
    const KeptBuffers kept{memory.lane_as<std::uint64_t>(8)};
    const LanesThatNobodyAnswers kernel{b.common, kept, memory.lane_as<std::uint64_t>(), 3, kShort};
    if (who == Silent::kNic) {
        StandingStill nic(*b.rig.reactor);
        b.launch(blocks, threads, kernel);  // ends though the NIC has not moved
        nic.resume();
        for (auto& c : b.rig.channels) c->quiesce(Deadline::in_ns(kLong)).value();
    } else {
        for (auto& d : b.rig.drives)
            d->set_rule([](const auto&, const auto&) { return Decision{Decision::kNever, {}, 0}; });
        b.launch(blocks, threads, kernel);
        for (auto& d : b.rig.drives) d->set_rule({});
        reclaim_all(b.rig);
    }
    b.expect_good(std::uint64_t{lanes} * 4);
    std::uint64_t timed_out = 0;
    memory.download(0, &timed_out, sizeof(timed_out)).value();
    b.launch(blocks, threads, GiveKeptBack{b.common, kept});
    b.rig.expect_clean();
    b.launch(blocks, threads, WarpsComeAndGo{b.common, 2});
    b.expect_good(std::uint64_t{lanes} * 4);
    b.rig.expect_clean();
    return timed_out;
}

/// Two kernels at a time, each on a stream of its own, use the same channels; then one more finds what all of
/// them wrote. `warps` of each, in blocks of `warps_per_block` of `lanes` lanes.
inline void run_kernels_side_by_side(const RigOptions& options, std::uint32_t pairs, std::uint32_t warps,
                                     std::uint32_t lanes, std::uint32_t warps_per_block = 1) {
    constexpr std::uint32_t kRounds = 6;
    using Kernel = WarpsOfOneKernelOfSeveral;
    Bench b(options, std::uint64_t{pairs} * 2 * warps, Kernel::kBlocksMost * 4096ull);
    const std::uint32_t blocks = warps / warps_per_block, threads = warps_per_block * lanes;
    for (std::uint32_t pair = 0; pair < pairs; ++pair) {
        const std::uint32_t first = pair * 2 * warps;
        auto one = simt::launch_async(options.lanes, blocks, threads, Kernel{b.common, first, kRounds});
        auto other =
            simt::launch_async(options.lanes, blocks, threads, Kernel{b.common, first + warps, kRounds});
        ASSERT_TRUE(one.ok() && other.ok());
        const auto ended = one->wait(Deadline::in_ns(kLong)), too = other->wait(Deadline::in_ns(kLong));
        ASSERT_TRUE(ended.ok()) << ended.error().message;
        ASSERT_TRUE(too.ok()) << too.error().message;
    }
    b.expect_good(std::uint64_t{pairs} * 2 * warps * kRounds * 3);
    b.launch(pairs * 2 * blocks, threads, WarpsThatFindWhatOthersWrote{b.common, kRounds});
    b.expect_good(std::uint64_t{pairs} * 2 * warps * (kRounds * 3 + 1));
    b.rig.expect_clean();
}

}  // namespace gnstor::test
