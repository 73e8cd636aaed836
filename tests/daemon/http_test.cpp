// http_test.cpp: the interface over real sockets: bad bytes, many clients at once, stopping, sockets in use.
#include "daemon/http_rig.hpp"
#include "daemon/standby/role_service.hpp"

#include <gnstor/base/hash.hpp>

#include <poll.h>
#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <stdexcept>
#include <thread>

using namespace gnstor;
using namespace gnstor::daemon;
using namespace gnstor::daemon::test;

namespace {

TEST_F(HttpTest, OfSeveralDaemonsTheOneThatLeadsIsAskedWhateverIsSaidOrSilentBeforeIt) {
    serve();
    RoleService standby([] { return std::string("the gnstord at unix:x leads the array; ask that one"); });
    HttpServerOptions other = options;
    other.socket = dir / "standby";
    const auto beside = HttpServer::start(standby, other).value();
    HttpClientOptions all;
    all.socket = dir / "dead";
    all.others.resize(2);
    all.others[0].socket = other.socket;
    all.others[1].socket = options.socket;
    HttpControlPlane http(all);
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(http.register_client("alice").ok());
    EXPECT_EQ(control->inspect().clients.size(), 1u);
    // The roles change.
    server.reset();
    standby.lead(*api);
    EXPECT_TRUE(http.register_client("bob").ok());
    EXPECT_EQ(control->inspect().clients.size(), 2u);
    // What the leader refuses is not asked elsewhere, and a standby alone is told from a failure.
    EXPECT_EQ(http.open_volume(1, "none", client::OpenMode::kRead).error().code, Errc::kNotFound);
    standby.stand_by();
    HttpClientOptions alone;
    alone.socket = other.socket;
    const auto refused = HttpControlPlane(alone).register_client("zoe");
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::kBusy);
    EXPECT_NE(refused.error().message.find("this gnstord is a standby: the gnstord at unix:x"),
              std::string::npos);
}

TEST_F(HttpTest, AnArrayWithoutALeaderIsAskedUntilTheDeadlineAndNoLonger) {
    HttpClientOptions all;
    all.socket = dir / "dead";
    all.others.resize(1);
    all.others[0].socket = dir / "dead-too";
    all.deadline = std::chrono::milliseconds(700);
    const auto began = std::chrono::steady_clock::now();
    EXPECT_EQ(HttpControlPlane(all).register_client("alice").error().code, Errc::kIo);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
}

TEST_F(HttpTest, TheClientSeesWhatTheDaemonKnowsToTheByte) {
    serve();
    auto http = client();
    const auto alice = http->register_client("alice");
    ASSERT_TRUE(alice.ok()) << alice.error().message;
    EXPECT_EQ(alice->host_nqn, control->register_client("alice")->host_nqn);
    const auto made = http->create_volume(alice->id, {"v", 10'000'000, 32768, 3, true});
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(std::memcmp(&*made, &control->list_volumes()->at(0), sizeof(*made)), 0);
    const auto opened = http->open_volume(alice->id, "v", client::OpenMode::kWrite);
    ASSERT_TRUE(opened.ok());
    EXPECT_EQ(opened->lease_ms, 300'000u);
    EXPECT_TRUE(http->renew_lease(alice->id, opened->record.geometry.volume, opened->record.epoch).ok());
    EXPECT_TRUE(http->share_volume(alice->id, "v", http->register_client("bob")->id).ok());
    EXPECT_EQ(http->unshare_volume(alice->id, "v", http->register_client("bob")->id).error().code,
              Errc::kState)
        << "any client may write it, so bob reads it all the same";
    EXPECT_TRUE(
        client()->release_volume(alice->id, opened->record.geometry.volume, opened->record.epoch, 777).ok());
    const auto listed = http->list_volumes();
    ASSERT_EQ(listed->size(), 1u);
    EXPECT_EQ(std::memcmp(&listed->at(0), &control->list_volumes()->at(0), sizeof(nvme::VolumeRecord)), 0);
    EXPECT_EQ(listed->at(0).byte_length, 777u);
    const auto here = control->array(), there = http->array();
    EXPECT_EQ(std::memcmp(&here->map, &there->map, sizeof(here->map)), 0);
    ASSERT_EQ(there->ssds.size(), 3u);
    EXPECT_EQ(there->ssds[1].subsystem_nqn, here->ssds[1].subsystem_nqn);
    EXPECT_TRUE(http->delete_volume(alice->id, "v").ok());
    const auto gone = http->open_volume(alice->id, "v", client::OpenMode::kRead);
    EXPECT_EQ(gone.error().code, Errc::kNotFound);
    EXPECT_EQ(http->open_volume(99, "a b/%?#", client::OpenMode::kRead).error().code, Errc::kPermission);
}

TEST_F(HttpTest, OfManyClientsThatOpenForWritingExactlyOneWins) {
    serve();
    const auto owner = control->register_client("owner")->id;
    ASSERT_TRUE(control->create_volume(owner, {"v", 4096, 65536, 2, true}).ok());
    constexpr int kClients = 12, kRounds = 10;
    std::uint64_t tries = 0;
    for (int round = 0; round < kRounds; ++round) {
        std::atomic<int> won{0}, busy{0};
        std::vector<client::OpenedVolume> winner(1);
        std::vector<std::thread> threads;
        for (int c = 0; c < kClients; ++c)
            threads.emplace_back([&, c] {
                auto http = client();
                const auto id = http->register_client(fmt::format("w{}", c));
                if (!id.ok()) return;
                const auto opened = http->open_volume(id->id, "v", client::OpenMode::kWrite);
                if (opened.ok() && won.fetch_add(1, std::memory_order_relaxed) == 0) winner[0] = *opened;
                if (!opened.ok() && opened.error().code == Errc::kBusy)
                    busy.fetch_add(1, std::memory_order_relaxed);
            });
        for (std::thread& t : threads) t.join();
        EXPECT_EQ(won.load(), 1);
        EXPECT_EQ(busy.load(), kClients - 1);
        const auto& r = winner[0].record;
        ASSERT_TRUE(control->release_volume(r.writer, r.geometry.volume, r.epoch, ~0ull).ok());
        tries += kClients;
    }
    std::printf("http: %llu concurrent openings, one winner in each of %d rounds\n",
                static_cast<unsigned long long>(tries), kRounds);
}

TEST_F(HttpTest, BytesThatAreNoRequestAreAnsweredOrDroppedAndTheServerLives) {
    serve();
    const std::vector<std::string> bad = {
        "",
        "\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "BREW /v1/volumes HTTP/1.1\r\n\r\n",
        std::string(20000, 'A'),
        "GET /" + std::string(9000, 'a') + " HTTP/1.1\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nX: " + std::string(20000, 'h') + "\r\n\r\n",
        "POST /v1/clients HTTP/1.1\r\nContent-Length: 99999999999\r\nContent-Type: application/json\r\n\r\n{",
        "POST /v1/clients HTTP/1.1\r\nContent-Length: -5\r\nContent-Type: application/json\r\n\r\n{}",
        "POST /v1/clients HTTP/1.1\r\nContent-Length: 10\r\nContent-Type: application/json\r\n\r\n{}",
        "POST /v1/clients HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Type: "
        "application/json\r\n\r\nzz\r\n{}\r\n",
        std::string("\x16\x03\x01\x00\xff\x00\x00", 7),
        "DELETE /v1/volumes/%ff%fe HTTP/1.1\r\n\r\n"};
    for (const std::string& bytes : bad) {
        const std::string answer = raw(bytes);
        if (!answer.empty()) {
            EXPECT_EQ(answer.rfind("HTTP/1.1 4", 0), 0u)
                << bytes.substr(0, 60) << " -> " << answer.substr(0, 200);
        }
    }
    for (const char* whole : {"BREW /v1/volumes HTTP/1.1\r\nConnection: close\r\n\r\n",
                              "GET /nothing HTTP/1.1\r\nConnection: close\r\n\r\n",
                              "PUT /healthz HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
                              "GET /%zz HTTP/1.1\r\nConnection: close\r\n\r\n"}) {
        const std::string answer = raw(whole, true);
        EXPECT_EQ(answer.rfind("HTTP/1.1 4", 0), 0u) << whole << " -> " << answer;
        EXPECT_NE(answer.find("\"message\""), std::string::npos) << whole << " -> " << answer;
    }
    SplitMix64 random(7);
    for (int i = 0; i < 200; ++i) {
        std::string bytes =
            "POST /v1/volumes HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: "
            "close\r\n\r\n{}";
        for (int k = 0; k < 3; ++k) bytes[random.below(bytes.size())] = static_cast<char>(random.below(256));
        (void)raw(bytes);
    }
    EXPECT_TRUE(client()->get("/healthz").ok());
    std::printf("http: %zu malformed and 200 damaged requests\n", bad.size());
}

TEST_F(HttpTest, AnAnswerIsAsMethodVersionAndConnectionWantIt) {
    serve();
    const auto ask = [&](const std::string& line, const std::string& headers = "Connection: close\r\n") {
        return raw(line + "\r\n" + headers + "\r\n");
    };
    const auto body_of = [](const std::string& answer) { return answer.substr(answer.find("\r\n\r\n") + 4); };
    const auto has = [](const std::string& answer, const char* line) {
        return answer.find(fmt::format("\r\n{}\r\n", line)) != std::string::npos;
    };
    const std::string got = ask("GET /healthz HTTP/1.1");
    EXPECT_EQ(got.rfind("HTTP/1.1 200 OK\r\n", 0), 0u) << got;
    EXPECT_TRUE(has(got, "Connection: close"));
    EXPECT_EQ(ask("HEAD /healthz HTTP/1.1") + body_of(got), got);
    EXPECT_EQ(ask("GET /healthz HTTP/1.0", ""), got) << "which ends its connection unless it is asked not to";
    EXPECT_TRUE(has(ask("GET /healthz HTTP/1.0", "Connection: Keep-Alive\r\n"), "Connection: keep-alive"));
    EXPECT_TRUE(has(ask("GET /healthz HTTP/1.1", ""), "Keep-Alive: timeout=1, max=5"));
    const std::string wrong = ask("DELETE /healthz HTTP/1.1");
    EXPECT_EQ(wrong.rfind("HTTP/1.1 405 Method Not Allowed\r\n", 0), 0u) << wrong;
    EXPECT_TRUE(has(wrong, "Allow: GET")) << wrong;
    EXPECT_EQ(body_of(ask("HEAD /nothing HTTP/1.1")), "");
    EXPECT_EQ(ask("GET http://localhost/healthz HTTP/1.1").rfind("HTTP/1.1 400 ", 0), 0u);
    // The last of the five that a connection may bring says so.
    std::string many;
    for (int i = 0; i < 6; ++i) many += "GET /healthz HTTP/1.1\r\n\r\n";
    std::string five = got;
    for (int i = 0; i < 4; ++i) five.insert(0, ask("GET /healthz HTTP/1.1", ""));
    EXPECT_EQ(raw(many, true), five);
    EXPECT_TRUE(client()->get("/healthz").ok());
}

TEST_F(HttpTest, AnExceptionInTheServiceIsAnsweredWithAnError) {
    class Broken final : public HttpService {
        Response handle(const Request&, std::string_view) override { throw std::runtime_error("broken"); }
        Response refuse(int status, std::string_view, std::string_view message) override {
            return {status, "text/plain", std::string(message)};
        }
    } service;
    serve(service);
    const std::string answer = raw("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", true);
    EXPECT_EQ(answer.rfind("HTTP/1.1 500 ", 0), 0u) << answer;
    EXPECT_NE(answer.find("a defect in gnstord"), std::string::npos) << answer;
}

TEST_F(HttpTest, ABodyThatIsTooLargeIsRefusedAsJson) {
    serve();
    const std::string answer =
        raw("POST /v1/clients HTTP/1.1\r\nContent-Type: application/json\r\nConnection: "
            "close\r\nContent-Length: 70000\r\n\r\n" +
                std::string(70000, ' '),
            true);
    EXPECT_EQ(answer.rfind("HTTP/1.1 413", 0), 0u) << answer.substr(0, 100);
    EXPECT_NE(answer.find("too_large"), std::string::npos);
}

/// Sends `head`, then `body` bytes of filling, until the server ends the connection: how many were taken, and
/// what it said.
struct Endless {
    std::uint64_t sent = 0;
    std::string answer;
};
Endless send_endlessly(int fd, const std::string& head, std::uint64_t body) {
    Endless e;
    (void)!::send(fd, head.data(), head.size(), MSG_NOSIGNAL);
    const std::string piece(65536, 'x');
    while (e.sent < body) {
        const ssize_t n = ::send(fd, piece.data(), piece.size(), MSG_NOSIGNAL);
        if (n <= 0) break;
        e.sent += static_cast<std::uint64_t>(n);
    }
    char buffer[4096];
    for (ssize_t n; (n = ::recv(fd, buffer, sizeof(buffer), 0)) > 0;)
        e.answer.append(buffer, static_cast<std::size_t>(n));
    ::close(fd);
    return e;
}

TEST_F(HttpTest, OfAHugeBodyABoundedAmountIsReadWhateverTheMethod) {
    serve();
    constexpr std::uint64_t kHuge = 100'000'000, kMost = 4u << 20;
    std::uint64_t refused = 0;
    for (const char* method :
         {"GET", "HEAD", "OPTIONS", "TRACE", "CONNECT", "POST", "PUT", "PATCH", "DELETE"})
        for (const char* length :
             {"Content-Length: 100000000", "Transfer-Encoding: chunked\r\n\r\n5F5E100", "X-None: 1"}) {
            const std::string head = fmt::format("{} /v1/clients HTTP/1.1\r\n{}\r\n\r\n", method, length);
            const Endless e = send_endlessly(connect_raw(), head, kHuge);
            EXPECT_LT(e.sent, kMost) << head;
            if (std::string(length) != "X-None: 1") {  // a whole request, and no other one after it
                EXPECT_EQ(e.answer.find("HTTP/1.1 2"), std::string::npos) << head << " -> " << e.answer;
            }
            refused += e.answer.find("HTTP/1.1 4") == 0 ? 1 : 0;
        }
    EXPECT_TRUE(client()->get("/healthz").ok());
    EXPECT_GE(refused, 1u) << "a sender that reads while it sends must get the refusal";
}

TEST_F(HttpTest, BytesAfterARefusedHeadAreNotParsedAsARequest) {
    serve();
    const std::string hidden = "GET /healthz HTTP/1.1\r\n\r\n";
    for (const std::string& lengths :
         {fmt::format("Content-Length: {}\r\n", hidden.size()),
          fmt::format("Content-Length: 0\r\nContent-Length: {}\r\n", hidden.size()),
          std::string("Content-Length: 5x\r\n"), std::string("Transfer-Encoding: chunked\r\n")}) {
        const std::string answer = raw("GET /healthz HTTP/1.1\r\n" + lengths + "\r\n" + hidden, true);
        EXPECT_EQ(answer.rfind("HTTP/1.1 4", 0), 0u) << lengths << answer;
        EXPECT_EQ(answer.find("HTTP/1.1", 1), std::string::npos) << lengths << answer;
        EXPECT_NE(answer.find("\"message\""), std::string::npos) << lengths << answer;
    }
    for (const char* method : {"GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"}) {  // they take no body
        const std::string answer = raw(fmt::format("{} /healthz HTTP/1.1\r\nContent-Length: {}\r\n\r\n{}",
                                                   method, hidden.size(), hidden),
                                       true);
        EXPECT_EQ(answer.rfind("HTTP/1.1 400", 0), 0u) << method << answer;
        EXPECT_EQ(answer.find("HTTP/1.1", 1), std::string::npos) << method << answer;
    }
    // Two requests in one piece are two requests.
    const std::string both = raw("GET /healthz HTTP/1.1\r\n\r\n" + hidden, true);
    EXPECT_NE(both.find("HTTP/1.1 200", 1), std::string::npos) << both;
    const std::string none = raw("POST /v1/clients HTTP/1.1\r\n\r\n", true);
    EXPECT_EQ(none.rfind("HTTP/1.1 4", 0), 0u)
        << "a request without a length has no body and must be answered at once: " << none;
}

TEST_F(HttpTest, ASenderOfOneByteAtATimeHoldsAThreadForABoundedTime) {
    options.request = std::chrono::milliseconds(500);
    serve();
    for (const std::string& head : {std::string("POST /v1/clients HTTP/1.1\r\nContent-Length: 60000\r\n\r\n"),
                                    std::string("GET /healthz HTTP/1.1\r\nX: ")}) {
        const int fd = connect_raw();
        ASSERT_EQ(::send(fd, head.data(), head.size(), MSG_NOSIGNAL), static_cast<ssize_t>(head.size()));
        int sent = 0;
        for (; sent < 2000; ++sent) {  // each after a while without an answer
            pollfd one{fd, POLLIN, 0};
            if (::poll(&one, 1, 50) != 0 || ::send(fd, " ", 1, MSG_NOSIGNAL) != 1) break;
        }
        EXPECT_LT(sent, 2000) << "the server still reads the body after 100 s: " << head;
        ::close(fd);
    }
    EXPECT_TRUE(client()->get("/healthz").ok());
}

TEST_F(HttpTest, ASocketInUseIsRefusedAndAStaleSocketIsReplaced) {
    serve();
    struct stat info {};
    ASSERT_EQ(::stat(options.socket.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    auto second = HttpServer::start(*api, options);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, Errc::kBusy);
    EXPECT_NE(second.error().message.find("another gnstord"), std::string::npos);
    server.reset();
    EXPECT_FALSE(std::filesystem::exists(options.socket));
    // What a killed daemon leaves: a socket file that nobody answers.
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, options.socket.c_str());
    ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ::close(fd);
    serve();
    EXPECT_TRUE(client()->get("/healthz").ok());
    server.reset();
    std::ofstream(options.socket) << "precious";
    EXPECT_EQ(HttpServer::start(*api, options).error().code, Errc::kExists);
    EXPECT_TRUE(std::filesystem::exists(options.socket));
    options.socket = dir / std::string(200, 'x');
    EXPECT_EQ(HttpServer::start(*api, options).error().code, Errc::kInvalidArgument);
}

TEST_F(HttpTest, TcpServesTooAndATakenPortIsAClearError) {
    options.socket.clear();
    options.token = "a-token-of-this-test";
    serve();
    ASSERT_GT(server->port(), 0);
    EXPECT_TRUE(client()->get("/healthz").ok());
    const int taken = server->port();
    // A name, and IPv6, where this machine has it.
    for (const char* host : {"localhost", "::1", "::"}) {
        HttpServerOptions other = options;
        other.host = host;
        other.clear_text = true;  // :: is reached by other machines
        const auto started = HttpServer::start(*api, other);
        if (!started.ok()) {
            EXPECT_NE(std::string(host), "localhost") << started.error().message;
            continue;
        }
        HttpClientOptions there{{}, host, (*started)->port(), options.token};
        if (there.host == "::") there.host = "127.0.0.1";  // IPv4 too
        EXPECT_TRUE(HttpControlPlane(there).get("/healthz").ok()) << host;
    }
    for (const char* host : {"192.0.2.1", "no such host"}) {
        HttpServerOptions nowhere = options;
        nowhere.host = host;
        nowhere.clear_text = true;
        const auto failed = HttpServer::start(*api, nowhere);
        ASSERT_FALSE(failed.ok());
        EXPECT_EQ(failed.error().code, Errc::kIo);
        EXPECT_NE(failed.error().message.find("cannot listen on " + nowhere.host), std::string::npos);
    }
    HttpServerOptions same = options;
    same.port = taken;
    auto second = HttpServer::start(*api, same);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, Errc::kBusy);
    EXPECT_NE(second.error().message.find("--listen"), std::string::npos) << second.error().message;
    server.reset();
    options.port = taken;
    serve();  // connections of a moment ago do not keep it
    EXPECT_EQ(server->port(), taken);
}

TEST_F(HttpTest, StoppingEndsInTimeWithSilentConnectionsOpen) {
    serve();
    const int silent = connect_raw();
    EXPECT_TRUE(client()->get("/healthz").ok());
    server->stop();
    server.reset();
    ::close(silent);
    const auto gone = client()->get("/healthz");
    ASSERT_FALSE(gone.ok());
    EXPECT_NE(gone.error().message.find("gnstor up"), std::string::npos);
}

}  // namespace
