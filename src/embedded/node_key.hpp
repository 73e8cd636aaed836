// node_key.hpp: files with the keys of nodes: the secret from which a node and its gnstord derive the keys of
// all hosts (nvmf/access/derived_hosts.hpp).
//
// One key in the form DHHC-1 a file, mode 0600. Host code; any thread.
#pragma once

#include "embedded/node_array.hpp"
#include "nvmf/access/host_registry.hpp"
#include "nvmf/auth/dhchap_key.hpp"

#include <gnstor/base/result.hpp>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gnstor::embedded {

/// Name of the key file in an array's folder, and in a node's.
inline constexpr char kNodeKeyFile[] = "node.key";

/// kNotFound: there is no such file; kPermission: other users may access it; kInvalidArgument: it holds no
/// key.
Result<nvmf::auth::DhchapKey> read_node_key(const std::filesystem::path& file);
/// The same, but creates the file with a new random key if there is none. Concurrent callers get one key.
Result<nvmf::auth::DhchapKey> read_or_make_node_key(const std::filesystem::path& file);
/// The hosts of a node with the key of this file.
Result<std::shared_ptr<nvmf::HostRegistry>> hosts_of_node(const std::filesystem::path& file);

/// The keys that a gnstord has of its nodes, by address, and one for all other nodes.
class NodeKeys {
  public:
    using Key = std::shared_ptr<const nvmf::auth::DhchapKey>;
    /// Each word is FILE or ADDRESS=FILE. kInvalidArgument: an address or "all others" twice.
    static Result<NodeKeys> read(const std::vector<std::string>& words);
    /// kInvalidArgument: a file was given for an address that no node has.
    [[nodiscard]] Result<void> check_names_only(const std::vector<NodeAddress>& nodes) const;
    /// Null: there is none for this address.
    [[nodiscard]] Key of(const std::string& address) const;

  private:
    std::map<std::string, Key> by_address_;
    Key others_;
};

}  // namespace gnstor::embedded
