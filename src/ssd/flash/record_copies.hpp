// record_copies.hpp: how a page's out-of-band record is checksummed, and which of its two copies is valid.
// docs/store-format.md, "Records and pages".
//
// A store keeps every record twice, in areas far apart, so that damage of one copy loses nothing. A power cut
// may destroy one copy, or leave its previous contents in it: the page's record is then one that a store with
// a single copy could have been left with, too. A record's checksum begins with the drive's UUID and
// the page number: the undamaged record of another page or another drive, which a medium that mixes up its
// sectors returns, thus counts as damaged.
// Pure.
#pragma once

#include <gnstor/base/crc32c.hpp>

#include "deengine/flash.hpp"
#include "ssd/flash/drive_seed.hpp"

#include <cstddef>
#include <cstring>

namespace gnstor::ssd {

inline bool is_erased(const deengine::PageOob& record) {
    static constexpr deengine::PageOob kNothing{};
    return std::memcmp(&record, &kNothing, sizeof record) == 0;
}

/// CRC of the drive's UUID (16 bytes; not if `drive` is zero), the page number (4 bytes, little endian) and
/// the record's bytes before the checksum.
inline std::uint32_t record_crc(const deengine::PageOob& record, deengine::PageNumber page, DriveSeed drive) {
    // In one buffer: every read of a record computes this, and a second CRC call costs more than the copy.
    constexpr std::size_t kSealed = offsetof(deengine::PageOob, crc);
    std::byte bytes[sizeof page + kSealed];
    std::memcpy(bytes, &page, sizeof page);
    std::memcpy(bytes + sizeof page, &record, kSealed);
    return crc32c(bytes, sizeof bytes, drive.crc);
}

/// Whether it is an undamaged record of this page of this drive.
inline bool is_whole(const deengine::PageOob& record, deengine::PageNumber page, DriveSeed drive) {
    return record.crc == record_crc(record, page, drive);
}

struct RecordCopies {
    deengine::PageOob counts{};  ///< the page's record: whole, erased, or damaged
    bool equal = false;          ///< both copies are the same: nothing to repair
    bool rotten = false;         ///< one copy is damaged and the other whole: a power cut does not leave that
    /// Both are whole, of one opening of the unit, and different. A page is programmed once per opening, so
    /// it is unknown which one is its record: `counts` is given a wrong checksum.
    bool contradict = false;
};

/// Number of records whose copies differ in a way that a power cut does not explain.
struct RecordDamage {
    std::uint64_t rotten = 0;
    std::uint64_t contradicting = 0;

    void add(const RecordCopies& copies) {
        rotten += copies.rotten ? 1 : 0;
        contradicting += copies.contradict ? 1 : 0;
    }
    void add(const RecordDamage& other) {
        rotten += other.rotten;
        contradicting += other.contradicting;
    }
};

/// A whole copy wins over a damaged or erased one; of two whole copies, that of the later opening of the unit
/// wins, since a lost erasure left the other; a damaged copy wins over an erased one.
inline RecordCopies compare_records(const std::byte* first, const std::byte* second,
                                    deengine::PageNumber page, DriveSeed drive) {
    RecordCopies found;
    std::memcpy(&found.counts, first, sizeof found.counts);
    found.equal = std::memcmp(first, second, sizeof found.counts) == 0;
    if (found.equal) return found;
    deengine::PageOob other;
    std::memcpy(&other, second, sizeof other);
    const bool whole = is_whole(found.counts, page, drive);
    const bool other_whole = is_whole(other, page, drive);
    found.rotten =
        (whole && !other_whole && !is_erased(other)) || (other_whole && !whole && !is_erased(found.counts));
    found.contradict = whole && other_whole && other.unit_serial == found.counts.unit_serial;
    if (found.contradict) {
        found.counts.crc = ~found.counts.crc;
        return found;
    }
    const bool other_counts = other_whole ? !whole || other.unit_serial > found.counts.unit_serial
                                          : !whole && is_erased(found.counts);
    if (other_counts) found.counts = other;
    return found;
}

}  // namespace gnstor::ssd
