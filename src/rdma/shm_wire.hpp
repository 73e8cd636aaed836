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
// when the drives have let go. A node that dies leaves the client's commands unanswered, its calls fail with
// kIo, and deadlines do the rest.
//
// Threads: ShmWire: any host thread, one call at a time inside. ShmServer: one thread that accepts, one a
// client; they only make control calls of the NIC that each client has on the node's loop wire.
#pragma once

#include <gnstor/base/reactor.hpp>
#include <gnstor/base/result.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace gnstor::rdma {

class LoopWire;

/// A client's end.
class ShmWire {
  public:
    /// Connects to the server at `path`. kNotFound: nobody serves there; kUnsupported: it speaks another
    /// version.
    static Result<std::unique_ptr<ShmWire>> open(const std::filesystem::path& path);
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

struct ShmServerOptions {
    std::filesystem::path path;  ///< of the socket; an abandoned one is replaced
    std::string node;            ///< address on the loop wire that clients' connections go to
    std::uint32_t mode = 0600;   ///< of the socket: who may connect
    std::uint32_t clients_max = 256;
    bool strict = false;                           ///< of the clients' NICs (NicOptions)
    std::uint64_t client_bytes_max = 64ull << 30;  ///< of memory that one client may share
};

/// A node's end: serves clients until it is destroyed.
class ShmServer {
  public:
    /// `wire` and `reactors` (where the clients' queue pairs are executed) outlive the server.
    static Result<std::unique_ptr<ShmServer>> start(LoopWire& wire, std::span<Reactor* const> reactors,
                                                    ShmServerOptions options);
    /// Ends all clients' connections; waits (bounded) until the node lets go of their memory.
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
