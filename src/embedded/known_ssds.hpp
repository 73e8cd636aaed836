// known_ssds.hpp: the file of the SSDs that a daemon found at its nodes. Replaced atomically.
#pragma once

#include <gnstor/base/result.hpp>

#include "daemon/decisions/ssd_port.hpp"
#include "embedded/node_array.hpp"

#include <filesystem>
#include <vector>

namespace gnstor::embedded {

struct KnownNode {
    NodeAddress where;
    std::vector<daemon::SsdIdentity> ssds;  ///< in the node's order
};

/// Empty if there is no such file; kCorrupt if it cannot be parsed.
Result<std::vector<KnownNode>> read_known(const std::filesystem::path& file);
Result<void> write_known(const std::filesystem::path& file, const std::vector<KnownNode>& nodes);

}  // namespace gnstor::embedded
