// etcd_server.hpp: an etcd of this test alone, as a process, on ports of its own and in a folder of its own.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace gnstor::daemon::test {

class EtcdServer {
  public:
    /// nullopt, after it has said so: etcd is not installed, or did not start.
    static std::optional<std::string> url() {
        static EtcdServer server;
        if (server.port_ == 0) return std::nullopt;
        return "http://127.0.0.1:" + std::to_string(server.port_);
    }

  private:
    EtcdServer() {
        if (std::system("command -v etcd > /dev/null 2>&1") != 0) {
            std::printf("\nskipped: etcd is not installed (Debian: etcd-server)\n");
            return;
        }
        char folder[] = "/tmp/gnstor-etcd-XXXXXX";
        if (::mkdtemp(folder) == nullptr) return;
        folder_ = folder;
        const std::string client = "http://127.0.0.1:" + std::to_string(port_ = free_port());
        const std::string peer = "http://127.0.0.1:" + std::to_string(free_port());
        const std::string cluster = "default=" + peer, log = folder_.string() + "/log";
        pid_ = ::fork();
        if (pid_ == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            (void)!std::freopen(log.c_str(), "w", stderr);
            (void)!std::freopen(log.c_str(), "a", stdout);
            ::execlp("etcd", "etcd", "--data-dir", (folder_.string() + "/data").c_str(),
                     "--listen-client-urls", client.c_str(), "--advertise-client-urls", client.c_str(),
                     "--listen-peer-urls", peer.c_str(), "--initial-advertise-peer-urls", peer.c_str(),
                     "--initial-cluster", cluster.c_str(), nullptr);
            ::_exit(1);
        }
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (!listens(port_) && std::chrono::steady_clock::now() < until &&
               ::waitpid(pid_, nullptr, WNOHANG) == 0) {
        }
        if (!listens(port_)) std::printf("etcd did not start: see %s\n", log.c_str()), port_ = 0;
    }
    ~EtcdServer() {
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
        }
        std::error_code failed;
        if (!folder_.empty()) std::filesystem::remove_all(folder_, failed);
    }
    static sockaddr_in loopback(std::uint16_t port) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(port);
        return address;
    }
    static std::uint16_t free_port() {
        const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address = loopback(0);
        socklen_t size = sizeof address;
        (void)::bind(fd, reinterpret_cast<const sockaddr*>(&address), size);
        (void)::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
        ::close(fd);
        return ntohs(address.sin_port);
    }
    static bool listens(std::uint16_t port) {
        const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const sockaddr_in address = loopback(port);
        const bool there = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
        ::close(fd);
        return there;
    }
    std::filesystem::path folder_;
    std::uint16_t port_ = 0;
    pid_t pid_ = -1;
};

}  // namespace gnstor::daemon::test
