// gpu_handlers.cu: callbacks as functors and by index on real GPU warps. Built where nvcc is.
#include <gtest/gtest.h>

#include "gnor/callback_cases.hpp"
#include "gnor/gpu_fixture.hpp"

namespace gnstor::test {
namespace {

class GnorGpuHandlers : public OnGpu {};

/// A type of this source alone, and so a kernel of its own: of one type in several, the linker keeps one.
struct RunDueHere : RunDueCallbacks {};

template <Sharing kMode>
void run_chains(std::uint32_t blocks, std::uint32_t threads, std::uint32_t channels) {
    constexpr std::uint32_t kLength = 20;
    Bench b(gpu_options(kMode, channels), 1, 64);
    const std::uint32_t lanes = blocks * threads;
    using One = Chain<BareChannel<kMode>>;
    auto chains = simt::DeviceMemory::allocate(lanes * sizeof(One), kGpu).value();
    b.launch(blocks, threads, LanesOfChains<kMode>{b.common, chains.lane_as<One>(), kLength});
    b.expect_good(lanes * 3);
    EXPECT_EQ(b.report().callbacks, lanes * (kLength + 1));
    b.rig.expect_clean();
}
TEST_F(GnorGpuHandlers, HandlersInAViewsTypeListSendTheNextRequest) {
    run_chains<Sharing::kGrid>(4, 32, 1);
    run_chains<Sharing::kBlock>(4, 64, 4);
    run_chains<Sharing::kLane>(2, 4, 8);
}
TEST_F(GnorGpuHandlers, HandlersRunOnceWhetherInAViewsTypeListOrNot) {
    for (const bool known : {true, false}) {
        constexpr std::uint32_t kLanes = 256, kRequests = 10;
        Bench b(gpu_options(Sharing::kGrid, 2), 1, 64);
        auto marks = simt::DeviceMemory::allocate(kLanes * kRequests * 8, kGpu).value();
        b.launch(4, 64, LanesOfHandlers{b.common, marks.lane_as<std::uint64_t>(), kRequests, known});
        b.expect_good(kLanes * (kRequests + 1));
        std::vector<std::uint64_t> seen(kLanes * kRequests);
        marks.download(0, seen.data(), seen.size() * 8).value();
        for (std::size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], 1u) << i;
        b.rig.expect_clean();
    }
}

/// C's table, filled by the host: functions whose addresses only the GPU knows.
struct CallsByIndex {
    Common common;
    CallbackTableRef table;
    GN_HD
    void operator()(simt::Lane lane) const {
        const auto me = simt::self(lane);
        const ChannelRef channel = common.channels.mine(lane);
        void* const buffer = channel.alloc(me, 4096);
        const auto read = [&](std::uint32_t index) {
            return static_cast<Status>(gnstor_read_async_by_index(
                lane, common.volume, channel, 0, 1, buffer, table, index, common.report, common.timeout_ns));
        };
        common.expect(read(1));
        common.expect(read(0));
        common.expect(read(2), Status::kBadArgument);
    }
};
TEST_F(GnorGpuHandlers, CFunctionsAreCalledByIndexAndByKernelsOfTheirModuleAlone) {
    // Credits for all: lanes seldom poll, so most stay due.
    Bench b(gpu_options(Sharing::kGrid, 1, 32), 1, 64);
    auto table = CallbackTable::create(kGpu, 2).value();
    table.set<&count_callback>(1).value();
    b.launch(1, 16, CallsByIndex{b.common, table.ref()});
    const auto due = [&b] { return b.rig.channels[0]->usage().value().requests_with_callbacks; };
    b.rig.channels[0]->quiesce(simt::Deadline::in_ns(kLong)).value();
    // Lanes that wait for one another's turn poll, and run what is theirs: under a slow tool, some.
    const auto left = due();
    const auto ran = b.report().callbacks;
    ASSERT_GT(left, 0u) << "no callback is due, so the test covers nothing";
    poll_from_another_module(b);
    EXPECT_EQ(due(), left) << "it has other addresses for these functions";
    EXPECT_EQ(b.report().callbacks, ran);
    b.launch(1, 1, RunDueHere{{b.common}});
    b.expect_good(16 * 3);
    EXPECT_EQ(b.report().callbacks, 16u) << "an entry that was not set calls nothing";
    EXPECT_EQ(b.rig.channels[0]->usage().value().slots_taken, 0u);
}

}  // namespace
}  // namespace gnstor::test
