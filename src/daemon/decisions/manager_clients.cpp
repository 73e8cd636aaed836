// manager_clients.cpp: who takes part: names, ids and generations of clients, and their keys. docs/array.md,
// rule 19.
#include "daemon/decisions/manager.hpp"
#include "daemon/records/generations.hpp"
#include "nvmf/auth/derived_keys.hpp"
#include "nvmf/protocol/nqn.hpp"

#include <algorithm>

namespace gnstor::daemon {
namespace {

std::string key_text(const nvmf::auth::DhchapKey& key) {
    const nvmf::auth::Secret text = key.text();
    return {reinterpret_cast<const char*>(text.view().data()), text.size()};
}

}  // namespace

client::ClientIdentity Manager::identity_of(nvme::ClientId client) const {
    return {client, records_.clients.at(client).name, nvmf::client_host_nqn(client)};
}

std::string Manager::client_name(nvme::ClientId client) const {
    const auto found = records_.clients.find(client);
    if (found == records_.clients.end() || found->second.name.empty())
        return fmt::format("client {}", client);
    return fmt::format("'{}' (client {})", found->second.name, client);
}

bool Manager::is_removed(nvme::ClientId client) const {
    const auto found = records_.clients.find(client);
    return found != records_.clients.end() && found->second.removed;
}

std::optional<ClientInfo> Manager::client_of(nvme::ClientId client) const {
    const auto found = records_.clients.find(client);
    if (found == records_.clients.end() || found->second.removed) return std::nullopt;
    return ClientInfo{{identity_of(client)}, found->second.generation, false};
}

Result<void> Manager::check_client(nvme::ClientId client) const {
    if (is_removed(client))
        return error(Errc::kPermission,
                     "{} was removed from this array; 'gnstor client add {}' lets it in again",
                     client_name(client), records_.clients.at(client).name);
    if (client != 0 && records_.clients.contains(client)) return {};
    return error(Errc::kPermission, "client {} is not registered with this array; register its name first",
                 client);
}

Result<nvme::ClientId> Manager::client_named(const std::string& name) const {
    for (const auto& [id, client] : records_.clients)
        if (client.name == name && !name.empty()) return id;
    return error(Errc::kNotFound, "there is no client '{}'; 'gnstor client list' lists the clients", name);
}

Result<nvme::ClientId> Manager::free_client_id(const std::string& name) const {
    std::uint32_t id = 1;
    for (const auto& [taken, client] : records_.clients) {
        if (taken != id) break;
        ++id;
    }
    if (id <= 0xFFFF) return static_cast<nvme::ClientId>(id);
    return error(Errc::kNoSpace, "all 65535 client ids are taken; client '{}' cannot be added", name);
}

/// Without the records, a term that no SSD has stored is used again, and generations of that term with it.
Result<void> Manager::check_term_stored(const std::string& name) const {
    const bool stored = std::ranges::any_of(drives_, [this](const Drive& drive) {
        return drive.slot != kNoSlot && (drive.taken == records_.term || !drive.port->keeps_terms());
    });
    if (stored) return {};
    return error(
        Errc::kBusy,
        "client '{}' gets no keys before an SSD has taken the map of this gnstord; bring an SSD back, or try "
        "again later",
        name);
}

Result<void> Manager::put_client(nvme::ClientId client, ClientRecord record) {
    if (!record.removed) GN_TRY(check_term_stored(record.name));
    const std::uint32_t before = record.generation;
    if (before >= last_generation(records_.term))
        return error(
            Errc::kNoSpace,
            "the keys of client '{}' were replaced too often since gnstord started; restart gnstord, "
            "and try again",
            record.name);
    record.generation = std::max(before + 1, first_generation(records_.term));
    Change change;
    change.put_clients.emplace_back(client, std::move(record));
    return commit(change);
}

Result<client::ClientIdentity> Manager::register_client(const std::string& name) {
    GN_TRY(check_name("client name", name));
    GN_TRY(sure());
    if (const Result<nvme::ClientId> known = client_named(name); known.ok()) {
        GN_TRY(check_client(*known));
        return identity_of(*known);
    }
    GN_ASSIGN(const client::ClientAccess added, add_client(name));
    return added.identity;
}

Result<client::ClientAccess> Manager::add_client(const std::string& name) {
    GN_TRY(check_name("client name", name));
    GN_TRY(sure());
    const Result<nvme::ClientId> known = client_named(name);
    nvme::ClientId id = 0;
    if (known.ok()) {
        id = *known;
    } else {
        GN_ASSIGN(id, free_client_id(name));
    }
    if (!known.ok() || is_removed(id)) {
        const std::uint32_t before = known.ok() ? records_.clients.at(id).generation : 0;
        GN_TRY(put_client(id, ClientRecord{name, before, false}));
        // Before the client gets its keys. A drive that does not answer takes the list before it gets its
        // next grant, so the addition does not wait for it.
        (void)settle_hosts().ok();
        if (!superseded_.empty()) return error(Errc::kState, "{}", superseded_);
    }
    return client::ClientAccess{identity_of(id), records_.clients.at(id).generation, {}, {}, {}};
}

Result<void> Manager::remove_client(const std::string& name, std::uint64_t now_ms) {
    now_ms_ = std::max(now_ms_, now_ms);
    GN_TRY(sure());
    GN_ASSIGN(const nvme::ClientId id, client_named(name));
    if (!is_removed(id)) GN_TRY(put_client(id, ClientRecord{name, records_.clients.at(id).generation, true}));
    const Result<void> hosts = settle_hosts();
    const Result<void> epochs = close_epochs_of(id);
    for (const Result<void>* part : {&hosts, &epochs})
        if (!part->ok()) return pending_error(fmt::format("the removal of client '{}'", name), part->error());
    return {};
}

/// Closes the writing epochs of the client, as at the end of its leases.
Result<void> Manager::close_epochs_of(nvme::ClientId client) {
    std::vector<nvme::VolumeId> open;
    for (const auto& [id, record] : records_.volumes)
        if (record.writer == client && (record.flags & nvme::kVolumeDeleting) == 0) open.push_back(id);
    Result<void> first;
    for (const nvme::VolumeId id : open) {
        if (!records_.volumes.contains(id)) continue;  // the store was read again meanwhile
        Result<void> closed = close_epoch(id, ~0ull);
        if (!closed.ok() && first.ok()) first = std::move(closed);
    }
    return first;
}

Result<client::ClientAccess> Manager::rotate_client(const std::string& name, std::uint64_t now_ms) {
    now_ms_ = std::max(now_ms_, now_ms);
    GN_TRY(sure());
    GN_ASSIGN(const nvme::ClientId id, client_named(name));
    GN_TRY(check_client(id));
    if (!rotating_.contains(id)) {
        GN_TRY(put_client(id, records_.clients.at(id)));
        rotating_.insert(id);
    }
    if (const Result<void> hosts = settle_hosts(); !hosts.ok())
        return pending_error(fmt::format("the rotation of the keys of client '{}'", name), hosts.error());
    return client::ClientAccess{identity_of(id), records_.clients.at(id).generation, {}, {}, {}};
}

Result<std::vector<client::SsdKeys>> Manager::ssd_keys(nvme::ClientId client) {
    GN_TRY(sure());
    GN_TRY(check_client(client));
    std::vector<client::SsdKeys> all;
    for (const Drive& drive : drives_) {
        const nvmf::auth::DhchapKey* node_key = drive.port->node_key();
        if (drive.slot == kNoSlot || node_key == nullptr) continue;
        GN_ASSIGN(const nvmf::auth::DhchapKeys keys,
                  nvmf::auth::derive_keys(*node_key, nvmf::client_host_nqn(client),
                                          records_.clients.at(client).generation));
        all.push_back({drive.slot, key_text(keys.host), keys.controller ? key_text(*keys.controller) : ""});
    }
    std::ranges::sort(all, {}, &client::SsdKeys::slot);
    return all;
}

}  // namespace gnstor::daemon
