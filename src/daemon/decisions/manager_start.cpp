// manager_start.cpp: takes over an array: compares the store's records with those of the drives.
// docs/array.md, rules 1, 2, 10, 15.
//
// A drive that lags is brought up to date; a record that is newer on a drive than in the store (a lost or an
// old store) is adopted; a case that cannot be decided safely is refused, with the advice what to bring back.
#include "daemon/decisions/failure_domains.hpp"
#include "daemon/decisions/manager_takeover.hpp"
#include "daemon/records/generations.hpp"

#include <gnstor/base/uuid.hpp>
#include <gnstor/nvme/fencing.hpp>

#include <algorithm>
#include <cstring>
#include <set>

namespace gnstor::daemon {
namespace {

/// A rebuild leaves this much room above every epoch it sees, because deleted volumes may have reached higher
/// ones.
constexpr nvme::Epoch kEpochLeap = 1024;

bool same_bytes(const nvme::VolumeRecord& a, const nvme::VolumeRecord& b) {
    return std::memcmp(&a, &b, sizeof(a)) == 0;
}

/// Whether two records can belong to the same life of one volume.
bool same_life(const nvme::VolumeRecord& a, const nvme::VolumeRecord& b) {
    return std::memcmp(&a.geometry, &b.geometry, sizeof(a.geometry)) == 0 && a.birth_epoch == b.birth_epoch &&
           std::memcmp(a.name, b.name, sizeof(a.name)) == 0 && a.owner == b.owner;
}

/// Whether two maps name one SSD, so that they are of one array.
bool share_an_ssd(const placement::ArrayMap& a, const placement::ArrayMap& b) {
    for (std::uint32_t i = 0; i < a.slot_count; ++i)
        for (std::uint32_t j = 0; j < b.slot_count; ++j)
            if (a.slots[i].state != placement::SlotState::kEmpty &&
                b.slots[j].state != placement::SlotState::kEmpty &&
                std::memcmp(a.slots[i].ssd_uuid, b.slots[j].ssd_uuid, sizeof a.slots[i].ssd_uuid) == 0)
                return true;
    return false;
}

}  // namespace

std::string uuid_text(const std::uint8_t (&uuid)[16]) {
    Uuid id;
    std::copy(std::begin(uuid), std::end(uuid), id.bytes.begin());
    return id.to_string();
}

Result<std::unique_ptr<Manager>> Manager::start(RecordStore& store, std::vector<SsdPort*> ports,
                                                const ManagerOptions& options, std::uint64_t now_ms) {
    if (ports.empty()) return error(Errc::kInvalidArgument, "an array needs at least one SSD");
    if (options.lease_ms == 0)
        return error(Errc::kInvalidArgument, "a lease of 0 ms ends before it begins; choose at least 1");
    std::unique_ptr<Manager> manager(new Manager(store, options));
    GN_TRY(manager->take_over(std::move(ports), now_ms));
    return manager;
}

Result<void> Manager::take_over(std::vector<SsdPort*> ports, std::uint64_t now_ms) {
    GN_ASSIGN(records_, store_.load());
    report_.warnings = options_.warnings;
    Takeover t;
    t.store_empty = records_.term == 0;
    GN_TRY(list_drives(std::move(ports), t));
    if (t.store_empty) GN_TRY(check_one_array(t));
    adopt_map(t);
    for (const Drive& drive : drives_) t.out.push_back(is_out(drive.identity.uuid));
    if (report_.rebuilt) GN_TRY(check_none_is_new(t));
    find_older(t);
    GN_ASSIGN(t.change.term, next_term(t));
    drop_deleted(t);
    GN_TRY(merge_records(t));
    learn_clients(t);
    GN_TRY(plan_map(t));
    now_ms_ = now_ms;
    if (Result<void> stored = commit(t.change); !stored.ok()) {
        GN_TRY(start_read_only(t, stored.error(), now_ms));
        started_ = true;
        return {};
    }
    reconcile(t, now_ms);
    granted_ms_ = now_ms;
    started_ = true;
    return {};
}

/// A term above all that any drive has seen, but not so far above that a drive would refuse it
/// (nvme/fencing.hpp).
Result<std::uint64_t> Manager::next_term(const Takeover& t) {
    for (std::size_t d = 0; d < drives_.size(); ++d) {
        const bool lone =
            !t.store_empty && t.terms[d] > records_.term && t.terms[d] - records_.term > nvme::kTermLeapMost;
        if (!lone && t.terms[d] < nvme::kLastTerm - 1) continue;
        return error(Errc::kState,
                     "SSD {} has seen term {}, which no gnstord of this array has had (the records say {}), "
                     "or which is too high for a next term; stop the process that serves the SSD, then run "
                     "'gnstor ssd reset-term --term {}' on its store",
                     drives_[d].identity.serial, t.terms[d], records_.term, std::max(records_.term, 1ul));
    }
    const std::uint64_t newest = std::max(records_.term, t.newest_term);
    if (newest >= nvme::kLastTerm - 1)
        return error(Errc::kCorrupt,
                     "the records say term {}, which is too high for a next term: bring back a copy of the "
                     "records, or move the records away, and gnstord rebuilds them from the SSDs",
                     newest);
    for (std::size_t d = 0; d < drives_.size(); ++d)
        if (drives_[d].listed && drives_[d].older.empty() && newest + 1 - t.terms[d] > nvme::kTermLeapMost)
            report_.warnings.push_back(
                fmt::format("the newest term that SSD {} has seen is {}, and it refuses a term so far above "
                            "that as {}; stop the process that serves the SSD, then run 'gnstor ssd "
                            "reset-term --term {}' on its store",
                            drives_[d].identity.serial, t.terms[d], newest + 1, newest));
    return newest + 1;
}

Result<void> Manager::list_drives(std::vector<SsdPort*> ports, Takeover& t) {
    std::set<std::array<std::uint8_t, 16>> uuids;
    for (SsdPort* port : ports) {
        Drive drive{port, port->identity()};
        if (!uuids.insert(drive.identity.uuid).second)
            return error(Errc::kInvalidArgument,
                         "two SSDs have the same UUID (serial {}): one of them is a copy; remove it",
                         drive.identity.serial);
        std::vector<nvme::VolumeRecord> seen;
        Result<SsdVolumes> listed = port->volume_list(records_.term);
        t.terms.push_back(listed.ok() ? listed->term : 0);
        if (listed.ok()) {
            drive.listed = true;
            drive.admitted = true;
            drive.known = listed->term != 0;
            drive.knows_out = listed->knows_out;
            t.newest_term = std::max(t.newest_term, listed->term);
            t.highest_epoch = std::max(t.highest_epoch, listed->highest_deleted_epoch);
            t.maps.push_back(listed->newest_map);
            if (t.store_empty || in_map(drive.identity.uuid) ||
                share_an_ssd(listed->newest_map, records_.map))
                t.note_map(listed->newest_map);
            if (t.store_empty && listed->incomplete && listed->newest_map.version == 0)
                return error(
                    Errc::kState,
                    "SSD {} was being filled from the other replicas when the records were lost, and a new "
                    "map would name it whole: bring back the records",
                    drive.identity.serial);
            for (const nvme::VolumeRecord& record : listed->records) {
                if (Result<void> good = check_record(record); !good.ok())
                    return error(Errc::kCorrupt, "SSD {}: {}; replace this SSD", drive.identity.serial,
                                 good.error().message);
                t.highest_epoch = std::max(t.highest_epoch, record.epoch);
                seen.push_back(record);
            }
        } else {
            t.maps.emplace_back();
            drive.trouble = listed.error().message;
            report_.warnings.push_back(
                fmt::format("SSD {} does not answer: {}", drive.identity.serial, drive.trouble));
            if (t.store_empty)
                return error(
                    Errc::kIo,
                    "the records cannot be rebuilt while SSD {} does not answer ({}); bring it back first",
                    drive.identity.serial, drive.trouble);
        }
        drives_.push_back(std::move(drive));
        t.seen.push_back(std::move(seen));
    }
    report_.new_array = t.store_empty && t.newest_term == 0 && t.highest_epoch == 0;
    report_.rebuilt = t.store_empty && !report_.new_array;
    return {};
}

/// Without records the newest map counts. An SSD of another array could have it, and the volumes of this one
/// would then be taken for deleted.
Result<void> Manager::check_one_array(const Takeover& t) const {
    for (std::size_t d = 0; d < drives_.size(); ++d) {
        const placement::ArrayMap& map = t.maps[d];
        if (map.version == 0) continue;
        const bool other = map.version == t.newest_map.version
                               ? std::memcmp(&map, &t.newest_map, sizeof map) != 0
                               : !share_an_ssd(map, t.newest_map);
        if (other)
            return error(
                Errc::kState,
                "the records are lost, and SSD {} is of another array than the SSD with the newest map "
                "(version {}): stop the nodes that serve the SSDs of the other array, or format those SSDs",
                drives_[d].identity.serial, t.newest_map.version);
    }
    return {};
}

/// The map of the SSDs says which SSD fills which slot, where the records are lost or an older copy (docs/array.md,
/// rule 16): an SSD that was replaced since must not get its slot back.
void Manager::adopt_map(Takeover& t) {
    if (t.newest_map.version <= records_.map.version) return;
    if (!t.store_empty)
        report_.warnings.push_back(fmt::format(
            "the records are an older copy: their map has version {}, and that of the SSDs, which is "
            "used, version {}",
            records_.map.version, t.newest_map.version));
    records_.map = t.newest_map;
    t.map_adopted = true;
}

/// Refuses a rebuild with a drive that no daemon has ever contacted: without records its slot is unknown, and
/// it would pass for the drive whose place it has, with its emptiness passing for contents.
Result<void> Manager::check_none_is_new(const Takeover& t) const {
    const bool volumes =
        std::any_of(t.seen.begin(), t.seen.end(), [](const auto& seen) { return !seen.empty(); });
    for (std::size_t d = 0; volumes && d < drives_.size(); ++d)
        if (t.terms[d] == 0 && (!t.map_adopted || holds_data(drives_[d].identity.uuid)))
            return error(Errc::kState,
                         "SSD {} is new, but the other SSDs hold volumes with replicas on the SSD that it "
                         "replaces, and the records that say which SSD that was are lost: bring back the "
                         "store of the replaced SSD, or the records",
                         drives_[d].identity.serial);
    return {};
}

Result<void> Manager::merge_records(Takeover& t) {
    for (std::size_t d = 0; d < drives_.size(); ++d) {
        if (!drives_[d].older.empty()) continue;
        if (!tells_volumes(drives_[d].identity.uuid)) continue;
        for (const nvme::VolumeRecord& record : t.seen[d]) {
            const nvme::VolumeId id = record.geometry.volume;
            const auto retired = records_.retired.find(id);
            if (retired != records_.retired.end() && record.epoch <= retired->second)
                continue;  // its drive purges it in reconcile()
            const auto known = records_.volumes.find(id);
            const bool reborn = known != records_.volumes.end() && record.birth_epoch > known->second.epoch &&
                                in_map(drives_[d].identity.uuid);  // the records are an older copy
            if (known != records_.volumes.end() && !reborn && !same_life(known->second, record))
                return error(Errc::kCorrupt,
                             "SSD {} knows VID {} as '{}', the records know it as '{}': this SSD or the "
                             "records belong to another "
                             "array; remove the one that does not belong",
                             drives_[d].identity.serial, id, record.name, known->second.name);
            if (known != records_.volumes.end() && !reborn && known->second.revision == record.revision &&
                !same_bytes(known->second, record))
                return error(Errc::kCorrupt,
                             "SSD {} has another record of volume '{}' than {} under the same revision "
                             "({}), although a revision is given out once: one of them is of a copy of the "
                             "array that was changed separately; remove the SSD or the records that do not "
                             "belong",
                             drives_[d].identity.serial, record.name,
                             t.touched.contains(id) ? "another SSD" : "the records", record.revision);
            if (known != records_.volumes.end() && !reborn && known->second.revision >= record.revision)
                continue;
            records_.volumes[id] = record;
            records_.retired.erase(id);
            t.touched.insert(id);
        }
    }
    GN_TRY(drop_renamed(t));
    for (const nvme::VolumeId id : t.touched) {
        const nvme::VolumeRecord& record = records_.volumes.at(id);
        t.change.put_volumes.push_back(record);
        // A record of revision 2 or higher implies that the creation was in force. Revision 1 was in force
        // too, unless a drive that is *in* and answers lacks it. (One that is rebuilding may not have it yet.)
        bool lacking = false;
        for (std::size_t d = 0; d < drives_.size(); ++d)
            lacking = lacking ||
                      (drives_[d].listed && drives_[d].older.empty() &&
                       (records_.map.version == 0 || holds_data(drives_[d].identity.uuid)) && !t.has(d, id));
        (record.revision == 1 && lacking ? t.change.begin_creations : t.change.end_creations).push_back(id);
    }
    report_.adopted = static_cast<std::uint32_t>(t.touched.size());
    // Deleted volumes may have reached higher epochs: then a drive refuses, and create_volume() raises the
    // floor.
    if (report_.rebuilt)
        t.change.epoch_floor = t.highest_epoch + std::min(kEpochLeap, ~nvme::Epoch{0} - t.highest_epoch);
    return {};
}

void Manager::learn_clients(Takeover& t) {
    std::map<nvme::ClientId, std::string> learnt;
    std::set<std::string> names;
    for (const auto& [id, client] : records_.clients) names.insert(client.name);
    for (const nvme::VolumeId volume : t.touched) {
        const nvme::VolumeRecord& record = records_.volumes.at(volume);
        if (!records_.clients.contains(record.owner) && learnt[record.owner].empty() &&
            names.insert(record.owner_name).second)
            learnt[record.owner] = record.owner_name;
        // Of readers and writers only the number is known: it must not be given to another client.
        if (record.writer != 0) learnt.try_emplace(record.writer);
        for (std::uint32_t r = 0; r < record.reader_count; ++r) learnt.try_emplace(record.readers[r]);
    }
    for (const auto& [id, name] : learnt)
        if (!records_.clients.contains(id))
            t.change.put_clients.emplace_back(id, ClientRecord{name, first_generation(*t.change.term)});
    // Records that are an older copy do not know which generations were given out, or ended, since.
    if (t.newest_term <= records_.term) return;
    for (const auto& [id, client] : records_.clients)
        t.change.put_clients.emplace_back(
            id, ClientRecord{client.name, std::max(client.generation, first_generation(*t.change.term)),
                             client.removed});
}

Result<void> Manager::map_from_ports(Takeover& t, std::uint32_t version) {
    placement::ArrayMap map{};
    map.version = version;
    std::uint64_t largest = 1;
    // An SSD outside the map that holds volumes, or may: of another array, or replaced. It stays as it is. One
    // that was out may hold volumes that were deleted, and comes back as such.
    std::vector<bool> foreign;
    for (std::size_t d = 0; d < drives_.size(); ++d)
        foreign.push_back(!tells_volumes(drives_[d].identity.uuid) && !in_map(drives_[d].identity.uuid) &&
                          (!t.seen[d].empty() || !drives_[d].listed));
    for (const Drive& drive : drives_) largest = std::max(largest, drive.identity.capacity_blocks);
    for (std::size_t d = 0; d < drives_.size(); ++d) {
        Drive& drive = drives_[d];
        if (foreign[d]) continue;
        const std::uint32_t s = drive.port->slot();
        if (s >= placement::kMaxSlots)
            return error(Errc::kInvalidArgument, "SSD {} asks for slot {}; an array has slots 0 to {}",
                         drive.identity.serial, s, placement::kMaxSlots - 1);
        placement::Slot& slot = map.slots[s];
        if (slot.state != placement::SlotState::kEmpty)
            return error(Errc::kInvalidArgument, "SSD {} asks for slot {}, which another SSD has",
                         drive.identity.serial, s);
        slot.state = t.out[d] ? placement::SlotState::kOut : placement::SlotState::kIn;
        slot.weight = static_cast<std::uint32_t>(
            std::max<std::uint64_t>(1, drive.identity.capacity_blocks * 1000 / largest));
        std::copy(drive.identity.uuid.begin(), drive.identity.uuid.end(), slot.ssd_uuid);
        map.slot_count = std::max(map.slot_count, s + 1);
        (t.out[d] ? drive.out_slot : drive.slot) = s;
    }
    for (const auto& [id, record] : records_.volumes) {
        std::uint32_t used = 0;
        for (std::uint32_t s = 0; s < map.slot_count; ++s)
            used += map.slots[s].state == placement::SlotState::kIn ? 1 : 0;
        if (record.slot_count == map.slot_count && used == map.slot_count) continue;
        return error(Errc::kState,
                     "volume '{}' was placed on an array of {} slots, but {} SSDs are present; bring back "
                     "exactly the SSDs of that array",
                     record.name, record.slot_count, used);
    }
    GN_TRY(label_domains(map));
    t.change.map = map;
    records_.map = map;
    return {};
}

/// Labels by node. If the map's record is lost, uses the labels that match the volumes' checksum, which may
/// be by SSD.
Result<void> Manager::label_domains(placement::ArrayMap& map) const {
    std::vector<std::string> nodes(map.slot_count);
    for (const Drive& drive : drives_)
        for (const std::uint32_t slot : {drive.slot, drive.out_slot})
            if (slot != kNoSlot) nodes[slot] = drive.identity.nic_address;
    const nvme::VolumeRecord* misplaced = nullptr;
    for (const bool by_node : {true, false}) {
        if (by_node)
            label_by_node(map, nodes);
        else
            label_by_ssd(map);
        misplaced = nullptr;
        for (const auto& [id, record] : records_.volumes)
            if (record.domains_check != domains_check(map)) misplaced = &record;
        if (misplaced == nullptr) return {};
    }
    return error(Errc::kState,
                 "the records are lost, and volume '{}' was placed on SSDs that were divided among nodes in "
                 "another way; name the nodes as before, in the same order, each with the SSDs that it had",
                 misplaced->name);
}

std::uint32_t Manager::take_slots() {
    std::uint32_t matched = 0;
    for (Drive& drive : drives_) {
        drive.slot = drive.older_slot = drive.out_slot = kNoSlot;
        const std::uint32_t slot = slot_of(drive.identity.uuid);
        (!drive.older.empty() ? drive.older_slot : is_out(slot) ? drive.out_slot : drive.slot) = slot;
        matched += drive.slot == kNoSlot ? 0 : 1;
    }
    return matched;
}

/// Without records only the map of the SSDs says which SSDs form the array (docs/array.md, rule 16).
Result<void> Manager::check_all_here(const Takeover& t) const {
    std::string fresh;
    for (std::size_t d = 0; d < drives_.size(); ++d)
        if (t.terms[d] == 0)
            fresh += fmt::format("; SSD {} is new, and cannot replace it then", drives_[d].identity.serial);
    const std::vector<std::uint32_t> missing = missing_slots();
    if (missing.empty()) return {};
    return error(
        Errc::kState,
        "the records are lost, and the SSD of slot {} ({}) is not here: bring back exactly the SSDs of "
        "that array, or the records{}",
        missing[0], uuid_text(records_.map.slots[missing[0]].ssd_uuid), fresh);
}

Result<void> Manager::plan_map(Takeover& t) {
    const bool without_map = t.store_empty || records_.map.version == 0;
    if (records_.volumes.empty()) forgive_older();
    for (const Drive& drive : drives_)
        if (!drive.older.empty() && without_map)
            return error(Errc::kState, "the records are lost, and {}", drive.older);
    if (without_map) {
        const std::uint64_t term = std::min<std::uint64_t>(*t.change.term, 0xFFFFFFFFu);
        const std::uint64_t version = report_.new_array ? 1 : term << nvme::kVersionsPerTermShift;
        if (version > nvme::kLastVersionOfRebuild)
            return error(Errc::kNoSpace, "the array has used up its map versions");
        if (!t.map_adopted || records_.volumes.empty())
            return map_from_ports(t, static_cast<std::uint32_t>(version));
        records_.map.version = static_cast<std::uint32_t>(version);
    }
    if (t.map_adopted) t.change.map = records_.map;
    std::uint32_t in_map = 0;
    for (std::uint32_t s = 0; s < records_.map.slot_count; ++s)
        in_map += records_.map.slots[s].state == placement::SlotState::kEmpty || is_out(s) ? 0 : 1;
    const std::uint32_t matched = take_slots();
    if (t.store_empty) GN_TRY(check_all_here(t));
    if (matched == in_map && matched == drives_.size()) return {};
    if (records_.volumes.empty()) {
        if (records_.map.version == ~nvme::MapVersion{0})
            return error(Errc::kNoSpace, "the array has used up its map versions");
        for (const std::uint32_t s : missing_slots())
            report_.warnings.push_back(
                fmt::format("the SSD of slot {} ({}) is missing: the array has no volume, so it gets a new "
                            "map without this SSD; to have the SSD in the map, bring it back and restart "
                            "gnstord before a volume is created",
                            s, uuid_text(records_.map.slots[s].ssd_uuid)));
        return map_from_ports(t, records_.map.version + 1);
    }
    for (const Drive& drive : drives_)
        if (!drive.older.empty() && matched == 0)
            return error(Errc::kState, "there is no SSD that could be read: {}", drive.older);
    return {};
}

void Manager::reconcile(Takeover& t, std::uint64_t now_ms) {
    for (const auto& [id, record] : records_.volumes)
        live_[id].lease_end_ms = record.writer != 0 ? now_ms + options_.lease_ms : 0;
    for (std::size_t d = 0; d < drives_.size(); ++d) {
        Drive& drive = drives_[d];
        if (drive.slot == kNoSlot) continue;
        std::set<nvme::VolumeId> current;
        for (const nvme::VolumeRecord& seen : t.seen[d]) {
            const auto known = records_.volumes.find(seen.geometry.volume);
            if (known == records_.volumes.end()) {
                if (!read_only_.empty()) continue;  // removed once the store is writable
                if (report_.rebuilt) continue;      // without records nothing says that it was deleted
                ++report_.repaired;
                const Result<void> gone = remove_volume(drive, seen.geometry.volume);
                if (!gone.ok()) drive.trouble = gone.error().message;
            } else if (same_bytes(known->second, seen)) {
                current.insert(seen.geometry.volume);
            }
        }
        for (const auto& [id, record] : records_.volumes) {
            if (current.contains(id)) continue;
            // A deletion in progress: purged on this drive already, or finish_delete() marks and purges it.
            if ((record.flags & nvme::kVolumeDeleting) != 0) continue;
            ++report_.repaired;
            if (drive.slot == kNoSlot) break;  // admit() found meanwhile that its store is an older copy
            if (send(drive, record).ok())
                current.insert(id);
            else if (!records_.creating.contains(id))
                drive.behind.insert(id);  // the change may be in force without this drive
        }
        t.seen[d].clear();
        for (const nvme::VolumeId id : current) t.seen[d].push_back(records_.volumes.at(id));
    }
    settle_live(t);
    finish_start();
}

void Manager::settle_live(const Takeover& t) {
    for (auto& [id, live] : live_) {
        // A creation is in force once activate() has seen it on every drive and stored that. Any other change
        // is in force if every drive has it. For a slot whose drive is missing this is unknown: activate()
        // settles the change when grants from before this start have ended (docs/array.md, rule 2).
        live.in_force =
            (records_.volumes.at(id).flags & nvme::kVolumeDeleting) == 0 && !records_.creating.contains(id);
        for (std::size_t d = 0; d < drives_.size(); ++d)
            if (drives_[d].slot != kNoSlot && !t.has(d, id)) live.in_force = false;
        if (!missing_slots().empty()) live.in_force = false;
    }
}

void Manager::finish_start() {
    // Of an earlier daemon's volumes it is not known whether their replicas were made equal.
    for (const auto& [id, record] : records_.volumes)
        if (record.writer == 0) to_compare_.insert(id);
    if (!read_only_.empty()) {
        if (Result<void> map = activate_map(); !map.ok())
            report_.warnings.push_back(fmt::format("the map is not in force: {}", map.error().message));
        return;
    }
    std::vector<nvme::VolumeId> deleting;
    for (const auto& [id, record] : records_.volumes)
        if ((record.flags & nvme::kVolumeDeleting) != 0) deleting.push_back(id);
    const std::set<nvme::VolumeId> creating = records_.creating;
    for (const nvme::VolumeId id : deleting)
        if (Result<void> gone = finish_delete(id); !gone.ok())
            report_.warnings.push_back(
                fmt::format("the deletion of VID {} waits: {}", id, gone.error().message));
    for (const nvme::VolumeId id : creating)
        if (std::find(deleting.begin(), deleting.end(), id) == deleting.end())
            (void)activate(id).ok();  // if this fails, tick() retries it
    if (Result<void> map = activate_map(); !map.ok())
        report_.warnings.push_back(fmt::format("the map is not in force: {}", map.error().message));
}

}  // namespace gnstor::daemon
