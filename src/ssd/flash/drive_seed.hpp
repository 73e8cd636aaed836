// drive_seed.hpp: what the checksums of a store begin with, so that parts of another store are damage.
// docs/store-format.md, "Checksums prove the drive". Pure.
#pragma once

#include <gnstor/base/crc32c.hpp>

#include "ssd/flash/store_format.hpp"

#include <cstdint>

namespace gnstor::ssd {

/// CRC of the drive's UUID. The checksums of boot records, metadata headers and records of pages continue it.
/// Zero: they begin with nothing (flash in memory, and stores of format version 4).
struct DriveSeed {
    std::uint32_t crc = 0;
};

inline DriveSeed seed_of(const Superblock& s) {
    return {s.format_version < kFirstVersionWithDriveInChecksums ? 0
                                                                 : crc32c(s.drive_uuid, sizeof s.drive_uuid)};
}

}  // namespace gnstor::ssd
