// serving_processes.hpp: which processes of this machine hold the sockets by which SSDs are reached: who
// emulates the hardware, for reports of CPU time. Linux (/proc); any thread.
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
/// udp6. Lines that are none are left out.
[[nodiscard]] std::set<std::uint64_t> inodes_bound_to(std::string_view table,
                                                      const std::vector<std::string>& addresses,
                                                      std::uint16_t port);

/// Those that hold UDP sockets bound to `addresses` and `port`, as far as this user may look.
[[nodiscard]] std::vector<ServingProcess> processes_bound_to(const std::vector<std::string>& addresses,
                                                             std::uint16_t port);
/// Paths of the Unix sockets that are listened at and whose inode is among these, from the text of
/// /proc/net/unix. Lines that are none are left out.
[[nodiscard]] std::vector<std::string> listening_paths(std::string_view table,
                                                       const std::set<std::uint64_t>& inodes);
/// Where a process serves others of its own machine.
struct NodeShm {
    std::filesystem::path socket;
    pid_t process;  ///< who has to listen there: paths are another's to make, too
};
/// Where the node that has this IP address does (node.shm): the kernel says which process holds the port, and
/// what that process listens at. Nothing: it does not, or this user may not look.
[[nodiscard]] std::optional<NodeShm> shm_of_node(const std::string& address, std::uint16_t port);
/// The one that listens at a Unix socket (SO_PEERCRED), if somebody does.
[[nodiscard]] std::vector<ServingProcess> process_listening_at(const std::filesystem::path& socket);

}  // namespace gnstor::daemon
