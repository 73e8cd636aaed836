#include "daemon/records/record_entries.hpp"

#include <gnstor/base/crc32c.hpp>

#include <charconv>
#include <cstring>
#include <string_view>

namespace gnstor::daemon {
namespace {

constexpr std::size_t kHeadBytes = 5;

std::uint32_t checksum(const std::string& key, std::string_view payload) {
    const std::uint32_t of_key = crc32c(key.c_str(), key.size() + 1);  // with its zero byte
    return payload.empty() ? of_key : crc32c(payload.data(), payload.size(), of_key);
}

std::string entry(const std::string& key, std::string_view payload) {
    std::string value(kHeadBytes, '\0');
    value[0] = static_cast<char>(kEntryVersion);
    const std::uint32_t crc = checksum(key, payload);
    std::memcpy(value.data() + 1, &crc, sizeof crc);
    return value.append(payload);
}

template <class T>
std::string_view raw_bytes(const T& value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string numbered(const char* folder, unsigned id) {
    return fmt::format("{}/{:05}", folder, id);
}

std::string key_of(const SsdUuid& uuid) {
    std::string key = "ssds/";
    for (const std::uint8_t byte : uuid) key += fmt::format("{:02x}", byte);
    return key;
}

/// Entries under construction.
struct Changes {
    EntryChanges all;
    void put(const std::string& key, std::string_view payload) { all[key] = entry(key, payload); }
    void put(const std::string& key, std::uint64_t number) { put(key, raw_bytes(number)); }
    void erase(const std::string& key) { all[key].reset(); }
};

/// Reads entries into records; the first one that is wrong ends it.
class Reader {
  public:
    Result<void> read(const std::string& key, std::string_view value);
    Records records;

  private:
    Result<void> read_top(const std::string& key);
    Result<void> read_numbered(const std::string& key, const std::string& folder, const std::string& name);
    Result<void> read_client(nvme::ClientId id);
    Result<void> read_volume(nvme::VolumeId id);
    Result<void> read_ssd(const std::string& name);
    [[nodiscard]] Error damaged(const char* why) const {
        return error(Errc::kCorrupt, "the entry {} {}", key_, why);
    }
    template <class T>
    Result<void> take(T& out) const {
        if (payload_.size() != sizeof out) return damaged("has a wrong size");
        std::memcpy(&out, payload_.data(), sizeof out);
        return {};
    }
    std::string key_;
    std::string_view payload_;
};

Result<void> Reader::read(const std::string& key, std::string_view value) {
    key_ = key;
    if (value.size() < kHeadBytes) return damaged("is too short");
    if (static_cast<std::uint8_t>(value[0]) > kEntryVersion)
        return error(Errc::kUnsupported,
                     "the entry {} was written by a newer gnstord (format {}, this one knows {})", key,
                     static_cast<unsigned>(static_cast<std::uint8_t>(value[0])), kEntryVersion);
    payload_ = value.substr(kHeadBytes);
    std::uint32_t crc = 0;
    std::memcpy(&crc, value.data() + 1, sizeof crc);
    if (value[0] != static_cast<char>(kEntryVersion) || crc != checksum(key, payload_))
        return damaged("has a wrong checksum");
    const std::size_t slash = key.find('/');
    if (slash == std::string::npos) return read_top(key);
    return read_numbered(key, key.substr(0, slash), key.substr(slash + 1));
}

Result<void> Reader::read_top(const std::string& key) {
    if (key == "map") {
        GN_TRY(take(records.map));
        if (Result<void> good = check_map(records.map); !good.ok())
            return damaged(good.error().message.c_str());
        return {};
    }
    std::uint64_t number = 0;
    GN_TRY(take(number));
    if (key == "term")
        records.term = number;
    else if (key == "epoch_floor")
        records.epoch_floor = static_cast<nvme::Epoch>(number);
    else if (key == "told")
        records.told = static_cast<nvme::MapVersion>(number);
    else
        return damaged("is unknown");
    return {};
}

Result<void> Reader::read_numbered(const std::string& key, const std::string& folder,
                                   const std::string& name) {
    if (folder == "ssds") return read_ssd(name);
    std::uint16_t id = 0;
    const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (failed != std::errc() || end != name.data() + name.size() || id == 0 ||
        key != numbered(folder.c_str(), id))
        return damaged("has no number from 00001 to 65535");
    if (folder == "clients") return read_client(id);
    if (folder == "volumes") return read_volume(id);
    if (folder == "creating") {
        if (!payload_.empty()) return damaged("has a wrong size");
        records.creating.insert(id);
        return {};
    }
    if (folder != "retired") return damaged("is unknown");
    std::uint64_t epoch = 0;
    GN_TRY(take(epoch));
    records.retired[id] = static_cast<nvme::Epoch>(epoch);
    return {};
}

Result<void> Reader::read_client(nvme::ClientId id) {
    ClientRecord client;
    constexpr std::size_t kFixed = sizeof client.generation + 1;
    if (payload_.size() < kFixed) return damaged("has a wrong size");
    std::memcpy(&client.generation, payload_.data(), sizeof client.generation);
    client.removed = payload_[kFixed - 1] != 0;
    client.name = payload_.substr(kFixed);
    if (client.generation == 0) return damaged("has generation 0");
    records.clients[id] = std::move(client);
    return {};
}

Result<void> Reader::read_volume(nvme::VolumeId id) {
    nvme::VolumeRecord record{};
    GN_TRY(take(record));
    if (Result<void> good = check_record(record); !good.ok()) return damaged(good.error().message.c_str());
    if (record.geometry.volume != id) return damaged("has the record of another VID");
    records.volumes[id] = record;
    return {};
}

Result<void> Reader::read_ssd(const std::string& name) {
    SsdUuid uuid{};
    std::uint64_t term = 0;
    GN_TRY(take(term));
    for (std::size_t i = 0; i < uuid.size() && name.size() == 2 * uuid.size(); ++i)
        (void)std::from_chars(name.data() + 2 * i, name.data() + 2 * i + 2, uuid[i], 16);
    if (key_of(uuid) != "ssds/" + name) return damaged("has no UUID of 32 lower-case hexadecimal digits");
    records.ssd_terms[uuid] = term;
    return {};
}

}  // namespace

EntryChanges entries_of(const Change& change) {
    Changes out;
    if (change.term) out.put("term", *change.term);
    if (change.epoch_floor) out.put("epoch_floor", std::uint64_t{*change.epoch_floor});
    if (change.map) out.put("map", raw_bytes(*change.map));
    if (change.told) out.put("told", std::uint64_t{*change.told});
    for (const auto& [id, client] : change.put_clients) {
        std::string payload(raw_bytes(client.generation));
        payload += client.removed ? '\1' : '\0';
        out.put(numbered("clients", id), payload + client.name);
    }
    for (const nvme::VolumeRecord& record : change.put_volumes) {
        out.put(numbered("volumes", record.geometry.volume), raw_bytes(record));
        out.erase(numbered("retired", record.geometry.volume));
    }
    for (const nvme::VolumeId id : change.begin_creations)
        out.put(numbered("creating", id), std::string_view());
    for (const nvme::VolumeId id : change.end_creations) out.erase(numbered("creating", id));
    for (const auto& [id, epoch] : change.retire_volumes) {
        out.erase(numbered("volumes", id));
        out.erase(numbered("creating", id));
        out.put(numbered("retired", id), std::uint64_t{epoch});
    }
    for (const auto& [uuid, term] : change.ssd_terms) out.put(key_of(uuid), term);
    return std::move(out.all);
}

Result<Records> records_of(const RecordEntries& entries) {
    Reader reader;
    for (const auto& [key, value] : entries) GN_TRY(reader.read(key, value));
    const Records& records = reader.records;
    if (!entries.empty() && !entries.contains("term"))
        return error(Errc::kCorrupt, "the entry term is missing, and others are there");
    for (const nvme::VolumeId id : records.creating)
        if (!records.volumes.contains(id))
            return error(Errc::kCorrupt, "the creation of VID {} is under way, and there is no such volume",
                         id);
    for (const auto& [uuid, term] : records.ssd_terms)
        if (term > records.term)
            return error(Errc::kCorrupt, "the entry {} has a term that no gnstord had", key_of(uuid));
    return std::move(reader.records);
}

}  // namespace gnstor::daemon
