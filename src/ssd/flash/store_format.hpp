// store_format.hpp: layout of a drive's store in its file or device. docs/store-format.md, format version 5.
// Little endian. Pure.
//
//   superblock 4096 | boot record 4096 | metadata slot 0 | metadata slot 1
//   | out-of-band records | their second copies | pages
#pragma once

#include "deengine/flash.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace gnstor::ssd {

inline constexpr std::array<char, 8> kStoreMagic = {'G', 'N', 'S', 'T', 'O', 'R', 'E', '\n'};
inline constexpr std::uint32_t kStoreFormatVersion = 5;        ///< of new stores
inline constexpr std::uint32_t kOldestStoreFormatVersion = 4;  ///< that this program uses
/// Checksums of older versions lack the drive's UUID: drive_seed.hpp.
inline constexpr std::uint32_t kFirstVersionWithDriveInChecksums = 5;
inline constexpr std::uint32_t kStorePage = 4096;  ///< every area begins at a multiple of it
inline constexpr std::uint64_t kBootOffset = kStorePage;
inline constexpr std::uint64_t kStoreHeadBytes = 2ull * kStorePage;
inline constexpr std::uint32_t kStoreMetadataBytes = 1u << 20;  ///< a metadata slot of a new store
inline constexpr std::uint32_t kMaxServiceUnits = 64;
inline constexpr std::uint32_t kMaxDies = 1u << 16;  ///< channels x dies per channel

/// First page of the store. Written once, at creation. `crc` covers the bytes before it.
struct Superblock {
    char magic[8];
    std::uint32_t format_version;
    std::uint32_t page_bytes;     ///< 4096
    std::uint8_t drive_uuid[16];  ///< of the drive, never changes; the incarnation is in the boot record
    std::uint32_t units;
    std::uint32_t pages_per_unit;
    std::uint32_t oob_bytes;       ///< 64
    std::uint32_t metadata_bytes;  ///< of one slot, header included
    std::uint64_t metadata_offset;
    std::uint64_t oob_offset;
    std::uint64_t data_offset;
    std::uint64_t file_bytes;
    std::uint64_t capacity_bytes;  ///< promised to users
    std::uint32_t over_provisioning_percent;
    char serial[20];  ///< padded with blanks
    std::uint32_t channels;
    std::uint32_t dies_per_channel;
    std::uint32_t service_units;  ///< U: service unit i owns erase units [i * units / U, (i + 1) * units / U)
    std::uint8_t reserved[3968];
    std::uint32_t crc;

    [[nodiscard]] deengine::FlashGeometry geometry() const {
        return {units, pages_per_unit, channels, dies_per_channel};
    }
    /// Bytes of each of the two areas of records, which are adjacent.
    [[nodiscard]] std::uint64_t records_bytes() const { return (data_offset - oob_offset) / 2; }
    [[nodiscard]] std::uint64_t record_copies_offset() const { return oob_offset + records_bytes(); }
    /// The last service unit whose first erase unit is not above the page's.
    [[nodiscard]] std::uint32_t service_unit_of(deengine::PageNumber page) const {
        const std::uint64_t unit = page / pages_per_unit;
        return static_cast<std::uint32_t>(((unit + 1) * service_units - 1) / units);
    }
};
static_assert(sizeof(Superblock) == 4096, "the superblock fills one page");
static_assert(offsetof(Superblock, drive_uuid) == 16 && offsetof(Superblock, metadata_offset) == 48);
static_assert(offsetof(Superblock, capacity_bytes) == 80 && offsetof(Superblock, serial) == 92);
static_assert(offsetof(Superblock, channels) == 112 && offsetof(Superblock, service_units) == 120);
static_assert(offsetof(Superblock, crc) == 4092);

/// What an acknowledged write survives, as stated in the boot record.
enum class BootMode : std::uint8_t { kProcess = 1, kPower = 2 };
enum class BootState : std::uint8_t {
    kClean = 1,     ///< closed, everything on the medium
    kOpen = 2,      ///< in use, or its last user was killed
    kEmptying = 3,  ///< its contents are being dropped: the next opening continues that
};

/// How its last user accessed the store, which determines what a kill of that user may have lost.
enum class BootBackbone : std::uint8_t {
    kNotTold = 0,  ///< never used, or by an older program
    kMapped = 1,   ///< through the page cache: everything programmed outlives the process
    kDirect = 2,   ///< by O_DIRECT: what no sync covered may be missing, in any combination
};

/// The store's incarnation, and how it was left. Two copies, each in its own half of the second page; each
/// change writes both, the second after the first is on the medium. The whole copy with the higher generation
/// is valid.
struct BootRecord {
    char magic[8];
    std::uint64_t generation;       ///< counts changes, from 1
    std::uint8_t incarnation[16];   ///< UUID of this incarnation of the store. docs/array.md, rule 10
    std::uint8_t host_boot_id[16];  ///< of the host's boot in which it was last opened
    BootMode mode;
    BootState state;
    /// 1: a completed recovery has found everything that an earlier power cut tore, or there was no cut:
    /// since then, in this boot of the host, a process that serves the store can only have been killed.
    std::uint8_t recovered;
    BootBackbone backbone;  ///< used when it was last opened
    std::uint8_t reserved52[4];
    /// A metadata generation that was stable when this record was written; at a clean close the newest. If
    /// all copies are older, a newer one has rotted. 0: not recorded; kMetadataGivenUp.
    std::uint64_t metadata_generation;
    /// Per service unit, the number of a journal page that was stable when this record was written; at a
    /// clean close the newest. 0: none. If no page record names one at least as new, records are lost.
    std::uint64_t journal_pages[kMaxServiceUnits];
    std::uint8_t reserved[1468];
    std::uint32_t crc;  ///< of the bytes before it
};
static_assert(sizeof(BootRecord) == 2048,
              "two copies of the boot record must fill one page, so that each copy fills one half");
static_assert(offsetof(BootRecord, incarnation) == 16 && offsetof(BootRecord, host_boot_id) == 32);
static_assert(offsetof(BootRecord, mode) == 48 && offsetof(BootRecord, crc) == 2044);
static_assert(offsetof(BootRecord, recovered) == 50 && offsetof(BootRecord, backbone) == 51);
static_assert(offsetof(BootRecord, metadata_generation) == 56 && offsetof(BootRecord, journal_pages) == 64);
/// The loss of the newest metadata was accepted, and a recovery from an older copy is running or was
/// interrupted: until such a recovery has ended, that copy is used only if the loss is accepted again.
inline constexpr std::uint64_t kMetadataGivenUp = ~0ull;
inline constexpr std::array<char, 8> kBootMagic = {'G', 'N', 'B', 'O', 'O', 'T', '2', '\n'};

/// Header of a metadata slot; the blob follows, and the last bytes of the slot hold a second copy of the
/// header (zeroes: written by an older program). The valid slot with the higher generation is used.
struct MetadataHeader {
    char magic[8];
    std::uint64_t generation;  ///< 1 for the first; 0: never written
    std::uint64_t length;
    std::uint32_t blob_crc;
    std::uint8_t reserved[32];
    std::uint32_t crc;  ///< of the bytes before it
};
static_assert(sizeof(MetadataHeader) == 64 && offsetof(MetadataHeader, crc) == 60);
inline constexpr std::array<char, 8> kMetadataMagic = {'G', 'N', 'M', 'E', 'T', 'A', '1', '\n'};

/// Offsets of the areas of a store with this geometry. All sums fit: units * pages_per_unit < 2^32.
struct StoreLayout {
    std::uint64_t metadata_offset;
    std::uint64_t oob_offset;
    std::uint64_t data_offset;
    std::uint64_t file_bytes;

    static StoreLayout of(deengine::FlashGeometry geometry, std::uint32_t metadata_bytes) {
        const auto page_up = [](std::uint64_t v) { return (v + kStorePage - 1) / kStorePage * kStorePage; };
        StoreLayout l{};
        l.metadata_offset = kStoreHeadBytes;
        l.oob_offset = l.metadata_offset + 2 * page_up(metadata_bytes);
        l.data_offset = l.oob_offset + 2 * page_up(geometry.pages() * sizeof(deengine::PageOob));
        l.file_bytes = l.data_offset + geometry.pages() * nvme::kBlockBytes;
        return l;
    }
};

/// Erase units of service unit `index` of `count`: [first, first + units).
struct UnitRange {
    std::uint32_t first;
    std::uint32_t units;
    static UnitRange of(std::uint32_t all, std::uint32_t index, std::uint32_t count) {
        const auto at = [&](std::uint64_t i) { return static_cast<std::uint32_t>(i * all / count); };
        return {at(index), at(index + 1) - at(index)};
    }
    [[nodiscard]] bool has(std::uint32_t unit) const { return unit - first < units; }
};

}  // namespace gnstor::ssd
