// journal.cpp: log records gathered into pages, pages programmed in order of their numbers, units given back.
//
// A page whose program fails is programmed again, with the same number, in another unit: recovery may find
// both.
#include "deengine/log/journal.hpp"

#include "deengine/map/order.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace gnstor::deengine {

Journal::Journal(Flash& flash, UnitPool& pool)
    : flash_(flash), pool_(pool), page_(nvme::kBlockBytes), records_(kJournalPayload) {
    kept_.reserve(pool.units() + 1);
}

bool Journal::append(const LogRecord& record, std::uint32_t group) {
    if (count_ == kRecordsPerPage && !flush(group)) return false;
    std::memcpy(records_.data() + std::size_t{count_} * sizeof(record), &record, sizeof(record));
    ++count_;
    return true;
}

bool Journal::flush(std::uint32_t group) {
    if (count_ == 0) return true;
    JournalHeader header{};
    header.type = JournalPage::kLog;
    header.checkpoint = checkpoint_;
    header.count = count_;
    if (!program(header, std::span(records_).first(std::size_t{count_} * sizeof(LogRecord)), group, nullptr))
        return false;
    count_ = 0;
    ++log_pages_;
    return true;
}

bool Journal::waits(LogType type) const {
    for (std::uint32_t i = 0; i < count_; ++i) {
        LogRecord record;
        std::memcpy(&record, records_.data() + std::size_t{i} * sizeof(record), sizeof(record));
        if (record.type == type) return true;
    }
    return false;
}

bool Journal::write(JournalHeader header, std::span<const std::byte> payload, std::uint32_t group,
                    std::uint32_t* oob_crc) {
    return flush(group) && program(header, payload, group, oob_crc);
}

bool Journal::program(JournalHeader header, std::span<const std::byte> payload, std::uint32_t group,
                      std::uint32_t* oob_crc) {
    assert(payload.size() <= kJournalPayload);
    const auto serial_of_open = [&](Stream stream) {
        const std::uint32_t unit = pool_.open_unit(stream);
        return unit == kNoUnit ? 0 : pool_.info(unit).serial;
    };
    const auto pages_of_open = [&](Stream stream) {
        const std::uint32_t unit = pool_.open_unit(stream);
        return static_cast<std::uint16_t>(unit == kNoUnit ? 0 : std::min(pool_.info(unit).next, 0xFFFFu));
    };
    medium_full_ = false;
    for (std::uint32_t attempt = 0; attempt < kProgramAttempts; ++attempt) {
        const PageNumber page = pool_.next_page(Stream::kSystem);
        if (page == kNoPage) return false;
        header.magic = kJournalMagic;
        header.version = kJournalVersion;
        header.number = next_;
        header.open_user = serial_of_open(Stream::kUser);
        header.open_collector = serial_of_open(Stream::kCollector);
        header.next_serial = pool_.next_serial();
        header.user_pages = pages_of_open(Stream::kUser);
        header.collector_pages = pages_of_open(Stream::kCollector);
        header.completed = completed_;
        std::memcpy(page_.data(), &header, sizeof(header));
        std::memcpy(page_.data() + sizeof(header), payload.data(), payload.size());
        std::memset(page_.data() + sizeof(header) + payload.size(), 0, kJournalPayload - payload.size());
        PageOob oob{};
        oob.vba = static_cast<std::uint32_t>(next_);
        oob.kind = PageKind::kSystem;
        oob.version = kOobVersion;
        oob.sequence = next_;
        oob.epoch = static_cast<std::uint32_t>(header.type);
        oob.unit_serial = pool_.serial_of(page);
        oob.group = group;
        const FlashStatus status = flash_.program(page, page_.data(), oob);
        if (status == FlashStatus::kNoRoom) {
            medium_full_ = true;
            if (!pool_.exchange_open_unit(Stream::kSystem)) return false;
            continue;
        }
        if (status != FlashStatus::kOk) {
            pool_.failed(Stream::kSystem, page);
            continue;
        }
        const std::uint32_t unit = pool_.unit_of(page);
        if (kept_.empty() || kept_.back().unit != unit) kept_.push_back({unit, next_});
        pool_.programmed(Stream::kSystem, page);
        if (oob_crc != nullptr) *oob_crc = oob.crc;
        ++next_;
        medium_full_ = false;
        return true;
    }
    return false;
}

void Journal::release(std::uint64_t below, std::uint32_t group) {
    // All pages of a unit are below the first one of the next unit (or are repeated there).
    std::size_t gone = 0;
    while (gone + 1 < kept_.size() && kept_[gone + 1].first_number <= below)
        pool_.release_system(kept_[gone++].unit, group);
    kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(gone));
}

}  // namespace gnstor::deengine
