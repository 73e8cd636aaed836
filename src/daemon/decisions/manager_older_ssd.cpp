// manager_older_ssd.cpp: detects SSDs whose store is an older copy of itself, and records that are an older
// copy.
//
// An SSD stores the term of a MAP SET before it answers. After the answer, gnstord records that term for the
// SSD, with the first change of a volume under this term and so before anything is written under it. So the
// recorded term is never above what the SSD has stored, and reading records nothing. The term grows at every
// start of gnstord, and soon after an SSD reconnects. An SSD that has seen a lower term than is recorded for
// it lacks what was written since: it is sent nothing, gets no grant and so answers no reads, until a store
// as new as the records is back. A copy that was taken under the last recorded term cannot be told from the
// SSD itself.
#include "daemon/decisions/manager_takeover.hpp"

#include <gnstor/nvme/fencing.hpp>

#include <algorithm>
#include <map>

namespace gnstor::daemon {
namespace {

/// Interval between raises of the term for reconnected SSDs: a flapping link must not use up the terms that
/// an absent SSD can follow (nvme/fencing.hpp).
constexpr std::uint64_t kRaiseAgainMs = 60'000;

}  // namespace

std::uint32_t Manager::slot_of(const SsdUuid& uuid) const {
    for (std::uint32_t s = 0; s < records_.map.slot_count; ++s)
        if (records_.map.slots[s].state != placement::SlotState::kEmpty &&
            std::equal(uuid.begin(), uuid.end(), records_.map.slots[s].ssd_uuid))
            return s;
    return kNoSlot;
}

/// Whether its volumes are those of the array: not those of an SSD that was replaced, is out, or is of another array.
/// Without a map every SSD tells.
bool Manager::tells_volumes(const SsdUuid& uuid) const {
    return records_.map.version == 0 || (in_map(uuid) && !is_out(uuid));
}

/// Whether the map says that it has all volumes and their blocks.
bool Manager::holds_data(const SsdUuid& uuid) const {
    const std::uint32_t slot = slot_of(uuid);
    return slot != kNoSlot && records_.map.slots[slot].state == placement::SlotState::kIn;
}

void Manager::check_age(Drive& drive, std::uint64_t term) {
    const auto stored = records_.ssd_terms.find(drive.identity.uuid);
    if (stored != records_.ssd_terms.end() && term < stored->second)
        set_older(drive, fmt::format("the newest term that it has seen is {}, but it had stored term {}",
                                     term, stored->second));
}

void Manager::set_older(Drive& drive, const std::string& why) {
    drive.older = fmt::format(
        "the store of SSD {} is an older copy of itself ({}): it lacks what was written since and is not "
        "read; stop the array and put its newest store back. If that is lost, put an empty one in its place, "
        "and "
        "run 'gnstor ssd replace'",
        drive.identity.serial, why);
    drive.trouble = drive.older;
    drive.older_slot = drive.slot != kNoSlot ? drive.slot : drive.out_slot;
    drive.slot = drive.out_slot = kNoSlot;
    report_.warnings.push_back(drive.older);
}

const Manager::Drive* Manager::older_in(std::uint32_t slot) const {
    for (const Drive& drive : drives_)
        if (!drive.older.empty() && drive.older_slot == slot) return &drive;
    return nullptr;
}

Error Manager::missing_error(std::uint32_t slot) const {
    if (const Drive* older = older_in(slot)) return error(Errc::kIo, "{}", older->older);
    return error(Errc::kIo, "the SSD of slot {} is missing; bring it back and start the array again", slot);
}

/// Finds SSDs of the map that hold an earlier life of a volume: a VID is reused only after every SSD that is not out
/// has purged it, so their store is older.
void Manager::find_older(const Takeover& t) {
    std::map<nvme::VolumeId, nvme::Epoch> births;
    const auto born = [&](const nvme::VolumeRecord& record) {
        nvme::Epoch& birth = births[record.geometry.volume];
        birth = std::max(birth, record.birth_epoch);
    };
    for (const auto& [id, record] : records_.volumes) born(record);
    const auto counts = [&](const Drive& drive) {
        return drive.listed && ((t.store_empty && !t.map_adopted) || in_map(drive.identity.uuid));
    };
    for (std::size_t d = 0; d < drives_.size(); ++d)
        if (counts(drives_[d]))
            for (const nvme::VolumeRecord& record : t.seen[d]) born(record);
    for (std::size_t d = 0; d < drives_.size(); ++d) {
        Drive& drive = drives_[d];
        if (!counts(drive)) continue;
        check_age(drive, t.terms[d]);
        if (is_out(drive.identity.uuid)) continue;
        for (const nvme::VolumeRecord& record : t.seen[d])
            if (drive.older.empty() && record.epoch < births.at(record.geometry.volume))
                set_older(drive, fmt::format("it holds volume '{}', which was deleted", record.name));
    }
}

/// Removes deleted volumes from records that are older than the SSDs. A volume in force was on every SSD, so
/// one that no SSD has was deleted; where an SSD still has a deleted volume, it is marked as deleting.
void Manager::drop_deleted(Takeover& t) {
    if (t.store_empty || t.newest_term <= records_.term) return;
    std::vector<nvme::VolumeId> gone;
    for (const auto& [id, record] : records_.volumes) {
        bool lacking = false;
        bool held = records_.creating.contains(id);
        for (std::size_t d = 0; d < drives_.size(); ++d) {
            const Drive& drive = drives_[d];
            if (!drive.listed || !drive.older.empty() || !holds_data(drive.identity.uuid)) continue;
            (t.has(d, id) ? held : lacking) = true;
        }
        if (lacking && !held) gone.push_back(id);
    }
    for (const nvme::VolumeId id : gone)
        forget_deleted(t, id,
                       fmt::format("the records are an older copy (term {}; the SSDs have seen {}): volume "
                                   "'{}' was deleted since, and is removed from the records",
                                   records_.term, t.newest_term, records_.volumes.at(id).name));
}

/// Removes a volume that every SSD has purged from records that are an older copy.
void Manager::forget_deleted(Takeover& t, nvme::VolumeId id, std::string why) {
    report_.warnings.push_back(std::move(why));
    const nvme::Epoch epoch = records_.volumes.at(id).epoch;
    t.change.retire_volumes.emplace_back(id, epoch);
    t.touched.erase(id);
    records_.retired[id] = epoch;
    records_.creating.erase(id);
    records_.volumes.erase(id);
}

/// A name is reused only after every SSD has purged the previous volume of that name. So if the records hold
/// a volume that no SSD has, under the name of one that an SSD has, the records are an older copy, even if
/// their term does not show it.
Result<void> Manager::drop_renamed(Takeover& t) {
    const auto held_by_any = [&](nvme::VolumeId id) {
        for (std::size_t d = 0; d < drives_.size(); ++d)
            if (drives_[d].older.empty() && tells_volumes(drives_[d].identity.uuid) && t.has(d, id))
                return true;
        return false;
    };
    std::map<std::string, nvme::VolumeId> names;
    std::vector<nvme::VolumeId> gone;
    for (const auto& [id, record] : records_.volumes) {
        const auto [named, first] = names.try_emplace(record.name, id);
        if (first) continue;
        const bool held[2] = {held_by_any(named->second), held_by_any(id)};
        if (held[0] == held[1])
            return error(
                Errc::kCorrupt,
                "two volumes are named '{}' (VIDs {} and {}): an SSD, or the records, are of another "
                "array; remove what does not belong, or move the records away to have them rebuilt "
                "from the SSDs",
                record.name, named->second, id);
        gone.push_back(held[0] ? id : named->second);
        named->second = held[0] ? named->second : id;
    }
    for (const nvme::VolumeId id : gone)
        forget_deleted(
            t, id,
            fmt::format("the records are an older copy: volume '{}' (VID {}) was deleted since, another "
                        "volume has its name, and the deleted one is removed from the records",
                        records_.volumes.at(id).name, id));
    return {};
}

/// If there is no volume, an older copy lacks nothing.
void Manager::forgive_older() {
    for (Drive& drive : drives_) {
        if (drive.older.empty()) continue;
        std::erase(report_.warnings, drive.older);
        drive.older.clear();
        drive.trouble.clear();
    }
}

/// Checks an SSD's store before anything is sent to it, if the SSD was silent at the start or its port has
/// reconnected. Later commands raise its term, by which an older copy is recognized.
Result<void> Manager::admit(Drive& drive) {
    if (drive.older.empty() && (!drive.admitted || drive.port->is_new())) {
        GN_ASSIGN(const SsdVolumes listed, drive.port->volume_list(records_.term));
        raise_due_ = raise_due_ || drive.admitted;
        drive.admitted = true;
        drive.knows_out = listed.knows_out;
        drive.taken = 0;  // it may have restarted, and lost the terms that it does not store
        drive.hosts.reset();
        // What was copied to it may be gone with another store.
        if (drive.slot != kNoSlot && drive.slot == rebuilding_slot()) rebuild_.reset();
        check_age(drive, listed.term);
        if (in_map(drive.identity.uuid) && listed.newest_map.version > records_.map.version)
            superseded_ = fmt::format(
                "SSD {} has map {}, and the records of this gnstord (term {}), which are an older copy, have "
                "map {}; restart it",
                drive.identity.serial, listed.newest_map.version, records_.term, records_.map.version);
    }
    if (!superseded_.empty()) return error(Errc::kState, "{}", superseded_);
    if (!drive.older.empty()) return error(Errc::kIo, "{}", drive.older);
    return {};
}

/// Whether a client may have written under this term: before that, an older copy lacks nothing of it.
bool Manager::may_be_written() const {
    return written_term_ == records_.term ||
           std::any_of(records_.volumes.begin(), records_.volumes.end(),
                       [](const auto& volume) { return volume.second.writer != 0; });
}

void Manager::put_taken(Change& change) const {
    for (const Drive& drive : drives_) {
        if (drive.slot == kNoSlot || drive.taken != records_.term) continue;
        const auto noted = records_.ssd_terms.find(drive.identity.uuid);
        if (noted == records_.ssd_terms.end() || noted->second != drive.taken)
            change.ssd_terms.emplace_back(drive.identity.uuid, drive.taken);
    }
}

/// Records the terms that SSDs have stored, and that the map has been in force, so that a later gnstord need
/// not ask for it again. If this cannot be stored now, it is retried after the next grants.
void Manager::note_taken() {
    if (!read_only_.empty() || unsure_) return;
    Change change;
    if (map_in_force_ && missing_slots().empty() && records_.told != records_.map.version)
        change.told = records_.map.version;
    if (may_be_written()) put_taken(change);
    if (change.told || !change.ssd_terms.empty()) (void)commit(change).ok();
}

/// At most once a minute, and not beyond the last term from which records can be rebuilt.
bool Manager::raise_is_due() const {
    return raise_due_ && now_ms_ - raised_ms_ >= kRaiseAgainMs && records_.term < nvme::kTermOfDriveMost;
}

/// A copy of the SSD may have been taken while it was away; raising the term makes that copy older than the
/// SSD.
void Manager::raise_term() {
    Change change;
    change.term = records_.term + 1;
    if (!commit(change).ok()) return;
    raise_due_ = false;
    raised_ms_ = now_ms_;
    map_in_force_ = false;  // must be granted again, under the new term
}

}  // namespace gnstor::daemon
