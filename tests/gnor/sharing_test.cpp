// sharing_test.cpp: channels of one lane, of one block and of the whole grid do the same; the narrower do it
// with less; and a channel that was opened for other lanes says so.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>

#include "gnor/bench.hpp"

namespace gnstor::test {
namespace {

RigOptions options_for(Sharing sharing, std::uint32_t channels, std::uint32_t depth = 8) {
    RigOptions o = options_of(channels, depth);
    o.sharing = sharing;
    return o;
}

// One body for all modes: as many channels as the mode wants of `blocks` blocks of `threads` lanes.
template <Sharing kMode>
struct Mode {
    static constexpr Sharing kSharing = kMode;
};
template <class M>
class Sharings : public ::testing::Test {
  protected:
    static constexpr Sharing kMode = M::kSharing;
    static std::uint32_t channels_for(std::uint32_t blocks, std::uint32_t threads) {
        if (kMode == Sharing::kGrid) return 2;
        return kMode == Sharing::kBlock ? blocks : blocks * threads;
    }
};
using Modes = ::testing::Types<Mode<Sharing::kLane>, Mode<Sharing::kBlock>, Mode<Sharing::kGrid>>;
TYPED_TEST_SUITE(Sharings, Modes);

TYPED_TEST(Sharings, SingleLanesDoEveryKindOfCommand) {
    Bench b(options_for(this->kMode, this->channels_for(3, 4)), 12, 4 * 4096);
    b.launch(3, 4, shared_by<TypeParam::kSharing>(LanesAlone{b.common, 20, 0}), 4);
    b.expect_good(12 * 20 * 6);
    b.rig.expect_clean();
}

TYPED_TEST(Sharings, TokensAndCallbacksEndOnce) {
    RigOptions o = options_for(this->kMode, this->channels_for(2, 3));
    o.chunk_shift = 2;
    Bench b(o, 1, 64);
    b.launch(2, 3, shared_by<TypeParam::kSharing>(LanesAsync{b.common, 20}), 4);
    for (auto& c : b.rig.channels) c->quiesce(simt::Deadline::in_ns(kLong)).value();
    b.expect_good(6 * 20 * 6);
    EXPECT_EQ(b.report().callbacks, 6u * 20 * 2);
}

TYPED_TEST(Sharings, LargeRequestsGetTheirCommandEntries) {
    RigOptions o = options_for(this->kMode, this->channels_for(2, 2));
    o.chunk_shift = 0;
    Bench b(o, 1, 64);
    b.launch(2, 2, shared_by<TypeParam::kSharing>(LanesWithLargeRequests{b.common, 5, 30}), 4);
    b.expect_good(4 * 5 * 2);
    b.rig.expect_clean();
}

TYPED_TEST(Sharings, ThePoolAllocatesNoBlockTwiceAndLosesNone) {
    Bench b(options_for(this->kMode, this->channels_for(2, 4)), 1, 64);
    b.launch(2, 4, shared_by<TypeParam::kSharing>(PoolStress{b.common, 400}), 4);
    b.expect_good(8 * 400);
    b.rig.expect_clean();
}

/// Warps of a block share its channel, each warp in test warps of `lanes` lanes.
template <Sharing kMode>
void run_warps(std::uint32_t lanes) {
    constexpr std::uint32_t kWarps = 6, kWarpsABlock = 3;
    Bench b(options_for(kMode, 2), kWarps, kWarpStride + 20 * 4096);
    b.test_warps(kWarps, lanes, shared_by<kMode>(WarpsWriteAndRead{b.common, 2, 32, false}), kWarpsABlock);
    b.test_warps(kWarps, lanes, shared_by<kMode>(WarpsMany{b.common, 12}), kWarpsABlock);
    auto batches =
        simt::DeviceMemory::allocate(2 * sizeof(Batch<96, CountHandler>), simt::LanesKind::kCpu).value();
    b.test_warps(kWarps, lanes,
                 shared_by<kMode>(WarpsBatch<96>{b.common, batches.lane_as<Batch<96, CountHandler>>(), 2}),
                 kWarpsABlock);
    b.expect_good(kWarps * (2 * 2 + 12 + 2 + lanes * 5));
    b.rig.expect_clean();
}

class SharingWarps : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Width, SharingWarps, ::testing::Values(1u, 5u, 12u));
TEST_P(SharingWarps, WarpsOfABlockShareItsChannel) {
    run_warps<Sharing::kBlock>(GetParam());
}
TEST_P(SharingWarps, WarpsOfTheGridShareChannels) {
    run_warps<Sharing::kGrid>(GetParam());
}

// ---- refusals

template <Sharing kMode>
void expect_refused(const Rig& rig, const BasicChannelRef<kMode>& ch, const Status kNo) {
    const VolumeRef v = rig.volume();
    const Deadline late = Deadline::in_ns(kLong);
    std::array<std::byte, 4096> buffer{};
    EXPECT_EQ(v.read(kMe, ch, 0, 1, buffer.data(), late), kNo);
    EXPECT_EQ(v.write(kMe, ch, 0, 1, buffer.data(), late), kNo);
    EXPECT_EQ(v.flush(kMe, ch, late), kNo);
    EXPECT_EQ(v.trim(kMe, ch, 0, 1, late), kNo);
    const IoRequest request{0, 1, buffer.data(), 0, 0};
    EXPECT_EQ(v.read_many(kMe, ch, &request, 1, nullptr, late), kNo);
    EXPECT_EQ(v.read_async(simt::Lane{}, ch, 0, 1, buffer.data(), late).status, kNo);
    EXPECT_EQ(v.try_write_async(simt::Lane{}, ch, 0, 1, buffer.data()).status, kNo);
    auto status = Status::kSuccess;
    EXPECT_EQ(ch.alloc(kMe, 4096, &status), nullptr);
    EXPECT_EQ(status, kNo);
    EXPECT_EQ(ch.alloc(kMe, 4096, late, &status), nullptr);
    EXPECT_EQ(status, kNo);
    EXPECT_EQ(ch.alloc_each(kMe, true, 4096, &status), nullptr);
    EXPECT_EQ(status, kNo);
    EXPECT_EQ(ch.free(kMe, buffer.data()), kNo);
    EXPECT_EQ(ch.wait(kMe, Token{0, 1, Status::kSuccess}, late), kNo);
    EXPECT_TRUE(ch.poll(simt::Lane{}, Token{0, 1, Status::kSuccess}, status));
    EXPECT_EQ(status, kNo);
    EXPECT_EQ(ch.drop(Token{0, 1, Status::kSuccess}), kNo);
    // A loop of the batch's steps goes on after the first said no, also with a view that is empty.
    for (const BasicChannelRef<kMode>& view : {ch, BasicChannelRef<kMode>::none(kNo)}) {
        Batch<32> batch;
        batch.init(kMe, simt::Lane{});
        EXPECT_EQ(batch.submit(kMe, simt::Lane{}, v, view, nvme::IoOpcode::kRead, &request), kNo);
        batch.commit(kMe, simt::Lane{}, view);
        EXPECT_EQ(batch.poll(kMe, view), 0u);
        EXPECT_FALSE(batch.dispatch(kMe, simt::Lane{}, view).finished);
        batch.abandon(kMe, simt::Lane{}, view);
    }
    EXPECT_EQ(ch.poll(kMe), 0u);
    EXPECT_FALSE(ch.is_registered(buffer.data(), 1));
    Batch<32> batch{};
    EXPECT_EQ(batch.submit(kMe, simt::Lane{}, v, ch, nvme::IoOpcode::kRead, &request), kNo);
}

TEST(SharingRefusals, AChannelOpenedForOtherLanesReturnsAnErrorAndDoesNothing) {
    for (const Sharing opened : {Sharing::kLane, Sharing::kBlock, Sharing::kGrid}) {
        Rig rig(options_for(opened, 1));
        constexpr Status kNo = Status::kWrongSharing;
        const gnor::Channel& channel = *rig.channels[0];
        if (opened != Sharing::kLane) expect_refused(rig, channel.ref<Sharing::kLane>(), kNo);
        if (opened != Sharing::kBlock) expect_refused(rig, channel.ref<Sharing::kBlock>(), kNo);
        if (opened != Sharing::kGrid) expect_refused(rig, channel.ref<Sharing::kGrid>(), kNo);
        for (auto& d : rig.drives) EXPECT_EQ(d->served(), 0u);
        rig.expect_clean();
    }
}

TEST(SharingRefusals, MoreBlocksOrLanesThanChannelsGetNone) {
    Rig rig(options_for(Sharing::kBlock, 2));
    simt::Lane lane;
    lane.block_threads = 4;
    lane.grid_blocks = 2;
    lane.block = 1;
    const ChannelSet set = rig.channel_set();
    EXPECT_EQ(set.shared<Sharing::kBlock>().mine(lane).usable(), Status::kSuccess);
    EXPECT_EQ(set.shared<Sharing::kBlock>().mine(lane).raw(), rig.channel(1).raw());
    EXPECT_EQ(set.shared<Sharing::kLane>().mine(lane).usable(), Status::kWrongSharing) << "8 lanes";
    lane.grid_blocks = 3;
    EXPECT_EQ(set.shared<Sharing::kBlock>().mine(lane).usable(), Status::kWrongSharing);
}

// ---- lanes of another kind, or of another GPU

/// Memory of a GPU, as a CPU sees it: not at all.
template <class T>
T* out_of_reach() {
    return reinterpret_cast<T*>(std::uintptr_t{64});
}

TEST(WrongLanes, ChannelsOfAGpuAreRefusedOnCpuLanesAndTheirMemoryIsNotTouched) {
    const Rig rig;
    const ChannelRef there(out_of_reach<gnor::ChannelState>(), simt::LanesKind::kGpu);
    expect_refused(rig, there, Status::kWrongLanes);
    expect_refused(rig, there.as<Sharing::kBlock>(), Status::kWrongLanes);
    EXPECT_EQ(there.with<>().usable(), Status::kWrongLanes);
    const ChannelSet set{out_of_reach<const ChannelRef>(), 2, simt::LanesKind::kGpu};
    EXPECT_EQ(set.mine(simt::Lane{}).usable(), Status::kWrongLanes);
    EXPECT_EQ(set[1].usable(), Status::kWrongLanes);
    EXPECT_EQ(set[2].usable(), Status::kWrongSharing) << "there is no channel for this lane";
    EXPECT_EQ(set.shared<Sharing::kLane>().mine(simt::Lane{}).usable(), Status::kWrongLanes);
}

TEST(WrongLanes, ViewsOfAChannelKeepItsSharingMode) {
    Rig rig;
    EXPECT_EQ(rig.channel().with<>().as<Sharing::kGrid>().usable(), Status::kSuccess);
    EXPECT_EQ(rig.channel().as<Sharing::kLane>().usable(), Status::kWrongSharing);
    const auto none = ChannelRef::none(Status::kWrongLanes);
    EXPECT_EQ(none.with<>().usable(), Status::kWrongLanes);
    EXPECT_EQ(none.as<Sharing::kBlock>().usable(), Status::kWrongLanes);
    const ChannelSet set{.without = Status::kWrongLanes};
    EXPECT_EQ(set.mine(simt::Lane{}).usable(), Status::kWrongLanes);
    EXPECT_EQ(set.shared<Sharing::kBlock>().mine(simt::Lane{}).usable(), Status::kWrongLanes);
}

TEST(WrongLanes, AnErrorForTheWrongGpuNamesBothGpus) {
    EXPECT_TRUE(simt::check_same_gpu(0, 0).ok());
    EXPECT_TRUE(simt::check_same_gpu(3, 3).ok());
    for (const auto& [home, chosen] : {std::pair{0, 1}, std::pair{1, 0}, std::pair{2, 7}}) {
        const auto refused = simt::check_same_gpu(home, chosen);
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error().code, Errc::kState);
        const std::string& says = refused.error().message;
        EXPECT_NE(says.find("lies on GPU " + std::to_string(home)), std::string::npos) << says;
        EXPECT_NE(says.find("uses GPU " + std::to_string(chosen)), std::string::npos) << says;
        EXPECT_NE(says.find("cudaSetDevice(" + std::to_string(home) + ")"), std::string::npos) << says;
    }
}

#if defined(GN_TEST_WARPS)
// ---- what it costs: atomic accesses of a write that is sent and not waited for

class CountsAtomics : public simt::YieldHook {
  public:
    void on_atomic() override { ++count; }
    std::uint64_t count = 0;
};

template <Sharing kMode>
std::uint64_t atomics_of_a_write() {
    Rig rig(options_for(kMode, 1));
    const auto ch = rig.channels[0]->template ref<kMode>();
    const VolumeRef v = rig.volume();
    void* const buffer = ch.alloc(kMe, 4096);
    CountsAtomics hook;
    simt::this_thread_yield_hook() = &hook;
    const Token token = v.try_write_async(simt::Lane{}, ch, 0, 1, buffer);
    simt::this_thread_yield_hook() = nullptr;
    EXPECT_EQ(ch.wait(kMe, token, Deadline::in_ns(kLong)), Status::kSuccess);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
    return hook.count;
}

TEST(SharingCosts, AWriteOfASingleLaneUsesAtomicsOnlyForSharedState) {
    const std::uint64_t lane = atomics_of_a_write<Sharing::kLane>();
    const std::uint64_t grid = atomics_of_a_write<Sharing::kGrid>();
    std::printf("  a write to two replicas: %llu atomic accesses by a single lane, %llu for the grid\n",
                static_cast<unsigned long long>(lane), static_cast<unsigned long long>(grid));
    // The volume's sequence and map; record and bell of two queue pairs.
    EXPECT_EQ(lane, 2u + 2 * 2);
    EXPECT_GT(grid, 4 * lane);
}
#endif

}  // namespace
}  // namespace gnstor::test
