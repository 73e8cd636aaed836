// http_answer_test.cpp: answers to the byte.
#include "daemon/http/http_answer.hpp"

#include <gtest/gtest.h>

using namespace gnstor::daemon;

namespace {

TEST(HttpAnswer, StatesItsLengthAndWhetherTheConnectionIsKept) {
    EXPECT_EQ(http_answer({200, "text/plain", "body\r\n"}, true, "timeout=1, max=5"),
              "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n"
              "Keep-Alive: timeout=1, max=5\r\nConnection: keep-alive\r\n\r\nbody\r\n");
    EXPECT_EQ(http_answer({404, "application/json", "{}"}, true, ""),
              "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
              "Connection: close\r\n\r\n{}");
}

TEST(HttpAnswer, ToHeadIsThatToGetWithoutItsBody) {
    const Response response{200, "text/plain", "body"};
    EXPECT_EQ(http_answer(response, false, "") + "body", http_answer(response, true, ""));
}

TEST(HttpAnswer, TellsTheClientWhatToDo) {
    const auto has = [](const Response& response, const char* line) {
        return http_answer(response, true, "").find(line) != std::string::npos;
    };
    EXPECT_TRUE(has({405, "application/json", "{}", "GET, POST"}, "\r\nAllow: GET, POST\r\n"));
    EXPECT_TRUE(has({401, "application/json", "{}", "", "Bearer realm=\"gnstord\""},
                    "\r\nWWW-Authenticate: Bearer realm=\"gnstord\"\r\n"));
    EXPECT_TRUE(has({503, "application/json", "{}"}, "\r\nRetry-After: 1\r\n"));
    EXPECT_TRUE(has({302, "text/plain", "", "", "", {{"Location", "there"}, {"X-Frame-Options", "DENY"}}},
                    "302 Found\r\nContent-Type: text/plain\r\nContent-Length: 0\r\nLocation: there\r\n"
                    "X-Frame-Options: DENY\r\n"));
    for (const char* line : {"Allow", "WWW-Authenticate", "Retry-After"})
        EXPECT_FALSE(has({200, "application/json", "{}"}, line)) << line;
    EXPECT_TRUE(has({299, "application/json", "{}"}, "HTTP/1.1 299 \r\n")) << "a reason may be empty";
}

}  // namespace
