// metrics.hpp: the daemon in Prometheus' text format 0.0.4. Pure, but for the CPU time of the process.
#pragma once

#include "daemon/decisions/inspector.hpp"
#include "daemon/http/prometheus.hpp"

#include <string>

namespace gnstor::daemon {

[[nodiscard]] std::string prometheus_text(const ArrayInfo& info, const RequestCounts& counts);

}  // namespace gnstor::daemon
