// remote_array.hpp: an array that other processes serve, as an object: gnstord over HTTP, SSDs over the shm
// or the udp wire.
//
//     auto array = gnstor::RemoteArray::open({.array = "unix:/var/lib/gnstor/gnstord.sock"});
//     auto client = (*array)->connect({.name = "trainer"});
//
// What it hands out is what an EmbeddedArray does, so a program works with either. Software NIC; GPU lanes as
// there. The wire: shm where the SSDs are those of a gnstord on this machine (named by its Unix socket), udp
// where they are nodes'. wire() says which.

#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/client/client.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace gnstor {

struct RemoteArrayOptions {
    std::string array;            ///< unix:PATH of gnstord's socket, or http://HOST:PORT
    std::string token_file = {};  ///< of http: what gnstord wants to see (gnstord.token in its folder)
    std::string address = {};  ///< of this process on the udp wire; empty: where the route to the SSDs begins
};

/// Where a gnstord that has the SSDs in its own process serves them to other processes: beside its socket.
std::filesystem::path shm_socket_beside(const std::filesystem::path& gnstord_socket);

class RemoteArray {
  public:
    /// Asks gnstord where the SSDs are, and takes an address on the wire. kUnsupported: they are in its own
    /// process, and it was named by HTTP. Clients must be gone before it is.
    static Result<std::unique_ptr<RemoteArray>> open(const RemoteArrayOptions& options);
    ~RemoteArray();
    RemoteArray(const RemoteArray&) = delete;
    RemoteArray& operator=(const RemoteArray&) = delete;

    Result<std::unique_ptr<client::Client>> connect(const client::ClientOptions& options);
    [[nodiscard]] client::ControlPlane& control();
    [[nodiscard]] rdma::SoftNic& host_nic();
    /// For people: the wire, both ends, the size of packets.
    [[nodiscard]] std::string wire() const;
    [[nodiscard]] std::uint32_t packet_bytes() const;  ///< RoCE's MTU; 0: no packets

  private:
    struct Impl;
    explicit RemoteArray(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor
