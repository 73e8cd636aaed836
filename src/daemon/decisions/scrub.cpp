#include "daemon/decisions/scrub.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>

namespace gnstor::daemon {

using nvme::CopyKind;
using nvme::CopyRecord;
using nvme::Status;

namespace {

std::tuple<nvme::Epoch, std::uint64_t, std::uint32_t> order_of(const CopyRecord& r) {
    return {r.epoch, r.sequence, r.kind == CopyKind::kAbsent ? 0 : r.content};
}
std::pair<nvme::Epoch, std::uint64_t> floor_of(const CopyRecord& r) {
    return {r.resolved_epoch, r.resolved()};
}
/// Whether reads of the two versions return the same data; their orders may differ.
bool read_alike(const CopyRecord& a, const CopyRecord& b) {
    if ((a.kind == CopyKind::kData) != (b.kind == CopyKind::kData)) return false;
    return a.kind != CopyKind::kData || a.content == b.content;
}
bool is_bad(const CopyRecord& r) {
    return r.kind == CopyKind::kUnreadable;
}

}  // namespace

void ScrubCounts::add(const ScrubCounts& o) {
    blocks += o.blocks;
    bytes += o.bytes;
    mended += o.mended;
    unreadable += o.unreadable;
    refused += o.refused;
    unresolved += o.unresolved;
    different += o.different;
}

Scrub::Scrub(const placement::ArrayMap& map, const nvme::VolumeRecord& record, std::uint64_t first,
             ScrubMutation mutation)
    : map_(map),
      geometry_(record.geometry),
      revision_(record.revision),
      closed_(record.writer == 0),
      mutation_(mutation) {
    for (std::uint32_t s = 0; s < map_.slot_count; ++s)
        if (is_in(s)) slots_.push_back(s);
    if (geometry_.replicas > 1 && slots_.size() > 1 && first < geometry_.capacity_blocks)
        begin_window(first - first % nvme::kExtentBlocks);
}

bool Scrub::is_in(std::uint32_t slot) const {
    return map_.slots[slot].state == placement::SlotState::kIn;
}

std::vector<std::uint32_t> Scrub::slots_of(nvme::BlockAddress block) const {
    const placement::Replicas placed = place(map_, geometry_, block >> geometry_.chunk_shift);
    std::vector<std::uint32_t> slots;
    for (std::uint32_t i = 0; i < placed.count; ++i)
        if (is_in(placed.slot[i])) slots.push_back(placed.slot[i]);
    return slots;
}

std::uint64_t Scrub::position() const {
    return phase_ == Phase::kEnd ? geometry_.capacity_blocks : window_.first;
}

ScrubCounts Scrub::settled_counts() const {
    if (phase_ == Phase::kEnd) return counts_;
    ScrubCounts counts = before_window_;
    counts.bytes = counts_.bytes;
    counts.mended = counts_.mended;
    return counts;
}

Scrub::Step Scrub::step(CopyPort& port) {
    if (phase_ == Phase::kNextMend && bad_.empty()) phase_ = Phase::kNext;
    if (phase_ == Phase::kNext && ranges_.empty() && !later_.empty() && round_left_ == 0) {
        round_left_ = later_.size();
        return Step::kWaits;
    }
    if (phase_ == Phase::kNext && !take_range()) {
        const std::uint64_t next = std::uint64_t{window_.first} + window_.blocks;
        if (next < geometry_.capacity_blocks)
            begin_window(next);
        else
            phase_ = Phase::kEnd;
    }
    switch (phase_) {
        case Phase::kSurvey:
            return survey(port);
        case Phase::kNext:
        case Phase::kRead:
            return read(port);
        case Phase::kNextMend:
        case Phase::kOpen:
            return open(port);
        case Phase::kDonors:
            return read_donor(port);
        case Phase::kWrite:
            return write(port);
        case Phase::kEnd:
            break;
    }
    return Step::kDone;
}

void Scrub::begin_window(std::uint64_t first) {
    window_ = survey_window(geometry_, first);
    anything_.assign((window_.blocks + nvme::kSurveyGroupBlocks - 1) / nvme::kSurveyGroupBlocks, false);
    next_slot_ = 0;
    proven_.clear();
    before_window_ = counts_;
    phase_ = Phase::kSurvey;
}

Scrub::Step Scrub::survey(CopyPort& port) {
    std::vector<nvme::SurveyExtent> extents(nvme::survey_extents(window_.blocks));
    nvme::Epoch epoch = 0;
    const Status status =
        port.copy_survey(slots_[next_slot_], window_, nvme::SurveyKind::kBlocks, extents, epoch);
    if (!ok(status) && is_for_now(status)) return Step::kWaits;
    counts_.bytes += extents.size() * sizeof(nvme::SurveyExtent);
    for (std::size_t group = 0; group < anything_.size(); ++group) {
        const nvme::SurveyExtent& extent = extents[group / 32];
        const bool may_differ = (extent.groups >> group % 32 & 1u) != 0;
        // Older firmware cannot be asked: every range is read.
        if (!ok(status) || may_differ || extent.present[group % 32] != 0) anything_[group] = true;
    }
    if (++next_slot_ == slots_.size()) {
        find_ranges();
        phase_ = Phase::kNext;
    }
    return Step::kWorked;
}

void Scrub::find_ranges() {
    const std::uint32_t step = std::min(kRangeBlocks, 1u << geometry_.chunk_shift);
    for (std::uint32_t done = 0; done < window_.blocks; done += step) {
        const CopyRange range{geometry_.volume, window_.first + done, std::min(step, window_.blocks - done)};
        bool any = false;
        for (std::uint32_t block = done; block < done + range.blocks; ++block)
            any = any || anything_[block / nvme::kSurveyGroupBlocks];
        if (any) ranges_.push_back(range);
    }
}

/// False: the window has no more.
bool Scrub::take_range() {
    while (!ranges_.empty()) {
        const CopyRange range = ranges_.front();
        ranges_.pop_front();
        if (slots_of(range.first).size() < 2) continue;
        missing_.clear();
        looks_ = 0;
        begin_range(range);
        return true;
    }
    return take_later();
}

bool Scrub::take_later() {
    if (later_.empty()) return false;
    --round_left_;
    Later again = std::move(later_.front());
    later_.pop_front();
    missing_ = std::move(again.missing);
    looks_ = again.looks;
    begin_range(again.range);
    return true;
}

void Scrub::begin_range(const CopyRange& range) {
    range_ = range;
    replicas_.clear();
    for (const std::uint32_t slot : slots_of(range.first)) replicas_.push_back({slot});
    next_replica_ = 0;
    phase_ = Phase::kRead;
}

Scrub::Step Scrub::read(CopyPort& port) {
    Replica& replica = replicas_[next_replica_];
    data_.assign(nvme::copy_bytes(range_.blocks), std::byte{0});
    nvme::Epoch epoch = 0;
    const Status status = port.copy_read(replica.slot, range_, {}, data_, epoch);
    if (is_for_now(status)) return Step::kWaits;
    if (!ok(status)) {
        counts_.refused += range_.blocks;
        phase_ = Phase::kNext;
        return Step::kWorked;
    }
    counts_.bytes += data_.size();
    replica.records.resize(range_.blocks);
    std::memcpy(replica.records.data(), data_.data(), range_.blocks * sizeof(CopyRecord));
    return ++next_replica_ == replicas_.size() ? end_look() : Step::kWorked;
}

/// All replicas of the range were read.
Scrub::Step Scrub::end_look() {
    look_again_ = false;
    open_questions_ = 0;
    for (std::uint32_t i = 0; i < range_.blocks; ++i) judge_block(i);
    ++looks_;
    if (look_again_ && looks_ < kLooks) {
        later_.push_back({range_, looks_, std::move(missing_)});
        missing_.clear();
        phase_ = Phase::kNext;
        return Step::kWorked;
    }
    counts_.unresolved += open_questions_;
    counts_.blocks += range_.blocks;
    for (std::uint32_t i = 0; i < range_.blocks && mutation_ != ScrubMutation::kNoMend; ++i) note_bad(i);
    phase_ = Phase::kNextMend;
    return Step::kWorked;
}

void Scrub::judge_block(std::uint32_t i) {
    const nvme::BlockAddress block = range_.first + i;
    bool differs = false, proven = false;
    ScrubDifference found{block, 0, 0};
    for (const Replica& x : replicas_)
        for (const Replica& y : replicas_) {
            const CopyRecord &newer = x.records[i], &older = y.records[i];
            if (proven || is_bad(newer) || is_bad(older) || read_alike(newer, older)) continue;
            differs = true;
            if (!is_proven(newer, older, block)) continue;
            proven = true;
            found.newer_slot = x.slot;
            found.older_slot = y.slot;
        }
    if (!differs) missing_.erase(block);
    if (differs && !proven) {
        look_again_ = true;
        ++open_questions_;
    }
    if (!proven) return;
    // A range is looked at several times for other blocks' sake.
    if (!proven_.insert(block).second) return;
    ++counts_.different;
    if (differences_.size() < kDifferencesMax) differences_.push_back(found);
}

/// Whether the replica with `older` lacks what it must have. Both can be read, and do not read alike.
bool Scrub::is_proven(const CopyRecord& newer, const CopyRecord& older, nvme::BlockAddress block) {
    if (closed_) return order_of(newer) >= order_of(older) || older.kind == CopyKind::kAbsent;
    if (older.kind != CopyKind::kAbsent && newer.kind != CopyKind::kAbsent) {
        if (order_of(newer) < order_of(older)) return false;  // the other way round
        const std::pair order{newer.epoch, newer.sequence};
        return order <= floor_of(older) || mutation_ == ScrubMutation::kFloorIgnored;
    }
    if (newer.kind == CopyKind::kAbsent) return false;  // judged with the replicas exchanged
    if (mutation_ == ScrubMutation::kTrustAbsence) return true;
    // What has just been written is not missed yet.
    if (std::pair{newer.epoch, newer.sequence} > floor_of(older)) {
        missing_.erase(block);
        return false;
    }
    const auto first = missing_.try_emplace(block, Missing{newer, older}).first;
    if (order_of(first->second.version) != order_of(newer)) {
        first->second = {newer, older};
        return false;
    }
    const auto then = floor_of(first->second.absent);
    return floor_of(newer) > then || (floor_of(newer) == then && then.second == nvme::kClosedFloor);
}

/// Replicas of this block that are to be put again.
void Scrub::note_bad(std::uint32_t i) {
    const auto bad = [i](const Replica& r) { return is_bad(r.records[i]); };
    if (std::ranges::all_of(replicas_, bad)) {
        // A doubtful block is read in its older version (docs/array.md, rule 18).
        const bool doubtful =
            std::ranges::any_of(replicas_, [i](const Replica& r) { return r.records[i].in_doubt != 0; });
        ++(doubtful ? counts_.unresolved : counts_.unreadable);
        return;
    }
    for (const Replica& r : replicas_) {
        if (!bad(r)) continue;
        if (r.records[i].in_doubt != 0 && doubtful_mends_ >= kDoubtfulMax)
            ++counts_.refused;
        else
            bad_.push_back({r.slot, range_.first + i});
    }
}

Scrub::Step Scrub::open(CopyPort& port) {
    const Bad& bad = bad_.front();
    phase_ = Phase::kOpen;
    const Status status = port.copy_open(bad.slot, {geometry_.volume, bad.block, 1}, source_.window);
    if (!ok(status)) return end_mend(status);
    donors_ = slots_of(bad.block);
    std::erase(donors_, bad.slot);
    next_donor_ = 0;
    any_donor_ = false;
    source_.epoch = ~nvme::Epoch{0};
    phase_ = Phase::kDonors;
    return Step::kWorked;
}

/// The newest version that another replica can read.
Scrub::Step Scrub::read_donor(CopyPort& port) {
    data_.assign(nvme::copy_bytes(1), std::byte{0});
    nvme::Epoch epoch = 0;
    const Status status =
        port.copy_read(donors_[next_donor_], {geometry_.volume, bad_.front().block, 1}, {}, data_, epoch);
    if (!ok(status)) return end_mend(status);
    counts_.bytes += data_.size();
    source_.epoch = std::min(source_.epoch, epoch);
    CopyRecord now{}, before{};
    std::memcpy(&now, data_.data(), sizeof(now));
    if (any_donor_) std::memcpy(&before, best_.data(), sizeof(before));
    // It is not known which donor is right.
    if (any_donor_ && !is_bad(now) && !read_alike(now, before)) return leave_bad();
    if (!is_bad(now) && (!any_donor_ || order_of(before) < order_of(now))) {
        best_ = data_;
        any_donor_ = true;
    }
    if (++next_donor_ < donors_.size()) return Step::kWorked;
    if (!any_donor_) return end_mend(Status::kUnrecoveredReadError);
    phase_ = Phase::kWrite;
    return Step::kWorked;
}

Scrub::Step Scrub::write(CopyPort& port) {
    const Bad& bad = bad_.front();
    return end_mend(port.copy_write(bad.slot, {geometry_.volume, bad.block, 1}, source_, best_));
}

/// `status`: how the attempt to put the block again has ended.
Scrub::Step Scrub::end_mend(Status status) {
    phase_ = Phase::kNextMend;  // the same block begins again: its window may be closed by then
    if (is_for_now(status)) return Step::kWaits;
    // Busy: a trim may be unresolved. Command Sequence Error: the window was closed.
    const bool passes = status == Status::kBusy || status == Status::kCommandSequenceError;
    if (passes && ++mend_tries_ < kLooks) return Step::kWaits;
    doubtful_mends_ = status == Status::kDoubtful ? doubtful_mends_ + 1 : 0;
    if (!ok(status)) return leave_bad();
    ++counts_.mended;
    bad_.pop_front();
    mend_tries_ = 0;
    return Step::kWorked;
}

/// The replica of this block stays as it is until the next pass.
Scrub::Step Scrub::leave_bad() {
    ++counts_.refused;
    bad_.pop_front();
    mend_tries_ = 0;
    phase_ = Phase::kNextMend;
    return Step::kWorked;
}

}  // namespace gnstor::daemon
