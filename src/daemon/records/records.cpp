#include "daemon/records/records.hpp"

#include <cstring>

namespace gnstor::daemon {
namespace {

/// Whether `text` is a zero-terminated, valid name with nothing behind its end.
bool clean_name(const char (&text)[nvme::kMaxVolumeName + 1]) {
    const void* end = std::memchr(text, 0, sizeof(text));
    if (end == nullptr) return false;
    const std::size_t length = static_cast<std::size_t>(static_cast<const char*>(end) - text);
    for (std::size_t i = length; i < sizeof(text); ++i)
        if (text[i] != 0) return false;
    return check_name("name", std::string(text, length)).ok();
}

}  // namespace

void apply(Records& records, const Change& change) {
    if (change.term) records.term = *change.term;
    if (change.epoch_floor) records.epoch_floor = *change.epoch_floor;
    if (change.map) records.map = *change.map;
    if (change.told) records.told = *change.told;
    for (const auto& [id, client] : change.put_clients) records.clients[id] = client;
    for (const nvme::VolumeRecord& record : change.put_volumes) {
        records.volumes[record.geometry.volume] = record;
        records.retired.erase(record.geometry.volume);
    }
    records.creating.insert(change.begin_creations.begin(), change.begin_creations.end());
    for (const nvme::VolumeId volume : change.end_creations) records.creating.erase(volume);
    for (const auto& [volume, epoch] : change.retire_volumes) {
        records.creating.erase(volume);
        records.volumes.erase(volume);
        records.retired[volume] = epoch;
    }
    for (const auto& [uuid, term] : change.ssd_terms) records.ssd_terms[uuid] = term;
}

Change change_to(const Records& records) {
    Change change;
    change.term = records.term;
    change.epoch_floor = records.epoch_floor;
    change.map = records.map;
    change.told = records.told;
    change.put_clients.assign(records.clients.begin(), records.clients.end());
    for (const auto& [id, record] : records.volumes) change.put_volumes.push_back(record);
    change.begin_creations.assign(records.creating.begin(), records.creating.end());
    change.retire_volumes.assign(records.retired.begin(), records.retired.end());
    change.ssd_terms.assign(records.ssd_terms.begin(), records.ssd_terms.end());
    return change;
}

Result<void> check_name(const char* what, const std::string& name) {
    if (name.empty())
        return error(Errc::kInvalidArgument, "the {} is empty; give 1 to {} characters", what,
                     nvme::kMaxVolumeName);
    if (name.size() > nvme::kMaxVolumeName)
        return error(Errc::kInvalidArgument, "the {} has {} characters; at most {} are allowed", what,
                     name.size(), nvme::kMaxVolumeName);
    for (const char c : name) {
        const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                          c == '.' || c == '_' || c == '-';
        if (!good)
            return error(Errc::kInvalidArgument,
                         "the {} holds the byte 0x{:02x}; only letters, digits, '.', '_' and '-' are allowed",
                         what, static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
    if (name[0] == '.' || name[0] == '-')
        return error(Errc::kInvalidArgument,
                     "the {} '{}' begins with '{}'; begin it with a letter, a digit or '_'", what, name,
                     name[0]);
    return {};
}

Result<void> check_record(const nvme::VolumeRecord& record) {
    const placement::VolumeGeometry& g = record.geometry;
    const char* wrong = nullptr;
    if (record.record_version != nvme::kVolumeRecordVersion)
        wrong = "its version is unknown";
    else if (g.volume == 0)
        wrong = "its VID is 0";
    else if (g.capacity_blocks == 0 || g.capacity_blocks > (1ull << 32))
        wrong = "its capacity is out of range";
    else if (g.chunk_shift > 8)
        wrong = "its chunk size is out of range";
    else if (g.replicas == 0 || g.replicas > placement::kMaxReplicas)
        wrong = "its number of replicas is out of range";
    else if (record.byte_length > g.capacity_blocks * 4096)
        wrong = "its length is above its capacity";
    else if (record.reader_count > nvme::kMaxReaders)
        wrong = "its number of readers is out of range";
    else if (record.birth_epoch == 0 || record.epoch < record.birth_epoch)
        wrong = "its epoch lies before its birth";
    else if (record.owner == 0)
        wrong = "it has no owner";
    else if (!clean_name(record.name))
        wrong = "its name is not valid";
    else if (!clean_name(record.owner_name))
        wrong = "its owner's name is not valid";
    if (wrong != nullptr)
        return error(Errc::kCorrupt, "the record of VID {} is damaged: {}", g.volume, wrong);
    return {};
}

Result<void> check_map(const placement::ArrayMap& map) {
    if (map.slot_count > placement::kMaxSlots)
        return error(Errc::kCorrupt, "the array map is damaged: it names {} slots of at most {}",
                     map.slot_count, placement::kMaxSlots);
    for (std::uint32_t s = 0; s < map.slot_count; ++s)
        if (map.slots[s].state > placement::kLastSlotState)
            return error(Errc::kCorrupt, "the array map is damaged: slot {} is in the unknown state {}", s,
                         static_cast<unsigned>(map.slots[s].state));
    return {};
}

}  // namespace gnstor::daemon
