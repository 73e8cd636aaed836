// node_process.hpp: a node as a process: what it says of itself in its folder, and which process it is. Unix;
// one thread.
#pragma once

#include <gnstor/base/result.hpp>

#include "cli/array_factory.hpp"
#include "daemon/http/http_server.hpp"

#include <nlohmann/json_fwd.hpp>

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>

namespace gnstor::cli {

inline constexpr char kNodeLockFile[] = "node.lock";
inline constexpr char kNodePidFile[] = "node.pid";
inline constexpr char kNodeFile[] = "node.json";          ///< there while it serves, and after a kill
inline constexpr char kGatewaySocket[] = "gateway.sock";  ///< what a gateway says of itself; of its HTTP

struct NodeOptions {
    ArrayOptions array;
    std::string address, port = "4420";
    GatewayVolume gateway;    ///< in place of SSDs, where it has a name
    RemoteArrayOptions from;  ///< its array
    /// Of a gateway: where it says how it does, beside the Unix socket in its folder; and the token of that.
    std::optional<daemon::HttpServerOptions> tcp;
    std::filesystem::path token_file;
};

/// Serves until SIGTERM or SIGINT. Blocks these signals first: call it while there is one thread.
Result<void> run_node(const NodeOptions& options);

/// The node that serves a folder: its pid file names a process that holds its lock file open.
[[nodiscard]] std::optional<pid_t> node_of(const std::filesystem::path& directory);

/// What that process said when it began to serve; nothing before, or of an earlier process.
[[nodiscard]] std::optional<nlohmann::json> read_node_file(const std::filesystem::path& directory, pid_t pid);

/// Of the program, in what its process said; empty: it does not say, as older ones did not.
[[nodiscard]] std::string version_in(const nlohmann::json& about);

}  // namespace gnstor::cli
