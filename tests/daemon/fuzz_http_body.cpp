// fuzz_http_body.cpp: any bytes as a request: never a crash, never a 5xx but what drives cause, always JSON,
// metrics or a file of the dashboard. The first byte chooses the method and the route, the rest is target (up to
// a newline) and body.
#include "daemon/decisions/in_process.hpp"
#include "daemon/http/api.hpp"
#include "daemon/model_ssd.hpp"

#include <nlohmann/json.hpp>

#include <cstdlib>

using namespace gnstor;
using namespace gnstor::daemon;

namespace {

struct World {
    test::ModelArray array{2};
    std::unique_ptr<InProcessControlPlane> control;
    std::unique_ptr<Api> api;
    World() {
        InProcessOptions options;
        options.tick = std::chrono::milliseconds(0);
        control = InProcessControlPlane::start(std::make_unique<MemoryRecordStore>(), array.ports(), options)
                      .value();
        api = std::make_unique<Api>(*control, *control);
        const auto alice = control->register_client("alice").value().id;
        if (!control->create_volume(alice, {"v", 1 << 20}).ok()) std::abort();
    }
};

constexpr const char* kTargets[] = {"/v1/volumes",           "/v1/volumes/v/open",  "/v1/volumes/v/renew",
                                    "/v1/volumes/v/release", "/v1/volumes/v/share", "/v1/volumes/v/unshare",
                                    "/v1/clients",           "/v1/volumes/v",       ""};
constexpr const char* kMethods[] = {"POST", "GET", "DELETE", "PUT"};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static auto world = std::make_unique<World>();
    static unsigned runs = 0;
    if (++runs % 5000 == 0) world = std::make_unique<World>();  // so that volumes and clients do not pile up
    if (size == 0) return 0;
    std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
    Request request{kMethods[data[0] % 4], kTargets[(data[0] >> 2) % 8], "application/json", ""};
    if (request.target.empty()) {
        const auto line = rest.find('\n');
        request.target = rest.substr(0, line);
        request.body = line == std::string::npos ? "" : rest.substr(line + 1);
    } else {
        request.body = rest;
    }
    const Response response = world->api->handle(request);
    if (response.status >= 500 && response.status != 507) std::abort();
    if (response.content_type == "application/json" &&
        nlohmann::json::parse(response.body, nullptr, false).is_discarded())
        std::abort();
    return 0;
}
