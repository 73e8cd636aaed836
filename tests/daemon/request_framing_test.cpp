// request_framing_test.cpp: where a request ends, and what is no request, in pieces and at once.
#include "daemon/request_framing.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

using namespace gnstor::daemon;

namespace {

using State = RequestFraming::State;

RequestFraming framed(std::string_view bytes) {
    RequestFraming framing;
    framing.look(bytes);
    return framing;
}

/// 0: whole; 1: more is needed; else the status of its refusal. The same however the bytes came, or a
/// failure.
int verdict(const std::string& bytes) {
    RequestFraming at_once, piecewise;
    const State whole = at_once.look(bytes);
    State last = State::kMore;
    for (std::size_t n = 1; n <= bytes.size(); ++n) {
        const State now = piecewise.look(std::string_view(bytes).substr(0, n));
        EXPECT_TRUE(last == State::kMore || now == last) << "an end that moved: " << bytes.substr(0, 80);
        last = now;
    }
    EXPECT_EQ(last, whole) << bytes.substr(0, 80);
    EXPECT_EQ(piecewise.head_bytes(), at_once.head_bytes()) << bytes.substr(0, 80);
    EXPECT_EQ(piecewise.body_bytes(), at_once.body_bytes()) << bytes.substr(0, 80);
    EXPECT_EQ(piecewise.refusal().status, at_once.refusal().status) << bytes.substr(0, 80);
    if (whole == State::kRefused) {
        EXPECT_FALSE(at_once.refusal().message.empty());
    }
    return whole == State::kWhole ? 0 : whole == State::kMore ? 1 : at_once.refusal().status;
}

std::string post(const std::string& headers, const std::string& body) {
    return "POST /v1/clients HTTP/1.1\r\n" + headers + "\r\n" + body;
}

TEST(RequestFraming, ARequestEndsWhereItsHeadDoesOrItsContentLengthSays) {
    for (const std::string& head :
         {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("GET /a?b=c HTTP/1.0\r\nHost: x\r\n\r\n"),
          std::string("POST / HTTP/1.1\r\nX: \t a b \xc3\xa4\r\nEmpty:\r\n\r\n")}) {
        EXPECT_EQ(verdict(head), 0) << head;
        EXPECT_EQ(framed(head).head_bytes(), head.size());
        const RequestFraming followed = framed(head + "GET / HTTP/1.1\r\n");
        EXPECT_EQ(followed.head_bytes(), head.size()) << "the next one is not part of it";
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

TEST(RequestFraming, WhatTwoReadersCouldTakeDifferentlyIsRefused) {
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

TEST(RequestFraming, AFirstLineThatIsNoneIsRefusedWithoutTheRest) {
    for (const char* line :
         {"\r\n", "\n", "GET\r\n", "GET /\r\n", "GET  / HTTP/1.1\r\n", "GET /  HTTP/1.1\r\n",
          "GET / HTTP/1.1 \r\n", " GET / HTTP/1.1\r\n", "GET /a b HTTP/1.1\r\n", "GET / HTTP/9.9\r\n",
          "GET / http/1.1\r\n", "GET / HTTP/1.1\n", "G(T / HTTP/1.1\r\n", "GET /\x01 HTTP/1.1\r\n",
          "GET /\ta HTTP/1.1\r\n", "  \r\n", " / HTTP/1.1\r\n"})
        EXPECT_EQ(verdict(line), 400) << line;
}

TEST(RequestFraming, NoMoreIsTakenThanTheLimits) {
    const std::string start = "GET /", end = " HTTP/1.1\r\n";
    const std::size_t longest = kMaxHeadLineBytes - start.size() - end.size();
    EXPECT_EQ(verdict(start + std::string(longest, 'a') + end + "\r\n"), 0);
    EXPECT_EQ(verdict(start + std::string(longest + 1, 'a') + end + "\r\n"), 414);
    EXPECT_EQ(verdict(std::string(kMaxHeadLineBytes, 'a')), 1);
    EXPECT_EQ(verdict(std::string(kMaxHeadLineBytes + 1, 'a')), 414) << "it need not end to be too long";
    EXPECT_EQ(verdict(post("X: " + std::string(kMaxHeadLineBytes - 5, 'a') + "\r\n", "")), 0);
    EXPECT_EQ(verdict(post("X: " + std::string(kMaxHeadLineBytes - 4, 'a') + "\r\n", "")), 400);

    std::string head = "GET / HTTP/1.1\r\n";
    while (head.size() + 1002 + 2 <= kMaxHeadBytes) head += "X: " + std::string(997, 'a') + "\r\n";
    head += "X:" + std::string(kMaxHeadBytes - head.size() - 6, 'a') + "\r\n";
    EXPECT_EQ(head.size() + 2, kMaxHeadBytes);
    EXPECT_EQ(framed(head + "\r\n").look(head + "\r\n"), State::kWhole);
    EXPECT_EQ(framed(head + "X:\r\n").refusal().status, 400);
    EXPECT_EQ(framed(head + "X: a").refusal().status, 400) << "it need not end to be too long";

    const std::string full(kMaxBodyBytes, 'x');
    const std::string most = post(fmt::format("Content-Length: {}\r\n", full.size()), full);
    EXPECT_EQ(framed(most).look(most), State::kWhole);
    EXPECT_EQ(verdict(post(fmt::format("Content-Length: {}\r\n", full.size() + 1), "")), 413);
}

TEST(RequestFraming, ASenderThatWaitsForContinueIsKnownWhenItsHeadWasAccepted) {
    const auto wants = [](const std::string& bytes) { return framed(bytes).wants_continue(); };
    EXPECT_TRUE(wants(post("Expect: 100-continue\r\nContent-Length: 5\r\n", "")));
    EXPECT_TRUE(wants(post("expect: 100-Continue\r\nContent-Length: 5\r\n", "")));
    EXPECT_FALSE(wants("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n")) << "not yet";
    EXPECT_FALSE(wants("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"));
    EXPECT_FALSE(wants(post("Expect: 100-continue\r\nContent-Length: 99999999\r\n", "")));
    EXPECT_FALSE(wants(post("Content-Length: 5\r\n", "")));
}

}  // namespace
