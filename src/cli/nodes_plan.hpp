// nodes_plan.hpp: the nodes that `gnstor up --nodes` runs in an array's folder: where they are, their
// processes.
//
// The plan (up.json, replaced whole) is written before the first node is started and stays: addresses are
// what the array's records of today name. Unix; one thread.
#pragma once

#include <gnstor/base/result.hpp>

#include "cli/array_factory.hpp"
#include "cli/background_process.hpp"

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gnstor::cli {

struct PlannedNode {
    std::string name;     ///< of its folder in the array's, and of its log: "node-0"
    std::string address;  ///< ADDR[:PORT]
};

/// None: the array of this folder has no nodes of its own.
Result<std::vector<PlannedNode>> read_plan(const std::filesystem::path& directory);
Result<void> write_plan(const std::filesystem::path& directory, const std::vector<PlannedNode>& nodes);

/// So many nodes at these addresses; without any, at free ones of the loopback (127.0.0.0/8).
Result<std::vector<PlannedNode>> make_plan(std::size_t nodes, const std::vector<std::string>& addresses);

struct NodeState {
    PlannedNode node;
    std::optional<pid_t> pid;                      ///< nothing: it does not run
    std::string version{};                         ///< of its program; empty: it does not say
    std::shared_ptr<BackgroundProcess> started{};  ///< by start_nodes; null: it runs already, or does not
};
std::vector<NodeState> node_states(const std::filesystem::path& directory,
                                   const std::vector<PlannedNode>& plan);

/// Starts those that do not run and waits until all serve, in all `deadline`. On failure those it started are
/// stopped. `ssd`: number, capacity and ways of each node's SSDs.
Result<std::vector<NodeState>> start_nodes(const std::filesystem::path& directory,
                                           const std::vector<PlannedNode>& plan, const ArrayOptions& ssd,
                                           std::chrono::milliseconds deadline);
/// SIGTERM, last one first, and until they have ended: how many there were. kIo, when all have ended, where
/// one did not close its stores.
Result<std::size_t> stop_nodes(const std::filesystem::path& directory, const std::vector<PlannedNode>& plan,
                               std::chrono::milliseconds deadline);

/// Of an array that is not given others.
[[nodiscard]] std::filesystem::path node_log(const std::filesystem::path& directory, const PlannedNode& node);

}  // namespace gnstor::cli
