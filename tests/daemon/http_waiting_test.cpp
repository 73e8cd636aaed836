// http_waiting_test.cpp: peers that are silent, slow or many hold nobody up: over real sockets.
#include "daemon/held_service.hpp"
#include "daemon/http/request_parser.hpp"
#include "daemon/http_peer.hpp"
#include "daemon/http_rig.hpp"

#include <gnstor/base/hash.hpp>

#include <netinet/in.h>

#include <chrono>
#include <optional>
#include <thread>
#include <vector>

using namespace gnstor;
using namespace gnstor::daemon;
using namespace gnstor::daemon::test;
using namespace std::chrono_literals;

namespace {

const std::string kAsk = "GET /healthz HTTP/1.1\r\n\r\n";
const std::string kAskOnce = "GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n";
const std::string kHalfHead = "GET /healthz HTTP/1.1\r\nX: ";
const std::string kHalfBody = "POST /v1/clients HTTP/1.1\r\nContent-Length: 100\r\n\r\n{\"name\":";

class HttpWaitingTest : public HttpTest {
  protected:
    void SetUp() override {
        HttpTest::SetUp();
        options.threads = 2;
        options.connections = 8;
        options.idle = options.request = options.answer = kLong;
    }
    Peer peer() { return Peer(connect_raw()); }
    /// Connections that send this and no more.
    std::vector<Peer> crowd(std::size_t count, const std::string& bytes) {
        std::vector<Peer> peers;
        for (std::size_t i = 0; i < count; ++i) {
            peers.push_back(peer());
            if (!bytes.empty()) peers.back().send(bytes);
        }
        return peers;
    }
    void expect_an_answer_despite(const std::string& bytes) {
        for (const std::size_t count : {7u, 8u, 50u}) {  // more than threads; as many as places; more
            const std::vector<Peer> others = crowd(count, bytes);
            Peer honest = peer();
            honest.send(kAskOnce);
            EXPECT_EQ(honest.answer().rfind("HTTP/1.1 200", 0), 0u) << count << " of " << bytes;
            const auto made = client()->register_client("alice");
            EXPECT_TRUE(made.ok()) << count << " of " << bytes << ": " << made.error().message;
        }
    }
};

TEST_F(HttpWaitingTest, MoreSilentPeersThanThreadsAndConnectionsDoNotBlockNewClients) {
    serve();
    expect_an_answer_despite("");
}

TEST_F(HttpWaitingTest, PeersThatSendHalfAHeadDoNotBlockNewClients) {
    serve();
    expect_an_answer_despite(kHalfHead);
}

TEST_F(HttpWaitingTest, PeersThatSendHalfABodyDoNotBlockNewClients) {
    serve();
    expect_an_answer_despite(kHalfBody);
}

TEST_F(HttpWaitingTest, OverTcpToo) {
    options.socket.clear();
    options.token = "a-token-of-this-test";
    serve();
    std::vector<std::unique_ptr<Peer>> silent;
    for (int i = 0; i < 50; ++i) {
        const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(static_cast<std::uint16_t>(server->port()));
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        ASSERT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
        silent.push_back(std::make_unique<Peer>(fd));
    }
    EXPECT_TRUE(client()->register_client("alice").ok());
}

TEST_F(HttpWaitingTest, OnlyAsManyConnectionsAsNeededAreClosedTheLongestIdleFirst) {
    serve();
    std::vector<Peer> silent = crowd(7, "");
    Peer known = peer();
    known.send(kAsk);
    EXPECT_EQ(known.answer().rfind("HTTP/1.1 200", 0), 0u);
    Peer asking = peer();  // one too many
    asking.send(kAsk);
    EXPECT_EQ(asking.answer().rfind("HTTP/1.1 200", 0), 0u);
    EXPECT_EQ(silent[0].end(), "") << "the connection that is idle longest must be closed";
    for (std::size_t i = 1; i < silent.size(); ++i) EXPECT_TRUE(silent[i].is_open()) << i;
    EXPECT_TRUE(known.is_open());
    const std::vector<Peer> more = crowd(50, "");
    EXPECT_TRUE(client()->get("/healthz").ok());
}

TEST_F(HttpWaitingTest, PeersWithEarlierRequestsDoNotCauseANewConnectionToBeClosedFirst) {
    serve();
    std::vector<Peer> asked;
    for (int i = 0; i < 7; ++i) {
        asked.push_back(peer());
        asked.back().send(kAsk);
        EXPECT_EQ(asked.back().answer().rfind("HTTP/1.1 200", 0), 0u);
    }
    Peer slow = peer();
    slow.send(kHalfHead);
    EXPECT_EQ(raw(kAskOnce, true).rfind("HTTP/1.1 200", 0), 0u);
    EXPECT_EQ(asked[0].end(), "");
    EXPECT_TRUE(slow.is_open()) << "the only connection without an earlier request must not be closed";
}

TEST_F(HttpWaitingTest, ABodyReachesTheServiceUnchangedWhateverItsContentType) {
    HeldService service;
    serve(service);
    const std::string body = "\x1f\x8b not what gzip wrote";
    for (const std::string head : {"Content-Encoding: gzip\r\n", "Content-Encoding: br\r\n",
                                   "Content-Type: multipart/form-data; boundary=b\r\n",
                                   "Content-Type: application/x-www-form-urlencoded\r\n"}) {
        const std::string request = "POST /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n" + head +
                                    "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
        EXPECT_EQ(raw(request, true).rfind("HTTP/1.1 200", 0), 0u) << head;
        const auto asked = service.take_asked();
        ASSERT_EQ(asked.size(), 1u) << head;
        EXPECT_EQ(asked[0].body, body) << head;
    }
}

TEST_F(HttpWaitingTest, ManyRangeHeadersDoNotMultiplyAnAnswer) {
    serve();
    const std::string plain = raw(kAskOnce, true);
    std::string ranges = "Range: bytes=-";
    for (int i = 0; i < 1000; ++i) ranges += ",-";
    std::string request = kAskOnce;
    request.insert(request.find("\r\n") + 2, ranges + "\r\n");
    EXPECT_EQ(raw(request, true), plain);
}

TEST_F(HttpWaitingTest, PeersThatAreIdleAfterARequestAreClosedToMakeRoomToo) {
    serve();
    std::vector<Peer> idle;
    for (int i = 0; i < 8; ++i) {
        idle.push_back(peer());
        idle.back().send(kAsk + kHalfHead);
        EXPECT_EQ(idle.back().answer().rfind("HTTP/1.1 200", 0), 0u);
    }
    EXPECT_EQ(raw(kAskOnce, true).rfind("HTTP/1.1 200", 0), 0u);
    EXPECT_EQ(idle[0].end(), "");
    EXPECT_TRUE(idle[7].is_open());
}

TEST_F(HttpWaitingTest, IfAllConnectionsAreBusyANewOneIsRefusedAtOnceAndNoneIsClosed) {
    options.connections = 5;
    HeldService service;
    service.hold(true);
    serve(service);
    std::vector<Peer> served = crowd(5, kAskOnce);  // 2 by threads, 3 wait for one
    ASSERT_TRUE(service.asked(2));
    for (int i = 0; i < 40; ++i) {
        const std::string answer = raw(kAskOnce, true);
        EXPECT_EQ(answer.rfind("HTTP/1.1 503 Service Unavailable\r\n", 0), 0u) << answer;
        EXPECT_NE(answer.find("too many connections"), std::string::npos) << answer;
        EXPECT_NE(answer.find("Retry-After"), std::string::npos) << answer;
    }
    const auto refused = client()->get("/healthz");
    ASSERT_FALSE(refused.ok());
    service.hold(false);
    for (Peer& one : served) EXPECT_EQ(one.answer().rfind("HTTP/1.1 200", 0), 0u);
}

TEST_F(HttpWaitingTest, AConnectionWhoseRequestHasArrivedIsServedAndNotClosed) {
    HeldService service;
    serve(service);
    std::vector<Peer> silent = crowd(7, "");
    service.let_refuse(0);
    const std::vector<Peer> bad = crowd(1, "nonsense\r\n");
    ASSERT_TRUE(service.refused(1));
    const std::vector<Peer> worse = crowd(1, "nonsense\r\n");  // is there when it is accepted
    service.let_refuse(1);
    ASSERT_TRUE(service.refused(2));  // so the next ones are accepted before anybody is read
    for (const Peer& one : silent) one.send(kAskOnce);
    std::vector<Peer> newcomers = crowd(2, kAskOnce);
    service.let_refuse(100);
    for (Peer& one : silent) EXPECT_EQ(one.answer().rfind("HTTP/1.1 200", 0), 0u);
    for (Peer& one : newcomers) EXPECT_EQ(one.answer().rfind("HTTP/1.1 ", 0), 0u) << "200, or 503";
}

TEST_F(HttpWaitingTest, SuccessiveRequestsShareAConnectionThatHoldsNoThreadInBetween) {
    options.threads = 1;
    serve();
    Peer a = peer(), b = peer();
    for (int i = 0; i < 3; ++i)
        for (Peer* const one : {&a, &b}) {
            one->send(kAsk);
            EXPECT_EQ(one->answer().rfind("HTTP/1.1 200", 0), 0u) << i;
        }
    EXPECT_TRUE(a.is_open());
}

TEST_F(HttpWaitingTest, PipelinedRequestsAreAnsweredInOrder) {
    HeldService service;
    serve(service);
    const auto post = [](const std::string& target, const std::string& body) {
        return fmt::format("POST {} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{}", target, body.size(), body);
    };
    const std::string long_one(30'000, 'x');
    const std::string all =
        post("/1", "one") + "GET /2 HTTP/1.1\r\n\r\n" + post("/3", long_one) + post("/4", "");
    Peer whole = peer(), cut = peer(), bytewise = peer();
    whole.send(all);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(whole.answer().rfind("HTTP/1.1 200", 0), 0u) << i;
    cut.send(all.substr(0, all.size() - 2));  // the end of the last one comes when the others were answered
    for (int i = 0; i < 3; ++i) EXPECT_EQ(cut.answer().rfind("HTTP/1.1 200", 0), 0u) << i;
    cut.send(all.substr(all.size() - 2));
    EXPECT_EQ(cut.answer().rfind("HTTP/1.1 200", 0), 0u);
    for (const char c : post("/1", "one") + "GET /2 HTTP/1.1\r\n\r\n") bytewise.send(std::string(1, c));
    for (int i = 0; i < 2; ++i) EXPECT_EQ(bytewise.answer().rfind("HTTP/1.1 200", 0), 0u) << i;
    const std::vector<Request> asked = service.take_asked();
    ASSERT_EQ(asked.size(), 10u);
    const std::vector<std::string> bodies{"one", "", long_one, ""};
    for (std::size_t i = 0; i < asked.size(); ++i) {
        EXPECT_EQ(asked[i].target, fmt::format("/{}", i % 4 + 1));
        EXPECT_EQ(asked[i].body, bodies[i % 4]);
    }
}

TEST_F(HttpWaitingTest, ASenderThatExpects100ContinueGetsIt) {
    HeldService service;
    serve(service);
    const auto head = [](std::size_t length) {
        return fmt::format("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n", length);
    };
    Peer waits = peer(), too_much = peer(), at_once = peer();
    waits.send(head(4000));
    EXPECT_EQ(waits.answer(), "HTTP/1.1 100 Continue\r\n\r\n");
    waits.send(std::string(4000, 'x'));
    EXPECT_EQ(waits.answer().rfind("HTTP/1.1 200", 0), 0u) << "100 Continue must be sent exactly once";
    too_much.send(head(kMaxBodyBytes + 1));
    EXPECT_EQ(too_much.answer().rfind("HTTP/1.1 413", 0), 0u);
    at_once.send(head(4) + "1234");
    EXPECT_EQ(at_once.answer().rfind("HTTP/1.1 200", 0), 0u)
        << "a body that arrives with its head needs no 100 Continue";
    EXPECT_EQ(service.take_asked().at(0).body.size(), 4000u);
}

TEST_F(HttpWaitingTest, ARefusedSenderMayKeepWritingForAMomentAndReadsTheError) {
    options.threads = 1;
    serve();
    const std::string rest(600'000, 'x');  // more than a socket keeps
    bool taken = false;
    for (int i = 0; i < 10 && !taken; ++i) {  // that moment is a second: a machine may take longer once
        Peer sender = peer();
        sender.send("POST / HTTP/1.1\r\nContent-Length: 600000\r\n\r\n");
        EXPECT_EQ(sender.answer().rfind("HTTP/1.1 413", 0), 0u);
        taken = sender.is_taken(rest);
        EXPECT_EQ(raw(kAskOnce, true).rfind("HTTP/1.1 200", 0), 0u)
            << "an idle connection must not hold a thread";
    }
    EXPECT_TRUE(taken);
}

TEST_F(HttpWaitingTest, SilenceEndsAConnectionBeforeARequestAndBetweenTwo) {
    options.idle = 200ms;
    serve();
    const auto begun = std::chrono::steady_clock::now();
    Peer silent = peer();
    // Where this thread or the server's stands still before the request is read, the connection ends as a
    // silent one does: then another one asks.
    std::optional<Peer> asked;
    std::string answer;
    for (int tries = 0; tries < 5 && answer.empty(); ++tries) {
        asked.emplace(peer());
        if (asked->is_taken(kAsk)) answer = asked->answer();
    }
    EXPECT_EQ(answer.rfind("HTTP/1.1 200", 0), 0u);
    EXPECT_EQ(silent.end(), "");
    EXPECT_GE(std::chrono::steady_clock::now() - begun, options.idle);
    EXPECT_EQ(asked->end(), "");
}

TEST_F(HttpWaitingTest, ARequestThatDoesNotComeWholeInTimeIsRefused) {
    options.request = 200ms;
    serve();
    Peer head = peer(), body = peer(), second = peer();
    head.send(kHalfHead);
    body.send(kHalfBody);
    second.send(kAsk + kHalfHead);
    EXPECT_EQ(second.answer().rfind("HTTP/1.1 200", 0), 0u);
    for (Peer* const one : {&head, &body, &second}) {
        const std::optional<std::string> said = one->end();
        ASSERT_TRUE(said.has_value()) << "the connection was not answered";
        EXPECT_EQ(said->rfind("HTTP/1.1 408", 0), 0u) << *said;
        EXPECT_NE(said->find("Connection: close"), std::string::npos) << *said;
    }
}

TEST_F(HttpWaitingTest, APeerThatDoesNotReadItsAnswerHoldsNoThreadAndIsClosed) {
    options.threads = 1;
    options.answer = 5000ms;  // the other one's has to be taken meanwhile
    constexpr std::size_t kBytes = 8u << 20;
    HeldService service;
    service.set_body(std::string(kBytes, 'x'));  // no socket takes that at once
    serve(service);
    Peer deaf = peer();
    deaf.send(kAsk);
    ASSERT_TRUE(service.asked(1));
    const auto begun = std::chrono::steady_clock::now();
    Peer other = peer();
    other.send(kAsk);
    EXPECT_GT(other.answer().size(), kBytes);
    const bool soon = std::chrono::steady_clock::now() - begun < options.answer / 2;
    EXPECT_FALSE(soon && deaf.is_ended_unread(0ms)) << "the unread answer held the only thread";
    ASSERT_TRUE(deaf.is_ended_unread());
    const std::optional<std::string> said = deaf.end();
    ASSERT_TRUE(said.has_value());
    EXPECT_LT(said->size(), kBytes);
}

TEST_F(HttpWaitingTest, StoppingEndsAtOnceHoweverManyConnectionsWait) {
    options.connections = 256;
    HeldService service;
    serve(service);
    std::vector<Peer> waiting;
    for (const std::string& bytes : {std::string(), kHalfHead, kHalfBody, std::string("nonsense\r\n")})
        for (Peer& one : crowd(50, bytes)) waiting.push_back(std::move(one));
    service.hold(true);
    Peer served = peer();
    served.send(kAsk);
    ASSERT_TRUE(service.asked(1));
    const auto begun = std::chrono::steady_clock::now();
    std::thread stopper([&] { server->stop(); });
    EXPECT_EQ(waiting[0].end(), "") << "an idle connection must be closed while another is served";
    service.hold(false);
    stopper.join();
    EXPECT_LT(std::chrono::steady_clock::now() - begun, kAtOnce);
    EXPECT_EQ(served.answer().rfind("HTTP/1.1 200", 0), 0u) << "a request in progress must be completed";
    for (Peer& one : waiting) EXPECT_TRUE(one.end().has_value());
}

TEST_F(HttpWaitingTest, TheServiceGetsExactlyTheParsedRequests) {
    options.threads = 1;
    HeldService service;
    serve(service);
    const std::string hidden = "GET /hidden HTTP/1.1\r\n\r\n";
    const std::string unread =
        fmt::format("POST / HTTP/1.1\r\nRange: x\r\nContent-Length: {}\r\n\r\n{}", hidden.size(), hidden);
    Peer sender = peer();
    sender.send(unread);
    EXPECT_EQ(sender.answer().rfind("HTTP/1.1 200", 0), 0u) << "Range headers must be ignored";
    const std::vector<Request> one = service.take_asked();
    ASSERT_EQ(one.size(), 1u);
    EXPECT_EQ(one[0].body, hidden);

    const std::string sample =
        "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 24\r\nX: 1\r\n\r\n" + hidden +
        "GET /b HTTP/1.1\r\nContent-Length: 0\r\n\r\nPUT /c HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}";
    SplitMix64 random(11);
    std::uint64_t whole = 0;
    for (int i = 0; i < 2000; ++i) {
        std::string bytes = sample;
        constexpr std::string_view kLikely = "\r\n: \t0123,%;aT\0#?";
        for (std::uint64_t k = random.below(3); k != ~0ull; --k) {
            const std::size_t at = random.below(bytes.size());
            if (random.below(2) == 0)
                bytes[at] = kLikely[random.below(kLikely.size())];
            else if (random.below(2) == 0)
                bytes.erase(at, 1);
            else
                bytes.insert(at, 1, kLikely[random.below(kLikely.size())]);
        }
        std::vector<std::string> bodies;  // as they are cut out
        for (std::string_view rest = bytes;;) {
            RequestParser framing;
            if (framing.look(rest) != RequestParser::State::kWhole) break;
            bodies.emplace_back(rest.substr(framing.head_bytes(), framing.body_bytes()));
            rest.remove_prefix(framing.head_bytes() + framing.body_bytes());
        }
        (void)raw(bytes);
        const std::vector<Request> asked = service.take_asked();
        ASSERT_LE(asked.size(), bodies.size()) << bytes;
        for (std::size_t k = 0; k < asked.size(); ++k) ASSERT_EQ(asked[k].body, bodies[k]) << bytes;
        whole += asked.size();
    }
    EXPECT_GT(whole, 2000u);
    std::printf("http: %llu whole requests among 2000 damaged pieces\n",
                static_cast<unsigned long long>(whole));
}

}  // namespace
