#include "deengine/front/vendor_commands.hpp"

#include <gnstor/nvme/copy.hpp>
#include <gnstor/nvme/fencing.hpp>

#include "deengine/front/shard_port.hpp"

#include <algorithm>
#include <cstring>

namespace gnstor::deengine {
namespace {

using nvme::AdminOpcode;
using nvme::Status;

constexpr std::uint32_t kNoSlot = 0xFFFFFFFFu;

std::uint64_t two_dwords(std::uint32_t low, std::uint32_t high) {
    return low | (std::uint64_t{high} << 32);
}

std::uint64_t term_of(const nvme::Command& command) {
    return two_dwords(command.cdw14, command.cdw15);
}

bool is_zero(std::span<const std::byte> bytes) {
    return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

/// Copies a payload before it is checked: its sender may still change the memory.
template <class T>
Status copy_payload(std::span<const std::byte> data, T& out) {
    if (data.size() != sizeof(T)) return Status::kDataSglLengthInvalid;
    std::memcpy(&out, data.data(), sizeof(T));
    return Status::kSuccess;
}

}  // namespace

Status VendorCommands::run(const nvme::Command& command, Requester from, std::span<std::byte> data,
                           std::uint64_t now_ns, std::uint32_t& dw0) {
    const auto opcode = static_cast<AdminOpcode>(command.opcode);
    if (opcode == nvme::kGrantAsk) return grant_ask(command, from, now_ns, dw0);
    switch (opcode) {
        case AdminOpcode::kVolumeAdd:
        case AdminOpcode::kVolumeChmod:
        case AdminOpcode::kVolumeDelete:
        case AdminOpcode::kVolumeList:
        case AdminOpcode::kMapSet:
        case AdminOpcode::kMapGet:
            break;
        case AdminOpcode::kFloor:
            return floor(command, from, dw0);
        default:
            return Status::kInvalidOpcode;
    }
    if (!from.privileged) return Status::kAccessDenied;
    if (opcode == AdminOpcode::kVolumeList) return volume_list(command, data, dw0);
    if (opcode == AdminOpcode::kMapGet) return map_get(data);
    const std::uint64_t term = term_of(command);
    if (const Status s = check_term(term, dw0); !ok(s)) return s;
    switch (opcode) {
        case AdminOpcode::kVolumeDelete:
            return command.cdw10 > 0xFFFFu ? Status::kInvalidField
                                           : volume_delete(static_cast<nvme::VolumeId>(command.cdw10), term);
        case AdminOpcode::kMapSet:
            return map_set(command, data, now_ns, dw0);
        default:
            return volume_change(command, data);
    }
}

/// Changes nothing: the command that carries an accepted term stores it.
Status VendorCommands::check_term(std::uint64_t term, std::uint32_t& dw0) const {
    if (nvme::is_plausible_term(term, state_.now().term)) return Status::kSuccess;
    if (term < state_.now().term && options_.mutation == Mutation::kTermUnchecked) return Status::kSuccess;
    dw0 = static_cast<std::uint32_t>(state_.now().term);
    return term < state_.now().term ? Status::kStaleTerm : Status::kCommandSequenceError;
}

Status VendorCommands::check_term(const nvme::Command& command, std::uint32_t& dw0) const {
    return check_term(term_of(command), dw0);
}

Status VendorCommands::grant_ask(const nvme::Command& command, Requester from, std::uint64_t now_ns,
                                 std::uint32_t& dw0) {
    if (!from.privileged) return Status::kAccessDenied;
    if (const Status s = check_term(term_of(command), dw0); !ok(s)) return s;
    dw0 = active_map_.grant().ask(clocks_at(now_ns));
    return Status::kSuccess;
}

/// The wall clock as of the last observe().
GrantTime VendorCommands::clocks_at(std::uint64_t now_ns) const {
    return {now_ns, wall_ns_};
}

Status VendorCommands::volume_change(const nvme::Command& command, std::span<const std::byte> data) {
    nvme::VolumeRecord record;
    if (const Status s = copy_payload(data, record); !ok(s)) return s;
    FirmwareState next = state_.now();
    next.term = term_of(command);
    const bool add = static_cast<AdminOpcode>(command.opcode) == AdminOpcode::kVolumeAdd;
    const Status s =
        add ? next.permissions.add(record, options_.max_volumes, options_.mdts_blocks, options_.mutation)
            : next.permissions.chmod(record, options_.mdts_blocks);
    if (!ok(s)) return s;
    // The purge record of an earlier volume with this VID needs the journal, which an unsettled shard does
    // not write.
    if (add && unsettled_) return Status::kCapacityExceeded;
    if (!state_.fits(next)) return Status::kCapacityExceeded;
    if (!port_->settle()) return Status::kInternalError;
    const bool reborn = add && has_former_life(record);
    if (reborn && !port_->record_purge(record.geometry.volume)) return Status::kCapacityExceeded;
    if (!state_.replace(std::move(next))) return Status::kInternalError;
    if (reborn) end_former_life(record.geometry.volume);
    active_map_.forget();
    // The new epoch resolves all sequences of older epochs.
    port_->set_floor(record.geometry.volume, record.epoch, 0);
    return Status::kSuccess;
}

/// An earlier volume with this VID left blocks in doubt, or its purge record is not written yet.
bool VendorCommands::has_former_life(const nvme::VolumeRecord& record) const {
    const auto doubt = in_doubt_.find(record.geometry.volume);
    const bool doubted = doubt != in_doubt_.end() && doubt->second < record.birth_epoch;
    return doubted || purges_due_.contains(record.geometry.volume);
}

/// Afterwards no doubt about the earlier volume can apply to the new one.
void VendorCommands::end_former_life(nvme::VolumeId vid) {
    port_->forget_volume(vid);
    in_doubt_.erase(vid);
    purges_due_.erase(vid);
}

Status VendorCommands::volume_delete(nvme::VolumeId vid, std::uint64_t term) {
    FirmwareState next = state_.now();
    next.term = term;
    if (const Status s = next.permissions.remove(vid); !ok(s)) return s;
    if (!port_->settle()) return Status::kInternalError;
    // From here on a mount drops the volume's pages: its record is gone, and a later volume with this VID
    // begins above its last epoch.
    if (!state_.replace(std::move(next))) return Status::kInternalError;
    active_map_.forget();
    if (!port_->purge(vid)) purges_due_.insert(vid);
    return Status::kSuccess;
}

Status VendorCommands::volume_list(const nvme::Command& command, std::span<std::byte> data,
                                   std::uint32_t& dw0) const {
    const std::uint32_t bytes = command.cdw11;
    if (bytes > data.size()) return Status::kDataSglLengthInvalid;
    if (bytes < sizeof(nvme::VolumeListHeader)) return Status::kInvalidField;
    std::memset(data.data(), 0, data.size());  // the whole buffer is sent: clear what an earlier use left
    const auto volumes = state_.now().permissions.volumes();
    const std::size_t first = std::min<std::size_t>(command.cdw10, volumes.size());
    const std::size_t room = (bytes - sizeof(nvme::VolumeListHeader)) / sizeof(nvme::VolumeRecord);
    const std::size_t count = std::min(room, volumes.size() - first);
    const std::uint32_t slot = state_.now().newest_slot;
    const bool lacks_blocks = state_.now().newest_map.version != 0 && slot < placement::kMaxSlots &&
                              state_.now().newest_map.slots[slot].state != placement::SlotState::kIn;
    const nvme::VolumeListHeader header{
        static_cast<std::uint32_t>(volumes.size()),
        static_cast<std::uint32_t>(count) | (lacks_blocks ? nvme::kListIncomplete : 0), state_.now().term};
    std::memcpy(data.data(), &header, sizeof(header));
    std::byte* to = data.data() + sizeof(header);
    for (std::size_t i = 0; i < count; ++i, to += sizeof(nvme::VolumeRecord))
        std::memcpy(to, &volumes[first + i].record, sizeof(nvme::VolumeRecord));
    for (const auto& [vid, last_epoch] : state_.now().permissions.deleted()) dw0 = std::max(dw0, last_epoch);
    return Status::kSuccess;
}

Status VendorCommands::map_get(std::span<std::byte> data) const {
    const nvme::MapSet newest{state_.now().newest_slot, 0, state_.now().newest_map};
    if (data.size() != sizeof(newest)) return Status::kDataSglLengthInvalid;
    std::memcpy(data.data(), &newest, sizeof(newest));
    return Status::kSuccess;
}

bool VendorCommands::is_valid_map(const nvme::MapSet& set) const {
    const placement::ArrayMap& map = set.map;
    if (map.version == 0 || map.slot_count == 0 || map.slot_count > placement::kMaxSlots) return false;
    for (std::uint32_t i = 0; i < placement::kMaxSlots; ++i) {
        const placement::Slot& slot = map.slots[i];
        if (i >= map.slot_count) {
            if (!is_zero(std::as_bytes(std::span(&slot, 1)))) return false;
            continue;
        }
        // A joining slot needs the placement rule of growth (docs/array.md, rule 14), which place() does not
        // know.
        if (slot.state > placement::kLastSlotState || slot.state == placement::SlotState::kJoining)
            return false;
        if (slot.reserved != 0 || slot.weight > 65535) return false;
        if (slot.state != placement::SlotState::kEmpty && slot.weight == 0) return false;
    }
    if (set.slot == kNoSlot) return true;
    // A drive that is out gets no map before it is rebuilding.
    return set.slot < map.slot_count && map.slots[set.slot].state != placement::SlotState::kOut &&
           std::memcmp(map.slots[set.slot].ssd_uuid, options_.ssd_uuid, sizeof(options_.ssd_uuid)) == 0;
}

/// Data is placed on slots: in another slot, this drive's blocks would be looked for elsewhere, and the
/// slot's own blocks would read as never written. A daemon that lost its records and got the stores in
/// another order would send such a map.
bool VendorCommands::moves_slot(const nvme::MapSet& set) const {
    if (state_.now().newest_map.version == 0 || state_.now().permissions.volumes().empty()) return false;
    return state_.now().newest_slot != kNoSlot && set.slot != kNoSlot && set.slot != state_.now().newest_slot;
}

Status VendorCommands::map_set(const nvme::Command& command, std::span<const std::byte> data,
                               std::uint64_t now_ns, std::uint32_t& dw0) {
    nvme::MapSet set;
    if (const Status s = copy_payload(data, set); !ok(s)) return s;
    if (!is_valid_map(set)) return Status::kInvalidField;
    if (options_.mutation == Mutation::kGrantNeverExpires) set.grant_ms = 0;
    const bool old_goes = options_.mutation == Mutation::kOldMapSetAccepted;
    if (set.map.version < state_.now().newest_map.version && !old_goes) {
        dw0 = state_.now().newest_map.version;
        return Status::kStaleMap;
    }
    if (set.map.version == state_.now().newest_map.version) {
        // Equal version, equal bytes: this renews the grant and nothing else.
        const bool same = set.slot == state_.now().newest_slot &&
                          std::memcmp(&set.map, &state_.now().newest_map, sizeof(set.map)) == 0;
        if (!same) return Status::kInvalidField;
    } else if (moves_slot(set)) {
        return Status::kWrongSsd;
    }
    Grant& grant = active_map_.grant();
    if (set.grant_ms != 0 && !grant.is_due(command.cdw10, set.grant_ms, clocks_at(now_ns)))
        return Status::kNotGranted;
    const std::uint64_t term = term_of(command);
    if (set.map.version != state_.now().newest_map.version || term != state_.now().term) {
        if (set.map.version != state_.now().newest_map.version && !port_->settle())
            return Status::kInternalError;
        FirmwareState next = state_.now();
        next.term = term;
        next.newest_map = set.map;
        next.newest_slot = set.slot;
        if (!state_.replace(std::move(next))) return Status::kInternalError;
    }
    active_map_.activate(set);
    set.grant_ms != 0 ? grant.begin(set.grant_ms) : grant.begin_without_end();
    return Status::kSuccess;
}

/// CDW10 VID, CDW11 epoch, CDW12-13 floor. From the daemon (with its term) or from the volume's writer (its
/// proxy knows no term). The shards log it.
Status VendorCommands::floor(const nvme::Command& command, Requester from, std::uint32_t& dw0) {
    if (from.privileged) {
        if (const Status s = check_term(term_of(command), dw0); !ok(s)) return s;
    }
    const Volume* volume = command.cdw10 <= 0xFFFFu
                               ? state_.now().permissions.find(static_cast<nvme::VolumeId>(command.cdw10))
                               : nullptr;
    if (!from.privileged && (volume == nullptr || !volume->may_write(from.client)))
        return Status::kAccessDenied;
    if (volume == nullptr) return Status::kNoSuchVolume;
    if (command.cdw11 < volume->record.epoch) return Status::kStaleEpoch;
    if (command.cdw11 > volume->record.epoch) return Status::kNotGranted;
    // Tells a writer that fills the table to send the next floor sooner.
    dw0 = static_cast<std::uint32_t>(std::min<std::uint64_t>(port_->counters().tombstones, ~0u));
    const std::uint64_t floor = two_dwords(command.cdw12, command.cdw13);
    // Whatever a writer has sent is below; that of a comparison is the daemon's, when the volume is closed.
    if (floor >= nvme::kFirstStamp && (!from.privileged || floor != nvme::kClosedFloor))
        return Status::kInvalidField;
    if (floor == nvme::kClosedFloor && volume->record.writer != 0) return Status::kStaleEpoch;
    // A crash may lose the floor of a writer, who sends the next one soon. That of a comparison is stored: what relies on it
    // happens once (docs/array.md, rule 11).
    const bool closes = from.privileged && floor == nvme::kClosedFloor && volume->floor != floor;
    const std::uint64_t term = term_of(command);
    if (closes || (from.privileged && term != state_.now().term)) {
        FirmwareState next = state_.now();
        next.term = from.privileged ? term : next.term;
        if (closes) next.permissions.find(static_cast<nvme::VolumeId>(command.cdw10))->floor = floor;
        if (!state_.replace(std::move(next))) return Status::kInternalError;
        volume = state_.now().permissions.find(static_cast<nvme::VolumeId>(command.cdw10));
    }
    if (floor < volume->floor) return Status::kSuccess;
    state_.raise_floor(volume->record.geometry.volume, floor);
    // Again if it is known here: a shard may have lost it by a crash.
    port_->set_floor(volume->record.geometry.volume, volume->record.epoch, floor);
    return Status::kSuccess;
}

}  // namespace gnstor::deengine
