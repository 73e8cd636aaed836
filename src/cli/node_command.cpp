// node_command.cpp: gnstor node: serves the SSDs of a folder, or a volume as a gateway, to other processes
// and machines over the udp wire.
#include "cli/background_process.hpp"
#include "cli/cli.hpp"
#include "cli/host_file.hpp"
#include "cli/node_process.hpp"
#include "cli/ssd_options.hpp"
#include "daemon/http/array_address.hpp"
#include "embedded/node_array.hpp"
#include "embedded/node_key.hpp"

#include <gnstor/base/say.hpp>
#include <gnstor/base/units.hpp>
#include <gnstor/remote_array.hpp>

#include <sys/un.h>

namespace gnstor::cli {
namespace {

struct NodeWords {
    NodeOptions node;
    std::string listen, capacity = "1GiB";
    std::string http, token_file;  ///< address and token of a gateway's metrics
    std::string key_file;
    bool no_authentication = false;
    bool any_host = false;
};

int node(const Context& c, NodeWords& o) {
    const Starter starter = Starter::from_environment();
    Result<embedded::NodeAddress> where = embedded::parse_node_address(o.listen);
    if (!where.ok()) return c.out.fail(where.error());
    const Result<std::uint64_t> capacity = parse_bytes(o.capacity);
    if (!capacity.ok()) return c.out.fail(capacity.error());
    o.node.array.directory = c.directory;
    o.node.array.ssd_capacity_bytes = *capacity;
    o.node.address = where->address;
    o.node.port = where->port;
    o.node.gateway.as = c.as;
    o.node.from = c.remote_array();
    o.node.from.address = where->address;
    // --dir is the array's folder, which its own daemon may use: a gateway keeps its files in a subfolder.
    if (!o.node.gateway.name.empty()) {
        const Result<void> named = daemon::check_name("volume", o.node.gateway.name);
        if (!named.ok()) return c.out.fail(named.error());
    }
    if (!o.node.gateway.name.empty()) o.node.array.directory /= kGatewayFolderPrefix + o.node.gateway.name;
    if (o.node.gateway.name.empty() && !o.no_authentication)
        o.node.array.key_file = o.key_file.empty()
                                    ? std::filesystem::path(c.directory) / embedded::kNodeKeyFile
                                    : std::filesystem::path(o.key_file);
    // A gateway has no shm socket: its NIC connects to the array, and hosts reach it only by packets.
    if (o.node.gateway.name.empty()) {
        o.node.array.shm_socket = std::filesystem::absolute(c.directory) / kNodeShmSocket;
        if (o.node.array.shm_socket.native().size() >= sizeof sockaddr_un{}.sun_path) {
            say(stderr,
                "gnstor node: {} is too long for the path of a Unix socket: programs of this machine use the "
                "udp wire instead of shared memory; choose a shorter --dir\n",
                o.node.array.shm_socket.string());
            o.node.array.shm_socket.clear();
        }
    }
    if (!o.any_host) o.node.gateway.hosts = o.node.array.directory / kHostsFile;
    o.node.gateway.record = o.node.array.directory / "loss.record";
    o.node.token_file =
        o.token_file.empty() ? o.node.array.directory / "gateway.token" : std::filesystem::path(o.token_file);
    if (!o.http.empty()) {
        const Result<daemon::ArrayAddress> at = daemon::parse_host_port(o.http, true);
        if (!at.ok()) return finish(c, at.error());
        o.node.tcp.emplace();
        o.node.tcp->host = at->host;
        o.node.tcp->port = at->port;
    }
    const Result<void> served = run_node(o.node);
    if (served.ok()) return kOk;
    starter.tell("gnstor: " + served.error().message);
    return c.out.fail(served.error());
}

}  // namespace

void add_node_command(CLI::App& app, Context& context) {
    auto o = std::make_shared<NodeWords>();
    CLI::App* command = app.add_subcommand(
        "node",
        "serve the SSDs of a folder to other processes until SIGTERM; gnstord uses them with --nodes");
    command
        ->add_option("--listen", o->listen,
                     "ADDR[:PORT]: IP address on the udp wire, and RDMA port (default 4420)")
        ->required()
        ->check(CLI::Validator(
            [](const std::string& text) {
                const auto good = embedded::parse_node_address(text);
                return good.ok() ? std::string() : good.error().message;
            },
            "ADDR[:PORT]"));
    CLI::Option* const gateway = command->add_option(
        "--gateway", o->node.gateway.name,
        "serve this volume of the array (--array) as an ordinary NVMe namespace, in place of SSDs");
    command->add_flag("--read-only", o->node.gateway.read_only,
                      "with --gateway: only read the volume; another client may write it");
    command
        ->add_flag("--serve-older", o->node.gateway.serves_older,
                   "with --gateway: if the newest version of a block is torn or corrupt on every replica, "
                   "return its older version and log it, instead of a media error")
        ->needs(gateway);
    command
        ->add_flag(
            "--allow-any-host", o->any_host,
            "with --gateway: let in any host, under any name and without a key; without it, only those "
            "of 'gnstor gateway host add', which have to authenticate (Linux 6.12, not Debian's 6.1)")
        ->needs(gateway);
    CLI::Option* const http =
        command
            ->add_option(
                "--http", o->http,
                "with --gateway: HOST:PORT on which to serve /metrics over TCP too, with TLS unless it "
                "is a loopback address; requests need the token")
            ->needs(gateway);
    add_tls_options(*command, o->node.tls, http, "--http-");
    command
        ->add_option("--http-token-file", o->token_file,
                     "file with the token for --http; created if it does not exist; default: gateway.token "
                     "in gateway-VOLUME of the folder")
        ->needs(gateway);
    CLI::Option* const key =
        command->add_option("--key-file", o->key_file,
                            "file with the node's key, from which the keys of all its hosts follow; created "
                            "if it does not exist; gnstord needs a copy (--node-key); default: node.key in "
                            "the folder");
    command
        ->add_flag(
            "--no-authentication", o->no_authentication,
            "let any host in under any name: every process that reaches UDP port 4791 can then read and "
            "write all volumes")
        ->excludes(key);
    command->add_option("--ssds", o->node.array.ssds, "how many SSDs a new node gets")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    command->add_option("--capacity", o->capacity, "capacity of each SSD of a new node, as 512MiB or 4G")
        ->check(size_text())
        ->capture_default_str();
    command
        ->add_option("--engine-threads", o->node.array.engine_threads,
                     "threads for NIC and SSDs; 0: half of the cores")
        ->check(CLI::Range(0, 256))
        ->capture_default_str();
    add_ssd_options(*command, o->node.array);
    command->callback([&context, o] { context.action = [&context, o] { return node(context, *o); }; });
}

}  // namespace gnstor::cli
