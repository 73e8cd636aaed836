// http_peer.hpp: a client of HTTP that sends whatever bytes a test wants, and waits for a bounded time. One
// thread.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

namespace gnstor::daemon::test {

inline constexpr std::chrono::milliseconds kLong{60'000};    // a limit that no test waits for
inline constexpr std::chrono::milliseconds kAtOnce{20'000};  // well below it, and far above what is needed

/// A connection of a test's own, which waits for a bounded time.
class Peer {
  public:
    explicit Peer(int fd) : fd_(fd) {}
    Peer(Peer&& other) noexcept : fd_(std::exchange(other.fd_, -1)), came_(std::move(other.came_)) {}
    ~Peer() {
        if (fd_ >= 0) ::close(fd_);
    }
    void send(const std::string& bytes) const { ASSERT_TRUE(is_taken(bytes)); }
    /// Whether the server lets it be sent.
    [[nodiscard]] bool is_taken(const std::string& bytes) const {
        return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
    }
    /// The next answer, head and body; what came of it where the connection ends or nothing comes in time.
    std::string answer() {
        for (;;) {
            if (const std::size_t head = came_.find("\r\n\r\n"); head != std::string::npos) {
                const std::size_t size = head + 4 + length_in(came_.substr(0, head));
                if (came_.size() >= size) {
                    std::string one = came_.substr(0, size);
                    came_.erase(0, size);
                    return one;
                }
            }
            if (!receive()) return std::exchange(came_, {});
        }
    }
    /// Whether the server ends the connection, and in time; what it said before.
    std::optional<std::string> end() {
        while (receive()) {
        }
        return ended_ ? std::optional(std::exchange(came_, {})) : std::nullopt;
    }
    [[nodiscard]] bool is_open() const {
        char byte = 0;
        return ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
    }

    /// Whether the server ends the connection, and in time, though nothing was taken.
    [[nodiscard]] bool is_ended_unread(std::chrono::milliseconds in_time = kAtOnce) const {
        pollfd one{fd_, POLLRDHUP, 0};
        return ::poll(&one, 1, static_cast<int>(in_time.count())) == 1;
    }

  private:
    static std::size_t length_in(const std::string& head) {
        const std::size_t at = head.find("Content-Length: ");
        return at == std::string::npos ? 0 : std::strtoull(head.c_str() + at + 16, nullptr, 10);
    }
    bool receive() {
        pollfd one{fd_, POLLIN, 0};
        if (::poll(&one, 1, static_cast<int>(kAtOnce.count())) != 1) return false;
        char buffer[65536];
        const ssize_t n = ::recv(fd_, buffer, sizeof(buffer), 0);
        ended_ = n <= 0;
        if (n > 0) came_.append(buffer, static_cast<std::size_t>(n));
        return n > 0;
    }
    int fd_;
    std::string came_;
    bool ended_ = false;
};

}  // namespace gnstor::daemon::test
