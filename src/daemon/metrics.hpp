// metrics.hpp: the daemon in Prometheus' text format 0.0.4. Pure, but for the CPU time of the process.
#pragma once

#include "daemon/inspector.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

namespace gnstor::daemon {

/// By route (as in the document), method and status.
using RequestCounts = std::map<std::tuple<std::string, std::string, int>, std::uint64_t>;

[[nodiscard]] std::string prometheus_text(const ArrayInfo& info, const RequestCounts& counts);

}  // namespace gnstor::daemon
