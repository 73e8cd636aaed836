// bed.cpp: opens the array with room for what a run programs, or finds one that others serve.
#include "bench/initiators/bed.hpp"

#include <gnstor/base/log.hpp>

#include "bench/hardware_threads.hpp"

#include <unistd.h>

namespace gnstor::bench {
namespace {

constexpr std::uint64_t kCapacityGrain = 64u << 20;
constexpr std::uint64_t kMostMemory = 2;  ///< no drive has twice as many pages as it promises

constexpr std::uint64_t kSmallGrain = 16u << 20;  ///< of drives that get all their memory, for less than that

/// Chance makes shares uneven: half as much again for each.
std::uint64_t capacity_of_each(const BedOptions& options) {
    const std::uint64_t share = options.programmed_bytes / options.ssds * 3 / 2;
    const std::uint64_t grain = options.whole_memory && share < kCapacityGrain ? kSmallGrain : kCapacityGrain;
    return (share + grain - 1) / grain * grain + grain;
}

}  // namespace

std::uint64_t memory_of(const BedOptions& options) {
    if (!options.whole_memory) return options.programmed_bytes;
    return capacity_of_each(options) * options.ssds * 3 / 2;  // small drives keep up to a third in reserve
}

Result<std::uint32_t> served_ssds(const ServedArrayOptions& served) {
    GN_ASSIGN(const std::unique_ptr<ServedArray> array, open_served_array(served));
    GN_ASSIGN(const client::ArrayView view, array->array().control().array());
    return static_cast<std::uint32_t>(view.ssds.size());
}

Result<std::unique_ptr<Bed>> Bed::build(const BedOptions& options) {
    std::unique_ptr<Bed> bed(new Bed(options));
    if (!options.served.array.empty()) {
        GN_TRY(bed->open_served());
        return bed;
    }
    EmbeddedArrayOptions array;
    array.ssds = options.ssds;
    array.ssd_capacity_bytes = capacity_of_each(options);
    array.engine_threads = options.engine_threads;
    array.nic_threads = options.nic_threads;
    array.service_units = options.service_units;
    array.seed = options.seed;
    array.profile = options.profile;
    array.reads_for_device = options.reads_for_device;
    array.directory = options.directory;
    array.durability = options.durability;
    array.direct_io = options.direct_io;
    // What will be programmed lies in memory that the drives have already: writes are measured, not the
    // system that gives pages (and no more than that: the machine's memory was checked against it).
    array.ssd_memory_at_opening = options.whole_memory ? kMostMemory * array.ssd_capacity_bytes
                                                       : options.programmed_bytes / options.ssds;
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

std::string Bed::volume_name(std::uint32_t i) const {
    return served_ ? fmt::format("bench-{}-{}", ::getpid(), i) : fmt::format("bench-{}", i);
}

void Bed::leave(const client::Client& client, std::unique_ptr<client::Volume>& volume) {
    if (volume == nullptr) return;
    const std::string name = volume->record().name;
    volume.reset();
    if (!served_) return;
    if (auto gone = array().control().delete_volume(client.identity().id, name); !gone.ok())
        log_warn("the benchmark's volume '{}' could not be deleted and remains in the array: {}", name,
                 gone.error().message);
}

std::vector<EmbeddedSsd> Bed::ssds() const {
    return served_ ? std::vector<EmbeddedSsd>{} : array_->ssds();
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
