// tls_test.cpp: TLS over real sockets: who is trusted and who is not, and peers that abuse the handshake.
#include "daemon/held_service.hpp"
#include "daemon/http/ip_address.hpp"
#include "daemon/http/tls_trust.hpp"
#include "daemon/http_peer.hpp"
#include "daemon/http_rig.hpp"
#include "daemon/tls_rig.hpp"

#include <gnstor/base/hash.hpp>

#include <sys/resource.h>

#include <deque>
#include <fstream>
#include <thread>
#include <vector>

using namespace gnstor;
using namespace gnstor::daemon;
using namespace gnstor::daemon::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

const std::string kAskAndClose = "GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n";

/// A port of the loopback at which a test answers by itself.
class Listener {
  public:
    Listener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        address_.sin_family = AF_INET;
        address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof(address_);
        EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address_), size), 0);
        EXPECT_EQ(::listen(fd_, 8), 0);
        ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address_), &size);
    }
    ~Listener() { ::close(fd_); }
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    [[nodiscard]] int port() const { return ntohs(address_.sin_port); }
    [[nodiscard]] int accept() const { return ::accept(fd_, nullptr, nullptr); }

  private:
    const int fd_;
    sockaddr_in address_{};
};

class TlsTest : public HttpTest {
  protected:
    void SetUp() override {
        HttpTest::SetUp();
        options.socket.clear();
        options.token = "a-token-of-this-test";
        options.threads = 2;
        options.connections = 8;
        options.idle = options.request = options.answer = kLong;
    }
    /// The server shows this certificate from now on.
    void serve_as(const Identity& identity, HttpService* service = nullptr) {
        auto loaded = TlsServer::load(identity.write(dir / "server"));
        ASSERT_TRUE(loaded.ok()) << loaded.error().message;
        options.tls = *loaded;
        server.reset();
        serve(service != nullptr ? *service : *api);
    }
    void serve_tls() { serve_as(Identity::make({})); }
    [[nodiscard]] HttpControlPlane client_that_trusts(const TlsTrust& trust,
                                                      const std::string& host = "127.0.0.1") const {
        HttpClientOptions there{{}, host, server->port(), options.token};
        there.tls = trust;
        return HttpControlPlane(there);
    }
    [[nodiscard]] HttpControlPlane pinned() const {
        return client_that_trusts({{}, options.tls->fingerprint()});
    }
    /// A file with the certificate, for TlsTrust.
    [[nodiscard]] fs::path ca_file(const Identity& ca, const char* name = "ca") const {
        return ca.write(dir / name).certificate;
    }
    [[nodiscard]] Peer peer() const { return Peer(connect_tcp(server->port())); }
    void expect_served_despite(const std::string& bytes) {
        for (const std::size_t count : {7u, 8u, 50u}) {
            std::vector<Peer> others;
            for (std::size_t i = 0; i < count; ++i) {
                others.push_back(peer());
                if (!bytes.empty()) others.back().send(bytes);
            }
            const auto made = pinned().register_client("alice");
            EXPECT_TRUE(made.ok()) << count << " peers: " << made.error().message;
        }
    }
};

TEST_F(TlsTest, AServerIsTrustedByItsCaByItsCertificateOrByItsFingerprint) {
    const Identity ca = Identity::make({.is_ca = true});
    for (const bool is_signed : {true, false}) {
        const Identity identity = Identity::make({}, is_signed ? &ca : nullptr);
        serve_as(identity);
        const TlsTrust by_file{ca_file(is_signed ? ca : identity), ""};
        for (const char* host : {"127.0.0.1", "localhost"}) {
            const auto made = client_that_trusts(by_file, host).register_client("alice");
            EXPECT_TRUE(made.ok()) << host << ": " << made.error().message;
        }
        EXPECT_TRUE(client_that_trusts({ca_file(identity, "leaf"), ""}).get("/v1/status").ok());
        const auto status = pinned().get("/v1/status");
        EXPECT_TRUE(status.ok()) << status.error().message;
    }
    EXPECT_EQ(TlsPeer(server->port()).version(), TLS1_3_VERSION);
    TlsPeer older(server->port(), TLS1_2_VERSION);
    EXPECT_EQ(older.version(), TLS1_2_VERSION);
    older.send(kAskAndClose);
    bool clean = false;
    EXPECT_EQ(older.rest(&clean).rfind("HTTP/1.1 200", 0), 0u);
    EXPECT_TRUE(clean) << "the end of an answer must be told by close_notify";
}

TEST_F(TlsTest, AServerThatIsNotTheOneNamedIsSentNothing) {
    const Identity ca = Identity::make({.is_ca = true}), other_ca = Identity::make({.is_ca = true});
    struct Case {
        CertificateWords words;
        TlsTrust trust;
        const char* says;
    };
    const std::string none = "SHA256:" + std::string(64, '0');
    const TlsTrust by_ca{ca_file(ca), ""}, by_other{ca_file(other_ca, "other"), ""};
    const Case cases[] = {
        {{}, {{}, none}, "--tls-fingerprint"},
        {{}, {}, "--tls-ca FILE"},  // the system's CAs
        {{}, by_other, "--tls-ca FILE"},
        {{.names = "DNS:storage1,IP:10.0.0.9"}, by_ca, "is for storage1, 10.0.0.9, not for 127.0.0.1"},
        {{.from_days = -3, .until_days = -1}, by_ca, "has expired"},
        {{.from_days = 1, .until_days = 3}, by_ca, "is not valid yet"},
    };
    std::size_t refused = 0;
    HeldService service;
    for (const Case& one : cases) {
        serve_as(Identity::make(one.words, &ca), &service);
        const auto answer = client_that_trusts(one.trust).get("/v1/status");
        ASSERT_FALSE(answer.ok()) << one.says;
        EXPECT_EQ(answer.error().code, Errc::kPermission) << answer.error().message;
        EXPECT_NE(answer.error().message.find(one.says), std::string::npos) << answer.error().message;
        EXPECT_EQ(answer.error().message.find(options.token), std::string::npos);
        ++refused;
    }
    // A fingerprint does not make an expired certificate good.
    serve_as(Identity::make({.from_days = -3, .until_days = -1}), &service);
    const auto expired = pinned().get("/v1/status");
    ASSERT_FALSE(expired.ok());
    EXPECT_NE(expired.error().message.find("has expired"), std::string::npos) << expired.error().message;
    EXPECT_NE(options.tls->why_invalid(), "") << "the server must say so too";
    EXPECT_TRUE(service.take_asked().empty()) << "a request was sent to a server that was not verified";
    std::printf("GN_COUNT daemon_tls_refused_servers=%zu\n", refused + 1);
}

TEST_F(TlsTest, ARenewedCertificateOfTheSameCaIsTrustedAndAnotherFingerprintIsNot) {
    const Identity ca = Identity::make({.is_ca = true});
    serve_as(Identity::make({}, &ca));
    const std::string before = options.tls->fingerprint();
    const TlsTrust by_ca{ca_file(ca), ""}, by_fingerprint{{}, before};
    EXPECT_TRUE(client_that_trusts(by_ca).get("/v1/status").ok());
    EXPECT_TRUE(client_that_trusts(by_fingerprint).get("/v1/status").ok());
    serve_as(Identity::make({}, &ca));
    EXPECT_TRUE(client_that_trusts(by_ca).get("/v1/status").ok());
    const auto refused = client_that_trusts(by_fingerprint).get("/v1/status");
    ASSERT_FALSE(refused.ok());
    for (const std::string& shown : {before, options.tls->fingerprint()})
        EXPECT_NE(refused.error().message.find(shown), std::string::npos) << refused.error().message;
}

TEST_F(TlsTest, PlainHttpToATlsPortIsRefusedInPlainWords) {
    HeldService service;
    serve_as(Identity::make({}), &service);
    const auto refused = client()->get("/v1/status");  // http://
    EXPECT_FALSE(refused.ok());
    Peer plain = peer();
    plain.send("GET /v1/status HTTP/1.1\r\nAuthorization: Bearer " + options.token + "\r\n\r\n");
    const std::string answer = plain.answer();
    EXPECT_EQ(answer.rfind("HTTP/1.1 400", 0), 0u) << answer;
    EXPECT_NE(answer.find("https://"), std::string::npos) << answer;
    EXPECT_NE(answer.find("make a new one"), std::string::npos) << answer;
    EXPECT_TRUE(service.take_asked().empty());
    server.reset();
    options.tls.reset();
    options.host = "127.0.0.1";
    serve();
    const auto there = client()->get("/v1/status");
    EXPECT_TRUE(there.ok());
    const auto tls = client_that_trusts({{}, "SHA256:" + std::string(64, '0')}).get("/v1/status");
    ASSERT_FALSE(tls.ok());
    EXPECT_EQ(tls.error().code, Errc::kIo);
    EXPECT_NE(tls.error().message.find("does not speak TLS"), std::string::npos) << tls.error().message;
}

TEST_F(TlsTest, OlderVersionsOfTlsAreRefusedByBothEnds) {
    serve_tls();
    for (const int version : {TLS1_1_VERSION, TLS1_VERSION})
        EXPECT_FALSE(TlsPeer(server->port(), version).is_connected()) << version;
    EXPECT_TRUE(pinned().get("/healthz").ok());
    // A server that knows no newer one.
    const Identity identity = Identity::make({});
    const OpensslPtr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()));
    SSL_CTX_set_security_level(context.get(), 0);
    SSL_CTX_set_min_proto_version(context.get(), TLS1_VERSION);
    SSL_CTX_set_max_proto_version(context.get(), TLS1_1_VERSION);
    SSL_CTX_use_certificate(context.get(), identity.certificate.get());
    SSL_CTX_use_PrivateKey(context.get(), identity.key.get());
    const Listener listener;
    bool accepted = true;
    std::thread old([&] {
        const int fd = listener.accept();
        const OpensslPtr<SSL> tls(SSL_new(context.get()));
        SSL_set_fd(tls.get(), fd);
        accepted = SSL_accept(tls.get()) == 1;
        ::close(fd);
    });
    HttpClientOptions there{{}, "127.0.0.1", listener.port(), options.token};
    there.tls = TlsTrust{{}, fingerprint_of(identity.certificate.get())};
    const auto refused = HttpControlPlane(there).get("/v1/status");
    old.join();
    EXPECT_FALSE(accepted);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("TLS"), std::string::npos) << refused.error().message;
}

TEST_F(TlsTest, AServerThatIsSilentOrSlowInTheHandshakeEndsAtTheDeadline) {
    for (const bool is_slow : {false, true}) {
        const Listener listener;  // the kernel accepts
        HttpClientOptions there{{}, "127.0.0.1", listener.port(), options.token};
        there.deadline = 300ms;
        there.tls = TlsTrust{};
        std::thread slow;
        if (is_slow)
            slow = std::thread([&listener] {
                const int fd = listener.accept();
                std::string record("\x16\x03\x03\x40\x00", 5);  // a record of 16 KiB, a byte at a time
                record.resize(16'389);
                for (const char c : record) {
                    pollfd left{fd, POLLRDHUP, 0};
                    if (::send(fd, &c, 1, MSG_NOSIGNAL) != 1 || ::poll(&left, 1, 20) != 0) break;
                }
                ::close(fd);
            });
        const auto begun = std::chrono::steady_clock::now();
        const auto late = HttpControlPlane(there).get("/v1/status");
        EXPECT_LT(std::chrono::steady_clock::now() - begun, kAtOnce);
        if (slow.joinable()) slow.join();
        ASSERT_FALSE(late.ok());
        EXPECT_EQ(late.error().code, Errc::kTimedOut) << late.error().message;
    }
}

TEST_F(TlsTest, PeersThatStopInTheHandshakeDoNotBlockNewClients) {
    serve_tls();
    const std::string hello = client_hello();
    for (const std::string& bytes :
         {std::string(), hello.substr(0, 1), hello.substr(0, hello.size() / 2), hello})
        expect_served_despite(bytes);
}

TEST_F(TlsTest, AThousandHalfHandshakesDoNotStopAnybody) {
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
    options.connections = 256;
    serve_tls();
    const std::string hello = client_hello();
    std::deque<Peer> stopped;  // the server keeps the newest 256 anyhow
    std::size_t begun = 0, served = 0;
    while (begun < 1000) {
        stopped.push_back(peer());
        stopped.back().send(begun % 2 == 0 ? hello : hello.substr(0, hello.size() - 1));
        if (stopped.size() + 500 > files.rlim_cur) stopped.pop_front();
        if (++begun % 100 == 0) served += pinned().get("/v1/status").ok() ? 1 : 0;
    }
    EXPECT_EQ(served, 10u);
    std::printf("GN_COUNT daemon_tls_half_handshakes=%zu\n", begun);
}

TEST_F(TlsTest, AHandshakeHasTheTimesOfARequest) {
    options.idle = 200ms;
    options.request = 400ms;
    serve_tls();
    const std::string hello = client_hello();
    const auto begun = std::chrono::steady_clock::now();
    Peer silent = peer(), half = peer();
    (void)half.is_taken(hello.substr(0, 10));
    EXPECT_EQ(silent.end(), "");
    EXPECT_GE(std::chrono::steady_clock::now() - begun, options.idle);
    EXPECT_EQ(half.end(), "");
    // Where this thread stands still before it sends, the connection ends as a silent one: then another one.
    std::string said;
    for (int tries = 0; tries < 5 && said.empty(); ++tries) {
        Peer whole = peer();
        const auto sent = std::chrono::steady_clock::now();
        if (!whole.is_taken(hello)) continue;
        const auto ended = whole.end();
        ASSERT_TRUE(ended.has_value()) << "the connection was not ended";
        said = *ended;
        if (!said.empty()) {
            EXPECT_GE(std::chrono::steady_clock::now() - sent, options.request);
        }
    }
    EXPECT_NE(said, "") << "ServerHello and what follows it, and no more";
    // Then the first byte of a request has `idle` again.
    TlsPeer quiet(server->port());
    if (quiet.is_connected()) {
        EXPECT_EQ(quiet.rest(), "");
    }
}

TEST_F(TlsTest, BytesThatAreNoHandshakeEndTheirConnectionAlone) {
    options.idle = options.request = 5000ms;
    serve_tls();
    const std::string hello = client_hello();
    SplitMix64 random(13);
    std::uint64_t damaged = 0;
    for (int i = 0; i < 400; ++i, ++damaged) {
        std::string bytes = hello;
        for (int k = 0; k < 3; ++k)
            bytes[1 + random.below(bytes.size() - 1)] = static_cast<char>(random.below(256));
        if (i % 4 == 0) bytes = std::string(1, '\x16') + bytes.substr(100);
        if (i % 4 == 1) bytes[0] = static_cast<char>(random.below(256));
        const Peer one = peer();
        (void)one.is_taken(bytes);
    }
    const std::string huge("\x16\x03\x01\xff\xff", 5);
    Peer large = peer();
    (void)large.is_taken(huge + std::string(100'000, 'x'));
    EXPECT_TRUE(pinned().get("/v1/status").ok());
    // Inside a connection that was good until then.
    TlsPeer good(server->port());
    ASSERT_TRUE(good.is_connected());
    good.send("\x16\x03\x01 no request\r\n\r\n");
    EXPECT_EQ(good.rest().rfind("HTTP/1.1 400", 0), 0u);
    EXPECT_TRUE(pinned().get("/v1/status").ok());
    std::printf("GN_COUNT daemon_tls_damaged_handshakes=%llu\n", static_cast<unsigned long long>(damaged));
}

TEST_F(TlsTest, LargeBodiesAndAnswersPassWholeAndAPeerThatLeavesHarmsNobody) {
    HeldService service;
    service.set_body(std::string(8u << 20, 'x'));
    serve_as(Identity::make({}), &service);
    {
        TlsPeer leaves(server->port());
        ASSERT_TRUE(leaves.is_connected());
        leaves.send(kAskAndClose);
        ASSERT_TRUE(service.asked(1));
    }  // while 8 MiB are being sent to it: SIGPIPE would end this process
    TlsPeer reads(server->port());
    const std::string body(kMaxBodyBytes, 'b');
    reads.send(
        fmt::format("POST /x HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.size()) +
        body);
    bool clean = false;
    EXPECT_GT(reads.rest(&clean).size(), 8u << 20);
    EXPECT_TRUE(clean);
    const auto asked = service.take_asked();
    ASSERT_EQ(asked.size(), 2u);
    EXPECT_EQ(asked[1].body, body);
    // One byte a record, two requests, and their answers in order.
    service.set_body("short");
    TlsPeer slow(server->port());
    for (const char c : std::string("GET /1 HTTP/1.1\r\n\r\n") + kAskAndClose) slow.send(std::string(1, c));
    const std::string both = slow.rest();
    EXPECT_NE(both.find("HTTP/1.1 200", 10), std::string::npos) << both;
}

TEST_F(TlsTest, StoppingEndsAtOnceWithHandshakesUnderWay) {
    serve_tls();
    std::vector<Peer> open;
    for (int i = 0; i < 5; ++i) {
        open.push_back(peer());
        open.back().send(client_hello());
    }
    EXPECT_TRUE(pinned().get("/healthz").ok());
    const auto begun = std::chrono::steady_clock::now();
    server->stop();
    EXPECT_LT(std::chrono::steady_clock::now() - begun, kAtOnce);
    server.reset();
}

TEST_F(TlsTest, AnAddressThatOtherMachinesReachIsServedInPlainOnlyIfToldSo) {
    for (const char* host : {"127.0.0.1", "127.9.9.9", "::1", "localhost"})
        EXPECT_TRUE(is_loopback(host)) << host;
    for (const char* host : {"0.0.0.0", "::", "10.0.0.9", "fd00::1", "no such host"})
        EXPECT_FALSE(is_loopback(host)) << host;
    for (const char* host : {"127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "localhost"})
        EXPECT_FALSE(addresses_here(host).value().empty()) << host;
    for (const char* host : {"192.0.2.1", "2001:db8::1"})
        EXPECT_TRUE(addresses_here(host).value().empty()) << host;
    EXPECT_EQ(addresses_here("no such host").error().code, Errc::kIo);
    options.host = "0.0.0.0";
    const auto plain = HttpServer::start(*api, options);
    ASSERT_FALSE(plain.ok());
    EXPECT_EQ(plain.error().code, Errc::kInvalidArgument);
    options.clear_text = true;
    EXPECT_TRUE(HttpServer::start(*api, options).ok());
    options.clear_text = false;
    serve_tls();
    EXPECT_TRUE(pinned().get("/v1/status").ok());
}

class TlsFilesTest : public ::testing::Test {
  protected:
    void SetUp() override {
        char folder[] = "/tmp/gnstor-tls-XXXXXX";
        ASSERT_NE(::mkdtemp(folder), nullptr);
        dir = folder;
        files = {dir / "gnstord.crt", dir / "gnstord.key"};
    }
    void TearDown() override { fs::remove_all(dir); }
    static mode_t mode_of(const fs::path& file) {
        struct stat info {};
        EXPECT_EQ(::stat(file.c_str(), &info), 0);
        return info.st_mode & 07777;
    }
    static std::string text(const fs::path& file) {
        std::ifstream in(file);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    fs::path dir;
    TlsFiles files;
};

TEST_F(TlsFilesTest, AreMadeOnceTheKeyForItsOwnerAlone) {
    const auto old_mask = ::umask(0);
    const auto made = make_self_signed(files, "10.0.0.9");
    ::umask(old_mask);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(mode_of(files.key), 0600u);
    EXPECT_EQ(mode_of(files.certificate), 0644u);
    const auto first = TlsServer::load(files);
    ASSERT_TRUE(first.ok()) << first.error().message;
    EXPECT_EQ((*first)->why_invalid(), "");
    const std::string key = text(files.key);
    ASSERT_TRUE(make_self_signed(files, "10.0.0.8").ok());
    EXPECT_EQ((*TlsServer::load(files))->fingerprint(), (*first)->fingerprint());
    EXPECT_EQ(text(files.key), key);
    // A crash between the two leaves the key alone.
    fs::remove(files.certificate);
    ASSERT_TRUE(make_self_signed(files, "::").ok());
    EXPECT_EQ(text(files.key), key);
    EXPECT_NE((*TlsServer::load(files))->fingerprint(), (*first)->fingerprint());
    fs::remove(files.key);
    const auto alone = make_self_signed(files, "10.0.0.9");
    ASSERT_FALSE(alone.ok());
    EXPECT_NE(alone.error().message.find("has no key"), std::string::npos);
    EXPECT_EQ(std::distance(fs::directory_iterator(dir), fs::directory_iterator()), 1) << "remains";
    EXPECT_FALSE(make_self_signed({dir / "no" / "x.crt", dir / "no" / "x.key"}, "10.0.0.9").ok());
}

TEST_F(TlsFilesTest, TheCertificateIsForTheListeningAddress) {
    for (const char* host : {"10.0.0.9", "fd00::9", "storage1.example"}) {
        const TlsFiles one{dir / (std::string(host) + ".crt"), dir / (std::string(host) + ".key")};
        ASSERT_TRUE(make_self_signed(one, host).ok()) << host;
        const OpensslPtr<BIO> in(BIO_new_file(one.certificate.c_str(), "r"));
        const OpensslPtr<X509> certificate(PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr));
        ASSERT_NE(certificate, nullptr);
        EXPECT_EQ(names_in(certificate.get()).rfind(host, 0), 0u) << names_in(certificate.get());
        EXPECT_EQ(parse_fingerprint(fingerprint_of(certificate.get())).value(),
                  fingerprint_of(certificate.get()));
    }
}

TEST_F(TlsFilesTest, ThatCannotBeUsedAreRefusedWithAReason) {
    const Identity identity = Identity::make({}), other = Identity::make({});
    const auto refused = [](const TlsFiles& pair, Errc code, const char* says) {
        const auto loaded = TlsServer::load(pair);
        ASSERT_FALSE(loaded.ok()) << says;
        EXPECT_EQ(loaded.error().code, code) << loaded.error().message;
        EXPECT_NE(loaded.error().message.find(says), std::string::npos) << loaded.error().message;
        EXPECT_EQ(loaded.error().message.find("PRIVATE KEY"), std::string::npos) << loaded.error().message;
    };
    for (const mode_t mode : {0640u, 0604u, 0660u, 0601u})
        refused(identity.write(dir / "open", mode), Errc::kPermission, "chmod 600");
    TlsFiles mixed = identity.write(dir / "one");
    mixed.key = other.write(dir / "two").key;
    refused(mixed, Errc::kInvalidArgument, "does not belong to the certificate");
    refused(identity.write(dir / "secret", 0600, "passphrase"), Errc::kInvalidArgument, "no passphrase");
    refused({dir / "none.crt", dir / "none.key"}, Errc::kNotFound, "--tls-cert");
    TlsFiles empty = identity.write(dir / "empty");
    std::ofstream(empty.key) << "nothing";
    refused(empty, Errc::kInvalidArgument, "no private key");
    std::ofstream(empty.certificate) << "nothing";
    refused(empty, Errc::kInvalidArgument, "no certificate");
}

TEST(TlsFingerprint, IsReadAsPeopleCopyItAndNothingElseIs) {
    const std::string lower = "SHA256:00ff" + std::string(60, 'a');
    std::string upper = "SHA256:00:FF";
    for (int i = 0; i < 30; ++i) upper += ":AA";
    EXPECT_EQ(parse_fingerprint(lower).value(), lower);
    EXPECT_EQ(parse_fingerprint(upper).value(), lower);
    for (const std::string& bad :
         {std::string(), std::string("SHA256:"), lower.substr(7), lower + "0", lower + ":",
          lower.substr(0, 70), "SHA1:" + lower.substr(7), "SHA256::" + lower.substr(7),
          lower.substr(0, 8) + ":" + lower.substr(8), lower.substr(0, 70) + "g", " " + lower})
        EXPECT_FALSE(parse_fingerprint(bad).ok()) << bad;
}

}  // namespace
