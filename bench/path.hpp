// path.hpp: `bench path`: what lanes get out of a whole array, end to end. Host, one thread.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/embedded_array.hpp>
#include <gnstor/simt/launch.hpp>

#include "bench/initiators/served_array.hpp"
#include "engine_options.hpp"
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
    EngineOptions engine;
    std::uint32_t channels = 0, warps = 0, depth = 0;  ///< 0: chosen for the lanes
    bool alone = false;                                ///< one lane by itself, one operation at a time
    std::uint64_t working_set = 256ull << 20;
    std::uint64_t write_budget = 0;  ///< bytes programmed by the writes of one repeat; 0: chosen
    std::uint64_t seed = 1;
    Verify verify = Verify::kAll;
    double rate =
        0;  ///< open loop: operations a second that all lanes together mean to send; 0: as many as they can
    bool reference = true;
    bool fio = true;          ///< beside CPU lanes, where it is installed
    bool fio_sqpoll = false;  ///< once more with a kernel thread that takes what is handed in
    std::string store;        ///< folder for the drives' stores while it runs; empty: drives of memory
    SsdDurability durability = SsdDurability::kDefault;
    bool direct_io = false;        ///< stores without the page cache
    std::string profile = "none";  ///< of the hardware that is modelled: a name, or a file
    ServedArrayOptions served;     ///< where it names an array of other processes: that one, as it is
    std::string json;              ///< path of the raw result; empty: none
    std::string output;            ///< "table" or "json" on standard output
    std::vector<std::string> command;
};

/// Measures and prints. False: something that was read back was wrong. kInvalidArgument: the options cannot
/// be.
Result<bool> run_path(const PathOptions& options);

}  // namespace gnstor::bench
