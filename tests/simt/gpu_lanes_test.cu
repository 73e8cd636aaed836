// The same promises on a GPU's own warps: groups, atomics, copies, launches, memory. Skipped where no GPU
// answers.
#include <gnstor/base/crc32c.hpp>
#include <gnstor/base/hash.hpp>
#include <gnstor/simt/atomic.hpp>
#include <gnstor/simt/copy.hpp>
#include <gnstor/simt/device_memory.hpp>
#include <gnstor/simt/launch.hpp>
#include <gnstor/simt/pinned_memory.hpp>

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "support/count.hpp"

namespace gnstor::simt {
namespace {

constexpr std::uint64_t kMinuteNs = 60'000'000'000;

class GpuLanes : public testing::Test {
  protected:
    void SetUp() override {
        if (const auto there = check_lanes(LanesKind::kGpu); !there.ok())
            GTEST_SKIP() << there.error().message;
    }
};

struct Failures {
    std::uint64_t checks, failures;
};

struct GroupsKernel {
    Failures* out;
    GN_HD
    void expect(bool holds) const {
        add<Scope::kDevice>(&out->checks, 1u);
        if (!holds) fetch_add<Scope::kDevice>(&out->failures, 1u);
    }
    GN_HD
    void operator()(Lane lane) const {
        const std::uint32_t me = lane.index_in_warp;
        const std::uint32_t w = lane.lanes_per_warp();
        {
            const auto g = warp(lane);
            expect(g.size() == w && g.rank() == me && g.leader() == 0);
            expect(g.ballot(me % 2 == 0).count() == (w + 1) / 2);
            expect(g.any(me == w - 1) && g.all(me < w));
            expect(g.shfl(std::uint64_t{me} << 40, w - 1) == std::uint64_t{w - 1} << 40);
            expect(g.shfl(static_cast<std::uint16_t>(me), w - 1) == w - 1);
            expect(g.match(me % 3).contains(me));
            expect(g.sum(me) == w * (w - 1) / 2 && g.sum(0xFFFFFFFFu) == 0u - w);
            const std::uint64_t all = w == 32 ? 0xFFFFFFFFull : (1ull << w) - 1;
            expect(g.unite(std::uint64_t{1} << me) == all &&
                   g.unite(std::uint64_t{1} << (me + 32)) == all << 32);
            g.sync();
        }
        if (me % 3 == 1) {
            const auto g = active(lane);
            expect(g.members().contains(me) && g.ballot(true) == g.members());
            g.sync();
            if (me % 2 == 1) return;  // leaves early
        }
        const auto rest = warp(lane);
        expect(rest.members().contains(me));
        expect(rest.shfl(me, rest.leader()) == rest.leader());
    }
};

TEST_F(GpuLanes, GroupsBehaveAsOnTestWarps) {
    auto memory = std::move(DeviceMemory::allocate(sizeof(Failures), LanesKind::kGpu)).value();
    const auto result = launch(LanesKind::kGpu, 64, 256, GroupsKernel{memory.lane_as<Failures>()});
    ASSERT_TRUE(result.ok()) << result.error().message;
    Failures seen{};
    ASSERT_TRUE(memory.download(0, &seen, sizeof seen).ok());
    EXPECT_EQ(seen.failures, 0u);
    EXPECT_GE(seen.checks, 64u * 256u * 9u);
    test::count("simt_gpu_checks", seen.checks);
}

TEST(CudaBuild, TheSameKernelRunsOnCpuLanes) {
    Failures seen{};
    const auto result = launch(LanesKind::kCpu, 8, 32, GroupsKernel{&seen});
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(seen.failures, 0u);
    EXPECT_GE(seen.checks, 8u * 32u * 9u);
}

struct CopyKernel {
    std::uint8_t* to;
    const std::uint8_t* from;
    std::uint32_t bytes;
    std::uint32_t way;  // 0: a warp, 1: a single lane, 2: a single lane with bulk copies
    GN_HD
    void operator()(Lane lane) const {
        if (way == 0) {
            copy16(warp(lane), to, from, bytes);
            return;
        }
        if (lane.thread != 0) return;
        if (way == 1) {
            copy16(self(lane), to, from, bytes);
            return;
        }
#if GN_DEVICE_PASS
        __shared__ alignas(128) std::uint8_t stage[2048];
        __shared__ std::uint64_t barrier;
        copy_bulk(lane, to, from, bytes, BulkScratch{stage, &barrier, sizeof stage});
#endif
    }
};

TEST_F(GpuLanes, CopiesFromHostMemoryAreWholeAtAnyAlignment) {
    auto source = std::move(PinnedMemory::map(1 << 16, LanesKind::kGpu)).value();
    auto target = std::move(PinnedMemory::map(1 << 16, LanesKind::kGpu)).value();
    SplitMix64 random(1);
    for (std::size_t i = 0; i < source.size(); ++i) source.data()[i] = static_cast<std::byte>(random.next());
    std::uint64_t copies = 0;
    for (const std::uint32_t way : {0u, 1u, 2u}) {
        for (const std::uint32_t to : {0u, 1u, 4u, 8u}) {
            for (const std::uint32_t from : {0u, 3u, 4u, 8u, 16u}) {
                for (const std::uint32_t bytes : {0u, 1u, 16u, 512u, 4096u, 5003u, 20000u}) {
                    std::memset(target.data(), 0xEE, target.size());
                    const auto* in = reinterpret_cast<const std::uint8_t*>(source.lane_data()) + from;
                    auto* out = reinterpret_cast<std::uint8_t*>(target.lane_data()) + 64 + to;
                    const auto result = launch(LanesKind::kGpu, 1, 32, CopyKernel{out, in, bytes, way});
                    ASSERT_TRUE(result.ok()) << result.error().message;
                    ASSERT_EQ(std::memcmp(target.data() + 64 + to, source.data() + from, bytes), 0)
                        << "way " << way << " to " << to << " from " << from << " bytes " << bytes;
                    ASSERT_EQ(target.data()[63 + to], std::byte{0xEE});
                    ASSERT_EQ(target.data()[64 + to + bytes], std::byte{0xEE});
                    ++copies;
                }
            }
        }
    }
    test::count("simt_gpu_copies", copies);
}

struct PingPong {
    std::uint32_t* ask;
    std::uint32_t* answer;
    std::uint64_t* bell;
    GN_HD
    void operator()(Lane) const {
        const Deadline deadline = Deadline::in_ns(kMinuteNs);
        for (std::uint32_t i = 1; i <= 100; ++i) {
            store_release<Scope::kSystem>(ask, i);  // pairs with the host's acquire
            store_mmio64_release(bell, i);
            std::uint32_t backoff = 0;
            while (load_acquire<Scope::kSystem>(answer) != i)  // pairs with the host's release
                if (deadline.passed())
                    return;
                else
                    pause(backoff);
        }
    }
};

TEST_F(GpuLanes, TalkWithTheHostWhileTheKernelRuns) {
    auto memory = std::move(PinnedMemory::map(4096, LanesKind::kGpu)).value();
    auto* ask = reinterpret_cast<std::uint32_t*>(memory.data());
    auto* answer = ask + 32;
    auto* bell = reinterpret_cast<std::uint64_t*>(ask + 64);
    ASSERT_EQ(memory.lane_data(), memory.data());
    auto started = launch_async(LanesKind::kGpu, 1, 1, PingPong{ask, answer, bell});
    ASSERT_TRUE(started.ok()) << started.error().message;
    const Deadline deadline = Deadline::in_ns(kMinuteNs);
    for (std::uint32_t i = 1; i <= 100; ++i) {
        std::uint32_t backoff = 0;
        while (load_acquire<Scope::kSystem>(bell) < i && !deadline.passed()) pause(backoff);
        ASSERT_EQ(load_acquire<Scope::kSystem>(ask), i) << "the bell overtook the word before it";
        store_release<Scope::kSystem>(answer, i);
    }
    const auto result = started->wait(deadline);
    EXPECT_TRUE(result.ok()) << result.error().message;
}

struct CrcKernel {
    const std::uint8_t* data;
    std::uint32_t* crcs;
    GN_HD
    void operator()(Lane lane) const {
        const std::uint64_t i = lane.grid_rank();
        crcs[i] = crc32c_portable(data + i * 512, 512);
    }
};

TEST_F(GpuLanes, ChecksumsEqualTheHosts) {
    auto data = std::move(PinnedMemory::map(64 * 512, LanesKind::kGpu)).value();
    auto crcs = std::move(DeviceMemory::allocate(64 * 4, LanesKind::kGpu)).value();
    SplitMix64 random(2);
    for (std::size_t i = 0; i < data.size(); ++i) data.data()[i] = static_cast<std::byte>(random.next());
    const auto result = launch(
        LanesKind::kGpu, 2, 32,
        CrcKernel{reinterpret_cast<const std::uint8_t*>(data.lane_data()), crcs.lane_as<std::uint32_t>()});
    ASSERT_TRUE(result.ok()) << result.error().message;
    std::uint32_t seen[64];
    ASSERT_TRUE(crcs.download(0, seen, sizeof seen).ok());
    for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(seen[i], crc32c(data.data() + i * 512, 512));
}

}  // namespace
}  // namespace gnstor::simt
