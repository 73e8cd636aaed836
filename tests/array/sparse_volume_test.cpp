// sparse_volume_test.cpp: rebuild and comparison of large volumes with few blocks: which commands are sent, in which order,
// and how many. Drives are tables of blocks here; with real firmware: rebuild_sim_test.cpp.
#include "daemon/decisions/rebuild.hpp"
#include "daemon/decisions/reconcile.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace gnstor::test {
namespace {

using daemon::CopyRange;
using daemon::CopySource;
using nvme::CopyKind;
using nvme::CopyRecord;
using nvme::Status;
using placement::SlotState;

constexpr std::uint32_t kSlots = 3;
constexpr std::uint32_t kBlocks = 1u << 20;  ///< 64 surveys of each drive

class Tables final : public daemon::CopyPort {
  public:
    struct Table {
        std::map<nvme::BlockAddress, std::uint64_t> sequences;  ///< by block; the contents follow from it
        std::set<nvme::BlockAddress> trimmed;                   ///< above the floor, and without a tombstone
        std::uint64_t floor = 0, highest = 0;

        [[nodiscard]] std::set<std::uint32_t> changed_extents() const {
            std::set<std::uint32_t> changed;
            for (const auto& [block, sequence] : sequences)
                if (sequence > floor || floor == nvme::kClosedFloor)
                    changed.insert(block / nvme::kExtentBlocks);
            for (const nvme::BlockAddress block : trimmed) changed.insert(block / nvme::kExtentBlocks);
            return changed;
        }
    };

    Status copy_open(std::uint32_t slot, const CopyRange&, std::uint32_t& window) override {
        note("open", slot);
        window = 1;
        return Status::kSuccess;
    }
    Status copy_read(std::uint32_t slot, const CopyRange& range, const CopySource&, std::span<std::byte> data,
                     nvme::Epoch& epoch) override {
        note("read", slot);
        epoch = 1;
        for (std::uint32_t i = 0; i < range.blocks; ++i) {
            CopyRecord record{};
            record.epoch = 1;
            record.sequence = tables[slot].floor;
            const auto found = tables[slot].sequences.find(range.first + i);
            if (found != tables[slot].sequences.end()) {
                record.kind = CopyKind::kData;
                record.sequence = found->second;
                std::memset(data.data() + contents(range, i), static_cast<int>(found->second),
                            nvme::kBlockBytes);
            }
            std::memcpy(data.data() + std::size_t{i} * sizeof(record), &record, sizeof(record));
        }
        return Status::kSuccess;
    }
    Status copy_write(std::uint32_t slot, const CopyRange& range, const CopySource&,
                      std::span<std::byte> data) override {
        note("write", slot);
        if (slot == full) return Status::kCapacityExceeded;
        for (std::uint32_t i = 0; i < range.blocks; ++i) {
            CopyRecord record;
            std::memcpy(&record, data.data() + std::size_t{i} * sizeof(record), sizeof(record));
            if (record.kind == CopyKind::kData) tables[slot].sequences[range.first + i] = record.sequence;
            if (record.kind == CopyKind::kAbsent) tables[slot].sequences.erase(range.first + i);
        }
        return Status::kSuccess;
    }
    Status copy_survey(std::uint32_t slot, const CopyRange& range, nvme::SurveyKind kind,
                       std::span<nvme::SurveyExtent> extents, nvme::Epoch& epoch) override {
        const bool tells_changes = kind == nvme::SurveyKind::kChanges && knows_changes;
        note(tells_changes ? "changes" : "survey", slot);
        if (!knows_survey) return Status::kInvalidOpcode;
        epoch = 1;
        EXPECT_EQ(range.first % nvme::kExtentBlocks, 0u);
        EXPECT_EQ(extents.size(), nvme::survey_extents(range.blocks));
        const Table& table = tables[slot];
        for (nvme::SurveyExtent& extent : extents) extent.floor = table.floor, extent.highest = table.highest;
        if (tells_changes) return tell_changes(table, range, extents);
        for (auto at = table.sequences.lower_bound(range.first);
             at != table.sequences.end() && at->first < range.first + range.blocks; ++at) {
            const std::uint32_t within = (at->first - range.first) % nvme::kExtentBlocks;
            nvme::SurveyExtent& extent = extents[(at->first - range.first) / nvme::kExtentBlocks];
            extent.present[within / 8] |= static_cast<std::uint8_t>(1u << within % 8);
            if (at->second > table.floor) extent.groups |= 1u << within / nvme::kSurveyGroupBlocks;
        }
        return Status::kSuccess;
    }
    Status set_floor(std::uint32_t slot, nvme::VolumeId, nvme::Epoch, std::uint64_t floor) override {
        note("floor", slot);
        tables[slot].floor = floor;
        return Status::kSuccess;
    }

    void write(nvme::BlockAddress block, std::uint64_t sequence, std::initializer_list<std::uint32_t> slots) {
        for (const std::uint32_t slot : slots) {
            tables[slot].sequences[block] = sequence;
            tables[slot].highest = std::max(tables[slot].highest, sequence);
        }
    }
    [[nodiscard]] std::size_t count(const std::string& command) const {
        return static_cast<std::size_t>(
            std::ranges::count_if(commands, [&](const std::string& c) { return c.starts_with(command); }));
    }

    Table tables[kSlots];
    std::vector<std::string> commands;
    bool knows_survey = true, knows_changes = true;
    std::uint32_t full = kSlots;  ///< a slot that refuses every write

  private:
    static Status tell_changes(const Table& table, const CopyRange& range,
                               std::span<nvme::SurveyExtent> extents) {
        const std::set<std::uint32_t> changed = table.changed_extents();
        for (std::uint32_t i = 0; i < extents.size(); ++i) {
            const std::uint32_t extent = range.first / nvme::kExtentBlocks + i;
            if (!changed.contains(extent)) extents[i].flags = nvme::kExtentUnchanged;
            const auto next = changed.upper_bound(extent);
            extents[i].next_changed =
                next == changed.end() ? ~std::uint64_t{0} : std::uint64_t{*next} * nvme::kExtentBlocks;
        }
        return Status::kSuccess;
    }
    static std::size_t contents(const CopyRange& range, std::uint32_t i) {
        return range.blocks * sizeof(CopyRecord) + std::size_t{i} * nvme::kBlockBytes;
    }
    void note(const char* command, std::uint32_t slot) {
        commands.push_back(fmt::format("{} {}", command, slot));
    }
};

placement::ArrayMap map_of(SlotState last) {
    placement::ArrayMap map{};
    map.version = 1;
    map.slot_count = kSlots;
    for (std::uint32_t s = 0; s < kSlots; ++s) {
        map.slots[s].state = s + 1 == kSlots ? last : SlotState::kIn;
        map.slots[s].domain = static_cast<std::uint16_t>(s);
        map.slots[s].weight = 1;
    }
    return map;
}

nvme::VolumeRecord record_of(std::uint32_t blocks) {
    nvme::VolumeRecord record{};
    record.epoch = record.birth_epoch = 1;
    record.geometry.volume = 1;
    record.geometry.capacity_blocks = blocks;
    record.geometry.chunk_shift = 4;
    record.geometry.replicas = kSlots;
    return record;
}

template <class Work>
bool run(Work& work, Tables& tables, decltype(work.step(tables)) last) {
    for (int i = 0; i < 1'000'000; ++i)
        if (work.step(tables) == last) return true;
    return false;
}

TEST(SparseVolume, ARebuildReadsOnlyWhatSomeDriveHas) {
    Tables tables;
    for (const nvme::BlockAddress block : {0u, 20'000u, 20'001u, kBlocks - 1}) tables.write(block, 1, {0, 1});
    tables.write(500'000, 2, {2});  // what the target has, and the donors have not
    const auto record = record_of(kBlocks);
    daemon::Rebuild rebuild(map_of(SlotState::kRebuilding), 2, std::span(&record, 1));
    ASSERT_TRUE(run(rebuild, tables, daemon::Rebuild::Step::kDone));
    EXPECT_EQ(tables.tables[2].sequences, tables.tables[0].sequences);
    EXPECT_EQ(tables.count("survey"), kSlots * (kBlocks / nvme::kSurveyBlocksMax));
    EXPECT_EQ(tables.count("write"), 4u) << "20,000 and 20,001 are in one range";
    EXPECT_EQ(rebuild.progress().blocks_done, kBlocks);
    EXPECT_EQ(rebuild.progress().blocks_copied, 4u);
}

TEST(SparseVolume, TheTargetTellsWhatItHasOnceItHasTheDonorsFloor) {
    Tables tables;
    tables.tables[0].floor = 5;
    tables.tables[1].floor = 7;
    const auto record = record_of(64);
    daemon::Rebuild rebuild(map_of(SlotState::kRebuilding), 2, std::span(&record, 1));
    ASSERT_TRUE(run(rebuild, tables, daemon::Rebuild::Step::kDone));
    EXPECT_EQ(tables.commands, (std::vector<std::string>{"survey 0", "survey 1", "floor 2", "survey 2"}));
    EXPECT_EQ(tables.tables[2].floor, 7u);
}

TEST(SparseVolume, TheFloorOfAComparisonIsHandedOnIfEachDonorHasIt) {
    Tables tables;
    tables.tables[0].floor = nvme::kClosedFloor;
    tables.tables[1].floor = 3;
    const auto record = record_of(64);
    daemon::Rebuild one(map_of(SlotState::kRebuilding), 2, std::span(&record, 1));
    ASSERT_TRUE(run(one, tables, daemon::Rebuild::Step::kDone));
    EXPECT_EQ(tables.tables[2].floor, 3u);
    tables.tables[1].floor = nvme::kClosedFloor;
    daemon::Rebuild all(map_of(SlotState::kRebuilding), 2, std::span(&record, 1));
    ASSERT_TRUE(run(all, tables, daemon::Rebuild::Step::kDone));
    EXPECT_EQ(tables.tables[2].floor, nvme::kClosedFloor);
}

TEST(SparseVolume, ARebuildFromFirmwareThatCannotBeAskedReadsEverything) {
    Tables tables;
    tables.knows_survey = false;
    tables.write(3'000, 1, {0, 1});
    const auto record = record_of(4'096);
    daemon::Rebuild rebuild(map_of(SlotState::kRebuilding), 2, std::span(&record, 1));
    ASSERT_TRUE(run(rebuild, tables, daemon::Rebuild::Step::kDone));
    EXPECT_EQ(tables.tables[2].sequences, tables.tables[0].sequences);
    EXPECT_EQ(tables.count("write"), 4'096 / daemon::Rebuild::kRangeBlocks);
}

TEST(SparseVolume, AVolumeThatIsCopiedAgainIsAskedForAgain) {
    Tables tables;
    tables.write(5, 1, {0, 1});
    const auto record = record_of(64);
    daemon::Rebuild rebuild(map_of(SlotState::kRebuilding), 2, std::span(&record, 1));
    ASSERT_TRUE(run(rebuild, tables, daemon::Rebuild::Step::kDone));
    tables.write(40, 2, {0, 1});
    rebuild.again(1);
    EXPECT_EQ(rebuild.progress().blocks_done, 0u);
    ASSERT_TRUE(run(rebuild, tables, daemon::Rebuild::Step::kDone));
    EXPECT_EQ(tables.tables[2].sequences, tables.tables[0].sequences);
    EXPECT_EQ(rebuild.progress().blocks_done, 64u);
}

TEST(SparseVolume, AComparisonWithoutAnythingUnresolvedIsOneCommandADrive) {
    Tables tables;
    tables.write(9, 4, {0, 1, 2});
    tables.tables[1].floor = 4;  // the writer's floor holds for all, whoever has heard it
    daemon::Reconcile reconcile(map_of(SlotState::kIn), record_of(kBlocks));
    ASSERT_TRUE(run(reconcile, tables, daemon::Reconcile::Step::kEqual));
    EXPECT_EQ(tables.commands, (std::vector<std::string>{"changes 0", "changes 1", "changes 2"}));
}

TEST(SparseVolume, AComparisonPutsTheNewestVersionWhereItIsMissing) {
    Tables tables;
    for (nvme::BlockAddress block = 0; block < 1'000; ++block) tables.write(block * 1'000, 1, {0, 1, 2});
    for (auto& table : tables.tables) table.floor = 1;
    tables.write(20'000, 2, {1});
    tables.write(20'001, 3, {2, 0});
    tables.write(kBlocks - 1, 4, {0});
    tables.tables[1].sequences.erase(700'000);
    tables.tables[1].trimmed.insert(700'000);
    daemon::Reconcile reconcile(map_of(SlotState::kIn), record_of(kBlocks));
    ASSERT_TRUE(run(reconcile, tables, daemon::Reconcile::Step::kEqual));
    EXPECT_EQ(tables.tables[0].sequences, tables.tables[1].sequences);
    EXPECT_EQ(tables.tables[0].sequences, tables.tables[2].sequences);
    EXPECT_EQ(tables.tables[2].sequences.at(20'000), 2u);
    EXPECT_EQ(tables.tables[1].sequences.at(20'001), 3u);
    EXPECT_EQ(tables.tables[1].sequences.at(kBlocks - 1), 4u);
    EXPECT_EQ(reconcile.ranges_compared(), 3u);
    EXPECT_EQ(tables.count("changes"), 4 * kSlots) << "the first window, and those with changes";
    EXPECT_EQ(tables.count("survey"), 3 * kSlots);
    for (const auto& table : tables.tables) EXPECT_EQ(table.floor, nvme::kClosedFloor);
}

TEST(SparseVolume, AComparisonLooksAtEveryBlockIfAnEarlierOneLeftRangesThatDiffer) {
    for (const bool knows : {true, false}) {
        Tables tables;
        tables.knows_changes = knows;
        tables.write(700'000, 1, {0, 1});
        for (auto& table : tables.tables) table.floor = 1;
        tables.write(20'000, 2, {1});
        daemon::Reconcile reconcile(map_of(SlotState::kIn), record_of(kBlocks), knows);
        ASSERT_TRUE(run(reconcile, tables, daemon::Reconcile::Step::kEqual));
        EXPECT_EQ(tables.tables[2].sequences.size(), 2u) << "also if a firmware tells no changes alone";
        EXPECT_EQ(tables.tables[0].sequences, tables.tables[2].sequences);
    }
}

TEST(SparseVolume, ADriveThatIsRebuildingIsNotComparedAndTakesTheFloorLast) {
    Tables tables;
    tables.write(5, 1, {0, 1});
    tables.write(6, 2, {0, 1, 2});
    daemon::Reconcile reconcile(map_of(SlotState::kRebuilding), record_of(64));
    bool compared = false;
    for (int i = 0; i < 100 && reconcile.step(tables) != daemon::Reconcile::Step::kEqual; ++i) {
        const bool now = reconcile.take_compared();
        EXPECT_EQ(now, now && tables.commands.back() == "floor 1");
        EXPECT_FALSE(now && compared);
        compared = compared || now;
    }
    EXPECT_TRUE(compared) << "else the target would not be filled with what the comparison has put";
    EXPECT_EQ(tables.commands.back(), "floor 2");
    EXPECT_EQ(tables.count("read 2") + tables.count("write 2"), 0u);
}

TEST(SparseVolume, AFloorThatOnlySomeDrivesHaveFromAnEarlierComparisonProvesNothing) {
    Tables tables;
    tables.write(5, 3, {0});
    tables.tables[0].floor = nvme::kClosedFloor;
    daemon::Reconcile reconcile(map_of(SlotState::kIn), record_of(64));
    ASSERT_TRUE(run(reconcile, tables, daemon::Reconcile::Step::kEqual));
    EXPECT_EQ(tables.tables[1].sequences, tables.tables[0].sequences);
    EXPECT_EQ(tables.tables[2].sequences, tables.tables[0].sequences);
}

TEST(SparseVolume, ADriveThatIsAwayLearnsByTheFloorThatWhatItAloneHasDoesNotCount) {
    for (const SlotState away : {SlotState::kOut, SlotState::kRebuilding}) {
        Tables tables;
        tables.write(5, 4, {0, 1});
        for (auto& table : tables.tables) table.floor = 4;
        daemon::Reconcile reconcile(map_of(away), record_of(64));
        ASSERT_TRUE(run(reconcile, tables, daemon::Reconcile::Step::kEqual));
        EXPECT_EQ(tables.tables[0].floor, nvme::kClosedFloor);
        EXPECT_EQ(tables.tables[1].floor, nvme::kClosedFloor);
        EXPECT_EQ(tables.tables[2].floor, away == SlotState::kOut ? 4 : nvme::kClosedFloor);
        EXPECT_EQ(tables.count("read"), 0u);
    }
}

TEST(SparseVolume, ARangeThatADriveRefusesKeepsNothingFromEnding) {
    Tables tables;
    tables.write(5, 4, {0, 1});
    tables.write(900, 5, {0, 1});
    tables.full = 2;
    daemon::Reconcile reconcile(map_of(SlotState::kIn), record_of(1'024));
    ASSERT_TRUE(run(reconcile, tables, daemon::Reconcile::Step::kEqual));
    EXPECT_EQ(reconcile.left(), 2u);
    EXPECT_EQ(reconcile.left_refusal(), Status::kCapacityExceeded);
    EXPECT_EQ(tables.tables[1].sequences.size(), 2u) << "the others keep what they have";
    EXPECT_EQ(tables.tables[2].floor, nvme::kClosedFloor);
}

}  // namespace
}  // namespace gnstor::test
