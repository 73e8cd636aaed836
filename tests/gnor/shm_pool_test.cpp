// shm_pool_test.cpp: a channel's pool on the shm wire, where each step of growth has to be shared with the
// node before it can be registered: growth under running lanes, and a node that refuses a step at first.
#include <gtest/gtest.h>

#include <thread>

#include "gnor/pool_bench.hpp"
#include "rdma/nic/nic_memory.hpp"
#include "support/count.hpp"

namespace gnstor::test {
namespace {

constexpr std::uint64_t kSmall = 256u << 10;
constexpr std::uint64_t kPiece = 64u << 10;

RigOptions shared(std::uint64_t bytes_max) {
    RigOptions o = pool_options(kSmall, bytes_max);
    o.shm = rdma::ShmLimits{};
    o.shm->bytes = {std::uint64_t{256} << 20, 64u << 10, 8u << 20};
    return o;
}

TEST(ShmPool, GrowsUnderRunningLanesAndTheNodeReachesAllOfIt) {
    Bench b(shared(4u << 20), 64, kWarpStride);
    simt::LaunchOptions o;
    o.cpu_workers = 16;
    const WarpsWriteAndRead kernel{b.common, 6, 32, false};
    // Where this thread stands still, the lanes are done before it has grown anything: then they run again.
    std::uint32_t grown = 0;
    for (const Deadline end = late(); grown == 0 && !end.passed();) {
        auto run = simt::launch_async(simt::LanesKind::kCpu, 64, 1, kernel, o).value();
        while (!run.done()) {
            grown += b.rig.channels[0]->grow_pool_if_asked().value() ? 1 : 0;
            std::this_thread::yield();
        }
        run.wait(late()).value();
    }
    b.expect_good(64 * 12);
    b.rig.expect_clean();
    EXPECT_GT(grown, 0u);
    EXPECT_EQ(b.rig.channels[0]->pool_bytes(), kSmall << grown);
    count("gnor_shm_pool_growths", grown);
}

/// One lane, by hand, and other memory of the same client that takes what the node would give it.
class ShmPoolByHand : public ::testing::Test {
  protected:
    /// Shares pieces until the node refuses; how many that are.
    std::size_t fill() {
        while (pieces.size() < 1000) {
            auto piece = rdma::NicMemory::map(*rig.nic, kPiece);
            if (!piece.ok()) {
                EXPECT_EQ(piece.error().code, Errc::kNoSpace) << piece.error().message;
                break;
            }
            pieces.push_back(std::move(*piece));
        }
        return pieces.size();
    }
    /// A pool of one step, all of it taken, and a lane that asks for more.
    void* take_all(ChannelRef ch) {
        void* const all = ch.alloc(kMe, kSmall);
        EXPECT_NE(all, nullptr);
        EXPECT_EQ(ch.alloc(kMe, 4096), nullptr);
        return all;
    }

    Rig rig{shared(2 * kSmall)};
    std::vector<rdma::NicMemory> pieces;
};

TEST_F(ShmPoolByHand, AStepThatTheNodeRefusesIsSharedByALaterTry) {
    const ChannelRef ch = rig.channel();
    const VolumeRef v = rig.volume();
    void* const first = take_all(ch);
    EXPECT_GT(fill(), kSmall / kPiece);
    for (int i = 0; i < 2; ++i) {
        const auto refused = rig.channels[0]->grow_pool_if_asked();
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error().code, Errc::kNoSpace) << refused.error().message;
        EXPECT_EQ(rig.channels[0]->pool_bytes(), kSmall);
        EXPECT_EQ(ch.alloc(kMe, 4096), nullptr);
    }
    pieces.clear();
    ASSERT_TRUE(rig.channels[0]->grow_pool_if_asked().value());
    void* const second = ch.alloc(kMe, kSmall);
    ASSERT_NE(second, nullptr);
    const auto block = pattern_block(5, 1);
    std::memcpy(second, block.data(), block.size());
    EXPECT_EQ(v.write(kMe, ch, 5, 1, second, late()), Status::kSuccess);
    std::memset(second, 0, block.size());
    EXPECT_EQ(v.read(kMe, ch, 5, 1, second, late()), Status::kSuccess);
    EXPECT_EQ(std::memcmp(second, block.data(), block.size()), 0);
    for (void* at : {first, second}) EXPECT_EQ(ch.free(kMe, at), Status::kSuccess);
    rig.expect_clean();
}

TEST_F(ShmPoolByHand, AStepThatWasSharedButNotRegisteredIsReleasedWhenThePoolCloses) {
    const std::size_t beside_one_step = fill();
    pieces.clear();
    const ChannelRef ch = rig.channel();
    void* const first = take_all(ch);
    // The node's regions are all in use.
    std::vector<rdma::MemoryKeys> held;
    for (;;) {
        const auto keys = rig.nic->register_memory(first, 4096, rdma::kLocalWrite);
        if (!keys.ok()) break;
        held.push_back(*keys);
    }
    EXPECT_FALSE(rig.channels[0]->grow_pool_if_asked().ok());
    for (const rdma::MemoryKeys& keys : held) rig.nic->deregister_memory(keys).value();
    EXPECT_EQ(fill() + kSmall / kPiece, beside_one_step);
    pieces.clear();
    EXPECT_EQ(ch.free(kMe, first), Status::kSuccess);
    rig.expect_clean();
    rig.channels.clear();
    EXPECT_GE(fill(), beside_one_step + kSmall / kPiece) << "all that the channel had is free again";
}

}  // namespace
}  // namespace gnstor::test
