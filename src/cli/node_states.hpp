// node_states.hpp: the node and gateway processes of an array's folder, with the status that gateways report,
// for 'gnstor status'. Unix; one thread.
#pragma once

#include "cli/nodes_plan.hpp"

#include <nlohmann/json.hpp>

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace gnstor::cli {

struct GatewayProcess {
    std::string volume, address;
    pid_t pid = 0;
    std::string version;  ///< of its program; empty: not reported
    nlohmann::json says;  ///< its status, schema Gateway of gateway_openapi.json; null: no answer
};
/// The running gateways whose folders gateway-VOLUME lie in `directory`.
[[nodiscard]] std::vector<GatewayProcess> gateway_processes(const std::filesystem::path& directory);

[[nodiscard]] nlohmann::json to_json(const std::vector<NodeState>& nodes);
[[nodiscard]] nlohmann::json to_json(const std::vector<GatewayProcess>& gateways);
/// One line for each process.
[[nodiscard]] std::string describe(const std::vector<NodeState>& nodes);
[[nodiscard]] std::string describe(const std::vector<GatewayProcess>& gateways);

}  // namespace gnstor::cli
