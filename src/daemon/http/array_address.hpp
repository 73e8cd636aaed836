// array_address.hpp: a gnstord's address as people write it: unix:PATH, https://HOST:PORT or
// http://HOST:PORT. Pure, but for client_options().
#pragma once

#include <gnstor/base/result.hpp>

#include "daemon/http/http_client.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace gnstor::daemon {

struct ArrayAddress {
    std::filesystem::path socket;  ///< empty: TCP
    std::string host;              ///< name, IPv4, or IPv6 without brackets
    std::uint16_t port = 0;
    bool tls = false;  ///< https
};

/// Several addresses, with commas between them: of the gnstords of one array, of which one leads. Not empty.
Result<std::vector<ArrayAddress>> parse_array_addresses(std::string_view text);

/// The port is required; a path after it or a user name is refused. kInvalidArgument for any other text.
Result<ArrayAddress> parse_array_address(std::string_view text);

/// HOST:PORT, as for --listen; an IPv6 address is in brackets. Port 0 is allowed only if `any_port`.
Result<ArrayAddress> parse_host_port(std::string_view text, bool any_port);

/// Options that name the server to trust over https: one of the two, or none for the system's CAs.
struct TlsWords {
    std::filesystem::path ca_file;  ///< --tls-ca
    std::string fingerprint;        ///< --tls-fingerprint
};

/// Options of a client for the gnstord at `array`, or for several (parse_array_addresses()). For TCP, reads the token from `token_file`. Over http,
/// `words` must be empty: a certificate that is named but not checked would give false safety.
Result<HttpClientOptions> client_options(std::string_view array, const std::filesystem::path& token_file,
                                         const TlsWords& words = {});

}  // namespace gnstor::daemon
