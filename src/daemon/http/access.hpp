// access.hpp: who may ask the HTTP interface: the bearer token of TCP, and pages of a browser never. RFC
// 6750.
//
// A Unix socket is guarded by its file mode, and asks for no token. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gnstor::daemon {

/// Takes the same time wherever two secrets of one length differ.
[[nodiscard]] bool same_secret(std::string_view a, std::string_view b);

/// Whether a token may be one: 16 to 256 of the letters that RFC 6750, 2.1 takes.
[[nodiscard]] bool is_token(std::string_view text);

struct AccessRefusal {
    int status;  ///< 401 or 403
    std::string message;
};
/// `authorization`, `origin`: headers as they came, empty where they did not. `token`: what is wanted; empty:
/// none. `path` without its query.
[[nodiscard]] std::optional<AccessRefusal> refuse_access(std::string_view path,
                                                         std::string_view authorization,
                                                         std::string_view origin, std::string_view token);

}  // namespace gnstor::daemon
