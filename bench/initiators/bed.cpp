// bed.cpp: opens the array with room for what a run programs, or finds one that others serve.
#include "bench/initiators/bed.hpp"

#include "bench/hardware_threads.hpp"

namespace gnstor::bench {
namespace {

constexpr std::uint64_t kCapacityGrain = 64u << 20;

}  // namespace

Result<std::unique_ptr<Bed>> Bed::build(const BedOptions& options) {
    std::unique_ptr<Bed> bed(new Bed(options));
    if (!options.served.array.empty()) {
        GN_TRY(bed->open_served());
        return bed;
    }
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

Result<void> Bed::open_served() {
    GN_ASSIGN(served_, open_served_array(options_.served));
    client::ClientOptions counter;
    counter.name = "bench-counts";
    counter.channels = 1;
    counter.depth = 8;
    GN_ASSIGN(counter_, served_->array().connect(counter));
    options_.ssds = static_cast<std::uint32_t>(counter_->array().ssds.size());
    return {};
}

std::vector<EngineThread> Bed::threads() const {
    return served_ ? served_->nic_threads() : hardware_threads(*array_);
}

std::vector<HardwareProcess> Bed::processes() const {
    return served_ ? served_->processes() : std::vector<HardwareProcess>{};
}

Result<HardwareCounts> Bed::counts() {
    HardwareCounts all;
    for (const EngineThread& thread : threads())
        all.cpu_seconds += static_cast<double>(thread.cpu_time_ns) / 1e9;
    for (const HardwareProcess& process : processes()) all.cpu_seconds += process.cpu_seconds;
    if (served_) {
        GN_ASSIGN(const std::vector<client::SsdCounts> ssds, counter_->ssd_counts());
        for (const client::SsdCounts& ssd : ssds) all.commands += ssd.reads + ssd.writes;
        return all;
    }
    for (const EmbeddedSsd& ssd : array_->ssds()) {
        all.commands += ssd.reads + ssd.writes;
        all.forced += ssd.forced;
        all.refused += ssd.refused;
        all.pages_programmed += ssd.pages_programmed;
        all.gc_pages_copied += ssd.gc_pages_copied;
    }
    return all;
}

}  // namespace gnstor::bench
