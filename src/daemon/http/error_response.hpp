// error_response.hpp: the answer to a request that failed: a status and {"error": {"code", "message"}}. Pure.
#pragma once

#include "daemon/http/http_service.hpp"

namespace gnstor::daemon {

/// `message` may hold bytes that are no UTF-8: they are replaced.
[[nodiscard]] Response error_response(int status, std::string_view code, std::string_view message);

}  // namespace gnstor::daemon
