// manager_grants.cpp: grants (docs/array.md, rule 3), and what the passing of time brings: tick() renews
// grants, puts pending changes in force, ends leases and raises the term. Model of the first: tests/model/grants.pml.
#include "daemon/decisions/manager.hpp"

#include <algorithm>
#include <vector>

namespace gnstor::daemon {
namespace {

/// Bounds on how far a drive's clock and this one drift apart during a grant, and on how late a drive's clock
/// reading may be: crystals, and a clock being slewed, differ by less than 0.1 %.
constexpr std::uint64_t kDriftPercent = 1;
constexpr std::uint64_t kClockGrainMs = 10;

}  // namespace

void Manager::observe_time(std::uint64_t now_ms) {
    now_ms_ = std::max(now_ms_, now_ms);
    const std::uint64_t grant_ms = options_.grant_ms;
    const std::uint64_t ends_ms = now_ms_ + grant_ms + grant_ms * kDriftPercent / 100 + kClockGrainMs;
    const auto close = [&](GrantBound& bound) {
        if (bound.open) bound = {false, ends_ms};
    };
    close(before_start_);
    for (Drive& drive : drives_) close(drive.grant);
}

bool Manager::may_hold_grant(const GrantBound& bound) const {
    return options_.grant_ms == 0 || bound.open || now_ms_ < bound.ends_ms;
}

bool Manager::grants_due(std::uint64_t now_ms) const {
    return options_.grant_ms != 0 && now_ms - granted_ms_ >= options_.grant_ms / 3;
}

TickReport Manager::tick(std::uint64_t now_ms) {
    TickReport report;
    observe_time(now_ms);
    if (!superseded_.empty() || !sure().ok()) return report;
    scrub_.tick(records_.volumes, now_ms);
    const bool stores = try_store(now_ms);
    const bool settles = !map_in_force_;
    const bool raises = stores && raise_is_due();
    // An SSD whose process was started again has no map before it is asked.
    const bool disconnected = std::ranges::any_of(
        drives_, [](const Drive& drive) { return drive.slot != kNoSlot && drive.port->is_disconnected(); });
    const bool asks = settles || raises || disconnected || grants_due(now_ms);
    if (asks) {
        bool in_force = activate_map().ok();
        // Only after every drive was asked: one that has seen another daemon's term refuses.
        if (raises && superseded_.empty()) {
            raise_term();
            in_force = activate_map().ok();
        }
        if (in_force) {
            granted_ms_ = now_ms;
            report.settled += settles ? 1 : 0;
        }
    }
    if (stores && superseded_.empty()) {
        const bool taken_out = take_out_silent();
        if (asks && !taken_out && map_in_force_) {
            take_back_answering();
            use_spares();
        }
    }
    if (!superseded_.empty()) return report;
    if (hosts_in_force()) {
        rotating_.clear();
    } else {
        settle_hosts().ok() ? ++report.settled : ++report.pending;
        if (!superseded_.empty()) return report;
    }
    std::vector<nvme::VolumeId> ids;
    for (const auto& [id, record] : records_.volumes) ids.push_back(id);
    for (const nvme::VolumeId id : ids) {
        const auto found = records_.volumes.find(id);
        if (found == records_.volumes.end()) continue;
        const nvme::VolumeRecord& record = found->second;
        const bool ended = now_ms >= live_[id].lease_end_ms || is_removed(record.writer);
        if (!stores && (record.flags & nvme::kVolumeDeleting) != 0) continue;
        if ((record.flags & nvme::kVolumeDeleting) != 0) {
            finish_delete(id).ok() ? ++report.settled : ++report.pending;
        } else if (stores && record.writer != 0 && ended) {
            ++report.expired;
            if (!close_epoch(id, ~0ull).ok()) ++report.pending;
        } else if (!live_[id].in_force) {
            Result<void> active = activate(id);
            active.ok() ? ++report.settled : ++report.pending;
            if (!active.ok()) undo_creation(id, active.error().code);
        }
        if (!superseded_.empty()) break;
    }
    return report;
}

}  // namespace gnstor::daemon
