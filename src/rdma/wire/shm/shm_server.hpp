// shm_server.hpp: a node's end of the shm wire (shm_nic.hpp): serves the queues of clients that are other
// processes of its machine.
//
// Quotas (ShmLimits) limit what a client may have of the node's resources: each client is assured of a
// part. A connection that has sent nothing counts as pending (wire/shm/pending_connections.hpp), not as a
// client.
//
// Threads: one that accepts, one a client; they only make control calls of the NIC that each client has on
// the node's loop wire. A client's messages are read by its own thread alone, from the first one on: they may
// carry descriptors whose last close waits for whatever the client likes. For the same reason sockets that
// never had a thread are closed by another one (wire/shm/socket_closer.hpp).
//
// What a hostile process that may open the socket can do: use up its user's places (clients_of_user_max) and
// quotas, and its share of the engines' time; end its own session, at any time and by any bytes. What it
// cannot: read or write memory of others, of the node or of the drives but by commands that its host NQN
// allows; make the node access memory that it did not share, or that it took away (shrinkable files and huge
// pages are refused); stop others from connecting. Every word of shared memory is read once, then checked and
// used (rdma/nic/copy_once.hpp).
#pragma once

#include <gnstor/base/reactor.hpp>
#include <gnstor/base/result.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gnstor::rdma {

class LoopWire;

/// Quota of one resource of the node: for all clients together, assured to each client, and the most for
/// one client.
struct ShmLimit {
    std::uint64_t total, assured, most;
};

/// Defaults for a process that serves only shm clients (gnstord). Each total is at least `clients_max`
/// times what is assured.
struct ShmLimits {
    /// The node's NIC has 4,093 queue pairs; each connected one of a client needs another there. 253 stay
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
