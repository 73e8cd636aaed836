#include "daemon/http_exchange.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace gnstor::daemon {
namespace {

/// One request's bytes, and room for its answer. At their end there is no more to come.
class MemoryStream final : public httplib::Stream {
  public:
    explicit MemoryStream(std::string_view request) : left_(request) {}

    [[nodiscard]] bool is_readable() const override { return !left_.empty(); }
    [[nodiscard]] bool is_writable() const override { return true; }
    ssize_t read(char* to, std::size_t size) override {
        const std::size_t n = std::min(size, left_.size());
        if (n == 0) return -1;
        std::memcpy(to, left_.data(), n);
        left_.remove_prefix(n);
        return static_cast<ssize_t>(n);
    }
    ssize_t write(const char* from, std::size_t size) override {
        answer_.append(from, size);
        return static_cast<ssize_t>(size);
    }
    // The interface asks for no addresses.
    void get_remote_ip_and_port(std::string& ip, int& port) const override { none(ip, port); }
    void get_local_ip_and_port(std::string& ip, int& port) const override { none(ip, port); }
    [[nodiscard]] socket_t socket() const override { return INVALID_SOCKET; }

    [[nodiscard]] bool all_was_read() const { return left_.empty(); }
    std::string take_answer() { return std::move(answer_); }

  private:
    static void none(std::string& ip, int& port) {
        ip.clear();
        port = 0;
    }
    std::string_view left_;
    std::string answer_;
};

std::string_view reason(int status) {
    switch (status) {
        case 400:
            return "Bad Request";
        case 408:
            return "Request Timeout";
        case 411:
            return "Length Required";
        case 413:
            return "Content Too Large";
        case 414:
            return "URI Too Long";
        case 503:
            return "Service Unavailable";
        default:
            return "Refused";
    }
}

}  // namespace

std::string closing_answer(const Response& response, bool with_body) {
    return fmt::format(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n{}",
        response.status, reason(response.status), response.content_type, response.body.size(),
        response.status == 503 ? "Retry-After: 1\r\n" : "", with_body ? response.body : "");
}

HttpAnswer ExchangeServer::answer(const WholeRequest& request) {
    const std::string_view bytes = request.bytes;
    const std::string_view body = bytes.substr(bytes.size() - request.body_bytes);
    MemoryStream stream(bytes.substr(0, bytes.size() - request.body_bytes));
    bool accepted = false, close = false;
    const auto agree = [&](httplib::Request& in) {
        // The body is the service's as it came. httplib would decompress it, without a bound and before
        // anybody has looked at the token, and take forms apart with expressions that go back and forth in
        // them.
        in.body = body;
        in.headers.erase("Content-Length");
        in.headers.erase("Transfer-Encoding");
        in.headers.erase("Expect");  // answered before the body came
        // It would repeat the answer, a refusal too, once for each of thousands of ranges.
        in.ranges.clear();
        accepted = true;
    };
    const bool good = process_request(stream, request.last, close, agree);
    HttpAnswer out;
    const bool agreed = accepted && stream.all_was_read();  // on where the head ends
    out.more = good && agreed && !close && !request.last;
    out.bytes = stream.take_answer();
    return out;
}

void ExchangeServer::close_listener() {
    // Not stop(): it is for a server that listens by itself.
    const socket_t fd = svr_sock_.exchange(INVALID_SOCKET);
    if (fd != INVALID_SOCKET) ::close(fd);
}

}  // namespace gnstor::daemon
