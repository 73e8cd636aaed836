#include "cli/node_process.hpp"

#include "cli/daemon_process.hpp"
#include "cli/output.hpp"
#include "cli/process.hpp"
#include "daemon/http/build_name.hpp"
#include "daemon/http/gateway_api.hpp"
#include "daemon/http/ip_address.hpp"
#include "daemon/http/token_file.hpp"

#include <gnstor/base/private_file.hpp>
#include <gnstor/base/say.hpp>
#include <gnstor/base/shell_word.hpp>
#include <gnstor/base/units.hpp>

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace gnstor::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json describe(const NodeOptions& o, const ServedNode& node) {
    json ssds = json::array();
    for (const ServedSsd& ssd : node.ssds())
        ssds.push_back({{"nqn", ssd.nqn},
                        {"uuid", ssd.uuid},
                        {"serial", ssd.serial},
                        {"capacity_bytes", ssd.capacity_bytes}});
    return json{{"pid", ::getpid()},
                {"version", daemon::build_name()},
                {"address", o.address},
                {"port", o.port},
                {"wire", "udp"},
                {"packet_bytes", node.packet_bytes()},
                {"key_file", o.array.key_file.string()},
                {"shm", node.serves_shm() ? o.array.shm_socket.string() : ""},
                {"ssds", ssds}};
}

void print(const json& about) {
    for (const json& ssd : about.at("ssds"))
        say(stdout, "{}  {}  {}  {}\n", ssd.at("nqn").get<std::string>(), ssd.at("uuid").get<std::string>(),
            ssd.at("serial").get<std::string>(), format_bytes(ssd.at("capacity_bytes").get<std::uint64_t>()));
    say(stdout, "gnstor node: serving {} {} at {} port {} over udp, {} bytes a packet\n",
        about.at("ssds").size(), about.contains("gateway") ? "volume" : "SSDs",
        about.at("address").get<std::string>(), about.at("port").get<std::string>(),
        about.at("packet_bytes").dump());
    if (const auto key = about.at("key_file").get<std::string>(); !key.empty())
        say(stdout, "gnstor node: hosts must authenticate; gnstord needs a copy of {} (--node-key)\n", key);
    else if (!about.contains("gateway"))
        say(stderr,
            "gnstor node: WARNING: no host authenticates (--no-authentication): every process that reaches "
            "this address can read and write all volumes\n");
    if (about.contains("http") && about.at("http").contains("listen"))
        say(stdout, "gnstor node: metrics at {}/metrics, with the token in {}{}\n",
            about.at("http").at("url").get<std::string>(),
            about.at("http").at("token_file").get<std::string>(),
            about.at("http").contains("certificate_fingerprint")
                ? " and the certificate " + about.at("http").at("certificate_fingerprint").get<std::string>()
                : std::string());
}

/// Who may use a gateway.
void print_hosts(const NodeOptions& o, const daemon::GatewayInfo& gateway) {
    if (gateway.any_host)
        say(stderr,
            "gnstor node: WARNING: any host that reaches this address may use the volume without a key "
            "(--allow-any-host)\n");
    else if (gateway.hosts_listed == 0)
        say(stdout,
            "gnstor node: no host may use it yet; 'gnstor gateway host add {} HOST-NQN --dir {}' lets one "
            "in\n",
            o.gateway.name, shell_word(o.array.directory.parent_path().string()));
    else
        say(stdout, "gnstor node: {} may use it, with their keys in {}\n",
            counted(gateway.hosts_listed, "host"), o.gateway.hosts.string());
}

/// A gateway's HTTP interface; it serves while this object lives.
struct GatewayHttp {
    std::unique_ptr<daemon::GatewayApi> api;
    std::unique_ptr<daemon::HttpServer> socket, tcp;
    std::string url, fingerprint;  ///< of tcp
};

Result<GatewayHttp> serve_http(const NodeOptions& o, ServedNode& node) {
    GatewayHttp http;
    if (node.gateway() == nullptr) return http;
    http.api = std::make_unique<daemon::GatewayApi>(*node.gateway());
    daemon::HttpServerOptions unix_socket;
    unix_socket.program = "gateway of volume " + o.gateway.name;
    unix_socket.elsewhere = "stop it first";
    unix_socket.socket = o.array.directory / kGatewaySocket;
    if (unix_socket.socket.native().size() < sizeof sockaddr_un{}.sun_path) {
        GN_ASSIGN(http.socket, daemon::HttpServer::start(*http.api, unix_socket));
    } else {
        say(stderr,
            "gnstor node: {} is too long for the path of a Unix socket: metrics are served only with "
            "--http\n",
            unix_socket.socket.string());
    }
    if (!o.tcp) return http;
    daemon::HttpServerOptions tcp = *o.tcp;
    tcp.program = unix_socket.program;
    GN_ASSIGN(tcp.token, daemon::read_or_make_token(o.token_file));
    GN_TRY(protect(tcp, o.tls, o.array.directory, "gateway"));
    GN_ASSIGN(http.tcp, daemon::HttpServer::start(*http.api, tcp));
    http.url = url_of(tcp, http.tcp->port());
    if (tcp.tls) http.fingerprint = tcp.tls->fingerprint();
    if (const std::string warning = tls_warning(tcp); !warning.empty())
        say(stderr, "gnstor node: WARNING: {}\n", warning);
    return http;
}

json describe(const NodeOptions& o, const GatewayHttp& http) {
    json about = json::object();
    if (http.socket) about["socket"] = (o.array.directory / kGatewaySocket).string();
    if (http.tcp) about["listen"] = daemon::host_port(o.tcp->host, http.tcp->port());
    if (http.tcp) about["url"] = http.url;
    if (!http.fingerprint.empty()) about["certificate_fingerprint"] = http.fingerprint;
    if (http.tcp) about["token_file"] = o.token_file.string();
    return about;
}

/// CAP_NET_RAW (given by setcap) is not needed once the raw socket is open. While a process has it, the
/// kernel hides its open files from its own user's programs, which find a node by them.
void drop_capabilities() {
    if (::geteuid() == 0) return;
    __user_cap_header_struct of{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    const __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
    if (::syscall(SYS_capset, &of, none) != 0)
        say(stderr, "gnstor node: its capabilities could not be dropped, and it keeps them: {}\n",
            std::strerror(errno));
    ::prctl(PR_SET_DUMPABLE, 1);
}

}  // namespace

Result<void> run_node(const NodeOptions& o) {
    // Blocked before any thread is started, so that only sigwait() receives them.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    GN_TRY(make_private_folder(o.array.directory));
    GN_ASSIGN(
        const std::unique_ptr<LockedFile> lock,
        LockedFile::take(o.array.directory / kNodeLockFile,
                         fmt::format("another node serves {}; stop it first", o.array.directory.string())));
    const RemovedAtEnd pid_file{o.array.directory / kNodePidFile};
    GN_TRY(write_pid_file(pid_file.path, ::getpid()));
    GN_ASSIGN(const std::unique_ptr<ServedNode> node, o.gateway.name.empty()
                                                          ? make_node(o.array, o.address, o.port)
                                                          : make_gateway(o.from, o.gateway, o.port));
    drop_capabilities();
    GN_ASSIGN(const GatewayHttp http, serve_http(o, *node));
    const RemovedAtEnd about_file{o.array.directory / kNodeFile};
    json about = describe(o, *node);
    if (!o.gateway.name.empty()) {
        about["gateway"] = o.gateway.name;
        about["http"] = describe(o, http);
    }
    GN_TRY(write_over(about_file.path, about.dump(2) + "\n"));
    print(about);
    if (node->gateway() != nullptr) print_hosts(o, node->gateway()->inspect_gateway());
    int signal = 0;
    ::sigwait(&signals, &signal);
    say(stdout, "gnstor node: stopping\n");
    return {};
}

std::optional<pid_t> node_of(const fs::path& directory) {
    return holder_of(directory / kNodePidFile, directory / kNodeLockFile);
}

std::optional<json> read_node_file(const fs::path& directory, pid_t pid) {
    std::ifstream in(directory / kNodeFile);
    json about = json::parse(in, nullptr, false);
    if (about.is_discarded() || !about.is_object() || about.value("pid", 0) != pid) return std::nullopt;
    return about;
}

std::string version_in(const json& about) {
    const auto version = about.find("version");
    return version != about.end() && version->is_string() ? version->get<std::string>() : std::string();
}

}  // namespace gnstor::cli
