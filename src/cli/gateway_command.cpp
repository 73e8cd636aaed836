// gateway_command.cpp: gnstor gateway host: which hosts may use a volume's gateway, and their keys.
//
// It changes the file that a gateway reads (host_file.hpp), whether one runs or not. Keys are shown once,
// when they are made, on standard output.
#include "cli/cli.hpp"
#include "cli/host_file.hpp"
#include "cli/node_process.hpp"
#include "daemon/records/records.hpp"
#include "nvmf/auth/random.hpp"
#include "nvmf/protocol/nqn.hpp"

#include <gnstor/base/private_file.hpp>
#include <gnstor/base/shell_word.hpp>

#include <algorithm>
#include <iostream>

namespace gnstor::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nvmf::auth::DhchapKey;
using nvmf::auth::DhchapKeys;
using nvmf::auth::KeyTransform;

struct HostWords {
    std::string volume, nqn, key;
    std::string hash = "sha512";
};

fs::path hosts_file(const Context& c, const HostWords& o) {
    return fs::path(c.directory) / (kGatewayFolderPrefix + o.volume) / kHostsFile;
}

KeyTransform transform_of(const std::string& hash) {
    if (hash == "sha256") return KeyTransform::kSha256;
    return hash == "sha384" ? KeyTransform::kSha384 : KeyTransform::kSha512;
}

/// `given`: the host's own key; empty: a new one; "-": a line of standard input.
Result<DhchapKeys> make_keys(const HostWords& o) {
    std::string given = o.key;
    if (given == "-") std::getline(std::cin, given);
    GN_ASSIGN(DhchapKey controller, nvmf::auth::make_key(transform_of(o.hash)));
    Result<DhchapKey> host =
        o.key.empty() ? nvmf::auth::make_key(transform_of(o.hash)) : DhchapKey::parse(given);
    if (!host.ok()) return host.error();
    return DhchapKeys{std::move(host).value(), std::move(controller)};
}

/// What the host runs. The address is the running gateway's, if one runs here.
std::string connect_line(const Context& c, const HostWords& o, const DhchapKeys& keys) {
    std::string address = "GATEWAY-ADDRESS", port = "4420";
    const fs::path folder = hosts_file(c, o).parent_path();
    if (const std::optional<pid_t> pid = node_of(folder)) {
        if (const std::optional<json> about = read_node_file(folder, *pid)) {
            address = about->value("address", address);
            port = about->value("port", port);
        }
    }
    std::string line = fmt::format("nvme connect -t rdma -a {} -s {} -n {} --hostnqn={}", address, port,
                                   nvmf::volume_subsystem_nqn(o.volume), shell_word(o.nqn));
    line += fmt::format(" --dhchap-secret={}", key_text(keys.host));
    if (keys.controller) line += fmt::format(" --dhchap-ctrl-secret={}", key_text(*keys.controller));
    return line;
}

void show_keys(const Context& c, const HostWords& o, const DhchapKeys& keys, const char* what) {
    const std::string line = connect_line(c, o, keys);
    json shown{{"volume", o.volume}, {"host", o.nqn}, {"key", key_text(keys.host)}, {"connect", line}};
    if (keys.controller) shown["controller_key"] = key_text(*keys.controller);
    c.out.document(shown);
    c.out.text(
        fmt::format("{} {} the gateway of volume {}, with these keys, which are not shown again:\n{}\n",
                    o.nqn, what, o.volume, line));
}

auto find(std::vector<ListedHost>& hosts, const std::string& nqn) {
    return std::ranges::find(hosts, nqn, &ListedHost::nqn);
}

Error not_listed(const HostWords& o) {
    return error(Errc::kNotFound,
                 "{} is not among the hosts of the gateway of volume {}; 'gnstor gateway host list {}' shows "
                 "them",
                 o.nqn, o.volume, o.volume);
}

Result<int> add(const Context& c, const HostWords& o) {
    if (!nvmf::is_valid_nqn(o.nqn))
        return error(
            Errc::kInvalidArgument,
            "'{}' is no NVMe Qualified Name (nqn.yyyy-mm.reverse-domain:string); a Linux host's is in "
            "its /etc/nvme/hostnqn",
            o.nqn);
    GN_ASSIGN(DhchapKeys keys, make_keys(o));
    const fs::path file = hosts_file(c, o);
    GN_TRY(make_private_folder(file.parent_path()));
    GN_TRY(change_hosts(file, [&](std::vector<ListedHost>& hosts) -> Result<void> {
        if (find(hosts, o.nqn) != hosts.end())
            return error(Errc::kExists,
                         "{} has a key for the gateway of volume {} already; 'gnstor gateway host rotate {} "
                         "{}' replaces it",
                         o.nqn, o.volume, o.volume, shell_word(o.nqn));
        hosts.push_back({o.nqn, keys.clone()});
        return {};
    }));
    show_keys(c, o, keys, "may use");
    return kOk;
}

Result<int> rotate(const Context& c, const HostWords& o) {
    GN_ASSIGN(DhchapKeys keys, make_keys(o));
    GN_TRY(change_hosts(hosts_file(c, o), [&](std::vector<ListedHost>& hosts) -> Result<void> {
        const auto host = find(hosts, o.nqn);
        if (host == hosts.end()) return not_listed(o);
        host->keys = keys.clone();
        return {};
    }));
    show_keys(c, o, keys, "is disconnected from, and may again use,");
    return kOk;
}

Result<int> remove(const Context& c, const HostWords& o) {
    GN_TRY(change_hosts(hosts_file(c, o), [&](std::vector<ListedHost>& hosts) -> Result<void> {
        const auto host = find(hosts, o.nqn);
        if (host == hosts.end()) return not_listed(o);
        hosts.erase(host);
        return {};
    }));
    c.out.document({{"volume", o.volume}, {"removed", o.nqn}});
    c.out.text(fmt::format(
        "{} may no longer use the gateway of volume {}; a running gateway disconnects it within a second\n",
        o.nqn, o.volume));
    return kOk;
}

Result<int> list(const Context& c, const HostWords& o) {
    auto read = read_hosts(hosts_file(c, o));
    if (!read.ok() && read.error().code != Errc::kNotFound) return read.error();
    json hosts = json::array();
    std::vector<std::vector<std::string>> rows;
    if (read.ok()) {
        for (const ListedHost& host : *read) {
            hosts.push_back({{"nqn", host.nqn}, {"both_ways", host.keys.controller.has_value()}});
            rows.push_back({host.nqn, host.keys.controller ? "host and gateway" : "host"});
        }
    }
    c.out.document({{"volume", o.volume}, {"hosts", hosts}});
    c.out.text(rows.empty()
                   ? fmt::format("no host may use the gateway of volume {}; 'gnstor gateway host add {} "
                                 "HOST-NQN' lets one in\n",
                                 o.volume, o.volume)
                   : table({"HOST", "KEYS OF"}, rows, {false, false}));
    return kOk;
}

}  // namespace

void add_gateway_command(CLI::App& app, Context& context) {
    auto o = std::make_shared<HostWords>();
    CLI::App* gateway =
        app.add_subcommand("gateway", "the hosts of a volume's gateway (gnstor node --gateway)");
    gateway->require_subcommand(1);
    CLI::App* host = gateway->add_subcommand(
        "host", "which hosts may use the gateway of a volume, each with a key of its own");
    host->require_subcommand(1);
    const auto subcommand = [&, o](const char* name, const char* what,
                                   Result<int> (*run)(const Context&, const HostWords&)) {
        CLI::App* command = host->add_subcommand(name, what);
        command->add_option("VOLUME", o->volume, "name of the volume")->required();
        command->callback([&context, o, run] {
            context.action = [&context, o, run] {
                const Result<void> named = daemon::check_name("volume", o->volume);
                if (!named.ok()) return finish(context, named.error());
                return finish(context, run(context, *o));
            };
        });
        return command;
    };
    const auto with_nqn = [o](CLI::App* command) {
        command->add_option("HOST-NQN", o->nqn, "the host's name; on Linux the line in /etc/nvme/hostnqn")
            ->required();
        return command;
    };
    const auto with_keys = [o](CLI::App* command) {
        command->add_option("--key", o->key,
                            "the host's own key (DHHC-1:...), in place of a new one; '-' reads it from "
                            "standard input, so that no other user sees it in the list of processes");
        command
            ->add_option("--hash", o->hash, "hash and length of new keys, as of nvme gen-dhchap-key --hmac")
            ->check(CLI::IsMember({"sha256", "sha384", "sha512"}))
            ->capture_default_str();
    };
    with_keys(with_nqn(subcommand(
        "add", "let a host in: makes its key and the gateway's, and prints the nvme connect command", add)));
    with_keys(with_nqn(subcommand(
        "rotate", "replace the keys of a host, which is disconnected and needs the new ones", rotate)));
    with_nqn(subcommand("remove", "let a host in no more, and disconnect it", remove));
    subcommand("list", "show the hosts, without their keys", list);
}

}  // namespace gnstor::cli
