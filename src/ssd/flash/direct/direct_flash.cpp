#include "ssd/flash/direct/direct_flash.hpp"

#include <gnstor/base/crc32c.hpp>

#include "ssd/flash/record_copies.hpp"

#include <cerrno>
#include <cstring>

namespace gnstor::ssd {

using deengine::FlashStatus;
using deengine::PageKind;
using deengine::PageNumber;
using deengine::PageOob;

namespace {

constexpr std::uint32_t kSendEvery = 8;  // pages gathered before the kernel is called

std::uint32_t lines_of(UnitRange range, std::uint32_t pages_per_unit, std::uint32_t first_line) {
    const std::uint64_t end = std::uint64_t{range.first + range.units} * pages_per_unit;
    return static_cast<std::uint32_t>((end + DirectFlash::kRecordsPerLine - 1) /
                                      DirectFlash::kRecordsPerLine) -
           first_line;
}

}  // namespace

DirectFlash::DirectFlash(DirectFile& shared, UnitRange range, std::unique_ptr<IoQueue> queue)
    : shared_(shared),
      geometry_(shared.superblock().geometry()),
      drive_(seed_of(shared.superblock())),
      range_(range),
      first_line_(static_cast<std::uint32_t>(std::uint64_t{range.first} * geometry_.pages_per_unit /
                                             kRecordsPerLine)),
      units_(range.units),
      staging_(std::size_t{shared.options.staged_pages} * nvme::kBlockBytes),
      lines_(std::size_t{kLineBuffers} * kLineBytes),
      scratch_(nvme::kBlockBytes),
      slots_(shared.options.staged_pages),
      is_dirty_(lines_of(range, geometry_.pages_per_unit, first_line_)),
      ahead_(std::make_unique<ReadAhead>(kAheadBuffers)),
      queue_(std::move(queue)) {
    for (std::uint32_t i = shared.options.staged_pages; i > 0; --i) free_slots_.push_back(i - 1);
    for (std::uint32_t i = kLineBuffers; i > 0; --i) free_lines_.push_back(i - 1);
    staged_.reserve(shared.options.staged_pages);
    for (std::uint32_t i = 0; i < range.units; ++i) {
        const PageNumber first = (range.first + i) * geometry_.pages_per_unit;
        std::uint32_t next = geometry_.pages_per_unit;
        while (next > 0 && is_erased(record(first + next - 1))) --next;
        units_[i].next = units_[i].written = next;
    }
    for (const std::uint32_t line : shared.to_mend)
        if (line >= first_line_ && line < first_line_ + is_dirty_.size()) mark_dirty(line);
}

bool DirectFlash::programmed(PageNumber page) const {
    const std::uint32_t unit = page / geometry_.pages_per_unit;
    return range_.has(unit) && page % geometry_.pages_per_unit < units_[unit - range_.first].next;
}

FlashStatus DirectFlash::check_program(PageNumber page, const PageOob& oob) {
    const std::uint32_t unit = page / geometry_.pages_per_unit;
    if (!range_.has(unit) || oob.kind == PageKind::kErased) return FlashStatus::kRefused;
    Unit& u = units_[unit - range_.first];
    if (u.bad || page % geometry_.pages_per_unit != u.next) return FlashStatus::kRefused;
    if (!shared_.file->begin_changes()) return FlashStatus::kProgramFailed;
    return reserve(unit);
}

FlashStatus DirectFlash::reserve(std::uint32_t unit) {
    if (!range_.has(unit)) return FlashStatus::kRefused;
    Unit& u = units_[unit - range_.first];
    if (u.has_room) return FlashStatus::kOk;
    // A copy of a store may have lost the disk space of a partly programmed unit; a device has all its space.
    const std::uint64_t bytes = std::uint64_t{geometry_.pages_per_unit} * nvme::kBlockBytes;
    u.has_room = shared_.file->is_device() ||
                 reserve_room(shared_.direct.get(), shared_.superblock().data_offset + unit * bytes, bytes);
    return u.has_room ? FlashStatus::kOk : FlashStatus::kNoRoom;
}

std::uint32_t DirectFlash::take_slot() {
    if (free_slots_.empty()) {
        // A page that could not be written keeps its slot: if all slots are kept, none comes free.
        const auto changed = [&] { return !free_slots_.empty() || in_flight_[0] + in_flight_[1] == 0; };
        if (!pump_until(changed) || free_slots_.empty()) return kNoSlot;
    }
    const std::uint32_t slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
}

void DirectFlash::queue_page(PageNumber page, std::uint32_t slot) {
    slots_[slot] = {page, generation_};
    staged_.emplace(page, slot);
    ++in_flight_[generation_ & 1];
    queue_->write(slot_data(slot), nvme::kBlockBytes, page_offset(page), token(Op::kPage, slot));
    if (++unsent_ < kSendEvery) return;
    unsent_ = 0;
    if (!queue_->submit()) fail("the kernel does not accept writes of pages", -EIO);
}

void DirectFlash::store_record(PageNumber page, PageOob& oob) {
    oob.crc = record_crc(oob, page, drive_);
    std::memcpy(record_of(page), &oob, sizeof oob);
    unit_of(page).next = page % geometry_.pages_per_unit + 1;
    mark_dirty(page / kRecordsPerLine);
    if (const auto number = journal_page_of(oob); number != 0) newest_journal_page_ = {page, number};
    unsynced_ = true;
    if (!staged_.contains(page)) page_written(page);
}

FlashStatus DirectFlash::program(PageNumber page, const std::byte* data, PageOob& oob) {
    if (const FlashStatus status = check_program(page, oob); status != FlashStatus::kOk) return status;
    if (data != nullptr) {
        const std::uint32_t slot = take_slot();
        if (slot == kNoSlot) return FlashStatus::kProgramFailed;
        copy_sectors_crc32c(slot_data(slot), data, nvme::kSectorsPerBlock, oob.sector_crc);
        queue_page(page, slot);
    } else {
        std::memset(oob.sector_crc, 0, sizeof oob.sector_crc);
    }
    store_record(page, oob);
    return FlashStatus::kOk;
}

FlashStatus DirectFlash::copy_back(PageNumber from, PageNumber to, PageOob& oob, std::uint32_t* crcs) {
    if (!programmed(from)) return FlashStatus::kRefused;
    if (const FlashStatus status = check_program(to, oob); status != FlashStatus::kOk) return status;
    // Take the slot first: waiting for one may complete the write of `from`, which frees its staged bytes.
    const std::uint32_t slot = take_slot();
    if (slot == kNoSlot) return FlashStatus::kProgramFailed;
    const std::byte* bytes = fetch(from, 0, nvme::kSectorsPerBlock);
    if (bytes == nullptr) {
        free_slots_.push_back(slot);
        return FlashStatus::kUncorrectable;
    }
    copy_sectors_crc32c(slot_data(slot), bytes, nvme::kSectorsPerBlock, crcs);
    queue_page(to, slot);
    store_record(to, oob);
    return FlashStatus::kOk;
}

void DirectFlash::prefetch_data(PageNumber page, std::uint32_t) const {
    if (!queue_->overlaps() || !programmed(page) || staged_.contains(page)) return;
    const std::uint32_t buffer = ahead_->announce(page);
    if (buffer == ReadAhead::kNone) return;
    queue_->read(ahead_->data(buffer), nvme::kBlockBytes, page_offset(page), token(Op::kAhead, buffer));
}

const std::byte* DirectFlash::announced(PageNumber page) {
    const std::uint32_t buffer = ahead_->find(page);
    if (buffer == ReadAhead::kNone) return nullptr;
    if (ahead_->on_its_way(buffer) && !pump_until([&] { return !ahead_->on_its_way(buffer); }))
        return nullptr;
    // The bytes stay valid until the next announcement; the caller copies them before that.
    ahead_->release(buffer);
    return ahead_->whole(buffer) ? ahead_->data(buffer) : nullptr;
}

const std::byte* DirectFlash::fetch(PageNumber page, std::uint32_t first, std::uint32_t count) {
    const auto staged = staged_.find(page);
    if (staged != staged_.end()) return slot_data(staged->second) + std::size_t{first} * nvme::kSectorBytes;
    const bool sectors = shared_.logical_block == nvme::kSectorBytes;
    const std::uint32_t from = sectors ? first * nvme::kSectorBytes : 0;
    const std::uint32_t bytes = sectors ? count * nvme::kSectorBytes : nvme::kBlockBytes;
    if (const std::byte* there = announced(page); there != nullptr)
        return there + std::size_t{first} * nvme::kSectorBytes;
    // Submits the reads announced after this page, to overlap with it. Their waiters report a refusal.
    (void)queue_->submit();
    if (!read_all(shared_.direct.get(), scratch_.data() + from, bytes, page_offset(page) + from))
        return nullptr;
    return scratch_.data() + std::size_t{first} * nvme::kSectorBytes;
}

FlashStatus DirectFlash::read(PageNumber page, std::uint32_t first, std::uint32_t count, std::byte* to,
                              std::uint32_t* crcs) {
    if (!programmed(page)) return FlashStatus::kRefused;
    if (count == 0 || first >= nvme::kSectorsPerBlock || count > nvme::kSectorsPerBlock - first)
        return FlashStatus::kRefused;
    const std::byte* bytes = fetch(page, first, count);
    if (bytes == nullptr) return FlashStatus::kUncorrectable;
    copy_sectors_crc32c(to, bytes, count, crcs);
    return FlashStatus::kOk;
}

FlashStatus DirectFlash::read_oob(PageNumber page, PageOob& oob) {
    if (!range_.has(page / geometry_.pages_per_unit)) return FlashStatus::kRefused;
    oob = record(page);
    if (is_erased(oob)) {
        // Below the write pointer an erased record is one that never reached the medium: a torn page, not a
        // free one.
        if (programmed(page)) return FlashStatus::kUncorrectable;
        oob.kind = PageKind::kErased;
        return FlashStatus::kOk;
    }
    return is_whole(oob, page, drive_) ? FlashStatus::kOk : FlashStatus::kUncorrectable;
}

FlashStatus DirectFlash::erase(std::uint32_t unit) {
    if (!range_.has(unit) || is_bad(unit)) return FlashStatus::kRefused;
    if (!shared_.file->begin_changes()) return FlashStatus::kProgramFailed;
    const PageNumber first = unit * geometry_.pages_per_unit;
    const std::uint32_t next = units_[unit - range_.first].next;
    // A write of the unit's pages or record lines that completed after the erasure would undo it.
    const bool quiet = pump_until([&] {
        if (lines_in_flight_ > 0) return false;
        for (const auto& [page, slot] : staged_) {
            if (page / geometry_.pages_per_unit == unit) return false;
        }
        return true;
    });
    if (!quiet) return FlashStatus::kProgramFailed;
    std::memset(record_of(first), 0, std::size_t{next} * sizeof(PageOob));
    units_[unit - range_.first].next = units_[unit - range_.first].written = 0;
    unsynced_ = true;
    ahead_->forget(first, geometry_.pages_per_unit);
    if (next == 0) return FlashStatus::kOk;
    // From the last line down: a power cut in between leaves a unit that is programmed up to some page,
    // without holes.
    for (std::uint32_t line = (first + next - 1) / kRecordsPerLine + 1; line > first / kRecordsPerLine;
         --line) {
        compose(line - 1, scratch_.data());
        const int fd = shared_.direct.get();
        if (!write_all(fd, scratch_.data(), kLineBytes, line_offset(line - 1, 1)) ||
            !write_all(fd, scratch_.data(), kLineBytes, line_offset(line - 1, 0))) {
            units_[unit - range_.first].bad = true;
            fail("the page records of an erase unit cannot be erased", -errno);
            return FlashStatus::kProgramFailed;
        }
    }
    return FlashStatus::kOk;
}

}  // namespace gnstor::ssd
