// tls_trust.hpp: which server a client of the HTTP interface trusts, and the check of its certificate.
//
// The check is part of the handshake (RFC 8446, 4.4.2): before it has succeeded, nothing of a request is
// sent. A server that is not verified yet may also send slowly: time is bounded as a whole, not by the byte.
// Host code.
#pragma once

#include <gnstor/base/result.hpp>

#include <openssl/types.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

namespace gnstor::daemon {

struct TlsTrust {
    std::filesystem::path ca_file;  ///< PEM: CAs (or the certificate itself); empty: the system's CAs
    /// If set, the server's certificate must be this one (tls_certificate.hpp); its signature and
    /// its names are not checked then.
    std::string fingerprint;
    /// What to do about a certificate that is not trusted.
    const char* advice = "name its CA with --tls-ca FILE, or the certificate itself with --tls-fingerprint";
};

/// Checks servers of one host in the handshakes of one SSL_CTX. One thread; must outlive its connections.
class TlsVerifier {
  public:
    /// kInvalidArgument: the CA file cannot be used.
    /// `until`: from then on nothing more is read of a connection.
    static Result<std::unique_ptr<TlsVerifier>> install(SSL_CTX* context, const std::string& host, int port,
                                                        const TlsTrust& trust,
                                                        std::chrono::steady_clock::time_point until);
    /// Why the server was refused, and what to do; empty: it was not.
    [[nodiscard]] const std::string& refusal() const { return refusal_; }

  private:
    TlsVerifier(std::string host, int port, TlsTrust trust, std::chrono::steady_clock::time_point until);
    Result<void> prepare(SSL_CTX* context);
    Result<void> load_cas(SSL_CTX* context) const;
    static void watch(const SSL* connection, int what, int detail);
    static long before_read(BIO* bytes, int operation, const char*, std::size_t, int, long, int result,
                            std::size_t*);
    static int verify(X509_STORE_CTX* chain, void* self);
    [[nodiscard]] std::string why_not(X509_STORE_CTX* chain) const;
    [[nodiscard]] std::string why_not_pinned(const X509* certificate) const;
    [[nodiscard]] std::string explain(int failure, const X509* certificate) const;
    const std::string host_, where_;
    const TlsTrust trust_;
    const std::chrono::steady_clock::time_point until_;
    std::string refusal_;
};

/// Why a handshake failed that was not refused by a TlsVerifier, and what to do: from OpenSSL's errors of
/// this thread, which it empties. `where`: HOST:PORT.
[[nodiscard]] std::string why_no_handshake(const std::string& where);

}  // namespace gnstor::daemon
