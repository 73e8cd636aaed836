// shards_test.cpp: a drive of several shards is one drive: commands across their borders, flushes, floors,
// deletions and mounts.
#include <gtest/gtest.h>
#include <gnstor/nvme/copy.hpp>

#include "deengine/rig.hpp"
#include "support/seed.hpp"

#include <array>
#include <map>

namespace gnstor::deengine::test::shards_test {

constexpr nvme::VolumeId kVolume = 3;
constexpr nvme::ClientId kWriter = 7;
constexpr std::uint32_t kBlocks = 2048;  ///< eight extents

struct ShardsTest : ::testing::Test {
    static constexpr std::uint32_t kShards = 4;
    ShardsTest() : flash(kShards * 32, 32) {
        options = default_options();
        options.mdts_blocks = 600;
        mount();
        EXPECT_EQ(admin(nvme::AdminOpcode::kVolumeAdd, make_record(kVolume, kWriter, 1, kBlocks)),
                  Status::kSuccess);
        EXPECT_EQ(admin(nvme::AdminOpcode::kMapSet, make_map(1)), Status::kSuccess);
    }
    void mount() {
        engine.reset();
        std::array<Flash*, kShards> views;
        views.fill(&flash);
        auto mounted = Engine::mount(std::span<Flash* const>(views), metadata, options, answers, &report);
        ASSERT_TRUE(mounted.ok()) << mounted.error().message;
        engine = std::move(mounted).value();
    }
    template <class T>
    Status admin(nvme::AdminOpcode opcode, T payload) {
        nvme::Command c{};
        c.opcode = static_cast<std::uint8_t>(opcode);
        c.cdw14 = 1;
        if (opcode == nvme::AdminOpcode::kVolumeDelete) c.cdw10 = kVolume;
        engine->submit_admin(c, kAdmin, std::as_writable_bytes(std::span(&payload, 1)), ++tag, 1);
        return answers.last.status;
    }
    Status io(IoOpcode opcode, nvme::BlockAddress block, std::uint32_t blocks, std::span<std::byte> data,
              bool fua = false) {
        IoFields f;
        f.volume = kVolume;
        f.client = kWriter;
        f.block = block;
        f.blocks = blocks;
        f.epoch = epoch;
        f.map_version = 1;
        f.fua = fua;
        f.sequence = opcode == IoOpcode::kRead || opcode == IoOpcode::kFlush ? 0 : ++sequence;
        const std::uint64_t before = answers.count;
        engine->submit(nvme::encode_io(opcode, f), {kWriter, false}, data, ++tag, 1);
        if (answers.count == before) engine->poll(1);
        EXPECT_EQ(answers.count, before + 1)
            << "a command must be answered once, however many shards execute it";
        EXPECT_EQ(answers.last_tag, tag);
        return answers.last.status;
    }
    Status trim(std::vector<nvme::DsmRange> ranges) {
        IoFields f;
        f.volume = kVolume;
        f.client = kWriter;
        f.epoch = epoch;
        f.map_version = 1;
        f.sequence = ++sequence;
        const std::uint64_t before = answers.count;
        engine->submit(nvme::encode_trim(f, static_cast<std::uint32_t>(ranges.size())), {kWriter, false},
                       std::as_writable_bytes(std::span(ranges)), ++tag, 1);
        if (answers.count == before) engine->poll(1);
        EXPECT_EQ(answers.count, before + 1);
        return answers.last.status;
    }
    Status raise_floor() {
        nvme::Command c{};
        c.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kFloor);
        c.cdw10 = kVolume;
        c.cdw11 = epoch;
        c.cdw12 = static_cast<std::uint32_t>(sequence);
        c.cdw14 = 1;
        engine->submit_admin(c, kAdmin, {}, ++tag, 1);
        return answers.last.status;
    }
    void check() {
        Block got(kBlocks / 4 * std::size_t{nvme::kBlockBytes});
        for (std::uint32_t first = 0; first < kBlocks; first += kBlocks / 4) {
            ASSERT_EQ(io(IoOpcode::kRead, first, kBlocks / 4, got), Status::kSuccess);
            for (std::uint32_t i = 0; i < kBlocks / 4; ++i) {
                const Block one(got.begin() + static_cast<long>(i * nvme::kBlockBytes),
                                got.begin() + static_cast<long>((i + 1) * nvme::kBlockBytes));
                ASSERT_EQ(one, pattern(held[first + i])) << "block " << first + i;
            }
        }
    }

    RamFlash flash;
    RamMetadata metadata;
    EngineOptions options;
    Answers answers;
    RecoveryReport report{};
    std::unique_ptr<Engine> engine;
    std::uint64_t tag = 0, sequence = 0;
    nvme::Epoch epoch = 1;
    std::map<std::uint32_t, std::uint64_t> held;
};

TEST_F(ShardsTest, CommandsAcrossShardsAreAnsweredOnceAndKeepEveryBlock) {
    SplitMix64 random(gnstor::test::run_seed());
    std::uint64_t id = 1, crossing = 0;
    for (int i = 0; i < 600; ++i) {
        const auto blocks = static_cast<std::uint32_t>(1 + random.below(i % 10 == 0 ? 600 : 24));
        const auto first = static_cast<std::uint32_t>(random.below(kBlocks - blocks));
        crossing += first / 256 != (first + blocks - 1) / 256;
        switch (random.below(10)) {
            case 0:
                ASSERT_EQ(io(IoOpcode::kWriteZeroes, first, blocks, {}), Status::kSuccess);
                for (std::uint32_t b = 0; b < blocks; ++b) held[first + b] = 0;
                break;
            case 1: {
                const std::uint32_t half = blocks / 2;
                std::vector<nvme::DsmRange> ranges = {{0, blocks, first}};
                if (half != 0) ranges = {{0, half, first}, {0, blocks - half, first + half}};
                ASSERT_EQ(trim(ranges), Status::kSuccess);
                for (std::uint32_t b = 0; b < blocks; ++b) held[first + b] = 0;
                break;
            }
            default: {
                Block data = pattern(id, blocks);
                Status status = io(IoOpcode::kWrite, first, blocks, data, random.below(4) == 0);
                // Many holes in what was trimmed: room for them comes when the floor has passed.
                for (int attempt = 0; status == Status::kBusy && attempt < 500; ++attempt) {
                    ASSERT_EQ(raise_floor(), Status::kSuccess);
                    engine->poll(1);
                    status = io(IoOpcode::kWrite, first, blocks, data);
                }
                ASSERT_EQ(status, Status::kSuccess);
                for (std::uint32_t b = 0; b < blocks; ++b) held[first + b] = id + b;
                id += blocks;
            }
        }
        if (i % 150 != 149) continue;
        check();
        if (i == 299) {
            ASSERT_TRUE(engine->close().ok());
        }
        mount();
        ASSERT_EQ(admin(nvme::AdminOpcode::kMapSet, make_map(1)), Status::kSuccess);
        check();
    }
    EXPECT_GT(crossing, 30u);
    EXPECT_EQ(flash.violations, 0u);
}

TEST_F(ShardsTest, AFlushCoversAllShardsAndFailsIfOneShardFails) {
    Block data = pattern(10, 512);
    ASSERT_EQ(io(IoOpcode::kWrite, 0, 512, data), Status::kSuccess);
    ASSERT_EQ(io(IoOpcode::kFlush, 0, 1, {}), Status::kSuccess);
    ASSERT_EQ(io(IoOpcode::kWrite, 0, 512, data), Status::kSuccess);
    const std::uint64_t syncs = flash.syncs;
    ASSERT_EQ(io(IoOpcode::kFlush, 0, 1, {}), Status::kSuccess);
    EXPECT_EQ(flash.syncs, syncs + 2) << "of the two shards that had something to make stable";
    ASSERT_EQ(io(IoOpcode::kWrite, 0, 512, data), Status::kSuccess);
    flash.fail_sync = true;
    EXPECT_EQ(io(IoOpcode::kFlush, 0, 1, {}), Status::kWriteFault);
}

TEST_F(ShardsTest, ADeletedVolumeIsGoneFromAllShards) {
    Block data = pattern(10, 600);
    for (std::uint32_t first = 0; first + 600 <= kBlocks; first += 600)
        ASSERT_EQ(io(IoOpcode::kWrite, first, 600, data), Status::kSuccess);
    ASSERT_EQ(engine->counters().mapped_blocks, 1800u);
    ASSERT_EQ(admin(nvme::AdminOpcode::kVolumeDelete, std::uint32_t{0}), Status::kSuccess);
    EXPECT_EQ(engine->counters().mapped_blocks, 0u);
    ASSERT_EQ(admin(nvme::AdminOpcode::kVolumeAdd, make_record(kVolume, kWriter, 2, kBlocks)),
              Status::kSuccess);
    epoch = 2;
    check();
    mount();
    ASSERT_EQ(admin(nvme::AdminOpcode::kMapSet, make_map(1)), Status::kSuccess);
    check();
}

TEST_F(ShardsTest, TheCapacityLimitAppliesToTheWholeDrive) {
    options.block_limit = 700;
    mount();
    ASSERT_EQ(admin(nvme::AdminOpcode::kMapSet, make_map(1)), Status::kSuccess);
    EXPECT_EQ(engine->capacity_blocks(), 700u);
    Block data = pattern(10, 600);
    ASSERT_EQ(io(IoOpcode::kWrite, 0, 600, data), Status::kSuccess);
    ASSERT_EQ(io(IoOpcode::kWrite, 1600, 101, std::span(data).first(101 * nvme::kBlockBytes)),
              Status::kCapacityExceeded)
        << "one more than is promised, though its shard has room";
    ASSERT_EQ(io(IoOpcode::kWrite, 1600, 100, std::span(data).first(100 * nvme::kBlockBytes)),
              Status::kSuccess);
    EXPECT_EQ(io(IoOpcode::kWrite, 1000, 50, std::span(data).first(50 * nvme::kBlockBytes)),
              Status::kCapacityExceeded)
        << "in two parts, of which neither has room";
    EXPECT_EQ(engine->counters().mapped_blocks, 700u);
    ASSERT_EQ(io(IoOpcode::kWrite, 0, 600, data), Status::kSuccess)
        << "overwriting existing blocks must succeed";
}

TEST_F(ShardsTest, ASurveyIsAnsweredByTheShardOfEachExtent) {
    Block data = pattern(1);
    for (const nvme::BlockAddress block : {5u, 256u + 6u, 1792u + 7u})
        EXPECT_EQ(io(IoOpcode::kWrite, block, 1, data), Status::kSuccess);
    std::vector<nvme::SurveyExtent> extents(kBlocks / nvme::kExtentBlocks);
    const auto survey = nvme::encode_copy(nvme::CopyOpcode::kCopySurvey, 1, kVolume, 0, kBlocks, 1);
    engine->submit_admin(survey, kAdmin, std::as_writable_bytes(std::span(extents)), ++tag, 1);
    ASSERT_EQ(answers.last_tag, tag);
    ASSERT_EQ(answers.last.status, Status::kSuccess);
    for (std::uint32_t e = 0; e < extents.size(); ++e) {
        const std::uint32_t there = e == 0 ? 5 : e == 1 ? 6 : e == 7 ? 7 : ~0u;
        for (std::uint32_t b = 0; b < nvme::kExtentBlocks; ++b) EXPECT_EQ(extents[e].has(b), b == there);
        EXPECT_EQ(extents[e].groups, there == ~0u ? 0u : 1u);
    }
}

}  // namespace gnstor::deengine::test::shards_test
