// remote_array.hpp: an array that other processes serve, as an object: gnstord over HTTP, SSDs over the shm
// or the udp wire.
//
//     auto array = gnstor::RemoteArray::open({.array = "unix:/var/lib/gnstor/gnstord.sock"});
//     auto client = (*array)->connect({.name = "trainer"});
//
// A client::Array, as an EmbeddedArray is, so a program works with either. Software NIC. The wire: shm where
// all SSDs are of processes of this machine whose shared memory this user may have: gnstord's own (named by
// its Unix socket) or nodes'; udp otherwise. wire() says which, and why. To one process alone, the shm wire
// ends with it: a program that is to outlive its restart names an address, and so takes udp. With several
// nodes Client::reclaim() finds the one that has come back. GPU lanes: compiled for, not run yet.

#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/client/array.hpp>

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gnstor {

struct RemoteArrayOptions {
    std::string array;            ///< unix:PATH of gnstord's socket, or http://HOST:PORT
    std::string token_file = {};  ///< of http: what gnstord wants to see (gnstord.token in its folder)
    /// Of this process on the udp wire, which is taken then in any case. Empty: where the route to the SSDs
    /// begins, if it has to be that wire.
    std::string address = {};
};

/// A process of this machine that serves SSDs: it emulates the hardware.
struct ServingProcess {
    pid_t pid;
    std::string name;
    std::uint64_t cpu_time_ns;  ///< since it began, all its threads
};

/// A thread of this process that runs its NIC.
struct NicThread {
    std::string name;
    std::uint64_t cpu_time_ns, busy_time_ns;
};

/// What a node's socket for processes of its machine is called, in the node's folder.
inline constexpr const char* kNodeShmSocket = "node.shm";
/// Where a gnstord that has the SSDs in its own process serves them to other processes: beside its socket.
std::filesystem::path shm_socket_beside(const std::filesystem::path& gnstord_socket);

class RemoteArray final : public client::Array {
  public:
    /// Asks gnstord where the SSDs are, and takes an address on the wire. kUnsupported: they are in its own
    /// process, and it was named by HTTP. Clients must be gone before it is.
    static Result<std::unique_ptr<RemoteArray>> open(const RemoteArrayOptions& options);
    ~RemoteArray() override;

    Result<std::unique_ptr<client::Client>> connect(const client::ClientOptions& options) override;
    [[nodiscard]] client::ControlPlane& control() override;
    [[nodiscard]] rdma::SoftNic& host_nic() override;
    [[nodiscard]] std::string wire() const override;
    [[nodiscard]] std::uint32_t packet_bytes() const;  ///< RoCE's MTU; 0: no packets
    /// In order of id. None of other machines, and of other users only what this one may see.
    [[nodiscard]] std::vector<ServingProcess> serving_processes() const;
    /// Nothing on the shm wire: the nodes' engines do its work.
    [[nodiscard]] std::optional<NicThread> nic_thread() const;

  private:
    struct Impl;
    explicit RemoteArray(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor
