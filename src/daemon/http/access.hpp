// access.hpp: access control of the HTTP interface: bearer tokens over TCP (RFC 6750), and no requests from
// browser pages of other servers.
//
// The token of the daemon's token file is an administrator's, who may act as any client. A client's token
// (client_token.hpp) lets its holder act as that client, in the operations that openapi.json marks so. A Unix
// socket is protected by its file mode and needs no token. Pure; any thread.
#pragma once

#include <gnstor/nvme/command.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace gnstor::daemon {

/// Compares in constant time for secrets of equal length.
[[nodiscard]] bool same_secret(std::string_view a, std::string_view b);

/// Whether the text is a valid token: 16 to 256 of the characters of RFC 6750, 2.1.
[[nodiscard]] bool is_token(std::string_view text);

struct AccessRefusal {
    int status;  ///< 401 or 403
    std::string message;
};
/// Who asks: an administrator, if `client` is 0.
struct Caller {
    std::optional<AccessRefusal> refused;
    nvme::ClientId client = 0;
};
/// The generation that a client's token must have now; nothing: no token of this client is good.
using GenerationOf = std::function<std::optional<std::uint32_t>(nvme::ClientId)>;

struct AccessHeaders {
    std::string_view path;                   ///< without its query
    std::string_view authorization, origin;  ///< empty if absent
    bool no_data = false;                    ///< the answer holds nothing of the array: anyone may have it
};
/// `token`: the administrator's; empty: none is needed, and every caller is an administrator. `generation_of`
/// empty: there are no tokens of clients.
[[nodiscard]] Caller judge_access(const AccessHeaders& headers, std::string_view token,
                                  const GenerationOf& generation_of);

}  // namespace gnstor::daemon
