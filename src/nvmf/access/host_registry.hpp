// host_registry.hpp: which hosts a target lets in, and with which keys.
//
// Implemented by DerivedHosts (a node of an array) and by the gateway's list of hosts. A target asks at every
// authentication, and again whenever version() changes: a host whose key is gone or replaced loses its
// queues. Any thread.
#pragma once

#include "nvmf/auth/dhchap_controller.hpp"

#include <gnstor/nvme/host_set.hpp>
#include <gnstor/nvme/status.hpp>

#include <cstdint>
#include <optional>
#include <string_view>

namespace gnstor::nvmf {

class HostRegistry {
  public:
    struct Host {
        auth::DhchapKeys keys;
        std::uint64_t stamp;  ///< another one for every other key of this host
    };
    virtual ~HostRegistry() = default;
    /// nullopt: the host has no key and is refused.
    [[nodiscard]] virtual std::optional<Host> find(std::string_view host_nqn) const = 0;
    /// The stamp that find() gives, without the keys.
    [[nodiscard]] virtual std::optional<std::uint64_t> stamp(std::string_view host_nqn) const = 0;
    /// Changes whenever an answer of find() may have changed.
    [[nodiscard]] virtual std::uint64_t version() const = 0;
    /// Takes a page of HOST SET from the array's admin host. Invalid Opcode: this registry takes none.
    virtual nvme::Status set(const nvme::HostSetPage& /*page*/) { return nvme::Status::kInvalidOpcode; }
};

}  // namespace gnstor::nvmf
