// gateway_api_test.cpp: what a gateway's process says of itself is what its document says, and its metrics
// have every counter.
#include "daemon/http/gateway_api.hpp"
#include "daemon/http/json_schema.hpp"

#include <gtest/gtest.h>

#include <set>

using namespace gnstor;
using namespace gnstor::daemon;
using nlohmann::json;

namespace {

struct ModelGateway final : GatewayInspector {
    GatewayInfo info;
    GatewayInfo inspect_gateway() override { return info; }
};

class GatewayApiTest : public ::testing::Test {
  protected:
    GatewayApiTest() {
        gateway.info.volume = "disk";
        gateway.info.subsystem_nqn = "nqn.2026-11.io.gnstor:volume:disk";
        gateway.info.writable = true;
        gateway.info.counters = {{"reads", 11}, {"connections_failed", 12}, {"refused", 13}};
        gateway.info.hosts_listed = 3;
        gateway.info.hosts_trouble = "hosts.json is malformed";
        gateway.info.ssds = {4, 5};
        gateway.info.many = 6;
        gateway.info.unflushed = 7;
    }
    /// The answer, held against the document.
    json get(int status, const std::string& target, const std::string& token = "", std::string bearer = "") {
        Request request{"GET", target, "", "", std::move(bearer), ""};
        const Response response = api.handle(request, token);
        EXPECT_EQ(response.status, status) << target << " " << response.body;
        if (response.content_type != "application/json") return json(response.body);
        const json answer = json::parse(response.body);
        if (!document.at("paths").contains(target)) return answer;
        const json& responses = document.at("paths").at(target).at("get").at("responses");
        EXPECT_TRUE(responses.contains(std::to_string(status))) << target << " " << status;
        const json& schema = responses.at(std::to_string(status)).at("content").begin().value().at("schema");
        const auto good = check_schema(document, schema, answer, "answer");
        EXPECT_TRUE(good.ok()) << (good.ok() ? "" : good.error().message) << response.body;
        return answer;
    }
    ModelGateway gateway;
    GatewayApi api{gateway};
    const json document = json::parse(GatewayApi::openapi());
};

TEST_F(GatewayApiTest, EveryDocumentedOperationHasAHandlerAndEveryHandlerIsDocumented) {
    std::set<std::string> declared, handled;
    for (const auto& [path, methods] : document.at("paths").items())
        for (const auto& [method, spec] : methods.items())
            declared.insert(spec.at("operationId").get<std::string>());
    for (const std::string& id : api.operations()) handled.insert(id);
    EXPECT_EQ(declared, handled);
    EXPECT_EQ(declared.size(), 4u);
}

TEST_F(GatewayApiTest, AnswersAreAsTheDocumentSays) {
    EXPECT_EQ(get(200, "/healthz").at("status"), "ok");
    EXPECT_EQ(get(200, "/openapi.json"), document);
    const json glance = get(200, "/v1/gateway");
    EXPECT_EQ(glance.at("counters").at("connections_failed"), 12);
    EXPECT_EQ(glance.at("hosts").at("any"), false);
    EXPECT_EQ(glance.at("hosts").at("listed"), 3);
    EXPECT_EQ(glance.at("shares").at("ssds").at(1).at("under_way"), 5);
    get(404, "/v1/volumes");
    get(400, "/metrics?x=1");
    EXPECT_EQ(api.handle(Request{"POST", "/metrics", "", ""}).status, 405);
}

TEST_F(GatewayApiTest, OverTcpEveryRequestExceptHealthNeedsAToken) {
    const std::string token = "0123456789abcdef";
    get(200, "/healthz", token);
    for (const char* target : {"/metrics", "/v1/gateway", "/openapi.json"}) {
        get(401, target, token);
        get(401, target, token, "Bearer " + token + "x");
        get(200, target, token, "Bearer " + token);
    }
    Request page{"GET", "/metrics", "", "", "", "http://evil.example"};
    EXPECT_EQ(api.handle(page).status, 403);
}

TEST_F(GatewayApiTest, MetricsHaveEveryCounterWithItsHelpAndItsType) {
    gateway.info.volume = "a\"b";
    const std::string text = get(200, "/metrics").get<std::string>();
    for (const char* line :
         {"gnstor_gateway_reads_total 11\n", "gnstor_gateway_connections_failed_total 12\n",
          "gnstor_gateway_refused_total 13\n", "gnstor_gateway_share_used{slot=\"1\"} 5\n",
          "gnstor_gateway_share_used{slot=\"many\"} 6\n", "gnstor_gateway_unflushed_changes 7\n",
          "gnstor_gateway_flushes_fail 0\n", "gnstor_gateway_any_host 0\n", "gnstor_gateway_hosts_listed 3\n",
          "gnstor_gateway_hosts_file_bad 1\n", "gnstor_gateway_writable 1\n", "volume=\"a\\\"b\""})
        EXPECT_NE(text.find(line), std::string::npos) << line << text;
    std::set<std::string> families;
    std::size_t samples = 0;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('\n', at);
        const std::string line = text.substr(at, end - at);
        at = end + 1;
        if (line.rfind("# TYPE ", 0) == 0) {
            EXPECT_TRUE(families.insert(line.substr(7, line.find(' ', 7) - 7)).second) << line;
        } else if (line.rfind("# ", 0) != 0) {
            ++samples;
            EXPECT_TRUE(families.contains(line.substr(0, line.find_first_of("{ ")))) << line;
        }
    }
    EXPECT_GE(samples, 15u);
}

}  // namespace
