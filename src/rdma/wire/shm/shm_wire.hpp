// shm_wire.hpp: the wire between two processes of one machine: the node's NIC works on queues that lie in the
// client's memory.
//
// As a virtual machine monitor gives a guest's rings to another process, a client gives the node the memory
// that its queues, capsules and buffers lie in (sealed files, passed over a Unix socket), and asks for
// completion queues, queue pairs and connections over that socket. From then on the node's engines look at
// the client's doorbells themselves: the data path is the loop wire's, with no copy and no hop more.
//
// What each side can do to the other: the client writes into its own memory at any moment, which the engines
// take for what it is, entries of a queue that any lane may have written (DESIGN.md, "Strict mode"); it
// cannot take the memory away (the files are sealed against shrinking). The node writes where the client's
// keys allow. A client that dies is noticed by its socket: its queue pairs are ended, its memory is let go
// when the drives have let go. A node that dies is noticed by its socket as well: its queue pairs go to
// error, and what they had outstanding is flushed (wire/shm/nodes.hpp), so that lanes wait for no deadline; a
// node that stands still is not dead, and is what deadlines and keep-alives are for.
//
// What a client may have of the node's is limited (ShmLimits), so that it takes nothing from others: each is
// assured of a part. A connection that says nothing holds a place in the lobby (wire/shm/lobby.hpp), no
// client's.
//
// Threads: ShmWire: any host thread, one call at a time inside. ShmServer: one thread that accepts, one a
// client; they only make control calls of the NIC that each client has on the node's loop wire.
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

/// One of several nodes that a client has on its machine.
struct ShmNode {
    struct Place {
        std::filesystem::path socket;
        std::optional<pid_t> server{};  ///< the process that has to listen there
    };
    std::string address;  ///< as the NIC's connect() names it; empty: whatever it names
    /// Where it serves. Asked anew after the node has ended, by whoever connects to it again.
    std::function<Result<Place>()> find;
};

/// A client's end.
class ShmWire {
  public:
    /// Connects to the server at `path`, some seconds at most. kNotFound: nobody serves there; kUnsupported:
    /// it speaks another version; kPermission: it is not the process `server`.
    static Result<std::unique_ptr<ShmWire>> open(const std::filesystem::path& path,
                                                 std::optional<pid_t> server = std::nullopt);
    /// To several nodes, which fill the same completion rings (wire/shm/nodes.hpp). All of them have to be
    /// there; later they may end and come back. kUnsupported besides: this processor orders what two
    /// processes wrote otherwise than lanes expect.
    static Result<std::unique_ptr<ShmWire>> open(std::vector<ShmNode> nodes);
    /// Its NIC must be gone.
    ~ShmWire();
    ShmWire(const ShmWire&) = delete;
    ShmWire& operator=(const ShmWire&) = delete;

    struct Impl;

  private:
    friend class SoftNic;
    explicit ShmWire(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

/// Of one thing of the node: how much all clients together may have, what each is assured of whatever others
/// have, and the most that one may have.
struct ShmLimit {
    std::uint64_t total, assured, most;
};

/// Of a process whose shm clients are all that it serves (gnstord). The totals are at least what is assured
/// to `clients_max` clients.
struct ShmLimits {
    /// The node's own NIC has 4,094, one for each queue pair that is connected; the rest is its own.
    ShmLimit queue_pairs{3840, 8, 1024};
    ShmLimit completion_queues{7680, 16, 2048};
    /// In all send queues. Each costs the node 128 bytes of its own.
    ShmLimit send_entries{2u << 20, 2048, 1u << 20};
    /// Of shared memory: mappings of the node's process (vm.max_map_count, 65,530 by default).
    ShmLimit blocks{32'768, 32, 1024};
    /// Of shared memory. Pages are the client's, and end with it; those that the node touches first count as
    /// the node's (its control group), and each GiB that it has touched costs it 2 MiB of page tables. A
    /// total of 0: three quarters of this machine's memory; a most of 0: half of the total.
    ShmLimit bytes{0, 16u << 20, 0};
};

struct ShmServerOptions {
    std::filesystem::path path{};  ///< of the socket; an abandoned one is replaced
    std::string node{};            ///< address on the loop wire that clients' connections go to
    std::uint32_t mode = 0600;     ///< of the socket: who may connect
    std::uint32_t clients_max = 256;
    std::uint32_t clients_of_user_max = 192;  ///< of one user (user id): others get in all the same
    /// Connections that have not said anything: so many wait, so long. A newcomer beyond sends away the
    /// oldest of the user that has most of them.
    std::uint32_t silent_max = 64;
    std::uint32_t hello_ms = 5'000;
    bool strict = false;  ///< of the clients' NICs (NicOptions)
    ShmLimits limits{};
    /// How long drives may hold the memory of a client that has ended. What they still hold then stays mapped
    /// as long as the process, and the client's place is taken: its shares are not another's.
    std::uint32_t give_back_ms = 60'000;
    /// The same where the server ends.
    std::uint32_t end_ms = 5'000;
};

/// A node's end: serves clients until it is destroyed.
class ShmServer {
  public:
    /// `wire` and `reactors` (where the clients' queue pairs are executed) outlive the server.
    static Result<std::unique_ptr<ShmServer>> start(LoopWire& wire, std::span<Reactor* const> reactors,
                                                    ShmServerOptions options);
    /// Ends all clients' connections; waits until the node lets go of their memory, `end_ms` at most.
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
