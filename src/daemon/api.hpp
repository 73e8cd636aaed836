// api.hpp: the HTTP interface as a function from request to response: no sockets, no threads.
//
// openapi.json, built in, is the truth: routes, parameters, bodies and success statuses are taken from it at
// construction, and a request is checked against it before any handler runs. handle() may be called from any
// thread (it takes a mutex for counting).
#pragma once

#include <gnstor/client/control_plane.hpp>

#include "daemon/inspector.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gnstor::daemon {

inline constexpr std::size_t kMaxBodyBytes = 65536;
inline constexpr std::size_t kMaxTargetBytes = 2048;

struct Request {
    std::string method;        ///< "GET", ...
    std::string target;        ///< path and query as they came, percent-encoded
    std::string content_type;  ///< may be empty
    std::string body;
    std::string authorization{}, origin{};  ///< headers; may be empty
};

struct Response {
    int status = 200;
    std::string content_type = "application/json";
    std::string body;
    std::string allow{};      ///< of a 405: the methods there are
    std::string challenge{};  ///< of a 401: WWW-Authenticate
};

class Api {
  public:
    /// Both must outlive it.
    Api(client::ControlPlane& control, Inspector& inspector);
    ~Api();
    /// `token`: what a request has to bring (access.hpp); empty: none.
    Response handle(const Request& request, std::string_view token = {});
    /// For a request that never became one (too large, malformed): the same form of error.
    [[nodiscard]] Response refuse(int status, std::string_view code, std::string_view message);
    /// The document: JSON text.
    [[nodiscard]] static std::string_view openapi();
    /// operationIds that have a handler, for the test that compares them with the document.
    [[nodiscard]] std::vector<std::string> operations() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::daemon
