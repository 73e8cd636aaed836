#include "daemon/http/tls_certificate.hpp"

#include <gnstor/base/private_file.hpp>
#include "daemon/http/ip_address.hpp"
#include "daemon/http/openssl_objects.hpp"

#include <arpa/inet.h>
#include <openssl/bn.h>
#include <openssl/pem.h>

#include <array>
#include <cctype>
#include <cstring>
#include <ctime>
#include <vector>

namespace gnstor::daemon {
namespace {

constexpr std::string_view kPrefix = "SHA256:";
constexpr std::size_t kDigestBytes = 32, kKeyFileBytes = 65'536, kAddressText = INET6_ADDRSTRLEN;
constexpr int kSerialBits = 127;  // RFC 5280, 4.1.2.2: positive, at most 20 octets
// From a day ago: clocks of clients may be behind.
constexpr int kValidFromDays = -1, kValidDays = 3650;
constexpr PrivateFileWords kKeyWords{
    "TLS key", "make a new key and certificate (one that gnstord made: remove both files and restart it)"};

Error openssl_failed(std::string_view tried) {
    return error(Errc::kInternal, "OpenSSL could not {}: {}", tried, openssl_reason());
}

/// subjectAltName of a self-signed certificate, as X509V3_EXT_conf_nid() reads it.
std::string alternative_names(const std::string& host) {
    std::vector<std::string> names;
    // A wildcard address names no host.
    if (is_ip_address(host) && host != "0.0.0.0" && host != "::") names.push_back("IP:" + host);
    if (!is_ip_address(host)) names.push_back("DNS:" + host);
    if (const std::string name = host_name(); !name.empty() && name != host) names.push_back("DNS:" + name);
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
    return text.empty() ? "DNS:localhost" : text;
}

bool add_extension(X509* certificate, int kind, const std::string& value) {
    X509V3_CTX context{};
    X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
    const OpensslPtr<X509_EXTENSION> extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
    return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool set_serial(X509* certificate) {
    const OpensslPtr<BIGNUM> number(BN_new());
    return number != nullptr &&
           BN_rand(number.get(), kSerialBits, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
           BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

bool set_validity(X509* certificate) {
    return X509_time_adj_ex(X509_getm_notBefore(certificate), kValidFromDays, 0, nullptr) != nullptr &&
           X509_time_adj_ex(X509_getm_notAfter(certificate), kValidDays, 0, nullptr) != nullptr;
}

Result<OpensslPtr<X509>> self_signed(EVP_PKEY* key, const std::string& host) {
    OpensslPtr<X509> certificate(X509_new());
    if (!certificate) return openssl_failed("make a certificate");
    X509_NAME* const subject = X509_get_subject_name(certificate.get());
    const auto* const name = reinterpret_cast<const unsigned char*>("gnstor");
    const bool made = X509_set_version(certificate.get(), X509_VERSION_3) == 1 &&
                      set_serial(certificate.get()) && set_validity(certificate.get()) &&
                      X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, name, -1, -1, 0) == 1 &&
                      X509_set_issuer_name(certificate.get(), subject) == 1 &&
                      X509_set_pubkey(certificate.get(), key) == 1 &&
                      add_extension(certificate.get(), NID_basic_constraints, "critical,CA:FALSE") &&
                      add_extension(certificate.get(), NID_key_usage, "critical,digitalSignature") &&
                      add_extension(certificate.get(), NID_ext_key_usage, "serverAuth") &&
                      add_extension(certificate.get(), NID_subject_key_identifier, "hash") &&
                      add_extension(certificate.get(), NID_subject_alt_name, alternative_names(host)) &&
                      X509_sign(certificate.get(), key, EVP_sha256()) != 0;
    if (!made) return openssl_failed(fmt::format("make a certificate for '{}'", host));
    return certificate;
}

std::string text_of(BIO* memory) {
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(memory, &bytes);
    return size > 0 ? std::string(bytes, static_cast<std::size_t>(size)) : std::string();
}

/// OpenSSL would ask for a passphrase at the terminal.
int no_passphrase(char*, int, int, void*) {
    return -1;
}

Result<OpensslPtr<EVP_PKEY>> read_key(const std::filesystem::path& file) {
    GN_ASSIGN(std::string text, read_private_file(file, kKeyFileBytes, kKeyWords));
    const OpensslPtr<BIO> memory(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
    OpensslPtr<EVP_PKEY> key(memory ? PEM_read_bio_PrivateKey(memory.get(), nullptr, no_passphrase, nullptr)
                                    : nullptr);
    OPENSSL_cleanse(text.data(), text.size());
    if (key) return key;
    return error(Errc::kInvalidArgument,
                 "{} holds no private key that can be read ({}); it must be in PEM and have no passphrase",
                 file.string(), openssl_reason());
}

Result<void> make_key(const std::filesystem::path& file) {
    const OpensslPtr<EVP_PKEY> key(EVP_EC_gen("P-256"));
    const OpensslPtr<BIO> memory(BIO_new(BIO_s_secmem()));
    if (!key || !memory ||
        PEM_write_bio_PrivateKey(memory.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1)
        return openssl_failed("make a key");
    std::string text = text_of(memory.get());
    const Result<void> created = create_file(file, text, 0600, kKeyWords.name);
    OPENSSL_cleanse(text.data(), text.size());
    return created;
}

}  // namespace

std::string fingerprint_of(const X509* certificate) {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned size = 0;
    if (X509_digest(certificate, EVP_sha256(), digest.data(), &size) != 1) return "";
    std::string text(kPrefix);
    for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
    return text;
}

Result<std::string> parse_fingerprint(std::string_view text) {
    const auto wrong = [&] {
        return error(Errc::kInvalidArgument,
                     "'{}' is not the fingerprint of a certificate; write SHA256: and the 64 hexadecimal "
                     "digits that 'gnstor status' shows on the machine of the array",
                     text);
    };
    if (text.substr(0, kPrefix.size()) != kPrefix) return wrong();
    std::string out(kPrefix);
    std::size_t digits = 0;
    bool separated = true;  // by a colon, or at the beginning
    for (const char c : text.substr(kPrefix.size())) {
        if (c == ':' && !separated && digits % 2 == 0) {
            separated = true;
            continue;
        }
        if (std::isxdigit(static_cast<unsigned char>(c)) == 0) return wrong();
        separated = false;
        ++digits;
        out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    if (digits != 2 * kDigestBytes || separated) return wrong();
    return out;
}

std::string names_in(const X509* certificate) {
    const OpensslPtr<GENERAL_NAMES> names(
        static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
    std::string text;
    for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
        const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
        if (name->type != GEN_DNS && name->type != GEN_IPADD) continue;
        const ASN1_STRING* const value = name->type == GEN_DNS ? name->d.dNSName : name->d.iPAddress;
        const unsigned char* const bytes = ASN1_STRING_get0_data(value);
        const int size = ASN1_STRING_length(value);
        std::array<char, kAddressText> address{};
        std::string one(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
        if (name->type == GEN_IPADD && (size == 4 || size == 16))
            one = ::inet_ntop(size == 4 ? AF_INET : AF_INET6, bytes, address.data(), address.size());
        // The bytes come from an unverified peer: unprintable ones must not reach a terminal.
        for (char& c : one)
            if (std::isprint(static_cast<unsigned char>(c)) == 0) c = '?';
        text += (text.empty() ? "" : ", ") + one;
    }
    return text.empty() ? "no name" : text;
}

std::string time_text(const ASN1_TIME* time) {
    std::tm fields{};
    if (ASN1_TIME_to_tm(time, &fields) != 1) return "an unreadable time";
    std::array<char, 32> text{};
    std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &fields);
    return text.data();
}

Result<void> make_self_signed(const TlsFiles& files, const std::string& host) {
    std::error_code failed;
    const bool has_key = std::filesystem::exists(files.key, failed);
    const bool has_certificate = std::filesystem::exists(files.certificate, failed);
    if (has_key && has_certificate) return {};
    if (has_certificate)
        return error(Errc::kNotFound,
                     "the certificate {} has no key {}: bring the key back, or remove the certificate, and "
                     "a new pair is made (clients that have its fingerprint then need the new one)",
                     files.certificate.string(), files.key.string());
    ERR_clear_error();
    // The key first: a crash between the two leaves a key, for which the next start makes a certificate.
    if (!has_key) GN_TRY(make_key(files.key));
    GN_ASSIGN(const OpensslPtr<EVP_PKEY> key, read_key(files.key));
    GN_ASSIGN(const OpensslPtr<X509> certificate, self_signed(key.get(), host));
    const OpensslPtr<BIO> memory(BIO_new(BIO_s_mem()));
    if (!memory || PEM_write_bio_X509(memory.get(), certificate.get()) != 1)
        return openssl_failed("write a certificate");
    return create_file(files.certificate, text_of(memory.get()), 0644, "TLS certificate");
}

Result<void> use_key_file(SSL_CTX* context, const std::filesystem::path& file) {
    ERR_clear_error();
    GN_ASSIGN(const OpensslPtr<EVP_PKEY> key, read_key(file));
    if (SSL_CTX_use_PrivateKey(context, key.get()) == 1 && SSL_CTX_check_private_key(context) == 1) return {};
    return error(Errc::kInvalidArgument, "the key {} does not belong to the certificate ({}); name a pair",
                 file.string(), openssl_reason());
}

}  // namespace gnstor::daemon
