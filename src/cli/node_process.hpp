// node_process.hpp: a node as a process: runs it, finds the node of a folder, and reads the file in which a
// node describes itself. Unix; one thread.
#pragma once

#include <gnstor/base/result.hpp>

#include "cli/array_factory.hpp"
#include "cli/tls_options.hpp"
#include "daemon/http/http_server.hpp"

#include <nlohmann/json_fwd.hpp>

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>

namespace gnstor::cli {

inline constexpr char kNodeLockFile[] = "node.lock";
inline constexpr char kNodePidFile[] = "node.pid";
inline constexpr char kNodeFile[] = "node.json";  ///< exists while the node serves, and after a kill
/// Begins the name of a gateway's folder; the name of its volume follows.
inline constexpr char kGatewayFolderPrefix[] = "gateway-";
inline constexpr char kGatewaySocket[] = "gateway.sock";  ///< Unix socket of a gateway's HTTP interface

struct NodeOptions {
    ArrayOptions array;
    std::string address, port = "4420";
    GatewayVolume gateway;    ///< if it has a name: serve this volume in place of SSDs
    RemoteArrayOptions from;  ///< the gateway's array
    /// Of a gateway: TCP address of its HTTP interface, beside the Unix socket in its folder; and the token
    /// for it.
    std::optional<daemon::HttpServerOptions> tcp;
    std::filesystem::path token_file;
    TlsOptions tls;  ///< of that address
};

/// Serves until SIGTERM or SIGINT. Blocks these signals first: call it while the process has one thread.
Result<void> run_node(const NodeOptions& options);

/// The node that serves a folder: its pid file names a process that holds its lock file open.
[[nodiscard]] std::optional<pid_t> node_of(const std::filesystem::path& directory);

/// The description that process `pid` wrote when it began to serve; nullopt: not written yet, or by another
/// process.
[[nodiscard]] std::optional<nlohmann::json> read_node_file(const std::filesystem::path& directory, pid_t pid);

/// The program's version in a node's description; empty: written by an older program that did not report it.
[[nodiscard]] std::string version_in(const nlohmann::json& about);

}  // namespace gnstor::cli
