#include "cli/node_states.hpp"

#include "cli/node_process.hpp"
#include "cli/output.hpp"
#include "daemon/http/http_client.hpp"

#include <gnstor/base/units.hpp>

#include <algorithm>

namespace gnstor::cli {

using nlohmann::json;

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kAnswer{2000};

json ask(const fs::path& socket) {
    daemon::HttpClientOptions options;
    options.socket = socket;
    options.deadline = kAnswer;
    Result<json> says = daemon::HttpControlPlane(options).get("/v1/gateway");
    return says.ok() ? std::move(says).value() : json();
}

std::string glance(const json& says) {
    const json& counters = says.at("counters");
    const auto bytes = [&counters](const char* name) {
        return format_bytes(counters.value(name, std::uint64_t{0}));
    };
    std::string text =
        fmt::format("{} connections, {} to hosts, {} from them", says.at("connections_open").dump(),
                    bytes("bytes_to_host"), bytes("bytes_from_host"));
    if (!says.at("writable").get<bool>() && !says.at("read_only").get<bool>())
        text += "; its write lease is LOST";
    // A gateway of an earlier version says nothing of hosts, and lets any in.
    const json hosts = says.value("hosts", json::object());
    text += hosts.value("any", true) ? std::string("; ANY host may connect, without a key")
                                     : "; " + counted(hosts.value("listed", 0ull), "host") + " may connect";
    if (!hosts.value("trouble", "").empty()) text += "; its hosts.json is BAD, an earlier list is in force";
    if (says.at("loss").at("flushes_fail").get<bool>()) text += "; answered writes may be LOST, flushes fail";
    return text;
}

}  // namespace

std::vector<GatewayProcess> gateway_processes(const fs::path& directory) {
    std::vector<GatewayProcess> all;
    std::error_code failed;
    for (auto it = fs::directory_iterator(directory, failed); !failed && it != fs::directory_iterator();
         it.increment(failed)) {
        if (it->path().filename().string().rfind(kGatewayFolderPrefix, 0) != 0) continue;
        const std::optional<pid_t> pid = node_of(it->path());
        if (!pid) continue;
        const std::optional<json> about = read_node_file(it->path(), *pid);
        if (!about || !about->contains("gateway")) continue;
        all.push_back({about->value("gateway", ""), about->value("address", ""), *pid, version_in(*about),
                       ask(it->path() / kGatewaySocket)});
    }
    std::ranges::sort(all, {}, &GatewayProcess::volume);
    return all;
}

json to_json(const std::vector<NodeState>& nodes) {
    json list = json::array();
    for (const NodeState& state : nodes) {
        json one{
            {"name", state.node.name}, {"address", state.node.address}, {"running", state.pid.has_value()}};
        if (state.pid) one["pid"] = *state.pid;
        if (!state.version.empty()) one["version"] = state.version;
        list.push_back(std::move(one));
    }
    return list;
}

std::string describe(const std::vector<NodeState>& nodes) {
    std::string text;
    for (const NodeState& state : nodes)
        text += state.pid
                    ? fmt::format("{} at {} (process {})\n", state.node.name, state.node.address, *state.pid)
                    : fmt::format("{} at {} does NOT run; 'gnstor up' starts it again\n", state.node.name,
                                  state.node.address);
    return text;
}

json to_json(const std::vector<GatewayProcess>& gateways) {
    json list = json::array();
    for (const GatewayProcess& one : gateways) {
        list.push_back(
            {{"volume", one.volume}, {"address", one.address}, {"pid", one.pid}, {"says", one.says}});
        if (!one.version.empty()) list.back()["version"] = one.version;
    }
    return list;
}

std::string describe(const std::vector<GatewayProcess>& gateways) {
    std::string text;
    for (const GatewayProcess& one : gateways)
        text += fmt::format("gateway of volume {} at {} (process {}): {}\n", one.volume, one.address, one.pid,
                            one.says.is_object() ? glance(one.says) : "it does not answer");
    return text;
}

}  // namespace gnstor::cli
