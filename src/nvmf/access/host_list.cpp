#include "nvmf/access/host_list.hpp"

#include "nvmf/protocol/nqn.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace gnstor::nvmf {

namespace {

bool same(const auth::DhchapKey& a, const auth::DhchapKey& b) {
    return a.transform_hash() == b.transform_hash() && std::ranges::equal(a.bytes(), b.bytes());
}

bool same(const auth::DhchapKeys& a, const auth::DhchapKeys& b) {
    if (!same(a.host, b.host) || a.controller.has_value() != b.controller.has_value()) return false;
    return !a.controller || same(*a.controller, *b.controller);
}

}  // namespace

Result<void> check_hosts(const std::vector<ListedHost>& hosts) {
    std::set<std::string_view> names;
    for (const ListedHost& host : hosts) {
        const bool plain = std::ranges::all_of(host.nqn, [](char c) { return c > ' ' && c < 0x7F; });
        if (!plain || !is_valid_nqn(host.nqn))
            // Its text may be a key that was put in the wrong place.
            return error(Errc::kInvalidArgument,
                         "the name of host {} of the list is no NVMe Qualified Name of printable ASCII "
                         "characters (nqn.yyyy-mm.reverse-domain:string)",
                         names.size() + 1);
        if (!names.insert(host.nqn).second)
            return error(Errc::kInvalidArgument, "the host {} is listed twice", host.nqn);
    }
    return {};
}

Result<void> HostList::replace(std::vector<ListedHost> hosts) {
    GN_TRY(check_hosts(hosts));
    const std::lock_guard lock(mutex_);
    std::map<std::string, Host, std::less<>> next;
    bool changed = hosts.size() != hosts_.size();
    for (ListedHost& host : hosts) {
        const auto before = hosts_.find(host.nqn);
        const bool kept = before != hosts_.end() && same(before->second.keys, host.keys);
        changed = changed || !kept;
        next.emplace(std::move(host.nqn), Host{std::move(host.keys), kept ? before->second.stamp : ++stamp_});
    }
    if (!changed) return {};
    hosts_ = std::move(next);
    // Pairs with the acquire load of version(): who sees this version finds this list (the mutex orders
    // find()).
    version_.fetch_add(1, std::memory_order_release);
    return {};
}

std::size_t HostList::size() const {
    const std::lock_guard lock(mutex_);
    return hosts_.size();
}

std::optional<HostRegistry::Host> HostList::find(std::string_view host_nqn) const {
    const std::lock_guard lock(mutex_);
    const auto found = hosts_.find(host_nqn);
    if (found == hosts_.end()) return std::nullopt;
    return Host{found->second.keys.clone(), found->second.stamp};
}

std::optional<std::uint64_t> HostList::stamp(std::string_view host_nqn) const {
    const std::lock_guard lock(mutex_);
    const auto found = hosts_.find(host_nqn);
    return found == hosts_.end() ? std::nullopt : std::optional(found->second.stamp);
}

std::uint64_t HostList::version() const {
    // Pairs with the release in replace().
    return version_.load(std::memory_order_acquire);
}

}  // namespace gnstor::nvmf
