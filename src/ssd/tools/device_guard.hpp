// device_guard.hpp: objections to overwriting a file or a block device, and the device's real identity.
//
// `gnstor ssd format` destroys the device's contents, so it checks here first. There are two kinds of
// findings: the device is in use right now (mounted, swap, part of another device, opened exclusively), which
// nothing overrides; and it holds data (a partition table, a file system, another signature known to
// libblkid, a GNStor store), which --force overrides if the device's own serial number is given too. Reads
// only, except wipe_signatures(). Host code, any thread; all information comes from the descriptor, sysfs and
// procfs, whose roots are arguments.
#pragma once

#include <gnstor/base/result.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace gnstor::ssd {

/// Where the kernel's information is mounted. Tests pass directories of their own.
struct KernelView {
    std::filesystem::path sys = "/sys";
    std::filesystem::path proc = "/proc";
};

struct DeviceFacts {
    bool block_device = false;
    std::uint64_t bytes = 0;
    std::string name;                     ///< name in the kernel ("nvme0n1"); empty for a file
    std::string serial;                   ///< of the disk; empty: it has none
    std::string serial_from;              ///< the file in sysfs that it was read from
    std::vector<std::string> in_use;      ///< its present uses, a sentence each; nothing overrides these
    std::vector<std::string> signatures;  ///< what it holds, a phrase each
    bool signatures_known = true;         ///< false: built without libblkid, so foreign data is not detected
};

/// Signatures on an open file or device: "an ext4 file system (label 'x')", "a partition table (gpt)", "a
/// GNStor store". Errors: kIo.
Result<std::vector<std::string>> find_signatures(int fd, const std::filesystem::path& path);
/// False: built without libblkid, so find_signatures() recognises GNStor stores only.
[[nodiscard]] bool knows_signatures();

/// Collects all DeviceFacts of the file or device at `path`. Errors: kNotFound, kPermission, kIo,
/// kInvalidArgument (neither a regular file nor a block device).
Result<DeviceFacts> inspect_device(const std::filesystem::path& path, const KernelView& kernel = {});

struct FormatConsent {
    bool force = false;
    std::string device_serial;  ///< what the operator believes the serial number to be
};

/// Whether the device or file may be overwritten; if not, an error with all reasons and what to do. kBusy: in
/// use; kExists: it holds data and --force was not given; kInvalidArgument: the serial number is not this
/// device's, or none was given with --force.
Result<void> allow_format(const DeviceFacts& facts, const std::filesystem::path& path,
                          const FormatConsent& consent);

/// Overwrites the magic bytes of every signature, so that no tool finds an old file system beside the new
/// store. `fd` is open for writing. Returns the number of signatures.
Result<std::uint32_t> wipe_signatures(int fd, const std::filesystem::path& path);

}  // namespace gnstor::ssd
