// authenticate.hpp: a host's side of in-band authentication of one queue: runs the exchange over a
// channel that carries its commands.
//
// NVMe Base 2.0, 8.13.2: after Connect, before any other command. The state machine is auth/dhchap_host.hpp.
// One thread a queue.
#pragma once

#include "nvmf/auth/dhchap_key.hpp"
#include "nvmf/auth/dhchap_transaction.hpp"

#include <gnstor/base/result.hpp>
#include <gnstor/nvme/command.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

namespace gnstor::nvmf {

/// The keys of a host with one subsystem.
struct HostAuthentication {
    auth::DhchapKey host_key;
    /// With it the controller must prove who it is.
    std::optional<auth::DhchapKey> controller_key;
    auth::DhchapPolicy policy;
    /// The controller must ask for authentication. False: it need not, because the wire vouches for it
    /// (shared memory of a node of the same user).
    bool required = true;
};
/// From their text form, DHHC-1; an empty `controller_key`: none. The error says which key is malformed.
Result<HostAuthentication> parse_host_authentication(std::string_view host_key,
                                                     std::string_view controller_key);

/// Executes the commands of the exchange on one queue.
struct AuthCommands {
    /// Authentication Send with this message.
    std::function<Result<nvme::Completion>(nvme::Command, std::span<const std::byte>)> send;
    /// Authentication Receive; fills the buffer.
    std::function<Result<nvme::Completion>(nvme::Command, std::span<std::byte>)> receive;
};

struct QueueNames {
    std::string host_nqn, subsystem_nqn;
    std::uint16_t queue_id = 0;
};

/// After a successful Connect whose DW0 is `connect_dw0`. kPermission: the controller demands a key that this
/// host does not have (`keys` null), does not ask for the key that this host has, or one of the two keys is
/// wrong.
Result<void> authenticate(const QueueNames& names, std::uint32_t connect_dw0, const HostAuthentication* keys,
                          const AuthCommands& commands);

}  // namespace gnstor::nvmf
