// store_format.hpp: how a drive's store lies in its file. docs/store-format.md, format version 1. Little
// endian. Pure.
//
//   superblock 4096 | reserved 4096 | metadata slot 0 | metadata slot 1 | out-of-band records | pages
#pragma once

#include "deengine/flash.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace gnstor::ssd {

inline constexpr std::array<char, 8> kStoreMagic = {'G', 'N', 'S', 'T', 'O', 'R', 'E', '\n'};
inline constexpr std::uint32_t kStoreFormatVersion = 1;
inline constexpr std::uint32_t kStorePage = 4096;  ///< every area begins at a multiple of it
inline constexpr std::uint64_t kStoreHeadBytes = 2ull * kStorePage;
inline constexpr std::uint32_t kStoreMetadataBytes = 1u << 20;  ///< a metadata slot of a new store

/// First page of the file. Written once, at creation. `crc` covers the bytes before it.
struct Superblock {
    char magic[8];
    std::uint32_t format_version;
    std::uint32_t page_bytes;  ///< 4096
    std::uint8_t uuid[16];     ///< incarnation of the store
    std::uint32_t units;
    std::uint32_t pages_per_unit;
    std::uint32_t oob_bytes;       ///< 64
    std::uint32_t metadata_bytes;  ///< of one slot, header included
    std::uint64_t metadata_offset;
    std::uint64_t oob_offset;
    std::uint64_t data_offset;
    std::uint64_t file_bytes;
    std::uint64_t capacity_bytes;  ///< what users were promised
    std::uint32_t over_provisioning_percent;
    char serial[20];  ///< padded with blanks
    std::uint8_t reserved[3980];
    std::uint32_t crc;
};
static_assert(sizeof(Superblock) == 4096, "the superblock fills one page");
static_assert(offsetof(Superblock, uuid) == 16 && offsetof(Superblock, metadata_offset) == 48);
static_assert(offsetof(Superblock, capacity_bytes) == 80 && offsetof(Superblock, serial) == 92);
static_assert(offsetof(Superblock, crc) == 4092);

/// Head of a metadata slot; the blob follows. The valid slot with the higher generation counts.
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

/// Where the areas of a store with this geometry lie. All sums fit: units * pages_per_unit < 2^32.
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
        l.data_offset = page_up(l.oob_offset + geometry.pages() * sizeof(deengine::PageOob));
        l.file_bytes = l.data_offset + geometry.pages() * nvme::kBlockBytes;
        return l;
    }
};

}  // namespace gnstor::ssd
