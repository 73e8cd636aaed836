#include "daemon/decisions/rebuild.hpp"

#include <algorithm>
#include <cstring>

namespace gnstor::daemon {

using nvme::CopyKind;
using nvme::CopyRecord;
using nvme::Status;

Status SsdCopyPort::send(std::uint32_t slot, nvme::CopyOpcode opcode, const CopyRange& range,
                         const CopySource& source, std::span<std::byte> data, std::uint32_t& dw0) {
    if (slot >= by_slot_.size() || by_slot_[slot] == nullptr) return Status::kQueueError;
    return by_slot_[slot]->copy(nvme::encode_copy(opcode, term_, range.volume, range.first, range.blocks,
                                                  version_, source.window, source.epoch),
                                data, dw0);
}

Status SsdCopyPort::copy_open(std::uint32_t slot, const CopyRange& range, std::uint32_t& window) {
    return send(slot, nvme::CopyOpcode::kCopyOpen, range, {}, {}, window);
}

Status SsdCopyPort::copy_read(std::uint32_t slot, const CopyRange& range, std::span<std::byte> data,
                              nvme::Epoch& epoch) {
    return send(slot, nvme::CopyOpcode::kCopyRead, range, {}, data, epoch);
}

Status SsdCopyPort::copy_write(std::uint32_t slot, const CopyRange& range, const CopySource& source,
                               std::span<std::byte> data) {
    std::uint32_t dw0 = 0;
    return send(slot, nvme::CopyOpcode::kCopyWrite, range, source, data, dw0);
}

Rebuild::Rebuild(const placement::ArrayMap& map, std::uint32_t slot,
                 std::span<const nvme::VolumeRecord> volumes, RebuildMutation mutation)
    : map_(map), slot_(slot), mutation_(mutation) {
    for (const nvme::VolumeRecord& record : volumes) {
        parts_.push_back({record.geometry, record.birth_epoch});
        progress_.blocks_total += record.geometry.capacity_blocks;
    }
}

Rebuild::Step Rebuild::step(CopyPort& port) {
    if (phase_ == Phase::kNext && !take_range()) return stuck_.empty() ? Step::kDone : Step::kWaits;
    switch (phase_) {
        case Phase::kNext:
        case Phase::kOpen:
            return open(port);
        case Phase::kRead:
            return read(port);
        case Phase::kWrite:
            return write(port);
    }
    return Step::kWaits;
}

bool Rebuild::take_range() {
    if (take_new_range()) return true;
    if (stuck_.empty()) return false;
    if (stuck_left_ == 0) {  // all of them were tried: the caller waits before the next round
        stuck_left_ = stuck_.size();
        return false;
    }
    --stuck_left_;
    const CopyRange again = stuck_.front();
    stuck_.pop_front();
    attempts_ = 0;
    begin(again);
    return true;
}

bool Rebuild::take_new_range() {
    for (; part_ < parts_.size(); ++part_) {
        Part& part = parts_[part_];
        const placement::VolumeGeometry& g = part.geometry;
        while (part.next < g.capacity_blocks) {
            const auto chunk = static_cast<std::uint32_t>(part.next >> g.chunk_shift);
            const std::uint64_t end =
                std::min(g.capacity_blocks, (std::uint64_t{chunk} + 1) << g.chunk_shift);
            // A chunk that no other slot holds was written here alone, or not since the slot's SSD was silent.
            const placement::Replicas replicas = place(map_, g, chunk);
            if (!placement::holds(replicas, slot_) || replicas.count == 1) {
                progress_.blocks_done += end - part.next;
                part.next = end;
                continue;
            }
            const auto blocks =
                static_cast<std::uint32_t>(std::min<std::uint64_t>(kRangeBlocks, end - part.next));
            attempts_ = 0;
            begin({g.volume, static_cast<nvme::BlockAddress>(part.next), blocks});
            part.next += blocks;
            const bool last = part_ + 1 == parts_.size() && part.next >= g.capacity_blocks;
            if (last && mutation_ == RebuildMutation::kSkipLastRange) phase_ = Phase::kNext;
            return phase_ != Phase::kNext;
        }
    }
    return false;
}

void Rebuild::begin(const CopyRange& range) {
    range_ = range;
    const auto part =
        std::ranges::find_if(parts_, [&](const Part& p) { return p.geometry.volume == range.volume; });
    replicas_ = place(map_, part->geometry, range.first >> part->geometry.chunk_shift);
    phase_ = mutation_ == RebuildMutation::kReadBeforeOpen ? Phase::kRead : Phase::kOpen;
    donor_ = 0;
    source_ = {0, ~nvme::Epoch{0}};
    data_.assign(nvme::copy_bytes(range.blocks), std::byte{0});
    donor_data_.resize(data_.size());
    read_.assign(range.blocks, false);
}

Rebuild::Step Rebuild::refused(Status why) {
    progress_.refusal = why;
    return Step::kWaits;
}

Rebuild::Step Rebuild::open(CopyPort& port) {
    const Status status = port.copy_open(slot_, range_, source_.window);
    if (!ok(status)) return refused_by_target(status);
    phase_ = mutation_ == RebuildMutation::kReadBeforeOpen ? Phase::kWrite : Phase::kRead;
    return Step::kWorked;
}

Rebuild::Step Rebuild::read(CopyPort& port) {
    while (donor_ < replicas_.count &&
           (replicas_.slot[donor_] == slot_ ||
            map_.slots[replicas_.slot[donor_]].state != placement::SlotState::kIn))
        ++donor_;
    if (donor_ == replicas_.count && !complete()) return stick(Status::kUnrecoveredReadError);
    if (donor_ < replicas_.count) {
        nvme::Epoch epoch = 0;
        const Status status = port.copy_read(replicas_.slot[donor_++], range_, donor_data_, epoch);
        if (!ok(status)) return refused(status);
        merge(donor_data_);
        source_.epoch = std::min(source_.epoch, epoch);
    }
    if (complete()) phase_ = mutation_ == RebuildMutation::kReadBeforeOpen ? Phase::kOpen : Phase::kWrite;
    return Step::kWorked;
}

/// Takes the blocks that this donor could read and no earlier one could.
void Rebuild::merge(std::span<const std::byte> data) {
    for (std::uint32_t i = 0; i < range_.blocks; ++i) {
        CopyRecord record;
        std::memcpy(&record, data.data() + std::size_t{i} * sizeof(record), sizeof(record));
        if (read_[i] || record.kind == CopyKind::kUnreadable) continue;
        const std::size_t contents = range_.blocks * sizeof(record) + std::size_t{i} * nvme::kBlockBytes;
        std::memcpy(data_.data() + std::size_t{i} * sizeof(record), &record, sizeof(record));
        std::memcpy(data_.data() + contents, data.data() + contents, nvme::kBlockBytes);
        read_[i] = true;
    }
}

bool Rebuild::complete() const {
    return std::ranges::all_of(read_, [](bool known) { return known; });
}

Rebuild::Step Rebuild::write(CopyPort& port) {
    const Status status = port.copy_write(slot_, range_, source_, data_);
    if (ok(status)) return end_range();
    // Not yet: the same again. Anything else, above all a window that is no longer open: from the start.
    if (status != Status::kBusy && status != Status::kNotGranted) begin(range_);
    return refused_by_target(status);
}

/// No answer, or not yet: as often as it takes. Any other refusal: a few times, then after all other ranges.
Rebuild::Step Rebuild::refused_by_target(Status why) {
    const bool later = is_local(why) || why == Status::kNotGranted || why == Status::kStaleMap;
    return !later && ++attempts_ >= kAttempts ? stick(why) : refused(why);
}

Rebuild::Step Rebuild::stick(Status why) {
    if (mutation_ != RebuildMutation::kForgetStuck) stuck_.push_back(range_);
    phase_ = Phase::kNext;
    return refused(why);
}

Rebuild::Step Rebuild::end_range() {
    for (std::uint32_t i = 0; i < range_.blocks; ++i) {
        CopyRecord record;
        std::memcpy(&record, data_.data() + std::size_t{i} * sizeof(record), sizeof(record));
        progress_.blocks_copied += record.kind == CopyKind::kAbsent ? 0 : 1;
    }
    progress_.blocks_done += range_.blocks;
    phase_ = Phase::kNext;
    return Step::kWorked;
}

/// The volume was deleted: nothing of it needs to be copied any more.
void Rebuild::drop_volume(nvme::VolumeId volume) {
    for (Part& part : parts_) {
        if (part.geometry.volume != volume || part.dropped) continue;
        part.dropped = true;
        progress_.blocks_done += part.geometry.capacity_blocks - part.next;
        part.next = part.geometry.capacity_blocks;
    }
    for (const CopyRange& range : stuck_) progress_.blocks_done += range.volume == volume ? range.blocks : 0;
    if (range_.volume == volume && phase_ != Phase::kNext) progress_.blocks_done += range_.blocks;
    std::erase_if(stuck_, [volume](const CopyRange& range) { return range.volume == volume; });
    stuck_left_ = std::min(stuck_left_, stuck_.size());
    if (range_.volume == volume) phase_ = Phase::kNext;
}

}  // namespace gnstor::daemon
