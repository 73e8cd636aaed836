// dashboard_test.cpp: the files of the dashboard: who gets them, their headers and types, and that what the page
// asks for is in the document.
#include "daemon/http/dashboard.hpp"
#include "daemon/decisions/in_process.hpp"
#include "daemon/http/api.hpp"
#include "daemon/http/http_answer.hpp"
#include "daemon/model_ssd.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <regex>
#include <set>

using namespace gnstor;
using namespace gnstor::daemon;
using namespace gnstor::daemon::test;
using nlohmann::json;

namespace {

const std::string kToken = "0123456789abcdef";

class DashboardTest : public ::testing::Test {
  protected:
    void SetUp() override {
        InProcessOptions options;
        options.tick = std::chrono::milliseconds(0);
        control = InProcessControlPlane::start(std::make_unique<MemoryRecordStore>(), array.ports(), options)
                      .value();
        api = std::make_unique<Api>(*control, *control);
    }
    Response ask(const std::string& method, std::string_view target, const std::string& authorization = "",
                 const std::string& origin = "") {
        return api->handle(Request{method, std::string(target), "", "", authorization, origin}, kToken);
    }
    static std::string header(const Response& response, const std::string& name) {
        for (const auto& [each, value] : response.headers)
            if (each == name) return value;
        return "";
    }
    /// All matches of group 1.
    static std::set<std::string> all(std::string_view text, const char* pattern) {
        const std::string copy(text);
        const std::regex expression(pattern);
        std::set<std::string> found;
        for (std::sregex_iterator i(copy.begin(), copy.end(), expression), end; i != end; ++i)
            found.insert((*i)[1]);
        return found;
    }
    static std::string scripts() {
        std::string text;
        for (const DashboardFile& file : dashboard_files())
            if (file.path.ends_with(".js")) text += file.text;
        return text;
    }

    ModelArray array{3};
    std::unique_ptr<InProcessControlPlane> control;
    std::unique_ptr<Api> api;
};

TEST_F(DashboardTest, IsServedToWhoeverCanConnectWithItsTypeAndStrictHeaders) {
    for (const DashboardFile& file : dashboard_files())
        for (const std::string& authorization :
             {std::string(), "Bearer " + kToken, std::string("Bearer wrong")}) {
            const Response response = ask("GET", file.path, authorization, "http://127.0.0.1:8470");
            EXPECT_EQ(response.status, 200) << file.path;
            EXPECT_EQ(response.body, file.text) << file.path << ": the same for everyone";
            EXPECT_EQ(response.content_type, file.path.ends_with(".css")  ? "text/css; charset=utf-8"
                                             : file.path.ends_with(".js") ? "text/javascript; charset=utf-8"
                                                                          : "text/html; charset=utf-8");
            const std::string policy = header(response, "Content-Security-Policy");
            for (const char* part :
                 {"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'",
                  "img-src 'self' data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"})
                EXPECT_NE((policy + ";").find(std::string(part) + ";"), std::string::npos) << policy;
            EXPECT_EQ(policy.find("unsafe"), std::string::npos) << policy;
            EXPECT_EQ(header(response, "X-Content-Type-Options"), "nosniff");
            EXPECT_EQ(header(response, "X-Frame-Options"), "DENY");
            EXPECT_EQ(header(response, "Referrer-Policy"), "no-referrer");
            EXPECT_EQ(header(response, "Cache-Control"), "no-cache");
        }
}

TEST_F(DashboardTest, TheRootLeadsToThePage) {
    for (const auto& [path, location] : {std::pair{"/", "dashboard"}, {"/dashboard/", "../dashboard"}}) {
        const Response response = ask("GET", path);
        EXPECT_EQ(response.status, 302);
        EXPECT_EQ(header(response, "Location"), location);
        EXPECT_NE(http_answer(response, true, "").find("\r\nLocation: " + std::string(location) + "\r\n"),
                  std::string::npos);
    }
    EXPECT_EQ(ask("GET", "/dashboard?x=1").status, 200);
    EXPECT_EQ(ask("HEAD", "/dashboard").status, 200);
}

TEST_F(DashboardTest, NothingElseIsServedWithoutAToken) {
    for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS"}) {
        const Response response = ask(method, "/dashboard");
        EXPECT_EQ(response.status, 405) << method;
        EXPECT_EQ(response.allow, "GET");
    }
    for (const char* target : {"/dashboard/nothing.js", "/dashboard/main.js/", "/dashboard/../v1/status",
                               "//dashboard", "/v1/status", "/metrics", "/openapi.json"}) {
        EXPECT_EQ(ask("GET", target).status, 401) << target;
        EXPECT_EQ(ask("GET", target, "Bearer " + kToken, "http://evil.example").status, 403) << target;
    }
    EXPECT_EQ(ask("GET", "/dashboard/nothing.js", "Bearer " + kToken).status, 404);
}

TEST_F(DashboardTest, WhatThePageAsksForIsInTheDocumentAndIsAnswered) {
    const json document = json::parse(Api::openapi());
    const std::set<std::string> asked = all(scripts(), R"re(["'`](v1/[^"'`]*|metrics|healthz)["'`])re");
    EXPECT_GE(asked.size(), 7u);
    for (const std::string& path : asked) {
        const std::string target = "/" + path;
        ASSERT_TRUE(document.at("paths").contains(target)) << target;
        EXPECT_TRUE(document.at("paths").at(target).contains("get")) << target;
        EXPECT_EQ(ask("GET", target, "Bearer " + kToken).status, 200) << target;
        EXPECT_EQ(ask("GET", target).status, 401) << target;
    }
    EXPECT_EQ(ask("GET", "/v1/events?since=0", "Bearer " + kToken).status, 200);
}

TEST_F(DashboardTest, AllItsFilesAreUsedAndServed) {
    std::set<std::string> served, used{"/dashboard"};
    for (const DashboardFile& file : dashboard_files()) {
        served.insert(std::string(file.path));
        for (const char* pattern : {R"re((?:src|href)="(dashboard/[^"]*)")re", R"re(from "\.(/[^"]*)")re"})
            for (const std::string& name : all(file.text, pattern))
                used.insert(name[0] == '/' ? "/dashboard" + name : "/" + name);
        EXPECT_TRUE(
            std::ranges::all_of(file.text, [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }))
            << file.path << " is not ASCII";
    }
    EXPECT_EQ(used, served);
}

TEST_F(DashboardTest, ItsScriptsSendOneKindOfRequestAndMakeNoElementsOfText) {
    const std::string text = scripts();
    for (const char* way : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser",
                            "createContextualFragment", "srcdoc", "eval(", "Function(", "XMLHttpRequest",
                            "WebSocket", "EventSource", "sendBeacon", "import(", "localStorage",
                            "document.cookie", "http://", "https://", "method:"})
        EXPECT_EQ(
            text.find(way) == std::string::npos || text.find(way) == text.find("http://www.w3.org/2000/svg"),
            true)
            << way;
    EXPECT_EQ(all(text, R"re((fetch\([^)]*\)|fetch\([^{]*))re").size(), 1u);
    const std::string_view page = dashboard_files().front().text;
    EXPECT_EQ(
        all(page, R"re((<script(?! type="module" src="dashboard/main\.js"><)|<style| on[a-z]+=| style=))re"),
        std::set<std::string>{})
        << "the policy forbids what is inline";
}

}  // namespace
