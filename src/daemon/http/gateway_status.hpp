// gateway_status.hpp: the state of a gateway's process for people and monitoring. Values only: the gateway is
// another layer (src/gateway), and the program that runs one fills them in.
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
    bool any_host = false;  ///< hosts need no key
    std::uint64_t hosts_listed = 0;
    std::string hosts_trouble;  ///< why the list in force is not that of its file; empty: it is
    /// Names of [a-z_]+, with values that never decrease.
    std::vector<std::pair<std::string, std::uint64_t>> counters;
    std::uint64_t connections_open = 0;
    std::uint64_t under_way = 0, waiting = 0;  ///< commands in flight on the volume; fetched but not begun
    std::uint64_t places = 0, places_of_one_ssd = 0, places_of_many = 0;
    std::vector<std::uint32_t> ssds;  ///< commands in flight for the SSD of each slot
    std::uint64_t many = 0;           ///< commands in flight that go to many SSDs
    std::uint64_t unflushed = 0;      ///< answered changes that no flush has covered yet
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
