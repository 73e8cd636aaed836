// open_units.hpp: which units were open, and how full, according to the pages of the journal.
//
// Each page of the journal names the open units, how many pages they held, and the next serial
// (JournalHeader). So
//   * these pages must exist if a process was killed later, and also after a power cut if the journal page is
//   a stamp, two groups later (LogType::kStamp);
//   * a unit that was opened before such a page and is not open in it was full, or closed before it was
//   (LogType::kClosed).
// Invariant: journal pages are noted in order of their numbers. Pure; lives during one mount.
#pragma once

#include "deengine/log/journal.hpp"
#include "deengine/recovery/group_ages.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace gnstor::deengine {

class OpenUnits {
  public:
    /// A page of the journal, programmed in `group`.
    void note_page(const JournalHeader& header, std::uint32_t group) {
        pages_.push_back({group, header.open_user, header.open_collector, header.next_serial});
    }
    /// The counts that a page of the journal tells; `stamp`: it holds one.
    void note_counts(const JournalHeader& header, PageNumber page, bool stamp) {
        note_count(header.open_user, header.user_pages, stamp);
        note_count(header.open_collector, header.collector_pages, stamp);
        last_ = header;
        last_page_ = page;
    }
    void note_closed(std::uint64_t serial) { closed_.insert(serial); }
    /// After the last note_page(): from now on was_full_before() answers for the last two groups.
    void choose_last_old(const GroupAges& ages) {
        for (const Page& page : pages_)
            if (ages.is_old(page.group)) last_old_ = page;
    }

    /// Of the newest journal page that can be read, or none (kNoPage).
    [[nodiscard]] const JournalHeader& last() const { return last_; }
    [[nodiscard]] PageNumber last_page() const { return last_page_; }
    /// Open in the newest page of the journal, or opened since.
    [[nodiscard]] bool may_be_open(std::uint32_t serial) const {
        return serial >= last_.next_serial || serial == last_.open_user || serial == last_.open_collector;
    }
    /// Whether the last pages of a unit were programmed before the last two groups.
    [[nodiscard]] bool was_full_before(std::uint32_t serial) const {
        return last_old_ && serial < last_old_->next_serial && serial != last_old_->open_user &&
               serial != last_old_->open_collector;
    }
    /// Whether the collector programmed it.
    [[nodiscard]] bool was_collectors(std::uint32_t serial) const {
        return std::ranges::find(pages_, serial, &Page::open_collector) != pages_.end();
    }
    [[nodiscard]] bool was_closed(std::uint64_t serial) const { return closed_.contains(serial); }
    /// Pages that the unit held once; `durable`: that were known to be durable then.
    [[nodiscard]] std::uint32_t pages_told(std::uint32_t serial, bool durable) const {
        const auto told = counts_.find(serial);
        if (told == counts_.end()) return 0;
        return durable ? told->second.durable : told->second.held;
    }
    /// The highest that a page names; 0: none.
    [[nodiscard]] std::uint32_t next_serial() const {
        std::uint32_t highest = 0;
        for (const Page& page : pages_) highest = std::max(highest, page.next_serial);
        return highest;
    }

  private:
    struct Page {
        std::uint32_t group;
        std::uint32_t open_user;
        std::uint32_t open_collector;
        std::uint32_t next_serial;
    };
    struct Count {
        std::uint32_t held = 0;
        std::uint32_t durable = 0;
    };
    void note_count(std::uint32_t serial, std::uint32_t pages, bool stamp) {
        Count& count = counts_[serial];
        count.held = std::max(count.held, pages);
        if (stamp) count.durable = std::max(count.durable, pages);
    }

    std::vector<Page> pages_;
    std::optional<Page> last_old_;
    std::map<std::uint32_t, Count> counts_;  ///< by serial
    std::set<std::uint64_t> closed_;         ///< serials
    JournalHeader last_{};
    PageNumber last_page_ = kNoPage;
};

}  // namespace gnstor::deengine
