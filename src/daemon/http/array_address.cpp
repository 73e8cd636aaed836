#include "daemon/http/array_address.hpp"

#include "daemon/http/tls_certificate.hpp"
#include "daemon/http/token_file.hpp"

#include <charconv>

namespace gnstor::daemon {
namespace {

constexpr std::string_view kUnix = "unix:", kHttp = "http://", kHttps = "https://";

bool is_host_letter(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_';
}

/// The pieces of a text with commas between them; one at least, which may be empty.
std::vector<std::string_view> between_commas(std::string_view text) {
    std::vector<std::string_view> pieces;
    for (std::size_t comma; (comma = text.find(',')) != std::string_view::npos; text.remove_prefix(comma + 1))
        pieces.push_back(text.substr(0, comma));
    pieces.push_back(text);
    return pieces;
}

/// The trust of a client for https.
Result<TlsTrust> trust_of(const TlsWords& words) {
    TlsTrust trust{words.ca_file, ""};
    if (words.fingerprint.empty()) return trust;
    if (!words.ca_file.empty())
        return error(Errc::kInvalidArgument,
                     "--tls-ca (GNSTOR_TLS_CA) and --tls-fingerprint (GNSTOR_TLS_FINGERPRINT) both say which "
                     "server to trust; leave one of them out");
    GN_ASSIGN(trust.fingerprint, parse_fingerprint(words.fingerprint));
    return trust;
}

}  // namespace

Result<ArrayAddress> parse_host_port(std::string_view text, bool any_port) {
    const auto wrong = [&] {
        return error(Errc::kInvalidArgument,
                     "'{}' is not HOST:PORT, as 127.0.0.1:8470, storage1:8470 or [fd00::1]:8470", text);
    };
    const auto colon = text.rfind(':');
    if (colon == std::string_view::npos) return wrong();
    ArrayAddress out;
    std::string_view host = text.substr(0, colon);
    const std::string_view port = text.substr(colon + 1);
    const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
    if (bracketed) host = host.substr(1, host.size() - 2);
    for (const char c : host)
        if (!is_host_letter(c) && !(bracketed && (c == ':' || c == '%'))) return wrong();
    const auto [end, failed] = std::from_chars(port.data(), port.data() + port.size(), out.port);
    if (host.empty() || failed != std::errc() || end != port.data() + port.size() || port.empty())
        return wrong();
    if (out.port == 0 && !any_port) return wrong();
    out.host = host;
    return out;
}

Result<ArrayAddress> parse_array_address(std::string_view text) {
    if (text.substr(0, kUnix.size()) == kUnix && text.size() > kUnix.size()) {
        ArrayAddress out;
        out.socket = std::string(text.substr(kUnix.size()));
        return out;
    }
    for (const std::string_view scheme : {kHttp, kHttps}) {
        if (text.substr(0, scheme.size()) != scheme) continue;
        std::string_view rest = text.substr(scheme.size());
        if (!rest.empty() && rest.back() == '/') rest.remove_suffix(1);
        GN_ASSIGN(ArrayAddress out, parse_host_port(rest, false));
        out.tls = scheme == kHttps;
        return out;
    }
    return error(Errc::kInvalidArgument,
                 "'{}' is not the address of an array; write unix:PATH of the socket of its gnstord, "
                 "https://HOST:PORT or http://HOST:PORT",
                 text);
}

Result<std::vector<ArrayAddress>> parse_array_addresses(std::string_view text) {
    std::vector<ArrayAddress> all;
    for (const std::string_view one : between_commas(text)) {
        GN_ASSIGN(ArrayAddress address, parse_array_address(one));
        all.push_back(std::move(address));
    }
    return all;
}

namespace {

Result<HttpClientOptions> options_of_one(std::string_view array, const std::filesystem::path& token_file,
                                         const TlsWords& words) {
    GN_ASSIGN(const ArrayAddress where, parse_array_address(array));
    HttpClientOptions options;
    options.socket = where.socket;
    if (!where.socket.empty()) return options;
    options.host = where.host;
    options.port = where.port;
    if (where.tls) {
        GN_ASSIGN(options.tls, trust_of(words));
    } else if (!words.ca_file.empty() || !words.fingerprint.empty()) {
        return error(Errc::kInvalidArgument,
                     "a certificate is named (--tls-ca or --tls-fingerprint, GNSTOR_TLS_CA or "
                     "GNSTOR_TLS_FINGERPRINT), but {} is plain HTTP: write https://",
                     array);
    }
    const Result<std::string> token = read_token(token_file);
    if (!token.ok())
        return error(token.error().code,
                     "{} requires a token: {}; copy the daemon's token file (gnstord.token in its folder) "
                     "and name it with --token-file",
                     array, token.error().message);
    options.token = *token;
    return options;
}

}  // namespace

Result<HttpClientOptions> client_options(std::string_view array, const std::filesystem::path& token_file,
                                         const TlsWords& words) {
    const std::vector<std::string_view> all = between_commas(array);
    GN_ASSIGN(HttpClientOptions options, options_of_one(all.front(), token_file, words));
    for (std::size_t i = 1; i < all.size(); ++i) {
        GN_ASSIGN(HttpClientOptions other, options_of_one(all[i], token_file, words));
        options.others.push_back(std::move(other));
    }
    return options;
}

}  // namespace gnstor::daemon
