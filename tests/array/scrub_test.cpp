// scrub_test.cpp: what the scrub finds in replicas that differ, and what its passes send, when. Drives are tables of blocks
// here; with real firmware and writers: rebuild_sim_test.cpp.
#include "daemon/decisions/scrub_schedule.hpp"

#include "array/tables.hpp"

namespace gnstor::test {
namespace {

using daemon::Scrub;
using daemon::ScrubSchedule;

/// A volume of two chunks' worth of data on three replicas, everything resolved.
Tables whole_volume() {
    Tables tables;
    for (const nvme::BlockAddress block : {0u, 5u, 20'000u, 20'001u, kBlocks - 1})
        tables.write(block, 3, {0, 1, 2});
    for (auto& table : tables.tables) table.floor = 3;
    return tables;
}

void pass(Scrub& scrub, Tables& tables) {
    for (int i = 0; i < 100'000; ++i)
        if (scrub.step(tables) == Scrub::Step::kDone) return;
    FAIL() << "the scrub does not end";
}

TEST(Scrub, EqualReplicasAreReadOnceAndLeftAlone) {
    Tables tables = whole_volume();
    Scrub scrub(map_of(SlotState::kIn), record_of(kBlocks));
    pass(scrub, tables);
    EXPECT_EQ(scrub.counts().blocks, 3u * 8) << "the ranges that have data";
    EXPECT_EQ(tables.count("read"), 3 * kSlots);
    EXPECT_EQ(tables.count("write") + tables.count("open"), 0u);
    EXPECT_TRUE(scrub.differences().empty());
    EXPECT_EQ(scrub.position(), kBlocks);
}

TEST(Scrub, ABlockThatAReplicaCannotReadIsPutAgainFromTheNewestOther) {
    Tables tables = whole_volume();
    tables.tables[1].unreadable = {5, kBlocks - 1};
    tables.tables[2].unreadable = {20'000};
    Scrub scrub(map_of(SlotState::kIn), record_of(kBlocks));
    pass(scrub, tables);
    EXPECT_EQ(scrub.counts().mended, 3u);
    EXPECT_EQ(tables.count("open 1"), 2u);
    EXPECT_EQ(tables.count("write 2"), 1u);
    for (const auto& table : tables.tables) {
        EXPECT_TRUE(table.unreadable.empty());
        EXPECT_EQ(table.sequences, tables.tables[0].sequences);
    }
}

TEST(Scrub, ABlockThatNoReplicaCanReadIsCounted) {
    Tables tables = whole_volume();
    for (auto& table : tables.tables) table.unreadable = {5};
    Scrub scrub(map_of(SlotState::kIn), record_of(kBlocks));
    pass(scrub, tables);
    EXPECT_EQ(scrub.counts().unreadable, 1u);
    EXPECT_EQ(tables.count("open"), 0u);
}

TEST(Scrub, AnSsdThatRefusesTheBlockIsCountedAndTheOthersAreMended) {
    Tables tables = whole_volume();
    tables.tables[1].unreadable = {5};
    tables.tables[2].unreadable = {0};
    tables.full = 1;
    Scrub scrub(map_of(SlotState::kIn), record_of(kBlocks));
    pass(scrub, tables);
    EXPECT_EQ(scrub.counts().refused, 1u);
    EXPECT_EQ(scrub.counts().mended, 1u);
}

TEST(Scrub, AResolvedVersionThatAReplicaLacksIsReportedAndNotChanged) {
    Tables tables = whole_volume();
    tables.tables[0].sequences[5] = 2;  // a write was acknowledged, and lost there
    Scrub scrub(map_of(SlotState::kIn), record_of(kBlocks));
    pass(scrub, tables);
    ASSERT_EQ(scrub.differences().size(), 1u);
    EXPECT_EQ(scrub.differences()[0].block, 5u);
    EXPECT_EQ(scrub.differences()[0].older_slot, 0u);
    EXPECT_EQ(scrub.counts().different, 1u);
    EXPECT_EQ(tables.count("write"), 0u);
}

nvme::VolumeRecord written_volume() {
    nvme::VolumeRecord record = record_of(kBlocks);
    record.writer = 7;
    return record;
}

TEST(Scrub, AVersionAboveTheFloorIsNoDifference) {
    Tables tables = whole_volume();
    tables.write(5, 4, {1});
    Scrub scrub(map_of(SlotState::kIn), written_volume());
    pass(scrub, tables);
    EXPECT_TRUE(scrub.differences().empty());
    EXPECT_EQ(scrub.counts().unresolved, 1u);
    EXPECT_EQ(tables.count("read 0"), 2 + Scrub::kLooks) << "looked at again, not for ever";
}

TEST(Scrub, AMissingBlockIsReportedOnceTheFloorHasRisenSinceItWasMissed) {
    for (const bool rises : {false, true}) {
        Tables tables = whole_volume();
        tables.tables[2].sequences.erase(20'000);
        Scrub scrub(map_of(SlotState::kIn), written_volume());
        for (int i = 0; i < 1'000; ++i) {
            const Scrub::Step step = scrub.step(tables);
            if (step == Scrub::Step::kDone) break;
            if (step == Scrub::Step::kWaits && rises)
                for (auto& table : tables.tables) table.floor = 4;
        }
        EXPECT_EQ(scrub.differences().size(), rises ? 1u : 0u);
        EXPECT_EQ(scrub.counts().unresolved, rises ? 0u : 1u)
            << "a trim without a tombstone may have removed it";
    }
}

TEST(Scrub, WithoutAWriterAMissingBlockIsReportedAtOnce) {
    Tables tables = whole_volume();
    tables.tables[2].sequences.erase(20'000);
    Scrub scrub(map_of(SlotState::kIn), record_of(kBlocks));
    pass(scrub, tables);
    ASSERT_EQ(scrub.differences().size(), 1u) << "no floor rises any more";
    EXPECT_EQ(scrub.differences()[0].older_slot, 2u);
}

TEST(Scrub, ManyRangesThatAreNotResolvedAreWaitedForTogether) {
    Tables tables;
    for (nvme::BlockAddress block = 0; block < 8'000; ++block) tables.write(block, 3, {0, 1, 2});
    for (auto& table : tables.tables) table.floor = 3;
    for (nvme::BlockAddress block = 0; block < 8'000; block += 8) tables.write(block, 4, {1});
    Scrub scrub(map_of(SlotState::kIn), written_volume());
    std::uint32_t waits = 0;
    for (int i = 0; i < 1'000'000; ++i) {
        const Scrub::Step step = scrub.step(tables);
        if (step == Scrub::Step::kDone) break;
        waits += step == Scrub::Step::kWaits ? 1 : 0;
    }
    EXPECT_EQ(scrub.counts().unresolved, 1'000u);
    EXPECT_LE(waits, Scrub::kLooks);
}

TEST(Scrub, ABadBlockIsLeftWhileTheOthersDiffer) {
    Tables tables = whole_volume();
    tables.tables[0].unreadable = {5};
    tables.tables[2].sequences.erase(5);
    Scrub scrub(map_of(SlotState::kIn), record_of(kBlocks));
    pass(scrub, tables);
    EXPECT_EQ(scrub.counts().mended, 0u);
    EXPECT_EQ(tables.count("write"), 0u);
    EXPECT_EQ(scrub.differences().size(), 1u);
}

TEST(Scrub, ManyDifferencesAreCountedOnce) {
    Tables tables;
    for (nvme::BlockAddress block = 0; block < 300; ++block) tables.write(block, 3, {0, 1, 2});
    for (nvme::BlockAddress block = 0; block < 300; ++block) tables.tables[0].sequences[block] = 2;
    for (auto& table : tables.tables) table.floor = 3;
    tables.write(301, 4, {1});  // the last range is looked at several times
    Scrub scrub(map_of(SlotState::kIn), written_volume());
    pass(scrub, tables);
    EXPECT_EQ(scrub.counts().different, 300u);
    EXPECT_EQ(scrub.differences().size(), Scrub::kDifferencesMax);
}

TEST(Scrub, ASlotThatIsBeingFilledIsNotAsked) {
    Tables tables = whole_volume();
    tables.tables[2].sequences.clear();
    Scrub scrub(map_of(SlotState::kRebuilding), record_of(kBlocks));
    pass(scrub, tables);
    EXPECT_TRUE(scrub.differences().empty());
    EXPECT_EQ(tables.count("read 2") + tables.count("survey 2"), 0u);
}

class Schedule : public ::testing::Test {
  protected:
    static constexpr std::uint64_t kDay = 86'400'000;

    Schedule() {
        for (const nvme::VolumeId id : {1, 2}) {
            nvme::VolumeRecord record = record_of(64);
            record.geometry.volume = id;
            std::snprintf(record.name, sizeof(record.name), "v%u", id);
            record.writer = 7;
            volumes[id] = record;
        }
        tables.write(5, 3, {0, 1, 2});
        for (auto& table : tables.tables) table.floor = 3;
    }
    /// A second: true if more could be sent at once at its end.
    bool second(ScrubSchedule& schedule, std::uint64_t ms = 1'000) {
        now_ms += ms;
        schedule.tick(volumes, now_ms);
        bool more = true;
        for (int i = 0; i < 100 && more; ++i)
            more = schedule.work(
                4, map, volumes, [this](const auto& r) { return r.geometry.volume != busy; }, tables);
        return more;
    }
    void seconds(ScrubSchedule& schedule, int n) {
        for (int i = 0; i < n; ++i) second(schedule);
    }

    placement::ArrayMap map = map_of(SlotState::kIn);
    ScrubSchedule::Volumes volumes;
    Tables tables;
    nvme::VolumeId busy = 0;
    std::uint64_t now_ms = 1'000'000;
};

TEST_F(Schedule, TheFirstPassBeginsWithinAnHourAndTheNextOnesWhenItIsTime) {
    ScrubSchedule schedule({7 * kDay, 64u << 20});
    second(schedule);
    EXPECT_EQ(schedule.info(volumes, now_ms).next_in_seconds, 3'600u);
    second(schedule, 3'599'000);
    EXPECT_FALSE(schedule.info(volumes, now_ms).running);
    seconds(schedule, 3);
    EXPECT_EQ(schedule.passes(), 1u);
    second(schedule, 7 * kDay - 10'000);
    EXPECT_EQ(schedule.passes(), 1u);
    seconds(schedule, 12);
    EXPECT_EQ(schedule.passes(), 2u);
    EXPECT_EQ(schedule.info(volumes, now_ms).blocks_compared, 2u * 2 * 8);
}

TEST_F(Schedule, ThatBeginsNoPassByItselfBeginsOneOnRequest) {
    ScrubSchedule schedule({0, 64u << 20});
    second(schedule);
    second(schedule, 400 * kDay);
    EXPECT_EQ(tables.commands.size(), 0u);
    schedule.start(volumes, now_ms);
    schedule.start(volumes, now_ms);
    seconds(schedule, 3);
    EXPECT_EQ(schedule.passes(), 1u);
    EXPECT_EQ(schedule.info(volumes, now_ms).next_in_seconds, std::nullopt);
}

TEST_F(Schedule, ReadsNoMoreThanTheRateAllows) {
    const std::uint64_t rate = 200'000;  // some six ranges
    ScrubSchedule schedule({0, rate});
    for (nvme::BlockAddress block = 0; block < 64; ++block) tables.write(block, 3, {0, 1, 2});
    second(schedule);
    schedule.start(volumes, now_ms);
    std::size_t most = 0;
    int took = 0;
    for (; schedule.passes() == 0 && took < 100; ++took) {
        const std::size_t before = tables.count("read");
        second(schedule);
        most = std::max(most, tables.count("read") - before);
    }
    const std::uint64_t range_bytes = nvme::copy_bytes(Scrub::kRangeBlocks);
    EXPECT_LE(most * range_bytes, rate + range_bytes);
    EXPECT_GE(took, static_cast<int>(2 * 3 * 8 * range_bytes / (rate + range_bytes)));
}

TEST_F(Schedule, AVolumeThatMayNotBeScrubbedNowWaitsAndOneThatIsDeletedIsLeftOut) {
    ScrubSchedule schedule({0, 64u << 20});
    second(schedule);
    busy = 1;
    schedule.start(volumes, now_ms);
    seconds(schedule, 3);
    EXPECT_EQ(schedule.passes(), 0u);
    EXPECT_EQ(schedule.info(volumes, now_ms).pass.blocks_done, 64u) << "the other one";
    volumes.erase(1);
    seconds(schedule, 2);
    EXPECT_EQ(schedule.passes(), 1u);
}

TEST_F(Schedule, AnotherMapBeginsTheVolumeAgainWhereItWasAndFindsNothingTwice) {
    ScrubSchedule schedule({0, 64u << 20});
    tables.tables[0].sequences[5] = 2;
    tables.write(60, 4, {1});  // unresolved: the scrub waits here
    second(schedule);
    schedule.start(volumes, now_ms);
    second(schedule);
    ++map.version;
    seconds(schedule, 40);
    EXPECT_EQ(schedule.passes(), 1u);
    const daemon::ScrubInfo info = schedule.info(volumes, now_ms);
    EXPECT_EQ(info.pass.different, 2u) << "one in each volume";
    ASSERT_EQ(info.findings.size(), 2u);
    EXPECT_EQ(info.findings[0].volume, "v1");
    EXPECT_EQ(info.findings[0].first, "block 5 on slots 1 and 0");
    volumes.erase(1);
    EXPECT_EQ(schedule.info(volumes, now_ms).findings.size(), 1u) << "a deleted volume is no finding";
}

TEST_F(Schedule, FindingsStayUntilAPassHasNotFoundThem) {
    ScrubSchedule schedule({0, 64u << 20});
    tables.tables[0].sequences[5] = 2;
    second(schedule);
    schedule.start(volumes, now_ms);
    seconds(schedule, 5);
    tables.tables[0].sequences[5] = 3;
    busy = 2;
    schedule.start(volumes, now_ms);
    seconds(schedule, 5);
    EXPECT_EQ(schedule.info(volumes, now_ms).findings.size(), 2u) << "the pass is under way";
    busy = 0;
    seconds(schedule, 5);
    EXPECT_EQ(schedule.info(volumes, now_ms).findings.size(), 0u);
}

TEST_F(Schedule, ASilentSsdStopsAPassUntilItAnswers) {
    ScrubSchedule schedule({0, 64u << 20});
    second(schedule);
    tables.silent = 2;
    schedule.start(volumes, now_ms);
    const std::size_t before = tables.commands.size();
    seconds(schedule, 5);
    EXPECT_LE(tables.count("read 2"), 5u) << "asked once a second";
    EXPECT_GT(tables.commands.size(), before);
    tables.silent = kSlots;
    seconds(schedule, 3);
    EXPECT_EQ(schedule.passes(), 1u);
}

}  // namespace
}  // namespace gnstor::test
