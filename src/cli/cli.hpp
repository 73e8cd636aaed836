// cli.hpp: the context and helpers that all subcommands of the gnstor command share. One thread.
#pragma once

#include "cli/array_factory.hpp"
#include "cli/output.hpp"
#include "daemon/http/array_address.hpp"
#include "daemon/http/http_client.hpp"

#include <gnstor/remote_array.hpp>

#include <CLI/CLI.hpp>

#include <functional>
#include <string>

namespace gnstor::cli {

/// The parsed command line. A subcommand sets `action`; main() runs it and exits with its result.
struct Context {
    std::string directory;         ///< --dir; default $GNSTOR_DIR, else ~/.gnstor
    bool directory_given = false;  ///< --dir was given on the command line
    std::string socket;            ///< --socket; default gnstord.sock in the folder
    /// --array, $GNSTOR_ARRAY: unix:PATH, https:// or http://HOST:PORT, several with commas; empty: the socket
    std::string array;
    std::string token_file;  ///< --token-file, $GNSTOR_TOKEN_FILE; default gnstord.token in the folder
    daemon::TlsWords tls;    ///< --tls-ca, $GNSTOR_TLS_CA; --tls-fingerprint, $GNSTOR_TLS_FINGERPRINT
    daemon::HttpClientOptions server;  ///< how to reach gnstord; set by resolve() from the options above
    std::string as = "gnstor";         ///< --as: name of the client that the command acts for
    Output out;
    std::function<int()> action;

    /// Sets `server` from the options; reads the token file if --array is https://… or http://….
    Result<void> resolve();
    [[nodiscard]] std::filesystem::path socket_path() const;
    [[nodiscard]] std::filesystem::path token_path() const;
    /// The same array for programs that also reach its SSDs; without an address on the wire.
    [[nodiscard]] RemoteArrayOptions remote_array() const;
    [[nodiscard]] daemon::HttpControlPlane control(
        std::chrono::milliseconds deadline = std::chrono::milliseconds(30'000)) const;
};

void add_array_commands(CLI::App& app, Context& context);   ///< up, down, status, ssd
void add_client_commands(CLI::App& app, Context& context);  ///< client ...
void add_ssd_commands(CLI::App& app, Context& context);     ///< ssd format, info, check, recover, reset-term
void add_volume_commands(CLI::App& app, Context& context);  ///< volume ...
void add_object_commands(CLI::App& app, Context& context);  ///< put, get, cat, ls, rm
void add_bench_command(CLI::App& app, Context& context);    ///< bench
void add_doctor_command(CLI::App& app, Context& context);   ///< doctor
void add_node_command(CLI::App& app, Context& context);     ///< node
void add_gateway_command(CLI::App& app, Context& context);  ///< gateway host ...
void add_health_commands(CLI::App& app, Context& context);  ///< health, df
void add_records_command(CLI::App& app, Context& context);  ///< records copy, records move
void add_events_command(CLI::App& app, Context& context);   ///< events

void add_down_command(CLI::App& app, Context& context);    ///< down
void add_check_commands(CLI::App& ssd, Context& context);  ///< of `ssd`: check, recover
void add_scrub_command(CLI::App& app, Context& context);
void add_replace_command(CLI::App& ssd, Context& context);  ///< of `ssd`: replace
/// A line for `gnstor status`. `rebuild`: as GET /v1/status returns it.
[[nodiscard]] std::string describe_rebuild(const nlohmann::json& rebuild);

/// Exit code of a command, after printing its error: kUsage for kInvalidArgument, kFailed for any other.
[[nodiscard]] int finish(const Context& c, const Result<int>& done);

/// Accepts sizes such as 512MiB or 4G; any other text is a usage error.
[[nodiscard]] CLI::Validator size_text();

}  // namespace gnstor::cli
