// bed.hpp: the array that initiators are measured on, and what its emulated hardware counts. Host, one
// thread.
//
// Owns the array and the folder of its stores, if any; initiators are gone before it.
#pragma once

#include <gnstor/embedded_array.hpp>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace gnstor::bench {

struct BedOptions {
    std::uint32_t ssds = 4;
    std::uint32_t engine_threads = 1;            ///< that run NICs and SSDs
    std::uint32_t nic_threads = 0;               ///< of those; 0: chosen
    std::uint32_t service_units = 1;             ///< of an SSD
    std::uint64_t programmed_bytes = 64u << 20;  ///< that all SSDs together take without collecting garbage
    std::uint64_t seed = 1;
    std::string profile = "none";   ///< of the hardware that is modelled: a name, or a file
    bool reads_for_device = false;  ///< a GPU fetches what is read (EmbeddedArrayOptions)
};

/// Totals of all SSDs since they were opened.
struct HardwareCounts {
    std::uint64_t commands = 0;  ///< reads and writes answered
    std::uint64_t refused = 0;
    std::uint64_t pages_programmed = 0;
    std::uint64_t gc_pages_copied = 0;
    double cpu_seconds = 0;  ///< of the threads that run NICs and SSDs
};

class Bed {
  public:
    static Result<std::unique_ptr<Bed>> build(const BedOptions& options);

    [[nodiscard]] EmbeddedArray& array() { return *array_; }
    [[nodiscard]] const BedOptions& options() const { return options_; }
    [[nodiscard]] HardwareCounts counts() const;
    /// Pages that the fullest SSD can still program.
    [[nodiscard]] std::uint64_t free_pages_least() const;

  private:
    explicit Bed(const BedOptions& options) : options_(options) {}
    const BedOptions options_;
    std::unique_ptr<EmbeddedArray> array_;
};

}  // namespace gnstor::bench
