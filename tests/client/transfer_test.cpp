// transfer_test.cpp: host transfers against SSDs that hang: they end at their deadline, the caller's memory
// is the caller's again, and the next transfers work once the SSDs are back.
#include <algorithm>

#include "embedded/bench.hpp"

namespace gnstor::test::transfer_test {

constexpr std::uint32_t kBlocks = 64;
constexpr std::uint32_t kTimeoutMs = 300;

/// NICs on one thread, SSDs on another that can be held: they have their commands, with windows open into the
/// client's memory, and do nothing.
class Transfers : public ::testing::Test {
  protected:
    void SetUp() override {
        client::ClientOptions o;
        o.name = "owner";
        o.channels = 1;
        o.keep_alive_ms = 0;
        o.transfer_timeout_ms = kTimeoutMs;
        client = client::Client::connect(*rig.control, *rig.nic, o).value();
        volume = rig.volume(*client, "v", kBlocks, 2, 16384);
        fill(data, 1);
        eventually([&] { return volume->write(0, data); });
    }
    Reactor& ssds() { return *rig.node->drive_reactors().front(); }
    static void fill(std::vector<std::byte>& bytes, std::uint32_t version) {
        for (std::uint32_t b = 0; b < kBlocks; ++b)
            fill_tagged(simt::self(simt::Lane{}),
                        reinterpret_cast<std::uint64_t*>(bytes.data() + std::size_t{b} * 4096), 7, b, 1,
                        tag_of(0, version));
    }
    /// Until it works: a busy machine may time a healthy transfer out as well.
    template <class Transfer>
    void eventually(Transfer transfer) {
        const auto deadline = late();
        auto done = transfer();
        while (!done.ok() && done.error().code == Errc::kTimedOut && !deadline.passed()) done = transfer();
        GN_ASSERT_OK(done);
    }

    ArrayRig rig{rig_options(2)};
    std::unique_ptr<client::Client> client;
    std::unique_ptr<client::Volume> volume;
    std::vector<std::byte> data = std::vector<std::byte>(kBlocks * nvme::kBlockBytes);
};

TEST_F(Transfers, AReadThatTimedOutWritesNothingIntoTheCallersMemoryLater) {
    std::vector<std::byte> back(data.size(), std::byte{0xEE});
    {
        Hold hold(ssds());
        const auto read = volume->read(0, back);
        ASSERT_FALSE(read.ok());
        EXPECT_EQ(read.error().code, Errc::kTimedOut) << read.error().message;
        std::fill(back.begin(), back.end(), std::byte{0xC0});
    }
    GN_ASSERT_OK(client->quiesce(60'000));  // the SSDs have done what they had
    EXPECT_EQ(std::count(back.begin(), back.end(), std::byte{0xC0}), static_cast<long>(back.size()));
    eventually([&] { return volume->read(0, back); });
    EXPECT_EQ(back, data);
    rig.expect_clean(*client);
}

TEST_F(Transfers, AWriteThatTimedOutStoresNoBytesThatTheCallerPutInTheBufferLater) {
    for (const std::uint32_t blocks : {1u, kBlocks}) {  // in the capsule, and fetched by the SSD
        std::vector<std::byte> mine(data.size()), back(data.size());
        fill(mine, 2);
        const auto bytes = std::span<const std::byte>(mine).first(std::size_t{blocks} * 4096);
        {
            Hold hold(ssds());
            const auto written = volume->write(0, bytes);
            ASSERT_FALSE(written.ok());
            EXPECT_EQ(written.error().code, Errc::kTimedOut) << written.error().message;
            std::fill(mine.begin(), mine.end(), std::byte{0xC0});
        }
        GN_ASSERT_OK(client->quiesce(60'000));
        eventually([&] { return volume->read(0, back); });
        for (std::uint32_t b = 0; b < kBlocks; ++b) {
            const auto* words = reinterpret_cast<const std::uint64_t*>(back.data() + std::size_t{b} * 4096);
            EXPECT_TRUE(is_whole(words, 7, b)) << "block " << b << " holds bytes that no write sent";
            EXPECT_TRUE(words[0] == tag_of(0, 1) || words[0] == tag_of(0, 2)) << "block " << b;
        }
    }
    rig.expect_clean(*client);
}

TEST_F(Transfers, TheNextTransferResetsQueuePairsWithCommandsUnanswered) {
    std::vector<std::byte> back(data.size());
    const std::uint64_t before = rig.nic->counters().error_completions;
    Hold hold(ssds());
    EXPECT_FALSE(volume->read(0, back).ok());
    // The reset waits for the SSD to close its windows, so it is let go once the queue pair is in error.
    std::thread releaser([&] {
        const auto deadline = late();
        while (rig.nic->counters().error_completions == before && !deadline.passed())
            std::this_thread::yield();
        EXPECT_GT(rig.nic->counters().error_completions, before) << "no queue pair was reset";
        hold.release();
    });
    const auto second = volume->read(0, back);
    releaser.join();
    if (!second.ok()) eventually([&] { return volume->read(0, back); });
    EXPECT_EQ(back, data);
    eventually([&] { return volume->write(0, data); });
    rig.expect_clean(*client);
}

}  // namespace gnstor::test::transfer_test
