#include "ssd/flash/flash_array.hpp"

#include <gnstor/base/crc32c.hpp>

#include "ssd/flash/record_copies.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace gnstor::ssd {

using deengine::FlashStatus;
using deengine::PageKind;
using deengine::PageNumber;
using deengine::PageOob;

namespace {

void copy_sectors(bool past_caches, void* to, const void* from, std::uint32_t sectors, std::uint32_t* crcs) {
    (past_caches ? stream_sectors_crc32c : copy_sectors_crc32c)(to, from, sectors, crcs);
}

}  // namespace

void FlashArray::attach(deengine::FlashGeometry geometry, std::byte* data, std::byte* oob,
                        std::byte* oob_copies, UnitRange range, DriveSeed drive) {
    geometry_ = geometry;
    drive_ = drive;
    range_ = range;
    data_ = data;
    oob_ = oob;
    oob_copies_ = oob_copies;
    write_pointer_.assign(range.units, 0);
    reserved_unit_ = geometry.units;
}

PageOob FlashArray::settled(PageNumber page) const {
    return compare_records(oob_ + std::size_t{page} * sizeof(PageOob), copy_of(page), page, drive_).counts;
}

void FlashArray::mend(PageNumber page) {
    std::byte* const first = oob_ + std::size_t{page} * sizeof(PageOob);
    const RecordCopies found = compare_records(first, copy_of(page), page, drive_);
    // Neither of two contradicting copies is trusted: both stay, so that a check can name them.
    if (found.equal || found.contradict) return;
    // One after the other, so that one copy is whole at every instant.
    std::memcpy(copy_of(page), &found.counts, sizeof found.counts);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    std::memcpy(first, &found.counts, sizeof found.counts);
}

void FlashArray::mend_records() {
    if (units_to_mend_.empty()) return;
    for (const std::uint32_t unit : units_to_mend_)
        for (std::uint32_t p = 0; p < geometry_.pages_per_unit; ++p)
            mend(unit * geometry_.pages_per_unit + p);
    units_to_mend_.clear();
    compares_copies_ = contradictions_;
}

RecordDamage FlashArray::scan_records() {
    RecordDamage damage;
    units_to_mend_.clear();
    const std::size_t unit_bytes = std::size_t{geometry_.pages_per_unit} * sizeof(PageOob);
    for (std::uint32_t i = 0; i < range_.units; ++i) {
        const PageNumber first_page = (range_.first + i) * geometry_.pages_per_unit;
        const std::byte* first = oob_ + std::size_t{first_page} * sizeof(PageOob);
        const bool differ =
            oob_copies_ != nullptr && std::memcmp(first, copy_of(first_page), unit_bytes) != 0;
        if (differ) units_to_mend_.push_back(range_.first + i);
        std::uint32_t end = 0;
        for (std::uint32_t p = 0; p < geometry_.pages_per_unit; ++p) {
            PageOob record;
            if (differ) {
                const RecordCopies found = compare_records(first + p * sizeof(PageOob),
                                                           copy_of(first_page + p), first_page + p, drive_);
                record = found.counts;
                damage.add(found);
            } else {
                std::memcpy(&record, first + p * sizeof(PageOob), sizeof record);
            }
            if (is_erased(record)) continue;
            end = p + 1;
            scanned_journal_.add(
                find_journal_page(reinterpret_cast<const std::byte*>(&record), first_page + p, drive_));
        }
        write_pointer_[i] = end;
    }
    contradictions_ = damage.contradicting != 0;
    compares_copies_ = !units_to_mend_.empty();
    return damage;
}

bool FlashArray::programmed(PageNumber page) const {
    const std::uint32_t unit = page / geometry_.pages_per_unit;
    return range_.has(unit) && page % geometry_.pages_per_unit < write_pointer_[unit - range_.first];
}

FlashStatus FlashArray::check_program(PageNumber page, const PageOob& oob) {
    const std::uint32_t unit = page / geometry_.pages_per_unit;
    const std::uint32_t offset = page % geometry_.pages_per_unit;
    if (!range_.has(unit) || offset != write_pointer_[unit - range_.first]) return FlashStatus::kRefused;
    if (oob.kind == PageKind::kErased) return FlashStatus::kRefused;
    if (offset == 0 || unit != reserved_unit_) {
        if (!reserve_unit(unit)) return FlashStatus::kNoRoom;
        reserved_unit_ = unit;
    }
    return FlashStatus::kOk;
}

void FlashArray::store_record(PageNumber page, PageOob& oob) {
    oob.crc = record_crc(oob, page, drive_);
    // Keeps the compiler from storing the record before the data: a kill leaves what this thread has stored
    // so far, in this order. (A power cut may reorder; the sector CRCs detect that.)
    std::atomic_signal_fence(std::memory_order_seq_cst);
    std::memcpy(oob_ + std::size_t{page} * sizeof(PageOob), &oob, sizeof oob);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (oob_copies_ != nullptr) std::memcpy(copy_of(page), &oob, sizeof oob);
    write_pointer_[page / geometry_.pages_per_unit - range_.first] = page % geometry_.pages_per_unit + 1;
}

FlashStatus FlashArray::program(PageNumber page, const std::byte* data, PageOob& oob) {
    if (const FlashStatus status = check_program(page, oob); status != FlashStatus::kOk) return status;
    if (data != nullptr) {
        copy_sectors(past_caches_.programs, data_of(page), data, nvme::kSectorsPerBlock, oob.sector_crc);
    } else {
        std::memset(oob.sector_crc, 0, sizeof oob.sector_crc);
    }
    store_record(page, oob);
    return FlashStatus::kOk;
}

FlashStatus FlashArray::copy_back(PageNumber from, PageNumber to, PageOob& oob, std::uint32_t* crcs) {
    if (!programmed(from)) return FlashStatus::kRefused;
    if (const FlashStatus status = check_program(to, oob); status != FlashStatus::kOk) return status;
    copy_sectors(past_caches_.programs, data_of(to), data_of(from), nvme::kSectorsPerBlock, crcs);
    store_record(to, oob);
    return FlashStatus::kOk;
}

FlashStatus FlashArray::read(PageNumber page, std::uint32_t first, std::uint32_t count, std::byte* to,
                             std::uint32_t* crcs) {
    if (!programmed(page)) return FlashStatus::kRefused;
    if (count == 0 || first >= nvme::kSectorsPerBlock || count > nvme::kSectorsPerBlock - first) {
        return FlashStatus::kRefused;
    }
    copy_sectors(past_caches_.reads, to, data_of(page) + std::size_t{first} * nvme::kSectorBytes, count,
                 crcs);
    return FlashStatus::kOk;
}

FlashStatus FlashArray::read_oob(PageNumber page, PageOob& oob) {
    if (!range_.has(page / geometry_.pages_per_unit)) return FlashStatus::kRefused;
    const std::byte* record = oob_ + std::size_t{page} * sizeof(PageOob);
    std::memcpy(&oob, record, sizeof oob);
    if (oob_copies_ != nullptr && (compares_copies_ || !is_whole(oob, page, drive_)) && programmed(page)) {
        oob = settled(page);
        if (units_to_mend_.empty()) mend(page);
    }
    if (is_erased(oob)) {
        // Below the write pointer an erased record is one that never reached the medium: a torn page, not a
        // free one.
        if (programmed(page)) return FlashStatus::kUncorrectable;
        oob.kind = PageKind::kErased;
        return FlashStatus::kOk;
    }
    return is_whole(oob, page, drive_) ? FlashStatus::kOk : FlashStatus::kUncorrectable;
}

FlashStatus FlashArray::erase(std::uint32_t unit) {
    if (!range_.has(unit)) return FlashStatus::kRefused;
    std::byte* first = oob_ + std::size_t{unit} * geometry_.pages_per_unit * sizeof(PageOob);
    // From the last record down: a kill in between leaves a unit that is programmed up to some page, without
    // holes.
    const PageNumber first_page = unit * geometry_.pages_per_unit;
    for (std::uint32_t i = write_pointer_[unit - range_.first]; i > 0; --i) {
        if (oob_copies_ != nullptr) std::memset(copy_of(first_page + i - 1), 0, sizeof(PageOob));
        std::memset(first + std::size_t{i - 1} * sizeof(PageOob), 0, sizeof(PageOob));
        std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    write_pointer_[unit - range_.first] = 0;
    drop_data(unit);
    return FlashStatus::kOk;
}

FlashStatus FlashArray::reserve(std::uint32_t unit) {
    if (!range_.has(unit)) return FlashStatus::kRefused;
    return reserve_unit(unit) ? FlashStatus::kOk : FlashStatus::kNoRoom;
}

}  // namespace gnstor::ssd
