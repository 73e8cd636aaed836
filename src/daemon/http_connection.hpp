// http_connection.hpp: one connection of the HTTP server, bounded: what httplib reads of it, and for how
// long.
//
// httplib reads the bodies of some methods and leaves others in the connection, where they pass for the next
// request; it reads bodies to their end that it refuses, and chunked ones without any limit. So a request is
// looked at when its head is there, and read through a stream of our own. Invariants
//   * of one request at most kMaxHeadBytes and kMaxBodyBytes are read, whatever its method and headers say;
//   * it has arrived within HttpLimits::request, or its connection ends: slow senders hold no thread;
//   * what follows a head that was refused, or was none, is not taken for a request;
//   * a connection too many (connection_pool.hpp) is answered without a look at what it wants.
// Pool threads of the server, one a connection.
#pragma once

#include "daemon/http_service.hpp"

#include <httplib.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

namespace gnstor::daemon {

inline constexpr std::size_t kMaxHeadBytes = 64u << 10;

struct HttpLimits {
    std::chrono::milliseconds idle{1000};       ///< between requests
    std::chrono::milliseconds request{10'000};  ///< from its first byte to its last
    std::chrono::milliseconds answer{30'000};   ///< to be taken by the client
};

/// What is wrong with a request's head, before anything of its body is read.
struct HeadRefusal {
    int status;
    std::string code, message;
};
/// Nothing: it may be read.
[[nodiscard]] std::optional<HeadRefusal> look_at_head(const httplib::Request& request);

/// A connected socket as httplib reads it. Not the owner of the descriptor.
class BoundedStream final : public httplib::Stream {
  public:
    BoundedStream(int fd, const HttpLimits& limits) : fd_(fd), limits_(limits) {}

    /// Waits for a request's first byte. False: none came.
    bool next_request();
    /// Its head was accepted: that much more belongs to it.
    void expect_body(std::size_t bytes) { left_ += bytes; }
    /// A sender that still writes may miss the answer where the connection is cut: takes what comes for a
    /// moment, and a bounded amount of it.
    void drain();

    [[nodiscard]] bool is_readable() const override;
    [[nodiscard]] bool is_writable() const override;
    ssize_t read(char* to, std::size_t size) override;
    ssize_t write(const char* from, std::size_t size) override;
    void get_remote_ip_and_port(std::string& ip, int& port) const override;
    void get_local_ip_and_port(std::string& ip, int& port) const override;
    [[nodiscard]] socket_t socket() const override { return fd_; }

  private:
    using Clock = std::chrono::steady_clock;
    [[nodiscard]] bool wait(short events, Clock::time_point until) const;

    const int fd_;
    const HttpLimits limits_;
    std::array<char, 4096> buffer_{};
    std::size_t begin_ = 0, end_ = 0;  // of what lies in it
    std::size_t left_ = 0;             // that may still be read of this request
    Clock::time_point read_until_{}, write_until_{};
    bool writing_ = false;
};

/// httplib's server with such connections. What look_at_head() refuses is answered by `refuse`.
class BoundedServer final : public httplib::Server {
  public:
    using Refuse = std::function<void(const HeadRefusal& refusal, httplib::Response& out)>;
    BoundedServer() = default;
    /// Before it listens.
    void configure(const HttpLimits& limits, Refuse refuse);

  private:
    bool process_and_close_socket(socket_t fd) override;
    void turn_away(socket_t fd) const;
    HttpLimits limits_;
    Refuse refuse_;
};

}  // namespace gnstor::daemon
