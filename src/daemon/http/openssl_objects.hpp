// openssl_objects.hpp: owners of OpenSSL's objects, and its reason for the last failure. Any thread.
#pragma once

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <array>
#include <memory>
#include <string>

namespace gnstor::daemon {

struct OpensslFree {
    void operator()(ASN1_TIME* p) const { ASN1_TIME_free(p); }
    void operator()(BIGNUM* p) const { BN_free(p); }
    void operator()(BIO* p) const { BIO_free(p); }
    void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
    void operator()(GENERAL_NAMES* p) const { GENERAL_NAMES_free(p); }
    void operator()(SSL* p) const { SSL_free(p); }
    void operator()(SSL_CTX* p) const { SSL_CTX_free(p); }
    void operator()(X509* p) const { X509_free(p); }
    void operator()(X509_EXTENSION* p) const { X509_EXTENSION_free(p); }
};
template <class T>
using OpensslPtr = std::unique_ptr<T, OpensslFree>;

/// The first of OpenSSL's errors of this thread, whose queue it empties: later calls do not report it again.
inline std::string openssl_reason() {
    const unsigned long code = ERR_peek_error();
    ERR_clear_error();
    if (code == 0) return "no reason given";
    if (const char* const reason = ERR_reason_error_string(code); reason != nullptr) return reason;
    std::array<char, 256> text{};
    ERR_error_string_n(code, text.data(), text.size());
    return text.data();
}

}  // namespace gnstor::daemon
