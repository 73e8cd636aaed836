// cli.cpp: main() of the gnstor command. Exit codes: 0 done, 1 it failed, 2 wrong usage.
#include "cli/cli.hpp"

#include "cli/process.hpp"
#include "daemon/http/array_address.hpp"
#include "daemon/http/build_name.hpp"
#include "daemon/http/tls_certificate.hpp"

#include <csignal>
#include <cstdlib>

namespace gnstor::cli {
namespace {

std::string default_directory() {
    if (const char* named = std::getenv("GNSTOR_DIR"); named != nullptr && *named != 0) return named;
    const char* home = std::getenv("HOME");
    return std::string(home == nullptr ? "." : home) + "/.gnstor";
}

/// Accepts what `parse` parses; else its error is the user's.
template <class Parse>
CLI::Validator parsed_by(Parse parse, const char* name) {
    return CLI::Validator(
        [parse](const std::string& text) {
            const auto good = parse(text);
            return good.ok() ? std::string() : good.error().message;
        },
        name);
}

/// How to reach gnstord elsewhere.
void add_connection_options(CLI::App& app, Context& context) {
    app.add_option("--array", context.array,
                   "address of gnstord: unix:PATH of its socket, https://HOST:PORT or http://HOST:PORT; with "
                   "commas between them those of all gnstords of the array; default: --socket")
        ->envname("GNSTOR_ARRAY")
        ->check(parsed_by(daemon::parse_array_addresses, "ADDRESS"));
    app.add_option("--token-file", context.token_file,
                   "file with the token that gnstord requires over TCP; default: gnstord.token in the folder")
        ->envname("GNSTOR_TOKEN_FILE");
    app.add_option("--tls-ca", context.tls.ca_file,
                   "for https://: file (PEM) with the CA of gnstord's certificate, or with that certificate; "
                   "default: the CAs that the system trusts")
        ->envname("GNSTOR_TLS_CA");
    app.add_option(
           "--tls-fingerprint", context.tls.fingerprint,
           "for https://: SHA256:... of gnstord's certificate, as 'gnstor status' shows it; trusts this "
           "certificate and no other")
        ->envname("GNSTOR_TLS_FINGERPRINT")
        ->check(parsed_by(daemon::parse_fingerprint, "SHA256:HEX"));
}

}  // namespace
}  // namespace gnstor::cli

int main(int argc, char** argv) {
    using namespace gnstor::cli;
    hold_standard_descriptors();
    Context context;
    context.directory = default_directory();
    std::string output = "table";
    CLI::App app("gnstor: an all-flash array that GPU kernels read and write directly");
    app.set_version_flag("--version", "gnstor " + std::string(gnstor::daemon::build_name()),
                         "print the version of this program");
    app.require_subcommand(1);
    app.fallthrough();
    CLI::Option* directory =
        app.add_option("--dir", context.directory, "folder of the array (environment: GNSTOR_DIR)")
            ->capture_default_str();
    app.add_option("--socket", context.socket, "Unix socket of gnstord; default: gnstord.sock in the folder");
    add_connection_options(app, context);
    app.add_option("--output", output, "table for people, json for programs")
        ->check(CLI::IsMember({"table", "json"}))
        ->capture_default_str();
    app.add_option("--as", context.as, "name of the client that the command acts for")
        ->envname("GNSTOR_CLIENT")
        ->capture_default_str();
    add_array_commands(app, context);
    add_health_commands(app, context);
    add_events_command(app, context);
    add_scrub_command(app, context);
    add_client_commands(app, context);
    add_ssd_commands(app, context);
    add_volume_commands(app, context);
    add_object_commands(app, context);
    add_bench_command(app, context);
    add_doctor_command(app, context);
    add_node_command(app, context);
    add_gateway_command(app, context);
    add_records_command(app, context);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        const int code = app.exit(e) == 0 ? kOk : kUsage;
        return context.out.finish(code);
    }
    context.out.json = output == "json";
    context.directory_given = directory->count() > 0;
    // Ignored, so that a write past the file size limit or to a closed pipe fails with an error that is
    // reported; the signal would end the program without a message.
    ::signal(SIGXFSZ, SIG_IGN);
    ::signal(SIGPIPE, SIG_IGN);
    if (const auto resolved = context.resolve(); !resolved.ok()) return context.out.fail(resolved.error());
    try {
        return context.out.finish(context.action());
    } catch (const std::exception& e) {
        return context.out.fail(gnstor::error(
            gnstor::Errc::kInternal,
            "unexpected error: {}; this is a defect of gnstor, or the program that answered is not gnstord",
            e.what()));
    }
}
