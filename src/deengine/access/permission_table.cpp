// permission_table.cpp: validation of records and the transitions between them.
#include "deengine/access/permission_table.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace gnstor::deengine {
namespace {

using nvme::Status;
using nvme::VolumeRecord;

constexpr std::uint32_t kKnownFlags =
    nvme::kVolumeWorldReadable | nvme::kVolumeDeleting | nvme::kVolumeAnyWriter;

/// Zero terminated and zero padded: equal names are equal bytes.
bool is_padded(const char (&text)[nvme::kMaxVolumeName + 1]) {
    const auto* end = static_cast<const char*>(std::memchr(text, 0, sizeof(text)));
    return end != nullptr && std::all_of(end, text + sizeof(text), [](char c) { return c == 0; });
}

/// 1 .. 63 of [A-Za-z0-9._-], not beginning with a dot.
bool is_volume_name(const char (&text)[nvme::kMaxVolumeName + 1]) {
    if (!is_padded(text) || text[0] == 0 || text[0] == '.') return false;
    return std::ranges::all_of(std::string_view(text), [](char c) {
        return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
               c == '_' || c == '-';
    });
}

/// May be empty; no control characters.
bool is_owner_name(const char (&text)[nvme::kMaxVolumeName + 1]) {
    return is_padded(text) && std::ranges::all_of(std::string_view(text), [](char c) {
               return static_cast<unsigned char>(c) >= 0x20 && c != 0x7F;
           });
}

bool same_name(const VolumeRecord& a, const VolumeRecord& b) {
    return std::memcmp(a.name, b.name, sizeof(a.name)) == 0;
}

/// Fields that a CHMOD may not change.
bool same_identity(const VolumeRecord& a, const VolumeRecord& b) {
    return std::memcmp(&a.geometry, &b.geometry, sizeof(a.geometry)) == 0 && same_name(a, b) &&
           std::memcmp(a.owner_name, b.owner_name, sizeof(a.owner_name)) == 0 && a.owner == b.owner &&
           a.birth_epoch == b.birth_epoch;
}

}  // namespace

bool Volume::may_read(nvme::ClientId client) const {
    if (client == 0 || (record.flags & nvme::kVolumeDeleting) != 0) return false;
    if ((record.flags & nvme::kVolumeWorldReadable) != 0 || client == record.owner || client == record.writer)
        return true;
    const auto* end = record.readers + record.reader_count;
    return std::find(record.readers, end, client) != end;
}

PermissionTable::PermissionTable() : index_(65536, kNone) {}

const Volume* PermissionTable::find(nvme::VolumeId vid) const {
    const std::uint16_t at = index_[vid];
    return at == kNone ? nullptr : &volumes_[at];
}

Volume* PermissionTable::find(nvme::VolumeId vid) {
    const std::uint16_t at = index_[vid];
    return at == kNone ? nullptr : &volumes_[at];
}

void PermissionTable::reindex(std::size_t from) {
    for (std::size_t i = from; i < volumes_.size(); ++i)
        index_[volumes_[i].record.geometry.volume] = static_cast<std::uint16_t>(i);
}

bool PermissionTable::validate(const VolumeRecord& r, std::uint32_t mdts_blocks) {
    const auto& g = r.geometry;
    if (r.record_version != nvme::kVolumeRecordVersion || g.volume == 0 || g.reserved != 0) return false;
    if (g.capacity_blocks == 0 || g.capacity_blocks > (1ull << 32)) return false;
    if (g.chunk_shift > 31 || (1ull << g.chunk_shift) > mdts_blocks) return false;
    if (g.replicas == 0 || g.replicas > placement::kMaxReplicas) return false;
    if (r.byte_length > g.capacity_blocks * nvme::kBlockBytes) return false;
    if (r.epoch < r.birth_epoch || (r.flags & ~kKnownFlags) != 0) return false;
    if (r.reader_count > nvme::kMaxReaders) return false;
    if (std::find(r.readers, r.readers + r.reader_count, 0) != r.readers + r.reader_count) return false;
    if (std::ranges::any_of(r.reserved, [](std::uint8_t b) { return b != 0; })) return false;
    return is_volume_name(r.name) && is_owner_name(r.owner_name);
}

Status PermissionTable::add(const VolumeRecord& r, std::uint32_t max_volumes, std::uint32_t mdts_blocks,
                            Mutation mutation) {
    if (!validate(r, mdts_blocks)) return Status::kInvalidField;
    const auto vid = r.geometry.volume;
    const auto taken = [&](const Volume& v) {
        return v.record.geometry.volume == vid || same_name(v.record, r);
    };
    if (std::ranges::any_of(volumes_, taken)) return Status::kVolumeExists;
    const nvme::Epoch leeway = mutation == Mutation::kEqualRebirth ? 1 : 0;
    if (const auto earlier = deleted_.find(vid);
        earlier != deleted_.end() && r.birth_epoch + leeway <= earlier->second)
        return Status::kStaleEpoch;
    if (volumes_.size() >= std::min<std::size_t>(max_volumes, kNone)) return Status::kCapacityExceeded;
    const auto at =
        std::ranges::find_if(volumes_, [&](const Volume& v) { return v.record.geometry.volume > vid; });
    const auto position = static_cast<std::size_t>(at - volumes_.begin());
    volumes_.insert(at, Volume{r, 0});
    reindex(position);
    return Status::kSuccess;
}

Status PermissionTable::chmod(const VolumeRecord& r, std::uint32_t mdts_blocks) {
    if (!validate(r, mdts_blocks)) return Status::kInvalidField;
    Volume* volume = find(r.geometry.volume);
    if (volume == nullptr) return Status::kNoSuchVolume;
    const VolumeRecord& old = volume->record;
    if (!same_identity(old, r)) return Status::kInvalidField;
    if (r.epoch < old.epoch || r.revision < old.revision) return Status::kStaleEpoch;
    // Equal revision, equal bytes; revision 0: the record is not counted.
    if (r.revision == old.revision && r.revision != 0 && std::memcmp(&r, &old, sizeof(r)) != 0)
        return Status::kInvalidField;
    if (r.epoch == old.epoch && r.writer != old.writer && r.writer != 0) return Status::kInvalidField;
    if (r.epoch != old.epoch) volume->floor = 0;  // sequences start again with each opening
    volume->record = r;
    return Status::kSuccess;
}

Status PermissionTable::remove(nvme::VolumeId vid) {
    const Volume* volume = find(vid);
    if (volume == nullptr) return Status::kNoSuchVolume;
    deleted_[vid] = volume->record.epoch;
    const std::size_t position = index_[vid];
    volumes_.erase(volumes_.begin() + static_cast<std::ptrdiff_t>(position));
    index_[vid] = kNone;
    reindex(position);
    return Status::kSuccess;
}

}  // namespace gnstor::deengine
