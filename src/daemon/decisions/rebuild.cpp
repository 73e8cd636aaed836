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

Status SsdCopyPort::copy_read(std::uint32_t slot, const CopyRange& range, const CopySource& source,
                              std::span<std::byte> data, nvme::Epoch& epoch) {
    return send(slot, nvme::CopyOpcode::kCopyRead, range, source, data, epoch);
}

Status SsdCopyPort::copy_survey(std::uint32_t slot, const CopyRange& range, nvme::SurveyKind kind,
                                std::span<nvme::SurveyExtent> extents, nvme::Epoch& epoch) {
    return send(slot, nvme::CopyOpcode::kCopySurvey, range, {static_cast<std::uint32_t>(kind), 0},
                std::as_writable_bytes(extents), epoch);
}

Status SsdCopyPort::set_floor(std::uint32_t slot, nvme::VolumeId volume, nvme::Epoch epoch,
                              std::uint64_t floor) {
    if (slot >= by_slot_.size() || by_slot_[slot] == nullptr) return Status::kQueueError;
    nvme::Command c = nvme::encode_floor(volume, epoch, floor);
    c.cdw14 = static_cast<std::uint32_t>(term_);
    c.cdw15 = static_cast<std::uint32_t>(term_ >> 32);
    std::uint32_t tombstones = 0;
    return by_slot_[slot]->copy(c, {}, tombstones);
}

Status SsdCopyPort::copy_write(std::uint32_t slot, const CopyRange& range, const CopySource& source,
                               std::span<std::byte> data) {
    std::uint32_t dw0 = 0;
    return send(slot, nvme::CopyOpcode::kCopyWrite, range, source, data, dw0);
}

CopyRange survey_window(const placement::VolumeGeometry& geometry, std::uint64_t first) {
    const std::uint64_t left = geometry.capacity_blocks - first;
    return {geometry.volume, static_cast<nvme::BlockAddress>(first),
            static_cast<std::uint32_t>(std::min<std::uint64_t>(nvme::kSurveyBlocksMax, left))};
}

bool is_for_now(Status why) {
    return is_local(why) || why == Status::kNotGranted || why == Status::kStaleMap;
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
        case Phase::kSurvey:
            return survey(port);
        case Phase::kFloor:
            return floor(port);
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
            if (!is_surveyed(part)) {
                begin_survey(part);
                return true;
            }
            const auto blocks =
                static_cast<std::uint32_t>(std::min<std::uint64_t>(kRangeBlocks, end - part.next));
            const CopyRange range{g.volume, static_cast<nvme::BlockAddress>(part.next), blocks};
            part.next += blocks;
            if (!has_anything(range)) {
                progress_.blocks_done += blocks;
                continue;
            }
            attempts_ = 0;
            begin(range);
            const bool last = part_ + 1 == parts_.size() && part.next >= g.capacity_blocks;
            if (last && mutation_ == RebuildMutation::kSkipLastRange) phase_ = Phase::kNext;
            return phase_ != Phase::kNext;
        }
    }
    return false;
}

bool Rebuild::is_surveyed(const Part& part) const {
    return surveyed_.volume == part.geometry.volume && part.next >= surveyed_.first &&
           part.next < std::uint64_t{surveyed_.first} + surveyed_.blocks;
}

/// Asks for the extents that contain the part's next block.
void Rebuild::begin_survey(const Part& part) {
    const std::uint64_t first = part.next / nvme::kSurveyBlocksMax * nvme::kSurveyBlocksMax;
    surveyed_ = survey_window(part.geometry, first);
    asked_.clear();
    for (std::uint32_t s = 0; s < map_.slot_count; ++s)
        if (s != slot_ && map_.slots[s].state == placement::SlotState::kIn) asked_.push_back(s);
    if (mutation_ != RebuildMutation::kDonorsOnly) asked_.push_back(slot_);
    next_asked_ = 0;
    floor_ = floor_epoch_ = 0;
    all_closed_ = false;
    anything_.assign((surveyed_.blocks + nvme::kSurveyGroupBlocks - 1) / nvme::kSurveyGroupBlocks, false);
    phase_ = Phase::kSurvey;
}

Rebuild::Step Rebuild::survey(CopyPort& port) {
    if (next_asked_ == asked_.size()) {
        phase_ = Phase::kNext;
        return Step::kWorked;
    }
    const std::uint32_t slot = asked_[next_asked_];
    extents_.assign(nvme::survey_extents(surveyed_.blocks), {});
    nvme::Epoch epoch = 0;
    const Status status = port.copy_survey(slot, surveyed_, nvme::SurveyKind::kBlocks, extents_, epoch);
    if (!ok(status)) {
        if (is_for_now(status)) return refused(status);
        // Older firmware, or a drive that lacks the volume: every range is tried.
        anything_.assign(anything_.size(), true);
        phase_ = Phase::kNext;
        return Step::kWorked;
    }
    for (std::size_t group = 0; group < anything_.size(); ++group) {
        const nvme::SurveyExtent& extent = extents_[group / 32];
        const bool there = (extent.groups >> group % 32 & 1u) != 0 || extent.present[group % 32] != 0;
        anything_[group] = anything_[group] || there;
    }
    for (const nvme::SurveyExtent& extent : extents_) {
        if (slot == slot_ || epoch < floor_epoch_) continue;
        if (epoch > floor_epoch_) {
            floor_ = 0;
            all_closed_ = true;
            floor_epoch_ = epoch;
        }
        if (extent.floor == nvme::kClosedFloor) continue;
        floor_ = std::max(floor_, extent.floor);
        all_closed_ = false;
    }
    ++next_asked_;
    // Before the target is asked. The floor of a comparison is for one that is filled with what all donors agree on.
    const bool target_next = next_asked_ < asked_.size() && asked_[next_asked_] == slot_;
    if (target_next && all_closed_) floor_ = nvme::kClosedFloor;
    if (target_next && floor_ != 0) phase_ = Phase::kFloor;
    return Step::kWorked;
}

Rebuild::Step Rebuild::floor(CopyPort& port) {
    const Status status = port.set_floor(slot_, surveyed_.volume, floor_epoch_, floor_);
    // Stale Epoch: the target is in a later one, and refuses every write of this one.
    if (!ok(status) && status != Status::kStaleEpoch) return refused(status);
    phase_ = Phase::kSurvey;
    return Step::kWorked;
}

/// As of the survey.
bool Rebuild::has_anything(const CopyRange& range) const {
    const std::uint32_t first = (range.first - surveyed_.first) / nvme::kSurveyGroupBlocks;
    const std::uint32_t last = (range.first - surveyed_.first + range.blocks - 1) / nvme::kSurveyGroupBlocks;
    for (std::uint32_t group = first; group <= last; ++group)
        if (anything_[group]) return true;
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
        const Status status = port.copy_read(replicas_.slot[donor_++], range_, {}, donor_data_, epoch);
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
        const std::size_t contents = nvme::copy_contents_at(range_.blocks, i);
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
    return !is_for_now(why) && ++attempts_ >= kAttempts ? stick(why) : refused(why);
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
    progress_.blocks_done += forget_ranges(volume);
}

void Rebuild::again(nvme::VolumeId volume) {
    const std::uint64_t not_done = forget_ranges(volume);
    for (Part& part : parts_) {
        if (part.geometry.volume != volume || part.dropped) continue;
        progress_.blocks_done -= part.next - not_done;
        part.next = 0;
    }
    part_ = 0;
}

/// Forgets the ranges of the volume that are under way or stuck; returns their blocks.
std::uint64_t Rebuild::forget_ranges(nvme::VolumeId volume) {
    std::uint64_t blocks = 0;
    for (const CopyRange& range : stuck_) blocks += range.volume == volume ? range.blocks : 0;
    std::erase_if(stuck_, [volume](const CopyRange& range) { return range.volume == volume; });
    stuck_left_ = std::min(stuck_left_, stuck_.size());
    const bool surveys = phase_ == Phase::kSurvey || phase_ == Phase::kFloor;
    if (surveyed_.volume == volume) {
        surveyed_ = {};
        if (surveys) phase_ = Phase::kNext;
    }
    if (range_.volume == volume && phase_ != Phase::kNext && !surveys) {
        blocks += range_.blocks;
        phase_ = Phase::kNext;
    }
    return blocks;
}

}  // namespace gnstor::daemon
