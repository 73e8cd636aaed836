// host_list.hpp: a list of hosts with a key each, which its owner replaces while targets use it: who may use
// a gateway.
//
// Invariants
//   * a host that is not in the list has no key, and is not let in; a new object lists no host;
//   * a host keeps its stamp for as long as every list that replaces another has it with the same keys.
// Any thread (one mutex; version() takes none, since a target asks for it all the time).
#pragma once

#include "nvmf/access/host_registry.hpp"

#include <gnstor/base/result.hpp>

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace gnstor::nvmf {

struct ListedHost {
    std::string nqn;
    auth::DhchapKeys keys;
};

/// kInvalidArgument: a name that is no NQN of printable ASCII characters, or one that is listed twice.
Result<void> check_hosts(const std::vector<ListedHost>& hosts);

class HostList final : public HostRegistry {
  public:
    /// Takes effect as a whole; version() changes if the list does. Of a list that check_hosts() refuses
    /// nothing is taken.
    Result<void> replace(std::vector<ListedHost> hosts);
    [[nodiscard]] std::size_t size() const;

    [[nodiscard]] std::optional<Host> find(std::string_view host_nqn) const override;
    [[nodiscard]] std::optional<std::uint64_t> stamp(std::string_view host_nqn) const override;
    [[nodiscard]] std::uint64_t version() const override;

  private:
    mutable std::mutex mutex_;  // guards what follows
    std::map<std::string, Host, std::less<>> hosts_;
    std::uint64_t stamp_ = 0;  // the newest
    std::atomic<std::uint64_t> version_ = 1;
};

}  // namespace gnstor::nvmf
