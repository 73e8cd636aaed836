// store_head.hpp: the first two pages of a store, superblock and boot record: creation, reading, checks,
// changes.
//
// Invariants
//   * nothing in a store is trusted before its superblock matches its own checksum, its geometry and the
//     length of its file;
//   * a change of the boot record is on the medium in both copies before it takes effect.
// Host code; the caller holds the store's lock.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/base/uuid.hpp>

#include "ssd/flash/drive_seed.hpp"
#include "ssd/flash/store_format.hpp"

#include <filesystem>
#include <string>

namespace gnstor::ssd {

struct NewStore {
    deengine::FlashGeometry geometry;
    std::uint64_t capacity_bytes;
    std::uint32_t over_provisioning_percent = 7;
    std::uint32_t metadata_bytes = kStoreMetadataBytes;
    std::string serial;  ///< at most 20 characters; empty: derived from the UUID
    std::uint32_t service_units = 1;
    Uuid drive_uuid{};     ///< nil: a new one
    bool replace = false;  ///< overwrites whatever is there
};

/// The default serial number, derived from the drive's UUID.
[[nodiscard]] std::string serial_from(const Uuid& drive_uuid);
Result<Superblock> make_superblock(const NewStore& what, const std::filesystem::path& path);
/// The parameters that would create this store again.
[[nodiscard]] NewStore recipe_of(const Superblock& superblock);
[[nodiscard]] std::string serial_of(const Superblock& superblock);
/// Bytes of a regular file or of a block device; kInvalidArgument for anything else.
Result<std::uint64_t> store_room(int fd, const std::filesystem::path& path);
/// Reads and checks the superblock of an open store. kCorrupt, kUnsupported: the message says what is wrong
/// and what to do.
Result<Superblock> read_superblock(int fd, const std::filesystem::path& path);

/// The boot record of an unused store, with a new incarnation.
[[nodiscard]] BootRecord new_boot_record();
Result<BootRecord> read_boot_record(int fd, const std::filesystem::path& path, DriveSeed drive);
/// The same of a store whose superblock was not read yet.
Result<BootRecord> read_boot_record(int fd, const std::filesystem::path& path);
[[nodiscard]] std::uint32_t boot_record_crc(const BootRecord& record, DriveSeed drive);
/// Whether it is an undamaged boot record of this drive.
[[nodiscard]] bool is_whole(const BootRecord& record, DriveSeed drive);
/// Increments the generation, computes the checksum, and writes both copies, the second after the first is on
/// the medium.
[[nodiscard]] bool write_boot_record(int fd, BootRecord& record, DriveSeed drive);

/// The id of this host's current boot: /proc/sys/kernel/random/boot_id. Nil if it cannot be read.
[[nodiscard]] Uuid host_boot_id();

/// Whether the store holds everything that was acknowledged. False if it was being emptied, or if its last
/// user promised to survive a kill only, did not close it, and the host has been restarted since.
/// docs/design.md, "Durability promise".
[[nodiscard]] bool trusted(const BootRecord& record, const Uuid& host_boot);
/// The store was last served in this boot of the host, through the page cache, by a process that was killed,
/// and no damage of an earlier power cut is left to be found: everything that the process programmed is
/// present, except the operation in progress.
[[nodiscard]] bool was_only_killed(const BootRecord& record, const Uuid& host_boot);

/// The two copies of a metadata slot's header, compared.
struct HeaderCopies {
    MetadataHeader header{};  ///< the whole copy with the higher generation
    bool whole = false;
    bool both_whole = false;
    /// Neither is whole, and one has a checksum: it was not cleared, and a torn header would lack its end,
    /// which holds the checksum. So it has rotted, and may have been the newest.
    bool rotten = false;
};
[[nodiscard]] HeaderCopies compare_headers(const MetadataHeader& first, const MetadataHeader& second,
                                           std::uint64_t blob_bytes_max, DriveSeed drive);
[[nodiscard]] std::uint32_t metadata_header_crc(const MetadataHeader& header, DriveSeed drive);
/// Bytes of a blob that fit into a slot, beside the two copies of its header.
constexpr std::uint64_t metadata_capacity(std::uint64_t slot_bytes) {
    return slot_bytes - 2 * sizeof(MetadataHeader);
}

}  // namespace gnstor::ssd
