// drive_options.hpp: what a drive is made of and promises. Plain values.
#pragma once

#include "ssd/drive/timing_model.hpp"
#include "ssd/flash/fault/fault_plan.hpp"
#include "ssd/flash/memory/memory_use.hpp"

#include <cstdint>
#include <filesystem>
#include <string>

namespace gnstor::ssd {

/// What an acknowledged write survives. DESIGN.md, "Durability promise".
enum class Durability : std::uint8_t {
    kDefault,  ///< kPower for a file or device, kProcess for memory
    kProcess,  ///< kill -9 of the process; a volatile write cache is reported
    kPower,    ///< power loss of the host: on the medium before the completion, grouped
};

/// How a store is reached. Memory where no store is named.
enum class BackboneKind : std::uint8_t {
    kAuto,    ///< kMapped for a file, kDirect for a block device
    kMapped,  ///< through the page cache, mapped
    kDirect,  ///< O_DIRECT, by io_uring where this build and machine have it
};

struct DriveOptions {
    std::uint64_t capacity_bytes = 1ull << 30;  ///< of user blocks; over-provisioning comes on top
    std::filesystem::path file;                 ///< empty: memory; else a store, made if absent (a file)
    std::uint32_t pages_per_unit = 1024;
    std::uint32_t over_provisioning_percent = 7;
    std::string serial;  ///< at most 20 characters; empty: derived from the UUID
    Durability durability = Durability::kDefault;
    BackboneKind backbone = BackboneKind::kAuto;
    std::uint32_t channels = 4;  ///< of a new store, as the three below
    std::uint32_t dies_per_channel = 2;
    std::uint32_t service_units = 1;           ///< shards of the drive
    std::uint32_t scrub_pages_per_second = 0;  ///< background reading that checks data at rest; 0: none
    MemoryUse memory{};                        ///< of a drive in memory
    DriveTiming timing{};  ///< of the hardware that it stands for; none: as fast as it can
    FaultPlan faults{};    ///< failures of flash that the drive shall meet: for tests and trials
};

}  // namespace gnstor::ssd
