#include "daemon/http/byte_stream.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace gnstor::daemon {
namespace {

bool is_transient(int failure) {
    return failure == EAGAIN || failure == EWOULDBLOCK || failure == EINTR;
}

ByteStream::Moved received(ssize_t n) {
    if (n > 0) return {ByteStream::State::kMoved, static_cast<std::size_t>(n)};
    if (n == 0) return {ByteStream::State::kEnded};
    if (is_transient(errno)) return {ByteStream::State::kLater, 0, POLLIN};
    return {ByteStream::State::kFailed};
}

}  // namespace

ByteStream::ByteStream(int fd, const TlsServer* tls) : fd_(fd) {
    if (tls == nullptr) return;
    tls_ = tls->connection();
    broken_ = tls_ == nullptr || SSL_set_fd(tls_.get(), fd) != 1;
}

ByteStream::ByteStream(ByteStream&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), tls_(std::move(other.tls_)), broken_(other.broken_) {}

ByteStream& ByteStream::operator=(ByteStream&& other) noexcept {
    if (this == &other) return *this;
    close();
    fd_ = std::exchange(other.fd_, -1);
    tls_ = std::move(other.tls_);
    broken_ = other.broken_;
    return *this;
}

ByteStream::~ByteStream() {
    close();
}

void ByteStream::close() {
    tls_.reset();
    if (fd_ < 0) return;
    ::shutdown(fd_, SHUT_RDWR);
    ::close(std::exchange(fd_, -1));
}

ByteStream::Moved ByteStream::peek(char& first) const {
    return received(::recv(fd_, &first, 1, MSG_PEEK | MSG_DONTWAIT));
}

/// What an OpenSSL call means that returned `result` and moved nothing.
ByteStream::Moved ByteStream::outcome(int result) {
    switch (SSL_get_error(tls_.get(), result)) {
        case SSL_ERROR_WANT_READ:
            return {State::kLater, 0, POLLIN};
        case SSL_ERROR_WANT_WRITE:
            return {State::kLater, 0, POLLOUT};
        case SSL_ERROR_ZERO_RETURN:
            return {State::kEnded};
        default:
            broken_ = true;
            ERR_clear_error();
            return {State::kFailed};
    }
}

ByteStream::Moved ByteStream::handshake() {
    if (broken_) return {State::kFailed};
    ERR_clear_error();
    const int result = SSL_do_handshake(tls_.get());
    return result == 1 ? Moved{State::kMoved} : outcome(result);
}

ByteStream::Moved ByteStream::read(std::span<char> into) {
    if (broken_) return {State::kFailed};
    if (tls_ == nullptr) return received(::recv(fd_, into.data(), into.size(), MSG_DONTWAIT));
    ERR_clear_error();
    std::size_t bytes = 0;
    const int result = SSL_read_ex(tls_.get(), into.data(), into.size(), &bytes);
    return result == 1 ? Moved{State::kMoved, bytes} : outcome(result);
}

ByteStream::Moved ByteStream::write(std::string_view bytes) {
    if (broken_) return {State::kFailed};
    if (tls_ == nullptr) {
        const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) return {State::kMoved, static_cast<std::size_t>(n)};
        return is_transient(errno) ? Moved{State::kLater, 0, POLLOUT} : Moved{State::kFailed};
    }
    ERR_clear_error();
    std::size_t sent = 0;
    const int result = SSL_write_ex(tls_.get(), bytes.data(), bytes.size(), &sent);
    return result == 1 ? Moved{State::kMoved, sent} : outcome(result);
}

void ByteStream::end_writing() {
    // close_notify (RFC 8446, 6.1): if it does not fit the socket buffer it is dropped; an answer says its
    // own length.
    if (tls_ != nullptr && !broken_) {
        ERR_clear_error();
        (void)SSL_shutdown(tls_.get());
        ERR_clear_error();
    }
    ::shutdown(fd_, SHUT_WR);
}

ByteStream::Moved ByteStream::drain(std::span<char> into) const {
    return received(::recv(fd_, into.data(), into.size(), MSG_DONTWAIT));
}

}  // namespace gnstor::daemon
