// drive_options.hpp: configuration of a drive. Plain values.
#pragma once

#include "ssd/flash/fault/fault_plan.hpp"
#include "ssd/flash/memory_use.hpp"
#include "ssd/options/timing_model.hpp"

#include <cstdint>
#include <filesystem>
#include <string>

namespace gnstor::ssd {

/// What an acknowledged write survives. docs/design.md, "Durability promise".
enum class Durability : std::uint8_t {
    kDefault,  ///< kPower for a file or device, kProcess for memory
    kProcess,  ///< kill -9 of the process; a volatile write cache is reported
    kPower,    ///< power loss of the host: on the medium before the completion (group commit)
};

/// How a store is accessed. A drive without a store file is in memory.
enum class BackboneKind : std::uint8_t {
    kAuto,    ///< kMapped for a file, kDirect for a block device
    kMapped,  ///< through the page cache, mapped
    kDirect,  ///< O_DIRECT, by io_uring where this build and machine have it
};

struct DriveOptions {
    std::uint64_t capacity_bytes = 1ull << 30;  ///< of user blocks; over-provisioning comes on top
    std::filesystem::path file;  ///< empty: in memory; else the path of a store; a file is created if absent
    std::uint32_t pages_per_unit = 1024;
    std::uint32_t over_provisioning_percent = 7;
    std::string serial;  ///< at most 20 characters; empty: derived from the UUID
    Durability durability = Durability::kDefault;
    BackboneKind backbone = BackboneKind::kAuto;
    std::uint32_t channels = 4;  ///< of a new store, as the two below
    std::uint32_t dies_per_channel = 2;
    std::uint32_t service_units = 1;           ///< shards of the drive
    std::uint32_t scrub_pages_per_second = 0;  ///< background reading that checks data at rest; 0: none
    MemoryUse memory{};                        ///< of a drive in memory
    DriveTiming timing{};  ///< of the modelled hardware; none: completions are not delayed
    FaultPlan faults{};    ///< injected flash failures, for tests and trials
};

}  // namespace gnstor::ssd
