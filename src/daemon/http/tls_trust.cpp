#include "daemon/http/tls_trust.hpp"

#include "daemon/http/ip_address.hpp"
#include "daemon/http/openssl_objects.hpp"
#include "daemon/http/tls_certificate.hpp"

#include <openssl/sslerr.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

namespace gnstor::daemon {
namespace {

/// The failure of the certificate's dates alone.
int date_failure(const X509* certificate) {
    if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) return X509_V_ERR_CERT_HAS_EXPIRED;
    if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) return X509_V_ERR_CERT_NOT_YET_VALID;
    return X509_V_OK;
}

}  // namespace

TlsVerifier::TlsVerifier(std::string host, int port, TlsTrust trust,
                         std::chrono::steady_clock::time_point until)
    : host_(std::move(host)),
      where_(fmt::format("{}:{}", host_, port)),
      trust_(std::move(trust)),
      until_(until) {}

Result<std::unique_ptr<TlsVerifier>> TlsVerifier::install(SSL_CTX* context, const std::string& host, int port,
                                                          const TlsTrust& trust,
                                                          std::chrono::steady_clock::time_point until) {
    std::unique_ptr<TlsVerifier> verifier(new TlsVerifier(host, port, trust, until));
    GN_TRY(verifier->prepare(context));
    return verifier;
}

Result<void> TlsVerifier::prepare(SSL_CTX* context) {
    ERR_clear_error();
    if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1 ||
        SSL_CTX_set_app_data(context, this) != 1)
        return error(Errc::kInternal, "OpenSSL could not prepare TLS ({}): see its configuration file",
                     openssl_reason());
    if (trust_.fingerprint.empty()) GN_TRY(load_cas(context));
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    SSL_CTX_set_cert_verify_callback(context, &TlsVerifier::verify, this);
    SSL_CTX_set_info_callback(context, &TlsVerifier::watch);
    return {};
}

Result<void> TlsVerifier::load_cas(SSL_CTX* context) const {
    const bool loaded = trust_.ca_file.empty()
                            ? SSL_CTX_set_default_verify_paths(context) == 1
                            : SSL_CTX_load_verify_file(context, trust_.ca_file.c_str()) == 1;
    if (!loaded)
        return error(Errc::kInvalidArgument,
                     "the CA file {} cannot be used ({}); it must hold certificates in PEM",
                     trust_.ca_file.string(), openssl_reason());
    X509_VERIFY_PARAM* const rules = SSL_CTX_get0_param(context);
    // Trust in a certificate of the CA file needs no further one above it.
    X509_VERIFY_PARAM_set_flags(rules, X509_V_FLAG_PARTIAL_CHAIN);
    X509_VERIFY_PARAM_set_hostflags(rules, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    const int named = is_ip_address(host_) ? X509_VERIFY_PARAM_set1_ip_asc(rules, host_.c_str())
                                           : X509_VERIFY_PARAM_set1_host(rules, host_.c_str(), host_.size());
    if (named != 1) return error(Errc::kInvalidArgument, "'{}' is not the name of a host", host_);
    return {};
}

/// OpenSSL calls it when a handshake begins: the connection exists, and nothing was read of it.
void TlsVerifier::watch(const SSL* connection, int what, int) {
    if ((what & SSL_CB_HANDSHAKE_START) == 0) return;
    BIO* const bytes = SSL_get_rbio(connection);
    BIO_set_callback_arg(bytes, static_cast<char*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(connection))));
    BIO_set_callback_ex(bytes, &TlsVerifier::before_read);
}

/// OpenSSL calls it around each access to the socket; what it returns before one is 1: go on, 0: fail.
long TlsVerifier::before_read(BIO* bytes, int operation, const char*, std::size_t, int, long, int result,
                              std::size_t*) {
    const auto* const self = reinterpret_cast<const TlsVerifier*>(BIO_get_callback_arg(bytes));
    if (operation != BIO_CB_READ || std::chrono::steady_clock::now() < self->until_) return result;
    BIO_clear_retry_flags(bytes);
    return 0;
}

/// OpenSSL calls it with the certificates of the server; 0 ends the handshake.
int TlsVerifier::verify(X509_STORE_CTX* chain, void* self) {
    auto& verifier = *static_cast<TlsVerifier*>(self);
    verifier.refusal_ = verifier.why_not(chain);
    if (verifier.refusal_.empty()) {
        X509_STORE_CTX_set_error(chain, X509_V_OK);
        return 1;
    }
    if (X509_STORE_CTX_get_error(chain) == X509_V_OK)
        X509_STORE_CTX_set_error(chain, X509_V_ERR_APPLICATION_VERIFICATION);
    // If the library around OpenSSL ignored this result, still nothing could be sent.
    const auto* const connection =
        static_cast<const SSL*>(X509_STORE_CTX_get_ex_data(chain, SSL_get_ex_data_X509_STORE_CTX_idx()));
    if (connection != nullptr) ::shutdown(SSL_get_fd(connection), SHUT_RDWR);
    return 0;
}

std::string TlsVerifier::why_not(X509_STORE_CTX* chain) const {
    const X509* const certificate = X509_STORE_CTX_get0_cert(chain);
    if (certificate == nullptr) return fmt::format("the server at {} showed no certificate", where_);
    if (!trust_.fingerprint.empty()) return why_not_pinned(certificate);
    if (X509_verify_cert(chain) == 1) return "";
    return explain(X509_STORE_CTX_get_error(chain), certificate);
}

std::string TlsVerifier::why_not_pinned(const X509* certificate) const {
    const std::string shown = fingerprint_of(certificate);
    if (shown != trust_.fingerprint)
        return fmt::format(
            "the server at {} has the certificate {}, and not {} as --tls-fingerprint says, so nothing was "
            "sent to it. If the certificate was replaced, 'gnstor status' on the machine of the array shows "
            "its new fingerprint; if it was not, another server answers in place of the array",
            where_, shown, trust_.fingerprint);
    const int failure = date_failure(certificate);
    return failure == X509_V_OK ? "" : explain(failure, certificate);
}

std::string TlsVerifier::explain(int failure, const X509* certificate) const {
    switch (failure) {
        case X509_V_ERR_CERT_HAS_EXPIRED:
            return fmt::format(
                "the certificate of the server at {} (or of its CA) has expired (its own is valid until {}), "
                "so nothing was sent: renew it on the server, or correct this machine's clock",
                where_, time_text(X509_get0_notAfter(certificate)));
        case X509_V_ERR_CERT_NOT_YET_VALID:
            return fmt::format(
                "the certificate of the server at {} is not valid yet (it is from {} on), so nothing was "
                "sent: correct this machine's clock, or the server's certificate",
                where_, time_text(X509_get0_notBefore(certificate)));
        case X509_V_ERR_HOSTNAME_MISMATCH:
        case X509_V_ERR_IP_ADDRESS_MISMATCH:
            return fmt::format(
                "the certificate of the server at {} is for {}, not for {}, so nothing was sent: use a name "
                "of the certificate, or trust this certificate by --tls-fingerprint",
                where_, names_in(certificate), host_);
        default:
            return fmt::format(
                "the certificate of the server at {} is not trusted ({}), so nothing was sent: {}. Its "
                "fingerprint is {}; compare it with what its own machine shows, 'gnstor status' for a "
                "gnstord",
                where_, X509_verify_cert_error_string(failure), trust_.advice, fingerprint_of(certificate));
    }
}

std::string why_no_handshake(const std::string& where) {
    // Reasons that OpenSSL 3.0 and later give for bytes that are no TLS record.
    constexpr std::array kNoTls = {SSL_R_WRONG_VERSION_NUMBER, SSL_R_HTTP_REQUEST,
                                   SSL_R_PACKET_LENGTH_TOO_LONG, SSL_R_UNEXPECTED_MESSAGE};
    const unsigned long code = ERR_peek_error();
    const std::string reason = openssl_reason();
    // SHUTDOWN_WHILE_IN_INIT comes from httplib, which shuts down a connection that the server has ended.
    if (code == 0 || ERR_GET_REASON(code) == SSL_R_SHUTDOWN_WHILE_IN_INIT)
        return fmt::format(
            "the server at {} ended the connection during the TLS handshake; it may have too many "
            "connections: try again",
            where);
    if (ERR_GET_LIB(code) == ERR_LIB_SSL &&
        std::find(kNoTls.begin(), kNoTls.end(), ERR_GET_REASON(code)) != kNoTls.end())
        return fmt::format(
            "what answers at {} does not speak TLS ({}), so nothing was sent. If it is a gnstord without "
            "TLS, "
            "give it a certificate (--tls), or write http:// where the network is yours alone",
            where, reason);
    return fmt::format("the TLS handshake with the server at {} failed ({}): TLS 1.2 or newer is needed",
                       where, reason);
}

}  // namespace gnstor::daemon
