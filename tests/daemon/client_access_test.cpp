// client_access_test.cpp: what the token of a client is good for: every operation of openapi.json, asked by
// everybody.
#include "daemon/decisions/in_process.hpp"
#include "daemon/http/api.hpp"
#include "daemon/http/client_token.hpp"
#include "daemon/model_ssd.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <set>

using namespace gnstor;
using namespace gnstor::daemon;
using namespace gnstor::daemon::test;
using nlohmann::json;

namespace {

const std::string kAdmin = "0123456789abcdef";

/// Volumes: "hers" of alice, "his" of bob, "shared" of bob with alice.
class ClientAccessTest : public ::testing::Test {
  protected:
    void SetUp() override {
        array.authenticate({0, 1});
        InProcessOptions options;
        options.tick = std::chrono::milliseconds(0);
        control = InProcessControlPlane::start(std::make_unique<MemoryRecordStore>(), array.ports(), options)
                      .value();
        api = std::make_unique<Api>(*control, *control);
        api->tell_tcp({"http://node:80", "", ""}, kAdmin);
        for (const char* name : {"alice", "bob", "carol"}) (void)added(name);
        ASSERT_TRUE(control->create_volume(1, {"hers", 4096}).ok());
        ASSERT_TRUE(control->create_volume(2, {"his", 4096}).ok());
        ASSERT_TRUE(control->create_volume(2, {"shared", 4096}).ok());
        ASSERT_TRUE(control->share_volume(2, "shared", 1).ok());
        gone = added("carol");
        ASSERT_TRUE(control->remove_client("carol").ok());
    }
    std::string added(const std::string& name) {
        return body({"POST", "/v1/clients/" + name + "/add", "", ""}, kAdmin).at("token").get<std::string>();
    }
    Response ask(Request request, const std::string& token) {
        if (!token.empty()) request.authorization = "Bearer " + token;
        return api->handle(request, kAdmin);
    }
    json body(const Request& request, const std::string& token) {
        const Response response = ask(request, token);
        EXPECT_EQ(response.status / 100, 2) << request.target << " " << response.body;
        return json::parse(response.body, nullptr, false);
    }
    ModelArray array{3};
    std::unique_ptr<InProcessControlPlane> control;
    std::unique_ptr<Api> api;
    std::string gone;  ///< carol's token, who was removed
};

struct Row {
    const char* operation;
    Request request;  ///< as alice, client 1, would ask
    int alice, bob;   ///< statuses
    int admin = 200;  ///< where alice is refused
};

std::vector<Row> rows() {
    const auto post = [](std::string target, const json& value) {
        return Request{"POST", std::move(target), "application/json", value.dump()};
    };
    const auto get = [](std::string target) { return Request{"GET", std::move(target), "", ""}; };
    return {
        {"listVolumes", get("/v1/volumes"), 200, 200},
        {"createVolume", post("/v1/volumes", {{"client", 1}, {"name", "new"}, {"capacity_bytes", 4096}}), 201,
         403},
        {"getVolume", get("/v1/volumes/hers"), 200, 404},
        {"openVolume", post("/v1/volumes/hers/open", {{"client", 1}, {"mode", "write"}}), 200, 403},
        {"renewLease", post("/v1/volumes/hers/renew", {{"client", 1}, {"epoch", 2}}), 200, 403},
        {"releaseVolume", post("/v1/volumes/hers/release", {{"client", 1}, {"epoch", 2}}), 200, 403},
        {"shareVolume", post("/v1/volumes/hers/share", {{"client", 1}}), 200, 403},
        {"unshareVolume", post("/v1/volumes/hers/unshare", {{"client", 1}}), 200, 403},
        {"deleteVolume", {"DELETE", "/v1/volumes/hers?client=1", "", ""}, 200, 403},
        {"listClients", get("/v1/clients"), 200, 200},
        {"registerClient", post("/v1/clients", {{"name", "alice"}}), 200, 403},
        {"addClient", {"POST", "/v1/clients/alice/add", "", ""}, 403, 403},
        {"rotateClient", {"POST", "/v1/clients/alice/rotate", "", ""}, 403, 403},
        {"removeClient", {"POST", "/v1/clients/alice/remove", "", ""}, 403, 403},
        {"getKeys", get("/v1/clients/1/keys"), 200, 403},
        {"getArray", get("/v1/array"), 200, 200},
        {"listSsds", get("/v1/ssds"), 200, 200},
        {"replaceSsd", {"POST", "/v1/slots/0/replace", "", ""}, 403, 403, 409},
        {"getStatus", get("/v1/status"), 200, 200},
        {"getArrayHealth", get("/v1/health"), 403, 403},
        {"getCapacity", get("/v1/capacity"), 403, 403},
        {"getScrub", get("/v1/scrub"), 403, 403},
        {"startScrub", {"POST", "/v1/scrub", "", ""}, 403, 403, 200},
        {"listEvents", get("/v1/events?since=1"), 403, 403},
        {"getHealth", get("/healthz"), 200, 200},
        {"getMetrics", get("/metrics"), 403, 403},
        {"getOpenApi", get("/openapi.json"), 200, 200},
    };
}

TEST_F(ClientAccessTest, EveryOperationIsOpenToWhomTheTableSaysAndToNobodyElse) {
    const std::string alice = added("alice"), bob = added("bob");
    std::set<std::string> tried;
    for (const Row& row : rows()) {
        tried.insert(row.operation);
        const bool open = std::string_view(row.operation) == "getHealth";
        for (const std::string& bad : {std::string(), kAdmin + "x", gone, alice.substr(0, alice.size() - 1),
                                       make_client_token("another token", {1, 4096}).value()}) {
            const Response refused = ask(row.request, bad);
            EXPECT_EQ(refused.status, open ? 200 : 401) << row.operation << " " << bad << refused.body;
            if (!bad.empty()) {
                EXPECT_EQ(refused.body.find(bad), std::string::npos) << "a token in an error";
            }
        }
        EXPECT_EQ(ask(row.request, bob).status, row.bob) << row.operation;
        const Response hers = ask(row.request, alice);
        EXPECT_EQ(hers.status, row.alice) << row.operation << " " << hers.body;
    }
    for (const std::string& operation : api->operations())
        EXPECT_TRUE(tried.contains(operation)) << operation << " is not in the table";
    for (const Row& row : rows()) {
        const Response any = ask(row.request, kAdmin);
        EXPECT_NE(any.status, 401) << row.operation;
        if (row.alice == 403) {
            EXPECT_EQ(any.status, row.admin) << row.operation << " " << any.body;
        }
    }
}

TEST_F(ClientAccessTest, AClientSeesTheVolumesThatItMayReadAndTheirLeases) {
    const std::string alice = added("alice");
    ASSERT_TRUE(control->open_volume(2, "his", client::OpenMode::kWrite).ok());
    ASSERT_TRUE(control->open_volume(2, "shared", client::OpenMode::kWrite).ok());
    std::set<std::string> names;
    const json all = body({"GET", "/v1/volumes", "", ""}, alice);
    for (const json& volume : all.at("volumes")) names.insert(volume.at("name").get<std::string>());
    EXPECT_EQ(names, (std::set<std::string>{"hers", "shared"}));
    EXPECT_EQ(ask({"GET", "/v1/volumes/shared", "", ""}, alice).status, 200);
    EXPECT_EQ(ask({"GET", "/v1/volumes/his", "", ""}, alice).body, [&] {
        std::string same = ask({"GET", "/v1/volumes/nix", "", ""}, alice).body;
        same.replace(same.find("nix"), 3, "his");
        return same;
    }()) << "as if there were none";
    const auto as_hers = [&](const char* method, const std::string& target, const json& more) {
        json with = more;
        with["client"] = 1;
        return ask({method, target, "application/json", with.dump()}, alice);
    };
    const json name{{"name", "his"}, {"capacity_bytes", 1 << 20}};
    const std::string taken = as_hers("POST", "/v1/volumes", name).body;
    EXPECT_NE(taken.find("the name 'his' is taken"), std::string::npos) << taken;
    EXPECT_EQ(taken.find("bob"), std::string::npos) << "whose it is, is not hers to know: " << taken;
    EXPECT_EQ(as_hers("POST", "/v1/volumes/his/open", {{"mode", "read"}}).status, 404);
    EXPECT_EQ(as_hers("POST", "/v1/volumes/his/share", json::object()).status, 404);
    EXPECT_EQ(as_hers("POST", "/v1/volumes/his/unshare", json::object()).status, 404);
    EXPECT_EQ(ask({"DELETE", "/v1/volumes/his?client=1", "", ""}, alice).status, 404);
    const json status = body({"GET", "/v1/status", "", ""}, alice);
    ASSERT_EQ(status.at("leases").size(), 1u);
    EXPECT_EQ(status.at("leases").at(0).at("volume_name"), "shared");
    EXPECT_EQ(status.at("volumes"), 2);
    EXPECT_TRUE(status.at("warnings").empty()) << "they name volumes and clients";
    EXPECT_EQ(body({"GET", "/v1/status", "", ""}, kAdmin).at("leases").size(), 2u);
}

TEST_F(ClientAccessTest, ATokenEndsWithARotationAndTheNextOneIsGood) {
    const std::string before = added("alice");
    EXPECT_EQ(added("alice"), before) << "asked again, the same one";
    const auto keys = body({"GET", "/v1/clients/1/keys", "", ""}, before);
    const json rotated = body({"POST", "/v1/clients/alice/rotate", "", ""}, kAdmin);
    const std::string after = rotated.at("token").get<std::string>();
    EXPECT_EQ(ask({"GET", "/v1/volumes", "", ""}, before).status, 401);
    EXPECT_NE(body({"GET", "/v1/clients/1/keys", "", ""}, after), keys);
    ASSERT_TRUE(control->remove_client("alice").ok());
    EXPECT_EQ(ask({"GET", "/v1/volumes", "", ""}, after).status, 401);
    const std::string again = added("alice");
    EXPECT_EQ(ask({"GET", "/v1/volumes", "", ""}, again).status, 200);
    EXPECT_EQ(ask({"GET", "/v1/volumes", "", ""}, after).status, 401);
}

TEST_F(ClientAccessTest, NoKeyAndNoTokenIsInMetricsStatusOrErrors) {
    const std::string alice = added("alice");
    const json keys = body({"GET", "/v1/clients/1/keys", "", ""}, alice).at("keys");
    ASSERT_EQ(keys.size(), 2u);
    for (const char* target :
         {"/metrics", "/v1/status", "/v1/ssds", "/v1/clients", "/v1/array", "/v1/nothing"}) {
        const std::string text = ask({"GET", target, "", ""}, kAdmin).body;
        EXPECT_EQ(text.find("DHHC-1"), std::string::npos) << target;
        EXPECT_EQ(text.find("gnc1."), std::string::npos) << target;
        EXPECT_EQ(text.find(kAdmin), std::string::npos) << target;
    }
}

}  // namespace
