// floors_test.cpp: what a drive remembers of trims ends with the floor, no volume takes the table from
// another, and no change is busy forever.
#include "deengine/rig.hpp"
#include "support/count.hpp"
#include "support/seed.hpp"

#include <map>

namespace gnstor::deengine::test::floors_test {

constexpr nvme::ClientId kWriter = 7;
constexpr nvme::VolumeId kHog = 3, kOther = 4;
constexpr std::uint32_t kBlocks = 1u << 20;

EngineOptions small_table() {
    EngineOptions o = default_options();
    o.max_tombstones = 64;
    return o;
}

struct FloorRig : Rig {
    explicit FloorRig(const EngineOptions& o = small_table(), std::uint32_t units = 32) : Rig(units, 32, o) {
        for (const nvme::VolumeId v : {kHog, kOther})
            EXPECT_EQ(add(make_record(v, kWriter, 1, kBlocks)), Status::kSuccess);
        EXPECT_EQ(set_map(make_map(1)), Status::kSuccess);
    }
    void remount() {
        mount();
        ASSERT_EQ(set_map(make_map(1)), Status::kSuccess);
    }
    Answer floor(nvme::VolumeId volume, std::uint64_t f) {
        return admin(nvme::encode_floor(volume, epoch, f), {}, Requester{kWriter, false});
    }
    Status trim_block(nvme::VolumeId volume, std::uint32_t block, std::uint64_t sequence,
                      std::uint32_t blocks = 1) {
        return trim(fields(volume, kWriter, 0), sequence, {{0, blocks, block}}).status;
    }
    Status write_block(nvme::VolumeId volume, std::uint32_t block, std::uint64_t sequence) {
        return write(fields(volume, kWriter, block), sequence, pattern(sequence)).status;
    }
    /// Trims of single blocks, none beside another, from `sequence` on, until the drive is busy: how many.
    std::uint32_t fill(nvme::VolumeId volume, std::uint64_t sequence) {
        for (std::uint32_t i = 0; i < 100'000; ++i) {
            const Status status = trim_block(volume, 1000 + 2 * i, sequence + i);
            if (status == Status::kBusy) return i;
            EXPECT_EQ(status, Status::kSuccess);
        }
        ADD_FAILURE() << "the drive never answered Busy";
        return 0;
    }
};

TEST(Floors, TombstonesBelowTheFloorTakeNoSpaceHoweverMuchIsTrimmed) {
    FloorRig rig;
    std::uint64_t sequence = 0;
    for (std::uint32_t i = 0; i < 20'000; ++i) {
        Status status = rig.trim_block(kHog, 2 * i, ++sequence);
        for (int attempt = 0; attempt < 200 && status == Status::kBusy; ++attempt) {  // for room in the log
            rig.engine->poll(++rig.now_ns);
            status = rig.trim_block(kHog, 2 * i, sequence);
        }
        ASSERT_EQ(status, Status::kSuccess) << "trim " << i;
        if (i % 16 == 15) {
            ASSERT_TRUE(ok(rig.floor(kHog, sequence).status));
        }
        ASSERT_LE(rig.engine->counters().tombstones, 16u);
    }
    EXPECT_EQ(rig.floor(kHog, sequence).dw0, 0u) << "the writer is told that there is nothing left";
}

TEST(Floors, AVolumeThatTrimsWithoutAFloorLeavesOtherVolumesTheirShare) {
    FloorRig rig;
    const std::uint32_t taken = rig.fill(kHog, 1);
    EXPECT_GE(taken, 16u);
    const std::uint32_t others = rig.fill(kOther, 1);
    EXPECT_GE(others, 8u) << "of a table in which one volume has " << taken;
    ASSERT_TRUE(ok(rig.floor(kOther, others).status));
    EXPECT_GE(rig.fill(kOther, others + 1), 8u) << "one's floor gives it its own part back";
    EXPECT_EQ(rig.trim_block(kHog, 0, 10'000), Status::kBusy);
    ASSERT_TRUE(ok(rig.floor(kHog, taken).status));
    EXPECT_EQ(rig.trim_block(kHog, 0, 10'000), Status::kSuccess);
}

TEST(Floors, TheFirstChangeAboveTheFloorIsNeverBusyHoweverFullTheTable) {
    FloorRig rig;
    ASSERT_EQ(rig.write_block(kHog, 4, 1), Status::kSuccess);
    ASSERT_EQ(rig.trim_block(kHog, 0, 2, 16), Status::kSuccess);
    ASSERT_TRUE(ok(rig.floor(kHog, 2).status));
    (void)rig.fill(kHog, 10);  // sequences 3 .. 9 are those of a slow lane
    ASSERT_EQ(rig.trim_block(kHog, 100, 4), Status::kBusy) << "an older one may still come";
    EXPECT_EQ(rig.write_block(kHog, 4, 3), Status::kSuccess) << "a write to a trimmed block must succeed";
    ASSERT_TRUE(ok(rig.floor(kHog, 3).status));
    EXPECT_EQ(rig.trim_block(kHog, 100, 4), Status::kSuccess);
    EXPECT_TRUE(rig.holds(rig.fields(kHog, kWriter, 4), 3));
    // A trim that says nothing in the table is a trim all the same, also after a kill.
    ASSERT_TRUE(ok(rig.floor(kHog, 4).status));
    ASSERT_EQ(rig.trim_block(kHog, 4, 5), Status::kSuccess);
    EXPECT_TRUE(rig.holds(rig.fields(kHog, kWriter, 4), 0));
    rig.remount();
    EXPECT_TRUE(rig.holds(rig.fields(kHog, kWriter, 4), 0));
}

TEST(Floors, AnEndedEpochLeavesTheNextOneItsSpace) {
    FloorRig rig;
    (void)rig.fill(kHog, 1);
    nvme::VolumeRecord next = make_record(kHog, kWriter, 1, kBlocks);
    next.epoch = 2;
    ASSERT_EQ(rig.chmod(next), Status::kSuccess);
    rig.epoch = 2;
    EXPECT_EQ(rig.trim_block(kHog, 0, 5), Status::kSuccess);
    EXPECT_EQ(rig.write_block(kHog, 1000, 6), Status::kSuccess) << "into what the older epoch trimmed";
    EXPECT_TRUE(rig.holds(rig.fields(kHog, kWriter, 1000), 6));
}

/// Writes and trims of few blocks by a writer that keeps some back and comes again with them, with exact
/// floors, a tiny table and kills: nothing is lost, nothing comes back, and nothing is busy forever.
TEST(Floors, AWriterWithExactFloorsFinishesAllItsWritesAcrossKills) {
    std::uint64_t changes = 0, busy = 0;
    for (std::uint64_t round = 0; round < 12; ++round) {
        SplitMix64 random(gnstor::test::run_seed() * 1000 + round);
        EngineOptions o = small_table();
        o.max_tombstones = 16 + static_cast<std::uint32_t>(random.below(32));
        FloorRig rig(o, 24);
        struct Change {
            std::uint32_t block, blocks;
            bool trim;
        };
        std::map<std::uint64_t, Change> open;                 // not resolved
        std::map<std::uint32_t, std::uint64_t> newest, held;  // sequence, and what is there (0: nothing)
        std::uint64_t sequence = 0;
        const auto send = [&](std::uint64_t s, const Change& c) {
            const Status status =
                c.trim ? rig.trim_block(kHog, c.block, s, c.blocks) : rig.write_block(kHog, c.block, s);
            rig.engine->poll(++rig.now_ns);
            if (status == Status::kBusy) return false;
            EXPECT_EQ(status, Status::kSuccess);
            for (std::uint32_t b = c.block; b < c.block + c.blocks; ++b) {
                if (newest[b] > s) continue;
                newest[b] = s;
                held[b] = c.trim ? 0 : s;
            }
            return true;
        };
        for (int step = 0; step < 1500; ++step) {
            if (open.size() < 40) {
                Change c{static_cast<std::uint32_t>(2 * random.below(150)), 1, random.below(3) != 0};
                if (c.trim) c.blocks += static_cast<std::uint32_t>(random.below(4));
                open[++sequence] = c;
                ++changes;
            }
            // One of those that are open, mostly a young one.
            auto it = open.begin();
            if (random.below(8) != 0)
                std::advance(
                    it, static_cast<long>(open.size() / 2 + random.below(open.size() - open.size() / 2)));
            if (send(it->first, it->second))
                open.erase(it);
            else
                ++busy;
            if (random.below(6) == 0) {
                ASSERT_TRUE(ok(rig.floor(kHog, open.empty() ? sequence : open.begin()->first - 1).status));
            }
            if (random.below(150) == 0) rig.remount();
        }
        for (int attempt = 0; attempt < 5000 && !open.empty(); ++attempt) {
            ASSERT_TRUE(ok(rig.floor(kHog, open.begin()->first - 1).status));
            if (send(open.begin()->first, open.begin()->second)) open.erase(open.begin());
        }
        ASSERT_TRUE(open.empty()) << "sequence " << open.begin()->first << " is busy forever";
        for (int mounts = 0; mounts < 2; ++mounts, rig.remount())
            for (const auto& [block, id] : held)
                ASSERT_TRUE(rig.holds(rig.fields(kHog, kWriter, block), id)) << "round " << round;
    }
    EXPECT_GT(busy, 100u) << "the table must be full in this test";
    gnstor::test::count("deengine_floor_changes", changes);
}

}  // namespace gnstor::deengine::test::floors_test
