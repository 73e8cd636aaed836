// http_service.hpp: interface between the HTTP server and a service: a function from request to response.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gnstor::daemon {

inline constexpr std::size_t kMaxBodyBytes = 65536;
inline constexpr std::size_t kMaxTargetBytes = 2048;

/// Code of the 503 with which a gnstord answers that does not lead the array (standby/role_service.hpp).
inline constexpr char kStandbyCode[] = "standby";

struct Request {
    std::string method;        ///< "GET", ...
    std::string target;        ///< path and query as received, percent-encoded
    std::string content_type;  ///< may be empty
    std::string body;
    std::string authorization{}, origin{};  ///< headers; may be empty
};

struct Response {
    int status = 200;
    std::string content_type = "application/json";
    std::string body;
    std::string allow{};                                         ///< of a 405: the allowed methods
    std::string challenge{};                                     ///< of a 401: WWW-Authenticate
    std::vector<std::pair<std::string, std::string>> headers{};  ///< others: name and value
};

class HttpService {
  public:
    virtual ~HttpService() = default;
    /// Any thread. `token`: what the request must carry (access.hpp); empty: none.
    virtual Response handle(const Request& request, std::string_view token = {}) = 0;
    /// Error response for bytes that do not form a valid request (too large, malformed). Any thread.
    [[nodiscard]] virtual Response refuse(int status, std::string_view code, std::string_view message) = 0;
};

}  // namespace gnstor::daemon
