// tables.hpp: replicas of one volume as tables of sequences, behind the port that copies are made through: for the pure logic
// that compares and copies blocks.
#pragma once

#include "daemon/decisions/rebuild.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace gnstor::test {

using daemon::CopyRange;
using daemon::CopySource;
using nvme::CopyKind;
using nvme::CopyRecord;
using nvme::Status;
using placement::SlotState;

inline constexpr std::uint32_t kSlots = 3;
inline constexpr std::uint32_t kBlocks = 1u << 20;  ///< 64 surveys of each drive

class Tables final : public daemon::CopyPort {
  public:
    struct Table {
        std::map<nvme::BlockAddress, std::uint64_t> sequences;  ///< by block; the contents follow from it
        std::set<nvme::BlockAddress> unreadable;
        std::set<nvme::BlockAddress> trimmed;  ///< above the floor, and without a tombstone
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
        if (slot == silent) return Status::kTimedOut;
        if (range.blocks > daemon::Rebuild::kRangeBlocks) return Status::kDataSglLengthInvalid;
        epoch = 1;
        for (std::uint32_t i = 0; i < range.blocks; ++i) {
            CopyRecord record{};
            record.epoch = 1;
            record.sequence = tables[slot].floor;
            record.resolved_epoch = 1;
            record.resolved_low = static_cast<std::uint32_t>(tables[slot].floor);
            record.resolved_high = static_cast<std::uint32_t>(tables[slot].floor >> 32);
            const auto found = tables[slot].sequences.find(range.first + i);
            if (found != tables[slot].sequences.end()) {
                record.kind = CopyKind::kData;
                record.sequence = found->second;
                record.content = static_cast<std::uint32_t>(found->second);
                std::memset(data.data() + contents(range, i), static_cast<int>(found->second),
                            nvme::kBlockBytes);
            }
            if (tables[slot].unreadable.contains(range.first + i)) record.kind = CopyKind::kUnreadable;
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
            tables[slot].unreadable.erase(range.first + i);
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
    std::uint32_t full = kSlots;    ///< a slot that refuses every write
    std::uint32_t silent = kSlots;  ///< a slot that answers no read

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

inline placement::ArrayMap map_of(SlotState last) {
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

inline nvme::VolumeRecord record_of(std::uint32_t blocks) {
    nvme::VolumeRecord record{};
    record.epoch = record.birth_epoch = 1;
    record.geometry.volume = 1;
    record.geometry.capacity_blocks = blocks;
    record.geometry.chunk_shift = 4;
    record.geometry.replicas = kSlots;
    return record;
}

}  // namespace gnstor::test
