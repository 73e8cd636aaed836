// known_ssds.hpp: the file that says which SSDs a daemon found at which nodes. Replaced whole or not at all.
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

/// None where there is no such file; kCorrupt where it is something else.
Result<std::vector<KnownNode>> read_known(const std::filesystem::path& file);
Result<void> write_known(const std::filesystem::path& file, const std::vector<KnownNode>& nodes);

}  // namespace gnstor::embedded
