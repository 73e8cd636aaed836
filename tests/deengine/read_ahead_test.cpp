// read_ahead_test.cpp: a read of many blocks announces its pages in time, each once, and no others: what
// stores on devices need to read them together.
#include <gtest/gtest.h>

#include "deengine/ram_flash.hpp"
#include "deengine/shard/shard.hpp"

#include <algorithm>
#include <memory>
#include <vector>

namespace gnstor::deengine::test::read_ahead_test {

class WatchedFlash final : public RamFlash {
  public:
    using RamFlash::RamFlash;
    void prefetch_data(PageNumber page, std::uint32_t first_sector) const override {
        EXPECT_EQ(first_sector, 0u);
        announced.push_back(page);
    }
    FlashStatus read(PageNumber page, std::uint32_t first, std::uint32_t count, std::byte* to,
                     std::uint32_t* crcs) override {
        reads.push_back({page, announced.size()});
        return RamFlash::read(page, first, count, to, crcs);
    }
    struct Read {
        PageNumber page;
        std::size_t announced;  ///< pages, until then
    };
    mutable std::vector<PageNumber> announced;
    std::vector<Read> reads;
};

class NoVolumesGo final : public VolumeRegistry {
  public:
    [[nodiscard]] bool lives(nvme::VolumeId, nvme::Epoch, nvme::BlockAddress) const override { return true; }
    [[nodiscard]] std::vector<std::pair<nvme::VolumeId, nvme::Epoch>> living() const override { return {}; }
};

class ReadAheadOfBlocks : public ::testing::Test, public CompletionSink {
  protected:
    void SetUp() override {
        RecoveryReport report;
        auto mounted = Shard::mount(flash, {0, 1, 0, 16}, EngineOptions{}, lives, *this, report);
        ASSERT_TRUE(mounted.ok()) << mounted.error().message;
        shard = std::move(*mounted);
    }
    void on_complete(std::uint64_t tag, nvme::Status status, std::uint64_t) override {
        EXPECT_TRUE(ok(status)) << nvme::status_name(status);
        answered = tag;
    }
    void run(ShardOp op, nvme::BlockAddress first, std::uint32_t blocks) {
        data.resize(std::size_t{blocks} * nvme::kBlockBytes);
        ShardCommand c{};
        c.op = op;
        c.volume = 1;
        c.first = first;
        c.blocks = blocks;
        c.epoch = c.volume_epoch = 1;
        c.sequence = c.tag = ++sequence;
        c.data = data.data();
        shard->execute(c);
        for (int i = 0; i < 100 && answered != sequence; ++i) (void)shard->poll(0);
        ASSERT_EQ(answered, sequence);
    }
    WatchedFlash flash{16, 64};
    NoVolumesGo lives;
    std::unique_ptr<Shard> shard;
    std::vector<std::byte> data;
    std::uint64_t sequence = 0, answered = 0;
};

TEST_F(ReadAheadOfBlocks, EachPageIsPrefetchedOnceBeforeEarlierPagesAreAwaited) {
    constexpr std::uint32_t kBlocks = 40;
    run(ShardOp::kWrite, 100, kBlocks);
    flash.announced.clear();
    flash.reads.clear();
    run(ShardOp::kRead, 100, kBlocks);
    ASSERT_EQ(flash.reads.size(), kBlocks);
    ASSERT_EQ(flash.announced.size(), kBlocks);
    for (std::uint32_t i = 0; i < kBlocks; ++i) {
        EXPECT_EQ(flash.announced[i], flash.reads[i].page) << "in the order in which they are read";
        EXPECT_GE(flash.reads[i].announced, std::min(i + 8, kBlocks))
            << "page " << i << " was not prefetched early enough";
        EXPECT_LE(flash.reads[i].announced, i + 16) << "more would take the buffers of other commands";
    }
}

TEST_F(ReadAheadOfBlocks, HolesAreNotPrefetched) {
    run(ShardOp::kWrite, 3, 1);
    flash.announced.clear();
    flash.reads.clear();
    run(ShardOp::kRead, 0, 8);
    ASSERT_EQ(flash.reads.size(), 1u);
    EXPECT_EQ(flash.announced, std::vector<PageNumber>{flash.reads[0].page});
}

TEST_F(ReadAheadOfBlocks, AReadOfOneBlockIsPrefetchedByItsBatch) {
    run(ShardOp::kWrite, 0, 4);
    flash.announced.clear();
    run(ShardOp::kRead, 2, 1);
    EXPECT_TRUE(flash.announced.empty());
}

}  // namespace gnstor::deengine::test::read_ahead_test
