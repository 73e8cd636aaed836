// tls_server.hpp: certificate, key and rules by which a server speaks TLS. RFC 8446 (1.3), RFC 5246 (1.2).
//
// TLS 1.3, or 1.2 with ephemeral keys and authenticated encryption. No renegotiation, resumption, early data
// or compression, so a connection's state ends with it. Immutable; any thread may make connections of it.
#pragma once

#include <gnstor/base/result.hpp>

#include "daemon/http/openssl_objects.hpp"
#include "daemon/http/tls_certificate.hpp"

#include <memory>
#include <string>

namespace gnstor::daemon {

class TlsServer {
  public:
    /// kNotFound, kPermission (other users may read the key), kInvalidArgument: the files are no usable pair.
    static Result<std::shared_ptr<const TlsServer>> load(const TlsFiles& files);

    /// The server's end of a TLS connection, without a socket yet. Null: memory ran out.
    [[nodiscard]] OpensslPtr<SSL> connection() const;
    [[nodiscard]] const std::string& fingerprint() const { return fingerprint_; }
    [[nodiscard]] const std::string& expires() const { return expires_; }
    /// Why clients refuse the certificate at this moment: expired, or not valid yet. Empty: they do not.
    [[nodiscard]] std::string why_invalid() const;

  private:
    explicit TlsServer(OpensslPtr<SSL_CTX> context, TlsFiles files);
    OpensslPtr<SSL_CTX> context_;
    TlsFiles files_;
    std::string fingerprint_, expires_;
};

}  // namespace gnstor::daemon
