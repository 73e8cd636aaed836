// array.hpp: an array as a program uses it, wherever its SSDs are: in this process
// (gnstor/embedded_array.hpp) or served by others (gnstor/remote_array.hpp). A program that takes one of
// these runs on either.
//
// Host threads; connect() as the kinds say. The array outlives its clients.
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

    /// A client of it: channels, volumes, buffers. Registers `options.name`.
    virtual Result<std::unique_ptr<Client>> connect(const ClientOptions& options) = 0;
    /// Volumes, leases, the map. May block for a bounded time.
    [[nodiscard]] virtual ControlPlane& control() = 0;
    /// The NIC of every client of this process: for initiators that drive queue pairs of their own.
    [[nodiscard]] virtual rdma::SoftNic& host_nic() = 0;
    /// For people: which wire leads to the SSDs ("loop ...", "shm ...", "udp ..."), and where its ends are.
    [[nodiscard]] virtual std::string wire() const = 0;

  protected:
    Array() = default;
};

}  // namespace gnstor::client
