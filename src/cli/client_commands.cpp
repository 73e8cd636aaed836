// client_commands.cpp: gnstor client add, list, remove, rotate: who takes part in the array.
#include "cli/cli.hpp"
#include "daemon/http/api_json.hpp"
#include "daemon/http/array_address.hpp"
#include "daemon/http/ip_address.hpp"

#include <algorithm>

namespace gnstor::cli {
namespace {

using nlohmann::json;

/// gnstord's address as another host may write it: where gnstord listens on every address of its machine, by
/// the machine's name.
std::string address_from_elsewhere(const Context& c, const client::ClientAccess& access) {
    if (!c.array.empty() && !c.array.starts_with("unix:")) return c.array;  // it was reached there
    const Result<daemon::ArrayAddress> at = daemon::parse_array_address(access.address);
    const std::string here = daemon::host_name();
    if (at.ok() && !here.empty() && (at->host == "0.0.0.0" || at->host == "::"))
        return (at->tls ? "https://" : "http://") + daemon::host_port(here, at->port);
    return access.address;
}

/// What a shell on another host runs so that programs there use the array as this client: the only place that
/// says how. Empty: gnstord gave no token, as it does not listen on TCP. As secret as the token.
std::string line_for_another_host(const Context& c, const client::ClientAccess& access) {
    if (access.token.empty()) return {};
    const std::string fingerprint = access.certificate_fingerprint.empty()
                                        ? std::string()
                                        : " GNSTOR_TLS_FINGERPRINT=" + access.certificate_fingerprint;
    return fmt::format(
        "(umask 077; echo {} > gnstor.token); export GNSTOR_ARRAY={}{} GNSTOR_TOKEN_FILE=$PWD/gnstor.token "
        "GNSTOR_CLIENT={}",
        access.token, address_from_elsewhere(c, access), fingerprint, access.identity.name);
}

/// What keeps another host from using the array by that line; empty: nothing that is known here.
std::string obstacles(const Context& c, const client::ClientAccess& access) {
    if (access.token.empty())
        return "no token: gnstord serves no TCP port, so other hosts cannot reach it; start it with "
               "--listen\n";
    std::string text;
    const Result<daemon::ArrayAddress> at = daemon::parse_array_address(access.address);
    if (at.ok() && daemon::is_loopback(at->host))
        text += "note: gnstord listens on a loopback address, which only this machine reaches\n";
    const Result<client::ArrayView> array = c.control().array();
    const bool local =
        array.ok() && std::ranges::any_of(array->ssds, [](const client::SsdAddress& ssd) {
            return daemon::is_ip_address(ssd.nic_address) && daemon::is_loopback(ssd.nic_address);
        });
    if (local)
        text +=
            "note: nodes have loopback addresses, which only this machine reaches; an array for other hosts "
            "is created with --node-addresses\n";
    return text;
}

int show_access(const Context& c, const client::ClientAccess& access, const char* what) {
    const std::string line = line_for_another_host(c, access);
    json document = daemon::to_json(access);
    if (!line.empty()) document["for_another_host"] = line;
    c.out.document(document);
    std::string text = fmt::format("client '{}' has id {} and host NQN {}{}\n", access.identity.name,
                                   access.identity.id, access.identity.host_nqn, what);
    if (!line.empty()) text += fmt::format("to use the array from another host, run there:\n{}\n", line);
    text += obstacles(c, access);
    c.out.text(text);
    return kOk;
}

int add_client(const Context& c, const std::string& name) {
    const Result<client::ClientAccess> access = c.control().add_client(name);
    return access.ok() ? show_access(c, *access, "") : c.out.fail(access.error());
}

int rotate_client(const Context& c, const std::string& name) {
    const Result<client::ClientAccess> access = c.control().rotate_client(name);
    return access.ok() ? show_access(c, *access, "; its keys and token are replaced, the old ones have ended")
                       : c.out.fail(access.error());
}

int remove_client(const Context& c, const std::string& name) {
    if (const Result<void> removed = c.control().remove_client(name); !removed.ok())
        return c.out.fail(removed.error());
    c.out.document({{"name", name}, {"removed", true}});
    c.out.text(fmt::format("client '{}' is removed; its volumes stay\n", name));
    return kOk;
}

int list_clients(const Context& c) {
    const Result<json> answer = c.control().get("/v1/clients");
    if (!answer.ok()) return c.out.fail(answer.error());
    c.out.document(*answer);
    std::vector<std::vector<std::string>> rows;
    for (const json& client : answer->at("clients"))
        rows.push_back({client.at("id").dump(), client.at("name").get<std::string>(),
                        client.value("removed", false) ? "removed" : "in",
                        client.at("host_nqn").get<std::string>()});
    c.out.text(table({"ID", "NAME", "STATE", "HOST NQN"}, rows, {true, false, false, false}));
    return kOk;
}

}  // namespace

void add_client_commands(CLI::App& app, Context& context) {
    CLI::App* client = app.add_subcommand("client", "clients of the array");
    client->require_subcommand(1);
    client->add_subcommand("list", "list all clients")->callback([&context] {
        context.action = [&context] { return list_clients(context); };
    });
    struct Command {
        const char *name, *help;
        int (*run)(const Context&, const std::string&);
    };
    constexpr Command kCommands[] = {
        {"add", "register a client name, or let a removed client in again; show its id, and its token",
         add_client},
        {"remove", "end what a client may do: its keys, its token, its leases; its volumes stay",
         remove_client},
        {"rotate", "replace the keys and the token of a client", rotate_client}};
    for (const Command& command : kCommands) {
        auto name = std::make_shared<std::string>();
        CLI::App* const sub = client->add_subcommand(command.name, command.help);
        sub->add_option("NAME", *name, "name of the client: 1 to 63 characters of [A-Za-z0-9._-]")
            ->required();
        sub->callback([&context, name, run = command.run] {
            context.action = [&context, name, run] { return run(context, *name); };
        });
    }
}

}  // namespace gnstor::cli
