// manager_activate.cpp: store, activate, in force (docs/array.md, rule 2). Models: tests/model/epochs.pml, and of the
// map tests/model/map_out.pml.
#include "daemon/decisions/failure_domains.hpp"
#include "daemon/decisions/manager.hpp"

#include <algorithm>

namespace gnstor::daemon {

Result<void> Manager::commit(const Change& change) {
    if (!superseded_.empty()) return error(Errc::kState, "{}", superseded_);
    if (!read_only_.empty()) return error(read_only_code_, "{}", read_only_);
    if (unsure_) {  // records_, from which this change was made, may be out of date
        GN_TRY(reload());
        return error(Errc::kBusy, "the record store failed, and gnstord has read it again; try again");
    }
    Result<void> saved = store_.save(change);
    if (saved.ok()) {
        save_trouble_.clear();
        apply(records_, change);
        return {};
    }
    if (note_led_elsewhere(saved)) return saved;
    save_trouble_ =
        fmt::format("no change can be stored: {}; gnstord tries again every second", saved.error().message);
    unsure_ = true;
    (void)reload().ok();  // if this fails, sure() retries it before the next request
    return saved;
}

/// Whether the store says that another daemon leads; then nothing may be changed any more.
bool Manager::note_led_elsewhere(const Result<void>& store_says) {
    if (store_says.ok() || store_says.error().code != Errc::kState) return false;
    superseded_ =
        fmt::format("this gnstord (term {}) was superseded: {}", records_.term, store_says.error().message);
    return true;
}

Result<void> Manager::sure() {
    if (unsure_) return reload();
    return {};
}

Result<void> Manager::reload() {
    // A failed save may have been stored all the same: the store's content is the truth, and nothing is
    // acknowledged before it is read.
    Result<Records> loaded = store_.load();
    if (!loaded.ok()) {
        (void)note_led_elsewhere(loaded.error());
        return std::move(loaded).error();
    }
    for (const auto& [id, record] : loaded->volumes) {
        const auto old = records_.volumes.find(id);
        if (old == records_.volumes.end() || old->second.revision != record.revision)
            live_[id].in_force = false;
    }
    const bool other_map = loaded->map.version != records_.map.version;
    records_ = std::move(loaded).value();
    if (other_map && started_) follow_map();
    std::erase_if(live_, [this](const auto& live) { return !records_.volumes.contains(live.first); });
    unsure_ = false;
    return {};
}

Manager::Drive* Manager::drive_in(std::uint32_t slot) {
    for (Drive& drive : drives_)
        if (drive.slot == slot) return &drive;
    return nullptr;
}

Error Manager::pending_error(const std::string& what, const Error& cause) const {
    if (!superseded_.empty()) return error(Errc::kState, "{}", superseded_);
    const bool told = cause.code == Errc::kIo || cause.code == Errc::kTimedOut ||
                      cause.code == Errc::kNoSpace || cause.code == Errc::kUnsupported;
    const Errc code = told ? cause.code : Errc::kBusy;
    if (!store_.lasting())
        return error(code, "{} is not in force on every SSD: {}; this process keeps trying, ask again later",
                     what, cause.message);
    return error(code, "{} is recorded but not in force: {}; ask again later", what, cause.message);
}

/// Sends to a drive that is admitted; retries once if the connection broke during the command. Commands are
/// idempotent: if only the answer was lost, the second finds the work done.
template <class Command>
Result<void> Manager::command(Drive& drive, Command send_it) {
    GN_TRY(admit(drive));
    Result<void> done = send_it();
    if (done.ok() || !drive.port->is_new()) return done;
    GN_TRY(admit(drive));
    return send_it();
}

Result<void> Manager::send(Drive& drive, const nvme::VolumeRecord& record) {
    Result<void> sent = command(drive, [&] { return put_record(drive, record); });
    if (!sent.ok()) note_superseded(sent.error());
    drive.trouble = sent.ok() ? std::string() : sent.error().message;
    if (sent.ok()) drive.behind.erase(record.geometry.volume);
    if (sent.ok()) drive.refused.erase(record.geometry.volume);
    drive.known = drive.known || sent.ok();
    return sent;
}

Result<void> Manager::put_record(Drive& drive, const nvme::VolumeRecord& record) {
    Result<void> sent = drive.port->volume_chmod(records_.term, record);
    const bool deleting = (record.flags & nvme::kVolumeDeleting) != 0;
    if (!sent.ok() && sent.error().code == Errc::kNotFound && deleting) {
        sent = {};  // purged on this drive already, or never there: nothing to mark
    } else if (!sent.ok() && sent.error().code == Errc::kNotFound) {
        sent = drive.port->volume_add(records_.term, record);
        if (!sent.ok() && sent.error().code == Errc::kExists)
            sent = drive.port->volume_chmod(records_.term, record);
    }
    return sent;
}

void Manager::note_superseded(const Error& e) {
    if (e.code != Errc::kState || !superseded_.empty()) return;
    superseded_ = fmt::format("this gnstord (term {}) was superseded by a newer one: {}; stop it",
                              records_.term, e.message);
    store_.end_lead();
}

Result<void> Manager::activate(nvme::VolumeId volume) {
    GN_TRY(sure());
    if (!records_.volumes.contains(volume))
        return error(Errc::kNotFound, "the volume with VID {} no longer exists", volume);
    const nvme::VolumeRecord& record = records_.volumes.at(volume);
    live_[volume].in_force = false;
    // Creations and deletions need every drive that is not out: a VID may not be reused before.
    const bool lives = !records_.creating.contains(volume) && (record.flags & nvme::kVolumeDeleting) == 0;
    // They rely on slots being out only after a drive has stored that: else a daemon without records would believe
    // what an SSD that was out tells.
    if (!lives && any_out() && told_ != records_.map.version)
        return error(Errc::kBusy, "the map without the SSDs that are out is not in force yet");
    // Sends to every drive even after one failed, so that as few as possible lag.
    Result<void> first;
    bool without = lives;  // drives that did not take it have no grant left (docs/array.md, rule 2)
    bool taken = false;    // by one at least: else it would be lost with the records
    std::vector<Drive*> behind;
    for (std::uint32_t s = 0; s < records_.map.slot_count; ++s) {
        if (records_.map.slots[s].state == placement::SlotState::kEmpty || is_out(s)) continue;
        Drive* drive = drive_in(s);
        Result<void> sent = drive == nullptr ? Result<void>(missing_error(s)) : send(*drive, record);
        taken = taken || sent.ok();
        if (sent.ok()) continue;
        without = without && !may_hold_grant(drive == nullptr ? before_start_ : drive->grant);
        if (drive != nullptr) behind.push_back(drive);
        if (first.ok()) first = std::move(sent);
    }
    if (!superseded_.empty() || (!first.ok() && !(without && taken))) return first;
    for (Drive* drive : behind) drive->behind.insert(volume);
    if (records_.creating.contains(volume) && (record.flags & nvme::kVolumeDeleting) == 0) {
        // Stored before any client learns of it: after a restart it must not look like a creation that can
        // still be undone.
        Change created;
        created.end_creations.push_back(volume);
        GN_TRY(commit(created));
    }
    live_[volume].in_force = true;
    return {};
}

Result<void> Manager::activate_map() {
    map_in_force_ = false;
    Result<void> first;
    bool without = true;  // drives that did not take it have no grant left (docs/array.md, rule 2)
    bool taken = false;   // by one at least: else it would be lost with the records
    for (Drive& drive : drives_) {
        if (drive.slot == kNoSlot) continue;
        Result<void> granted = grant(drive);
        drive.known = drive.known || granted.ok();
        drive.serves = granted.ok();
        taken = taken || granted.ok();
        if (granted.ok()) {
            drive.trouble.clear();
            continue;
        }
        note_superseded(granted.error());
        drive.trouble = granted.error().message;
        if (first.ok()) first = std::move(granted);
        if (!superseded_.empty()) return first;
        without = without && !may_hold_grant(drive.grant);
    }
    map_in_force_ = first.ok();
    if (map_in_force_ || (without && taken)) told_ = records_.map.version;
    note_taken();
    return first;
}

std::vector<std::uint32_t> Manager::missing_slots() const {
    std::vector<std::uint32_t> slots;
    for (std::uint32_t s = 0; s < records_.map.slot_count; ++s)
        if (records_.map.slots[s].state != placement::SlotState::kEmpty && !is_out(s) &&
            std::ranges::none_of(drives_, [s](const Drive& drive) { return drive.slot == s; }))
            slots.push_back(s);
    return slots;
}

Result<void> Manager::grant(Drive& drive) {
    return command(drive, [&] { return set_map(drive); });
}

Result<void> Manager::tell_hosts(Drive& drive) {
    return command(drive, [&] { return send_hosts(drive); });
}

Result<void> Manager::remove_volume(Drive& drive, nvme::VolumeId volume) {
    return command(drive, [&] { return drive.port->volume_remove(records_.term, volume); });
}

nvme::MapSet Manager::map_for(const Drive& drive) const {
    nvme::MapSet set{};
    set.slot = drive.slot;
    set.grant_ms = options_.grant_ms;
    set.map = records_.map;
    return set;
}

Result<void> Manager::set_map(Drive& drive) {
    GN_TRY(catch_up(drive));
    GN_TRY(send_hosts(drive));
    const nvme::MapSet set = map_for(drive);
    std::uint32_t nonce = 0;
    if (set.grant_ms != 0) {
        GN_ASSIGN(nonce, drive.port->grant_ask(records_.term));
    }
    // After the drive was asked, from which on the grant counts: it ends within T_grant after this daemon ceased to lead.
    GN_TRY(store_.check_leads());
    return give_map(drive, set, nonce);
}

Result<void> Manager::give_map(Drive& drive, const nvme::MapSet& set, std::uint32_t nonce) {
    const GrantBound before = drive.grant;
    drive.grant.open = true;  // from here on the drive may hold a grant, even if the answer is lost
    const Result<void> set_there = drive.port->map_set(records_.term, set, nonce);
    const bool unknown =
        !set_there.ok() && (set_there.error().code == Errc::kIo || set_there.error().code == Errc::kTimedOut);
    if (!set_there.ok() && !unknown) drive.grant = before;  // it refused, and changed nothing
    GN_TRY(set_there);
    if (drive.port->keeps_terms()) drive.taken = records_.term;
    term_taken_ = true;
    return {};
}

Result<void> Manager::catch_up(Drive& drive) {
    while (!drive.behind.empty()) {
        const nvme::VolumeId id = *drive.behind.begin();
        const auto record = records_.volumes.find(id);
        if (record != records_.volumes.end()) {
            Result<void> sent = send(drive, record->second);
            // Stale Epoch: the drive has deleted this volume, or has a newer record of it. Either way it
            // refuses this record, and its grant for the other volumes need not wait.
            const bool stale = !sent.ok() && sent.error().code == Errc::kUnsupported;
            if (!sent.ok() && !stale) return sent;
            if (stale) drive.refused[id] = sent.error().message;
        }
        drive.behind.erase(id);
    }
    return {};
}

Result<void> Manager::change_volume(nvme::VolumeRecord record) {
    // A creation must be in force before any change but its deletion follows: undo_creation() relies on that.
    if (records_.creating.contains(record.geometry.volume) && (record.flags & nvme::kVolumeDeleting) == 0) {
        Result<void> made = activate(record.geometry.volume);
        if (!made.ok()) {
            undo_creation(record.geometry.volume, made.error().code);
            return pending_error(fmt::format("the creation of volume '{}'", record.name), made.error());
        }
    }
    record.revision += 1;
    record.slot_count = records_.map.slot_count;
    record.domains_check = domains_check(records_.map);
    Change change;
    change.put_volumes.push_back(record);
    if (record.revision == 1) change.begin_creations.push_back(record.geometry.volume);
    put_taken(change);
    GN_TRY(commit(change));
    written_term_ = records_.term;
    Result<void> active = activate(record.geometry.volume);
    if (!active.ok())
        return pending_error(fmt::format("the change of volume '{}'", record.name), active.error());
    return {};
}

Result<void> Manager::close_epoch(nvme::VolumeId volume, std::uint64_t byte_length) {
    nvme::VolumeRecord record = records_.volumes.at(volume);
    // The epoch stays until its replicas are equal (manager_close.cpp): the drives keep what tells which version is newer.
    record.writer = 0;
    if (byte_length != ~0ull) record.byte_length = byte_length;
    live_[volume].lease_end_ms = 0;
    live_[volume].next_writer = 0;
    to_compare_.insert(volume);
    return change_volume(record);
}

Result<void> Manager::finish_delete(nvme::VolumeId volume) {
    // The mark must be on every drive before the first one purges: see the invariant in manager.hpp.
    if (!live_[volume].in_force) GN_TRY(activate(volume));
    Result<void> first;
    for (std::uint32_t s = 0; s < records_.map.slot_count; ++s) {
        Drive* drive = drive_in(s);
        // The slot is empty or out: activate() of a deletion succeeds only with every other drive.
        if (drive == nullptr) continue;
        Result<void> purged = remove_volume(*drive, volume);
        if (!purged.ok() && purged.error().code == Errc::kNotFound) purged = {};
        if (!purged.ok()) note_superseded(purged.error());
        if (!purged.ok()) drive->trouble = purged.error().message;
        if (!purged.ok() && first.ok()) first = std::move(purged);
    }
    if (!first.ok()) {
        live_[volume].in_force = false;
        return first;
    }
    Change change;
    change.retire_volumes.emplace_back(volume, records_.volumes.at(volume).epoch);
    GN_TRY(commit(change));
    live_.erase(volume);
    return {};
}

bool Manager::undo_creation(nvme::VolumeId volume, Errc refusal) {
    if (!records_.volumes.contains(volume)) return false;
    // No client knows of it, and a drive refuses to add it, so it may be removed. Once in force, a volume is
    // deleted only at its owner's request.
    const nvme::VolumeRecord& record = records_.volumes.at(volume);
    if (!records_.creating.contains(volume) || (record.flags & nvme::kVolumeDeleting) != 0) return false;
    if (refusal != Errc::kNoSpace && refusal != Errc::kUnsupported) return false;
    nvme::VolumeRecord dead = record;
    dead.flags |= nvme::kVolumeDeleting;
    dead.epoch += 1;
    dead.revision += 1;
    Change change;
    change.put_volumes.push_back(dead);
    if (!commit(change).ok()) return false;
    live_[volume].in_force = false;
    (void)finish_delete(volume).ok();  // if this fails, tick() retries it
    return true;
}

}  // namespace gnstor::daemon
