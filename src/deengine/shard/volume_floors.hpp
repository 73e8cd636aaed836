// volume_floors.hpp: for each volume with blocks on a shard: epoch, floor, highest sequence seen.
//
// Invariants
//   * at most one entry a volume, and one for each volume that changed a block since its last purge;
//   * epochs only rise; within an epoch floor and highest sequence only rise, and logged <= floor;
//   * what is noted of changed extents belongs to the entry's epoch. Without a note every extent counts as changed: after a
//   mount, after the floor of a comparison, and of volumes beyond kNoted.
// Owned by one shard. Allocates once for each volume and epoch; lookups touch two cache lines.
#pragma once

#include "deengine/log/checkpoint.hpp"
#include "deengine/shard/changed_extents.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace gnstor::deengine {

class VolumeFloors {
  public:
    VolumeFloors() : index_(1u << 16, kNone) {}

    [[nodiscard]] const VolumeFloor* find(nvme::VolumeId volume) const {
        return index_[volume] == kNone ? nullptr : &entries_[index_[volume]];
    }
    /// The floor in this epoch; 0: none is known, or the volume is in another epoch.
    [[nodiscard]] std::uint64_t resolved(nvme::VolumeId volume, nvme::Epoch epoch) const {
        const VolumeFloor* entry = find(volume);
        return entry != nullptr && entry->epoch == epoch ? entry->floor : 0;
    }
    /// The volume's entry, brought up to `epoch` (a newer epoch begins with no floor and nothing seen).
    VolumeFloor& at(nvme::VolumeId volume, nvme::Epoch epoch) {
        if (index_[volume] == kNone) {
            index_[volume] = static_cast<std::uint16_t>(entries_.size());
            entries_.push_back({volume, epoch, 0, 0, 0});
            changed_.emplace_back();
            begin_notes(entries_.size() - 1);
        }
        VolumeFloor& entry = entries_[index_[volume]];
        if (epoch > entry.epoch) {
            entry = {volume, epoch, 0, 0, 0};
            begin_notes(index_[volume]);
        }
        return entry;
    }
    /// Blocks are about to be changed by an order of the epoch of `entry`, which at() returned: before seen() of the same
    /// order.
    void note_change(const VolumeFloor& entry, nvme::BlockAddress first, std::uint32_t blocks,
                     std::uint64_t sequence) {
        const auto i = static_cast<std::size_t>(&entry - entries_.data());
        if (changed_[i] == nullptr) [[unlikely]]
            begin_notes(i);
        if (changed_[i] == nullptr) return;
        const std::uint64_t end = std::uint64_t{first} + std::max(blocks, 1u);
        for (std::uint64_t block = first - first % nvme::kExtentBlocks; block < end;
             block += nvme::kExtentBlocks)
            changed_[i]->note(static_cast<nvme::BlockAddress>(block), sequence, entry.floor);
    }
    /// The same for an order of any epoch: one of an older epoch is no change of the present one.
    void note_change(nvme::VolumeId volume, nvme::Epoch epoch, nvme::BlockAddress first, std::uint32_t blocks,
                     std::uint64_t sequence) {
        const VolumeFloor& entry = at(volume, epoch);
        if (entry.epoch == epoch) note_change(entry, first, blocks, sequence);
    }
    /// What was noted of the volume in this epoch, less what `floor` resolves. Null: every extent counts as changed.
    [[nodiscard]] const ChangedExtents* changed(nvme::VolumeId volume, nvme::Epoch epoch,
                                                std::uint64_t floor) {
        if (floor == nvme::kClosedFloor) return nullptr;
        const VolumeFloor* entry = find(volume);
        if (entry == nullptr || entry->epoch < epoch) return &unchanged_;
        ChangedExtents* noted = entry->epoch == epoch ? changed_[index_[volume]].get() : nullptr;
        if (noted != nullptr) noted->turn(floor);
        return noted;
    }
    /// The shard was mounted: what it found may have changed any extent.
    void forget_notes() {
        for (auto& noted : changed_) noted.reset();
        noted_ = 0;
    }
    /// The shard holds, or held, a version of this order.
    void seen(nvme::VolumeId volume, nvme::Epoch epoch, std::uint64_t sequence) {
        VolumeFloor& entry = at(volume, epoch);
        if (entry.epoch == epoch) entry.highest = std::max(entry.highest, sequence);
    }
    /// Sequences of `epoch` up to `floor` are resolved; ignored if the volume is in a later epoch.
    void raise(nvme::VolumeId volume, nvme::Epoch epoch, std::uint64_t floor) {
        VolumeFloor& entry = at(volume, epoch);
        if (entry.epoch != epoch) return;
        entry.floor = std::max(entry.floor, floor);
        if (floor == nvme::kClosedFloor) end_notes(index_[volume]);
    }
    /// The present floor is in the journal, or in the checkpoint that a mount begins at.
    void logged(nvme::VolumeId volume) {
        if (index_[volume] == kNone) return;
        VolumeFloor& entry = entries_[index_[volume]];
        entry.logged = entry.floor;
    }
    /// A trim of this sequence leaves no tombstone.
    void trimmed_untold(nvme::VolumeId volume, nvme::Epoch epoch, std::uint64_t sequence) {
        VolumeFloor& entry = at(volume, epoch);
        if (entry.epoch == epoch) entry.untold = std::max(entry.untold, sequence);
    }
    /// Whether every trim of this epoch that is not resolved has its tombstone.
    [[nodiscard]] bool all_told(nvme::VolumeId volume, nvme::Epoch epoch) const {
        const VolumeFloor* entry = find(volume);
        return entry == nullptr || entry->epoch != epoch || entry->untold <= entry->floor;
    }
    void forget(nvme::VolumeId volume) {
        const std::uint16_t i = index_[volume];
        if (i == kNone) return;
        end_notes(i);
        entries_[i] = entries_.back();
        std::swap(changed_[i], changed_.back());
        index_[entries_[i].volume] = i;
        entries_.pop_back();
        changed_.pop_back();
        index_[volume] = kNone;
    }
    /// The record of a block whose order cannot be read: bounded by the highest order seen in its volume.
    [[nodiscard]] PageOob lost_order(BlockKey key) const {
        PageOob oob{};
        oob.vid = key_volume(key);
        oob.vba = key_block(key);
        oob.kind = PageKind::kLostOrder;
        const VolumeFloor* seen = find(oob.vid);
        oob.epoch = seen != nullptr ? seen->epoch : ~nvme::Epoch{0};
        oob.sequence = seen != nullptr ? seen->highest : ~std::uint64_t{0};
        return oob;
    }
    [[nodiscard]] const std::vector<VolumeFloor>& entries() const { return entries_; }

  private:
    static constexpr std::uint16_t kNone = 0xFFFF;
    static constexpr std::size_t kNoted = 256;  ///< volumes whose changed extents are noted: 2 MiB

    void begin_notes(std::size_t i) {
        const VolumeFloor& entry = entries_[i];
        if (changed_[i] == nullptr && (noted_ == kNoted || entry.floor == nvme::kClosedFloor)) return;
        noted_ += changed_[i] == nullptr ? 1 : 0;
        changed_[i] = std::make_unique<ChangedExtents>(entry.highest);
    }
    void end_notes(std::size_t i) {
        noted_ -= changed_[i] != nullptr ? 1 : 0;
        changed_[i].reset();
    }

    std::vector<VolumeFloor> entries_;
    std::vector<std::unique_ptr<ChangedExtents>> changed_;  ///< by place in entries_; null: nothing is noted
    std::size_t noted_ = 0;                                 ///< of changed_, those that are not null
    std::vector<std::uint16_t> index_;                      ///< by VID
    const ChangedExtents unchanged_{0};
};

}  // namespace gnstor::deengine
