// context.cpp: code shared by all subcommands: where the array is, the connection to gnstord, the check of a
// size.
#include "cli/cli.hpp"

#include "daemon/http/array_address.hpp"

#include <gnstor/base/units.hpp>

namespace gnstor::cli {

std::filesystem::path Context::socket_path() const {
    return socket.empty() ? std::filesystem::path(directory) / "gnstord.sock" : std::filesystem::path(socket);
}

std::filesystem::path Context::token_path() const {
    return token_file.empty() ? std::filesystem::path(directory) / "gnstord.token"
                              : std::filesystem::path(token_file);
}

Result<void> Context::resolve() {
    server.socket = socket_path();
    if (array.empty()) return {};
    GN_ASSIGN(server, daemon::client_options(array, token_path(), tls));
    return {};
}

RemoteArrayOptions Context::remote_array() const {
    RemoteArrayOptions options;
    options.array = array.empty() ? "unix:" + socket_path().string() : array;
    options.token_file = token_path().string();
    options.tls_ca = tls.ca_file.string();
    options.tls_fingerprint = tls.fingerprint;
    return options;
}

daemon::HttpControlPlane Context::control(std::chrono::milliseconds deadline) const {
    daemon::HttpClientOptions options = server;
    options.deadline = deadline;
    return daemon::HttpControlPlane(options);
}

CLI::Validator size_text() {
    return CLI::Validator(
        [](const std::string& text) {
            const Result<std::uint64_t> bytes = parse_bytes(text);
            return bytes.ok() ? std::string() : bytes.error().message;
        },
        "SIZE");
}

}  // namespace gnstor::cli
