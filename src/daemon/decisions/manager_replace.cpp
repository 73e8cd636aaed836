// manager_replace.cpp: gives the slot of an SSD that is lost to a spare, and has the spare filled from the other
// replicas. docs/array.md, rules 2, 10 and 12.
//
// Two changes of the map: the slot names the spare and is *rebuilding*; when every range is copied it is *in*. Both are
// stored and put in force like any other change, so a daemon that starts in between continues: the copy begins again,
// and finds most blocks equal.
#include "daemon/decisions/manager.hpp"

#include <gnstor/base/log.hpp>
#include <gnstor/nvme/fencing.hpp>

#include <algorithm>
#include <set>

namespace gnstor::daemon {

/// Asks an SSD by GRANT ASK, which changes nothing there. One that does not answer is noted as not serving. kState: this
/// daemon was superseded.
Result<bool> Manager::answers(Drive& drive) {
    const Result<std::uint32_t> answer = drive.port->grant_ask(records_.term);
    if (answer.ok()) return true;
    note_superseded(answer.error());
    if (!superseded_.empty()) return error(Errc::kState, "{}", superseded_);
    drive.serves = false;
    drive.trouble = answer.error().message;
    return false;
}

/// The SSD of the slot serves no more: it was not found at the start, or has no grant left and does not answer.
Result<void> Manager::check_lost(std::uint32_t slot) {
    if (slot >= records_.map.slot_count || records_.map.slots[slot].state == placement::SlotState::kEmpty)
        return error(Errc::kNotFound, "the array has no slot {}; 'gnstor ssd list' shows its slots", slot);
    if (is_out(slot)) return {};  // its grant had ended before, and it gets none
    if (Drive* drive = drive_in(slot); drive != nullptr && drive->serves) {
        GN_ASSIGN(const bool serves, answers(*drive));  // it took its last grant, which may be seconds ago
        if (serves)
            return error(
                Errc::kState,
                "SSD {} of slot {} serves: only an SSD that is lost can be replaced; stop its node first",
                drive->identity.serial, slot);
    }
    const GrantBound& bound = bound_of(slot);
    if (may_hold_grant(bound))
        return error(Errc::kBusy,
                     "the SSD of slot {} may still serve, as its grant has not ended; try again in {} s",
                     slot, bound.open ? options_.grant_ms / 1000 + 1 : (bound.ends_ms - now_ms_) / 1000 + 1);
    return {};
}

/// Every block of the slot has another replica that is *in*, on an SSD that serves.
Result<void> Manager::check_donors(std::uint32_t slot) {
    for (std::uint32_t s = 0; s < records_.map.slot_count; ++s) {
        const placement::SlotState state = records_.map.slots[s].state;
        if (s == slot || state == placement::SlotState::kEmpty) continue;
        Drive* other = drive_in(s);
        if (is_out(s)) {  // of the same node, as a rule
            GN_TRY(check_redundant({slot}));
            continue;
        }
        if (state != placement::SlotState::kIn)
            return error(Errc::kState, "slot {} is being filled; wait until that ends, then replace slot {}",
                         s, slot);
        bool serves = other != nullptr && other->serves;
        if (serves) {
            GN_ASSIGN(serves, answers(*other));  // it took its last grant, which may be seconds ago
        }
        if (!serves)
            return error(Errc::kIo,
                         "the SSD of slot {} does not serve either, and the other replicas of what slot {} "
                         "held may be on it; bring it back first",
                         s, slot);
    }
    for (const auto& [id, record] : records_.volumes)
        if (record.geometry.replicas < 2 && (record.flags & nvme::kVolumeDeleting) == 0)
            return error(
                Errc::kState,
                "volume '{}' has one replica, so its blocks on slot {} exist nowhere else; bring back "
                "the SSD of the slot",
                record.name, slot);
    return {};
}

/// Least blocks that an SSD in this slot must hold. A weight is a share of one capacity, rounded down, and an SSD holds at
/// least what its slot needs: capacity / (w + 1) of the other SSDs bounds that share, and the smallest is the closest.
std::uint64_t Manager::blocks_for(std::uint32_t slot) const {
    std::uint64_t least = ~std::uint64_t{0};
    for (const Drive& drive : drives_)
        if (drive.slot != kNoSlot && drive.slot != slot)
            least = std::min(least, drive.identity.capacity_blocks * records_.map.slots[slot].weight /
                                        (records_.map.slots[drive.slot].weight + 1));
    return least == ~std::uint64_t{0} ? 0 : least;
}

/// Whether the SSD may fill the slot; the error says why not.
Result<void> Manager::check_spare(Drive& spare, std::uint32_t slot) {
    const std::string& serial = spare.identity.serial;
    if (spare.identity.capacity_blocks < blocks_for(slot))
        return error(Errc::kNoSpace, "SSD {} is too small: it holds {} blocks, and the slot needs {}", serial,
                     spare.identity.capacity_blocks, blocks_for(slot));
    GN_TRY(check_domain(spare, slot));
    GN_ASSIGN(const SsdVolumes listed, spare.port->volume_list(records_.term));
    if (!listed.records.empty() || listed.highest_deleted_epoch != 0 || listed.newest_map.version != 0)
        return error(
            Errc::kState,
            "SSD {} is not empty: it has been part of an array; format it ('gnstor ssd format') to use it "
            "as a spare",
            serial);
    if (!spare.port->keeps_terms())
        return error(Errc::kState, "SSD {} is write protected, so it cannot be filled", serial);
    return {};
}

/// Two failure domains may be on one node only if they are so now, as in an array of one node. The address of a lost SSD
/// that was not found at the start is unknown.
Result<void> Manager::check_domain(const Drive& spare, std::uint32_t slot) {
    std::set<std::string> nodes;
    for (const Drive& lost : drives_)
        if (lost.slot == slot || lost.out_slot == slot || lost.older_slot == slot)
            nodes.insert(lost.identity.nic_address);
    const Drive* same_node = nullptr;  // of another domain than the slot's
    for (const Drive& other : drives_) {
        if (other.slot == kNoSlot || other.slot == slot) continue;
        const std::uint16_t domain = records_.map.slots[other.slot].domain;
        for (const Drive& more : drives_)
            if (more.slot != kNoSlot && more.identity.nic_address == other.identity.nic_address &&
                records_.map.slots[more.slot].domain != domain)
                return {};
        nodes.insert(other.identity.nic_address);
        if (other.identity.nic_address == spare.identity.nic_address &&
            domain != records_.map.slots[slot].domain)
            same_node = &other;
    }
    if (same_node == nullptr || nodes.size() < 2) return {};
    return error(
        Errc::kState,
        "SSD {} is on the node of slot {}, which is another failure domain than slot {}: two replicas of a "
        "block could be on one node",
        spare.identity.serial, same_node->slot, slot);
}

/// This map's two versions must lie below those that a daemon without records would begin with after its next start.
Result<void> Manager::check_version_left() const {
    const std::uint64_t next_range = (records_.term + 1) << nvme::kVersionsPerTermShift;
    if (std::uint64_t{records_.map.version} + 2 < next_range) return {};
    return error(Errc::kNoSpace, "this gnstord has used up its map versions; restart it, and try again");
}

Error Manager::no_spare(std::uint32_t slot) const {
    // Of these slots the SSD may be sound.
    if (records_.map.slots[slot].state == placement::SlotState::kRebuilding)
        return error(Errc::kNotFound,
                     "slot {} is being filled, and its SSD does not answer: start its node. If this SSD is "
                     "lost, too, put an empty one ('gnstor ssd format') in its place, and start its node",
                     slot);
    if (is_out(slot))
        return error(Errc::kNotFound,
                     "slot {} is out, and neither its SSD answers nor is there a spare: start its node. If "
                     "its data is lost, put an empty SSD ('gnstor ssd format') in its place, and start its "
                     "node",
                     slot);
    return error(Errc::kNotFound,
                 "there is no spare: an SSD without a slot. Put an empty SSD ('gnstor ssd format') in place "
                 "of the lost one, and start its node");
}

Result<void> Manager::replace_ssd(std::uint32_t slot, std::uint64_t now_ms) {
    observe_time(now_ms);
    return give_slot(slot);
}

Result<void> Manager::give_slot(std::uint32_t slot) {
    GN_TRY(sure());
    if (Drive* filling = drive_in(slot); filling != nullptr && slot == rebuilding_slot()) {
        GN_ASSIGN(const bool goes_on, answers(*filling));
        if (goes_on) return ask_again(slot);
    }
    if (Drive* back = returning_to(slot); back != nullptr) {
        if (const std::uint32_t other = rebuilding_slot(); other != kNoSlot)
            return error(Errc::kState,
                         "slot {} is being filled; wait until that ends, then try slot {} again", other,
                         slot);
        return take_back(*back);
    }
    GN_TRY(check_lost(slot));
    GN_TRY(check_donors(slot));
    GN_TRY(check_version_left());
    const Drive* spare = nullptr;
    Result<void> why = no_spare(slot);
    for (Drive& drive : drives_) {
        if (drive.slot != kNoSlot || drive.out_slot != kNoSlot || !drive.older.empty()) continue;
        why = check_spare(drive, slot);
        if (!why.ok()) continue;
        spare = &drive;
        break;
    }
    if (spare == nullptr) return why;
    placement::ArrayMap map = records_.map;
    map.version += 1;
    map.slots[slot].state = placement::SlotState::kRebuilding;
    std::copy(spare->identity.uuid.begin(), spare->identity.uuid.end(), map.slots[slot].ssd_uuid);
    Change change;
    change.map = map;
    GN_TRY(commit(change));
    log_warn("slot {}: SSD {} takes the place of a lost one and is filled from the other replicas (map {})",
             slot, spare->identity.serial, map.version);
    follow_map();
    return settle_replacement(slot);
}

/// The SSD that is to fill the slot answers already.
Result<void> Manager::ask_again(std::uint32_t slot) {
    GN_TRY(settle_replacement(slot));
    const Drive* filling = drive_in(slot);
    if (filling == nullptr || filling->serves || filling->trouble.empty()) return {};
    return error(Errc::kState,
                 "SSD {} takes the place of a lost one, and has not taken the map: {}; if that lasts, stop "
                 "its node, and have slot {} replaced again",
                 filling->identity.serial, filling->trouble, slot);
}

/// After another map came into the records: an SSD that has lost its slot is forgotten; one that has got a
/// slot, or got it again, is sent every volume.
void Manager::follow_map() {
    std::set<SsdUuid> known, served;
    for (const Drive& drive : drives_) {
        if (drive.slot != kNoSlot) served.insert(drive.identity.uuid);
        if (drive.slot != kNoSlot || drive.older_slot != kNoSlot || drive.out_slot != kNoSlot)
            known.insert(drive.identity.uuid);
    }
    (void)take_slots();
    std::erase_if(drives_, [&](const Drive& drive) {
        const bool lost = drive.slot == kNoSlot && drive.older_slot == kNoSlot && drive.out_slot == kNoSlot;
        if (lost && !drive.older.empty()) std::erase(report_.warnings, drive.older);
        return lost && known.contains(drive.identity.uuid);
    });
    for (Drive& drive : drives_) {
        if (drive.out_slot != kNoSlot) {
            drive.serves = false;
            drive.behind.clear();
            drive.refused.clear();
        }
        if (drive.slot == kNoSlot || served.contains(drive.identity.uuid)) continue;
        drive.to_serve_ms = now_ms_ + options_.grant_ms;
        for (const auto& [id, record] : records_.volumes) drive.behind.insert(id);
    }
    map_in_force_ = false;
    rebuild_.reset();
}

Result<void> Manager::settle_replacement(std::uint32_t slot) {
    if (told_ == records_.map.version) return {};
    if (Result<void> active = activate_map(); !active.ok() && told_ != records_.map.version)
        return pending_error(fmt::format("the replacement of the SSD of slot {}", slot), active.error());
    return {};
}

Result<void> Manager::add_spare(SsdPort& port, std::uint64_t now_ms) {
    observe_time(now_ms);
    GN_TRY(sure());
    Drive drive{&port, port.identity()};
    const std::string& serial = drive.identity.serial;
    for (const Drive& other : drives_)
        if (other.identity.uuid == drive.identity.uuid)
            return error(Errc::kExists, "gnstord knows SSD {} already", serial);
    if (in_map(drive.identity.uuid) && !is_out(drive.identity.uuid))
        return error(Errc::kState,
                     "SSD {} fills slot {}, but was missing when gnstord started; restart gnstord", serial,
                     slot_of(drive.identity.uuid));
    GN_ASSIGN(const SsdVolumes listed, port.volume_list(records_.term));
    if (listed.term > records_.term)
        return error(
            Errc::kState,
            "SSD {} has seen term {}, and this gnstord has term {}: the SSD belongs to another array; "
            "format it ('gnstor ssd format') to use it as a spare",
            serial, listed.term, records_.term);
    drive.listed = true;
    drive.admitted = true;
    drive.known = listed.term != 0;
    drive.knows_out = listed.knows_out;
    if (is_out(drive.identity.uuid)) {
        drive.out_slot = slot_of(drive.identity.uuid);
        check_age(drive, listed.term);
    } else {
        log_info("SSD {} is a spare", serial);
    }
    drives_.push_back(std::move(drive));
    return {};
}

std::uint32_t Manager::rebuilding_slot() const {
    for (std::uint32_t s = 0; s < records_.map.slot_count; ++s)
        if (records_.map.slots[s].state == placement::SlotState::kRebuilding) return s;
    return kNoSlot;
}

std::optional<RebuildInfo> Manager::rebuild_info() const {
    const std::uint32_t slot = rebuilding_slot();
    if (slot == kNoSlot) return std::nullopt;
    if (!rebuild_) return RebuildInfo{slot};
    const RebuildProgress& p = rebuild_->progress();
    return RebuildInfo{slot, p.blocks_total, p.blocks_done, rebuild_->stuck().size(),
                       nvme::ok(p.refusal) ? "" : nvme::status_name(p.refusal)};
}

bool Manager::rebuild_some(std::uint32_t commands) {
    const std::uint32_t slot = rebuilding_slot();
    const bool may = superseded_.empty() && read_only_.empty() && !unsure_;
    if (slot == kNoSlot || !may || told_ != records_.map.version) return false;
    if (!rebuild_ || rebuild_->version() != records_.map.version) {
        std::vector<nvme::VolumeRecord> volumes;
        // One whose creation is not in force yet was never written; once it is, every write reaches this slot.
        for (const auto& [id, record] : records_.volumes)
            if ((record.flags & nvme::kVolumeDeleting) == 0 && !records_.creating.contains(id))
                volumes.push_back(record);
        rebuild_.emplace(records_.map, slot, volumes);
        filled_term_ = 0;
    }
    SsdCopyPort port = copy_port();
    rebuild_->drop_if([&](nvme::VolumeId id, nvme::Epoch birth) {
        const auto record = records_.volumes.find(id);
        return record == records_.volumes.end() || record->second.birth_epoch != birth ||
               (record->second.flags & nvme::kVolumeDeleting) != 0;
    });
    for (std::uint32_t i = 0; i < commands; ++i) {
        const Rebuild::Step step = rebuild_->step(port);
        if (step == Rebuild::Step::kWaits) return false;
        if (step == Rebuild::Step::kDone) {
            end_rebuild(slot);
            return false;
        }
    }
    return true;
}

/// A copy of the SSD's store that was taken before it was filled must be known as older (manager_older_ssd.cpp): so
/// the SSD stores a term that none of these copies has, and the change to *in* records it. As long as the SSD has not
/// taken the term, or a change cannot be stored, the rebuild stays, and this is called again.
void Manager::end_rebuild(std::uint32_t slot) {
    if (filled_term_ == 0) {
        const std::uint64_t before = records_.term;
        if (records_.term < nvme::kTermOfDriveMost) {
            raise_term();
            if (records_.term == before) return;
        }
        filled_term_ = records_.term;
        (void)activate_map().ok();  // if this fails, tick() retries it
    }
    const Drive* filled = drive_in(slot);
    if (!rebuild_ ||  // the SSD has reconnected: the copy begins again
        filled == nullptr || filled->taken != records_.term)
        return;
    placement::ArrayMap map = records_.map;
    map.version += 1;
    map.slots[slot].state = placement::SlotState::kIn;
    Change change;
    change.map = map;
    put_taken(change);
    if (!commit(change).ok()) return;
    const RebuildProgress p = rebuild_->progress();
    log_warn("slot {} is filled: {} of {} blocks were copied (map {})", slot, p.blocks_copied, p.blocks_total,
             map.version);
    rebuild_.reset();
    (void)activate_map().ok();  // if this fails, tick() retries it
}

}  // namespace gnstor::daemon
