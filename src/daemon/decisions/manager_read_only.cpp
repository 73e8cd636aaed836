// manager_read_only.cpp: an array whose records can be read but not written: a full disk, a read-only file
// system. docs/array.md, rules 1, 2, 3.
//
// A daemon that starts raises the term in its store. One that cannot store continues under the stored term,
// which its predecessor used. That is safe because
//   * one process at a time locks the store: the predecessor has ended, and no other daemon runs while this
//     one does. Commands of the predecessor that are still in flight were stored before they were sent:
//     records of equal revision and maps of equal version have equal bytes, and SSDs refuse older ones;
//   * it issues nothing new: no epoch, revision, map version, VID or client id. It sends the stored map
//     unchanged, which renews grants, and sends a stored record to an SSD that lacks it, as the predecessor
//     would have. No SSD is taken out, so nothing relies on the end of a grant;
//   * a term that was stored but never sent is safe as well: no other daemon ever had it.
// If an SSD has seen a newer term, or holds a newer record, the store is an old one: then nothing is served,
// because its map and permissions may be outdated. Reading continues, and so does writing under open leases:
// neither needs a record.
#include "daemon/decisions/manager_takeover.hpp"

namespace gnstor::daemon {

std::string Manager::read_only() const {
    return !read_only_.empty() ? read_only_ : save_trouble_;
}

Result<void> Manager::check_not_behind(const Takeover& t, const Error& cause) const {
    const auto behind = [&](const std::string& serial, const std::string& what) {
        return error(Errc::kState,
                     "SSD {} has {} than the records, and the records cannot be updated: {}; solve this, or "
                     "bring back the newest records",
                     serial, what, cause.message);
    };
    if (t.newest_map.version > records_.map.version)
        return error(
            Errc::kState,
            "an SSD has a newer map (version {}) than the records (version {}), and the records cannot be "
            "updated: {}; solve this, or bring back the newest records",
            t.newest_map.version, records_.map.version, cause.message);
    for (std::size_t d = 0; d < drives_.size(); ++d) {
        if (!drives_[d].older.empty()) continue;
        const std::string& serial = drives_[d].identity.serial;
        if (t.terms[d] > records_.term) return behind(serial, "a newer term");
        if (!tells_volumes(drives_[d].identity.uuid)) continue;  // it may hold volumes that were deleted
        for (const nvme::VolumeRecord& seen : t.seen[d]) {
            const nvme::VolumeId id = seen.geometry.volume;
            const auto retired = records_.retired.find(id);
            const auto known = records_.volumes.find(id);
            const bool purged = retired != records_.retired.end() && seen.epoch <= retired->second;
            if (known == records_.volumes.end() ? !purged : seen.revision > known->second.revision)
                return behind(serial, fmt::format("a newer record of volume '{}'", seen.name));
        }
    }
    return {};
}

Result<void> Manager::start_read_only(Takeover& t, const Error& cause, std::uint64_t now_ms) {
    const bool of_the_medium =
        cause.code == Errc::kNoSpace || cause.code == Errc::kIo || cause.code == Errc::kPermission;
    // Another daemon may have the same records, and the same term, if the store does not exclude that.
    if (!store_.exclusive()) return cause;
    if (!of_the_medium || unsure_ || records_.term == 0 || records_.map.version == 0) return cause;
    GN_TRY(check_not_behind(t, cause));
    read_only_ = fmt::format(
        "the array is read-only: {}; volumes can be read, but no client can be registered, and no volume "
        "created, opened for writing, shared or deleted, until changes can be stored again, which gnstord "
        "tries every second",
        cause.message);
    read_only_code_ = cause.code;
    save_trouble_.clear();
    // plan_map() may have assigned other slots than the stored map has.
    (void)take_slots();
    reconcile(t, now_ms);
    granted_ms_ = now_ms;
    return {};
}

bool Manager::try_store(std::uint64_t now_ms) {
    if (read_only_.empty() && save_trouble_.empty()) return true;
    Change change;  // once the term is stored, this only tests that a save works
    change.term = records_.term + (read_only_.empty() ? 0 : 1);
    const Result<void> saved = store_.save(change);
    if (note_led_elsewhere(saved)) return false;
    if (!saved.ok()) {
        unsure_ = true;
        (void)reload().ok();
        return false;
    }
    apply(records_, change);
    save_trouble_.clear();
    if (!read_only_.empty()) become_writable(now_ms);
    return true;
}

/// Does what a start does once its term is stored. The SSDs held nothing newer when this daemon started; if
/// they do now, another daemon has changed them.
void Manager::become_writable(std::uint64_t now_ms) {
    read_only_.clear();
    Takeover t;
    for (Drive& drive : drives_) {
        Result<SsdVolumes> listed = drive.port->volume_list(records_.term);
        drive.hosts.reset();  // it may have restarted since
        if (listed.ok() && in_map(drive.identity.uuid)) t.note_map(listed->newest_map);
        if (listed.ok() && drive.older.empty()) check_age(drive, listed->term);
        t.terms.push_back(listed.ok() ? listed->term : 0);
        drive.listed = listed.ok();
        if (!listed.ok()) drive.trouble = listed.error().message;
        t.seen.push_back(listed.ok() ? std::move(listed->records) : std::vector<nvme::VolumeRecord>());
    }
    if (const Result<void> ours =
            check_not_behind(t, error(Errc::kState, "another gnstord has changed the array"));
        !ours.ok()) {
        superseded_ = fmt::format("{}; restart this gnstord (term {})", ours.error().message, records_.term);
        return;
    }
    reconcile(t, now_ms);
    granted_ms_ = now_ms;
}

}  // namespace gnstor::daemon
