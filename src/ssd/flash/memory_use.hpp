// memory_use.hpp: how a drive in memory uses that memory. Plain values.
#pragma once

#include <cstdint>

namespace gnstor::ssd {

/// Which copies bypass the processor's caches: of programs into flash, of reads into the host's memory. Plain
/// stores first load each line of the destination; but a device that reads the data over PCIe soon afterwards
/// hits the cache only if it was stored there.
struct CopiesPastCaches {
    bool programs = true;
    bool reads = false;
};

struct MemoryUse {
    CopiesPastCaches past_caches{};
    /// Bytes of its pages that are populated when the drive is opened, not when they are first programmed.
    std::uint64_t bytes_at_opening = 0;
};

}  // namespace gnstor::ssd
