// manager_volumes.cpp: the requests of clients: create, open, renew, release, share, delete.
#include "daemon/decisions/manager.hpp"

#include <gnstor/base/hash.hpp>

#include <algorithm>
#include <bit>
#include <cstring>

namespace gnstor::daemon {
namespace {

constexpr std::uint64_t kBlockBytes = 4096;
constexpr std::uint64_t kMaxCapacityBytes = 16ull << 40;
constexpr nvme::Epoch kLastEpoch = 0xFFFFFFF0u;  // leaves room to close the last opening

constexpr int kEpochAttempts = 16;  // doublings of the epoch floor

std::uint64_t blocks_of(const client::CreateVolume& request) {
    return (request.capacity_bytes + kBlockBytes - 1) / kBlockBytes;
}
std::uint8_t chunk_shift_of(const client::CreateVolume& request) {
    return static_cast<std::uint8_t>(std::countr_zero(request.chunk_bytes) - 12);
}

bool is_reader(const nvme::VolumeRecord& record, nvme::ClientId client) {
    return std::find(record.readers, record.readers + record.reader_count, client) !=
           record.readers + record.reader_count;
}

}  // namespace

bool may_write(const nvme::VolumeRecord& record, nvme::ClientId client) {
    return client == record.owner || (record.flags & nvme::kVolumeAnyWriter) != 0;
}

bool may_read(const nvme::VolumeRecord& record, nvme::ClientId client) {
    return may_write(record, client) || (record.flags & nvme::kVolumeWorldReadable) != 0 ||
           is_reader(record, client);
}

std::uint32_t Manager::slots_in_use() const {
    std::uint32_t used = 0;
    for (std::uint32_t s = 0; s < records_.map.slot_count; ++s)
        used += placement::takes_part(records_.map.slots[s]) ? 1 : 0;
    return used;
}

bool Manager::listed(const nvme::VolumeRecord& record) const {
    return !records_.creating.contains(record.geometry.volume) && (record.flags & nvme::kVolumeDeleting) == 0;
}

Result<nvme::VolumeRecord*> Manager::find(const std::string& name) {
    for (auto& [id, record] : records_.volumes)
        if (name == record.name) return &record;
    return error(Errc::kNotFound, "there is no volume '{}'; 'gnstor volume list' lists the volumes", name);
}

nvme::ClientId Manager::holder_of(const nvme::VolumeRecord& record) const {
    return record.writer != 0 ? record.writer : live_.at(record.geometry.volume).next_writer;
}

bool Manager::held_by_other(const nvme::VolumeRecord& record, nvme::ClientId client,
                            std::uint64_t now_ms) const {
    const nvme::ClientId holder = holder_of(record);
    return holder != 0 && holder != client && !is_removed(holder) &&
           now_ms < live_.at(record.geometry.volume).lease_end_ms;
}

Result<client::ArrayView> Manager::array() const {
    // A version that has been in force may be given out even if a drive no longer answers: the drive has
    // activated it durably and serves no older one, and a version always has the same bytes. This holds
    // across restarts of this daemon, so a client that connects while a drive is away reads from the others.
    // A version that was never in force is not given out: a drive may still serve, and acknowledge writes
    // under, the previous one (docs/array.md, rules 2, 4, 5).
    if (told_ != records_.map.version && records_.told != records_.map.version) {
        for (const Drive& drive : drives_)
            if (!drive.trouble.empty())
                return error(Errc::kBusy, "the array map is not in force yet: {}; ask again later",
                             drive.trouble);
        return error(Errc::kBusy, "the array map is not in force yet; ask again later");
    }
    client::ArrayView view;
    view.map = records_.map;
    for (std::uint32_t s = 0; s < records_.map.slot_count; ++s)
        for (const Drive& drive : drives_) {
            if (drive.slot != s) continue;
            client::SsdAddress address{
                s, drive.identity.nic_address, drive.identity.service, drive.identity.subsystem_nqn, {}};
            std::copy(drive.identity.uuid.begin(), drive.identity.uuid.end(), address.uuid);
            view.ssds.push_back(std::move(address));
        }
    return view;
}

Result<void> Manager::check_create(const client::CreateVolume& request) const {
    GN_TRY(check_name("volume name", request.name));
    const auto& n = request.name;
    if (request.capacity_bytes == 0)
        return error(Errc::kInvalidArgument,
                     "volume '{}' cannot have a capacity of 0 bytes; give at least 4096", n);
    if (request.capacity_bytes > kMaxCapacityBytes)
        return error(Errc::kInvalidArgument,
                     "a capacity of {} bytes for volume '{}' is above the largest volume, 16 TiB ({})",
                     request.capacity_bytes, n, kMaxCapacityBytes);
    if (!std::has_single_bit(request.chunk_bytes) || request.chunk_bytes < kBlockBytes ||
        request.chunk_bytes > (1u << 20))
        return error(Errc::kInvalidArgument, "a chunk of {} bytes is not a power of two from 4096 to 1048576",
                     request.chunk_bytes);
    if (request.replicas == 0 || request.replicas > placement::kMaxReplicas)
        return error(Errc::kInvalidArgument, "{} replicas are not possible; choose 1 to {}", request.replicas,
                     placement::kMaxReplicas);
    if (request.replicas > slots_in_use())
        return error(Errc::kInvalidArgument, "{} replicas need as many SSDs, and this array has {}",
                     request.replicas, slots_in_use());
    return {};
}

Result<nvme::VolumeId> Manager::free_volume_id() const {
    // Prefers ids never used: a retired id should stay unused as long as possible.
    for (std::uint32_t id = 1; id <= 0xFFFF; ++id) {
        const auto v = static_cast<nvme::VolumeId>(id);
        if (!records_.volumes.contains(v) && !records_.retired.contains(v)) return v;
    }
    for (const auto& [id, epoch] : records_.retired)
        if (epoch < kLastEpoch) return id;
    return error(Errc::kNoSpace, "all 65535 volume ids are taken; delete a volume first");
}

Result<nvme::VolumeRecord> Manager::create_again(nvme::VolumeRecord there, nvme::ClientId client,
                                                 const client::CreateVolume& request) {
    const nvme::VolumeId id = there.geometry.volume;
    if ((there.flags & nvme::kVolumeDeleting) != 0)
        return error(Errc::kBusy, "a volume '{}' is still being deleted; try again later", request.name);
    const bool same = there.owner == client && there.revision == 1 &&
                      there.geometry.capacity_blocks == blocks_of(request) &&
                      there.geometry.chunk_shift == chunk_shift_of(request) &&
                      there.geometry.replicas == request.replicas;
    if (!records_.creating.contains(id) || !same)
        return error(Errc::kExists, "there is a volume '{}' already (of {}); choose another name",
                     request.name, client_name(there.owner));
    // The same request again after a failed activation: continue where it stopped.
    if (Result<void> active = activate(id); !active.ok()) {
        undo_creation(id, active.error().code);
        return pending_error(fmt::format("the creation of volume '{}'", request.name), active.error());
    }
    return records_.volumes.at(id);
}

Result<nvme::VolumeRecord> Manager::new_record(nvme::ClientId owner,
                                               const client::CreateVolume& request) const {
    const std::string& owner_name = records_.clients.at(owner).name;
    if (owner_name.empty())
        return error(Errc::kPermission,
                     "client {} has no name since the records were rebuilt; register its name again", owner);
    GN_ASSIGN(const nvme::VolumeId id, free_volume_id());
    const auto retired = records_.retired.find(id);
    const nvme::Epoch below =
        std::max(records_.epoch_floor, retired == records_.retired.end() ? 0 : retired->second);
    if (below >= kLastEpoch)
        return error(Errc::kNoSpace,
                     "the epochs of volumes are used up (the newest is {}): volume '{}' "
                     "cannot be created in this array",
                     below, request.name);
    nvme::VolumeRecord record{};
    record.record_version = nvme::kVolumeRecordVersion;
    record.birth_epoch = below + 1;
    record.epoch = record.birth_epoch;
    record.geometry.volume = id;
    record.geometry.capacity_blocks = blocks_of(request);
    record.geometry.chunk_shift = chunk_shift_of(request);
    record.geometry.replicas = static_cast<std::uint8_t>(request.replicas);
    record.geometry.hash_factor =
        mix64(options_.seed ^ mix64((std::uint64_t{id} << 32) | record.birth_epoch));
    record.owner = owner;
    record.flags = request.any_writer ? nvme::kVolumeAnyWriter | nvme::kVolumeWorldReadable : 0u;
    std::memcpy(record.name, request.name.data(), request.name.size());
    std::memcpy(record.owner_name, owner_name.data(), owner_name.size());
    return record;
}

/// For changes that could not come into force before gnstord restarts, and would block others if they were
/// recorded.
Result<void> Manager::check_none_missing(const std::string& refused) {
    const std::vector<std::uint32_t> missing = missing_slots();
    if (missing.empty()) return {};
    return error(Errc::kState, "{}: {}; nothing was changed", refused,
                 missing_error(missing.front()).message);
}

Result<nvme::VolumeRecord> Manager::create_volume(nvme::ClientId client,
                                                  const client::CreateVolume& request) {
    GN_TRY(sure());
    GN_TRY(check_client(client));
    GN_TRY(check_create(request));
    if (Result<nvme::VolumeRecord*> taken = find(request.name); taken.ok()) {
        Result<nvme::VolumeRecord> there = create_again(*taken.value(), client, request);
        if (there.ok() || find(request.name).ok()) return there;
        // The interrupted creation could never come into force and was undone: begin a new one.
    }
    // Otherwise a rebuild could not tell a drive that no daemon has contacted from one that was inserted
    // later.
    for (const Drive& drive : drives_)
        if (drive.slot != kNoSlot && !drive.known)
            return error(Errc::kBusy,
                         "volume '{}' was not created: SSD {} has not taken the array's map yet{}{}; gnstord "
                         "sends the map again by itself, try again later",
                         request.name, drive.identity.serial, drive.trouble.empty() ? "" : ": ",
                         drive.trouble);
    GN_TRY(check_none_missing(fmt::format("volume '{}' was not created", request.name)));
    for (int attempt = 0;; ++attempt) {
        GN_ASSIGN(const nvme::VolumeRecord record, new_record(client, request));
        const nvme::VolumeId id = record.geometry.volume;
        live_[id] = Live{};
        live_[id].equal_epoch = record.epoch;  // nothing was ever written
        Result<void> made = change_volume(record);
        if (made.ok()) return records_.volumes.at(id);
        if (!records_.volumes.contains(id)) {  // not even stored
            live_.erase(id);
            return std::move(made).error();
        }
        const Errc refusal = made.error().code;
        if (!undo_creation(id, refusal)) return std::move(made).error();
        if (refusal == Errc::kNoSpace || attempt == kEpochAttempts || records_.volumes.contains(id))
            return error(refusal == Errc::kNoSpace ? Errc::kNoSpace : Errc::kBusy,
                         "volume '{}' was not created: {}", request.name, made.error().message);
        // The VID lived before the records were rebuilt, and reached an epoch above those that the rebuild
        // saw.
        Change higher;
        const std::uint64_t above =
            std::uint64_t{std::max(records_.epoch_floor, record.birth_epoch)} * 2 + 1024;
        higher.epoch_floor = static_cast<nvme::Epoch>(std::min<std::uint64_t>(above, kLastEpoch));
        GN_TRY(commit(higher));
    }
}

Result<client::OpenedVolume> Manager::open_volume(nvme::ClientId client, const std::string& name,
                                                  client::OpenMode mode, std::uint64_t now_ms) {
    now_ms_ = std::max(now_ms_, now_ms);
    GN_TRY(sure());
    GN_TRY(check_client(client));
    GN_ASSIGN(nvme::VolumeRecord* const found, find(name));
    nvme::VolumeRecord record = *found;
    const nvme::VolumeId id = record.geometry.volume;
    if ((record.flags & nvme::kVolumeDeleting) != 0)
        return error(Errc::kNotFound, "volume '{}' is being deleted", name);
    if (!may_read(record, client))
        return error(Errc::kPermission,
                     "volume '{}' belongs to {} and is not shared with {}; its owner can share it", name,
                     client_name(record.owner), client_name(client));
    if (mode == client::OpenMode::kRead) {
        // Reading waits for no absent drive: after any change, each replica that serves holds all
        // acknowledged data (docs/array.md, rules 5 and 9). Only a volume that was never in force is refused,
        // because it may vanish.
        if (!live_[id].in_force) {
            const Result<void> active = activate(id);
            if (!active.ok() && (records_.creating.contains(id) || !superseded_.empty()))
                return pending_error(fmt::format("the last change of volume '{}'", name), active.error());
        }
        return client::OpenedVolume{record, mode, 0};
    }
    if (!may_write(record, client))
        return error(Errc::kPermission,
                     "volume '{}' is shared with {} for reading only; only its owner, {}, may write it", name,
                     client_name(client), client_name(record.owner));
    if (held_by_other(record, client, now_ms))
        return error(
            Errc::kBusy,
            "volume '{}' is open for writing by {}, whose lease lasts another {} s unless it is renewed",
            name, client_name(holder_of(record)), (live_[id].lease_end_ms - now_ms + 999) / 1000);
    if (record.epoch >= kLastEpoch)
        return error(Errc::kNoSpace, "volume '{}' has used up its epochs; copy it to a new volume", name);
    if (record.writer != 0) GN_TRY(close_for(id, client, now_ms));
    GN_TRY(make_equal(id));
    record = records_.volumes.at(id);
    // The higher epoch protects the new opening from an older one, even of the same client (docs/array.md,
    // rule 6).
    record.epoch += 1;
    record.writer = client;
    to_compare_.erase(id);
    Result<void> changed = change_volume(record);
    // Once stored, the lease belongs to this client, confirmed or not: no other client may write before it
    // ends. (A creation that was undone meanwhile has no record any more.)
    const auto stored = records_.volumes.find(id);
    if (stored != records_.volumes.end() && stored->second.epoch == record.epoch)
        live_[id].lease_end_ms = now_ms + options_.lease_ms;
    if (!changed.ok()) return std::move(changed).error();
    return client::OpenedVolume{stored->second, mode, options_.lease_ms};
}

Result<std::uint64_t> Manager::renew_lease(nvme::ClientId client, nvme::VolumeId volume, nvme::Epoch epoch,
                                           std::uint64_t now_ms) {
    if (!superseded_.empty()) return error(Errc::kState, "{}", superseded_);
    if (is_removed(client)) return check_client(client).error();
    const auto found = records_.volumes.find(volume);
    if (found == records_.volumes.end())
        return error(Errc::kNotFound, "there is no volume with VID {}", volume);
    const nvme::VolumeRecord& record = found->second;
    if (record.writer != client || client == 0 || record.epoch != epoch)
        return error(
            Errc::kState,
            "epoch {} of volume '{}' is closed: the lease ended or another opening followed; open it again",
            epoch, record.name);
    Live& live = live_[volume];
    if (now_ms >= live.lease_end_ms)
        return error(Errc::kState, "the lease of {} on volume '{}' ended {} ms ago; open it again",
                     client_name(client), record.name, now_ms - live.lease_end_ms);
    live.lease_end_ms = now_ms + options_.lease_ms;
    return options_.lease_ms;
}

Result<void> Manager::release_volume(nvme::ClientId client, nvme::VolumeId volume, nvme::Epoch epoch,
                                     std::uint64_t byte_length) {
    GN_TRY(sure());
    GN_TRY(check_client(client));
    const auto found = records_.volumes.find(volume);
    if (found == records_.volumes.end())
        return error(Errc::kNotFound, "there is no volume with VID {}", volume);
    const nvme::VolumeRecord record = found->second;  // a copy: records_ may be replaced by reload()
    if (record.writer == client && record.epoch == epoch) {
        if (byte_length != ~0ull && byte_length > record.geometry.capacity_blocks * kBlockBytes)
            return error(Errc::kInvalidArgument,
                         "a length of {} bytes is above the capacity of volume '{}', {}", byte_length,
                         record.name, record.geometry.capacity_blocks * kBlockBytes);
        return close_epoch(volume, byte_length);
    }
    if (!may_write(record, client))
        return error(Errc::kPermission, "volume '{}' belongs to {}; {} cannot have had it open for writing",
                     record.name, client_name(record.owner), client_name(client));
    // A repeated release, after a lost answer or a failed activation.
    const bool again = record.writer == 0 && record.epoch == epoch &&
                       (byte_length == ~0ull || byte_length == record.byte_length);
    if (again && live_[volume].next_writer == client) live_[volume].next_writer = 0;
    if (again && !live_[volume].in_force) {
        Result<void> active = activate(volume);
        if (!active.ok())
            return pending_error(fmt::format("the release of volume '{}'", record.name), active.error());
    }
    if (again) return {};
    // A closed epoch that this client may have had: nothing is left to release.
    if (epoch < record.birth_epoch || epoch > record.epoch || (epoch == record.epoch && record.writer != 0))
        return error(Errc::kState,
                     "epoch {} of volume '{}' cannot be released by {}: it is closed, belongs to another "
                     "client, or was never opened",
                     epoch, record.name, client_name(client));
    if (byte_length == ~0ull) return {};
    return error(
        Errc::kState,
        "the length of volume '{}' was not recorded: epoch {} is closed, its lease ended or another opening "
        "followed",
        record.name, epoch);
}

Result<void> Manager::share_volume(nvme::ClientId owner, const std::string& name, nvme::ClientId reader) {
    GN_TRY(sure());
    GN_TRY(check_client(owner));
    GN_ASSIGN(nvme::VolumeRecord* const found, find(name));
    nvme::VolumeRecord record = *found;
    if (record.owner != owner)
        return error(Errc::kPermission, "only the owner of volume '{}', {}, may share it", name,
                     client_name(record.owner));
    if ((record.flags & nvme::kVolumeDeleting) != 0)
        return error(Errc::kNotFound, "volume '{}' is being deleted", name);
    if (reader != 0 && (!records_.clients.contains(reader) || is_removed(reader)))
        return error(Errc::kNotFound, "{} {}; add it before sharing volume '{}' with it", client_name(reader),
                     is_removed(reader) ? "was removed" : "is not registered", name);
    const bool there = reader == 0 ? (record.flags & nvme::kVolumeWorldReadable) != 0
                                   : reader == record.owner || is_reader(record, reader);
    if (there) {
        if (live_[record.geometry.volume].in_force) return {};
        Result<void> active = activate(record.geometry.volume);
        if (!active.ok())
            return pending_error(fmt::format("the sharing of volume '{}'", name), active.error());
        return {};
    }
    if (reader == 0) {
        record.flags |= nvme::kVolumeWorldReadable;
    } else {
        if (record.reader_count >= nvme::kMaxReaders)
            return error(Errc::kNoSpace,
                         "volume '{}' is shared with {} clients, which is the maximum; share it with all "
                         "clients instead",
                         name, record.reader_count);
        record.readers[record.reader_count++] = reader;
    }
    return change_volume(record);
}

Result<void> Manager::delete_volume(nvme::ClientId owner, const std::string& name, std::uint64_t now_ms) {
    GN_TRY(sure());
    GN_TRY(check_client(owner));
    GN_ASSIGN(nvme::VolumeRecord* const found, find(name));
    nvme::VolumeRecord record = *found;
    const nvme::VolumeId id = record.geometry.volume;
    if (record.owner != owner)
        return error(Errc::kPermission, "only the owner of volume '{}', {}, may delete it", name,
                     client_name(record.owner));
    if (held_by_other(record, owner, now_ms))
        return error(Errc::kBusy,
                     "volume '{}' is open for writing by {}; it can be deleted after its release", name,
                     client_name(holder_of(record)));
    if ((record.flags & nvme::kVolumeDeleting) == 0) {
        GN_TRY(check_none_missing(fmt::format("volume '{}' was not deleted", name)));
        record.flags |= nvme::kVolumeDeleting;
        record.writer = 0;
        record.epoch += 1;
        GN_TRY(change_volume(record));
    }
    if (Result<void> gone = finish_delete(id); !gone.ok())
        return pending_error(fmt::format("the deletion of volume '{}'", name), gone.error());
    return {};
}

std::vector<nvme::VolumeRecord> Manager::list_volumes() const {
    std::vector<nvme::VolumeRecord> list;
    for (const auto& [id, record] : records_.volumes)
        if (listed(record)) list.push_back(record);
    return list;
}

}  // namespace gnstor::daemon
