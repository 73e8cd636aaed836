// gateway_api.hpp: the HTTP interface of a gateway's process as a function from request to response.
//
// The built-in gateway_openapi.json defines the interface (routes.hpp). Read only: health, metrics, state.
#pragma once

#include "daemon/http/gateway_status.hpp"
#include "daemon/http/http_service.hpp"
#include "daemon/http/prometheus.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace gnstor::daemon {

/// A gateway in Prometheus' text format.
[[nodiscard]] std::string prometheus_text(const GatewayInfo& info, const RequestCounts& counts);

class GatewayApi final : public HttpService {
  public:
    /// The inspector must outlive it.
    explicit GatewayApi(GatewayInspector& inspector);
    ~GatewayApi() override;
    Response handle(const Request& request, std::string_view token = {}) override;
    [[nodiscard]] Response refuse(int status, std::string_view code, std::string_view message) override;
    /// The OpenAPI document: JSON text.
    [[nodiscard]] static std::string_view openapi();
    /// operationIds that have a handler, for the test that compares them with the document.
    [[nodiscard]] std::vector<std::string> operations() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::daemon
