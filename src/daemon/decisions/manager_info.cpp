// manager_info.cpp: the Manager's state for people and monitoring (inspector.hpp).
#include "daemon/decisions/manager.hpp"

#include <algorithm>

namespace gnstor::daemon {

/// What an operator has to do about slots without an SSD, and may do with SSDs without a slot.
void Manager::add_slot_warnings(ArrayInfo& info) const {
    for (const std::uint32_t s : missing_slots())
        if (older_in(s) == nullptr)
            info.warnings.push_back(fmt::format(
                "the SSD of slot {} ({}) is missing: volumes can be read, not changed, until it is "
                "back or replaced",
                s, uuid_text(records_.map.slots[s].ssd_uuid)));
    if (!out_trouble_.empty()) info.warnings.push_back(out_trouble_);
    if (!spare_trouble_.empty()) info.warnings.push_back(spare_trouble_);
    for (const Drive& drive : drives_)
        if (drive.slot == kNoSlot && drive.out_slot == kNoSlot && drive.older.empty() && drive.listed)
            info.warnings.push_back(
                fmt::format("SSD {} is a spare: 'gnstor ssd replace' gives it the slot of a lost SSD",
                            drive.identity.serial));
}

SsdInfo Manager::info_of(const Drive& drive) const {
    SsdInfo ssd;
    std::uint8_t uuid[16];
    std::copy(drive.identity.uuid.begin(), drive.identity.uuid.end(), uuid);
    ssd.slot = !drive.older.empty()        ? drive.older_slot
               : drive.out_slot != kNoSlot ? drive.out_slot
                                           : drive.slot;
    ssd.state = !drive.older.empty()        ? "stale"
                : drive.out_slot != kNoSlot ? "out"
                : drive.slot == kNoSlot
                    ? "spare"
                    : kSlotStateNames[static_cast<std::size_t>(records_.map.slots[drive.slot].state)];
    ssd.uuid = uuid_text(uuid);
    ssd.serial = drive.identity.serial;
    ssd.nic_address = drive.identity.nic_address;
    ssd.service = drive.identity.service;
    ssd.subsystem_nqn = drive.identity.subsystem_nqn;
    ssd.capacity_blocks = drive.identity.capacity_blocks;
    ssd.trouble = drive.trouble;
    for (const auto& [volume, why] : drive.refused)
        if (ssd.trouble.empty() && records_.volumes.contains(volume))
            ssd.trouble = fmt::format("it refuses the record of volume '{}': {}",
                                      records_.volumes.at(volume).name, why);
    ssd.serves = drive.slot != kNoSlot && drive.serves && may_hold_grant(drive.grant) &&
                 !drive.port->is_disconnected();
    if (ssd.slot != kNoSlot) ssd.domain = records_.map.slots[ssd.slot].domain;
    return ssd;
}

ArrayInfo Manager::info(std::uint64_t now_ms) const {
    ArrayInfo info;
    info.term = records_.term;
    info.map_version = records_.map.version;
    info.map_in_force = map_in_force_;
    info.superseded = superseded_;
    info.read_only = read_only();
    info.warnings = report_.warnings;
    add_slot_warnings(info);
    for (const Drive& drive : drives_) {
        SsdInfo ssd = info_of(drive);
        if (drive.slot != kNoSlot) info.capacity_blocks += ssd.capacity_blocks;
        info.ssds.push_back(std::move(ssd));
    }
    for (std::uint32_t s = 0; s < records_.map.slot_count; ++s) {
        const placement::Slot& slot = records_.map.slots[s];
        const bool here = std::any_of(drives_.begin(), drives_.end(),
                                      [s](const Drive& d) { return d.slot == s || d.out_slot == s; }) ||
                          older_in(s) != nullptr;
        if (slot.state == placement::SlotState::kEmpty || here) continue;
        SsdInfo missing;
        missing.slot = s;
        missing.domain = slot.domain;
        missing.state = is_out(s) ? "out" : "missing";
        missing.uuid = uuid_text(slot.ssd_uuid);
        missing.trouble = "the SSD was not found when gnstord started";
        info.ssds.push_back(std::move(missing));
    }
    std::sort(info.ssds.begin(), info.ssds.end(),
              [](const SsdInfo& a, const SsdInfo& b) { return a.slot < b.slot; });
    for (const auto& [id, record] : records_.volumes) {
        const Live& live = live_.at(id);
        info.volumes += listed(record) ? 1 : 0;
        if (listed(record))
            info.listed_volumes.push_back({record.name, record.geometry.replicas, id, record.owner_name,
                                           record.geometry.capacity_blocks, record.byte_length,
                                           live.ranges_left});
        info.provisioned_blocks += record.geometry.capacity_blocks * record.geometry.replicas;
        info.pending_changes += live.in_force ? 0 : 1;
        if (record.writer == 0) continue;
        const auto client = records_.clients.find(record.writer);
        info.leases.push_back(LeaseInfo{
            id, record.name, record.writer, client == records_.clients.end() ? "" : client->second.name,
            record.epoch, live.lease_end_ms > now_ms ? live.lease_end_ms - now_ms : 0});
    }
    for (const auto& [id, client] : records_.clients)
        info.clients.push_back({{identity_of(id)}, client.generation, client.removed});
    info.pending_changes += hosts_in_force() ? 0 : 1;
    info.rebuild = rebuild_info();
    info.scrub = scrub_.info(records_.volumes, now_ms);
    return info;
}

}  // namespace gnstor::daemon
