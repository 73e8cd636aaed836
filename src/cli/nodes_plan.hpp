// nodes_plan.hpp: the nodes that `gnstor up --nodes` runs in an array's folder: the plan of names and
// addresses; starting and stopping the processes.
//
// The plan (up.json, replaced atomically) is written before the first node is started and never changes
// afterwards: the array's records refer to nodes by address. Unix; one thread.
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
    std::string name;     ///< name of its folder inside the array's, and of its log: "node-0"
    std::string address;  ///< ADDR[:PORT]
};

/// Empty: there is no plan; this folder's array was not started with --nodes.
Result<std::vector<PlannedNode>> read_plan(const std::filesystem::path& directory);
Result<void> write_plan(const std::filesystem::path& directory, const std::vector<PlannedNode>& nodes);

/// Plans `nodes` nodes at these addresses; if none are given, at free loopback addresses (127.0.0.0/8).
Result<std::vector<PlannedNode>> make_plan(std::size_t nodes, const std::vector<std::string>& addresses);

struct NodeState {
    PlannedNode node;
    std::optional<pid_t> pid;                      ///< nullopt: it does not run
    std::string version{};                         ///< of its program; empty: not reported
    std::shared_ptr<BackgroundProcess> started{};  ///< set by start_nodes() if it started the node
};
std::vector<NodeState> node_states(const std::filesystem::path& directory,
                                   const std::vector<PlannedNode>& plan);

/// Starts the nodes that do not run and waits, for `deadline` in total, until all serve. On failure it stops
/// those that it started. `ssd`: number, capacity and options of each node's SSDs.
Result<std::vector<NodeState>> start_nodes(const std::filesystem::path& directory,
                                           const std::vector<PlannedNode>& plan, const ArrayOptions& ssd,
                                           std::chrono::milliseconds deadline);
/// Sends SIGTERM to each node, last one first, and waits until it has ended. Returns how many were stopped;
/// kIo, once all have ended, if one did not close its stores.
Result<std::size_t> stop_nodes(const std::filesystem::path& directory, const std::vector<PlannedNode>& plan,
                               std::chrono::milliseconds deadline);

[[nodiscard]] std::filesystem::path node_log(const std::filesystem::path& directory, const PlannedNode& node);

}  // namespace gnstor::cli
