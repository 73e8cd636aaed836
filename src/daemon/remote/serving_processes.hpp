// serving_processes.hpp: which processes of this machine hold the sockets of SSDs, and so emulate the
// hardware; for reports of CPU time. Linux (/proc); any thread.
#pragma once

#include <gnstor/remote_array.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace gnstor::daemon {

/// Inodes of the UDP sockets bound to one of `addresses` (IP) and `port`, from the text of /proc/net/udp or
/// udp6. Malformed lines are skipped.
[[nodiscard]] std::set<std::uint64_t> inodes_bound_to(std::string_view table,
                                                      const std::vector<std::string>& addresses,
                                                      std::uint16_t port);

/// Processes that hold UDP sockets bound to `addresses` and `port`, as far as this user may see.
[[nodiscard]] std::vector<ServingProcess> processes_bound_to(const std::vector<std::string>& addresses,
                                                             std::uint16_t port);
/// Paths of the listening Unix sockets with one of these inodes, from the text of /proc/net/unix. Malformed
/// lines are skipped.
[[nodiscard]] std::vector<std::string> listening_paths(std::string_view table,
                                                       const std::set<std::uint64_t>& inodes);
/// The socket by which a node serves processes of its machine.
struct NodeShm {
    std::filesystem::path socket;
    pid_t process;  ///< the process that must listen there: another one could create the same path
};
/// Finds the shm socket (node.shm) of the node with this IP address: the kernel tells which process has bound
/// the port, and on which sockets that process listens. None: it has no such socket, or this user may not see
/// it.
[[nodiscard]] std::optional<NodeShm> shm_of_node(const std::string& address, std::uint16_t port);
/// The process that listens at a Unix socket (SO_PEERCRED), if any.
[[nodiscard]] std::vector<ServingProcess> process_listening_at(const std::filesystem::path& socket);

}  // namespace gnstor::daemon
