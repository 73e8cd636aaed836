// manager_grants.cpp: grants (docs/array.md, rule 3), and what the passing of time brings: tick() renews
// grants, puts pending changes in force, ends leases and raises the term. Model of the first: tests/model/grants.pml.
//
// Of several daemons with records in etcd one leads. Why no SSD holds a grant of an earlier leader after the bound that a
// later one counts for it:
//   * a leader asks an SSD, from which on its grant counts, then makes sure that it still leads, and only then grants
//     (set_map()). So the grant counts from before the later leader's election;
//   * or, if etcd does not say who leads, the leader asks an SSD, after that every other SSD of the map, and only then
//     grants (keep_grants()). Each of them refuses if it has seen a later leader's term. So the grant counts from before
//     the first SSD took that term, and until then the later leader takes every grant for open (observe_time()).
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
    if (!store_.exclusive() && !term_taken_) return;
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

/// False: another daemon leads, or may; nothing is changed meanwhile.
bool Manager::leads() {
    const Result<void> leading = store_.check_leads();
    if (leading.ok()) return true;
    if (!note_led_elsewhere(leading)) save_trouble_ = leading.error().message;
    return false;
}

/// Whether every SSD of the map has all that a grant presupposes.
bool Manager::may_keep_grants() const {
    if (unsure_ || !read_only_.empty() || !superseded_.empty() || !map_in_force_ || !hosts_in_force())
        return false;
    return missing_slots().empty() && std::ranges::all_of(drives_, [](const Drive& drive) {
               const bool whole = drive.admitted && drive.older.empty() && drive.behind.empty();
               return drive.slot == kNoSlot ||
                      (whole && !drive.port->is_new() && !drive.port->is_disconnected());
           });
}

/// Renews all grants, or none any more from where an SSD does not answer or has seen a newer term: while it is not known
/// who leads, so that SSDs do not stop serving reads. When an SSD is granted, every other one was asked after it.
void Manager::keep_grants(std::uint64_t now_ms) {
    if (!grants_due(now_ms) || !may_keep_grants()) return;
    std::vector<Drive*> all;
    for (Drive& drive : drives_)
        if (drive.slot != kNoSlot) all.push_back(&drive);
    const auto ask = [this](Drive& drive) {
        Result<std::uint32_t> nonce = drive.port->grant_ask(records_.term);
        if (!nonce.ok()) note_superseded(nonce.error());
        return nonce;
    };
    std::vector<std::uint32_t> nonces;
    for (Drive* drive : all) {
        const Result<std::uint32_t> nonce = ask(*drive);
        if (!nonce.ok()) return;
        nonces.push_back(*nonce);
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
        // Those behind it were asked above, after it; those before it, below.
        if (!give_map(*all[i], map_for(*all[i]), nonces[i]).ok() || !ask(*all[i]).ok()) return;
    }
    granted_ms_ = now_ms;
}

TickReport Manager::tick(std::uint64_t now_ms) {
    TickReport report;
    observe_time(now_ms);
    if (!superseded_.empty()) return report;
    if (!leads()) {
        keep_grants(now_ms);
        return report;
    }
    if (!sure().ok()) return report;
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
