#include "daemon/http/error_response.hpp"

#include <nlohmann/json.hpp>

namespace gnstor::daemon {

Response error_response(int status, std::string_view code, std::string_view message) {
    using nlohmann::json;
    const json body{{"error", {{"code", std::string(code)}, {"message", std::string(message)}}}};
    Response response;
    response.status = status;
    response.body = body.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
    return response;
}

}  // namespace gnstor::daemon
