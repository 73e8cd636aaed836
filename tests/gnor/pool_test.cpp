// pool_test.cpp: a channel's pool under many lanes: CPU lanes and test warps; growth under running lanes, by
// a host thread that grows the pool as the client would; what holds when nothing is left.
#include <gtest/gtest.h>

#include <thread>

#include "gnor/pool_bench.hpp"
#include "support/count.hpp"

namespace gnstor::test {
namespace {

TEST(PoolLanes, ManyLanesGetNoBlockTwiceAndLoseNone) {
    PoolBench b(pool_options());
    b.launch(64, 4, PoolMix{b.common, b.owners(), 300, 256, 0});
    b.expect_whole(64 * 4 * 250);
    count("gnor_pool_lane_operations", b.report().operations);
}

TEST(PoolLanes, WaitingLanesAllGetMemory) {
    PoolBench b(pool_options(1u << 20));
    b.launch(32, 1, PoolMix{b.common, b.owners(), 40, 4, kLong}, 2);
    b.expect_whole(32 * 40);
}

TEST(PoolLanes, GroupsOfOneTakeTogether) {
    PoolBench b(pool_options());
    b.launch(32, 1, PoolEach{b.common, b.owners(), 100});
    b.expect_whole(32 * 100);
}

class PoolTestWarps : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Width, PoolTestWarps, ::testing::Values(1u, 7u, 32u));

TEST_P(PoolTestWarps, DivergingLanesGetNoBlockTwiceAndLoseNone) {
    PoolBench b(pool_options(1u << 20));
    b.test_warps(2, GetParam(), PoolMix{b.common, b.owners(), 60, 64, 0});
    b.expect_whole(2 * GetParam() * 60);
    count("gnor_pool_warp_operations", b.report().operations);
}
TEST_P(PoolTestWarps, NoAllocationFailsWhileOthersSplitAndMergeBlocks) {
    for (const std::uint32_t blocks : {1u, 7u, 8u, 16u, 40u, 64u}) {
        // One lane's share more than all of them take.
        PoolBench b(pool_options((GetParam() + 1) * ((blocks + 63) / 64) * (256u << 10)));
        b.test_warps(1, GetParam(), PoolFits{b.common, 40, blocks});
        b.expect_whole(GetParam() * 80);
        count("gnor_pool_warp_operations", b.report().operations);
    }
}
TEST_P(PoolTestWarps, EachMemberGetsItsOwnBuffer) {
    PoolBench b(pool_options(1u << 20));
    b.test_warps(3, GetParam(), PoolEach{b.common, b.owners(), 20});
    b.expect_whole(3 * GetParam() * 20);
    count("gnor_pool_warp_operations", b.report().operations);
}

/// Runs a kernel on CPU lanes while this thread grows pools that lanes ask for. How often they grew.
template <class Kernel>
std::uint32_t launch_beside_growth(Bench& b, std::uint32_t blocks, std::uint32_t workers, Kernel kernel) {
    simt::LaunchOptions o;
    o.cpu_workers = workers;
    auto run = simt::launch_async(simt::LanesKind::kCpu, blocks, 1, kernel, o).value();
    std::uint32_t grown = 0;
    while (!run.done()) {
        grown += b.rig.channels[0]->grow_pool_if_asked().value() ? 1 : 0;
        std::this_thread::yield();
    }
    run.wait(late()).value();
    return grown;
}

TEST(PoolGrowth, APoolDoublesUnderRunningLanesAndItsMemoryIsRegistered) {
    for (const std::uint32_t blocks : {16u, 64u}) {
        PoolBench b(pool_options(256u << 10, 4u << 20));
        const std::uint32_t warps = 1024 / blocks;  // 4 MiB in all
        const std::uint32_t grown =
            launch_beside_growth(b, warps, warps, PoolGrows{b.common, b.counter(), warps, blocks});
        EXPECT_EQ(grown, 4u) << "256 KiB, 512 KiB, 1, 2, 4 MiB";
        EXPECT_EQ(b.rig.channels[0]->pool_bytes(), 4u << 20);
        b.expect_whole(warps * 4, false);
        count("gnor_pool_growths", grown);
    }
}

TEST(PoolGrowth, LanesOfAllSizesGrowItToItsLimitAndNoFurther) {
    PoolBench b(pool_options(256u << 10, (2u << 20) + (256u << 10)));
    // Where this thread stands still, the lanes are done before it has grown anything: then they run again.
    std::uint32_t grown = 0;
    for (const Deadline end = late(); grown < 3 && !end.passed();)
        grown += launch_beside_growth(b, 64, 16, PoolMix{b.common, b.owners(), 200, 256, kLong});
    EXPECT_GE(grown, 3u) << "a request of 1 MiB fits the step of 1 MiB first";
    b.expect_whole(64 * 200);
    count("gnor_pool_growths", grown);
}

TEST(PoolGrowth, WritesOfUnregisteredMemoryAreBufferedInGrownSteps) {
    Bench b(pool_options(256u << 10, 4u << 20), 64, kWarpStride);
    std::uint32_t grown = 0;
    for (const Deadline end = late(); grown == 0 && !end.passed();)
        grown += launch_beside_growth(b, 64, 16, WarpsWriteAndRead{b.common, 6, 32, false});
    b.expect_good(64 * 12);
    b.rig.expect_clean();
    EXPECT_GT(b.rig.channels[0]->pool_bytes(), 256u << 10);
}

/// One lane, by hand.
class PoolByHand : public ::testing::Test {
  protected:
    void make(std::uint64_t bytes, std::uint64_t bytes_max) {
        rig = std::make_unique<Rig>(pool_options(bytes, bytes_max));
        ch = rig->channel();
    }
    void* take(std::uint64_t bytes, Status expected) {
        auto status = Status::kSuccess;
        void* const at = ch.alloc(kMe, bytes, &status);
        EXPECT_EQ(status, expected) << bytes;
        EXPECT_EQ(at != nullptr, expected == Status::kSuccess);
        return at;
    }
    bool grow() { return rig->channels[0]->grow_pool_if_asked().value(); }

    std::unique_ptr<Rig> rig;
    ChannelRef ch;
};

TEST_F(PoolByHand, ImpossibleSizesAreRefusedAndPossibleOnesFailWhileThePoolIsFull) {
    make(4u << 20, 0);
    take(0, Status::kBadArgument);
    take((1u << 20) + 1, Status::kBadArgument);
    take(~0ull, Status::kBadArgument);
    std::vector<void*> all;
    for (int i = 0; i < 4; ++i) all.push_back(take(1u << 20, Status::kSuccess));
    take(1, Status::kNoBuffer);
    EXPECT_EQ(ch.alloc(kMe, 1, Deadline::in_ns(kShort)), nullptr) << "waits until its deadline";
    EXPECT_FALSE(grow()) << "a pool without a growth limit must not grow";
    EXPECT_EQ(ch.free(kMe, static_cast<std::byte*>(all[1]) + 4096), Status::kBadArgument);
    for (void* at : all) EXPECT_EQ(ch.free(kMe, at), Status::kSuccess);
    EXPECT_EQ(ch.free(kMe, all[2]), Status::kBadArgument) << "twice";
    rig->expect_clean();
}

TEST_F(PoolByHand, AGrowthRequestIsServedOnceAndTheNextTryFindsTheNewMemory) {
    make(256u << 10, 1u << 20);
    EXPECT_FALSE(grow()) << "no lane asked for memory";
    auto* first = take(256u << 10, Status::kSuccess);
    EXPECT_FALSE(grow());
    take(4096, Status::kNoBuffer);
    take(4096, Status::kNoBuffer);
    EXPECT_TRUE(grow());
    EXPECT_FALSE(grow()) << "one step for all who asked";
    auto* second = take(256u << 10, Status::kSuccess);
    EXPECT_TRUE(ch.is_registered(second, 256u << 10));
    EXPECT_FALSE(ch.is_registered(first, 512u << 10)) << "two steps are two regions";
    EXPECT_FALSE(ch.is_registered(static_cast<std::byte*>(second) + (256u << 10), 1))
        << "the new step must not be registered yet";
    take(512u << 10, Status::kNoBuffer);
    EXPECT_TRUE(grow());
    auto* third = take(512u << 10, Status::kSuccess);
    take(4096, Status::kNoBuffer);
    EXPECT_FALSE(grow()) << "the pool must not grow above its limit";
    for (void* at : {first, second, third}) EXPECT_EQ(ch.free(kMe, at), Status::kSuccess);
    rig->expect_clean();
}

TEST_F(PoolByHand, MemoryThatTheNicCannotRegisterIsNotAllocated) {
    make(256u << 10, 1u << 20);
    auto* const first = take(256u << 10, Status::kSuccess);
    take(4096, Status::kNoBuffer);
    // The NIC's regions are all in use.
    std::vector<std::byte> other(4096);
    std::vector<rdma::MemoryKeys> held;
    for (;;) {
        const auto keys = rig->nic->register_memory(other.data(), other.size(), rdma::kLocalWrite);
        if (!keys.ok()) break;
        held.push_back(*keys);
    }
    EXPECT_FALSE(rig->channels[0]->grow_pool_if_asked().ok());
    EXPECT_EQ(rig->channels[0]->pool_bytes(), 256u << 10);
    take(4096, Status::kNoBuffer);
    for (const rdma::MemoryKeys& keys : held) rig->nic->deregister_memory(keys).value();
    EXPECT_TRUE(grow());
    auto* const second = take(256u << 10, Status::kSuccess);
    EXPECT_EQ(rig->volume().write(kMe, ch, 0, 64, second, late()), Status::kSuccess);
    EXPECT_EQ(rig->volume().read(kMe, ch, 0, 64, second, late()), Status::kSuccess);
    for (void* at : {first, second}) EXPECT_EQ(ch.free(kMe, at), Status::kSuccess);
    rig->expect_clean();
}

TEST_F(PoolByHand, ARunOfAGrownStepIsHeldByACommandAtItsEnd) {
    make(1u << 20, 2u << 20);
    auto* first = take(1u << 20, Status::kSuccess);
    take(1u << 20, Status::kNoBuffer);
    ASSERT_TRUE(grow());
    auto* const buffer = static_cast<std::byte*>(take(1u << 20, Status::kSuccess));
    for (auto& d : rig->drives)
        d->set_rule([](const nvme::Command&, const nvme::IoFields&) {
            return Decision{Decision::kNever, {}, 0};
        });
    const VolumeRef v = rig->volume();
    const auto read = [&](Deadline until) { return v.read(kMe, ch, 0, 1, buffer + 255 * 4096, until); };
    ASSERT_EQ(sent_in(kShort, read), Status::kTimedOut);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kBufferInUse);
    EXPECT_EQ(ch.free(kMe, first), Status::kSuccess) << "a buffer that no command uses must be freed";
    rig->wait_kept(1);
    for (auto& d : rig->drives) d->set_rule({});
    for (auto& d : rig->drives) d->answer_kept();
    rig->channels[0]->quiesce(late()).value();
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig->expect_clean();
}

TEST_F(PoolByHand, AWaitingCallGetsTheMemoryThatAnotherFrees) {
    make(256u << 10, 0);
    auto* const all = take(256u << 10, Status::kSuccess);
    void* got = nullptr;
    std::thread waiter([&] { got = ch.alloc(kMe, 4096, late()); });
    EXPECT_EQ(ch.free(kMe, all), Status::kSuccess);
    waiter.join();
    EXPECT_NE(got, nullptr);
    EXPECT_EQ(ch.free(kMe, got), Status::kSuccess);
    rig->expect_clean();
}

}  // namespace
}  // namespace gnstor::test
