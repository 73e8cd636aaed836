// Launching on CPU lanes: each lane runs once, errors are values, nothing runs on lanes that were not asked
// for.
#include <gnstor/simt/atomic.hpp>
#include <gnstor/simt/device_memory.hpp>
#include <gnstor/simt/launch.hpp>
#include <gnstor/simt/pinned_memory.hpp>

#include <gtest/gtest.h>
#include <unistd.h>

#include <stdexcept>
#include <vector>

#include "support/count.hpp"

namespace gnstor::simt {
namespace {

struct CountVisits {
    std::uint32_t* visits;
    void operator()(Lane lane) const {
        fetch_add<Scope::kDevice>(visits + lane.grid_rank(), 1u);
        if (lane.lanes_per_warp() != 1 || lane.index_in_warp != 0) fetch_add<Scope::kDevice>(visits, 1000u);
    }
};

TEST(Launch, EveryLaneOfAGridMuchLargerThanTheMachineRunsOnce) {
    for (const std::uint32_t workers : {1u, 2u, 5u, 64u}) {
        std::vector<std::uint32_t> visits(300 * 256);
        const auto result =
            launch(LanesKind::kCpu, 300, 256, CountVisits{visits.data()}, {.cpu_workers = workers});
        ASSERT_TRUE(result.ok()) << result.error().message;
        for (const std::uint32_t n : visits) ASSERT_EQ(n, 1u);
    }
    test::count("simt_lanes_launched", 4 * 76800);
}

struct WaitForWord {
    const std::uint32_t* word;
    std::uint32_t* seen;
    void operator()(Lane) const {
        std::uint32_t backoff = 0;
        while (load_acquire<Scope::kSystem>(word) == 0) pause(backoff);
        fetch_add<Scope::kSystem>(seen, 1u);
    }
};

TEST(Launch, TheHostMayActWhileAKernelRuns) {
    std::uint32_t word = 0, seen = 0;
    auto started = launch_async(LanesKind::kCpu, 2, 3, WaitForWord{&word, &seen}, {.cpu_workers = 2});
    ASSERT_TRUE(started.ok());
    EXPECT_FALSE(started->done());
    const auto early = started->wait(Deadline::in_ns(1'000'000));
    ASSERT_FALSE(early.ok());
    EXPECT_EQ(early.error().code, Errc::kTimedOut);
    store_release<Scope::kSystem>(&word, 1u);  // pairs with the lanes' acquire
    const auto late = started->wait(Deadline::in_ns(60'000'000'000));
    ASSERT_TRUE(late.ok()) << late.error().message;
    EXPECT_TRUE(started->done());
    EXPECT_EQ(seen, 6u);
}

struct Throw {
    void operator()(Lane lane) const {
        if (lane.grid_rank() == 5) throw std::runtime_error("lane five");
    }
};
struct Nothing {
    void operator()(Lane) const {}
};

TEST(Launch, ALaneThatThrowsIsAnError) {
    const auto result = launch(LanesKind::kCpu, 4, 4, Throw{});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Errc::kInternal);
    EXPECT_NE(result.error().message.find("lane five"), std::string::npos);
}

TEST(Launch, InvalidGridsAreRefused) {
    EXPECT_EQ(launch(LanesKind::kCpu, 0, 1, Nothing{}).error().code, Errc::kInvalidArgument);
    EXPECT_EQ(launch(LanesKind::kCpu, 1, 0, Nothing{}).error().code, Errc::kInvalidArgument);
    EXPECT_EQ(launch(LanesKind::kCpu, 1, 1025, Nothing{}).error().code, Errc::kInvalidArgument);
    EXPECT_EQ(launch(LanesKind::kCpu, 1, 1, Nothing{}, {.cpu_workers = 1u << 20}).error().code,
              Errc::kInvalidArgument);
}

TEST(Launch, GpuLanesAreNeverReplacedSilently) {
    // This file is compiled by the host compiler, so GPU lanes are an error in every build and on every
    // machine.
    const auto result = launch(LanesKind::kGpu, 1, 1, Nothing{});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, Errc::kUnsupported);
    EXPECT_NE(result.error().message.find("--lanes cpu"), std::string::npos) << result.error().message;
}

TEST(Launch, LanesHaveNames) {
    EXPECT_EQ(*parse_lanes("cpu"), LanesKind::kCpu);
    EXPECT_EQ(*parse_lanes("gpu"), LanesKind::kGpu);
    EXPECT_FALSE(parse_lanes("tpu").ok());
    EXPECT_EQ(lanes_name(LanesKind::kGpu), "gpu");
    EXPECT_TRUE(check_lanes(LanesKind::kCpu).ok());
    EXPECT_EQ(check_lanes(LanesKind::kGpu).ok(), gpu_available());
}

TEST(PinnedMemory, IsZeroedPageAlignedAndWholePages) {
    for (const bool huge : {false, true}) {
        auto memory = PinnedMemory::map(5'000'000, LanesKind::kCpu, {.huge_pages = huge});
        ASSERT_TRUE(memory.ok()) << memory.error().message;
        const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->data()) % page, 0u);
        EXPECT_EQ(memory->size() % page, 0u);
        EXPECT_GE(memory->size(), 5'000'000u);
        EXPECT_EQ(memory->lane_data(), memory->data());
        for (std::size_t i = 0; i < memory->size(); ++i) ASSERT_EQ(memory->data()[i], std::byte{0});
        memory->data()[memory->size() - 1] = std::byte{1};
        PinnedMemory moved = std::move(*memory);
        EXPECT_EQ(moved.data()[moved.size() - 1], std::byte{1});
        EXPECT_EQ(memory->data(), nullptr);
    }
}

TEST(PinnedMemory, RefusesAbsurdSizesAndMissingGpus) {
    EXPECT_EQ(PinnedMemory::map(0, LanesKind::kCpu).error().code, Errc::kInvalidArgument);
    EXPECT_EQ(PinnedMemory::map(~std::size_t{0}, LanesKind::kCpu).error().code, Errc::kInvalidArgument);
    if (!gpu_available()) {
        EXPECT_EQ(PinnedMemory::map(4096, LanesKind::kGpu).error().code, Errc::kUnsupported);
    }
}

TEST(DeviceMemory, UploadsAndDownloadsWithinItsBounds) {
    auto memory = DeviceMemory::allocate(1000, LanesKind::kCpu);
    ASSERT_TRUE(memory.ok());
    const std::uint64_t value = 0x1122334455667788;
    std::uint64_t back = 1;
    ASSERT_TRUE(memory->download(992, &back, 8).ok());
    EXPECT_EQ(back, 0u) << "not zeroed";
    ASSERT_TRUE(memory->upload(992, &value, 8).ok());
    EXPECT_EQ(*memory->lane_as<std::uint64_t>(992), value);
    ASSERT_TRUE(memory->download(992, &back, 8).ok());
    EXPECT_EQ(back, value);
    EXPECT_EQ(memory->upload(993, &value, 8).error().code, Errc::kInvalidArgument);
    EXPECT_EQ(memory->download(~std::size_t{0}, &back, 8).error().code, Errc::kInvalidArgument);
    EXPECT_FALSE(DeviceMemory::allocate(0, LanesKind::kCpu).ok());
}

}  // namespace
}  // namespace gnstor::simt
