#include "daemon/http_connection.hpp"

#include "daemon/connection_pool.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

namespace gnstor::daemon {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kDrainBytes = 16 * kMaxBodyBytes;
constexpr auto kDrainTime = 1000ms;

bool takes_body(const std::string& method) {
    return method == "POST" || method == "PUT" || method == "PATCH" || method == "DELETE";
}

std::optional<std::uint64_t> number(const std::string& text) {
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, failure] = std::from_chars(text.data(), end, value);
    if (text.empty() || failure != std::errc() || stop != end) return std::nullopt;
    return value;
}

}  // namespace

std::optional<HeadRefusal> look_at_head(const httplib::Request& request) {
    const auto lengths = request.headers.equal_range("Content-Length");
    const auto count = std::distance(lengths.first, lengths.second);
    if (request.has_header("Transfer-Encoding"))
        return HeadRefusal{411, "invalid_argument",
                           "a body is taken with Content-Length alone, not with Transfer-Encoding"};
    if (count > 1)
        return HeadRefusal{400, "invalid_argument", "the request has more than one Content-Length"};
    if (count == 0) return std::nullopt;
    const std::optional<std::uint64_t> length = number(lengths.first->second);
    if (!length) return HeadRefusal{400, "invalid_argument", "Content-Length is not a number"};
    if (*length > kMaxBodyBytes)
        return HeadRefusal{
            413, "too_large",
            fmt::format("the body has {} bytes; at most {} are taken", *length, kMaxBodyBytes)};
    if (*length != 0 && !takes_body(request.method))
        return HeadRefusal{400, "invalid_argument", fmt::format("{} takes no body", request.method)};
    return std::nullopt;
}

bool BoundedStream::wait(short events, Clock::time_point until) const {
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
        pollfd one{fd_, events, 0};
        const int ready = ::poll(&one, 1, static_cast<int>(std::clamp<long long>(left, 0, 60'000)));
        if (ready > 0) return true;
        if (ready == 0 && left <= 0) return false;
        if (ready < 0 && errno != EINTR) return false;
    }
}

bool BoundedStream::next_request() {
    if (begin_ == end_ && !wait(POLLIN, Clock::now() + limits_.idle)) return false;
    left_ = kMaxHeadBytes;
    read_until_ = Clock::now() + limits_.request;
    writing_ = false;
    return true;
}

void BoundedStream::drain() {
    ::shutdown(fd_, SHUT_WR);
    const Clock::time_point until = Clock::now() + kDrainTime;
    std::size_t drained = 0;
    while (drained < kDrainBytes && Clock::now() < until && wait(POLLIN, until)) {
        const ssize_t n = ::recv(fd_, buffer_.data(), buffer_.size(), 0);
        if (n <= 0) return;
        drained += static_cast<std::size_t>(n);
    }
}

bool BoundedStream::is_readable() const {
    return begin_ != end_ || wait(POLLIN, read_until_);
}

bool BoundedStream::is_writable() const {
    return wait(POLLOUT, writing_ ? write_until_ : Clock::now() + limits_.answer);
}

ssize_t BoundedStream::read(char* to, std::size_t size) {
    if (begin_ == end_) {
        // The deadline first: a sender of one byte at a time always has one ready.
        if (left_ == 0 || Clock::now() >= read_until_ || !wait(POLLIN, read_until_)) return -1;
        const ssize_t n = ::recv(fd_, buffer_.data(), buffer_.size(), 0);
        if (n <= 0) return n;
        begin_ = 0;
        end_ = static_cast<std::size_t>(n);
    }
    const std::size_t n = std::min({size, end_ - begin_, left_});
    if (n == 0) return -1;
    std::memcpy(to, buffer_.data() + begin_, n);
    begin_ += n;
    left_ -= n;
    return static_cast<ssize_t>(n);
}

ssize_t BoundedStream::write(const char* from, std::size_t size) {
    if (!std::exchange(writing_, true)) write_until_ = Clock::now() + limits_.answer;
    if (!wait(POLLOUT, write_until_)) return -1;
    return ::send(fd_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// The interface asks for no addresses.
void BoundedStream::get_remote_ip_and_port(std::string& ip, int& port) const {
    ip.clear();
    port = 0;
}
void BoundedStream::get_local_ip_and_port(std::string& ip, int& port) const {
    ip.clear();
    port = 0;
}

void BoundedServer::configure(const HttpLimits& limits, Refuse refuse) {
    limits_ = limits;
    refuse_ = refuse;
    set_payload_max_length(kMaxBodyBytes);
    // What its answers say of it.
    set_keep_alive_timeout(
        std::max<time_t>(1, std::chrono::duration_cast<std::chrono::seconds>(limits.idle).count()));
    set_pre_routing_handler([refuse = std::move(refuse)](const httplib::Request& in, httplib::Response& out) {
        const std::optional<HeadRefusal> refusal = look_at_head(in);
        if (!refusal) return HandlerResponse::Unhandled;
        refuse(*refusal, out);
        return HandlerResponse::Handled;
    });
}

void BoundedServer::turn_away(socket_t fd) const {
    httplib::Response out;
    refuse_({503, "busy", "too many connections at once; try again"}, out);
    const std::string answer = fmt::format(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: {}\r\nContent-Length: {}\r\nRetry-After: 1\r\n"
        "Connection: close\r\n\r\n{}",
        out.get_header_value("Content-Type"), out.body.size(), out.body);
    // Whoever does not take it at once has not read anything: its buffer is empty.
    (void)!::send(fd, answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    ::shutdown(fd, SHUT_RDWR);
    ::close(fd);
}

bool BoundedServer::process_and_close_socket(socket_t fd) {
    if (ConnectionPool::turning_away()) {
        turn_away(fd);
        return false;
    }
    BoundedStream stream(fd, limits_);
    bool good = true, readable = true;
    for (std::size_t left = keep_alive_max_count_; good && readable && left != 0; --left) {
        if (svr_sock_ == INVALID_SOCKET || !stream.next_request()) break;
        readable = false;  // unless its head is one, and was accepted
        bool close = false;
        const auto look = [&](httplib::Request& request) {
            readable = !look_at_head(request);
            if (!readable) {
                request.headers.erase("Connection");
                request.headers.emplace("Connection", "close");  // the answer says so, too
            } else if (!request.has_header("Content-Length")) {
                request.headers.emplace("Content-Length", "0");  // or httplib would read to the end
            } else {
                stream.expect_body(number(request.get_header_value("Content-Length")).value_or(0));
            }
        };
        good = process_request(stream, left == 1, close, look) && !close;
    }
    if (!readable) stream.drain();
    ::shutdown(fd, SHUT_RDWR);
    ::close(fd);
    return good;
}

}  // namespace gnstor::daemon
