// order.hpp: which of two versions of a block is newer. docs/array.md, rule 7.
//
// The order is (epoch, sequence, CRC), blocks and tombstones alike. CRC stands for the whole content: CRC-32C
// over the eight little-endian CRC-32C of its sectors (32 bytes; all zero for a tombstone). It decides only
// between different contents that carry one sequence (a buffer changed during a write), so that all replicas
// decide alike. Pure. Decided by this order: shard/changes.cpp (plan_write, compare_with_stored,
// same_order_wins), and after a boot recovery/newest_versions.cpp.
#pragma once

#include <gnstor/base/crc32c.hpp>

#include "deengine/flash.hpp"

#include <compare>
#include <cstdint>

namespace gnstor::deengine {

inline std::uint32_t content_crc(const std::uint32_t (&sector_crc)[nvme::kSectorsPerBlock]) {
    return crc32c(sector_crc, sizeof(sector_crc));
}

/// The same of a block in memory.
inline std::uint32_t content_crc_of(const std::byte* block) {
    std::uint32_t crcs[nvme::kSectorsPerBlock];
    for (std::uint32_t s = 0; s < nvme::kSectorsPerBlock; ++s)
        crcs[s] = crc32c(block + std::size_t{s} * nvme::kSectorBytes, nvme::kSectorBytes);
    return content_crc(crcs);
}

/// Epoch and sequence: what is known of a write before its contents are copied. Between equal ones the
/// contents decide.
struct WriteNumber {
    nvme::Epoch epoch = 0;
    std::uint64_t sequence = 0;

    auto operator<=>(const WriteNumber&) const = default;
};

struct WriteOrder {
    nvme::Epoch epoch = 0;
    std::uint64_t sequence = 0;
    std::uint32_t crc = 0;

    bool operator==(const WriteOrder&) const = default;
    std::strong_ordering operator<=>(const WriteOrder& other) const {
        const std::strong_ordering by_number = number() <=> other.number();
        return by_number != 0 ? by_number : crc <=> other.crc;
    }
    [[nodiscard]] WriteNumber number() const { return {epoch, sequence}; }
    /// From the record alone; the CRC of a lost page is in its contents (lost_page.hpp).
    static WriteOrder of(const PageOob& oob) {
        const bool lost = oob.kind == PageKind::kLost || oob.kind == PageKind::kLostOrder;
        return {oob.epoch, oob.sequence, lost ? 0 : content_crc(oob.sector_crc)};
    }
    static WriteOrder of_tombstone(nvme::Epoch epoch, std::uint64_t sequence) {
        constexpr std::uint32_t kNothing[nvme::kSectorsPerBlock] = {};
        return {epoch, sequence, content_crc(kNothing)};
    }
};

inline constexpr std::uint8_t kOobVersion = 2;

/// Whether the record is of a data or lost page in this layout. Flash has checked the record's CRC.
inline bool is_known_page(const PageOob& oob) {
    return oob.version == kOobVersion &&
           (oob.kind == PageKind::kData || oob.kind == PageKind::kLost || oob.kind == PageKind::kLostOrder);
}

}  // namespace gnstor::deengine
