// api.hpp: gnstord's HTTP interface as a function from request to response: no sockets, no threads.
//
// The built-in openapi.json defines the interface (routes.hpp). Beside it, the dashboard is served
// (dashboard.hpp). Any thread may call handle().
#pragma once

#include <gnstor/client/control_plane.hpp>

#include "daemon/decisions/inspector.hpp"
#include "daemon/http/http_service.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gnstor::daemon {

/// The TCP interface of the server, as the status shows it.
struct TcpInterface {
    std::string url;                   ///< https://HOST:PORT or http://HOST:PORT
    std::string fingerprint, expires;  ///< of the certificate; empty: no TLS
};

class Api final : public HttpService {
  public:
    /// Both arguments must outlive it.
    Api(client::ControlPlane& control, Inspector& inspector);
    ~Api() override;
    Response handle(const Request& request, std::string_view token = {}) override;
    [[nodiscard]] Response refuse(int status, std::string_view code, std::string_view message) override;
    /// Shown in the status from now on. `token`: of administrators there; clients get tokens that are made of
    /// it. Any thread.
    void tell_tcp(TcpInterface tcp, std::string token = {});
    /// The OpenAPI document: JSON text.
    [[nodiscard]] static std::string_view openapi();
    /// operationIds that have a handler, for the test that compares them with the document.
    [[nodiscard]] std::vector<std::string> operations() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::daemon
