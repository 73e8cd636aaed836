#include "cli/nodes_plan.hpp"

#include "cli/daemon_process.hpp"
#include "cli/doctor_facts.hpp"
#include "cli/node_process.hpp"
#include "cli/process.hpp"
#include "cli/ssd_options.hpp"
#include "cli/store_closing.hpp"
#include "cli/store_files.hpp"
#include "daemon/records/records.hpp"
#include "daemon/records/sqlite_store.hpp"
#include "embedded/node_array.hpp"
#include "embedded/node_key.hpp"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

namespace gnstor::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr char kPlanFile[] = "up.json";
constexpr unsigned kFirstHost = 11;  // skips 127.0.0.1 and its neighbours, which users may need

fs::path plan_file(const fs::path& directory) {
    return directory / kPlanFile;
}

/// Validates both fields: the name becomes the name of a folder and a log, the address a command-line
/// argument.
Result<void> check(const PlannedNode& node, const std::string& where) {
    Result<void> named = daemon::check_name("name of a node", node.name);
    if (!named.ok()) return error(named.error().code, "{}: {}", where, named.error().message);
    const auto address = embedded::parse_node_address(node.address);
    if (!address.ok()) return error(address.error().code, "{}: {}", where, address.error().message);
    return {};
}

std::chrono::milliseconds left(Clock::time_point until) {
    return std::max(std::chrono::milliseconds(1),
                    std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()));
}

/// `count` consecutive loopback addresses whose RoCE port is free. The search starts at a group chosen by
/// process id: addresses that look free may belong to nodes of another array that are about to start or
/// restart. Processes with nearby ids start at different groups.
std::optional<std::vector<std::string>> free_addresses(std::size_t count) {
    const auto bind = machine().bind_roce_port;
    constexpr unsigned kNetworks = 40, kGroupsEach = 250, kGroups = kNetworks * kGroupsEach;
    const auto first = static_cast<unsigned>(::getpid());
    for (unsigned i = 0; i < kGroups; ++i) {
        const unsigned group = (first + i) % kGroups;
        std::vector<std::string> addresses;
        for (std::size_t node = 0; node < count; ++node)
            addresses.push_back(
                fmt::format("127.{}.{}.{}", group / kGroupsEach, group % kGroupsEach, kFirstHost + node));
        const bool free = std::all_of(addresses.begin(), addresses.end(),
                                      [&](const std::string& a) { return bind(a) == 0; });
        if (free) return addresses;
    }
    return std::nullopt;
}

std::vector<std::string> node_arguments(const fs::path& folder, const PlannedNode& node,
                                        const ArrayOptions& ssd, std::size_t nodes) {
    const std::size_t threads = std::max<std::size_t>(1, std::thread::hardware_concurrency() / 2 / nodes);
    std::vector<std::string> words{"node",
                                   "--dir",
                                   folder.string(),
                                   "--listen",
                                   node.address,
                                   "--ssds",
                                   std::to_string(ssd.ssds),
                                   "--capacity",
                                   std::to_string(ssd.ssd_capacity_bytes),
                                   "--engine-threads",
                                   std::to_string(threads),
                                   "--key-file",
                                   (folder.parent_path() / embedded::kNodeKeyFile).string()};
    for (std::string& word : ssd_arguments(ssd)) words.push_back(std::move(word));
    return words;
}

/// Path of the running gnstor executable, which nodes run too.
fs::path this_program() {
    std::error_code failed;
    const auto self = fs::read_symlink("/proc/self/exe", failed);
    return failed ? fs::path("gnstor") : self;
}

Result<void> wait_until_it_serves(const fs::path& directory, const NodeState& state,
                                  Clock::time_point until) {
    bool ended = false;
    const bool serves = wait_until(left(until), [&] {
        ended = state.started ? state.started->ended() : !alive(*state.pid);
        return ended || read_node_file(directory / state.node.name, *state.pid).has_value();
    });
    const fs::path log = node_log(directory, state.node);
    if (ended)
        return error(Errc::kIo, "{} at {} did not start: {}", state.node.name, state.node.address,
                     state.started ? state.started->why_it_ended() : "see " + log.string());
    if (!serves)
        return error(Errc::kTimedOut, "{} at {} did not start to serve in time; see its log {}",
                     state.node.name, state.node.address, log.string());
    return {};
}

void terminate(const std::vector<NodeState>& states) {
    for (const NodeState& state : states)
        if (state.started && state.pid) ::kill(*state.pid, SIGTERM);
    for (const NodeState& state : states)
        if (state.started && state.pid)
            (void)wait_until(std::chrono::seconds(10), [&] { return state.started->ended(); });
}

/// Whether no gnstord and no node of this array has ever begun. In doubt it is not new: what cannot be read
/// may hold data.
bool is_new_array(const fs::path& directory, const std::vector<PlannedNode>& plan) {
    std::error_code failed;
    // gnstord makes its records after all nodes serve.
    if (fs::exists(directory / daemon::kRecordsFile, failed) || failed) return false;
    return std::all_of(plan.begin(), plan.end(), [&](const PlannedNode& node) {
        const auto files = store_files(directory / node.name);
        return files.ok() && files->empty();
    });
}

/// The stores that nodes made for an array that could not be begun whole: each of them looks for room by
/// itself. Removes nothing if a node of any `gnstor up` runs: each holds the lock of its folder.
void remove_new_stores(const fs::path& directory, const std::vector<PlannedNode>& plan) {
    std::vector<std::unique_ptr<LockedFile>> locks;
    std::error_code failed;
    for (const PlannedNode& node : plan) {
        const fs::path folder = directory / node.name;
        if (!fs::exists(folder, failed)) continue;
        auto lock = LockedFile::take(folder / kNodeLockFile, "a node runs");
        if (!lock.ok()) return;
        locks.push_back(std::move(*lock));
    }
    if (fs::exists(directory / daemon::kRecordsFile, failed) || failed) return;
    for (const PlannedNode& node : plan) {
        const auto files = store_files(directory / node.name);
        if (!files.ok()) return;
        for (const fs::path& store : *files) fs::remove(store, failed);
    }
}

}  // namespace

fs::path node_log(const fs::path& directory, const PlannedNode& node) {
    return directory / (node.name + ".log");
}

Result<std::vector<PlannedNode>> read_plan(const fs::path& directory) {
    std::ifstream in(plan_file(directory));
    if (!in) return std::vector<PlannedNode>{};
    try {
        std::vector<PlannedNode> nodes;
        const json document = json::parse(in);
        for (const json& node : document.at("nodes"))
            nodes.push_back({node.at("name").get<std::string>(), node.at("address").get<std::string>()});
        for (const PlannedNode& node : nodes) GN_TRY(check(node, plan_file(directory).string()));
        return nodes;
    } catch (const json::exception& e) {
        return error(Errc::kCorrupt,
                     "{} does not list the nodes of the array ({}); write it again in the form {{\"nodes\": "
                     "[{{\"name\": \"node-0\", \"address\": ADDR}}]}}",
                     plan_file(directory).string(), e.what());
    }
}

Result<void> write_plan(const fs::path& directory, const std::vector<PlannedNode>& nodes) {
    json list = json::array();
    for (const PlannedNode& node : nodes) list.push_back({{"name", node.name}, {"address", node.address}});
    const fs::path beside = plan_file(directory).string() + ".new";
    std::ofstream out(beside, std::ios::trunc);
    out << json{{"nodes", list}}.dump(2) << '\n';
    out.close();
    std::error_code failed;
    if (out) fs::rename(beside, plan_file(directory), failed);
    if (!out || failed)
        return error(Errc::kIo, "{} cannot be written: {}", plan_file(directory).string(),
                     failed ? failed.message() : std::strerror(errno));
    return {};
}

Result<std::vector<PlannedNode>> make_plan(std::size_t nodes, const std::vector<std::string>& addresses) {
    std::optional<std::vector<std::string>> chosen = addresses;
    if (addresses.empty()) chosen = free_addresses(nodes);
    if (!chosen)
        return error(Errc::kBusy,
                     "there are no {} consecutive loopback addresses with UDP port 4791 free; 'gnstor doctor "
                     "--address 127.0.0.{}' shows which process uses the port",
                     nodes, kFirstHost);
    if (chosen->size() != nodes)
        return error(Errc::kInvalidArgument,
                     "{} nodes, but {} addresses were given; give one address for each node", nodes,
                     chosen->size());
    std::vector<PlannedNode> plan;
    for (std::size_t i = 0; i < nodes; ++i) plan.push_back({fmt::format("node-{}", i), (*chosen)[i]});
    for (const PlannedNode& node : plan) GN_TRY(check(node, "the nodes"));
    return plan;
}

std::vector<NodeState> node_states(const fs::path& directory, const std::vector<PlannedNode>& plan) {
    std::vector<NodeState> states;
    for (const PlannedNode& node : plan) {
        NodeState state{.node = node, .pid = node_of(directory / node.name)};
        const auto about = state.pid ? read_node_file(directory / node.name, *state.pid) : std::nullopt;
        if (about) state.version = version_in(*about);
        states.push_back(std::move(state));
    }
    return states;
}

Result<std::vector<NodeState>> start_nodes(const fs::path& directory, const std::vector<PlannedNode>& plan,
                                           const ArrayOptions& ssd, std::chrono::milliseconds deadline) {
    const auto until = Clock::now() + deadline;
    std::vector<NodeState> states = node_states(directory, plan);
    const bool is_new = is_new_array(directory, plan);
    // One key for all nodes of this folder, which gnstord uses too.
    GN_TRY(embedded::read_or_make_node_key(directory / embedded::kNodeKeyFile));
    Result<void> good;
    for (NodeState& state : states) {
        if (state.pid) continue;
        const fs::path folder = directory / state.node.name;
        Result<std::shared_ptr<BackgroundProcess>> started =
            BackgroundProcess::start(this_program(), node_arguments(folder, state.node, ssd, plan.size()),
                                     node_log(directory, state.node), "nodes need a writable folder");
        if (!started.ok()) {
            good = std::move(started).error();
            break;
        }
        state.started = std::move(started).value();
        state.pid = state.started->pid();
    }
    for (const NodeState& state : states)
        if (good.ok()) good = wait_until_it_serves(directory, state, until);
    if (good.ok()) return states;
    terminate(states);
    if (is_new) remove_new_stores(directory, plan);
    return std::move(good).error();
}

Result<std::size_t> stop_nodes(const fs::path& directory, const std::vector<PlannedNode>& plan,
                               std::chrono::milliseconds deadline) {
    const auto until = Clock::now() + deadline;
    std::vector<NodeState> states = node_states(directory, plan);
    std::reverse(states.begin(), states.end());
    std::size_t stopped = 0;
    std::vector<std::string> unfinished;
    for (const NodeState& state : states) {
        if (!state.pid) continue;
        const StoresInUse stores = StoresInUse::of(*state.pid);
        if (::kill(*state.pid, SIGTERM) != 0 && errno != ESRCH)
            return error(Errc::kPermission,
                         "{} (process {}) cannot be stopped: it belongs to another user; stop it as that "
                         "user or as root",
                         state.node.name, *state.pid);
        if (!wait_until(left(until), [&] { return !alive(*state.pid); }))
            return error(Errc::kTimedOut,
                         "{} (process {}) has not stopped in time; wait, or kill it: everything that was "
                         "acknowledged is kept",
                         state.node.name, *state.pid);
        ++stopped;
        if (const std::string why = stores.unfinished(directory / state.node.name / kNodePidFile, *state.pid);
            !why.empty())
            unfinished.push_back(
                fmt::format("{} (process {}) has ended, but {}", state.node.name, *state.pid, why));
    }
    if (!unfinished.empty()) return error(Errc::kIo, "{}", fmt::join(unfinished, "; "));
    return stopped;
}

}  // namespace gnstor::cli
