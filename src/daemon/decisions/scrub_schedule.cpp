#include "daemon/decisions/scrub_schedule.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace gnstor::daemon {

void ScrubSchedule::start(const Volumes& volumes, std::uint64_t now_ms) {
    if (running_) return;
    before_ = std::exchange(found_, {});
    left_.clear();
    for (const auto& [id, record] : volumes) {
        if (record.geometry.replicas < 2 || (record.flags & nvme::kVolumeDeleting) != 0) continue;
        found_[id].birth_epoch = record.birth_epoch;
        left_.insert(id);
    }
    running_ = true;
    began_ms_ = now_ms_ = now_ms;
}

void ScrubSchedule::tick(const Volumes& volumes, std::uint64_t now_ms) {
    const std::uint64_t passed = ticked_ && now_ms > now_ms_ ? std::min(now_ms - now_ms_, kBurstMs) : 0;
    if (!ticked_) next_ms_ = now_ms + std::min(options_.every_ms, kFirstPassMs);
    ticked_ = true;
    now_ms_ = std::max(now_ms_, now_ms);
    may_read_ = std::clamp<std::uint64_t>(options_.bytes_per_s, 1'000, 1ull << 50) * passed / 1000;
    if (!running_ && options_.every_ms != 0 && now_ms_ >= next_ms_) start(volumes, now_ms_);
}

/// Sees to it that scrub_ is of a volume that may be scrubbed, as it is now. False: there is none.
bool ScrubSchedule::choose(const placement::ArrayMap& map, const Volumes& volumes,
                           const std::function<bool(const nvme::VolumeRecord&)>& may) {
    const auto lives = [&](nvme::VolumeId id) {
        const auto record = volumes.find(id);
        return record != volumes.end() && record->second.birth_epoch == found_.at(id).birth_epoch;
    };
    if (scrub_) {
        const nvme::VolumeId id = scrub_->volume();
        const bool same = lives(id) && scrub_->version() == map.version &&
                          scrub_->revision() == volumes.at(id).revision && may(volumes.at(id));
        if (same) return true;
        put_aside();
    }
    for (auto id = left_.begin(); id != left_.end();) {
        if (!lives(*id)) {
            found_.erase(*id);
            id = left_.erase(id);
            continue;
        }
        if (may(volumes.at(*id))) {
            scrub_.emplace(map, volumes.at(*id), found_.at(*id).position);
            return true;
        }
        ++id;
    }
    return false;
}

/// Takes what the present volume's scrub has found so far.
void ScrubSchedule::put_aside() {
    const auto of = found_.find(scrub_->volume());
    if (of != found_.end()) {
        Progress& p = of->second;
        p.position = std::max(p.position, scrub_->position());
        // What lies behind the position is looked at again.
        for (const ScrubDifference& d : scrub_->differences())
            if (!p.first && d.block < p.position) p.first = d;
        p.counts.add(scrub_->settled_counts());
    }
    total_.add(scrub_->counts());
    scrub_.reset();
}

void ScrubSchedule::end_pass() {
    running_ = false;
    ++passes_;
    ended_ms_ = now_ms_;
    next_ms_ = now_ms_ + options_.every_ms;
    before_.clear();
}

bool ScrubSchedule::work(std::uint32_t commands, const placement::ArrayMap& map, const Volumes& volumes,
                         const std::function<bool(const nvme::VolumeRecord&)>& may, CopyPort& port) {
    if (!running_) return false;
    for (std::uint32_t i = 0; i < commands && may_read_ != 0; ++i) {
        if (!choose(map, volumes, may)) {
            if (left_.empty()) end_pass();
            return false;
        }
        const std::uint64_t before = scrub_->counts().bytes;
        const Scrub::Step step = scrub_->step(port);
        may_read_ -= std::min(may_read_, scrub_->counts().bytes - before);
        if (step == Scrub::Step::kWaits) return false;
        if (step != Scrub::Step::kDone) continue;
        left_.erase(scrub_->volume());
        put_aside();
    }
    return may_read_ != 0;
}

ScrubPassInfo ScrubSchedule::pass_info(const Volumes& volumes, std::uint64_t now_ms) const {
    ScrubPassInfo pass;
    ScrubCounts counts;
    for (const auto& [id, progress] : found_) {
        const auto record = volumes.find(id);
        if (record == volumes.end()) continue;
        const std::uint64_t capacity = record->second.geometry.capacity_blocks;
        const bool present = scrub_ && scrub_->volume() == id;
        const std::uint64_t position = present ? scrub_->position() : progress.position;
        pass.blocks_total += capacity;
        pass.blocks_done += std::min(capacity, std::max(position, progress.position));
        counts.add(progress.counts);
        if (present) counts.add(scrub_->counts());
    }
    pass.compared = counts.blocks;
    pass.mended = counts.mended;
    pass.refused = counts.refused;
    pass.unreadable = counts.unreadable;
    pass.different = counts.different;
    pass.unresolved = counts.unresolved;
    const std::uint64_t end = running_ ? std::max(now_ms, began_ms_) : ended_ms_;
    pass.seconds = (end - began_ms_) / 1000;
    return pass;
}

void ScrubSchedule::add_findings(const Found& found, const Volumes& volumes,
                                 std::map<nvme::VolumeId, ScrubFindings>& to) {
    for (const auto& [id, progress] : found) {
        const auto record = volumes.find(id);
        const bool lives = record != volumes.end() && record->second.birth_epoch == progress.birth_epoch;
        if (!lives || progress.counts.unreadable + progress.counts.different == 0) continue;
        ScrubFindings& f = to[id];
        f.volume = record->second.name;
        f.unreadable = std::max(f.unreadable, progress.counts.unreadable);
        f.different = std::max(f.different, progress.counts.different);
        if (progress.first)
            f.first = fmt::format("block {} on slots {} and {}", progress.first->block,
                                  progress.first->newer_slot, progress.first->older_slot);
    }
}

ScrubInfo ScrubSchedule::info(const Volumes& volumes, std::uint64_t now_ms) const {
    ScrubInfo info;
    info.running = running_;
    info.pass = pass_info(volumes, now_ms);
    info.passes = passes_;
    if (passes_ != 0 && now_ms > ended_ms_) info.ended_seconds_ago = (now_ms - ended_ms_) / 1000;
    if (!running_ && options_.every_ms != 0) {
        const std::uint64_t next_ms = ticked_ ? next_ms_ : now_ms + std::min(options_.every_ms, kFirstPassMs);
        info.next_in_seconds = next_ms > now_ms ? (next_ms - now_ms) / 1000 : 0;
    }
    info.blocks_compared = total_.blocks + (scrub_ ? scrub_->counts().blocks : 0);
    info.blocks_mended = total_.mended + (scrub_ ? scrub_->counts().mended : 0);
    std::map<nvme::VolumeId, ScrubFindings> findings;
    add_findings(before_, volumes, findings);
    add_findings(found_, volumes, findings);
    for (auto& [id, finding] : findings) info.findings.push_back(std::move(finding));
    return info;
}

}  // namespace gnstor::daemon
