// bed.cpp: opens the array with room for what a run programs.
#include "bench/initiators/bed.hpp"

#include "bench/hardware_threads.hpp"

#include <algorithm>

namespace gnstor::bench {
namespace {

constexpr std::uint64_t kCapacityGrain = 64u << 20;

}  // namespace

Result<std::unique_ptr<Bed>> Bed::build(const BedOptions& options) {
    std::unique_ptr<Bed> bed(new Bed(options));
    EmbeddedArrayOptions array;
    array.ssds = options.ssds;
    // Chance makes shares uneven: half as much again for each.
    const std::uint64_t share = options.programmed_bytes / options.ssds * 3 / 2;
    array.ssd_capacity_bytes =
        (share + kCapacityGrain - 1) / kCapacityGrain * kCapacityGrain + kCapacityGrain;
    array.engine_threads = options.engine_threads;
    array.nic_threads = options.nic_threads;
    array.service_units = options.service_units;
    array.seed = options.seed;
    array.profile = options.profile;
    array.reads_for_device = options.reads_for_device;
    // As in `bench path`: writes are measured, not the system that gives pages.
    array.ssd_memory_at_opening = options.programmed_bytes / options.ssds;
    GN_ASSIGN(bed->array_, EmbeddedArray::open(array));
    return bed;
}

HardwareCounts Bed::counts() const {
    HardwareCounts all;
    for (const EmbeddedSsd& ssd : array_->ssds()) {
        all.commands += ssd.reads + ssd.writes;
        all.refused += ssd.refused;
        all.pages_programmed += ssd.pages_programmed;
        all.gc_pages_copied += ssd.gc_pages_copied;
    }
    for (const EngineThread& thread : hardware_threads(*array_))
        all.cpu_seconds += static_cast<double>(thread.cpu_time_ns) / 1e9;
    return all;
}

std::uint64_t Bed::free_pages_least() const {
    std::uint64_t least = ~0ull;
    for (const EmbeddedSsd& ssd : array_->ssds()) least = std::min(least, ssd.free_pages);
    return least;
}

}  // namespace gnstor::bench
