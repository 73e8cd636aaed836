// tls_certificate.hpp: X.509 certificates of the HTTP interface: fingerprints, and self-signed ones.
//
// A fingerprint is the SHA-256 of the certificate in DER, written "SHA256:" and 64 hexadecimal digits. RFC
// 5280. Host code; any thread.
#pragma once

#include <gnstor/base/result.hpp>

#include <openssl/types.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace gnstor::daemon {

/// The certificate (PEM; may be followed by those of intermediate CAs) and its private key (PEM, without a
/// passphrase, accessible to its owner only).
struct TlsFiles {
    std::filesystem::path certificate, key;
};

[[nodiscard]] std::string fingerprint_of(const X509* certificate);

/// The same text from what people copy: upper case, and colons between the bytes as `openssl x509
/// -fingerprint` prints them. kInvalidArgument for anything else.
Result<std::string> parse_fingerprint(std::string_view text);

/// The names and addresses that a certificate is for, separated by commas.
[[nodiscard]] std::string names_in(const X509* certificate);

/// A time of a certificate, as "2036-11-27 12:00:00 UTC".
[[nodiscard]] std::string time_text(const ASN1_TIME* time);

/// Creates those of the two files that do not exist: an ECDSA P-256 key, and a certificate signed by that key
/// for `host` (an IP address or a name) and this machine's host name, valid for ten years.
Result<void> make_self_signed(const TlsFiles& files, const std::string& host);

/// The key of a file. kPermission: other users may access it; kInvalidArgument: no usable key in it.
Result<void> use_key_file(SSL_CTX* context, const std::filesystem::path& file);

}  // namespace gnstor::daemon
