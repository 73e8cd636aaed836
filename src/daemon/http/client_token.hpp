// client_token.hpp: tokens that let a host act as one client of the array: gnc1.<id>.<generation>.<proof>.
//
// The proof is HMAC-SHA-256(the contents of the daemon's token file, "client token" || 0 || id ||
// generation), little endian, in base64url without padding. So the daemon stores no tokens: one is good while
// the client has that generation (docs/array.md, rule 19), and all end with the token file. Pure; any thread.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/nvme/command.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gnstor::daemon {

/// What a token says, true or not.
struct ClientClaim {
    nvme::ClientId client = 0;
    std::uint32_t generation = 0;
};

/// `secret`: the contents of the token file. The errors are libcrypto's.
[[nodiscard]] Result<std::string> make_client_token(std::string_view secret, const ClientClaim& claim);
/// nullopt: the text does not have the form of a client's token.
[[nodiscard]] std::optional<ClientClaim> read_client_token(std::string_view text);
/// Whether `text` is the token of this claim. The time does not depend on where they differ.
[[nodiscard]] bool is_client_token(std::string_view text, std::string_view secret, const ClientClaim& claim);

}  // namespace gnstor::daemon
