// memory.hpp: whether what drives of memory will hold fits into this machine, asked before it is filled.
// Host.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/base/units.hpp>

#include <cstdint>
#include <fstream>
#include <string>

namespace gnstor::bench {

/// As the kernel estimates it; ~0 where it says nothing.
inline std::uint64_t available_bytes() {
    std::ifstream file("/proc/meminfo");
    std::string key, unit;
    std::uint64_t value = 0;
    while (file >> key >> value >> unit)
        if (key == "MemAvailable:") return value * 1024;
    return ~0ull;
}

/// kNoSpace: more than nine tenths of what is available.
inline Result<void> check_memory(std::uint64_t needed) {
    const std::uint64_t available = available_bytes();
    if (needed <= available / 10 * 9) return {};
    return error(Errc::kNoSpace,
                 "the benchmark needs {} of memory, because its drives keep their data in memory, but only "
                 "{} are available; use a smaller --working-set or --write-budget",
                 format_bytes(needed), format_bytes(available >> 20 << 20));
}

}  // namespace gnstor::bench
