// http_rig.hpp: a daemon's interface on a Unix socket of its own, and clients that need not speak HTTP. One
// thread, but what a test starts.
#pragma once

#include "daemon/decisions/in_process.hpp"
#include "daemon/http/api.hpp"
#include "daemon/http/http_client.hpp"
#include "daemon/http/http_server.hpp"
#include "daemon/model_ssd.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

namespace gnstor::daemon::test {

class HttpTest : public ::testing::Test {
  protected:
    void SetUp() override {
        char folder[] = "/tmp/gnstor-http-XXXXXX";
        ASSERT_NE(::mkdtemp(folder), nullptr);
        dir = folder;
        control = InProcessControlPlane::start(std::make_unique<MemoryRecordStore>(), array.ports(),
                                               InProcessOptions{})
                      .value();
        api = std::make_unique<Api>(*control, *control);
        options.socket = dir / "s";
        options.threads = 16;
    }
    void TearDown() override {
        server.reset();
        std::filesystem::remove_all(dir);
    }
    void serve() { serve(*api); }
    void serve(HttpService& service) {
        auto started = HttpServer::start(service, options);
        ASSERT_TRUE(started.ok()) << started.error().message;
        server = std::move(started).value();
    }
    std::unique_ptr<HttpControlPlane> client() {
        return std::make_unique<HttpControlPlane>(
            HttpClientOptions{options.socket, "127.0.0.1", server ? server->port() : 0, options.token});
    }
    [[nodiscard]] int connect_raw() const {
        const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strcpy(address.sun_path, options.socket.c_str());
        EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
        const timeval wait{20, 0};
        ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
        return fd;
    }
    /// Sends bytes and returns what came back until the server closed. `more`: as if more could follow; else
    /// half-closes.
    [[nodiscard]] std::string raw(const std::string& bytes, bool more = false) const {
        const int fd = connect_raw();
        (void)!::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (!more) ::shutdown(fd, SHUT_WR);
        std::string answer;
        char buffer[4096];
        for (ssize_t n; (n = ::recv(fd, buffer, sizeof(buffer), 0)) > 0;)
            answer.append(buffer, static_cast<std::size_t>(n));
        ::close(fd);
        return answer;
    }

    std::filesystem::path dir;
    ModelArray array{3};
    std::unique_ptr<InProcessControlPlane> control;
    std::unique_ptr<Api> api;
    HttpServerOptions options;
    std::unique_ptr<HttpServer> server;
};

}  // namespace gnstor::daemon::test
