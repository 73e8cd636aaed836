#include "daemon/http/tls_server.hpp"

#include <filesystem>
#include <utility>

namespace gnstor::daemon {
namespace {

// The ciphers of TLS 1.2: ephemeral keys and AEAD only, as all ciphers of TLS 1.3 are.
constexpr const char* kCiphers = "ECDHE+AESGCM:ECDHE+CHACHA20";
constexpr std::uint64_t kServerRules = SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION |
                                       SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA;
// Partial writes: as send(). Moving buffer: what is left of an answer may be passed by another pointer.
constexpr long kServerModes =
    SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS;

}  // namespace

TlsServer::TlsServer(OpensslPtr<SSL_CTX> context, TlsFiles files)
    : context_(std::move(context)), files_(std::move(files)) {
    const X509* const certificate = SSL_CTX_get0_certificate(context_.get());
    fingerprint_ = fingerprint_of(certificate);
    expires_ = time_text(X509_get0_notAfter(certificate));
}

Result<std::shared_ptr<const TlsServer>> TlsServer::load(const TlsFiles& files) {
    ERR_clear_error();
    OpensslPtr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()));
    if (!context || SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) != 1 ||
        SSL_CTX_set_cipher_list(context.get(), kCiphers) != 1 ||
        SSL_CTX_set_num_tickets(context.get(), 0) != 1)
        return error(Errc::kInternal, "OpenSSL could not prepare TLS ({}): see its configuration file",
                     openssl_reason());
    SSL_CTX_set_options(context.get(), kServerRules);
    SSL_CTX_set_mode(context.get(), kServerModes);
    // Without AUTO_RETRY SSL_read() returns after each record, also one without data: a peer that sends many
    // of those does not keep the thread that polls all connections.
    SSL_CTX_clear_mode(context.get(), SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
    // OpenSSL would ask for a passphrase at the terminal.
    SSL_CTX_set_default_passwd_cb(context.get(), [](char*, int, int, void*) { return -1; });
    std::error_code failed;
    if (!std::filesystem::exists(files.certificate, failed))
        return error(Errc::kNotFound, "there is no certificate {}; name the file with --tls-cert",
                     files.certificate.string());
    if (SSL_CTX_use_certificate_chain_file(context.get(), files.certificate.c_str()) != 1)
        return error(Errc::kInvalidArgument,
                     "{} holds no certificate that can be used ({}); it must be in PEM",
                     files.certificate.string(), openssl_reason());
    GN_TRY(use_key_file(context.get(), files.key));
    return std::shared_ptr<const TlsServer>(new TlsServer(std::move(context), files));
}

OpensslPtr<SSL> TlsServer::connection() const {
    OpensslPtr<SSL> connection(SSL_new(context_.get()));
    if (connection) SSL_set_accept_state(connection.get());
    return connection;
}

std::string TlsServer::why_invalid() const {
    const X509* const certificate = SSL_CTX_get0_certificate(context_.get());
    const char* what = nullptr;
    if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) what = "has expired";
    if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) what = "is not valid yet";
    if (what == nullptr) return "";
    return fmt::format(
        "the certificate {} {} (valid from {} to {}), so clients refuse it: replace certificate and key and "
        "restart (remove both if gnstord made them), or correct this machine's clock",
        files_.certificate.string(), what, time_text(X509_get0_notBefore(certificate)), expires_);
}

}  // namespace gnstor::daemon
