// manager_hosts.cpp: the list of hosts that drives' nodes let in (HOST SET, gnstor/nvme/host_set.hpp): when
// it is sent, and when a change of it is in force. docs/array.md, rule 19.
//
// The list is a function of the records: every client that was not removed, with its generation. So a daemon
// has nothing to store for it, and one that cannot store anything sends what its predecessor would have sent.
// Drives are asked one after the other, each for a bounded time.
#include "daemon/decisions/manager.hpp"

#include <algorithm>
#include <optional>

namespace gnstor::daemon {

/// Grows with every change of the list, because every change raises a client's generation, and no generation
/// ever goes back. So equal versions of one term are equal lists.
std::uint64_t Manager::hosts_version() const {
    std::uint64_t version = 0;
    for (const auto& [id, client] : records_.clients) version += client.generation;
    return version;
}

bool Manager::authenticates() const {
    return std::ranges::any_of(drives_, [](const Drive& d) { return d.port->node_key() != nullptr; });
}

Result<void> Manager::send_hosts(Drive& drive) {
    if (drive.port->node_key() == nullptr) return {};
    const std::uint64_t version = hosts_version();
    if (drive.hosts == version) return {};
    std::vector<nvme::HostSetEntry> hosts;
    for (const auto& [id, client] : records_.clients)
        if (!client.removed) hosts.push_back({id, 0, client.generation});
    GN_TRY(drive.port->hosts_set(records_.term, version, hosts));
    drive.hosts = version;
    return {};
}

/// A drive that has not taken the list gets no grant before it has (set_map()). So a change is in force when
/// each drive has taken it or has no grant left, as with any other change (rule 2).
bool Manager::hosts_in_force() const {
    if (!authenticates()) return true;
    const std::uint64_t version = hosts_version();
    const bool taken = std::ranges::none_of(drives_, [&](const Drive& drive) {
        return drive.slot != kNoSlot && drive.port->node_key() != nullptr && drive.hosts != version &&
               may_hold_grant(drive.grant);
    });
    return taken && (missing_slots().empty() || !may_hold_grant(before_start_));
}

Result<void> Manager::settle_hosts() {
    std::optional<Error> first;
    for (Drive& drive : drives_) {
        if (drive.slot == kNoSlot || drive.port->node_key() == nullptr) continue;
        Result<void> sent = tell_hosts(drive);
        if (sent.ok()) continue;
        note_superseded(sent.error());
        drive.trouble = sent.error().message;
        if (!superseded_.empty()) return sent;
        if (!first && may_hold_grant(drive.grant)) first = std::move(sent).error();
    }
    if (hosts_in_force()) {
        rotating_.clear();
        return {};
    }
    const std::vector<std::uint32_t> missing = missing_slots();
    if (first || missing.empty()) return first.value_or(error(Errc::kBusy, "an SSD lags"));
    return missing_error(missing.front());
}

}  // namespace gnstor::daemon
