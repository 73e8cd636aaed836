// manager_out.cpp: takes SSDs that are silent out of the map, and takes them back. docs/array.md, rules 2, 3 and 10.
//
// An SSD that does not answer, and whose grant has certainly ended, acknowledges nothing any more. A map in which its
// slot is *out* lets writes go on without it, and creations and deletions do not wait for it. What it misses meanwhile
// is unknown to it: so it comes back as *rebuilding*, after the volumes that were deleted were removed from it, and is
// filled like a spare (manager_replace.cpp). What it holds already stays, as a copy is put only where nothing newer is.
// Model: tests/model/map_out.pml.
#include "daemon/decisions/manager.hpp"

#include <gnstor/base/log.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace gnstor::daemon {

using placement::SlotState;

namespace {
/// An SSD that is taken back by itself is not taken back again before so many times T_grant have passed.
constexpr std::uint64_t kGrantsUntilBackAgain = 6;
}  // namespace

bool Manager::is_out(std::uint32_t slot) const {
    return slot < records_.map.slot_count && records_.map.slots[slot].state == SlotState::kOut;
}

bool Manager::is_out(const SsdUuid& uuid) const {
    return is_out(slot_of(uuid));
}

bool Manager::any_out() const {
    return std::ranges::any_of(records_.map.slots,
                               [](const auto& slot) { return slot.state == SlotState::kOut; });
}

/// Slots of the map whose SSD does not serve.
std::vector<std::uint32_t> Manager::silent_slots() {
    std::vector<std::uint32_t> slots;
    for (std::uint32_t s = 0; s < records_.map.slot_count; ++s) {
        const SlotState state = records_.map.slots[s].state;
        if (state != SlotState::kIn && state != SlotState::kRebuilding) continue;
        const Drive* drive = drive_in(s);
        if (drive == nullptr || !drive->serves) slots.push_back(s);
    }
    return slots;
}

/// Whether every volume keeps replicas that are *in*, and serve, without these slots; the error says why not.
Result<void> Manager::check_redundant(const std::vector<std::uint32_t>& silent) const {
    std::set<std::uint16_t> domains, without;
    std::uint32_t slots_without = 0;
    for (std::uint32_t s = 0; s < records_.map.slot_count; ++s) {
        const placement::Slot& slot = records_.map.slots[s];
        if (!placement::takes_part(slot)) continue;
        domains.insert(slot.domain);
        const bool serves = slot.state == SlotState::kIn && std::ranges::find(silent, s) == silent.end();
        if (serves) continue;
        without.insert(slot.domain);
        ++slots_without;
    }
    if (without.size() > 1)
        return error(Errc::kState,
                     "SSDs of more than one failure domain do not serve, or are not filled yet");
    if (without.size() == domains.size()) return error(Errc::kState, "the array has no other failure domain");
    for (const Drive& drive : drives_)
        if (drive.slot != kNoSlot && drive.serves && !drive.knows_out)
            return error(Errc::kState,
                         "SSD {} is served by an older program, which does not know slots that are out",
                         drive.identity.serial);
    for (const auto& [id, record] : records_.volumes) {
        if ((record.flags & nvme::kVolumeDeleting) != 0) continue;
        if (record.geometry.replicas < 2)
            return error(Errc::kState, "volume '{}' has one replica, so its blocks exist nowhere else",
                         record.name);
        // Then two replicas of a chunk may be in one domain.
        if (slots_without > 1 && domains.size() < record.geometry.replicas)
            return error(Errc::kState,
                         "volume '{}' has {} replicas in {} failure domains, and several SSDs do not serve",
                         record.name, record.geometry.replicas, domains.size());
    }
    return {};
}

/// Of the grant that the SSD of a slot of the map may hold.
const GrantBound& Manager::bound_of(std::uint32_t slot) {
    if (const Drive* drive = drive_in(slot); drive != nullptr) return drive->grant;
    const Drive* older = older_in(slot);  // sent nothing since it was found to be older
    return older != nullptr ? older->grant : before_start_;
}

/// Takes all SSDs that are silent, and have no grant left, out of the map at once: they may be of one node.
bool Manager::take_out_silent() {
    out_trouble_.clear();
    if (!options_.takes_out) return false;
    const std::vector<std::uint32_t> silent = silent_slots();
    if (silent.empty()) return false;
    for (const std::uint32_t s : silent) {
        const Drive* drive = drive_in(s);
        const bool may_yet_serve = drive != nullptr && now_ms_ < drive->to_serve_ms;
        if (may_hold_grant(bound_of(s)) || may_yet_serve) return false;
    }
    Result<void> may = check_redundant(silent);
    if (may.ok()) may = check_version_left();
    if (!may.ok()) {
        out_trouble_ = fmt::format("slot {} stays in the map, so writes to its chunks fail: {}",
                                   fmt::join(silent, ", "), may.error().message);
        return false;
    }
    placement::ArrayMap map = records_.map;
    map.version += 1;
    for (const std::uint32_t s : silent) map.slots[s].state = SlotState::kOut;
    Change change;
    change.map = map;
    if (!commit(change).ok()) return false;
    log_warn("slot {} is out: its SSD does not answer, and writes go on without it (map {})",
             fmt::join(silent, ", "), map.version);
    follow_map();
    (void)activate_map().ok();  // if this fails, tick() retries it
    return true;
}

bool Manager::written_by_client() const {
    return std::ranges::any_of(records_.volumes,
                               [](const auto& volume) { return volume.second.writer != 0; });
}

/// Asks the SSDs that are out whether they are back. One is filled at a time. While a client holds a volume for
/// writing, an SSD waits: lanes do not reach it before Client::reclaim(), and writes that need it would fail
/// (replace_ssd() has it filled all the same).
void Manager::take_back_answering() {
    for (Drive& drive : drives_) {
        if (drive.out_slot == kNoSlot || !is_back(drive)) continue;
        drive.trouble = drive.not_back;
        if (rebuilding_slot() != kNoSlot || now_ms_ < drive.next_back_ms) continue;
        if (written_by_client()) {
            drive.trouble = fmt::format(
                "the SSD is back, and is filled when no volume is open for writing; 'gnstor ssd replace {}' "
                "has it filled now",
                drive.out_slot);
            continue;
        }
        (void)take_back(drive).ok();  // the SSD's own trouble says why not, or tick() retries it
        return;                       // the SSDs may be others now
    }
}

bool Manager::has_spare() const {
    return std::ranges::any_of(drives_, [](const Drive& drive) {
        return drive.slot == kNoSlot && drive.out_slot == kNoSlot && drive.older.empty();
    });
}

/// Gives a slot that has been out for long to a spare. Its SSD is *down* then, and comes back as an empty spare only. As
/// in take_back_answering(), not while a client holds a volume for writing.
void Manager::use_spares() {
    spare_trouble_.clear();
    for (std::uint32_t s = 0; s < records_.map.slot_count; ++s) {
        if (!is_out(s)) out_since_ms_.erase(s);
        if (is_out(s)) out_since_ms_.try_emplace(s, now_ms_);
    }
    if (options_.spare_after_ms == 0 || !has_spare()) return;
    for (const auto& [slot, since_ms] : out_since_ms_) {
        if (now_ms_ - since_ms < options_.spare_after_ms || now_ms_ < next_spare_ms_) continue;
        if (rebuilding_slot() != kNoSlot) return;  // one is filled at a time
        const std::string refused = fmt::format("slot {} is out, and no spare takes it by itself", slot);
        if (written_by_client()) {
            spare_trouble_ = fmt::format(
                "{} while a volume is open for writing; 'gnstor ssd replace {}' has a spare take it now",
                refused, slot);
            return;
        }
        // Not replace_ssd(): now_ms_ was read before tick() gave grants, and does not end their bounds.
        const Result<void> replaced = give_slot(slot);
        if (replaced.ok()) return;  // the slots may be others now
        next_spare_ms_ = now_ms_ + kGrantsUntilBackAgain * options_.grant_ms;
        spare_trouble_ = fmt::format("{}: {}", refused, replaced.error().message);
        return;
    }
}

/// Whether an SSD that is out answers, and its store is no older copy; its trouble says why not.
bool Manager::is_back(Drive& drive) {
    const Result<void> admitted = admit(drive);
    if (!admitted.ok()) drive.trouble = admitted.error().message;
    const Result<bool> back = admitted.ok() ? answers(drive) : Result<bool>(false);
    return back.ok() && *back;
}

/// The SSD of a slot that is out, if it answers now; null: there is none.
Manager::Drive* Manager::returning_to(std::uint32_t slot) {
    if (!is_out(slot)) return nullptr;
    for (Drive& drive : drives_)
        if (drive.out_slot == slot && is_back(drive)) return &drive;
    return nullptr;
}

/// Sends what the SSD could refuse, before the map is changed.
Result<void> Manager::prepare_back(Drive& drive) {
    GN_TRY(check_version_left());
    GN_TRY(follow_volumes(drive));
    for (const auto& [id, record] : records_.volumes) GN_TRY(send(drive, record));
    return tell_hosts(drive);
}

/// Gives an SSD that was out its slot again, as *rebuilding*.
Result<void> Manager::take_back(Drive& drive) {
    const std::uint32_t slot = drive.out_slot;
    // If it answers and yet does not take the map, writes to its chunks fail until it is out again.
    drive.next_back_ms = now_ms_ + kGrantsUntilBackAgain * options_.grant_ms;
    const SsdUuid uuid = drive.identity.uuid;
    const Result<void> ready = prepare_back(drive);
    for (Drive& same : drives_)  // a change that could not be stored may have changed drives_
        if (same.identity.uuid == uuid)
            same.trouble = same.not_back = ready.ok() ? std::string() : ready.error().message;
    GN_TRY(ready);
    placement::ArrayMap map = records_.map;
    map.version += 1;
    map.slots[slot].state = SlotState::kRebuilding;
    Change change;
    change.map = map;
    GN_TRY(commit(change));
    log_warn("slot {}: SSD {} is back, and is filled with what it missed (map {})", slot,
             drive.identity.serial, map.version);
    follow_map();
    return settle_replacement(slot);
}

/// Removes volumes that were deleted while the SSD was out, also where their VID lives again.
Result<void> Manager::follow_volumes(Drive& drive) {
    GN_ASSIGN(const SsdVolumes listed, drive.port->volume_list(records_.term));
    for (const nvme::VolumeRecord& seen : listed.records) {
        const auto known = records_.volumes.find(seen.geometry.volume);
        const bool same_life =
            known != records_.volumes.end() && known->second.birth_epoch == seen.birth_epoch;
        // One whose deletion is pending is marked and purged with the other SSDs: a mark must be on each of
        // them before the first one purges.
        if (same_life) {
            GN_TRY(raise_above(seen));
            continue;
        }
        const Result<void> gone = remove_volume(drive, seen.geometry.volume);
        if (!gone.ok() && gone.error().code != Errc::kNotFound) return gone;
    }
    return {};
}

/// A change that was never in force may be on the SSD that was out alone, and be lost with the records. Epochs and
/// revisions do not go back: the volume gets higher ones.
Result<void> Manager::raise_above(const nvme::VolumeRecord& seen) {
    const nvme::VolumeId id = seen.geometry.volume;
    const nvme::VolumeRecord& known = records_.volumes.at(id);
    if (seen.revision < known.revision || std::memcmp(&seen, &known, sizeof known) == 0) return {};
    if (known.writer != 0) GN_TRY(close_epoch(id, ~0ull));
    GN_TRY(make_equal(id));
    nvme::VolumeRecord record = records_.volumes.at(id);
    record.revision = std::max(record.revision, seen.revision);
    record.epoch = std::max(record.epoch, seen.epoch) + 1;
    to_compare_.insert(id);
    return change_volume(record);
}

}  // namespace gnstor::daemon
