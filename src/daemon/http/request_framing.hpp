// request_framing.hpp: the bytes of a connection as requests: where one ends, and what its head says. Pure:
// no sockets, no clock.
//
// Whoever stands between a client and us may read a request in another way than we do. So what two readers
// could take differently is refused, not interpreted (RFC 9112, 2.2, 5.1, 5.2 and 6.3). Invariants
//   * a whole request is a head of at most kMaxHeadBytes, each line ended by CR LF and of at most
//     kMaxHeadLineBytes, and as many bytes as its one Content-Length says, at most kMaxBodyBytes; without
//     one, none;
//   * a header that the service looks at comes once at most;
//   * what is refused stays refused, and where it would have ended nobody knows: nothing after it is a
//     request;
//   * each byte is looked at a bounded number of times, however many pieces it came in.
// One thread at a time.
#pragma once

#include "daemon/http/http_service.hpp"

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace gnstor::daemon {

inline constexpr std::size_t kMaxHeadBytes = 64u << 10;
inline constexpr std::size_t kMaxHeadLineBytes = 8192;  ///< its end included

/// Why a request is not served.
struct HttpRefusal {
    int status = 0;
    std::string code, message;
};

class RequestFraming {
  public:
    enum class State {
        kMore,     ///< what came is a beginning
        kWhole,    ///< the first head_bytes() + body_bytes() of what came
        kRefused,  ///< see refusal()
    };

    /// `bytes`: what came of the request so far, from its first byte: what the call before had, and more.
    State look(std::string_view bytes);

    [[nodiscard]] std::size_t head_bytes() const { return head_bytes_; }  ///< 0: not all of it is there
    [[nodiscard]] std::size_t body_bytes() const { return body_bytes_; }
    /// Its head is there and was accepted, and the sender waits to hear so (Expect: 100-continue).
    [[nodiscard]] bool wants_continue() const { return head_bytes_ != 0 && wants_continue_; }
    [[nodiscard]] const HttpRefusal& refusal() const { return refusal_; }
    /// Whoever asked with HEAD takes no body, not even a refusal's.
    [[nodiscard]] bool answer_has_body() const { return request_.method != "HEAD"; }
    /// Whether the sender may ask again on this connection (Connection, HTTP/1.0).
    [[nodiscard]] bool keeps_connection() const { return !closes_ && (later_than_1_0_ || keeps_alive_); }
    /// What a head that is there and was accepted says; the body is the caller's to add.
    [[nodiscard]] const Request& request() const { return request_; }

  private:
    State refuse(int status, std::string_view code, std::string message);
    void take_line(std::string_view line);
    void take_request_line(std::string_view line);
    void take_header(std::string_view name, std::string_view value);
    void take_length(std::string_view value);

    State state_ = State::kMore;
    std::size_t line_ = 0;      // where the line that is looked at begins
    std::size_t searched_ = 0;  // no line ends between it and here
    std::size_t head_bytes_ = 0, body_bytes_ = 0;
    bool takes_body_ = false, wants_continue_ = false, later_than_1_0_ = false;
    bool closes_ = false, keeps_alive_ = false;  // tokens of Connection
    std::array<bool, 4> has_{};                  // of the headers that come once
    Request request_;                            // without its body
    HttpRefusal refusal_;
};

}  // namespace gnstor::daemon
