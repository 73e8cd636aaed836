// gateway_status.hpp: what people and monitoring may see of a gateway's process. Values alone; the gateway
// itself is another layer's (src/gateway), and who runs one fills them in.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gnstor::daemon {

struct GatewayInfo {
    std::string volume, subsystem_nqn;
    std::uint64_t capacity_bytes = 0;
    bool read_only = false, writable = false;
    /// Names of [a-z_]+, with values that only grow.
    std::vector<std::pair<std::string, std::uint64_t>> counters;
    std::uint64_t connections_open = 0;
    std::uint64_t under_way = 0, waiting = 0;  ///< commands; waiting: not begun
    std::uint64_t places = 0, places_of_one_ssd = 0, places_of_many = 0;
    std::vector<std::uint32_t> ssds;  ///< commands under way for the SSD of each slot
    std::uint64_t many = 0;           ///< commands under way that go to many SSDs
    std::uint64_t unflushed = 0;      ///< answered changes that no flush has settled
    std::uint64_t slots_gone = 0;
    bool flushes_fail = false;
};

class GatewayInspector {
  public:
    virtual ~GatewayInspector() = default;
    /// Any thread; may block for a bounded time.
    virtual GatewayInfo inspect_gateway() = 0;
};

}  // namespace gnstor::daemon
