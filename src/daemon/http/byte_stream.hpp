// byte_stream.hpp: the bytes of one connection of the HTTP server, plain or through TLS. No call blocks.
//
// Owns the socket. One thread; SIGPIPE must be blocked in it, since OpenSSL's writes may raise it.
#pragma once

#include "daemon/http/openssl_objects.hpp"
#include "daemon/http/tls_server.hpp"

#include <cstddef>
#include <span>
#include <string_view>

namespace gnstor::daemon {

/// A buffer for ByteStream::read() of at least this size takes a whole TLS record (RFC 8446, 5.1): then no
/// decrypted data stays in OpenSSL, where poll() would not see it.
inline constexpr std::size_t kTlsRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;

class ByteStream {
  public:
    enum class State {
        kMoved,   ///< `bytes` were received or sent; the handshake is complete
        kLater,   ///< nothing yet: poll() for `wants`
        kEnded,   ///< the peer sends no more
        kFailed,  ///< the connection is broken, or the peer breaks the protocol
    };
    struct Moved {
        State state;
        std::size_t bytes = 0;
        short wants = 0;  ///< POLLIN or POLLOUT
    };

    ByteStream() = default;
    /// Takes over the non-blocking socket. `tls`: null: plain.
    ByteStream(int fd, const TlsServer* tls);
    ByteStream(ByteStream&& other) noexcept;
    ByteStream& operator=(ByteStream&& other) noexcept;
    ~ByteStream();  ///< closes the socket at once

    [[nodiscard]] int fd() const { return fd_; }
    [[nodiscard]] bool has_tls() const { return tls_ != nullptr; }
    /// Before the handshake: the first byte that the peer has sent, which stays to be read.
    Moved peek(char& first) const;
    /// Speaks plain from now on, to a peer that did not begin a handshake.
    void drop_tls() { tls_.reset(); }

    Moved handshake();
    Moved read(std::span<char> into);
    Moved write(std::string_view bytes);
    /// Tells the peer that no more will be sent; what it sends can still be drained.
    void end_writing();
    /// Reads what the peer still sends, without looking at it.
    Moved drain(std::span<char> into) const;

  private:
    Moved outcome(int result);
    void close();
    int fd_ = -1;
    OpensslPtr<SSL> tls_;
    bool broken_ = false;  // TLS reported a fatal error: RFC 8446, 6.2: nothing may be sent any more
};

}  // namespace gnstor::daemon
