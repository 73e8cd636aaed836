// down_command.cpp: gnstor down: stops gnstord and the nodes of its folder, and checks that they closed their
// SSDs' stores.
#include "cli/cli.hpp"
#include "cli/daemon_process.hpp"
#include "cli/nodes_plan.hpp"
#include "cli/process.hpp"
#include "cli/store_closing.hpp"

#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace gnstor::cli {
namespace {

using nlohmann::json;

/// The process that `down` stops: the listener at the socket, else the gnstord of the folder. With --socket
/// but without --dir the folder is not tried.
std::optional<pid_t> whom_to_stop(const Context& c) {
    if (const std::optional<pid_t> listener = listener_of(c.socket_path())) return listener;
    if (!c.socket.empty() && !c.directory_given) return std::nullopt;
    return daemon_of(c.directory);
}

/// Stops the nodes of this folder; call it after their gnstord has ended.
Result<std::size_t> stop_own_nodes(const Context& c, std::uint32_t wait_s) {
    if (!c.socket.empty() && !c.directory_given) return std::size_t{0};
    GN_ASSIGN(const std::vector<PlannedNode> plan, read_plan(c.directory));
    return stop_nodes(c.directory, plan, std::chrono::seconds(wait_s));
}

/// Stores of this folder that must be recovered before the machine restarts, and what to do; empty: none.
Result<std::string> stores_that_wait_for_up(const Context& c) {
    if (!c.socket.empty() && !c.directory_given) return std::string{};
    std::vector<std::filesystem::path> folders{c.directory};
    GN_ASSIGN(const std::vector<PlannedNode> plan, read_plan(c.directory));
    for (const PlannedNode& node : plan) folders.push_back(std::filesystem::path(c.directory) / node.name);
    return StoresInUse::in(folders).lost_by_restart();
}

/// kIo: there are such stores. `now`: what has become of gnstord.
Result<void> check_that_nothing_waits(const Context& c, const std::string& now) {
    GN_ASSIGN(const std::string waiting, stores_that_wait_for_up(c));
    if (!waiting.empty()) return error(Errc::kIo, "{}, and {}", now, waiting);
    return {};
}

/// kPermission: there is a socket that this user may not open, so that whether gnstord runs cannot be told.
Result<void> check_may_ask(const Context& c) {
    if (::access(c.socket_path().c_str(), W_OK) == 0 || errno != EACCES) return {};
    return error(
        Errc::kPermission,
        "whether gnstord runs cannot be told: its socket {} belongs to another user; stop the array as "
        "that user or as root",
        c.socket_path().string());
}

int down(const Context& c, std::uint32_t wait_s) {
    if (const Result<void> may = check_may_ask(c); !may.ok()) return c.out.fail(may.error());
    const std::optional<pid_t> pid = whom_to_stop(c);
    const std::string where = c.socket.empty() ? c.directory : c.socket_path().string();
    if (!pid) {
        std::error_code failed;
        const bool stale = std::filesystem::exists(c.socket_path(), failed);
        const Result<std::size_t> nodes = stop_own_nodes(c, wait_s);
        if (!nodes.ok()) return c.out.fail(nodes.error());
        const auto checked = check_that_nothing_waits(c, fmt::format("gnstord is not running on {}", where));
        if (!checked.ok()) return c.out.fail(checked.error());
        json document{{"state", "down"}, {"stopped", false}, {"stale_socket", stale}};
        if (*nodes != 0) document["nodes_stopped"] = *nodes;
        c.out.document(document);
        c.out.text(
            fmt::format("gnstord is not running on {}{}\n", where,
                        stale ? ": it was killed and left its socket; the next 'gnstor up' removes it" : ""));
        if (*nodes != 0) c.out.text(fmt::format("{} nodes have stopped\n", *nodes));
        return kOk;
    }
    if (!is_gnstord(*pid))
        return c.out.fail(error(Errc::kState,
                                "process {} listens at {}, but is not gnstord; stop it yourself", *pid,
                                c.socket_path().string()));
    const StoresInUse stores = StoresInUse::of(*pid);
    if (::kill(*pid, SIGTERM) != 0 && errno != ESRCH)
        return c.out.fail(error(Errc::kPermission,
                                "gnstord (process {}) cannot be stopped: it belongs to another user; stop it "
                                "as that user or as root",
                                *pid));
    if (!wait_until(std::chrono::seconds(wait_s), [&] { return !alive(*pid); }))
        return c.out.fail(error(Errc::kTimedOut,
                                "gnstord (process {}) has not stopped within {} s; wait, or kill it: "
                                "everything that was acknowledged is kept",
                                *pid, wait_s));
    const std::string unfinished = stores.unfinished(std::filesystem::path(c.directory) / kPidFile, *pid);
    const Result<std::size_t> nodes = stop_own_nodes(c, wait_s);
    if (!unfinished.empty())
        return c.out.fail(error(Errc::kIo, "gnstord (process {}) has ended, but {}{}", *pid, unfinished,
                                nodes.ok() ? "" : "; " + nodes.error().message));
    if (!nodes.ok()) return c.out.fail(nodes.error());
    // Nodes that had ended before may have left stores open.
    const auto checked = check_that_nothing_waits(c, fmt::format("gnstord (process {}) has stopped", *pid));
    if (!checked.ok()) return c.out.fail(checked.error());
    json document{{"state", "down"}, {"stopped", true}, {"pid", *pid}};
    if (*nodes != 0) document["nodes_stopped"] = *nodes;
    c.out.document(document);
    c.out.text(fmt::format("gnstord (process {}) has stopped{}\n", *pid,
                           *nodes != 0 ? fmt::format(", and {} nodes", *nodes) : ""));
    return kOk;
}

}  // namespace

void add_down_command(CLI::App& app, Context& context) {
    auto wait_s = std::make_shared<std::uint32_t>(60);
    CLI::App* stop = app.add_subcommand("down", "stop the array; its data stays");
    stop->add_option("--wait", *wait_s, "seconds to wait until it has stopped")
        ->check(CLI::Range(1, 3600))
        ->capture_default_str();
    stop->callback(
        [&context, wait_s] { context.action = [&context, wait_s] { return down(context, *wait_s); }; });
}

}  // namespace gnstor::cli
