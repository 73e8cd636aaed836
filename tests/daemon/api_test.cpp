// api_test.cpp: the document is the truth: every route, field and status of openapi.json, and bad requests of
// many kinds.
#include "daemon/http/api.hpp"
#include "daemon/decisions/in_process.hpp"
#include "daemon/http/json_schema.hpp"
#include "daemon/model_ssd.hpp"

#include <gnstor/base/hash.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

using namespace gnstor;
using namespace gnstor::daemon;
using namespace gnstor::daemon::test;
using nlohmann::json;

namespace {

class ApiTest : public ::testing::Test {
  protected:
    void SetUp() override {
        array.authenticate({1});
        InProcessOptions options;
        options.tick = std::chrono::milliseconds(0);
        options.now_ms = [this] { return now_ms; };
        options.ssd_readings = [](const SsdInfo& ssd) {
            return SsdReadings{
                {{"reads", ssd.slot + 10}, {"writes", ssd.slot}}, ssd.capacity_blocks * 9 / 10, 80};
        };
        options.ssd_firmware = [](const SsdInfo& ssd) { return ssd.slot == 2 ? "3.2.1" : ""; };
        control = InProcessControlPlane::start(std::make_unique<MemoryRecordStore>(), array.ports(), options)
                      .value();
        api = std::make_unique<Api>(*control, *control);
        document = json::parse(Api::openapi());
    }
    /// Sends, and checks the answer against the document: its status and its body must be declared there.
    json send(int status, const std::string& method, const std::string& target, const json& body = nullptr) {
        return raw(status, {method, target, body.is_null() ? "" : "application/json",
                            body.is_null() ? "" : body.dump()});
    }
    json raw(int status, const Request& request) {
        ++requests;
        const Response response = api->handle(request);
        EXPECT_EQ(response.status, status) << request.method << " " << request.target << " "
                                           << request.body.substr(0, 200) << " -> " << response.body;
        if (response.content_type != "application/json") return json(response.body);
        json answer = json::parse(response.body, nullptr, false);
        EXPECT_FALSE(answer.is_discarded()) << response.body;
        if (const json* spec = operation(request)) {
            const json& responses = spec->at("responses");
            const std::string code = std::to_string(response.status);
            EXPECT_TRUE(responses.contains(code))
                << request.method << " " << request.target
                << " answers with a status that the document does not declare: " << code;
            if (responses.contains(code)) {
                const json& schema = responses.at(code).at("content").begin().value().at("schema");
                const auto good = check_schema(document, schema, answer, "answer");
                EXPECT_TRUE(good.ok()) << (good.ok() ? "" : good.error().message) << response.body;
                seen.insert(spec->at("operationId").get<std::string>() + " " + code);
            }
        }
        if (status >= 400) {
            EXPECT_TRUE(answer.at("error").at("message").is_string());
        }
        return answer;
    }
    const json* operation(const Request& request) const {
        const std::string path = request.target.substr(0, request.target.find('?'));
        std::string method = request.method;
        for (char& c : method) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        for (const auto& [route, methods] : document.at("paths").items()) {
            const auto brace = route.find('{');
            bool fits = route == path;
            if (brace != std::string::npos) {
                const std::string tail = route.substr(route.find('}') + 1);
                fits = path.rfind(route.substr(0, brace), 0) == 0 && path.size() > brace + tail.size() &&
                       path.substr(path.size() - tail.size()) == tail &&
                       path.substr(brace, path.size() - tail.size() - brace).find('/') == std::string::npos;
            }
            if (fits && methods.contains(method)) return &methods.at(method);
        }
        return nullptr;
    }
    void make_volume() {
        send(200, "POST", "/v1/clients", {{"name", "alice"}});
        send(200, "POST", "/v1/clients", {{"name", "bob"}});
        send(201, "POST", "/v1/volumes",
             {{"client", 1}, {"name", "v"}, {"capacity_bytes", 1 << 20}, {"any_writer", true}});
    }

    void scrub() {
        EXPECT_FALSE(send(200, "GET", "/v1/scrub").at("running"));
        send(200, "POST", "/v1/scrub");
        send(200, "POST", "/v1/scrub");
        EXPECT_TRUE(send(200, "GET", "/v1/scrub").at("running"));
        for (int seconds = 0; seconds < 100 && send(200, "GET", "/v1/scrub").at("passes") == 0; ++seconds) {
            now_ms += 1'000;
            (void)control->tick();
            while (control->copy_some(16)) {
            }
        }
        const json ended = send(200, "GET", "/v1/scrub");
        EXPECT_EQ(ended.at("passes"), 1);
        EXPECT_EQ(ended.at("pass").at("blocks_done"), ended.at("pass").at("blocks_total"));
        EXPECT_TRUE(ended.at("findings").empty());
    }

    /// The SSD of slot 2 is lost, and a spare takes its place.
    void replace_an_ssd() {
        make_volume();
        send(409, "POST", "/v1/slots/2/replace");
        send(404, "POST", "/v1/slots/9/replace");
        send(400, "POST", "/v1/slots/64/replace");
        array.drives[2]->fault = [](bool) { return Fault::kRefuse; };
        now_ms += 60'000;
        EXPECT_EQ(send(404, "POST", "/v1/slots/2/replace").at("error").at("code"), "not_found") << "no spare";
        ASSERT_TRUE(control->add_spare(spare).ok());
        send(200, "POST", "/v1/slots/2/replace");
        EXPECT_EQ(send(200, "GET", "/v1/status").at("rebuild").at("slot"), 2);
        const json health = send(200, "GET", "/v1/health");
        EXPECT_TRUE(std::ranges::any_of(health.at("findings"), [](const json& finding) {
            return finding.at("code") == "GNS_REBUILDING";
        })) << health.dump();
        while (control->copy_some(16)) {
        }
        EXPECT_FALSE(send(200, "GET", "/v1/status").contains("rebuild"));
        scrub();
        std::set<std::string> happened;
        const json page = send(200, "GET", "/v1/events");
        for (const json& event : page.at("events"))
            happened.insert(event.at("code").get<std::string>() + " " + event.value("volume", "") +
                            event.value("client", "") + event.value("health", "") +
                            (event.contains("slot") ? event.at("slot").dump() : ""));
        for (const char* one :
             {"SSD_REPLACED 2", "SSD_FILLED 2", "VOLUME_CREATED valice", "VOLUME_DELETED valice",
              "CLIENT_ADDED bob", "CLIENT_REMOVED carol", "CLIENT_ROTATED carol", "SCRUB_ENDED ",
              "HEALTH_FOUND GNS_REBUILDING", "HEALTH_GONE GNS_REBUILDING"})
            EXPECT_TRUE(happened.contains(one)) << one;
    }

    ModelArray array{4};
    ModelFlash empty;  // its UUID, of zeroes, is no other SSD's
    ModelSsd spare{4, empty};
    std::uint64_t now_ms = 1'000;
    std::unique_ptr<InProcessControlPlane> control;
    std::unique_ptr<Api> api;
    json document;
    std::set<std::string> seen;
    std::uint64_t requests = 0;
};

TEST_F(ApiTest, EveryDocumentedOperationHasAHandlerAndEveryHandlerIsDocumented) {
    std::set<std::string> declared, handled;
    for (const auto& [path, methods] : document.at("paths").items())
        for (const auto& [method, spec] : methods.items())
            declared.insert(spec.at("operationId").get<std::string>());
    for (const std::string& id : api->operations()) handled.insert(id);
    EXPECT_EQ(declared, handled);
    EXPECT_GE(declared.size(), 15u);
}

TEST_F(ApiTest, EveryReferenceOfTheDocumentResolvesAndEverySchemaIsUsed) {
    std::set<std::string> used;
    const std::function<void(const json&)> walk = [&](const json& node) {
        if (node.is_object() && node.contains("$ref")) {
            const std::string pointer = node.at("$ref").get<std::string>().substr(1);
            EXPECT_TRUE(document.contains(json::json_pointer(pointer))) << pointer;
            used.insert(pointer.substr(pointer.rfind('/') + 1));
        }
        if (node.is_structured())
            for (const json& child : node) walk(child);
    };
    walk(document);
    for (const auto& [name, schema] : document.at("components").at("schemas").items())
        EXPECT_TRUE(used.contains(name)) << name << " is declared and never used";
}

TEST_F(ApiTest, EveryOperationAnswersAsDeclaredThroughTheLifeOfAVolume) {
    make_volume();
    send(200, "GET", "/v1/volumes");
    EXPECT_EQ(send(200, "GET", "/v1/volumes/v").at("owner_name"), "alice");
    EXPECT_FALSE(send(200, "POST", "/v1/clients/carol/add").contains("token")) << "not served over TCP";
    api->tell_tcp({"https://node:80", "SHA256:00", ""}, "0123456789abcdef");
    const json added = send(200, "POST", "/v1/clients/carol/add");
    EXPECT_EQ(added.at("address"), "https://node:80");
    EXPECT_EQ(added.at("certificate_fingerprint"), "SHA256:00");
    const json rotated = send(200, "POST", "/v1/clients/carol/rotate");
    EXPECT_GT(rotated.at("generation"), added.at("generation"));
    EXPECT_NE(rotated.at("token"), added.at("token"));
    EXPECT_EQ(send(200, "GET", "/v1/clients/3/keys").at("keys").at(0).at("slot"), 1);
    send(200, "POST", "/v1/clients/carol/remove");
    send(403, "GET", "/v1/clients/3/keys");
    send(403, "POST", "/v1/clients", {{"name", "carol"}});
    send(404, "POST", "/v1/clients/nobody/remove");
    send(404, "POST", "/v1/clients/nobody/rotate");
    send(400, "POST", "/v1/clients/a%20b/add");
    for (const char* id : {"0", "65536", "x", "-1"})
        send(400, "GET", std::string("/v1/clients/") + id + "/keys");
    EXPECT_EQ(send(200, "GET", "/v1/clients").at("clients").at(2).at("removed"), true);
    EXPECT_EQ(send(200, "GET", "/v1/status").at("clients"), 2);
    send(200, "GET", "/v1/array");
    const json ssds = send(200, "GET", "/v1/ssds").at("ssds");
    EXPECT_EQ(ssds.at(2).at("counters").at("reads"), 12);
    EXPECT_EQ(ssds.at(2).at("firmware"), "3.2.1");
    EXPECT_EQ(ssds.at(1).at("firmware"), "");
    const json opened = send(200, "POST", "/v1/volumes/v/open", {{"client", 1}, {"mode", "write"}});
    const json epoch = opened.at("volume").at("epoch");
    EXPECT_EQ(send(200, "GET", "/v1/status").at("leases").at(0).at("client_name"), "alice");
    const json busy = send(409, "POST", "/v1/volumes/v/open", {{"client", 2}, {"mode", "write"}});
    EXPECT_EQ(busy.at("error").at("code"), "busy");
    send(200, "POST", "/v1/volumes/v/renew", {{"client", 1}, {"epoch", epoch}});
    send(404, "POST", "/v1/volumes/v/renew", {{"client", 1}, {"epoch", epoch}, {"volume", 77}});
    send(200, "POST", "/v1/volumes/v/share", {{"client", 1}, {"reader", 2}});
    send(200, "POST", "/v1/volumes/v/share", {{"client", 1}});
    EXPECT_EQ(send(409, "POST", "/v1/volumes/v/unshare", {{"client", 1}}).at("error").at("code"), "state")
        << "any client may write it";
    send(201, "POST", "/v1/volumes", {{"client", 1}, {"name", "own"}, {"capacity_bytes", 4096}});
    send(200, "POST", "/v1/volumes/own/share", {{"client", 1}, {"reader", 2}});
    EXPECT_EQ(send(200, "GET", "/v1/volumes/own").at("readers").size(), 1u);
    send(403, "POST", "/v1/volumes/own/unshare", {{"client", 2}, {"reader", 2}});
    send(404, "POST", "/v1/volumes/nix/unshare", {{"client", 1}, {"reader", 2}});
    send(200, "POST", "/v1/volumes/own/unshare", {{"client", 1}, {"reader", 2}});
    EXPECT_EQ(send(200, "GET", "/v1/volumes/own").at("readers").size(), 0u);
    send(200, "DELETE", "/v1/volumes/own?client=1");
    send(200, "POST", "/v1/volumes/v/release", {{"client", 1}, {"epoch", epoch}, {"byte_length", 5000}});
    EXPECT_EQ(send(200, "GET", "/v1/volumes/v").at("byte_length"), 5000);
    const json holds = send(200, "GET", "/v1/capacity").at("volumes");
    ASSERT_EQ(holds.size(), 1u);
    EXPECT_EQ(holds.at(0),
              (json{{"name", "v"}, {"capacity_bytes", 1 << 20}, {"replicas", 2}, {"byte_length", 5000}}));
    send(403, "DELETE", "/v1/volumes/v?client=2");
    send(200, "DELETE", "/v1/volumes/v?client=1");
    send(404, "GET", "/v1/volumes/v");
    EXPECT_EQ(send(200, "GET", "/healthz").at("status"), "ok");
    const json health = send(200, "GET", "/v1/health");
    EXPECT_EQ(health.at("status"), "warning");
    EXPECT_EQ(health.at("findings").at(0).at("code"), "GNS_NEARFULL");
    EXPECT_EQ(send(200, "GET", "/v1/status").at("health"), "warning");
    const json capacity = send(200, "GET", "/v1/capacity");
    EXPECT_EQ(capacity.at("ssds").size(), 4u);
    EXPECT_EQ(capacity.at("used_bytes"), 4 * std::uint64_t{262'144 * 9 / 10} * 4096);
    EXPECT_EQ(capacity.at("room").size(), 4u);
    EXPECT_EQ(capacity.at("usable").at(3), (json{{"replicas", 4}, {"bytes", std::uint64_t{262'144} * 4096}}));
    EXPECT_EQ(capacity.at("volumes").size(), 0u);
    const json events = send(200, "GET", "/v1/events");
    EXPECT_EQ(events.at("first"), 1);
    EXPECT_EQ(events.at("events").at(0).at("code"), "DAEMON_STARTED");
    EXPECT_EQ(events.at("last"), events.at("events").size());
    const std::string newest = std::to_string(events.at("last").get<int>() - 1);
    EXPECT_EQ(send(200, "GET", "/v1/events?since=" + newest).at("events").size(), 1u);
    for (const char* bad : {"since=-1", "since=", "since=x", "since=1&since=2", "until=3"})
        send(400, "GET", std::string("/v1/events?") + bad);
    EXPECT_EQ(send(200, "GET", "/openapi.json"), document);
    const std::string metrics = send(200, "GET", "/metrics").get<std::string>();
    for (const char* line :
         {"gnstor_ssd_reads_total{slot=\"2\"", "# HELP gnstor_ssd_reads_total Read commands",
          "gnstor_http_requests_total{route=\"/v1/volumes\",method=\"POST\",code=\"201\"} 2",
          "process_cpu_seconds_total", "gnstor_volumes 0", "gnstor_ssd_used_bytes{slot=\"1\"",
          "gnstor_health{code=\"GNS_NEARFULL\",severity=\"warning\"} 1",
          "gnstor_health{code=\"GNS_FULL\",severity=\"error\"} 0"})
        EXPECT_NE(metrics.find(line), std::string::npos) << line << " is not in\n" << metrics;
    // Text format 0.0.4: the samples of a metric are one group, behind its TYPE.
    std::string family;
    std::set<std::string> families;
    std::istringstream lines(metrics);
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("# TYPE ")) {
            family = line.substr(7, line.find(' ', 7) - 7);
            EXPECT_TRUE(families.insert(family).second) << line;
        } else if (!line.starts_with("# ")) {
            EXPECT_EQ(line.substr(0, line.find_first_of("{ ")), family) << line;
        }
    }
    replace_an_ssd();
    std::size_t operations = 0;
    for (const auto& [path, methods] : document.at("paths").items()) operations += methods.size();
    std::set<std::string> succeeded;
    for (const std::string& s : seen)
        if (s.find(" 2") != std::string::npos) succeeded.insert(s);
    EXPECT_EQ(succeeded.size() + 1, operations)
        << "every operation but the metrics, which are no JSON, was seen to succeed";
}

TEST_F(ApiTest, EveryFieldOfEveryBodyIsCheckedAgainstTheDocument) {
    make_volume();
    const std::map<std::string, json> good = {
        {"/v1/clients", {{"name", "zed"}}},
        {"/v1/volumes",
         {{"client", 1},
          {"name", "w"},
          {"capacity_bytes", 4096},
          {"chunk_bytes", 4096},
          {"replicas", 1},
          {"any_writer", true}}},
        {"/v1/volumes/v/open", {{"client", 1}, {"mode", "read"}}},
        {"/v1/volumes/v/renew", {{"client", 1}, {"epoch", 1}, {"volume", 1}}},
        {"/v1/volumes/v/release", {{"client", 1}, {"epoch", 1}, {"byte_length", 1}, {"volume", 1}}},
        {"/v1/volumes/v/share", {{"client", 1}, {"reader", 2}}},
        {"/v1/volumes/v/unshare", {{"client", 1}, {"reader", 2}}}};
    const std::vector<json> wrong = {
        nullptr, -1, 1.5, 1e300, "", json::array(), json::object(), std::string(70000 / 100, 'x'), true};
    for (const auto& [target, body] : good) {
        const json* spec = operation({"POST", target, "", ""});
        ASSERT_NE(spec, nullptr) << target;
        const std::string name = spec->at("requestBody")
                                     .at("content")
                                     .at("application/json")
                                     .at("schema")
                                     .at("$ref")
                                     .get<std::string>()
                                     .substr(21);
        const json& schema = document.at("components").at("schemas").at(name);
        EXPECT_EQ(body.size(), schema.at("properties").size())
            << target << ": the document has a field that this test does not try";
        for (const auto& [field, value] : body.items()) {
            for (const json& bad : wrong) {
                if (bad.is_boolean() && value.is_boolean()) continue;
                json changed = body;
                changed[field] = bad;
                const json answer = send(400, "POST", target, changed);
                EXPECT_NE(answer.at("error").at("message").get<std::string>().find(field), std::string::npos)
                    << answer;
            }
            json lacking = body;
            lacking.erase(field);
            const json& required = schema.at("required");
            if (std::find(required.begin(), required.end(), field) != required.end())
                send(400, "POST", target, lacking);
        }
        json more = body;
        more["surprise"] = 1;
        send(400, "POST", target, more);
    }
    std::printf("api: %llu requests checked against the document\n",
                static_cast<unsigned long long>(requests));
    EXPECT_GE(requests, 150u);
}

TEST_F(ApiTest, GarbageIsRefusedWithAnErrorMessage) {
    make_volume();
    const auto post = [&](int status, const std::string& body, const std::string& type = "application/json") {
        return raw(status, {"POST", "/v1/volumes", type, body});
    };
    for (const char* body : {"", "{", "}", "null", "[]", "42", "\"x\"", "{\"name\":}", "{\"a\":1}{",
                             "\xff\xfe", "{\"name\":\"\xc3\"}", "\0"})
        post(400, body);
    post(400, std::string(30000, '['));
    post(400, R"({"client":1,"name":"deep","capacity_bytes":)" + std::string(20, '[') + std::string(20, ']') +
                  "}");
    post(413, std::string(kMaxBodyBytes + 1, ' '));
    post(415, "{}", "");
    post(415, "{}", "text/plain");
    post(400, "{}", "application/json; charset=utf-8");
    send(404, "GET", "/dashboard/v1");
    send(404, "GET", "/v1");
    send(404, "GET", "/v1/volumes/v/open/x");
    send(404, "GET", "/v2/volumes");
    send(405, "PUT", "/v1/volumes");
    send(405, "PATCH", "/healthz");
    send(405, "GET", "/v1/volumes/v/open");
    EXPECT_EQ(api->handle({"DELETE", "/v1/clients", "", ""}).allow, "GET, POST");
    raw(400, {"GET", "healthz", "", ""});
    raw(400, {"GET", "", "", ""});
    raw(400, {"GET", "/v1/volumes/%zz", "", ""});
    raw(400, {"GET", "/v1/volumes/%0", "", ""});
    raw(400, {"GET", "/v1/volumes/%00", "", ""});
    raw(414, {"GET", "/" + std::string(5000, 'a'), "", ""});
    for (const char* query :
         {"", "client=", "client=x", "client=0", "client=65536", "client=-1", "client=1&client=1",
          "client=1&x=2", "%", "&", "client=99999999999999999999999", "client=1%"})
        raw(400, {"DELETE", std::string("/v1/volumes/v?") + query, "", ""});
    raw(400, {"GET", "/healthz?verbose=1", "", ""});
    raw(400, {"GET", "/healthz", "application/json", "{}"});
    EXPECT_EQ(control->list_volumes()->size(), 1u) << "a refused request changed a volume";
}

TEST_F(ApiTest, RandomlyDamagedRequestsGetOnlyDeclaredAnswers) {
    make_volume();
    SplitMix64 random(20261120);
    const std::vector<Request> good = {
        {"POST", "/v1/volumes", "application/json",
         R"({"client":1,"name":"w","capacity_bytes":4096,"replicas":2})"},
        {"POST", "/v1/volumes/v/open", "application/json", R"({"client":1,"mode":"write"})"},
        {"DELETE", "/v1/volumes/nope?client=1", "", ""},
        {"GET", "/v1/volumes/v", "", ""}};
    std::map<int, int> statuses;
    for (int i = 0; i < 20000; ++i) {
        Request request = good[random.below(good.size())];
        std::string& victim = request.body.empty() || random.below(3) == 0 ? request.target : request.body;
        for (std::uint64_t k = 0; k <= random.below(4); ++k) {
            const auto at = random.below(victim.size());
            if (random.below(3) == 0)
                victim.erase(at, 1 + random.below(3));
            else
                victim[at] = static_cast<char>(random.below(256));
            if (victim.empty()) break;
        }
        const Response response = api->handle(request);
        ++statuses[response.status];
        EXPECT_LT(response.status, 500) << request.target << " " << request.body;
        if (response.status != 302) {  // of "/", which leads to the dashboard
            EXPECT_FALSE(json::parse(response.body, nullptr, false).is_discarded());
        }
    }
    EXPECT_GE(statuses[400], 5000);
}

}  // namespace
