#include "daemon/http/api_json.hpp"

#include "daemon/decisions/room.hpp"
#include "daemon/http/build_name.hpp"
#include "daemon/http/http_service.hpp"

#include <gnstor/base/uuid.hpp>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <utility>

namespace gnstor::daemon {
namespace {

using nlohmann::json;

struct ErrcRow {
    Errc code;
    std::string_view name;
    int status;
};
constexpr ErrcRow kErrcs[] = {
    {Errc::kInvalidArgument, "invalid_argument", 400},
    {Errc::kNotFound, "not_found", 404},
    {Errc::kExists, "exists", 409},
    {Errc::kPermission, "permission", 403},
    {Errc::kBusy, "busy", 409},
    {Errc::kTimedOut, "timed_out", 504},
    {Errc::kNoSpace, "no_space", 507},
    {Errc::kCorrupt, "corrupt", 500},
    {Errc::kIo, "io", 503},
    {Errc::kUnsupported, "unsupported", 501},
    {Errc::kState, "state", 409},
    {Errc::kInternal, "internal", 500},
};

template <class Uuid16>
Result<void> read_uuid(const json& text, Uuid16& out) {
    GN_ASSIGN(const Uuid uuid, Uuid::parse(text.get<std::string>()));
    std::copy(uuid.bytes.begin(), uuid.bytes.end(), out);
    return {};
}

template <std::size_t N>
Result<void> read_name(const json& text, char (&out)[N]) {
    const auto& name = text.get_ref<const std::string&>();
    if (name.size() >= N) return error(Errc::kCorrupt, "a name of {} characters is too long", name.size());
    std::memcpy(out, name.data(), name.size());
    return {};
}

/// Runs `read`, and turns nlohmann's exceptions for missing or mistyped members into kCorrupt.
template <class Read>
auto guarded(Read read) -> decltype(read()) {
    try {
        return read();
    } catch (const json::exception& e) {
        return error(Errc::kCorrupt, "what answers is not gnstord: {}", e.what());
    }
}

/// In UTC, with milliseconds. `ms`: since 1970.
std::string rfc3339(std::uint64_t ms) {
    const auto seconds = static_cast<std::time_t>(ms / 1000);
    std::tm t{};
    ::gmtime_r(&seconds, &t);
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", t.tm_year + 1900, t.tm_mon + 1,
                       t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec, ms % 1000);
}

}  // namespace

std::string_view errc_name(Errc code) {
    for (const ErrcRow& row : kErrcs)
        if (row.code == code) return row.name;
    return "internal";
}

Errc errc_from_name(std::string_view name) {
    for (const ErrcRow& row : kErrcs)
        if (row.name == name) return row.code;
    if (name == kStandbyCode) return Errc::kBusy;
    return name == "method_not_allowed" || name == "too_large" || name == "unsupported_media_type"
               ? Errc::kInvalidArgument
               : Errc::kInternal;
}

int http_status(Errc code) {
    for (const ErrcRow& row : kErrcs)
        if (row.code == code) return row.status;
    return 500;
}

json to_json(const nvme::VolumeRecord& r) {
    return json{{"id", r.geometry.volume},
                {"name", r.name},
                {"capacity_bytes", r.geometry.capacity_blocks * 4096},
                {"chunk_bytes", 4096u << r.geometry.chunk_shift},
                {"replicas", r.geometry.replicas},
                {"byte_length", r.byte_length},
                {"epoch", r.epoch},
                {"birth_epoch", r.birth_epoch},
                {"owner", r.owner},
                {"owner_name", r.owner_name},
                {"writer", r.writer},
                {"readers", std::vector<nvme::ClientId>(r.readers, r.readers + r.reader_count)},
                {"world_readable", (r.flags & nvme::kVolumeWorldReadable) != 0},
                {"any_writer", (r.flags & nvme::kVolumeAnyWriter) != 0},
                {"hash_factor", fmt::format("{:#018x}", r.geometry.hash_factor)},
                {"revision", r.revision},
                {"slot_count", r.slot_count}};
}

Result<nvme::VolumeRecord> volume_from_json(const json& v) {
    return guarded([&]() -> Result<nvme::VolumeRecord> {
        nvme::VolumeRecord r{};
        r.record_version = nvme::kVolumeRecordVersion;
        r.geometry.volume = v.at("id").get<nvme::VolumeId>();
        r.geometry.capacity_blocks = v.at("capacity_bytes").get<std::uint64_t>() / 4096;
        const auto chunk_blocks = v.at("chunk_bytes").get<std::uint32_t>() / 4096;
        while ((1u << r.geometry.chunk_shift) < chunk_blocks) ++r.geometry.chunk_shift;
        r.geometry.replicas = v.at("replicas").get<std::uint8_t>();
        r.byte_length = v.at("byte_length").get<std::uint64_t>();
        r.epoch = v.at("epoch").get<nvme::Epoch>();
        r.birth_epoch = v.at("birth_epoch").get<nvme::Epoch>();
        r.owner = v.at("owner").get<nvme::ClientId>();
        r.writer = v.at("writer").get<nvme::ClientId>();
        r.revision = v.at("revision").get<std::uint64_t>();
        r.slot_count = v.at("slot_count").get<std::uint32_t>();
        r.flags = (v.at("world_readable").get<bool>() ? nvme::kVolumeWorldReadable : 0u) |
                  (v.at("any_writer").get<bool>() ? nvme::kVolumeAnyWriter : 0u);
        r.geometry.hash_factor =
            std::strtoull(v.at("hash_factor").get_ref<const std::string&>().c_str(), nullptr, 16);
        const auto readers = v.at("readers").get<std::vector<nvme::ClientId>>();
        if (readers.size() > nvme::kMaxReaders)
            return error(Errc::kCorrupt, "a volume has {} readers", readers.size());
        std::copy(readers.begin(), readers.end(), r.readers);
        r.reader_count = static_cast<std::uint32_t>(readers.size());
        GN_TRY(read_name(v.at("name"), r.name));
        GN_TRY(read_name(v.at("owner_name"), r.owner_name));
        return r;
    });
}

json to_json(const client::ClientIdentity& identity) {
    return json{{"id", identity.id}, {"name", identity.name}, {"host_nqn", identity.host_nqn}};
}

json to_json(const ClientInfo& client) {
    json out = to_json(static_cast<const client::ClientIdentity&>(client));
    if (client.removed) out["removed"] = true;
    return out;
}

json to_json(const client::ClientAccess& access) {
    json out = to_json(access.identity);
    out["generation"] = access.generation;
    if (!access.token.empty()) out["token"] = access.token;
    if (!access.address.empty()) out["address"] = access.address;
    if (!access.certificate_fingerprint.empty())
        out["certificate_fingerprint"] = access.certificate_fingerprint;
    return out;
}

Result<client::ClientAccess> client_access_from_json(const json& v) {
    return guarded([&]() -> Result<client::ClientAccess> {
        GN_ASSIGN(client::ClientIdentity identity, client_from_json(v));
        return client::ClientAccess{std::move(identity), v.at("generation").get<std::uint32_t>(),
                                    v.value("token", std::string()), v.value("address", std::string()),
                                    v.value("certificate_fingerprint", std::string())};
    });
}

json to_json(const client::SsdKeys& keys) {
    return json{{"slot", keys.slot}, {"host_key", keys.host_key}, {"controller_key", keys.controller_key}};
}

Result<std::vector<client::SsdKeys>> ssd_keys_from_json(const json& v) {
    return guarded([&]() -> Result<std::vector<client::SsdKeys>> {
        std::vector<client::SsdKeys> all;
        for (const json& keys : v.at("keys"))
            all.push_back({keys.at("slot").get<std::uint32_t>(), keys.at("host_key").get<std::string>(),
                           keys.at("controller_key").get<std::string>()});
        return all;
    });
}

Result<client::ClientIdentity> client_from_json(const json& v) {
    return guarded([&]() -> Result<client::ClientIdentity> {
        return client::ClientIdentity{v.at("id").get<nvme::ClientId>(), v.at("name").get<std::string>(),
                                      v.at("host_nqn").get<std::string>()};
    });
}

json to_json(const client::ArrayView& view) {
    json slots = json::array(), ssds = json::array();
    for (std::uint32_t s = 0; s < view.map.slot_count; ++s) {
        const placement::Slot& slot = view.map.slots[s];
        slots.push_back({{"slot", s},
                         {"state", kSlotStateNames[static_cast<std::size_t>(slot.state)]},
                         {"domain", slot.domain},
                         {"weight", slot.weight},
                         {"ssd_uuid", uuid_text(slot.ssd_uuid)}});
    }
    for (const client::SsdAddress& ssd : view.ssds)
        ssds.push_back({{"slot", ssd.slot},
                        {"nic_address", ssd.nic_address},
                        {"service", ssd.service},
                        {"subsystem_nqn", ssd.subsystem_nqn},
                        {"uuid", uuid_text(ssd.uuid)}});
    return json{{"version", view.map.version}, {"slots", slots}, {"ssds", ssds}};
}

Result<client::ArrayView> array_from_json(const json& v) {
    return guarded([&]() -> Result<client::ArrayView> {
        client::ArrayView view{};
        view.map.version = v.at("version").get<std::uint32_t>();
        const json& slots = v.at("slots");
        if (slots.size() > placement::kMaxSlots)
            return error(Errc::kCorrupt, "a map of {} slots", slots.size());
        view.map.slot_count = static_cast<std::uint32_t>(slots.size());
        for (std::size_t s = 0; s < slots.size(); ++s) {
            placement::Slot& slot = view.map.slots[s];
            const auto state = std::find(std::begin(kSlotStateNames), std::end(kSlotStateNames),
                                         slots[s].at("state").get<std::string>());
            if (state == std::end(kSlotStateNames))
                return error(Errc::kCorrupt, "slot {} is in an unknown state", s);
            slot.state = static_cast<placement::SlotState>(state - std::begin(kSlotStateNames));
            slot.domain = slots[s].at("domain").get<std::uint16_t>();
            slot.weight = slots[s].at("weight").get<std::uint32_t>();
            if (Result<void> read = read_uuid(slots[s].at("ssd_uuid"), slot.ssd_uuid); !read.ok())
                return std::move(read).error();
        }
        for (const json& ssd : v.at("ssds")) {
            client::SsdAddress address{ssd.at("slot").get<std::uint32_t>(),
                                       ssd.at("nic_address").get<std::string>(),
                                       ssd.at("service").get<std::string>(),
                                       ssd.at("subsystem_nqn").get<std::string>(),
                                       {}};
            if (Result<void> read = read_uuid(ssd.at("uuid"), address.uuid); !read.ok())
                return std::move(read).error();
            view.ssds.push_back(std::move(address));
        }
        return view;
    });
}

json to_json(const SsdInfo& ssd) {
    json counters = json::object();
    for (const auto& [name, value] : ssd.counters) counters[name] = value;
    json out{{"state", ssd.state},
             {"serves", ssd.serves},
             {"uuid", ssd.uuid},
             {"serial", ssd.serial},
             {"nic_address", ssd.nic_address},
             {"service", ssd.service},
             {"subsystem_nqn", ssd.subsystem_nqn},
             {"capacity_bytes", ssd.capacity_blocks * 4096},
             {"firmware", ssd.firmware},
             {"trouble", ssd.trouble},
             {"counters", counters}};
    if (ssd.slot != kSpareSlot) {
        out["slot"] = ssd.slot;
        out["domain"] = ssd.domain;
    }
    if (ssd.used_blocks) out["used_bytes"] = *ssd.used_blocks * 4096;
    if (ssd.spare_percent) out["available_spare_percent"] = *ssd.spare_percent;
    return out;
}

json to_json(const std::vector<HealthFinding>& findings) {
    json list = json::array();
    for (const HealthFinding& finding : findings)
        list.push_back({{"code", finding.code->name},
                        {"severity", name_of(finding.code->severity)},
                        {"summary", finding.summary},
                        {"meaning", finding.code->meaning},
                        {"action", finding.code->action},
                        {"details", finding.details}});
    return json{{"status", name_of(worst_of(findings))}, {"findings", list}};
}

json to_json(const EventPage& page) {
    json events = json::array();
    for (const Event& event : page.events) {
        json one{{"number", event.number},
                 {"time", rfc3339(event.time_ms)},
                 {"code", event.code},
                 {"text", event.text}};
        if (event.slot) one["slot"] = *event.slot;
        for (const auto& [key, name] :
             {std::pair{"volume", &event.volume}, {"client", &event.client}, {"health", &event.health}})
            if (!name->empty()) one[key] = *name;
        events.push_back(std::move(one));
    }
    return json{{"events", events},
                {"first", page.first},
                {"last", page.last},
                {"started", rfc3339(page.started_ms)}};
}

json capacity_to_json(const ArrayInfo& info, const placement::ArrayMap& map) {
    json ssds = json::array(), room = json::array(), usable = json::array(), volumes = json::array();
    std::uint64_t used = 0;
    bool use_known = true;
    for (const SsdInfo& ssd : info.ssds) {
        if (ssd.slot == kSpareSlot) continue;
        json one{{"slot", ssd.slot}, {"serial", ssd.serial}, {"capacity_bytes", ssd.capacity_blocks * 4096}};
        if (ssd.used_blocks) one["used_bytes"] = *ssd.used_blocks * 4096;
        used += ssd.used_blocks.value_or(0);
        use_known &= ssd.used_blocks.has_value();
        ssds.push_back(std::move(one));
    }
    std::uint32_t replicas = 0;
    for (const Room& one : room_of(info, map)) {
        ++replicas;
        if (one.usable) usable.push_back({{"replicas", replicas}, {"bytes", *one.usable * 4096}});
        if (one.free) room.push_back({{"replicas", replicas}, {"bytes", *one.free * 4096}});
    }
    for (const VolumeInfo& volume : info.listed_volumes)
        volumes.push_back({{"name", volume.name},
                           {"capacity_bytes", volume.capacity_blocks * 4096},
                           {"replicas", volume.replicas},
                           {"byte_length", volume.byte_length}});
    json out{{"ssds", ssds},
             {"capacity_bytes", info.capacity_blocks * 4096},
             {"provisioned_bytes", info.provisioned_blocks * 4096},
             {"usable", usable},
             {"room", room},
             {"volumes", volumes}};
    if (use_known) out["used_bytes"] = used * 4096;
    return out;
}

json to_json(const RebuildInfo& rebuild) {
    return json{{"slot", rebuild.slot},
                {"blocks_total", rebuild.blocks_total},
                {"blocks_done", rebuild.blocks_done},
                {"ranges_stuck", rebuild.ranges_stuck},
                {"refusal", rebuild.refusal}};
}

json to_json(const ScrubInfo& scrub) {
    const ScrubPassInfo& p = scrub.pass;
    json findings = json::array();
    for (const ScrubFindings& f : scrub.findings)
        findings.push_back({{"volume", f.volume},
                            {"unreadable_blocks", f.unreadable},
                            {"different_blocks", f.different},
                            {"first_difference", f.first}});
    json out{{"running", scrub.running},
             {"passes", scrub.passes},
             {"pass",
              {{"blocks_total", p.blocks_total},
               {"blocks_done", p.blocks_done},
               {"blocks_compared", p.compared},
               {"blocks_mended", p.mended},
               {"blocks_refused", p.refused},
               {"blocks_unreadable", p.unreadable},
               {"blocks_different", p.different},
               {"blocks_unresolved", p.unresolved},
               {"seconds", p.seconds}}},
             {"findings", findings}};
    if (scrub.passes != 0) out["ended_seconds_ago"] = scrub.ended_seconds_ago;
    if (scrub.next_in_seconds) out["next_in_seconds"] = *scrub.next_in_seconds;
    return out;
}

json status_to_json(const ArrayInfo& info, std::size_t volumes) {
    json leases = json::array();
    for (const LeaseInfo& lease : info.leases)
        leases.push_back({{"volume", lease.volume},
                          {"volume_name", lease.volume_name},
                          {"client", lease.client},
                          {"client_name", lease.client_name},
                          {"epoch", lease.epoch},
                          {"remaining_ms", lease.remaining_ms}});
    json out{{"version", build_name()},
             {"term", info.term},
             {"map_version", info.map_version},
             {"map_in_force", info.map_in_force},
             {"capacity_bytes", info.capacity_blocks * 4096},
             {"provisioned_bytes", info.provisioned_blocks * 4096},
             {"volumes", volumes},
             {"clients", std::ranges::count(info.clients, false, &ClientInfo::removed)},
             {"ssds", std::ranges::count_if(info.ssds, [](const auto& s) { return s.state != "missing"; })},
             {"pending_changes", info.pending_changes},
             {"health", name_of(worst_of(health_of(info)))},
             {"leases", leases},
             {"warnings", info.warnings},
             {"read_only", info.read_only},
             {"superseded", info.superseded}};
    if (info.rebuild) out["rebuild"] = to_json(*info.rebuild);
    return out;
}

}  // namespace gnstor::daemon
