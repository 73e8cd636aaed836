// auth_command.hpp: the Fabrics commands that carry the messages of authentication.
//
// NVMe Base 2.0, 6.1 (Authentication Receive) and 6.2 (Authentication Send). Both ends use it: the target
// parses, the host builds. Pure; any thread.
#pragma once

#include <gnstor/nvme/command.hpp>
#include <gnstor/nvme/status.hpp>

#include <cstddef>
#include <cstdint>

namespace gnstor::nvmf::auth {

/// Authentication Send and Authentication Receive, which differ in their type and in the meaning of `bytes`.
struct AuthenticationCommand {
    std::uint8_t opcode;  ///< 7Fh
    std::uint8_t flags;
    std::uint16_t command_id;
    std::uint8_t type;  ///< FabricsType
    std::uint8_t reserved5[19];
    nvme::SglDescriptor data;
    std::uint8_t reserved40;
    std::uint8_t specific0;  ///< SPSP0: 01h
    std::uint8_t specific1;  ///< SPSP1: 01h
    std::uint8_t protocol;   ///< SECP: E9h
    std::uint32_t bytes;     ///< TL of the message that is sent, or AL of the buffer for the one received
    std::uint8_t reserved48[16];
};
static_assert(sizeof(AuthenticationCommand) == 64 && offsetof(AuthenticationCommand, type) == 4);
static_assert(offsetof(AuthenticationCommand, data) == 24 &&
              offsetof(AuthenticationCommand, specific0) == 41);
static_assert(offsetof(AuthenticationCommand, specific1) == 42 &&
              offsetof(AuthenticationCommand, protocol) == 43);
static_assert(offsetof(AuthenticationCommand, bytes) == 44);

inline constexpr std::uint8_t kSecurityProtocolNvmeOf = 0xE9;

enum class AuthDirection : std::uint8_t { kSend, kReceive };

struct AuthCommandVerdict {
    nvme::Status status = nvme::Status::kSuccess;
    AuthDirection direction = AuthDirection::kSend;
    std::uint32_t bytes = 0;  ///< 1 .. kAuthMessageBytesMax
};
/// Parses a command. Invalid Field: another security protocol, no bytes, or a message longer than any may be.
/// Invalid Opcode: neither of the two commands.
AuthCommandVerdict parse_auth_command(const nvme::Command& command);

/// Host: the command, all but its id and data pointer.
nvme::Command auth_command(AuthDirection direction, std::uint32_t bytes);

}  // namespace gnstor::nvmf::auth
