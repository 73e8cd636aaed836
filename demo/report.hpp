// report.hpp: how the demo prints figures. Host; pure.
#pragma once

#include <gnstor/client/client.hpp>

#include "lanes.hpp"

#include <string>
#include <vector>

namespace gnstor::demo {

/// "p50 12.3 us, p99 ..., p99.9 ..., max ..." of latencies in nanoseconds.
std::string percentiles(std::vector<std::uint32_t> nanoseconds);
/// "12345 IOPS, 1.234 GB/s in 0.56 s".
std::string rate(std::uint64_t commands, std::uint64_t bytes, double seconds);
/// What each SSD did between two snapshots: a bar a drive.
std::string load_by_ssd(const std::vector<client::SsdCounts>& before,
                        const std::vector<client::SsdCounts>& after);
/// Lines in a frame.
std::string box(const std::string& title, const std::vector<std::string>& lines);

}  // namespace gnstor::demo
