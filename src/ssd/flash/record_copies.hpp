// record_copies.hpp: how a page's out-of-band record is sealed, and which of its two copies counts.
// docs/store-format.md, "Records and pages".
//
// A store keeps every record twice, in areas far apart, so that damage of one copy loses nothing. A cut may
// take one copy and leave the other, or leave in one what the other had before: the page's record is then the
// one that a store with a single copy could have been left with, too. A record's checksum begins with the
// number of its page: the undamaged record of another page, which a medium that mixes up its sectors gives,
// is a damaged one here. Pure.
#pragma once

#include <gnstor/base/crc32c.hpp>

#include "deengine/flash.hpp"

#include <cstddef>
#include <cstring>

namespace gnstor::ssd {

inline bool is_erased(const deengine::PageOob& record) {
    static constexpr deengine::PageOob kNothing{};
    return std::memcmp(&record, &kNothing, sizeof record) == 0;
}

/// Of the number of the page (4 bytes, little endian) and the record's bytes before the checksum.
inline std::uint32_t record_crc(const deengine::PageOob& record, deengine::PageNumber page) {
    // In a row: every read of a record does this, and a call costs more than its bytes.
    constexpr std::size_t kSealed = offsetof(deengine::PageOob, crc);
    std::byte bytes[sizeof page + kSealed];
    std::memcpy(bytes, &page, sizeof page);
    std::memcpy(bytes + sizeof page, &record, kSealed);
    return crc32c(bytes, sizeof bytes);
}

/// It is a record of this page, and undamaged.
inline bool is_whole(const deengine::PageOob& record, deengine::PageNumber page) {
    return record.crc == record_crc(record, page);
}

struct RecordCopies {
    deengine::PageOob counts{};  ///< the page's record: whole, erased, or damaged
    bool equal = false;          ///< both copies are the same: nothing is to be mended
    bool rotten = false;         ///< a damaged copy beside a whole one: no cut of a power supply leaves that
    /// Both are whole, of one opening of the unit, and not the same. A page is programmed once an opening, so
    /// nothing tells which one is its record: what counts is a damaged one.
    bool contradict = false;
};

/// Of how many records the copies differ in a way that no cut of a power supply explains.
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

/// A whole copy counts before one that is not; of two whole ones that of the later opening of the unit, since
/// the other one is what a lost erasure left; a damaged copy before an erased one.
inline RecordCopies compare_records(const std::byte* first, const std::byte* second,
                                    deengine::PageNumber page) {
    RecordCopies found;
    std::memcpy(&found.counts, first, sizeof found.counts);
    found.equal = std::memcmp(first, second, sizeof found.counts) == 0;
    if (found.equal) return found;
    deengine::PageOob other;
    std::memcpy(&other, second, sizeof other);
    const bool whole = is_whole(found.counts, page);
    const bool other_whole = is_whole(other, page);
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
