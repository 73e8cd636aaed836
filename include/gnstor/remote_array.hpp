// remote_array.hpp: an array that other processes serve, as an object: gnstord over HTTP, SSDs over the shm
// or the udp wire.
//
//     auto array = gnstor::RemoteArray::open({.array = "unix:/var/lib/gnstor/gnstord.sock"});
//     auto client = (*array)->connect({.name = "trainer"});
//
// A client::Array, as an EmbeddedArray is, so a program works with either. The NIC is software. It uses the
// shm wire if processes of this machine serve all SSDs, and this user may open their shared memory: gnstord's
// own process (named by its Unix socket) or nodes. Otherwise it uses the udp wire. wire() says which, and
// why. With a single serving process, the shm wire ends when that process ends: a program that must survive
// its restart sets `address`, which selects udp. With several nodes, Client::reclaim() reconnects to one that
// has restarted. GPU lanes: the code compiles, but has not run yet.

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

namespace rdma {
class SoftNic;
}

struct RemoteArrayOptions {
    /// unix:PATH of gnstord's socket, https://HOST:PORT or http://HOST:PORT; with commas between them those of all
    /// gnstords of the array, of which one leads.
    std::string array;
    std::string token_file = {};  ///< for TCP: the token that gnstord demands (gnstord.token in its folder)
    /// IP address of this process on the udp wire; setting it selects udp. Empty: if udp is used, the source
    /// address of the route to the SSDs.
    std::string address = {};
    /// For https: whom to trust. A file (PEM) with the CA of gnstord's certificate, or that certificate; or
    /// the certificate's fingerprint, SHA256:… as `gnstor status` shows it. Only one of the two; neither: the
    /// CAs that the system trusts. To no other server anything is sent.
    std::string tls_ca = {};
    std::string tls_fingerprint = {};
};

/// A process of this machine that serves SSDs, and so emulates the hardware.
struct ServingProcess {
    pid_t pid;
    std::string name;
    std::uint64_t cpu_time_ns;  ///< of all its threads, since it started
};

/// A thread of this process that runs its NIC.
struct NicThread {
    std::string name;
    std::uint64_t cpu_time_ns, busy_time_ns;
};

/// Name, in the node's folder, of the socket by which a node serves processes of its machine.
inline constexpr const char* kNodeShmSocket = "node.shm";
/// Socket by which a gnstord with SSDs in its own process serves them to other processes: beside its own.
std::filesystem::path shm_socket_beside(const std::filesystem::path& gnstord_socket);

class RemoteArray final : public client::Array {
  public:
    /// Asks gnstord where the SSDs are, and binds an address on the wire. kUnsupported: the SSDs are in
    /// gnstord's own process, and it was named by HTTP. Destroy all clients before the array.
    static Result<std::unique_ptr<RemoteArray>> open(const RemoteArrayOptions& options);
    ~RemoteArray() override;

    Result<std::unique_ptr<client::Client>> connect(const client::ClientOptions& options) override;
    [[nodiscard]] client::ControlPlane& control() override;
    [[nodiscard]] rdma::Nic& host_nic() override;
    /// The same NIC where hosts may connect to it, too: on the udp wire. Null on the shm wire.
    [[nodiscard]] rdma::SoftNic* listening_nic();
    [[nodiscard]] std::string wire() const override;
    [[nodiscard]] std::uint32_t packet_bytes() const;  ///< RoCE's MTU; 0: the wire has no packets
    /// In order of pid. Only processes of this machine, and of other users only those that this user may see.
    [[nodiscard]] std::vector<ServingProcess> serving_processes() const;
    /// Empty on the shm wire: there the nodes' engines do this NIC's work.
    [[nodiscard]] std::optional<NicThread> nic_thread() const;

  private:
    struct Impl;
    explicit RemoteArray(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor
