#include "daemon/http/gateway_api.hpp"

#include "daemon/http/routes.hpp"

#include <fmt/core.h>

#include <map>

namespace gnstor::daemon {

extern const std::string_view
    kGatewayOpenApiText;  // gateway_openapi.json, converted to a source file by the build

namespace {

using nlohmann::json;

const char* help_of_gateway(const std::string& counter) {
    static const std::map<std::string, const char*> kHelp = {
        {"reads", "Read commands that were carried out on the volume."},
        {"writes", "Write commands."},
        {"flushes", "FLUSH commands."},
        {"trims", "Dataset management commands."},
        {"write_zeroes", "Write Zeroes commands."},
        {"blocks_read", "Blocks of 4 KiB read by hosts."},
        {"blocks_written", "Blocks of 4 KiB written by hosts."},
        {"bytes_to_host", "Bytes of I/O commands sent to hosts."},
        {"bytes_from_host", "Bytes of I/O commands fetched from hosts."},
        {"refused", "Commands answered with an error before they reached the volume."},
        {"failed", "Commands that failed on the volume."},
        {"malformed", "Capsules that broke the rules of the transport."},
        {"capsules", "Commands that arrived, of all kinds."},
        {"reclaims", "How often connections to SSDs were established again."},
        {"record_writes", "Times that the record for a successor was written and synchronized."},
        {"share_waits", "Commands that waited because their SSDs already had their full share of commands."},
        {"older_reads", "Reads of blocks whose newest version is doubtful on every replica."},
        {"connections_accepted", "Connections of hosts (admin and I/O queues) that were taken."},
        {"connections_refused",
         "Connections rejected before Connect: the request cannot be granted, or resources are missing."},
        {"connections_failed", "Connections ended after a protocol violation or a timeout."},
        {"connections_disconnected", "Connections closed normally, mostly by their hosts."},
        {"keep_alive_expired", "Controllers whose hosts exceeded their keep-alive timeout."},
    };
    const auto found = kHelp.find(counter);
    return found == kHelp.end() ? "Counter of the gateway since it was started." : found->second;
}

json to_json(const GatewayInfo& g) {
    json counters = json::object(), ssds = json::array();
    for (const auto& [name, value] : g.counters) counters[name] = value;
    for (std::size_t slot = 0; slot < g.ssds.size(); ++slot)
        ssds.push_back({{"slot", slot}, {"under_way", g.ssds[slot]}});
    return {{"volume", g.volume},
            {"subsystem_nqn", g.subsystem_nqn},
            {"capacity_bytes", g.capacity_bytes},
            {"read_only", g.read_only},
            {"writable", g.writable},
            {"hosts", {{"any", g.any_host}, {"listed", g.hosts_listed}, {"trouble", g.hosts_trouble}}},
            {"counters", counters},
            {"connections_open", g.connections_open},
            {"under_way", g.under_way},
            {"waiting", g.waiting},
            {"shares",
             {{"places", g.places},
              {"of_one_ssd", g.places_of_one_ssd},
              {"of_many", g.places_of_many},
              {"many", g.many},
              {"ssds", ssds}}},
            {"loss",
             {{"unflushed", g.unflushed}, {"slots_gone", g.slots_gone}, {"flushes_fail", g.flushes_fail}}}};
}

}  // namespace

std::string prometheus_text(const GatewayInfo& g, const RequestCounts& counts) {
    PrometheusText text;
    text.family("gnstor_gateway_info", "gauge",
                "1, with the volume and the subsystem that hosts connect to.");
    text.sample("gnstor_gateway_info",
                fmt::format("volume=\"{}\",nqn=\"{}\"", PrometheusText::label(g.volume),
                            PrometheusText::label(g.subsystem_nqn)),
                1);
    text.one("gnstor_gateway_capacity_bytes", "gauge", "Capacity of the volume.", g.capacity_bytes);
    text.one("gnstor_gateway_writable", "gauge", "1 while hosts may write; 0 from the loss of the lease on.",
             g.writable ? 1 : 0);
    text.one("gnstor_gateway_any_host", "gauge", "1 if hosts need no key (--allow-any-host).",
             g.any_host ? 1 : 0);
    text.one("gnstor_gateway_hosts_listed", "gauge", "Hosts that may connect, each with its key.",
             g.hosts_listed);
    text.one("gnstor_gateway_hosts_file_bad", "gauge",
             "1 if the list of hosts cannot be read, so that the last good list stays in force.",
             g.hosts_trouble.empty() ? 0 : 1);
    text.one("gnstor_gateway_connections_open", "gauge", "Connections of hosts.", g.connections_open);
    text.one("gnstor_gateway_commands_under_way", "gauge", "Commands in progress on the SSDs.", g.under_way);
    text.one("gnstor_gateway_commands_waiting", "gauge",
             "Commands that were fetched and are not started yet.", g.waiting);
    text.one("gnstor_gateway_places", "gauge", "Largest number of commands in progress.", g.places);
    text.one("gnstor_gateway_places_of_one_ssd", "gauge",
             "Largest number of commands in progress for one SSD.", g.places_of_one_ssd);
    text.one("gnstor_gateway_places_of_many", "gauge",
             "Largest number of commands in progress that go to many SSDs.", g.places_of_many);
    text.family("gnstor_gateway_share_used", "gauge",
                "Commands in progress for the SSD of a slot; slot=\"many\": commands that go to many SSDs.");
    for (std::size_t slot = 0; slot < g.ssds.size(); ++slot)
        text.sample("gnstor_gateway_share_used", fmt::format("slot=\"{}\"", slot), g.ssds[slot]);
    text.sample("gnstor_gateway_share_used", "slot=\"many\"", g.many);
    text.one("gnstor_gateway_unflushed_changes", "gauge",
             "Acknowledged changes that no flush has covered yet.", g.unflushed);
    text.one("gnstor_gateway_slots_gone", "gauge",
             "Slots that lost their SSD since the last flush that covered all earlier changes.",
             g.slots_gone);
    text.one("gnstor_gateway_flushes_fail", "gauge",
             "1 if acknowledged writes may be lost with their SSDs, so that flushes fail.",
             g.flushes_fail ? 1 : 0);
    for (const auto& [name, value] : g.counters)
        text.one(fmt::format("gnstor_gateway_{}_total", name).c_str(), "counter", help_of_gateway(name),
                 value);
    text.of_the_process("gnstor node", counts);
    return text.take();
}

struct GatewayApi::Impl {
    explicit Impl(GatewayInspector& i) : inspector(i), routes(kGatewayOpenApiText, "gnstor") {
        routes.add("getHealth", [](const Call&) -> Result<json> { return json{{"status", "ok"}}; });
        routes.add("getOpenApi", [this](const Call&) -> Result<json> { return routes.document(); });
        routes.add("getGateway",
                   [this](const Call&) -> Result<json> { return to_json(inspector.inspect_gateway()); });
        routes.add("getMetrics", [this](const Call&) -> Result<json> {
            return json(prometheus_text(inspector.inspect_gateway(), routes.counts()));
        });
    }
    GatewayInspector& inspector;
    Routes routes;
};

GatewayApi::GatewayApi(GatewayInspector& inspector) : impl_(std::make_unique<Impl>(inspector)) {}
GatewayApi::~GatewayApi() = default;

Response GatewayApi::handle(const Request& request, std::string_view token) {
    return impl_->routes.handle(request, token);
}

Response GatewayApi::refuse(int status, std::string_view code, std::string_view message) {
    return impl_->routes.refuse(status, code, message);
}

std::string_view GatewayApi::openapi() {
    return kGatewayOpenApiText;
}

std::vector<std::string> GatewayApi::operations() const {
    return impl_->routes.operations();
}

}  // namespace gnstor::daemon
