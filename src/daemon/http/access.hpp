// access.hpp: access control of the HTTP interface: a bearer token over TCP, and no requests from browser
// pages. RFC 6750.
//
// A Unix socket is protected by its file mode and needs no token. Pure; any thread.
#pragma once

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
/// `authorization`, `origin`: header values, empty if absent. `token`: the expected one; empty: none needed.
/// `path` without its query.
[[nodiscard]] std::optional<AccessRefusal> refuse_access(std::string_view path,
                                                         std::string_view authorization,
                                                         std::string_view origin, std::string_view token);

}  // namespace gnstor::daemon
