// pool.hpp: `bench pool`, what the allocators of a channel's pool cost, and how they fragment. Host.
//
// CPU lanes allocate and free a mix of sizes between two marks of occupancy, as many times as asked for; then
// one lane asks for runs of 1 MiB in what is free, and counts the pieces it gets. Beside the multi-level
// allocator stand two single-size bitmaps: with the placement that channels had before there were levels, and
// first fit. A request for which no single run is free takes pieces, each half as long.
#pragma once

#include "result.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace gnstor::bench {

struct PoolBenchOptions {
    std::uint64_t allocations = 100'000'000;  ///< of a repeat, all lanes together
    std::uint64_t pool_bytes = 64ull << 20;
    std::uint32_t repeats = 3;
    std::uint32_t lanes_most = 0;  ///< the cases: 1 lane and this many; 0: as many as there are cores
    std::uint32_t low_percent = 65, high_percent = 75;  ///< of the pool, in use
    std::uint64_t seed = 1;
    std::string json;
    std::vector<std::string> command;
};

struct PoolBenchWords {
    std::string pool = "64MiB";
    std::string lanes = "cpu";
};
void add_pool_options(CLI::App& app, PoolBenchOptions& options, PoolBenchWords& words);
Result<void> read_pool_words(const PoolBenchWords& words, PoolBenchOptions& options);

/// False: an allocator lost memory, or gave some of it twice.
Result<bool> run_pool(const PoolBenchOptions& options);

}  // namespace gnstor::bench
