// array_address.hpp: where a gnstord answers, as people write it: unix:PATH or http://HOST:PORT. Pure, but
// for client_options().
#pragma once

#include <gnstor/base/result.hpp>

#include "daemon/http/http_client.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace gnstor::daemon {

struct ArrayAddress {
    std::filesystem::path socket;  ///< empty: TCP
    std::string host;              ///< name, IPv4, or IPv6 without brackets
    std::uint16_t port = 0;
};

/// kInvalidArgument for anything else: no path behind the port, no user, a port always.
Result<ArrayAddress> parse_array_address(std::string_view text);

/// HOST:PORT, as --listen has it; an IPv6 address in brackets. Port 0 where `any_port`.
Result<ArrayAddress> parse_host_port(std::string_view text, bool any_port);

/// What asks the gnstord there. Of TCP the token is read out of `token_file`.
Result<HttpClientOptions> client_options(std::string_view array, const std::filesystem::path& token_file);

}  // namespace gnstor::daemon
