// request_parser.hpp: splits the bytes of a connection into requests: where each one ends, and what its head
// says. Pure: no sockets, no clock.
//
// A proxy between the client and us may parse a request differently from us. So bytes that two parsers could
// read differently are refused, not interpreted (RFC 9112, 2.2, 5.1, 5.2 and 6.3).
// Invariants
//   * a request is a head of at most kMaxHeadBytes, each line ended by CR LF and of at most
//     kMaxHeadLineBytes, and a body of as many bytes as its one Content-Length says, at most kMaxBodyBytes;
//     without that header, no body;
//   * a header that the service evaluates occurs at most once;
//   * a refused request stays refused: its end is unknown, so no later bytes are taken as a request;
//   * each byte is examined a bounded number of times, however many pieces it came in.
// One thread at a time.
#pragma once

#include "daemon/http/http_service.hpp"

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace gnstor::daemon {

inline constexpr std::size_t kMaxHeadBytes = 64u << 10;
inline constexpr std::size_t kMaxHeadLineBytes = 8192;  ///< including CR LF

/// Why a request is not served.
struct HttpRefusal {
    int status = 0;
    std::string code, message;
};

class RequestParser {
  public:
    enum class State {
        kMore,     ///< the bytes so far are an incomplete request
        kWhole,    ///< the first head_bytes() + body_bytes() bytes are a request
        kRefused,  ///< see refusal()
    };

    /// `bytes`: all bytes of the request so far: those of the previous call, and more.
    State look(std::string_view bytes);

    [[nodiscard]] std::size_t head_bytes() const { return head_bytes_; }  ///< 0: the head is incomplete
    [[nodiscard]] std::size_t body_bytes() const { return body_bytes_; }
    /// The head is accepted, and the client waits for permission to send the body (Expect: 100-continue).
    [[nodiscard]] bool wants_continue() const { return head_bytes_ != 0 && wants_continue_; }
    [[nodiscard]] const HttpRefusal& refusal() const { return refusal_; }
    /// False for HEAD: its answer has no body, even if it is a refusal.
    [[nodiscard]] bool answer_has_body() const { return request_.method != "HEAD"; }
    /// Whether the client may send another request on this connection (Connection, HTTP/1.0).
    [[nodiscard]] bool keeps_connection() const { return !closes_ && (later_than_1_0_ || keeps_alive_); }
    /// The request line and headers of an accepted head; the caller adds the body.
    [[nodiscard]] const Request& request() const { return request_; }

  private:
    State refuse(int status, std::string_view code, std::string message);
    void take_line(std::string_view line);
    void take_request_line(std::string_view line);
    void take_header(std::string_view name, std::string_view value);
    void take_length(std::string_view value);

    State state_ = State::kMore;
    std::size_t line_ = 0;      // start of the line being examined
    std::size_t searched_ = 0;  // no line ends between line_ and here
    std::size_t head_bytes_ = 0, body_bytes_ = 0;
    bool takes_body_ = false, wants_continue_ = false, later_than_1_0_ = false;
    bool closes_ = false, keeps_alive_ = false;  // options of the Connection header
    std::array<bool, 4> has_{};                  // which of kOnce have occurred
    Request request_;                            // without its body
    HttpRefusal refusal_;
};

}  // namespace gnstor::daemon
