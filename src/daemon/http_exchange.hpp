// http_exchange.hpp: a whole request's bytes in, an answer's bytes out: httplib without its sockets and
// threads.
//
// httplib parses the head and lays the answer out. Where a request ends is not its business
// (request_framing.hpp): it is given the bytes of one head, and where it read less of them all the same,
// nothing that follows is taken for a request. The body goes past it to the service. Invariant: of a request
// that was handed in, nothing waits for anything but the service.
#pragma once

#include "daemon/http_service.hpp"

#include <httplib.h>

#include <cstddef>
#include <string>

namespace gnstor::daemon {

/// A request as RequestFraming found it.
struct WholeRequest {
    std::string bytes;           ///< head and body
    std::size_t body_bytes = 0;  ///< the last of them
    bool last = false;           ///< that this connection may bring
};

/// What became of it.
struct HttpAnswer {
    std::string bytes;
    bool more = false;  ///< another request may follow
};

/// An answer by our own hand, with which the connection ends.
[[nodiscard]] std::string closing_answer(const Response& response, bool with_body);

/// httplib's server, of which the listening socket, the parser and the routes are used.
class ExchangeServer final : public httplib::Server {
  public:
    ExchangeServer() = default;
    ~ExchangeServer() override { close_listener(); }

    /// Any number of threads at once, when the routes are there.
    [[nodiscard]] HttpAnswer answer(const WholeRequest& request);
    [[nodiscard]] std::size_t requests_a_connection() const { return keep_alive_max_count_; }
    /// What bind_to_port() opened, if anything.
    void close_listener();
};

}  // namespace gnstor::daemon
