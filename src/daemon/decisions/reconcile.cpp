#include "daemon/decisions/reconcile.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

namespace gnstor::daemon {

using nvme::CopyKind;
using nvme::CopyRecord;
using nvme::Status;
using nvme::SurveyKind;
using placement::SlotState;

namespace {

constexpr std::size_t kNone = ~std::size_t{0};

}  // namespace

// A survey of the first extents reaches every service unit of a drive: consecutive extents lie in consecutive units, and
// no drive has more units (ssd/drive/backbone.cpp). So the first window tells whether anything is unresolved at all.
static_assert(nvme::kSurveyExtentsMax >= 64);

Reconcile::Reconcile(const placement::ArrayMap& map, const nvme::VolumeRecord& record, bool thorough,
                     ReconcileMutation mutation)
    : map_(map), geometry_(record.geometry), epoch_(record.epoch), thorough_(thorough), mutation_(mutation) {
    for (std::uint32_t s = 0; s < map_.slot_count; ++s)
        if (is_compared(s)) slots_.push_back(s);
    compared_slots_ = slots_.size();
    for (std::uint32_t s = 0; s < map_.slot_count; ++s)
        if (placement::is_written(map_.slots[s].state) && !is_compared(s)) slots_.push_back(s);
    surveys_.resize(slots_.size());
    begin_window(0);
    if (geometry_.replicas < 2) phase_ = Phase::kEnd;
}

bool Reconcile::is_compared(std::uint32_t slot) const {
    return map_.slots[slot].state == SlotState::kIn;
}

Reconcile::Step Reconcile::step(CopyPort& port) {
    refusal_ = Status::kSuccess;
    if (phase_ == Phase::kNext && !take_range()) return step(port);  // another phase
    switch (phase_) {
        case Phase::kSurvey:
            return survey(port);
        case Phase::kNext:
        case Phase::kRead:
            return read(port);
        case Phase::kWrite:
            return write(port);
        case Phase::kFloor:
            return floor(port);
        case Phase::kEnd:
            break;
    }
    return Step::kEqual;
}

Reconcile::Step Reconcile::refused(std::uint32_t slot, Status why) {
    waits_for_ = slot;
    refusal_ = why;
    return Step::kWaits;
}

Reconcile::Step Reconcile::survey(CopyPort& port) {
    const std::uint32_t slot = slots_[next_slot_];
    std::vector<nvme::SurveyExtent>& extents = surveys_[next_slot_];
    extents.assign(nvme::survey_extents(window_.blocks), {});
    nvme::Epoch epoch = 0;
    const Status status = port.copy_survey(slot, window_, kind_, extents, epoch);
    if (status == Status::kInvalidOpcode) {
        unsupported_ = true;
        phase_ = Phase::kEnd;
        return Step::kWorked;
    }
    if (!ok(status)) return refused(slot, status);
    for (const nvme::SurveyExtent& extent : extents) {
        if (extent.floor != nvme::kClosedFloor) floor_ = std::max(floor_, extent.floor);
        highest_ = std::max(highest_, extent.highest);
        (extent.floor == nvme::kClosedFloor ? any_closed_ : any_open_) = true;
    }
    if (++next_slot_ == slots_.size()) end_survey();
    return Step::kWorked;
}

/// Every drive was asked about the window.
void Reconcile::end_survey() {
    next_slot_ = 0;
    // A floor of the writer holds for all drives. That of a comparison does not before each drive has it: it may have ended
    // before the last one was told, and another drive be *in* since.
    const bool resolved = any_closed_ ? !any_open_ : highest_ <= floor_;
    if (window_.first == 0 && resolved && !thorough_) {
        // A drive that is away, or being filled, may have what was never resolved here: only the closing floor tells that
        // it does not count.
        const bool all_here = std::ranges::none_of(map_.slots, [](const auto& slot) {
            return placement::takes_part(slot) && slot.state != SlotState::kIn;
        });
        phase_ = all_here || any_closed_ ? Phase::kEnd : Phase::kFloor;
        return;
    }
    if (kind_ == SurveyKind::kChanges) {
        next_window_ = next_changed();
        if (has_changes()) {
            kind_ = SurveyKind::kBlocks;  // the same window again
            return;
        }
    } else if (mutation_ != ReconcileMutation::kNoComparison) {
        find_ranges();
    }
    phase_ = Phase::kNext;
}

/// Whether some block of the window may differ.
bool Reconcile::has_changes() const {
    const auto may_differ = [](const nvme::SurveyExtent& extent) {
        return (extent.flags & nvme::kExtentUnchanged) == 0;
    };
    return std::ranges::any_of(std::span(surveys_).first(compared_slots_),
                               [&](const auto& extents) { return std::ranges::any_of(extents, may_differ); });
}

/// The first block behind the window from which on some block may differ.
std::uint64_t Reconcile::next_changed() const {
    const std::uint64_t end = std::uint64_t{window_.first} + window_.blocks;
    std::uint64_t next = geometry_.capacity_blocks;
    for (std::size_t i = 0; i < compared_slots_; ++i)
        for (const nvme::SurveyExtent& extent : surveys_[i])
            next = std::min(next, std::max(extent.next_changed, end));
    return next < geometry_.capacity_blocks ? next - next % nvme::kExtentBlocks : next;
}

void Reconcile::begin_window(std::uint64_t first) {
    window_ = survey_window(geometry_, first);
    next_window_ = first + window_.blocks;
    kind_ = thorough_ ? SurveyKind::kBlocks : SurveyKind::kChanges;
    phase_ = Phase::kSurvey;
}

void Reconcile::find_ranges() {
    const std::uint64_t end = std::uint64_t{window_.first} + window_.blocks;
    const std::uint64_t chunk_blocks = std::uint64_t{1} << geometry_.chunk_shift;
    for (std::uint64_t first = window_.first; first < end; first += chunk_blocks)
        find_ranges_of({geometry_.volume, static_cast<nvme::BlockAddress>(first),
                        static_cast<std::uint32_t>(std::min(chunk_blocks, end - first))});
}

void Reconcile::find_ranges_of(const CopyRange& chunk) {
    const placement::Replicas replicas = place(map_, geometry_, chunk.first >> geometry_.chunk_shift);
    for (std::uint32_t done = 0; done < chunk.blocks; done += kRangeBlocks) {
        const CopyRange range{chunk.volume, chunk.first + done, std::min(kRangeBlocks, chunk.blocks - done)};
        if (differs(range, replicas)) ranges_.push_back(range);
    }
}

/// Whether the surveys show that some block of the range may differ between its replicas.
bool Reconcile::differs(const CopyRange& range, const placement::Replicas& replicas) const {
    const std::size_t extent = (range.first - window_.first) / nvme::kExtentBlocks;
    const std::uint32_t within = range.first % nvme::kExtentBlocks;
    const nvme::SurveyExtent* first_in = nullptr;
    bool may = thorough_, any_data = false;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (!placement::holds(replicas, slots_[i]) || !is_compared(slots_[i])) continue;
        const nvme::SurveyExtent& seen = surveys_[i][extent];
        may = may || (seen.groups >> within / nvme::kSurveyGroupBlocks & 1u) != 0;
        for (std::uint32_t b = within; b < within + range.blocks; ++b) any_data = any_data || seen.has(b);
        if (mutation_ == ReconcileMutation::kIgnoreAbsent) continue;
        if (first_in == nullptr) first_in = &seen;
        for (std::uint32_t b = within; b < within + range.blocks; ++b)
            may = may || seen.has(b) != first_in->has(b);
    }
    return may && any_data;  // trims alone read as zeroes on every replica
}

/// False: the phase has changed.
bool Reconcile::take_range() {
    const bool enough = mutation_ == ReconcileMutation::kFirstRange && ranges_compared_ != 0;
    if (ranges_.empty() || enough) {
        if (next_window_ >= geometry_.capacity_blocks || enough)
            phase_ = Phase::kFloor;
        else
            begin_window(next_window_);
        return false;
    }
    range_ = ranges_.front();
    ranges_.pop_front();
    const placement::Replicas placed = place(map_, geometry_, range_.first >> geometry_.chunk_shift);
    replicas_.clear();
    for (std::uint32_t i = 0; i < placed.count; ++i)
        if (is_compared(placed.slot[i])) replicas_.push_back({placed.slot[i]});
    next_replica_ = 0;
    range_is_left_ = false;
    phase_ = Phase::kRead;
    return true;
}

Reconcile::Step Reconcile::read(CopyPort& port) {
    if (next_replica_ == replicas_.size()) {  // no slot of this range is *in*
        phase_ = Phase::kNext;
        return Step::kWorked;
    }
    Replica& replica = replicas_[next_replica_];
    replica.data.assign(nvme::copy_bytes(range_.blocks), std::byte{0});
    nvme::Epoch epoch = 0;
    const Status status =
        port.copy_read(replica.slot, range_, {nvme::kCopyClosed, epoch_}, replica.data, epoch);
    if (!ok(status)) return refused(replica.slot, status);
    replica.records.resize(range_.blocks);
    std::memcpy(replica.records.data(), replica.data.data(), range_.blocks * sizeof(CopyRecord));
    if (++next_replica_ < replicas_.size()) return Step::kWorked;
    choose();
    ++ranges_compared_;
    next_replica_ = 0;
    compose(0);
    phase_ = Phase::kWrite;
    return Step::kWorked;
}

bool Reconcile::is_newer(const Replica& a, const Replica& b, std::uint32_t block) const {
    const auto order = [block](const Replica& r) {
        const CopyRecord& v = r.records[block];
        // The closing floor says nothing of why the block is not there: it must not win over data that a drive refused.
        const bool closed = v.kind == CopyKind::kAbsent && v.sequence == nvme::kClosedFloor;
        return std::tuple(v.epoch, closed ? 0 : v.sequence, v.kind == CopyKind::kAbsent ? 0 : v.content);
    };
    return order(a) > order(b);
}

/// The newest version of each block.
void Reconcile::choose() {
    winner_.assign(range_.blocks, kNone);
    for (std::uint32_t block = 0; block < range_.blocks; ++block)
        for (std::size_t i = 0; i < replicas_.size(); ++i) {
            if (replicas_[i].records[block].kind == CopyKind::kUnreadable) continue;
            std::size_t& newest = winner_[block];
            if (newest == kNone || is_newer(replicas_[i], replicas_[newest], block)) newest = i;
        }
}

/// Whether both would be read alike. Their orders may differ: below the closed epoch's floor they do not matter any more.
bool Reconcile::is_equal(const Replica& a, const Replica& b, std::uint32_t block) const {
    const CopyKind x = a.records[block].kind, y = b.records[block].kind;
    if (x == CopyKind::kUnreadable || y == CopyKind::kUnreadable) return false;
    if ((x == CopyKind::kData) != (y == CopyKind::kData)) return false;
    const std::size_t contents = nvme::copy_contents_at(range_.blocks, block);
    return std::memcmp(a.data.data() + contents, b.data.data() + contents, nvme::kBlockBytes) == 0;
}

/// What the replica lacks.
void Reconcile::compose(std::size_t replica) {
    data_.assign(nvme::copy_bytes(range_.blocks), std::byte{0});
    composed_ = 0;
    for (std::uint32_t block = 0; block < range_.blocks; ++block) {
        CopyRecord record{};
        record.kind = CopyKind::kUnchanged;
        const std::size_t from = winner_[block];
        if (from != kNone && !is_equal(replicas_[from], replicas_[replica], block)) {
            record = replicas_[from].records[block];
            const std::size_t contents = nvme::copy_contents_at(range_.blocks, block);
            std::memcpy(data_.data() + contents, replicas_[from].data.data() + contents, nvme::kBlockBytes);
            ++composed_;
        }
        std::memcpy(data_.data() + std::size_t{block} * sizeof(record), &record, sizeof(record));
    }
}

Reconcile::Step Reconcile::write(CopyPort& port) {
    const std::uint32_t slot = replicas_[next_replica_].slot;
    if (composed_ != 0) {
        const Status status = port.copy_write(slot, range_, {nvme::kCopyClosed, epoch_}, data_);
        // Stale Epoch: the SSD has not taken the newest record yet.
        if (is_for_now(status) || status == Status::kStaleEpoch || status == Status::kBusy)
            return refused(slot, status);
        if (ok(status)) {
            blocks_put_ += composed_;
        } else {  // the other replicas take it all the same
            left_refusal_ = status;
            left_ += std::exchange(range_is_left_, true) ? 0 : 1;
        }
    }
    if (++next_replica_ < replicas_.size()) {
        compose(next_replica_);
    } else {
        phase_ = Phase::kNext;
    }
    return Step::kWorked;
}

/// Everything that the epoch's writers have sent is resolved.
Reconcile::Step Reconcile::floor(CopyPort& port) {
    const std::uint32_t slot = slots_[next_slot_];
    const Status status = port.set_floor(slot, geometry_.volume, epoch_, nvme::kClosedFloor);
    if (!ok(status)) return refused(slot, status);
    if (++next_slot_ == compared_slots_) compared_ = true;
    if (next_slot_ < slots_.size()) return Step::kWorked;
    phase_ = Phase::kEnd;
    return Step::kWorked;
}

}  // namespace gnstor::daemon
