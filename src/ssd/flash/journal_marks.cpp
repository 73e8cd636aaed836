#include "ssd/flash/journal_marks.hpp"

#include <gnstor/base/shell_word.hpp>

#include <fmt/core.h>

#include "ssd/flash/record_copies.hpp"

namespace gnstor::ssd {

JournalPages JournalMarks::now() const {
    JournalPages pages{};
    // Acquire: pairs with note()'s release.
    for (std::size_t i = 0; i < pages.size(); ++i) pages[i] = newest_[i].load(std::memory_order_acquire);
    return pages;
}

FoundJournal find_journal_page(const std::byte* record, deengine::PageNumber page, DriveSeed drive) {
    constexpr auto kSystem = static_cast<std::byte>(deengine::PageKind::kSystem);
    if (record[offsetof(deengine::PageOob, kind)] != kSystem) return {};
    deengine::PageOob oob;
    std::memcpy(&oob, record, sizeof oob);
    return is_whole(oob, page, drive) ? FoundJournal{journal_page_of(oob), oob.sequence} : FoundJournal{};
}

std::optional<JournalLoss> find_loss(const BootRecord& boot, const FoundJournals& found) {
    for (std::uint32_t i = 0; i < kMaxServiceUnits; ++i)
        if (!found[i].reaches(boot.journal_pages[i]))
            return JournalLoss{i, boot.journal_pages[i], found[i].lasting};
    return {};
}

std::string describe(const JournalLoss& loss) {
    const std::string found = loss.found == 0
                                  ? std::string("none of its pages was found")
                                  : fmt::format("the newest page that was found is {}", loss.found);
    return fmt::format(
        "records of pages are missing: the journal of service unit {} had reached page {}, but {}; some "
        "blocks would read as older versions or as zeroes",
        loss.service_unit, loss.told, found);
}

Error refuse_loss(const std::filesystem::path& path, const JournalLoss& loss) {
    return error(Errc::kCorrupt,
                 "the store {} is damaged: {}; read from replicas on other drives, where there are any, or "
                 "restore the store from an undamaged copy; `gnstor ssd recover {} --accept-loss --write` "
                 "recovers the remaining records, and the missing ones are lost",
                 path.string(), describe(loss), shell_word(path.string()));
}

}  // namespace gnstor::ssd
