// pool_growth_test.cpp: pools of a client's channels grow by its host thread while lanes run, up to the
// limit, and not where none is wanted; absurd limits are refused with a sentence. Against a whole array.
#include "embedded/bench.hpp"
#include "gnor/pool_cases.hpp"
#include "support/count.hpp"

namespace gnstor::test::pool_growth_test {

using client::ClientOptions;

const auto kMe = simt::self(simt::Lane{});
constexpr std::uint64_t kSmall = 256u << 10;

Deadline soon() {
    return Deadline::in_ns(50'000'000);
}

class PoolGrowthByHostThread : public ::testing::Test {
  protected:
    Result<std::unique_ptr<client::Client>> try_connect(std::uint64_t bytes, std::uint64_t bytes_max) {
        ClientOptions o;
        o.name = "grower";
        o.channels = 1;
        o.pool_bytes = bytes;
        o.pool_bytes_max = bytes_max;
        return client::Client::connect(*rig.control, *rig.nic, o);
    }
    void connect(std::uint64_t bytes, std::uint64_t bytes_max) {
        client = std::move(try_connect(bytes, bytes_max).value());
    }
    ChannelRef channel() { return client->channel(0).ref(); }
    /// All that the pool has now and may get, in runs of `kSmall`; each call waits for the keep_alives.
    std::vector<void*> take_all(std::uint64_t bytes) {
        std::vector<void*> runs;
        for (std::uint64_t at = 0; at < bytes; at += kSmall) {
            runs.push_back(channel().alloc(kMe, kSmall, late()));
            EXPECT_NE(runs.back(), nullptr) << "after " << at << " bytes";
        }
        return runs;
    }
    void give_all(const std::vector<void*>& runs) {
        for (void* at : runs) EXPECT_EQ(channel().free(kMe, at), Status::kSuccess);
    }

    ArrayRig rig;
    std::unique_ptr<client::Client> client;
};

TEST_F(PoolGrowthByHostThread, WaitingLanesGetNewPoolMemoryAndDoIoWithIt) {
    connect(kSmall, 4u << 20);
    constexpr std::uint32_t kWarps = 64;
    auto volume = rig.volume(*client, "v", kWarps * 512);
    auto memory = simt::DeviceMemory::allocate(4096, simt::LanesKind::kCpu).value();
    Common common{};
    common.volume = volume->ref();
    common.channels = client->channels();
    common.report = memory.lane_as<Report>();
    common.timeout_ns = 60'000'000'000;
    simt::LaunchOptions o;
    o.cpu_workers = kWarps;
    simt::launch(simt::LanesKind::kCpu, kWarps, 1,
                 PoolGrows{common, memory.lane_as<std::uint32_t>(2048), kWarps, 16}, o)
        .value();
    EXPECT_EQ(common.report->failures, 0u) << std::hex << common.report->last_status;
    EXPECT_EQ(common.report->mismatches, 0u);
    EXPECT_EQ(common.report->operations, kWarps * 4u);
    EXPECT_EQ(client->channel(0).pool_bytes(), 4u << 20);
    rig.expect_clean(*client);
    count("client_pool_growths", 4);
}

TEST_F(PoolGrowthByHostThread, GrowthEndsAtTheLimitAndADeadlineEndsTheWait) {
    connect(kSmall, 1u << 20);
    const auto runs = take_all(1u << 20);
    auto status = Status::kSuccess;
    EXPECT_EQ(channel().alloc(kMe, 1, soon(), &status), nullptr);
    EXPECT_EQ(status, Status::kNoBuffer);
    EXPECT_EQ(client->channel(0).pool_bytes(), 1u << 20);
    give_all(runs);
    rig.expect_clean(*client);
}

TEST_F(PoolGrowthByHostThread, TheDefaultLimitIsFourTimesTheInitialSize) {
    connect(kSmall, 0);
    give_all(take_all(4 * kSmall));
    EXPECT_EQ(client->channel(0).pool_bytes(), 4 * kSmall);
    rig.expect_clean(*client);
}

TEST_F(PoolGrowthByHostThread, APoolWhoseLimitIsItsSizeDoesNotGrow) {
    connect(kSmall, kSmall);
    const auto runs = take_all(kSmall);
    EXPECT_EQ(channel().alloc(kMe, 1, soon()), nullptr);
    EXPECT_EQ(client->channel(0).pool_bytes(), kSmall);
    give_all(runs);
    rig.expect_clean(*client);
}

TEST_F(PoolGrowthByHostThread, InvalidLimitsAreRefusedWithAnErrorMessage) {
    for (const std::uint64_t most : {kSmall - 1, kSmall + 1, ~std::uint64_t{0}, std::uint64_t{1} << 50}) {
        const auto refused = try_connect(kSmall, most);
        ASSERT_FALSE(refused.ok()) << most;
        EXPECT_NE(refused.error().message.find(std::to_string(most)), std::string::npos)
            << refused.error().message;
        count("client_options_refused", 1);
    }
}

}  // namespace gnstor::test::pool_growth_test
