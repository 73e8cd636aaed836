// cli.hpp: the gnstor command: what all its parts share. One thread.
#pragma once

#include "cli/array_factory.hpp"
#include "cli/output.hpp"
#include "daemon/http/http_client.hpp"

#include <CLI/CLI.hpp>

#include <functional>
#include <string>

namespace gnstor::cli {

/// What the command line said, and what to do about it. Subcommands set `action`; main() runs it and exits
/// with what it returns.
struct Context {
    std::string directory;         ///< --dir; default $GNSTOR_DIR, else ~/.gnstor
    bool directory_given = false;  ///< by --dir, not by default
    std::string socket;            ///< --socket; default gnstord.sock in the folder
    std::string array;       ///< --array, $GNSTOR_ARRAY: unix:PATH or http://HOST:PORT; empty: the socket
    std::string token_file;  ///< --token-file, $GNSTOR_TOKEN_FILE; default gnstord.token in the folder
    daemon::HttpClientOptions server;  ///< what these come to: resolve()
    std::string as = "gnstor";         ///< --as: the client that acts
    Output out;
    std::function<int()> action;

    /// Makes `server` of the options. Of --array http://… it reads the token.
    Result<void> resolve();
    [[nodiscard]] std::filesystem::path socket_path() const;
    [[nodiscard]] std::filesystem::path token_path() const;
    [[nodiscard]] daemon::HttpControlPlane control(
        std::chrono::milliseconds deadline = std::chrono::milliseconds(30'000)) const;
};

void add_array_commands(CLI::App& app, Context& context);   ///< up, down, status, ssd, client
void add_ssd_commands(CLI::App& app, Context& context);     ///< ssd format, info, check, recover
void add_volume_commands(CLI::App& app, Context& context);  ///< volume ...
void add_object_commands(CLI::App& app, Context& context);  ///< put, get, cat, ls, rm
void add_bench_command(CLI::App& app, Context& context);    ///< bench
void add_doctor_command(CLI::App& app, Context& context);   ///< doctor
void add_node_command(CLI::App& app, Context& context);     ///< node

void add_down_command(CLI::App& app, Context& context);    ///< of these of the array: down
void add_check_commands(CLI::App& ssd, Context& context);  ///< of `ssd`: check, recover

/// What a command ends with: a wrong value of an option is wrong usage, as a wrong option is.
[[nodiscard]] int finish(const Context& c, const Result<int>& done);

/// A size as people write it; a usage error otherwise.
[[nodiscard]] CLI::Validator size_text();

}  // namespace gnstor::cli
