// engine_test.cpp: what commands do: contents, order, tombstones, sectors, durability, flash that fails or is
// full.
#include <gtest/gtest.h>

#include "deengine/rig.hpp"

#include <algorithm>

namespace gnstor::deengine::test {
namespace {

constexpr nvme::VolumeId kVolume = 3;
constexpr nvme::ClientId kWriter = 7;

struct EngineTest : ::testing::Test {
    EngineTest() { set_up(rig); }
    static void set_up(Rig& r) {
        EXPECT_EQ(r.add(make_record(kVolume, kWriter)), Status::kSuccess);
        EXPECT_EQ(r.set_map(make_map(1)), Status::kSuccess);
    }
    IoFields at(nvme::BlockAddress block, std::uint32_t blocks = 1) const {
        return rig.fields(kVolume, kWriter, block, blocks);
    }
    Rig rig;
};

TEST_F(EngineTest, ABlockNeverWrittenReadsAsZeroes) {
    EXPECT_TRUE(rig.holds(at(5), 0));
}

TEST_F(EngineTest, AReadReturnsTheWrittenData) {
    EXPECT_EQ(rig.write(at(4, 3), 1, pattern(100, 3)).status, Status::kSuccess);
    for (std::uint32_t i = 0; i < 3; ++i) EXPECT_TRUE(rig.holds(at(4 + i), 100 + i));
    Block got;
    EXPECT_EQ(rig.read(at(3, 5), got).status, Status::kSuccess);
    Block expected = pattern(0);
    for (const Block& b : {pattern(100, 3), pattern(0)}) expected.insert(expected.end(), b.begin(), b.end());
    EXPECT_EQ(got, expected);
    EXPECT_EQ(rig.engine->counters().mapped_blocks, 3u);
}

TEST_F(EngineTest, EverySectorRangeOfABlockCanBeRead) {
    ASSERT_EQ(rig.write(at(1), 1, pattern(9)).status, Status::kSuccess);
    const Block whole = pattern(9);
    for (std::uint8_t first = 0; first < 8; ++first)
        for (std::uint8_t count = 1; first + count <= 8; ++count) {
            IoFields f = at(1);
            f.first_sector = first;
            f.sectors = count;
            Block got;
            ASSERT_EQ(rig.read(f, got).status, Status::kSuccess);
            ASSERT_TRUE(std::equal(got.begin(), got.end(), whole.begin() + first * 512));
            f.block = 2;  // never written
            ASSERT_EQ(rig.read(f, got).status, Status::kSuccess);
            ASSERT_EQ(got, Block(count * 512u));
        }
}

TEST_F(EngineTest, WritesWithoutFuaOrFlushAreStableASecondLater) {
    constexpr std::uint64_t kSecond = 1'000'000'000;
    const auto syncs_after = [&](std::uint64_t ns) {
        rig.now_ns += ns;
        rig.engine->poll(rig.now_ns);
        return rig.flash.syncs;
    };
    const std::uint64_t before = syncs_after(kSecond);
    ASSERT_EQ(rig.write(at(1), 1, pattern(1)).status, Status::kSuccess);
    EXPECT_EQ(syncs_after(kSecond / 2), before) << "a volatile cache may wait";
    EXPECT_EQ(syncs_after(kSecond), before + 1);
    EXPECT_EQ(syncs_after(9 * kSecond), before + 2) << "a stamp must follow the sync";
    EXPECT_EQ(syncs_after(9 * kSecond), before + 2) << "nothing was programmed since";
}

TEST_F(EngineTest, AnOlderSequenceNeverReplacesANewerOne) {
    ASSERT_EQ(rig.write(at(1), 10, pattern(10)).status, Status::kSuccess);
    EXPECT_EQ(rig.write(at(1), 9, pattern(9)).status, Status::kSuccess)
        << "superseded: the winner stands, that is success";
    EXPECT_TRUE(rig.holds(at(1), 10));
    EXPECT_EQ(rig.write(at(1), 10, pattern(10)).status, Status::kSuccess) << "duplicate";
    EXPECT_EQ(rig.engine->counters().superseded, 2u);
    EXPECT_EQ(rig.engine->counters().blocks_written, 1u);
    EXPECT_EQ(rig.write(at(1), 11, pattern(11)).status, Status::kSuccess);
    EXPECT_TRUE(rig.holds(at(1), 11));
}

TEST_F(EngineTest, TwoWritesOfOneSequenceHaveTheSameWinnerInBothOrders) {
    ASSERT_EQ(rig.write(at(1), 5, pattern(70)).status, Status::kSuccess);
    ASSERT_EQ(rig.write(at(1), 5, pattern(71)).status, Status::kSuccess);
    ASSERT_EQ(rig.write(at(2), 5, pattern(71)).status, Status::kSuccess);
    ASSERT_EQ(rig.write(at(2), 5, pattern(70)).status, Status::kSuccess);
    Block one, two;
    ASSERT_EQ(rig.read(at(1), one).status, Status::kSuccess);
    ASSERT_EQ(rig.read(at(2), two).status, Status::kSuccess);
    EXPECT_EQ(one, two);
    rig.mount();
    ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
    ASSERT_EQ(rig.read(at(1), two).status, Status::kSuccess);
    EXPECT_EQ(one, two);
}

TEST_F(EngineTest, ATombstoneOutlivesALateOlderWrite) {
    ASSERT_EQ(rig.write(at(4), 1, pattern(1)).status, Status::kSuccess);
    EXPECT_EQ(rig.trim(at(0), 5, {{0, 2, 4}, {0, 1, 9}}).status, Status::kSuccess);
    EXPECT_EQ(rig.zero(at(20, 2), 6).status, Status::kSuccess);
    for (const nvme::BlockAddress b : {4u, 5u, 9u, 20u, 21u}) {
        EXPECT_TRUE(rig.holds(at(b), 0));
        EXPECT_EQ(rig.write(at(b), 4, pattern(44)).status, Status::kSuccess);
        EXPECT_TRUE(rig.holds(at(b), 0)) << "sequence 4 is older than the tombstone";
    }
    rig.mount();
    ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
    EXPECT_EQ(rig.report.tombstones, 3u) << "three runs of blocks";
    for (const nvme::BlockAddress b : {4u, 5u, 9u, 20u, 21u}) {
        EXPECT_EQ(rig.write(at(b), 4, pattern(44)).status, Status::kSuccess);
        EXPECT_TRUE(rig.holds(at(b), 0)) << "the trimmed block must not reappear after a mount";
    }
    EXPECT_EQ(rig.write(at(4), 7, pattern(7)).status, Status::kSuccess);
    EXPECT_TRUE(rig.holds(at(4), 7));
}

TEST_F(EngineTest, ATrimWithoutDeallocateIsAHintAndChangesNothing) {
    ASSERT_EQ(rig.write(at(4), 1, pattern(1)).status, Status::kSuccess);
    IoFields f = at(0);
    f.sequence = 2;
    std::vector<nvme::DsmRange> ranges = {{0, 1, 4}};
    nvme::Command c = nvme::encode_trim(f, 1);
    c.cdw11 = 0;
    EXPECT_EQ(rig.io(c, kWriter, std::as_writable_bytes(std::span(ranges))).status, Status::kSuccess);
    EXPECT_TRUE(rig.holds(at(4), 1));
}

TEST_F(EngineTest, AFlippedBitIsAReadErrorForThatReadAlone) {
    ASSERT_EQ(rig.write(at(1, 3), 1, pattern(50, 3)).status, Status::kSuccess);
    rig.flash.flip_data(rig.flash.find_last(kVolume, 2), 3 * 512 + 17);
    Block got;
    EXPECT_EQ(rig.read(at(1, 3), got).status, Status::kUnrecoveredReadError);
    EXPECT_TRUE(rig.holds(at(1), 50));
    EXPECT_TRUE(rig.holds(at(3), 52));
    IoFields f = at(2);
    f.sectors = 3;
    EXPECT_EQ(rig.read(f, got).status, Status::kSuccess) << "sectors 0 to 2 are whole";
    f.first_sector = 3;
    f.sectors = 1;
    EXPECT_EQ(rig.read(f, got).status, Status::kUnrecoveredReadError);
    EXPECT_EQ(got, Block(512)) << "no byte of a bad sector may be returned";
    rig.flash.unreadable.insert(rig.flash.find_last(kVolume, 1));
    EXPECT_EQ(rig.read(at(1), got).status, Status::kUnrecoveredReadError);
    EXPECT_EQ(rig.engine->counters().media_errors, 3u);
    EXPECT_EQ(rig.write(at(2), 2, pattern(60)).status, Status::kSuccess);
    EXPECT_TRUE(rig.holds(at(2), 60)) << "a newer write mends the block";
}

TEST_F(EngineTest, ABlockWhoseOrderIsUnreadableIsNotOverwrittenBlindly) {
    ASSERT_EQ(rig.write(at(1), 1, pattern(50)).status, Status::kSuccess);
    rig.flash.flip_record(rig.flash.find_last(kVolume, 1));
    EXPECT_EQ(rig.write(at(1), 2, pattern(51)).status, Status::kUnrecoveredReadError);
    Block got;
    EXPECT_EQ(rig.read(at(1), got).status, Status::kUnrecoveredReadError);
}

TEST_F(EngineTest, AFailedProgramRetiresTheUnitAndTheWriteSucceedsElsewhere) {
    ASSERT_EQ(rig.write(at(0, 3), 1, pattern(10, 3)).status, Status::kSuccess);
    rig.flash.program_faults = {{rig.flash.programs + 1, RamFlash::Fault::kBadData},
                                {rig.flash.programs + 2, RamFlash::Fault::kBadRecord}};
    ASSERT_EQ(rig.write(at(3), 2, pattern(20)).status, Status::kSuccess);
    for (int mounts = 0; mounts < 3; ++mounts) {
        for (std::uint32_t i = 0; i < 3; ++i)
            EXPECT_TRUE(rig.holds(at(i), 10 + i)) << "pages of a retired unit stay readable";
        EXPECT_TRUE(rig.holds(at(3), 20))
            << "after a mount too, though a torn copy of the same order lies before it";
        EXPECT_EQ(rig.engine->counters().units_bad, 2u);
        rig.engine->poll(0);
        rig.mount();
        ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
    }
    EXPECT_EQ(rig.flash.violations, 0u);
}

TEST_F(EngineTest, ARetiredUnitIsEmptiedAndNeverUsedAgain) {
    ASSERT_EQ(rig.write(at(0, 3), 1, pattern(10, 3)).status, Status::kSuccess);
    rig.flash.program_faults = {{rig.flash.programs + 1, RamFlash::Fault::kBadRecord}};
    ASSERT_EQ(rig.write(at(10), 2, pattern(20)).status, Status::kSuccess);
    const std::uint64_t copied = rig.engine->counters().gc_pages_copied;
    for (int i = 0; i < 4; ++i) rig.engine->poll(0);
    EXPECT_EQ(rig.engine->counters().gc_pages_copied, copied + 3)
        << "the retired unit's data must be moved while the drive is idle";
    for (std::uint32_t i = 0; i < 3; ++i) EXPECT_TRUE(rig.holds(at(i), 10 + i));
    for (std::uint64_t i = 3; i < 100; ++i)
        ASSERT_EQ(rig.write(at(0, 16), i, pattern(i * 100, 16)).status, Status::kSuccess);
    rig.mount();
    ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
    EXPECT_EQ(rig.engine->counters().units_bad, 1u);
    for (std::uint64_t i = 100; i < 200; ++i)
        ASSERT_EQ(rig.write(at(0, 16), i, pattern(i * 100, 16)).status, Status::kSuccess);
    EXPECT_EQ(rig.flash.violations, 0u) << "the flash refuses a unit that failed";
}

TEST_F(EngineTest, AUnitIsReusedOnceAllItsPagesAreReplaced) {
    const std::uint64_t rounds = 200;
    for (std::uint64_t i = 1; i <= rounds; ++i)
        ASSERT_EQ(rig.write(at(0, 16), i, pattern(i * 100, 16)).status, Status::kSuccess) << i;
    EXPECT_GT(rig.flash.erases, 100u) << "3200 pages were written to a flash of 256";
    EXPECT_GT(rig.flash.syncs, 0u) << "nothing is erased before what replaced it is stable";
    for (std::uint32_t i = 0; i < 16; ++i) EXPECT_TRUE(rig.holds(at(i), rounds * 100 + i));
    EXPECT_EQ(rig.flash.violations, 0u);
}

TEST_F(EngineTest, AUnitThatFailsToEraseIsRetired) {
    rig.flash.erase_faults = {1, 2};
    for (std::uint64_t i = 1; i <= 60; ++i)
        ASSERT_EQ(rig.write(at(0, 16), i, pattern(i * 100, 16)).status, Status::kSuccess) << i;
    EXPECT_EQ(rig.engine->counters().units_bad, 2u);
    rig.engine->poll(0);
    rig.mount();
    EXPECT_EQ(rig.engine->counters().units_bad, 2u);
    EXPECT_EQ(rig.flash.violations, 0u);
}

TEST_F(EngineTest, AFullDriveRefusesNewBlocksButAcceptsOverwritesAndTrims) {
    Rig small(32, 16);
    ASSERT_EQ(small.add(make_record(kVolume, kWriter, 1, 1000)), Status::kSuccess);
    ASSERT_EQ(small.set_map(make_map(1)), Status::kSuccess);
    const auto capacity = static_cast<std::uint32_t>(small.engine->capacity_blocks());
    ASSERT_GT(capacity, 200u);
    EXPECT_LE(capacity, 32 * 16 * 100 / 107u) << "over-provisioned space must not be usable";
    for (std::uint32_t i = 0; i < capacity; ++i)
        ASSERT_EQ(small.write(at(i), i + 1, pattern(i + 1)).status, Status::kSuccess);
    EXPECT_EQ(small.write(at(900), 900, pattern(1)).status, Status::kCapacityExceeded);
    EXPECT_EQ(small.write(at(capacity - 3, 5), 901, pattern(5000, 5)).status, Status::kCapacityExceeded)
        << "three blocks of it could be replaced, two have no room: refused before any is done";
    EXPECT_TRUE(small.holds(at(capacity - 3), capacity - 2));
    for (std::uint32_t i = 0; i < capacity; ++i)
        ASSERT_EQ(small.write(at(i), 1000 + i, pattern(6000 + i)).status, Status::kSuccess);
    // A trim needs no room, and gives it.
    ASSERT_EQ(small.trim(at(0), 5000, {{0, 2, 0}, {0, 1, 10}}).status, Status::kSuccess);
    EXPECT_EQ(small.engine->counters().mapped_blocks, capacity - 3);
    EXPECT_EQ(small.write(at(900, 3), 5001, pattern(9000, 3)).status, Status::kSuccess);
    EXPECT_EQ(small.write(at(910), 5002, pattern(1)).status, Status::kCapacityExceeded);
    for (int mounts = 0; mounts < 2; ++mounts) {
        for (std::uint32_t i = 0; i < capacity; ++i)
            EXPECT_TRUE(small.holds(at(i), i < 2 || i == 10 ? 0 : 6000 + i));
        for (std::uint32_t i = 0; i < 3; ++i) EXPECT_TRUE(small.holds(at(900 + i), 9000 + i));
        small.mount();
        ASSERT_EQ(small.set_map(make_map(1)), Status::kSuccess);
    }
    EXPECT_EQ(small.flash.violations, 0u);
}

TEST_F(EngineTest, FuaAndFlushAnswerAfterASyncAndPlainWritesDoNotWait) {
    const std::uint64_t mounted = rig.flash.syncs;
    ASSERT_EQ(rig.write(at(0), 1, pattern(1)).status, Status::kSuccess);
    EXPECT_EQ(rig.flash.syncs, mounted);
    IoFields f = at(1);
    f.fua = true;
    ASSERT_EQ(rig.write(f, 2, pattern(2)).status, Status::kSuccess);
    EXPECT_EQ(rig.flash.syncs, mounted + 1);
    const nvme::Command flush = nvme::encode_io(IoOpcode::kFlush, at(0));
    ASSERT_EQ(rig.io(flush, kWriter, {}).status, Status::kSuccess);
    EXPECT_EQ(rig.flash.syncs, mounted + 1) << "a flush without new data must not sync";
    ASSERT_EQ(rig.write(at(0), 3, pattern(1)).status, Status::kSuccess);
    ASSERT_EQ(rig.io(flush, kWriter, {}).status, Status::kSuccess);
    EXPECT_EQ(rig.flash.syncs, mounted + 2);
    ASSERT_EQ(rig.write(at(0), 4, pattern(1)).status, Status::kSuccess);
    rig.flash.fail_sync = true;
    EXPECT_EQ(rig.io(flush, kWriter, {}).status, Status::kWriteFault);
    EXPECT_EQ(rig.write(f, 1, pattern(9)).status, Status::kWriteFault)
        << "superseded, but the winner is not known to be stable";
    EXPECT_EQ(rig.write(at(5), 9, pattern(9)).status, Status::kWriteFault)
        << "what the medium holds is not known any more: no change is accepted";
    EXPECT_TRUE(rig.holds(at(1), 2)) << "reads must still succeed";
}

TEST_F(EngineTest, AReadWithFuaIsAnsweredWhenItsDataIsStable) {
    ASSERT_EQ(rig.write(at(0), 1, pattern(1)).status, Status::kSuccess);
    const std::uint64_t before = rig.flash.syncs;
    Block got;
    ASSERT_EQ(rig.read(at(0), got).status, Status::kSuccess);
    EXPECT_EQ(rig.flash.syncs, before);
    IoFields f = at(0);
    f.fua = true;
    ASSERT_EQ(rig.read(f, got).status, Status::kSuccess);
    EXPECT_EQ(got, pattern(1));
    EXPECT_EQ(rig.flash.syncs, before + 1);
    ASSERT_EQ(rig.read(f, got).status, Status::kSuccess);
    EXPECT_EQ(rig.flash.syncs, before + 1) << "the data is already stable";
    ASSERT_EQ(rig.write(at(1), 2, pattern(2)).status, Status::kSuccess);
    rig.flash.fail_sync = true;
    EXPECT_EQ(rig.read(f, got).status, Status::kWriteFault);
    EXPECT_EQ(rig.read(at(0), got).status, Status::kSuccess);
}

TEST_F(EngineTest, AFlushOfEverythingNeedsNoVolume) {
    ASSERT_EQ(rig.write(at(0), 1, pattern(1)).status, Status::kSuccess);
    const std::uint64_t before = rig.flash.syncs;
    rig.engine->flush(77);
    (void)rig.engine->poll(rig.now_ns);
    EXPECT_EQ(rig.answers.last_tag, 77u);
    EXPECT_EQ(rig.answers.last.status, Status::kSuccess);
    EXPECT_EQ(rig.flash.syncs, before + 1);
    ASSERT_EQ(rig.write(at(0), 2, pattern(1)).status, Status::kSuccess);
    rig.flash.fail_sync = true;
    rig.engine->flush(78);
    (void)rig.engine->poll(rig.now_ns);
    EXPECT_EQ(rig.answers.last_tag, 78u);
    EXPECT_EQ(rig.answers.last.status, Status::kWriteFault);
}

TEST_F(EngineTest, WithoutAVolatileCacheOneSyncAnswersAGroupOfWrites) {
    EngineOptions o = default_options();
    o.volatile_cache = false;
    Rig power(16, 16, o);
    set_up(power);
    Block data = pattern(1);
    const std::uint64_t before = power.answers.count;
    const std::uint64_t syncs = power.flash.syncs;
    for (std::uint32_t i = 0; i < 10; ++i) {
        IoFields f = at(i);
        f.sequence = i + 1;
        power.engine->submit(nvme::encode_io(IoOpcode::kWrite, f), {kWriter, false}, data, i, 0);
    }
    EXPECT_EQ(power.answers.count, before) << "no answer before the contents are stable";
    EXPECT_EQ(power.engine->poll(0), 10u);
    EXPECT_EQ(power.answers.count, before + 10);
    EXPECT_EQ(power.flash.syncs, syncs + 1);
    // A change of the map answers what waits under the old one first.
    IoFields f = at(20);
    f.sequence = 50;
    power.engine->submit(nvme::encode_io(IoOpcode::kWrite, f), {kWriter, false}, data, 99, 0);
    EXPECT_EQ(power.answers.count, before + 10);
    nvme::MapSet next = make_map(2);
    power.engine->submit_admin(power.admin_command(nvme::AdminOpcode::kMapSet), kAdmin,
                               std::as_writable_bytes(std::span(&next, 1)), 100, 0);
    EXPECT_EQ(power.answers.count, before + 12);
    EXPECT_EQ(power.answers.last_tag, 100u);
}

TEST_F(EngineTest, BlocksOfADeletedVolumeNeverComeBack) {
    ASSERT_EQ(rig.write(at(0, 8), 1, pattern(500, 8)).status, Status::kSuccess);
    ASSERT_EQ(rig.remove(kVolume), Status::kSuccess);
    EXPECT_EQ(rig.engine->counters().mapped_blocks, 0u);
    EXPECT_EQ(rig.add(make_record(kVolume, kWriter, 1)), Status::kStaleEpoch)
        << "a life begins above the last epoch of the earlier one";
    rig.mount();
    EXPECT_EQ(rig.report.pages_outdated, 8u);
    EXPECT_EQ(rig.add(make_record(kVolume, kWriter, 1)), Status::kStaleEpoch) << "remembered across a mount";
    ASSERT_EQ(rig.add(make_record(kVolume, kWriter, 2)), Status::kSuccess);
    ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
    rig.epoch = 2;
    for (std::uint32_t b = 0; b < 8; ++b) EXPECT_TRUE(rig.holds(at(b), 0));
    rig.mount();
    ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
    for (std::uint32_t b = 0; b < 8; ++b) EXPECT_TRUE(rig.holds(at(b), 0));
}

TEST_F(EngineTest, DamagedMetadataIsRefusedAndNotTakenForAnEmptyDrive) {
    ASSERT_EQ(rig.write(at(0), 1, pattern(1)).status, Status::kSuccess);
    const auto good = rig.metadata.blob;
    const auto refuses = [&](std::vector<std::byte> blob) {
        rig.metadata.blob = std::move(blob);
        const auto mounted = Engine::mount(rig.flash, rig.metadata, rig.options, rig.answers);
        return !mounted.ok() && !mounted.error().message.empty();
    };
    EXPECT_TRUE(refuses({})) << "pages without metadata: a part of the store is gone";
    for (std::size_t cut = 1; cut < good.size(); cut += 97)
        EXPECT_TRUE(refuses({good.begin(), good.begin() + static_cast<long>(cut)}));
    for (std::size_t at_byte = 0; at_byte < good.size(); at_byte += 13) {
        auto bad = good;
        bad[at_byte] ^= std::byte{0x40};
        EXPECT_TRUE(refuses(std::move(bad))) << "byte " << at_byte;
    }
}

}  // namespace
}  // namespace gnstor::deengine::test
