// doctor_command.cpp: gnstor doctor: shows what prevents an array from running here, with remedies. Exit code
// 1 if there is a problem.
#include "cli/cli.hpp"
#include "cli/doctor_facts.hpp"
#include "cli/node_process.hpp"
#include "cli/node_states.hpp"
#include "daemon/http/build_name.hpp"
#include "embedded/node_array.hpp"

#include <algorithm>
#include <map>

namespace gnstor::cli {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

void ask_daemon(const Context& c, DoctorFacts& facts) {
    facts.program_version = daemon::build_name();
#ifdef GN_WITH_CUDA
    facts.built_for_gpu = true;
#endif
    // Without a socket file no daemon runs here; one that --array names elsewhere is asked in any case.
    std::error_code failed;
    if (!c.server.socket.empty() && !std::filesystem::exists(c.server.socket, failed)) return;
    Result<json> status = c.control(2s).get("/v1/status");
    if (!status.ok()) {
        facts.daemon_trouble = status.error().message;
        return;
    }
    facts.daemon_version = status->value("version", "before 0.1.0");
    facts.daemon_read_only = status->value("read_only", "");
}

/// The running processes of this folder, by address: nodes of 'gnstor up', gateways, and a node that serves
/// the folder itself.
std::map<std::string, PartFacts> parts_of_folder(const Context& c) {
    std::map<std::string, PartFacts> parts;
    const auto add = [&](const std::string& name, const std::string& address, pid_t pid,
                         std::string version) {
        const auto where = embedded::parse_node_address(address);  // gnstord reports nodes without a port
        parts[where.ok() ? where->address : address] = {
            fmt::format("{} at {} (process {})", name, address, pid), std::move(version)};
    };
    if (const auto plan = read_plan(c.directory); plan.ok())
        for (const NodeState& node : node_states(c.directory, *plan))
            if (node.pid) add(node.node.name, node.node.address, *node.pid, node.version);
    for (const GatewayProcess& gateway : gateway_processes(c.directory))
        add("the gateway of " + gateway.volume, gateway.address, gateway.pid, gateway.version);
    const std::optional<pid_t> own = node_of(c.directory);
    const std::optional<json> about = own ? read_node_file(c.directory, *own) : std::nullopt;
    if (about) add("the node", about->value("address", ""), *own, version_in(*about));
    return parts;
}

/// Adds the nodes that gnstord knows, on any machine; their version is the firmware revision of their SSDs.
void add_parts_of_array(const Context& c, std::map<std::string, PartFacts>& parts) {
    const Result<json> answer = c.control(2s).get("/v1/ssds");
    if (!answer.ok()) return;
    for (const json& ssd : answer->value("ssds", json::array())) {
        const std::string address = ssd.value("nic_address", ""), version = ssd.value("firmware", "");
        // An SSD without an IP address is in gnstord's own process.
        if (version.empty() || address.find_first_of(".:") == std::string::npos) continue;
        PartFacts& part = parts[address];
        if (part.what.empty()) part.what = "the node at " + address;
        if (part.version.empty()) part.version = version;
    }
}

std::string shown(const std::vector<DoctorFinding>& findings) {
    std::vector<std::vector<std::string>> rows;
    for (const DoctorFinding& f : findings) {
        rows.push_back({f.check, std::string(verdict_name(f.verdict)), f.found});
        if (!f.remedy.empty()) rows.push_back({"", "", "  to do: " + f.remedy});
    }
    return table({"CHECK", "STATE", "FOUND"}, rows, {false, false, false});
}

int doctor(const Context& c, const std::vector<std::string>& addresses) {
    DoctorFacts facts = read_facts(machine(), addresses, c.directory);
    ask_daemon(c, facts);
    // Only processes of this folder are looked up, as in 'gnstor status'.
    std::map<std::string, PartFacts> parts;
    if (c.array.empty() && (c.socket.empty() || c.directory_given)) parts = parts_of_folder(c);
    if (facts.daemon_version) add_parts_of_array(c, parts);
    for (auto& [address, part] : parts) facts.parts.push_back(std::move(part));
    const std::vector<DoctorFinding> findings = diagnose(facts);
    const auto number = [&](Verdict verdict) {
        return static_cast<std::uint64_t>(std::count_if(
            findings.begin(), findings.end(), [&](const DoctorFinding& f) { return f.verdict == verdict; }));
    };
    json list = json::array();
    for (const DoctorFinding& f : findings)
        list.push_back({{"check", f.check},
                        {"state", f.verdict == Verdict::kProblem ? "problem" : verdict_name(f.verdict)},
                        {"found", f.found},
                        {"remedy", f.remedy}});
    const auto problems = number(Verdict::kProblem), warnings = number(Verdict::kWarning);
    c.out.document({{"checks", list}, {"problems", problems}, {"warnings", warnings}});
    c.out.text(shown(findings));
    c.out.text(fmt::format("{}, {}\n", counted(problems, "problem"), counted(warnings, "warning")));
    if (problems == 0) return kOk;
    return c.out.fail(error(Errc::kState,
                            "{} of {} checks found a problem that prevents an array on this machine; the "
                            "remedies are listed above",
                            problems, findings.size()));
}

}  // namespace

void add_doctor_command(CLI::App& app, Context& context) {
    auto addresses = std::make_shared<std::vector<std::string>>();
    CLI::App* command = app.add_subcommand(
        "doctor", "check what would prevent an array on this machine, and how to solve it");
    command
        ->add_option("--address", *addresses,
                     "IP address that the udp wire shall use; may be given several times; default: any")
        ->delimiter(',');
    command->callback([&context, addresses] {
        context.action = [&context, addresses] { return doctor(context, *addresses); };
    });
}

}  // namespace gnstor::cli
