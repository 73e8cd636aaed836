// routes.hpp: an OpenAPI document as a service: requests are checked against it, handlers answer them.
//
// The document is the truth: routes, parameters, bodies and success statuses are taken from it when a handler
// is added, and a request is checked against it before any handler runs. No sockets, no threads of its own;
// handle() and refuse() from any thread (a mutex guards the counting), add() before.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/nvme/vendor.hpp>

#include "daemon/http/http_service.hpp"
#include "daemon/http/prometheus.hpp"

#include <nlohmann/json.hpp>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace gnstor::daemon {

/// What a handler gets: checked parameters and a checked body.
struct Call {
    std::map<std::string, std::string> parameters;
    nlohmann::json body;
    [[nodiscard]] const std::string& text(const char* name) const { return parameters.at(name); }
    [[nodiscard]] nvme::ClientId client() const {
        return body.is_object() ? body.at("client").get<nvme::ClientId>()
                                : static_cast<nvme::ClientId>(std::stoul(parameters.at("client")));
    }
};
using Handler = std::function<Result<nlohmann::json>(const Call&)>;

class Routes final : public HttpService {
  public:
    /// `program`: as a challenge names it.
    Routes(std::string_view document, std::string program);

    /// The operation of that operationId; one that the document does not have is left out. A string answers
    /// as text, anything else as JSON.
    void add(const char* id, Handler handler);
    Response handle(const Request& request, std::string_view token = {}) override;
    [[nodiscard]] Response refuse(int status, std::string_view code, std::string_view message) override;

    [[nodiscard]] const nlohmann::json& document() const { return document_; }
    /// Of the requests so far.
    [[nodiscard]] RequestCounts counts() const;
    /// operationIds that have a handler.
    [[nodiscard]] std::vector<std::string> operations() const;

  private:
    struct Operation {
        std::string id, method, path;
        std::vector<std::string> segments;  ///< "{name}" stands for a path parameter
        const nlohmann::json* spec = nullptr;
        int success = 200;
        std::string content_type;
        Handler handler;
    };

    Response route(const Request& request, std::string& counted_as) const;
    [[nodiscard]] Response run(const Operation& operation, Call call, const Request& request) const;
    Result<void> read_parameters(const Operation& operation, std::string_view query, Call& call) const;
    Result<void> check_parameter(const nlohmann::json& parameter, const std::string& value) const;

    const nlohmann::json document_;
    const std::string program_;
    std::vector<Operation> operations_;
    mutable std::mutex mutex_;  // of counts_
    RequestCounts counts_;
};

}  // namespace gnstor::daemon
