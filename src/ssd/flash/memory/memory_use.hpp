// memory_use.hpp: how a drive in memory uses it. Plain values.
#pragma once

#include <cstdint>

namespace gnstor::ssd {

/// Which copies store past the processor's caches: of programs into flash, of reads into the host's memory.
/// Plain stores load each line of the destination first; but what a device reads over PCIe soon afterwards
/// may come from the cache only if it was stored there.
struct CopiesPastCaches {
    bool programs = true;
    bool reads = false;
};

struct MemoryUse {
    CopiesPastCaches past_caches{};
    /// Of its pages: got from the kernel when the drive is opened, not when they are programmed the first
    /// time.
    std::uint64_t bytes_at_opening = 0;
};

}  // namespace gnstor::ssd
