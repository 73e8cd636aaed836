// manager_read_only.cpp: an array whose records can be read and not written: a full disk, a read-only file
// system. ARRAY.md, rules 1, 2, 3.
//
// A daemon that starts raises the term in its store. One that cannot store goes on under the term that is
// stored, which was the last daemon's. That is safe because
//   * the store is locked by one process at a time: the daemon of that term has ended, and while this one
//   lives there is no other. What is still on its way of the old one was stored before it was sent: equal
//   revision and equal version, equal bytes, and older ones are refused by the SSDs;
//   * nothing new is given out under it: no epoch, revision, map version, VID or client id. The map of the
//   store is sent as it is, which renews grants; a record of the store is sent to an SSD that lacks it, as
//   the old daemon would have. No SSD is taken out, so nobody relies on the end of a grant;
//   * a term that was stored and never sent is as good: nobody else ever had it.
// An SSD that has seen a newer term, or holds a newer record, shows that the store is an old one: then
// nothing is served, because an older map or permission would be. Reading goes on, and so does writing under
// leases that are open: neither needs a record.
#include "daemon/decisions/manager_takeover.hpp"

namespace gnstor::daemon {

std::string Manager::read_only() const {
    return !read_only_.empty() ? read_only_ : save_trouble_;
}

Result<void> Manager::check_not_behind(const Takeover& t, const Error& cause) const {
    const auto behind = [&](const std::string& serial, const std::string& what) {
        return error(Errc::kState,
                     "SSD {} knows {} than the records, which cannot be brought up to date: {}; make that "
                     "possible, or bring back the newest records",
                     serial, what, cause.message);
    };
    for (std::size_t d = 0; d < drives_.size(); ++d) {
        if (!drives_[d].older.empty()) continue;
        const std::string& serial = drives_[d].identity.serial;
        if (t.terms[d] > records_.term) return behind(serial, "a newer term");
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
    if (!of_the_medium || unsure_ || records_.term == 0 || records_.map.version == 0) return cause;
    GN_TRY(check_not_behind(t, cause));
    read_only_ = fmt::format(
        "the array is read-only: {}; volumes can be read, and until changes can be stored again, which is "
        "tried "
        "every second, nothing can be registered, created, opened for writing, shared or deleted",
        cause.message);
    read_only_code_ = cause.code;
    save_trouble_.clear();
    // Other slots may have been planned than those of the map that is stored.
    (void)take_slots();
    reconcile(t, now_ms);
    granted_ms_ = now_ms;
    return {};
}

bool Manager::try_store(std::uint64_t now_ms) {
    if (read_only_.empty() && save_trouble_.empty()) return true;
    Change change;  // of a daemon that has stored its term: nothing new, but written
    change.term = records_.term + (read_only_.empty() ? 0 : 1);
    const Result<void> saved = store_.save(change);
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

/// What a start does once its term is stored. The SSDs held nothing newer when this daemon started; where
/// they do now, another one has been at work.
void Manager::become_writable(std::uint64_t now_ms) {
    read_only_.clear();
    Takeover t;
    for (Drive& drive : drives_) {
        Result<SsdVolumes> listed = drive.port->volume_list(records_.term);
        if (listed.ok() && drive.older.empty()) check_age(drive, listed->term);
        t.terms.push_back(listed.ok() ? listed->term : 0);
        drive.listed = listed.ok();
        if (!listed.ok()) drive.trouble = listed.error().message;
        t.seen.push_back(listed.ok() ? std::move(listed->records) : std::vector<nvme::VolumeRecord>());
    }
    if (const Result<void> ours = check_not_behind(t, error(Errc::kState, "another gnstord has changed it"));
        !ours.ok()) {
        superseded_ = fmt::format("{}; restart this gnstord (term {})", ours.error().message, records_.term);
        return;
    }
    reconcile(t, now_ms);
    granted_ms_ = now_ms;
}

}  // namespace gnstor::daemon
