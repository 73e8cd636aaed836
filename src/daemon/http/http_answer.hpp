// http_answer.hpp: a Response as the bytes of HTTP/1.1. Pure.
#pragma once

#include "daemon/http/http_service.hpp"

#include <string>
#include <string_view>

namespace gnstor::daemon {

/// `with_body`: false where HEAD asked, which hears the length alone. `keep_alive`: what the header of that
/// name says of the connection; empty: the connection ends with this answer.
[[nodiscard]] std::string http_answer(const Response& response, bool with_body, std::string_view keep_alive);

}  // namespace gnstor::daemon
