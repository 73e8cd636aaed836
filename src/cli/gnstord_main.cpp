// gnstord_main.cpp: the daemon program: opens the records and the array, serves the interface until SIGTERM
// or SIGINT.
#include "cli/array_factory.hpp"
#include "cli/background_process.hpp"
#include "cli/daemon_process.hpp"
#include "cli/etcd_options.hpp"
#include "cli/process.hpp"
#include "cli/ssd_options.hpp"
#include "cli/tls_options.hpp"
#include "daemon/decisions/in_process.hpp"
#include "daemon/http/api.hpp"
#include "daemon/http/array_address.hpp"
#include "daemon/http/build_name.hpp"
#include "daemon/http/http_server.hpp"
#include "daemon/http/ip_address.hpp"
#include "daemon/http/token_file.hpp"
#include "daemon/records/etcd_store.hpp"
#include "daemon/records/sqlite_store.hpp"
#include "daemon/standby/election.hpp"
#include "daemon/standby/role_service.hpp"
#include "embedded/node_key.hpp"

#include <gnstor/base/private_file.hpp>
#include <gnstor/base/say.hpp>
#include <gnstor/base/units.hpp>
#include <gnstor/remote_array.hpp>

#include <sys/un.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>
#include <thread>

namespace gnstor::cli {
namespace {

struct DaemonOptions {
    ArrayOptions array;
    daemon::HttpServerOptions http;                ///< of the Unix socket
    std::optional<daemon::HttpServerOptions> tcp;  ///< of TCP, if requested
    std::filesystem::path token_file;              ///< token of the TCP interface
    TlsOptions tls;                                ///< of the TCP interface
    EtcdOptions etcd;                              ///< where the records are, if not in the folder
    std::string capacity = "1GiB";
    bool quarantine = false;
};

int failed(const Starter& starter, const Error& e) {
    say(stderr, "gnstord: {}\n", e.message);
    starter.tell("gnstord: " + e.message);
    return 1;
}

/// The TCP interface.
struct Tcp {
    std::unique_ptr<daemon::HttpServer> server;  ///< null without --listen
    daemon::TcpInterface about;
    std::string token;
};

Result<Tcp> serve_tcp(daemon::HttpService& service, const DaemonOptions& options) {
    if (!options.tcp) return Tcp{};
    daemon::HttpServerOptions tcp = *options.tcp;
    GN_ASSIGN(tcp.token, daemon::read_or_make_token(options.token_file));
    GN_TRY(protect(tcp, options.tls, options.array.directory, "gnstord"));
    GN_ASSIGN(std::unique_ptr<daemon::HttpServer> server, daemon::HttpServer::start(service, tcp));
    daemon::TcpInterface about{url_of(tcp, server->port()), "", ""};
    if (tcp.tls) about = {about.url, tcp.tls->fingerprint(), tcp.tls->expires()};
    if (const std::string warning = tls_warning(tcp); !warning.empty())
        say(stderr, "gnstord: WARNING: {}\n", warning);
    say(stderr, "gnstord: serving {} on {}, with the token in {}{}\n", options.array.directory.string(),
        about.url, options.token_file.string(),
        tcp.tls ? " and the certificate " + about.fingerprint : std::string());
    return Tcp{std::move(server), about, tcp.token};
}

/// The address at which clients on other machines reach this gnstord, as far as it can tell.
std::string address_of(const DaemonOptions& options, const Tcp& tcp) {
    if (!tcp.server) return "unix:" + options.http.socket.string();
    const bool any = options.tcp->host == "0.0.0.0" || options.tcp->host == "::";
    if (!any || daemon::host_name().empty()) return tcp.about.url;
    return tcp.about.url.substr(0, tcp.about.url.find("//") + 2) +
           daemon::host_port(daemon::host_name(), tcp.server->port());
}

/// Waits for a signal; SIGUSR1: this gnstord began or ceased to lead.
int next_signal(const sigset_t& signals) {
    int signal = 0;
    ::sigwait(&signals, &signal);
    return signal;
}

/// Whether an array that could not be taken over may be tried again: the trouble may pass, or another gnstord has it.
bool may_pass(const Error& e) {
    return e.code == Errc::kIo || e.code == Errc::kTimedOut || e.code == Errc::kBusy ||
           e.code == Errc::kState;
}

/// After a leadership that could not begin.
constexpr std::chrono::seconds kPauseBeforeNextTry{1};

/// Leads until the leadership or this process is to end; returns the signal that ended it.
Result<int> lead(const DaemonOptions& options, const daemon::EtcdServers& servers,
                 const std::shared_ptr<daemon::Leadership>& leadership, const Tcp& tcp,
                 daemon::RoleService& service, const sigset_t& signals) {
    GN_ASSIGN(const std::unique_ptr<ServedArray> array,
              make_array(options.array, std::make_unique<daemon::EtcdRecordStore>(
                                            daemon::connect_etcd(servers), options.etcd.prefix, leadership)));
    daemon::Api api(array->control(), array->inspector());
    if (tcp.server) api.tell_tcp(tcp.about, tcp.token);
    const daemon::ArrayInfo info = array->inspector().inspect();
    for (const std::string& warning : info.warnings) say(stderr, "gnstord: {}\n", warning);
    service.lead(api);
    say(stderr, "gnstord: leads the array {}, with term {}\n", options.etcd.prefix, info.term);
    int signal = SIGUSR1;
    while (signal == SIGUSR1) {
        const Result<void> leads = leadership->check();
        if (!leads.ok() && leads.error().code == Errc::kState) {
            say(stderr, "gnstord: {}; it stands by\n", leads.error().message);
            break;
        }
        signal = next_signal(signals);
    }
    service.stand_by();
    return signal;
}

/// With records in etcd: stands by while another gnstord leads, and leads when none does.
Result<void> serve_by_turns(const DaemonOptions& options, const sigset_t& signals) {
    GN_ASSIGN(const daemon::EtcdServers servers, options.etcd.servers());
    std::unique_ptr<daemon::Election> election;
    std::atomic<const daemon::Election*> asked{nullptr};  ///< as `election`, for the servers' threads
    daemon::RoleService service([&asked] {
        const daemon::Election* const now =
            asked.load(std::memory_order_acquire);  // pairs with the release below
        return now == nullptr ? std::string("it is starting") : now->who_leads();
    });
    Tcp tcp;
    daemon::ElectionOptions campaign{.prefix = options.etcd.prefix,
                                     .address = "",
                                     .changed = [main = ::pthread_self()] { ::pthread_kill(main, SIGUSR1); },
                                     .now_ms = daemon::boottime_ms};
    GN_ASSIGN(tcp, serve_tcp(service, options));
    campaign.address = address_of(options, tcp);
    election = daemon::Election::start(daemon::connect_etcd(servers), std::move(campaign));
    asked.store(election.get(), std::memory_order_release);
    GN_ASSIGN(const std::unique_ptr<daemon::HttpServer> server,
              daemon::HttpServer::start(service, options.http));
    say(stderr, "gnstord: serving {} on {}, as the leader or a standby, with the records in etcd\n",
        options.array.directory.string(), options.http.socket.string());
    std::string told;
    for (int signal = SIGUSR1; signal == SIGUSR1;) {
        const std::shared_ptr<daemon::Leadership> leadership = election->leadership();
        if (!leadership) {
            signal = next_signal(signals);
            continue;
        }
        const Result<int> led = lead(options, servers, leadership, tcp, service, signals);
        if (led.ok()) {
            signal = *led;
            continue;
        }
        if (!may_pass(led.error())) return led.error();
        if (led.error().message != told)
            say(stderr, "gnstord: cannot lead the array: {}; it tries again\n", led.error().message);
        told = led.error().message;
        std::this_thread::sleep_for(kPauseBeforeNextTry);
        leadership->end();
    }
    say(stderr, "gnstord: stopping\n");
    // The servers first: their threads ask the election.
    if (tcp.server) tcp.server->stop();
    server->stop();
    election.reset();
    return {};
}

Result<void> serve(const DaemonOptions& options, const sigset_t& signals) {
    GN_TRY(make_private_folder(options.array.directory));
    // One gnstord for each folder: locked from before anything in it is opened until everything is closed.
    GN_ASSIGN(const std::unique_ptr<LockedFile> lock,
              LockedFile::take(options.array.directory / kLockFile,
                               fmt::format("another gnstord runs on {}; stop it with 'gnstor down'",
                                           options.array.directory.string())));
    // The lock of the folder itself keeps 'put --store' out (store_folder.hpp). On a read-only file system
    // the lock above may already be that one.
    std::unique_ptr<LockedFile> folder;
    if (!lock->is_folder()) {
        GN_ASSIGN(folder, LockedFile::take_folder(
                              options.array.directory,
                              fmt::format("a 'gnstor put --store' is using {}; wait until it has ended",
                                          options.array.directory.string())));
    }
    // Written before the sockets exist: a client that can connect also finds this file.
    const RemovedAtEnd pid_file{options.array.directory / kPidFile};
    if (const Result<void> written = write_pid_file(pid_file.path, ::getpid()); !written.ok()) {
        // Not fatal: the pid can also be found by the socket, and a full or read-only disk must not prevent
        // reading.
        say(stderr, "gnstord: {}; gnstord serves without a pid file\n", written.error().message);
    }
    if (options.etcd.given()) return serve_by_turns(options, signals);
    GN_ASSIGN(std::unique_ptr<daemon::SqliteRecordStore> store,
              daemon::SqliteRecordStore::open(
                  {options.array.directory / daemon::kRecordsFile, options.quarantine}));
    if (!store->quarantined().empty())
        say(stderr, "gnstord: the damaged record store was moved to {}\n", store->quarantined().string());
    GN_ASSIGN(const std::unique_ptr<ServedArray> array, make_array(options.array, std::move(store)));
    daemon::Api api(array->control(), array->inspector());
    for (const std::string& warning : array->inspector().inspect().warnings)
        say(stderr, "gnstord: {}\n", warning);
    GN_ASSIGN(const Tcp tcp, serve_tcp(api, options));
    if (tcp.server) api.tell_tcp(tcp.about, tcp.token);
    // Started last: once the socket answers, everything else runs and is in the log.
    GN_ASSIGN(const std::unique_ptr<daemon::HttpServer> server, daemon::HttpServer::start(api, options.http));
    say(stderr, "gnstord: serving {} on {}\n", options.array.directory.string(),
        options.http.socket.string());
    while (next_signal(signals) == SIGUSR1) {
    }
    say(stderr, "gnstord: stopping\n");
    if (tcp.server) tcp.server->stop();
    server->stop();
    return {};
}

/// Options as they are given, before complete().
struct CommandLine {
    std::string directory, socket, listen, token_file, socket_mode = "0600";
};

void add_options(CLI::App& app, DaemonOptions& options, CommandLine& given) {
    app.add_option("--dir", given.directory, "folder of the SSDs' stores and the records")->required();
    app.add_option("--ssds", options.array.ssds, "number of emulated SSDs")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    app.add_option("--capacity", options.capacity, "capacity of each SSD, as 512MiB or 4G")
        ->capture_default_str();
    app.add_option("--nodes", options.array.nodes,
                   "ADDR[:PORT] of the nodes ('gnstor node') whose SSDs form the array; gnstord itself then "
                   "opens no SSD")
        ->delimiter(',');
    app.add_option("--node-key", options.array.node_keys,
                   "FILE or ADDRESS=FILE with the key of the nodes, or of one node (the node's --key-file); "
                   "default: node.key in the folder, if there is one");
    app.add_option(
        "--address", options.array.address,
        "IP address of this daemon on the udp wire; default: the source address of the route to the nodes");
    app.add_option("--lease-ms", options.array.lease_ms,
                   "milliseconds that a write lease of a volume lasts unless it is renewed")
        ->check(CLI::Range(100, 86'400'000))
        ->capture_default_str();
    app.add_option("--spare-after", options.array.spare_after_s,
                   "seconds after which a slot that is out is given to a spare, if there is one and no "
                   "volume is open for "
                   "writing; 0: only 'gnstor ssd replace' does that")
        ->check(CLI::Range(0, 31'536'000))
        ->capture_default_str();
    add_scrub_options(app, options.array.scrub);
    add_ssd_options(app, options.array);
    app.add_option("--socket", given.socket, "Unix socket to serve on; default: gnstord.sock in the folder");
    app.add_option("--socket-mode", given.socket_mode,
                   "mode of the socket: 0600 for its user only, 0660 for its group too")
        ->check(CLI::IsMember({"0600", "0660"}))
        ->capture_default_str();
    CLI::Option* const listen = app.add_option(
        "--listen", given.listen,
        "HOST:PORT on which to serve TCP too, with TLS unless it is a loopback address; requests "
        "over TCP need the token");
    add_tls_options(app, options.tls, listen, "--");
    app.add_option("--token-file", given.token_file,
                   "file with the token for --listen; created if it does not exist; default: gnstord.token "
                   "in the folder");
    CLI::Option* const quarantine =
        app.add_flag("--quarantine-store", options.quarantine,
                     "rename a damaged record store and rebuild its records from the SSDs");
    add_etcd_options(app, options.etcd)->needs("--nodes")->excludes(quarantine);
}

/// Options that follow from others. kInvalidArgument: one that cannot be read.
Result<void> complete(DaemonOptions& options, const CommandLine& given) {
    options.array.directory = given.directory;
    std::error_code failed;
    if (const auto key = options.array.directory / embedded::kNodeKeyFile;
        options.array.node_keys.empty() && std::filesystem::exists(key, failed))
        options.array.node_keys.push_back(key.string());
    options.http.socket =
        given.socket.empty() ? options.array.directory / "gnstord.sock" : std::filesystem::path(given.socket);
    const Result<std::uint64_t> capacity = parse_bytes(options.capacity);
    if (!capacity.ok()) return error(Errc::kInvalidArgument, "--capacity: {}", capacity.error().message);
    options.array.ssd_capacity_bytes = *capacity;
    if (options.etcd.given()) GN_TRY(options.etcd.servers());
    options.http.socket_mode = given.socket_mode == "0660" ? 0660 : 0600;
    options.array.shm_mode = options.http.socket_mode;
    options.array.shm_socket = shm_socket_beside(options.http.socket);
    if (options.array.shm_socket.native().size() >= sizeof sockaddr_un{}.sun_path) {
        say(stderr,
            "gnstord: {} is too long for the path of a Unix socket: programs cannot reach the SSDs over the "
            "shm wire; choose a shorter path with --socket\n",
            options.array.shm_socket.string());
        options.array.shm_socket.clear();
    }
    options.token_file = given.token_file.empty() ? options.array.directory / "gnstord.token"
                                                  : std::filesystem::path(given.token_file);
    if (!given.listen.empty()) {
        const Result<daemon::ArrayAddress> where = daemon::parse_host_port(given.listen, true);
        if (!where.ok()) return error(Errc::kInvalidArgument, "--listen: {}", where.error().message);
        options.tcp.emplace();
        options.tcp->host = where->host;
        options.tcp->port = where->port;
    }
    return {};
}

}  // namespace
}  // namespace gnstor::cli

int main(int argc, char** argv) {
    using namespace gnstor;
    cli::hold_standard_descriptors();
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGXFSZ, SIG_IGN);
    const cli::Starter starter = cli::Starter::from_environment();
    cli::DaemonOptions options;
    cli::CommandLine given;
    CLI::App app("gnstord: the daemon of a GNStor array");
    app.set_version_flag("--version", "gnstord " + std::string(daemon::build_name()),
                         "print the version of this program");
    cli::add_options(app, options, given);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& e) {
        return app.exit(e) == 0 ? 0 : 2;
    }
    if (const Result<void> good = cli::complete(options, given); !good.ok())
        return say(stderr, "gnstord: {}\n", good.error().message), 2;
    // Blocked before any thread is started, so that only sigwait() receives them.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGUSR1);
    ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    const Result<void> served = cli::serve(options, signals);
    return served.ok() ? 0 : cli::failed(starter, served.error());
}
