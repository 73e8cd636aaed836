// command_router_test.cpp: which shard gets which blocks of a command, and when the command is completed.
#include "deengine/front/command_router.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace gnstor::deengine::command_router_test {

using nvme::Status;

constexpr std::uint32_t kExtent = 256;

/// Shards that remember what they were sent; the test answers for them.
struct FakePort final : ShardPort {
    explicit FakePort(std::uint32_t count, std::uint64_t mapped = 0) : mapped_(mapped), count_(count) {}
    struct Sent {
        std::uint32_t shard;
        ShardCommand command;
    };
    std::vector<Sent> sent;
    std::function<void()> then;  ///< called after each command, if not empty

    [[nodiscard]] std::uint32_t shards() const override { return count_; }
    void execute(std::uint32_t shard, const ShardCommand& command) override {
        sent.push_back({shard, command});
        if (command.op == ShardOp::kWrite) mapped_ += command.blocks;
        if (then) then();
    }
    void prefetch(std::uint32_t, nvme::VolumeId, nvme::BlockAddress) const override {}
    std::uint32_t poll(std::uint64_t) override { return 0; }
    [[nodiscard]] bool settle() override { return true; }
    void set_floor(nvme::VolumeId, nvme::Epoch, std::uint64_t) override {}
    [[nodiscard]] bool purge(nvme::VolumeId) override { return true; }
    [[nodiscard]] bool record_purge(nvme::VolumeId) override { return true; }
    void forget_volume(nvme::VolumeId) override {}
    Result<void> close() override { return {}; }
    [[nodiscard]] EngineCounters counters() const override { return {}; }
    [[nodiscard]] std::uint64_t mapped_blocks() const override { return mapped_; }

  private:
    std::uint64_t mapped_;
    const std::uint32_t count_;
};

struct Completed {
    std::uint64_t tag;
    Status status;
    std::uint64_t result;
    bool operator==(const Completed&) const = default;
};

/// A router over shards, and what it completed.
struct Rig : CompletionSink {
    explicit Rig(std::uint32_t shards, std::uint64_t mapped = 0) {
        auto made = std::make_unique<FakePort>(shards, mapped);
        port = made.get();
        router.attach(std::move(made), kCapacity);
    }
    void on_complete(std::uint64_t tag, Status status, std::uint64_t result) override {
        completed.push_back({tag, status, result});
    }
    /// The shard that a block goes to.
    std::uint32_t shard_of(nvme::VolumeId volume, std::uint32_t block) {
        ShardCommand c = write(block, 1);
        c.volume = volume;
        router.send(c);
        return port->sent.back().shard;
    }
    static ShardCommand write(std::uint32_t first, std::uint32_t blocks, std::byte* data = nullptr) {
        ShardCommand c{};
        c.op = ShardOp::kWrite;
        c.volume = 1;
        c.first = first;
        c.blocks = blocks;
        c.data = data;
        c.tag = 77;
        return c;
    }

    static constexpr std::uint64_t kCapacity = 1000;
    CommandRouter router{*this};
    FakePort* port = nullptr;
    std::vector<Completed> completed;
};

TEST(CommandRouter, ACommandWithinAnExtentGoesWholeToOneShardUnderItsOwnTag) {
    Rig rig(4);
    ShardCommand c = Rig::write(kExtent + 3, 5);
    rig.router.send(c);
    ASSERT_EQ(rig.port->sent.size(), 1u);
    EXPECT_EQ(rig.port->sent[0].command.tag, 77u);
    rig.router.on_complete(77, Status::kBusy, 9);
    EXPECT_EQ(rig.completed, (std::vector<Completed>{{77, Status::kBusy, 9}}));
}

TEST(CommandRouter, AnExtentLiesInOneShardAndExtentsAndVolumesAreSpread) {
    Rig rig(7);
    std::set<std::uint32_t> of_extents, of_volumes;
    for (std::uint32_t extent = 0; extent < 20; ++extent) {
        const std::uint32_t shard = rig.shard_of(1, extent * kExtent);
        EXPECT_LT(shard, 7u);
        for (const std::uint32_t block : {1u, 100u, kExtent - 1})
            EXPECT_EQ(rig.shard_of(1, extent * kExtent + block), shard) << "extent " << extent;
        of_extents.insert(shard);
        of_volumes.insert(rig.shard_of(static_cast<nvme::VolumeId>(1 + extent), 0));
    }
    EXPECT_EQ(of_extents.size(), 7u);
    EXPECT_GT(of_volumes.size(), 1u);
}

TEST(CommandRouter, BlocksOfACommandAcrossExtentsGoToTheirShardsOnceEachWithTheirBytesAndTheRoomLeft) {
    for (const std::uint32_t shards : {2u, 3u, 7u}) {
        Rig rig(shards, 100), other(shards);
        std::vector<std::byte> data(700 * nvme::kBlockBytes);
        ShardCommand c = Rig::write(200, 700, data.data());
        rig.router.send(c);
        std::uint32_t next = 200;
        for (const FakePort::Sent& part : rig.port->sent) {
            EXPECT_EQ(part.command.first, next);
            EXPECT_EQ(part.command.data, data.data() + std::size_t{next - 200} * nvme::kBlockBytes);
            EXPECT_EQ(part.command.room, Rig::kCapacity - 100 - (next - 200));
            next += part.command.blocks;
            EXPECT_EQ(part.shard, other.shard_of(1, part.command.first));
            EXPECT_EQ(part.shard, other.shard_of(1, next - 1)) << "the part's last block";
        }
        EXPECT_EQ(next, 900u);
    }
}

TEST(CommandRouter, TheLastPartCompletesACommandWithTheFirstFailure) {
    Rig rig(3);
    ShardCommand c = Rig::write(0, 3 * kExtent);
    rig.router.send(c);
    ASSERT_EQ(rig.port->sent.size(), 3u);
    const std::uint64_t tag = rig.port->sent[0].command.tag;
    EXPECT_NE(tag & CommandRouter::kPartTag, 0u);
    rig.router.on_complete(tag, Status::kSuccess, 1);
    rig.router.on_complete(tag, Status::kUnrecoveredReadError, 2);
    EXPECT_TRUE(rig.completed.empty());
    rig.router.on_complete(tag, Status::kWriteFault, 3);
    EXPECT_EQ(rig.completed, (std::vector<Completed>{{77, Status::kUnrecoveredReadError, 2}}));
}

TEST(CommandRouter, CommandsInPartsAtTheSameTimeAreCompletedEachByItsOwnParts) {
    Rig rig(2);
    std::set<std::uint64_t> part_tags;
    for (int wave = 0; wave < 3; ++wave) {
        rig.port->sent.clear();
        rig.completed.clear();
        for (std::uint64_t tag = 1; tag <= 20; ++tag) {
            ShardCommand c = Rig::write(0, 2 * kExtent);
            c.tag = tag;
            rig.router.send(c);
        }
        std::vector<std::uint64_t> of;
        for (std::size_t i = 0; i < rig.port->sent.size(); i += 2) {
            of.push_back(rig.port->sent[i].command.tag);
            EXPECT_EQ(rig.port->sent[i + 1].command.tag, of.back());
        }
        for (const std::uint64_t tag : of) rig.router.on_complete(tag, Status::kSuccess, 0);
        EXPECT_TRUE(rig.completed.empty());
        for (std::size_t i = 0; i < of.size(); ++i)  // in another order
            rig.router.on_complete(of[(i * 7 + 3) % of.size()], Status::kSuccess, 0);
        ASSERT_EQ(rig.completed.size(), 20u);
        for (std::size_t i = 0; i < of.size(); ++i)
            EXPECT_EQ(rig.completed[i].tag, (i * 7 + 3) % of.size() + 1);
        part_tags.insert(of.begin(), of.end());
    }
    EXPECT_EQ(part_tags.size(), 20u) << "tags of parts are used again";
}

TEST(CommandRouter, AFlushGoesToEveryShardAndIsCompletedOnce) {
    Rig rig(5);
    ShardCommand all{};
    all.op = ShardOp::kFlush;
    all.tag = 5;
    rig.router.flush(all);
    ASSERT_EQ(rig.port->sent.size(), 5u);
    for (std::uint32_t i = 0; i < 5; ++i) {
        EXPECT_EQ(rig.port->sent[i].shard, i);
        EXPECT_TRUE(rig.completed.empty());
        rig.router.on_complete(rig.port->sent[i].command.tag, Status::kSuccess, 0);
    }
    EXPECT_EQ(rig.completed, (std::vector<Completed>{{5, Status::kSuccess, 0}}));
}

/// The receiver of a completion may submit another trim, which overwrites the ranges of this one.
TEST(CommandRouter, ATrimGoesToTheShardsOfItsRangesThoughTheseAreOverwrittenMeanwhile) {
    Rig rig(5), other(5);
    std::vector<nvme::DsmRange> ranges = {{0, 10, 100}, {0, 2, kExtent - 1}};
    rig.port->then = [&] { std::ranges::fill(ranges, nvme::DsmRange{0, 1, 7}); };
    ShardCommand trim = Rig::write(0, 0);
    trim.op = ShardOp::kTrim;
    rig.router.send_parts(trim, ranges);
    const std::pair<std::uint32_t, std::uint32_t> parts[] = {{100, 10}, {kExtent - 1, 1}, {kExtent, 1}};
    ASSERT_EQ(rig.port->sent.size(), std::size(parts));
    for (std::size_t i = 0; i < std::size(parts); ++i) {
        const FakePort::Sent& part = rig.port->sent[i];
        EXPECT_EQ(std::pair(part.command.first, part.command.blocks), parts[i]);
        EXPECT_EQ(part.shard, other.shard_of(1, parts[i].first));
        EXPECT_TRUE(rig.completed.empty());
        rig.router.on_complete(part.command.tag, Status::kSuccess, 0);
    }
    EXPECT_EQ(rig.completed, (std::vector<Completed>{{77, Status::kSuccess, 0}}));
}

TEST(CommandRouter, RoomIsTheCapacityLessMappedBlocksAndNeverNegative) {
    EXPECT_EQ(Rig(1, 400).router.room(), 600u);
    EXPECT_EQ(Rig(1, 1200).router.room(), 0u);
}

}  // namespace gnstor::deengine::command_router_test
