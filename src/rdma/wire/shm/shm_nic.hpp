// shm_nic.hpp: the wire between two processes of one machine: the node's NIC works on queues that lie in the
// client's memory. Here the client's end; the node's is shm_server.hpp.
//
// As vhost-user does with a guest's rings, a client shares the memory of its queues, capsules and buffers
// with the node (sealed files, passed over a Unix socket), and requests completion queues, queue pairs
// and connections over that socket. From then on the node's engines read the client's doorbells directly:
// the data path is the loop wire's, without a further copy or hop.
//
// What each side can do to the other: the client may write into its own memory at any moment; the engines
// trust it no more than entries of any other lane (docs/design.md, "Strict mode"). It cannot take the memory
// away (the files are sealed against shrinking). The node writes where the client's keys allow. When a
// client dies, its socket hangs up: the node ends its queue pairs and unmaps its memory once the drives
// have released it. When a node dies, its socket hangs up too: its queue pairs go to error, and their
// outstanding work is flushed (wire/shm/nodes.hpp), so that lanes need not wait for a deadline. A node
// that hangs is noticed only by deadlines and keep-alives.
#pragma once

#include <gnstor/base/result.hpp>

#include "rdma/nic/nic.hpp"

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gnstor::rdma {

/// One of several nodes on the client's machine.
struct ShmNode {
    struct Place {
        std::filesystem::path socket;
        std::optional<pid_t> server{};  ///< the process that must be listening there
    };
    std::string address;  ///< as passed to the NIC's connect(); empty: matches any
    /// Returns where the node serves. Called again by the first connect() after the node has ended.
    std::function<Result<Place>()> find;
};

/// A NIC whose queues and memory are this process's, and whose engines are those of the node that serves at
/// `path`. All memory that it is told of (rings, records, bells, regions) must lie in what share_memory() was
/// given. Calls fail with kIo once the node's process is gone. Any host thread, one call at a time inside.
/// Connects to the server at `path`; takes some seconds at most. kNotFound: none serves there; kUnsupported:
/// it speaks another version; kPermission: it is not the process `server`.
Result<std::unique_ptr<Nic>> open_shm_nic(const std::filesystem::path& path,
                                          std::optional<pid_t> server = std::nullopt);
/// Connects to several nodes, which fill the same completion rings (wire/shm/nodes.hpp). All must be running;
/// later each may end and come back. connect() says by its address which of them a queue pair goes
/// to; queue pairs of a node that is gone are in error, and may be reset and connected again once it is back.
/// Also kUnsupported: this processor may reorder writes of two processes, which lanes do not expect.
Result<std::unique_ptr<Nic>> open_shm_nic(std::vector<ShmNode> nodes);

}  // namespace gnstor::rdma
