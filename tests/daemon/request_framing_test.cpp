// request_framing_test.cpp: where a request ends, what it says, and what is no request, in pieces and at
// once.
#include "daemon/http/request_parser.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

using namespace gnstor::daemon;

namespace {

using State = RequestParser::State;

RequestParser framed(std::string_view bytes) {
    RequestParser framing;
    framing.look(bytes);
    return framing;
}

/// 0: whole; 1: more is needed; else the status of its refusal. The same however the bytes came, or a
/// failure.
int verdict(const std::string& bytes) {
    RequestParser at_once, piecewise;
    const State whole = at_once.look(bytes);
    State last = State::kMore;
    for (std::size_t n = 1; n <= bytes.size(); ++n) {
        const State now = piecewise.look(std::string_view(bytes).substr(0, n));
        EXPECT_TRUE(last == State::kMore || now == last)
            << "the parser's end of the request changed when more bytes arrived: " << bytes.substr(0, 80);
        last = now;
    }
    EXPECT_EQ(last, whole) << bytes.substr(0, 80);
    EXPECT_EQ(piecewise.head_bytes(), at_once.head_bytes()) << bytes.substr(0, 80);
    EXPECT_EQ(piecewise.body_bytes(), at_once.body_bytes()) << bytes.substr(0, 80);
    EXPECT_EQ(piecewise.refusal().status, at_once.refusal().status) << bytes.substr(0, 80);
    EXPECT_EQ(piecewise.request().target, at_once.request().target) << bytes.substr(0, 80);
    EXPECT_EQ(piecewise.keeps_connection(), at_once.keeps_connection()) << bytes.substr(0, 80);
    if (whole == State::kRefused) {
        EXPECT_FALSE(at_once.refusal().message.empty());
    }
    return whole == State::kWhole ? 0 : whole == State::kMore ? 1 : at_once.refusal().status;
}

std::string post(const std::string& headers, const std::string& body) {
    return "POST /v1/clients HTTP/1.1\r\n" + headers + "\r\n" + body;
}

TEST(RequestParser, ARequestEndsWhereItsHeadDoesOrItsContentLengthSays) {
    for (const std::string& head :
         {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("GET /a?b=c HTTP/1.0\r\nHost: x\r\n\r\n"),
          std::string("POST / HTTP/1.1\r\nX: \t a b \xc3\xa4\r\nEmpty:\r\n\r\n")}) {
        EXPECT_EQ(verdict(head), 0) << head;
        EXPECT_EQ(framed(head).head_bytes(), head.size());
        const RequestParser followed = framed(head + "GET / HTTP/1.1\r\n");
        EXPECT_EQ(followed.head_bytes(), head.size()) << "the next request must not be part of this one";
        EXPECT_EQ(followed.body_bytes(), 0u);
    }
    for (const char* length :
         {"Content-Length: 5\r\n", "content-length:5 \t\r\n", "CONTENT-LENGTH:\t005\r\n"}) {
        const std::string whole = post(length, "12345");
        EXPECT_EQ(verdict(whole), 0) << length;
        EXPECT_EQ(framed(whole + "GET").body_bytes(), 5u);
        EXPECT_EQ(framed(whole + "GET").head_bytes() + 5, whole.size());
        for (std::size_t n = 0; n < whole.size(); ++n) EXPECT_EQ(verdict(whole.substr(0, n)), 1) << n;
    }
    EXPECT_EQ(verdict("GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"), 0);
}

TEST(RequestParser, AHeadIsReturnedUnchanged) {
    const RequestParser all = framed(
        "DELETE /v1/volumes/a%20b%2f?client=1&x=%25?y HTTP/1.1\r\nHost: h\r\nAUTHORIZATION: \t Bearer a%41 b "
        "\t\r\n"
        "content-type:application/json; charset=\"utf-8\"\r\norigin: http://x\r\nX-Origin: y\r\n\r\n");
    EXPECT_EQ(all.request().method, "DELETE");
    EXPECT_EQ(all.request().target, "/v1/volumes/a%20b%2f?client=1&x=%25?y")
        << "the target must be returned without decoding";
    EXPECT_EQ(all.request().authorization, "Bearer a%41 b");
    EXPECT_EQ(all.request().content_type, "application/json; charset=\"utf-8\"");
    EXPECT_EQ(all.request().origin, "http://x");
    EXPECT_EQ(all.request().body, "");
    const RequestParser none = framed("GET http://h/a HTTP/1.1\r\nAuthorization:\r\n\r\n");
    EXPECT_EQ(none.request().target, "http://h/a") << "the service takes no absolute form, and says so";
    EXPECT_EQ(none.request().authorization + none.request().content_type + none.request().origin, "");
    EXPECT_EQ(framed("OPTIONS * HTTP/1.1\r\n\r\n").request().target, "*");
}

TEST(RequestParser, AHeaderThatTheServiceReadsMayOccurOnlyOnce) {
    for (const char* name : {"Authorization", "Content-Type", "Origin"})
        for (const char* first : {"", "a", "b"})
            for (const char* second : {"", "a", "b"}) {
                std::string lower = name;
                lower[0] = static_cast<char>(lower[0] - 'A' + 'a');
                EXPECT_EQ(verdict(post(
                              fmt::format("{}: {}\r\nX: y\r\n{}: {}\r\n", name, first, lower, second), "")),
                          400)
                    << name << first << second;
                EXPECT_EQ(verdict(post(fmt::format("{}: {}\r\n {}\r\n", name, first, second), "")), 400)
                    << "a continued header line must be refused";
            }
    EXPECT_EQ(verdict(post("X: a\r\nX: b\r\nAccept: c\r\nAccept: d\r\n", "")), 0)
        << "other headers may be repeated";
}

TEST(RequestParser, AConnectionIsKeptAccordingToVersionAndHeaders) {
    const auto keeps = [](const char* version, const std::string& headers) {
        return framed(fmt::format("GET / HTTP/{}\r\n{}\r\n", version, headers)).keeps_connection();
    };
    EXPECT_TRUE(keeps("1.1", ""));
    EXPECT_FALSE(keeps("1.0", ""));
    EXPECT_TRUE(keeps("1.0", "Connection: Keep-Alive\r\n"));
    EXPECT_TRUE(keeps("1.0", "Connection: TE, keep-alive\r\n"));
    for (const char* headers : {"Connection: close\r\n", "connection:Close\r\n", "Connection: TE , close\r\n",
                                "Connection: keep-alive\r\nConnection: close\r\n",
                                "Connection: close\r\nConnection: keep-alive\r\n", "Connection: ,close,\r\n"})
        for (const char* version : {"1.0", "1.1"})
            EXPECT_FALSE(keeps(version, headers)) << version << headers;
    EXPECT_TRUE(keeps("1.1", "Connection: closed\r\nX: close\r\n"));
}

TEST(RequestParser, AmbiguousRequestsAreRefused) {
    for (const char* headers : {"Content-Length: 5\r\nContent-Length: 5\r\n",
                                "Content-Length: 0\r\ncontent-length: 5\r\n",
                                "Content-Length: +5\r\n",
                                "Content-Length: -5\r\n",
                                "Content-Length: 5x\r\n",
                                "Content-Length: 0x5\r\n",
                                "Content-Length: 5, 5\r\n",
                                "Content-Length: 5 5\r\n",
                                "Content-Length:\r\n",
                                "Content-Length: %35\r\n",
                                "Content-Length: 99999999999999999999999\r\n",
                                "Content-Length : 5\r\n",
                                " Content-Length: 5\r\n",
                                "\tContent-Length: 5\r\n",
                                "X: y\r\n Content-Length: 5\r\n",
                                "Content-Length: 5\n",
                                "X: y\nContent-Length: 5\r\n",
                                "X: y\rContent-Length: 5\r\n",
                                "Content-Length 5\r\n",
                                ": 5\r\n",
                                "Content\x01Length: 5\r\n",
                                "X: \x7f\r\n",
                                "X: \x0b\r\n",
                                "\n",
                                "X: y\r\r\n"})
        EXPECT_EQ(verdict(post(headers, "12345")), 400) << headers;
    EXPECT_EQ(verdict(post(std::string("X: a\0b\r\n", 8), "")), 400);
    for (const char* headers :
         {"Transfer-Encoding: chunked\r\n", "transfer-encoding: identity\r\n", "Transfer-Encoding:\r\n",
          "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding: gzip, chunked\r\n"})
        EXPECT_EQ(verdict(post(headers, "12345")), 411) << headers;
    for (const char* method : {"GET", "HEAD", "OPTIONS", "TRACE", "CONNECT", "BREW", "post"})
        EXPECT_EQ(verdict(fmt::format("{} / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", method)), 400) << method;
}

TEST(RequestParser, AnInvalidRequestLineIsRefusedBeforeTheRestArrives) {
    for (const char* line :
         {"\r\n", "\n", "GET\r\n", "GET /\r\n", "GET  / HTTP/1.1\r\n", "GET /  HTTP/1.1\r\n",
          "GET / HTTP/1.1 \r\n", " GET / HTTP/1.1\r\n", "GET /a b HTTP/1.1\r\n", "GET / HTTP/9.9\r\n",
          "GET / http/1.1\r\n", "GET / HTTP/1.1\n", "G(T / HTTP/1.1\r\n", "GET /\x01 HTTP/1.1\r\n",
          "GET /\ta HTTP/1.1\r\n", "GET /a#b HTTP/1.1\r\n", "GET # HTTP/1.1\r\n", "  \r\n",
          " / HTTP/1.1\r\n"})
        EXPECT_EQ(verdict(line), 400) << line;
}

TEST(RequestParser, InputBeyondTheLimitsIsRefused) {
    const std::string start = "GET /", end = " HTTP/1.1\r\n";
    const std::size_t longest = kMaxHeadLineBytes - start.size() - end.size();
    EXPECT_EQ(verdict(start + std::string(longest, 'a') + end + "\r\n"), 0);
    EXPECT_EQ(verdict(start + std::string(longest + 1, 'a') + end + "\r\n"), 414);
    EXPECT_EQ(verdict(std::string(kMaxHeadLineBytes, 'a')), 1);
    EXPECT_EQ(verdict(std::string(kMaxHeadLineBytes + 1, 'a')), 414)
        << "an unfinished line that is too long must be refused";
    EXPECT_EQ(verdict(post("X: " + std::string(kMaxHeadLineBytes - 5, 'a') + "\r\n", "")), 0);
    EXPECT_EQ(verdict(post("X: " + std::string(kMaxHeadLineBytes - 4, 'a') + "\r\n", "")), 400);

    std::string head = "GET / HTTP/1.1\r\n";
    while (head.size() + 1002 + 2 <= kMaxHeadBytes) head += "X: " + std::string(997, 'a') + "\r\n";
    head += "X:" + std::string(kMaxHeadBytes - head.size() - 6, 'a') + "\r\n";
    EXPECT_EQ(head.size() + 2, kMaxHeadBytes);
    EXPECT_EQ(framed(head + "\r\n").look(head + "\r\n"), State::kWhole);
    EXPECT_EQ(framed(head + "X:\r\n").refusal().status, 400);
    EXPECT_EQ(framed(head + "X: a").refusal().status, 400)
        << "an unfinished line that is too long must be refused";

    const std::string full(kMaxBodyBytes, 'x');
    const std::string most = post(fmt::format("Content-Length: {}\r\n", full.size()), full);
    EXPECT_EQ(framed(most).look(most), State::kWhole);
    EXPECT_EQ(verdict(post(fmt::format("Content-Length: {}\r\n", full.size() + 1), "")), 413);
}

TEST(RequestParser, ASenderThatExpects100ContinueIsRecognizedOnceItsHeadIsAccepted) {
    const auto wants = [](const std::string& bytes) { return framed(bytes).wants_continue(); };
    EXPECT_TRUE(wants(post("Expect: 100-continue\r\nContent-Length: 5\r\n", "")));
    EXPECT_TRUE(wants(post("expect: 100-Continue\r\nContent-Length: 5\r\n", "")));
    EXPECT_FALSE(wants("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n")) << "not yet";
    EXPECT_FALSE(wants("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"));
    EXPECT_FALSE(wants(post("Expect: 100-continue\r\nContent-Length: 99999999\r\n", "")));
    EXPECT_FALSE(wants(post("Content-Length: 5\r\n", "")));
}

}  // namespace
