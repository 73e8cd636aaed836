// socket.hpp: a Unix socket that keeps datagram boundaries (SOCK_SEQPACKET) and passes file descriptors.
// Owns its descriptor. One thread at a time.
#pragma once

#include <gnstor/base/result.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace gnstor::rdma::shm {

/// Closes a file descriptor.
class Descriptor {
  public:
    explicit Descriptor(int fd = -1) : fd_(fd) {}
    ~Descriptor();
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    [[nodiscard]] int get() const { return fd_; }

  private:
    int fd_;
};

class Socket {
  public:
    explicit Socket(Descriptor fd) : fd_(std::move(fd)) {}
    /// Waits for some seconds at most, as send() does.
    static Result<Socket> connect(const std::string& path);
    /// The process at the other end; 0: the kernel does not say.
    [[nodiscard]] pid_t peer() const;
    /// Listens at `path`; replaces a socket on which no process listens any more. `mode`: permissions of
    /// the path.
    static Result<Socket> listen(const std::string& path, std::uint32_t mode = 0600);
    /// The next connection. kTimedOut: none within `timeout_ms`.
    Result<Socket> accept(std::uint32_t timeout_ms) const;
    /// User id of the peer. Any thread.
    [[nodiscard]] Result<std::uint32_t> peer_user() const;
    [[nodiscard]] int fd() const noexcept { return fd_.get(); }

    /// Sends all of `bytes` as one datagram, with the descriptor `file` (-1: none). kIo: the peer is
    /// gone, or does not receive earlier datagrams.
    Result<void> send(std::span<const std::byte> bytes, int file = -1) const;
    /// Receives one datagram of exactly bytes.size() bytes; `file`, if not null, gets the descriptor that
    /// came with it. kTimedOut; kIo: the peer is gone; kCorrupt: another length.
    Result<void> receive(std::span<std::byte> bytes, std::uint32_t timeout_ms,
                         Descriptor* file = nullptr) const;
    /// Whether nothing has come; from now on nothing can. False also where the peer is gone. If true, closing
    /// the socket closes no descriptor that the peer has sent.
    [[nodiscard]] bool silent() const;
    /// Makes accept() of another thread return.
    void shut_down() const;
    /// Makes receive() of another thread, and send() of the peer, return kIo. The peer's receive()
    /// returns only when this socket is closed.
    void stop_receiving() const;
    /// Makes the peer's receive() return kIo; what the peer sends can still be received.
    void stop_sending() const;

  private:
    Descriptor fd_;
};

}  // namespace gnstor::rdma::shm
