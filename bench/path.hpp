// path.hpp: `bench path`: what lanes get out of a whole array, end to end. Host, one thread.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/embedded_array.hpp>
#include <gnstor/simt/launch.hpp>

#include "recorder.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace gnstor::bench {

struct PathOptions {
    simt::LanesKind lanes = simt::LanesKind::kCpu;
    std::vector<std::uint32_t> sizes{512, 4096, 65536};  ///< powers of two, 512 .. 65536
    bool read = true, write = true;
    std::uint32_t repeats = 5;
    double seconds = 1.0;  ///< of each repeat
    std::uint32_t ssds = 4;
    std::uint32_t replicas = 2;
    std::uint32_t engine_threads = 0;                  ///< 0: half of the cores
    std::uint32_t channels = 0, warps = 0, depth = 0;  ///< 0: chosen for the lanes
    std::uint64_t working_set = 256ull << 20;
    std::uint64_t write_budget = 0;  ///< bytes programmed by the writes of one repeat; 0: chosen
    std::uint64_t seed = 1;
    Verify verify = Verify::kAll;
    bool reference = true;
    std::string store;  ///< folder for the drives' stores while it runs; empty: drives of memory
    SsdDurability durability = SsdDurability::kDefault;
    bool direct_io = false;        ///< stores without the page cache
    std::string profile = "none";  ///< of the hardware that is modelled: a name, or a file
    std::string json;              ///< path of the raw result; empty: none
    std::vector<std::string> command;
};

/// Measures and prints. False: something that was read back was wrong. kInvalidArgument: the options cannot
/// be.
Result<bool> run_path(const PathOptions& options);

}  // namespace gnstor::bench
