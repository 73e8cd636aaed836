// tls_options.hpp: whether a TCP interface (of gnstord, or of a gateway) uses TLS, and with which
// certificate.
//
// An address that other machines reach has TLS unless --no-tls is given; a loopback address has it with --tls
// or --tls-cert. Without --tls-cert a self-signed certificate is made at the first start. One thread.
#pragma once

#include "daemon/http/http_server.hpp"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace gnstor::cli {

struct TlsOptions {
    bool on = false, off = false;
    std::string certificate, key;
};

/// Adds the four options, which need `listen`. `prefix`: "--" or "--http-", as that option has it.
void add_tls_options(CLI::App& app, TlsOptions& options, CLI::Option* listen, const std::string& prefix);

/// The options that were given, for gnstord's command line.
std::vector<std::string> tls_arguments(const TlsOptions& options);

/// Sets how `tcp` is protected; makes the certificate STEM.crt and its key STEM.key in `folder` if needed.
Result<void> protect(daemon::HttpServerOptions& tcp, const TlsOptions& options,
                     const std::filesystem::path& folder, const std::string& stem);

/// The address of a TCP interface: https://HOST:PORT or http://HOST:PORT.
std::string url_of(const daemon::HttpServerOptions& tcp, int port);

/// What to log about a TCP interface that has started: clear text, or a certificate that clients refuse.
/// Empty: nothing.
std::string tls_warning(const daemon::HttpServerOptions& tcp);

}  // namespace gnstor::cli
