// tls_rig.hpp: certificates of every kind for tests, and a TLS client that sends what a test wants. One
// thread.
#pragma once

#include "daemon/http/openssl_objects.hpp"
#include "daemon/http/tls_server.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

namespace gnstor::daemon::test {

struct CertificateWords {
    std::string names = "IP:127.0.0.1,DNS:localhost";  ///< subjectAltName
    int from_days = -1, until_days = 1;                ///< relative to now
    bool is_ca = false;
};

/// A key and its certificate, signed by `issuer` (null: by itself).
struct Identity {
    OpensslPtr<EVP_PKEY> key;
    OpensslPtr<X509> certificate;

    static Identity make(const CertificateWords& words, const Identity* issuer = nullptr) {
        Identity made{OpensslPtr<EVP_PKEY>(EVP_EC_gen("P-256")), OpensslPtr<X509>(X509_new())};
        X509* const x = made.certificate.get();
        static long serial = 1;
        ASN1_INTEGER_set(X509_get_serialNumber(x), serial++);
        X509_set_version(x, 2);
        X509_time_adj_ex(X509_getm_notBefore(x), words.from_days, 0, nullptr);
        X509_time_adj_ex(X509_getm_notAfter(x), words.until_days, 0, nullptr);
        const std::string name = "test " + std::to_string(serial);
        X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_UTF8,
                                   reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
        const X509* const signer = issuer != nullptr ? issuer->certificate.get() : x;
        X509_set_issuer_name(x, X509_get_subject_name(signer));
        X509_set_pubkey(x, made.key.get());
        extend(x, NID_basic_constraints, words.is_ca ? "critical,CA:TRUE" : "critical,CA:FALSE");
        if (!words.is_ca) extend(x, NID_subject_alt_name, words.names.c_str());
        EXPECT_NE(X509_sign(x, issuer != nullptr ? issuer->key.get() : made.key.get(), EVP_sha256()), 0);
        return made;
    }
    /// Writes both files, the key with this mode.
    [[nodiscard]] TlsFiles write(const std::filesystem::path& stem, mode_t mode = 0600,
                                 const char* passphrase = nullptr) const {
        TlsFiles files{stem.string() + ".crt", stem.string() + ".key"};
        const File crt(std::fopen(files.certificate.c_str(), "w"), &std::fclose);
        EXPECT_EQ(PEM_write_X509(crt.get(), certificate.get()), 1);
        const File out(std::fopen(files.key.c_str(), "w"), &std::fclose);
        EXPECT_EQ(
            PEM_write_PrivateKey(out.get(), key.get(), passphrase != nullptr ? EVP_aes_128_cbc() : nullptr,
                                 nullptr, 0, nullptr, const_cast<char*>(passphrase)),
            1);
        ::chmod(files.key.c_str(), mode);
        return files;
    }

  private:
    using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
    static void extend(X509* x, int kind, const char* value) {
        const OpensslPtr<X509_EXTENSION> extension(X509V3_EXT_conf_nid(nullptr, nullptr, kind, value));
        EXPECT_EQ(X509_add_ext(x, extension.get(), -1), 1) << value;
    }
};

/// A TCP connection to a port of the loopback, with a limit for each wait.
inline int connect_tcp(int port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    const timeval wait{20, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    return fd;
}

/// A TLS client that verifies nothing and blocks.
class TlsPeer {
  public:
    /// `newest`: version that it speaks at most; older ones are allowed as well.
    explicit TlsPeer(int port, int newest = TLS1_3_VERSION)
        : context_(SSL_CTX_new(TLS_client_method())), fd_(connect_tcp(port)) {
        SSL_CTX_set_security_level(context_.get(), 0);
        SSL_CTX_set_min_proto_version(context_.get(), TLS1_VERSION);
        SSL_CTX_set_max_proto_version(context_.get(), newest);
        tls_.reset(SSL_new(context_.get()));
        SSL_set_fd(tls_.get(), fd_);
        shaken_ = SSL_connect(tls_.get()) == 1;
    }
    ~TlsPeer() {
        tls_.reset();
        ::close(fd_);
    }
    TlsPeer(const TlsPeer&) = delete;
    TlsPeer& operator=(const TlsPeer&) = delete;
    [[nodiscard]] bool is_connected() const { return shaken_; }
    [[nodiscard]] int version() const { return SSL_version(tls_.get()); }
    void send(const std::string& bytes) {
        ASSERT_EQ(SSL_write(tls_.get(), bytes.data(), static_cast<int>(bytes.size())),
                  static_cast<int>(bytes.size()));
    }
    /// All that comes until the server ends the connection; `clean`: by close_notify.
    std::string rest(bool* clean = nullptr) {
        std::string all;
        char buffer[4096];
        int n = 0;
        while ((n = SSL_read(tls_.get(), buffer, sizeof(buffer))) > 0)
            all.append(buffer, static_cast<std::size_t>(n));
        if (clean != nullptr) *clean = SSL_get_error(tls_.get(), n) == SSL_ERROR_ZERO_RETURN;
        return all;
    }

  private:
    const OpensslPtr<SSL_CTX> context_;
    const int fd_;
    OpensslPtr<SSL> tls_;
    bool shaken_ = false;
};

/// The first bytes of a client's handshake.
inline std::string client_hello() {
    const OpensslPtr<SSL_CTX> context(SSL_CTX_new(TLS_client_method()));
    const OpensslPtr<SSL> tls(SSL_new(context.get()));
    BIO* const out = BIO_new(BIO_s_mem());
    SSL_set_bio(tls.get(), BIO_new(BIO_s_mem()), out);  // which own them now
    SSL_connect(tls.get());
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(out, &bytes);
    ERR_clear_error();
    return {bytes, static_cast<std::size_t>(size)};
}

}  // namespace gnstor::daemon::test
