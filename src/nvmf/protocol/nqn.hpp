// nqn.hpp: NVMe Qualified Names: whether one is well formed, and which client id a host NQN binds. Pure.
//
// NVMe Base 2.0, 4.5 "NVMe Qualified Names": "nqn.yyyy-mm.reverse-domain:string" or
// "nqn.2014-08.org.nvmexpress:uuid:...", at most 223 bytes and a zero. The host NQN presented at Connect is
// what binds a client id to a connection (docs/design.md, "The command").
#pragma once

#include <gnstor/nvme/command.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gnstor::nvmf {

inline constexpr std::size_t kNqnBytesMax = 223;
inline constexpr std::size_t kNqnFieldBytes = 256;

inline constexpr std::string_view kAdminHostNqn = "nqn.2026-11.io.gnstor:admin";
inline constexpr std::string_view kClientHostNqnPrefix = "nqn.2026-11.io.gnstor:client:";

/// The well-known subsystem NQN of discovery controllers (Base 2.0, 4.5).
inline constexpr std::string_view kDiscoveryNqn = "nqn.2014-08.org.nvmexpress.discovery";

/// The host NQN that binds client `id` at Connect; 1 .. 65535.
std::string client_host_nqn(nvme::ClientId id);
/// The client that a host NQN binds: canonical decimal 1 .. 65535 after the prefix, nothing else.
std::optional<nvme::ClientId> client_of_host_nqn(std::string_view nqn);

/// The subsystem NQN of a volume behind a gateway: "nqn.2026-11.io.gnstor:volume:NAME".
std::string volume_subsystem_nqn(std::string_view volume);

/// The subsystem NQN of a drive, from its UUID.
std::string ssd_subsystem_nqn(std::span<const std::uint8_t, 16> uuid);
/// Whether a name has that form.
bool is_ssd_subsystem(std::string_view nqn);

/// Whether a name is well formed; a subsystem or host must present one.
bool is_valid_nqn(std::string_view nqn);

/// The name in a 256-byte field: everything before the first zero; nullopt if there is no zero within 224
/// bytes or the name is malformed.
std::optional<std::string_view> nqn_in_field(std::span<const char, kNqnFieldBytes> field);
/// Fills a field, zero padded; false if the name does not fit.
[[nodiscard]] bool put_nqn(std::span<char, kNqnFieldBytes> field, std::string_view nqn);

}  // namespace gnstor::nvmf
