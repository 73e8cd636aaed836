// routes.hpp: serves an OpenAPI document: checks requests against it, and lets handlers answer them.
//
// add() takes routes, parameters, bodies and success statuses from the document, and every request is checked
// against it before a handler runs. An operation's "x-client-token" says what the token of a client is good
// for: "any": the operation; "own": the operation with that client's id; absent: nothing, only an
// administrator's is. No sockets or threads of its own. Call add() first; then handle() and refuse() from any
// thread (a mutex guards the counters).
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/nvme/vendor.hpp>

#include "daemon/http/access.hpp"
#include "daemon/http/http_service.hpp"
#include "daemon/http/prometheus.hpp"

#include <nlohmann/json.hpp>

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gnstor::daemon {

/// A handler's input: checked parameters and a checked body.
struct Call {
    std::map<std::string, std::string> parameters;
    nlohmann::json body;
    nvme::ClientId caller = 0;  ///< the client whose token was sent; 0: an administrator
    [[nodiscard]] const std::string& text(const char* name) const { return parameters.at(name); }
    [[nodiscard]] nvme::ClientId client() const {
        return body.is_object() ? body.at("client").get<nvme::ClientId>()
                                : static_cast<nvme::ClientId>(std::stoul(parameters.at("client")));
    }
};
using Handler = std::function<Result<nlohmann::json>(const Call&)>;
/// The response to a request for a page that holds no data of the array, so that no token is needed; nothing: it
/// is no such request.
using Pages = std::function<std::optional<Response>(const Request&)>;

class Routes final : public HttpService {
  public:
    /// `program`: realm of the authentication challenge. `generation_of`: as judge_access() takes it.
    Routes(std::string_view document, std::string program, GenerationOf generation_of = {});

    /// Adds the handler of an operationId; ignored if the document lacks it. A string result is sent as plain
    /// text, any other as JSON.
    void add(const char* id, Handler handler);
    /// Pages are no operations of the document. Their paths must be few: requests are counted by path.
    void add_pages(Pages pages) { pages_ = std::move(pages); }
    Response handle(const Request& request, std::string_view token = {}) override;
    [[nodiscard]] Response refuse(int status, std::string_view code, std::string_view message) override;

    [[nodiscard]] const nlohmann::json& document() const { return document_; }
    /// Requests so far.
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

    Response route(const Request& request, nvme::ClientId caller, std::string& counted_as) const;
    [[nodiscard]] Response run(const Operation& operation, Call call, const Request& request) const;
    Result<void> read_parameters(const Operation& operation, std::string_view query, Call& call) const;
    Result<void> check_parameter(const nlohmann::json& parameter, const std::string& value) const;

    const nlohmann::json document_;
    const std::string program_;
    const GenerationOf generation_of_;
    std::vector<Operation> operations_;
    Pages pages_;
    mutable std::mutex mutex_;  // guards counts_
    RequestCounts counts_;
};

}  // namespace gnstor::daemon
