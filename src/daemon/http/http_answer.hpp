// http_answer.hpp: encodes a Response in HTTP/1.1. Pure.
#pragma once

#include "daemon/http/http_service.hpp"

#include <string>
#include <string_view>

namespace gnstor::daemon {

/// `with_body`: false for a HEAD request, whose answer has only the headers. `keep_alive`: value of the
/// Keep-Alive header; empty: the connection closes after this answer.
[[nodiscard]] std::string http_answer(const Response& response, bool with_body, std::string_view keep_alive);

}  // namespace gnstor::daemon
