// device_guard.hpp: what speaks against overwriting a file or a block device, and which device it really is.
//
// `gnstor ssd format` destroys what is there, so it asks here first. Two kinds of findings: what makes the
// device somebody's right now (mounted, swap, part of another device, opened exclusively), which nothing
// overrides; and what lies on it (a partition table, a file system, another signature known to libblkid, a
// GNStor store), which --force overrides together with the device's own serial number. Reads only, but for
// wipe_signatures(). Host code, any thread; everything it knows comes from the descriptor, sysfs and procfs,
// whose roots are arguments.
#pragma once

#include <gnstor/base/result.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace gnstor::ssd {

/// Where the kernel says what it knows. Tests have their own.
struct KernelView {
    std::filesystem::path sys = "/sys";
    std::filesystem::path proc = "/proc";
};

struct DeviceFacts {
    bool block_device = false;
    std::uint64_t bytes = 0;
    std::string name;                     ///< of the kernel ("nvme0n1"); empty for a file
    std::string serial;                   ///< of the disk; empty: it has none
    std::string serial_from;              ///< the file in sysfs that says so
    std::vector<std::string> in_use;      ///< whose it is right now, a sentence each; nothing overrides these
    std::vector<std::string> signatures;  ///< what lies on it, a sentence each
    bool signatures_known = true;         ///< false: built without libblkid, so nobody has looked
};

/// What lies on an open file or device: "an ext4 file system (label 'x')", "a partition table (gpt)", "a
/// GNStor store". Errors: kIo.
Result<std::vector<std::string>> find_signatures(int fd, const std::filesystem::path& path);
/// False where this program was built without libblkid: find_signatures() then knows GNStor's own alone.
[[nodiscard]] bool knows_signatures();

/// Everything above about what is at `path`. Errors: kNotFound, kPermission, kIo, kInvalidArgument (neither a
/// regular file nor a block device).
Result<DeviceFacts> inspect_device(const std::filesystem::path& path, const KernelView& kernel = {});

struct FormatConsent {
    bool force = false;
    std::string device_serial;  ///< what the operator believes the serial number to be
};

/// Whether it may be overwritten, and if not a sentence with all reasons and what to do. kBusy: in use;
/// kExists: something lies there and --force was not given; kInvalidArgument: the serial number is not this
/// device's, or none was given with --force.
Result<void> allow_format(const DeviceFacts& facts, const std::filesystem::path& path,
                          const FormatConsent& consent);

/// Overwrites the magic bytes of every signature, so that no tool finds an old file system beside the new
/// store. `fd` is open for writing. Returns how many.
Result<std::uint32_t> wipe_signatures(int fd, const std::filesystem::path& path);

}  // namespace gnstor::ssd
