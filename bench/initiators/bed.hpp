// bed.hpp: the array that initiators are measured on, and what its emulated hardware counts. Host, one
// thread.
//
// Owns the array, in memory and in this process, or the way to one that others serve; initiators are gone
// before it.
#pragma once

#include <gnstor/embedded_array.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "bench/initiators/served_array.hpp"

namespace gnstor::bench {

struct BedOptions {
    std::uint32_t ssds = 4;
    std::uint32_t engine_threads = 1;            ///< that run NICs and SSDs
    std::uint32_t nic_threads = 0;               ///< of those; 0: chosen
    std::uint32_t service_units = 1;             ///< of an SSD
    std::uint64_t programmed_bytes = 64u << 20;  ///< that all SSDs together take without collecting garbage
    bool whole_memory = false;  ///< they will collect it: every page that they have will be programmed
    std::uint64_t seed = 1;
    std::string profile = "none";     ///< of the hardware that is modelled: a name, or a file
    bool reads_for_device = false;    ///< a GPU fetches what is read (EmbeddedArrayOptions)
    std::filesystem::path directory;  ///< of the drives' stores; empty: memory
    SsdDurability durability = SsdDurability::kDefault;
    bool direct_io = false;
    ServedArrayOptions served;  ///< where it names an array, that one, as it is: nothing else counts
};

/// Of the memory that its drives will have, which are memory.
[[nodiscard]] std::uint64_t memory_of(const BedOptions& options);

/// Totals of all SSDs since they were opened.
struct HardwareCounts {
    std::uint64_t commands = 0;  ///< reads and writes answered
    std::uint64_t forced = 0;    ///< of those, with FUA
    std::uint64_t refused = 0;
    std::uint64_t pages_programmed = 0;
    std::uint64_t gc_pages_copied = 0;
    double cpu_seconds = 0;  ///< of the threads, or processes, that run NICs and SSDs
};

/// How many SSDs an array has that others serve: what its cases are about.
Result<std::uint32_t> served_ssds(const ServedArrayOptions& served);

class Bed {
  public:
    static Result<std::unique_ptr<Bed>> build(const BedOptions& options);

    [[nodiscard]] client::Array& array() { return served_ ? served_->array() : *array_; }
    [[nodiscard]] const BedOptions& options() const { return options_; }
    /// Whether others serve the array, and may work on it.
    [[nodiscard]] bool served() const { return served_ != nullptr; }
    /// For volume `i` of a run: of several runs that measure one served array each has its own.
    [[nodiscard]] std::string volume_name(std::uint32_t i) const;
    /// Closes a volume; an array that others serve is left without it, as it was.
    void leave(const client::Client& client, std::unique_ptr<client::Volume>& volume);
    /// Of this process's array; none of a served one.
    [[nodiscard]] std::vector<EmbeddedSsd> ssds() const;
    /// Of a served array: reads and writes alone, by the SSDs' health logs.
    Result<HardwareCounts> counts();
    /// Threads of this process that emulate hardware.
    [[nodiscard]] std::vector<EngineThread> threads() const;
    /// Processes of this machine that do, beside it.
    [[nodiscard]] std::vector<HardwareProcess> processes() const;

  private:
    explicit Bed(const BedOptions& options) : options_(options) {}
    Result<void> open_served();
    BedOptions options_;
    std::unique_ptr<EmbeddedArray> array_;
    std::unique_ptr<ServedArray> served_;      ///< in place of it
    std::unique_ptr<client::Client> counter_;  ///< asks its SSDs
};

}  // namespace gnstor::bench
