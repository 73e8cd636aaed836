// node_states.hpp: the processes of an array's folder beside gnstord, as 'gnstor status' shows them: nodes,
// and gateways with what they say of themselves. Unix; one thread.
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
    std::string version;  ///< of its program; empty: it does not say
    nlohmann::json says;  ///< gateway_openapi.json, Gateway; null: it did not answer
};
/// Those that serve volumes from the folders gateway-VOLUME of `directory`.
[[nodiscard]] std::vector<GatewayProcess> gateway_processes(const std::filesystem::path& directory);

[[nodiscard]] nlohmann::json to_json(const std::vector<NodeState>& nodes);
[[nodiscard]] nlohmann::json to_json(const std::vector<GatewayProcess>& gateways);
/// A line each.
[[nodiscard]] std::string describe(const std::vector<NodeState>& nodes);
[[nodiscard]] std::string describe(const std::vector<GatewayProcess>& gateways);

}  // namespace gnstor::cli
