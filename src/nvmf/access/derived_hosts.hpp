// derived_hosts.hpp: the hosts of an array's node, whose keys follow from one secret, the node key.
//
// auth/derived_keys.hpp gives the keys of a host. gnstord tells a node only which generation of each client's
// key is valid: HOST SET (gnstor/nvme/host_set.hpp). So nodes need no list of secrets, and no key crosses the
// network.
// Invariants
//   * the array's admin host is always known, with generation 0; a client only while the list names it;
//   * before the first HOST SET of a process only the admin host is let in: a node that restarts lets no
//     host in on an older list;
//   * lists are replaced as a whole, never by an older one.
// Any thread (one mutex).
#pragma once

#include "nvmf/access/host_registry.hpp"
#include "nvmf/auth/derived_keys.hpp"
#include "nvmf/auth/dhchap_key.hpp"

#include <gnstor/base/result.hpp>

#include <map>
#include <mutex>
#include <string>

namespace gnstor::nvmf {

class DerivedHosts final : public HostRegistry {
  public:
    DerivedHosts(auth::DhchapKey node_key, std::string admin_host_nqn)
        : node_key_(std::move(node_key)), admin_host_nqn_(std::move(admin_host_nqn)) {}

    [[nodiscard]] std::optional<Host> find(std::string_view host_nqn) const override;
    [[nodiscard]] std::optional<std::uint64_t> stamp(std::string_view host_nqn) const override;
    [[nodiscard]] std::uint64_t version() const override;
    /// Invalid Field: a malformed page, or one that does not follow the page before it. Stale Term.
    nvme::Status set(const nvme::HostSetPage& page) override;

  private:
    using Generations = std::map<nvme::ClientId, std::uint32_t>;
    /// The generation of which the host has the key now; nullopt: it has none.
    [[nodiscard]] std::optional<std::uint32_t> generation(std::string_view host_nqn) const;
    nvme::Status take_entries(const nvme::HostSetPage& page);

    const auth::DhchapKey node_key_;
    const std::string admin_host_nqn_;
    mutable std::mutex mutex_;  // guards what follows
    Generations generations_;
    std::uint64_t term_ = 0, list_version_ = 0;  // of generations_
    Generations arriving_;                       // pages of a list whose last page is missing
    std::uint64_t arriving_term_ = 0, arriving_version_ = 0;
    std::uint32_t arriving_total_ = 0;
    std::uint64_t version_ = 1;
};

}  // namespace gnstor::nvmf
