// store_head.hpp: the first two pages of a store: superblock and boot record, made, read, checked, renewed.
//
// Invariants
//   * nothing of a store is believed before its superblock held against its own checksum, its geometry and
//   the length of its file;
//   * a change of the boot record is on the medium in both copies before it is acted upon.
// Host code; the caller holds the store's lock.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/base/uuid.hpp>

#include "ssd/flash/file/store_format.hpp"

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
    bool replace = false;  ///< what is there may go, whatever it is
};

/// The serial number of a drive that was given none.
[[nodiscard]] std::string serial_from(const Uuid& drive_uuid);
Result<Superblock> make_superblock(const NewStore& what, const std::filesystem::path& path);
/// What would make this store again.
[[nodiscard]] NewStore recipe_of(const Superblock& superblock);
[[nodiscard]] std::string serial_of(const Superblock& superblock);
/// Bytes of a regular file or of a block device; kInvalidArgument for anything else.
Result<std::uint64_t> store_room(int fd, const std::filesystem::path& path);
/// Reads and checks the superblock of an open store: kCorrupt or kUnsupported with a sentence that says what
/// is wrong and what to do, or the superblock.
Result<Superblock> read_superblock(int fd, const std::filesystem::path& path);

/// The record of a store that was never used, of a new incarnation.
[[nodiscard]] BootRecord new_boot_record();
Result<BootRecord> read_boot_record(int fd, const std::filesystem::path& path);
/// Raises the generation, seals, and writes both copies, the second when the first is on the medium.
[[nodiscard]] bool write_boot_record(int fd, BootRecord& record);

/// The boot of this host: /proc/sys/kernel/random/boot_id. Nil if it cannot be read.
[[nodiscard]] Uuid host_boot_id();

/// Whether what the store holds is what was acknowledged. Not so if its last user promised to survive a kill
/// alone, was not closed, and the host has been started again since. DESIGN.md, "Durability promise".
[[nodiscard]] bool trusted(const BootRecord& record, const Uuid& host_boot);
/// The store was last served in this boot of the host and through the page cache, by a process that was
/// killed, and nothing of an earlier end is left to be found: what it programmed is all there, but for the
/// operation under way.
[[nodiscard]] bool was_only_killed(const BootRecord& record, const Uuid& host_boot);

/// What the two copies of a metadata slot's header say.
struct HeaderCopies {
    MetadataHeader header{};  ///< the whole one with the higher generation
    bool whole = false;
    bool both_whole = false;
    /// Neither is whole, and one has a checksum: not cleared, and not torn either, for then it would lack its
    /// end. It has rotted, and may have been the newest.
    bool rotten = false;
};
[[nodiscard]] HeaderCopies compare_headers(const MetadataHeader& first, const MetadataHeader& second,
                                           std::uint64_t blob_bytes_max);
/// What a slot of so many bytes has room for, beside its header's copies.
constexpr std::uint64_t metadata_capacity(std::uint64_t slot_bytes) {
    return slot_bytes - 2 * sizeof(MetadataHeader);
}

}  // namespace gnstor::ssd
