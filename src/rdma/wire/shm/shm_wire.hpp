// shm_wire.hpp: the wire between two processes of one machine: the node's NIC works on queues that lie in
// the client's memory.
//
// As vhost-user does with a guest's rings, a client shares the memory of its queues, capsules and buffers
// with the node (sealed files, passed over a Unix socket), and requests completion queues, queue pairs
// and connections over that socket. From then on the node's engines read the client's doorbells directly:
// the data path is the loop wire's, without a further copy or hop.
//
// What each side can do to the other: the client may write into its own memory at any moment; the engines
// trust it no more than entries of any other lane (DESIGN.md, "Strict mode"). It cannot take the memory
// away (the files are sealed against shrinking). The node writes where the client's keys allow. When a
// client dies, its socket hangs up: the node ends its queue pairs and unmaps its memory once the drives
// have released it. When a node dies, its socket hangs up too: its queue pairs go to error, and their
// outstanding work is flushed (wire/shm/nodes.hpp), so that lanes need not wait for a deadline. A node
// that hangs is noticed only by deadlines and keep-alives.
//
// Quotas (ShmLimits) limit what a client may have of the node's resources: each client is assured of a
// part. A connection that has sent nothing counts as pending (wire/shm/lobby.hpp), not as a client.
//
// Threads: ShmWire: any host thread; its calls run one at a time. ShmServer: one thread that accepts, one
// per client; they only make control calls of the NIC that each client has on the node's loop wire.
#pragma once

#include <gnstor/base/reactor.hpp>
#include <gnstor/base/result.hpp>

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gnstor::rdma {

class LoopWire;

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

/// A client's end.
class ShmWire {
  public:
    /// Connects to the server at `path`; takes some seconds at most. kNotFound: none serves there;
    /// kUnsupported: it speaks another version; kPermission: it is not the process `server`.
    static Result<std::unique_ptr<ShmWire>> open(const std::filesystem::path& path,
                                                 std::optional<pid_t> server = std::nullopt);
    /// Connects to several nodes, which fill the same completion rings (wire/shm/nodes.hpp). All must be
    /// running; later each may end and come back. Also kUnsupported: this processor may reorder writes of
    /// two processes, which lanes do not expect.
    static Result<std::unique_ptr<ShmWire>> open(std::vector<ShmNode> nodes);
    /// Its NIC must have been destroyed before.
    ~ShmWire();
    ShmWire(const ShmWire&) = delete;
    ShmWire& operator=(const ShmWire&) = delete;

    struct Impl;

  private:
    friend class SoftNic;
    explicit ShmWire(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

/// Quota of one resource of the node: for all clients together, assured to each client, and the most for
/// one client.
struct ShmLimit {
    std::uint64_t total, assured, most;
};

/// Defaults for a process that serves only shm clients (gnstord). Each total is at least `clients_max`
/// times what is assured.
struct ShmLimits {
    /// The node's NIC has 4,094 queue pairs; each connected one of a client needs another there. 254 stay
    /// for the node itself.
    ShmLimit queue_pairs{3840, 8, 1024};
    ShmLimit completion_queues{7680, 16, 2048};
    /// In all send queues together. Each entry costs the node 128 bytes of its own memory.
    ShmLimit send_entries{2u << 20, 2048, 1u << 20};
    /// Blocks of shared memory: mappings of the node's process (vm.max_map_count, 65,530 by default).
    ShmLimit blocks{32'768, 32, 1024};
    /// Bytes of shared memory. Its pages belong to the client and end with it; pages that the node
    /// touches first are charged to the node (its control group), and each GiB that it has touched costs
    /// 2 MiB of page tables. total = 0: three quarters of this machine's memory; most = 0: half of the
    /// total.
    ShmLimit bytes{0, 16u << 20, 0};
};

struct ShmServerOptions {
    std::filesystem::path path{};  ///< of the socket; replaced if no process listens on it
    std::string node{};            ///< address on the loop wire that clients' connections go to
    std::uint32_t mode = 0600;     ///< permissions of the socket: which users may connect
    std::uint32_t clients_max = 256;
    std::uint32_t clients_of_user_max = 192;  ///< of one user id, so that others can connect
    /// Pending connections, which have sent no message: at most silent_max, each for hello_ms. A further
    /// one closes the oldest of the user that has most of them.
    std::uint32_t silent_max = 64;
    std::uint32_t hello_ms = 5'000;
    bool strict = false;  ///< of the clients' NICs (NicOptions)
    ShmLimits limits{};
    /// How long drives may hold the memory of a client that has ended. What they hold longer stays mapped
    /// as long as the process, and keeps its part of the quotas and the client's place.
    std::uint32_t give_back_ms = 60'000;
    /// The same when the server is destroyed.
    std::uint32_t end_ms = 5'000;
};

/// The node's side: serves clients until it is destroyed.
class ShmServer {
  public:
    /// `wire` and `reactors` (where the clients' queue pairs are executed) outlive the server.
    static Result<std::unique_ptr<ShmServer>> start(LoopWire& wire, std::span<Reactor* const> reactors,
                                                    ShmServerOptions options);
    /// Ends all clients' connections; waits until the node has released their memory, `end_ms` at most.
    ~ShmServer();
    ShmServer(const ShmServer&) = delete;
    ShmServer& operator=(const ShmServer&) = delete;

    [[nodiscard]] std::size_t clients() const;

    struct Impl;

  private:
    explicit ShmServer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::rdma
