// gnstord_main.cpp: the daemon program: opens the records and the array, serves the interface until SIGTERM
// or SIGINT.
#include "cli/array_factory.hpp"
#include "cli/daemon_process.hpp"
#include "cli/process.hpp"
#include "cli/ssd_options.hpp"
#include "daemon/api.hpp"
#include "daemon/http_server.hpp"
#include "daemon/sqlite_store.hpp"

#include <gnstor/base/units.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <csignal>
#include <cstdio>

namespace gnstor::cli {
namespace {

struct DaemonOptions {
    ArrayOptions array;
    daemon::HttpServerOptions http;
    std::string capacity = "1GiB";
    std::string listen;
    bool quarantine = false;
};

int failed(const Error& e) {
    fmt::print(stderr, "gnstord: {}\n", e.message);
    return 1;
}

Result<void> read_listen(const std::string& text, daemon::HttpServerOptions& http) {
    const auto colon = text.rfind(':');
    char* end = nullptr;
    const long port = colon == std::string::npos ? -1 : std::strtol(text.c_str() + colon + 1, &end, 10);
    if (port < 0 || port > 65535 || end == text.c_str() + colon + 1 || *end != 0)
        return error(Errc::kInvalidArgument, "--listen {} is not HOST:PORT", text);
    http.host = text.substr(0, colon);
    http.port = static_cast<int>(port);
    http.socket.clear();
    return {};
}

/// Is gone when the daemon has closed everything it opened after writing it.
struct PidFile {
    const std::filesystem::path path;
    explicit PidFile(std::filesystem::path p) : path(std::move(p)) {}
    PidFile(const PidFile&) = delete;
    PidFile& operator=(const PidFile&) = delete;
    ~PidFile() {
        std::error_code failed;
        std::filesystem::remove(path, failed);
    }
};

Result<void> serve(const DaemonOptions& options, const sigset_t& signals) {
    std::error_code failure;
    std::filesystem::create_directories(options.array.directory, failure);
    if (failure)
        return error(Errc::kIo, "the folder {} cannot be made: {}", options.array.directory.string(),
                     failure.message());
    // One gnstord a folder, from before anything in it is opened until everything is closed.
    const auto lock = options.array.directory / kLockFile;
    const int fd = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return error(Errc::kIo, "{} cannot be made: {}", lock.string(), std::strerror(errno));
    const std::unique_ptr<const int, void (*)(const int*)> held(&fd, [](const int* f) { ::close(*f); });
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0)
        return error(Errc::kBusy, "another gnstord runs on {}; stop it with 'gnstor down'",
                     options.array.directory.string());
    // Written before anybody can connect: who finds the socket answering finds this file too.
    const PidFile pid_file{options.array.directory / kPidFile};
    GN_TRY(write_pid_file(pid_file.path, ::getpid()));
    GN_ASSIGN(std::unique_ptr<daemon::SqliteRecordStore> store,
              daemon::SqliteRecordStore::open({options.array.directory / "records.db", options.quarantine}));
    if (!store->quarantined().empty())
        fmt::print(stderr, "gnstord: the damaged record store lies in {}\n", store->quarantined().string());
    GN_ASSIGN(const std::unique_ptr<ServedArray> array, make_array(options.array, std::move(store)));
    daemon::Api api(array->control(), array->inspector());
    GN_ASSIGN(const std::unique_ptr<daemon::HttpServer> server, daemon::HttpServer::start(api, options.http));
    for (const std::string& warning : array->inspector().inspect().warnings)
        fmt::print(stderr, "gnstord: {}\n", warning);
    fmt::print(stderr, "gnstord: serving {} on {}\n", options.array.directory.string(),
               options.http.socket.empty() ? fmt::format("{}:{}", options.http.host, server->port())
                                           : options.http.socket.string());
    int signal = 0;
    ::sigwait(&signals, &signal);
    fmt::print(stderr, "gnstord: stopping\n");
    server->stop();
    return {};
}

}  // namespace
}  // namespace gnstor::cli

int main(int argc, char** argv) {
    using namespace gnstor;
    cli::DaemonOptions options;
    std::string directory, socket;
    CLI::App app("gnstord: the daemon of a GNStor array");
    app.add_option("--dir", directory, "folder of the SSDs' stores and the records")->required();
    app.add_option("--ssds", options.array.ssds, "emulated SSDs")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    app.add_option("--capacity", options.capacity, "of each SSD, as 512MiB or 4G")->capture_default_str();
    app.add_option("--lease-ms", options.array.lease_ms, "how long the right to write lasts")
        ->check(CLI::Range(100, 86'400'000))
        ->capture_default_str();
    cli::add_ssd_options(app, options.array);
    app.add_option("--socket", socket, "Unix socket to serve on; default: gnstord.sock in the folder");
    app.add_option("--listen", options.listen, "HOST:PORT to serve on instead");
    app.add_flag("--quarantine-store", options.quarantine,
                 "set a damaged record store aside and rebuild it from the SSDs");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        return app.exit(e) == 0 ? 0 : 2;
    }
    options.array.directory = directory;
    options.http.socket =
        socket.empty() ? options.array.directory / "gnstord.sock" : std::filesystem::path(socket);
    const Result<std::uint64_t> capacity = parse_bytes(options.capacity);
    if (!capacity.ok()) return fmt::print(stderr, "gnstord: --capacity: {}\n", capacity.error().message), 2;
    options.array.ssd_capacity_bytes = *capacity;
    if (!options.listen.empty())
        if (const Result<void> good = cli::read_listen(options.listen, options.http); !good.ok())
            return fmt::print(stderr, "gnstord: {}\n", good.error().message), 2;
    // Blocked before any thread is started, so that sigwait() alone hears them.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGXFSZ, SIG_IGN);
    const Result<void> served = cli::serve(options, signals);
    return served.ok() ? 0 : cli::failed(served.error());
}
