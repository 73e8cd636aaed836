// access_test.cpp: who may ask: tokens, their file, pages of a browser; over real sockets.
#include "daemon/http/access.hpp"
#include "daemon/decisions/in_process.hpp"
#include "daemon/http/api.hpp"
#include "daemon/http/client_token.hpp"
#include "daemon/http/http_client.hpp"
#include "daemon/http/http_server.hpp"
#include "daemon/http/token_file.hpp"
#include "daemon/model_ssd.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <fstream>
#include <set>
#include <thread>

using namespace gnstor;
using namespace gnstor::daemon;
using namespace gnstor::daemon::test;
namespace fs = std::filesystem;

namespace {

const std::string kToken = "0123456789abcdef";

TEST(Access, OnlyTheCompleteTokenGrantsAccess) {
    EXPECT_TRUE(same_secret(kToken, kToken));
    EXPECT_TRUE(same_secret("", ""));
    for (std::size_t i = 0; i < kToken.size(); ++i)
        for (int bit = 0; bit < 8; ++bit) {
            std::string other = kToken;
            other[i] = static_cast<char>(other[i] ^ (1 << bit));
            EXPECT_FALSE(same_secret(kToken, other));
        }
    for (std::size_t i = 0; i < kToken.size(); ++i) EXPECT_FALSE(same_secret(kToken, kToken.substr(0, i)));
    EXPECT_FALSE(same_secret(kToken, kToken + "0"));
}

TEST(Access, TheTokenIsReadFromTheBearerHeader) {
    const auto status = [](std::string_view authorization, std::string_view path = "/v1/status",
                           std::string_view origin = "", std::string_view token = kToken) {
        const auto refused = judge_access({path, authorization, origin}, token, {}).refused;
        if (refused) {
            EXPECT_FALSE(refused->message.empty());
        }
        return refused ? refused->status : 200;
    };
    EXPECT_EQ(status("Bearer " + kToken), 200);
    EXPECT_EQ(status("bearer   " + kToken + " "), 200);
    for (const std::string& bad :
         {std::string(), std::string("Bearer"), std::string("Bearer "), "Basic " + kToken, kToken,
          "Bearer" + kToken, "Bearer " + kToken + "x", "Bearer x" + kToken, "Bearer " + kToken.substr(1),
          "Bearer " + kToken + "," + kToken, std::string("Bearer \0", 8) + kToken})
        EXPECT_EQ(status(bad), 401) << bad;
    EXPECT_EQ(status("", "/healthz"), 200);
    EXPECT_EQ(status("", "/healthz/"), 401);
    EXPECT_EQ(status("", "/v1/volumes", "", ""), 200) << "a Unix socket needs no token";
    EXPECT_EQ(status("Bearer " + kToken, "/v1/status", "http://evil.example"), 403);
    EXPECT_EQ(status("", "/v1/status", "null", ""), 403);
}

TEST(ClientToken, IsOneLineOfTheDocumentedFormAndDependsOnAllItSays) {
    const std::string token = make_client_token(kToken, {9, 4097}).value();
    EXPECT_EQ(token.substr(0, 12), "gnc1.9.4097.");
    EXPECT_EQ(token.size(), 12u + 43u) << "32 bytes in base64url";
    EXPECT_TRUE(is_token(token)) << token;
    std::set<std::string> all{token.substr(12)};
    for (const ClientClaim& other : {ClientClaim{8, 4097}, ClientClaim{9, 4098}, ClientClaim{9 + 256, 4097},
                                     ClientClaim{9, 4097 + (1u << 24)}})
        EXPECT_TRUE(all.insert(make_client_token(kToken, other)->substr(token.rfind('.') - 11)).second);
    EXPECT_NE(make_client_token(kToken + "x", {9, 4097}).value(), token);
    EXPECT_TRUE(is_client_token(token, kToken, {9, 4097}));
    EXPECT_FALSE(is_client_token(token, kToken, {9, 4098}));
    // HMAC-SHA-256("0123456789abcdef", "client token" || 0 || 09 00 || 01 10 00 00), of another
    // implementation.
    EXPECT_EQ(token.substr(12), "wv-xRVq1jG842Qs0U81N5tcXSaum7X72dv1Zj28t6uA");
}

TEST(ClientToken, OtherTextIsNoToken) {
    for (const char* text : {"", "gnc1", "gnc1.", "gnc1.1", "gnc1.1.", "gnc1.1.2", "gnc1..2.x", "gnc1.0.2.x",
                             "gnc1.1.0.x", "gnc1.01.2.x", "gnc1.1.02.x", "gnc1.-1.2.x", "gnc1.65536.2.x",
                             "gnc1.1.4294967296.x", "gnc1. 1.2.x", "gnc2.1.2.x", "GNC1.1.2.x", "gnc1.1x.2.x"})
        EXPECT_FALSE(read_client_token(text)) << text;
    EXPECT_TRUE(read_client_token("gnc1.65535.4294967295.x"));
}

TEST(ClientToken, LetsInItsClientWhileItsGenerationIsTheNewestAndNobodyElse) {
    std::uint32_t newest = 4097;
    const GenerationOf generation_of = [&](nvme::ClientId id) -> std::optional<std::uint32_t> {
        return id == 9 ? std::optional(newest) : std::nullopt;
    };
    const auto judge = [&](const std::string& token, const GenerationOf& of) {
        const Caller caller = judge_access({"/v1/status", "Bearer " + token, ""}, kToken, of);
        return caller.refused ? caller.refused->status : static_cast<int>(caller.client);
    };
    const std::string token = make_client_token(kToken, {9, 4097}).value();
    EXPECT_EQ(judge(token, generation_of), 9);
    EXPECT_EQ(judge(kToken, generation_of), 0) << "the administrator's";
    EXPECT_EQ(judge(token, {}), 401) << "a gateway has no clients";
    for (std::size_t i = 0; i < token.size(); ++i) {
        std::string forged = token;
        forged[i] = forged[i] == '8' ? '7' : '8';
        EXPECT_EQ(judge(forged, generation_of), 401) << forged;
        EXPECT_EQ(judge(token.substr(0, i), generation_of), 401) << i;
    }
    EXPECT_EQ(judge(make_client_token(kToken, {10, 4097}).value(), generation_of), 401) << "removed";
    EXPECT_EQ(judge(make_client_token("another token file", {9, 4097}).value(), generation_of), 401);
    newest = 4098;
    EXPECT_EQ(judge(token, generation_of), 401) << "rotated";
}

TEST(Access, ValidTokensAreDistinguishedFromInvalidOnes) {
    EXPECT_TRUE(is_token(kToken));
    EXPECT_TRUE(is_token("-._~+/=-._~+/=-._~+/="));
    for (const std::string& bad : {std::string(), std::string(15, 'a'), std::string(257, 'a'), kToken + " x",
                                   kToken + "\n", kToken + "\xc3", kToken + std::string(1, '\0')})
        EXPECT_FALSE(is_token(bad)) << bad;
}

class TokenFileTest : public ::testing::Test {
  protected:
    void SetUp() override {
        char folder[] = "/tmp/gnstor-token-XXXXXX";
        ASSERT_NE(::mkdtemp(folder), nullptr);
        dir = folder;
        file = dir / "token";
    }
    void TearDown() override { fs::remove_all(dir); }
    fs::path dir, file;
};

TEST_F(TokenFileTest, IsCreatedOnceWithModeOwnerOnlyAndIsKept) {
    EXPECT_EQ(read_token(file).error().code, Errc::kNotFound);
    const auto old_mask = ::umask(0);
    const auto made = read_or_make_token(file);
    ::umask(old_mask);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(made->size(), 64u);
    struct stat info {};
    ASSERT_EQ(::stat(file.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    EXPECT_EQ(*read_or_make_token(file), *made);
    EXPECT_EQ(*read_token(file), *made);
    fs::remove(file);
    EXPECT_NE(*read_or_make_token(file), *made) << "a new file holds a new token";
    EXPECT_EQ(std::distance(fs::directory_iterator(dir), fs::directory_iterator()), 1) << "remains";
}

TEST_F(TokenFileTest, IsNotWrittenThroughALinkOrIntoAFileThatAlreadyExists) {
    const fs::path beside = file.string() + "." + std::to_string(::getpid()), bait = dir / "bait";
    std::ofstream(bait) << "precious";
    fs::create_symlink(bait, beside);
    ASSERT_TRUE(read_or_make_token(file).ok());
    std::string kept;
    std::ifstream(bait) >> kept;
    EXPECT_EQ(kept, "precious");
    fs::remove(file);
    std::ofstream(beside) << "opened by another, who goes on reading";
    std::ifstream other(beside);
    ASSERT_TRUE(read_or_make_token(file).ok());
    std::string seen;
    std::getline(other, seen);
    EXPECT_EQ(seen, "opened by another, who goes on reading");
}

TEST_F(TokenFileTest, IsRefusedIfOthersMayReadItOrIfItHoldsNoToken) {
    ASSERT_TRUE(read_or_make_token(file).ok());
    for (const mode_t mode : {0640u, 0604u, 0660u, 0601u}) {
        ::chmod(file.c_str(), mode);
        const auto read = read_or_make_token(file);
        ASSERT_FALSE(read.ok()) << mode;
        EXPECT_EQ(read.error().code, Errc::kPermission);
        EXPECT_NE(read.error().message.find("chmod 600"), std::string::npos) << read.error().message;
    }
    ::chmod(file.c_str(), 0600);
    for (const char* text : {"", "\n", "short", "with a blank in it, and long"}) {
        std::ofstream(file) << text;
        EXPECT_EQ(read_or_make_token(file).error().code, Errc::kInvalidArgument) << text;
    }
    EXPECT_EQ(read_or_make_token(dir).error().code, Errc::kInvalidArgument) << "a folder";
    EXPECT_FALSE(read_or_make_token(dir / "no" / "folder").ok());
}

class AccessOverHttp : public TokenFileTest {
  protected:
    void SetUp() override {
        TokenFileTest::SetUp();
        control = InProcessControlPlane::start(std::make_unique<MemoryRecordStore>(), array.ports(),
                                               InProcessOptions{})
                      .value();
        api = std::make_unique<Api>(*control, *control);
    }
    [[nodiscard]] HttpControlPlane client(int port, const std::string& token) const {
        HttpClientOptions o;
        o.port = port;
        o.token = token;
        return HttpControlPlane(o);
    }
    ModelArray array{3};
    std::unique_ptr<InProcessControlPlane> control;
    std::unique_ptr<Api> api;
};

TEST_F(AccessOverHttp, TcpServesOnlyRequestsThatCarryTheToken) {
    HttpServerOptions options;
    EXPECT_EQ(HttpServer::start(*api, options).error().code, Errc::kInvalidArgument) << "TCP without a token";
    options.token = kToken;
    const auto server = HttpServer::start(*api, options).value();
    EXPECT_TRUE(client(server->port(), kToken).register_client("alice").ok());
    for (const std::string& bad : {std::string(), kToken + "x", std::string("fedcba9876543210")}) {
        auto c = client(server->port(), bad);
        EXPECT_TRUE(c.get("/healthz").ok());
        for (const char* target :
             {"/v1/status", "/openapi.json", "/metrics", "/nothing", "/v1/volumes?client=x"}) {
            const auto refused = c.get(target);
            ASSERT_FALSE(refused.ok()) << target;
            EXPECT_EQ(refused.error().code, Errc::kPermission) << target;
            EXPECT_NE(refused.error().message.find("token"), std::string::npos) << refused.error().message;
        }
        EXPECT_EQ(c.register_client("mallory").error().code, Errc::kPermission);
        EXPECT_EQ(c.delete_volume(1, "v").error().code, Errc::kPermission);
    }
    EXPECT_EQ(control->inspect().clients.size(), 1u) << "a refused request was executed";
}

TEST_F(AccessOverHttp, TheUnixSocketHasTheRequestedModeAndNeedsNoToken) {
    HttpServerOptions options;
    options.socket = dir / "s";
    for (const unsigned mode : {0600u, 0660u}) {
        options.socket_mode = mode;
        const auto server = HttpServer::start(*api, options).value();
        struct stat info {};
        ASSERT_EQ(::stat(options.socket.c_str(), &info), 0);
        EXPECT_EQ(info.st_mode & 0777u, mode);
        HttpClientOptions o;
        o.socket = options.socket;
        EXPECT_TRUE(HttpControlPlane(o).get("/v1/status").ok());
    }
    // Not for a moment any other, even where the umask takes nothing away.
    std::atomic<bool> over{false};
    std::atomic<unsigned> seen{0};
    std::thread watcher([&] {
        struct stat info {};
        while (!over)
            if (::stat(options.socket.c_str(), &info) == 0) seen |= info.st_mode & 0777u;
    });
    options.socket_mode = 0600;
    const auto old_mask = ::umask(0);
    for (int i = 0; i < 50; ++i) (void)HttpServer::start(*api, options).value();
    ::umask(old_mask);
    over = true;
    watcher.join();
    EXPECT_EQ(seen & ~0600u, 0u);
    options.socket_mode = 0666;
    EXPECT_EQ(HttpServer::start(*api, options).error().code, Errc::kInvalidArgument);
}

}  // namespace
