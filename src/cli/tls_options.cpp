#include "cli/tls_options.hpp"

#include "daemon/http/ip_address.hpp"

namespace gnstor::cli {

void add_tls_options(CLI::App& app, TlsOptions& options, CLI::Option* listen, const std::string& prefix) {
    CLI::Option* const on =
        app.add_flag(prefix + "tls", options.on,
                     fmt::format("use TLS with {} also on a loopback address; on others it is used anyway",
                                 listen->get_name()));
    CLI::Option* const off = app.add_flag(
        prefix + "no-tls", options.off,
        "serve plain HTTP also on an address that other machines reach: the token then crosses the "
        "network in clear text");
    CLI::Option* const certificate = app.add_option(
        prefix + "tls-cert", options.certificate,
        "certificate (PEM, followed by those of intermediate CAs); default: a self-signed one, "
        "made at the first start");
    CLI::Option* const key = app.add_option(prefix + "tls-key", options.key,
                                            "private key of the certificate (PEM, mode 0600, no passphrase)");
    for (CLI::Option* const option : {on, off, certificate, key}) option->needs(listen);
    certificate->needs(key);
    key->needs(certificate);
    off->excludes(on)->excludes(certificate);
}

std::vector<std::string> tls_arguments(const TlsOptions& options) {
    std::vector<std::string> words;
    if (options.on) words.emplace_back("--tls");
    if (options.off) words.emplace_back("--no-tls");
    if (!options.certificate.empty()) words.insert(words.end(), {"--tls-cert", options.certificate});
    if (!options.key.empty()) words.insert(words.end(), {"--tls-key", options.key});
    return words;
}

Result<void> protect(daemon::HttpServerOptions& tcp, const TlsOptions& options,
                     const std::filesystem::path& folder, const std::string& stem) {
    tcp.clear_text = options.off;
    const bool named = !options.certificate.empty();
    if (options.off || (!options.on && !named && daemon::is_loopback(tcp.host))) return {};
    daemon::TlsFiles files{options.certificate, options.key};
    if (!named) {
        files = {folder / (stem + ".crt"), folder / (stem + ".key")};
        GN_TRY(daemon::make_self_signed(files, tcp.host));
    }
    GN_ASSIGN(tcp.tls, daemon::TlsServer::load(files));
    return {};
}

std::string url_of(const daemon::HttpServerOptions& tcp, int port) {
    return (tcp.tls ? "https://" : "http://") + daemon::host_port(tcp.host, port);
}

std::string tls_warning(const daemon::HttpServerOptions& tcp) {
    if (tcp.tls) return tcp.tls->why_invalid();
    if (!tcp.clear_text || daemon::is_loopback(tcp.host)) return "";
    return fmt::format(
        "no TLS on {} (--no-tls): everybody who sees this network's packets can read the token and use the "
        "array",
        tcp.host);
}

}  // namespace gnstor::cli
