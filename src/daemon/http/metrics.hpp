// metrics.hpp: the daemon's metrics in Prometheus' text format 0.0.4. Pure, but for the process's CPU time.
#pragma once

#include "daemon/decisions/inspector.hpp"
#include "daemon/http/prometheus.hpp"

#include <string>

namespace gnstor::daemon {

[[nodiscard]] std::string prometheus_text(const ArrayInfo& info, const RequestCounts& counts);

}  // namespace gnstor::daemon
