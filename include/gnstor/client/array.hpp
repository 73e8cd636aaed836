// array.hpp: an array as a program uses it, with its SSDs in this process (gnstor/embedded_array.hpp) or in
// others (gnstor/remote_array.hpp). A program written against this class runs on either.
//
// Called from host threads; each implementation states the rule for connect(). The array outlives its
// clients.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/client/client.hpp>

#include <memory>
#include <string>

namespace gnstor::client {

class Array {
  public:
    virtual ~Array() = default;
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;

    /// Creates a client (channels, volumes, buffers), and registers `options.name`.
    virtual Result<std::unique_ptr<Client>> connect(const ClientOptions& options) = 0;
    /// Volumes, leases, the map. May block for a bounded time.
    [[nodiscard]] virtual ControlPlane& control() = 0;
    /// The NIC that all clients of this process share; also for initiators that drive their own queue pairs.
    [[nodiscard]] virtual rdma::Nic& host_nic() = 0;
    /// For people: the wire to the SSDs ("loop ...", "shm ...", "udp ..."), and its addresses.
    [[nodiscard]] virtual std::string wire() const = 0;

  protected:
    Array() = default;
};

}  // namespace gnstor::client
