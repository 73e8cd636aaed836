// older_store.hpp: turns a store that was just created into one of format version 4, as older programs made
// them: its checksums do not begin with the drive's UUID (docs/store-format.md, "Checksums prove the drive").
#pragma once

#include <gnstor/base/crc32c.hpp>

#include "ssd/flash/file/posix_file.hpp"
#include "ssd/flash/file/store_head.hpp"

#include <fcntl.h>

#include <cstddef>
#include <filesystem>

namespace gnstor::ssd::testing {

/// The store must be closed, and hold neither metadata nor pages. False: it could not be written.
[[nodiscard]] inline bool make_version_4(const std::filesystem::path& path) {
    const FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    Superblock s = read_superblock(fd.get(), path).value();
    BootRecord boot = read_boot_record(fd.get(), path, seed_of(s)).value();
    s.format_version = 4;
    s.crc = crc32c(&s, offsetof(Superblock, crc));
    return write_all(fd.get(), &s, sizeof s, 0) && write_boot_record(fd.get(), boot, DriveSeed{});
}

}  // namespace gnstor::ssd::testing
