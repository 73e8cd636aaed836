// flash_array.hpp: NAND's rules over plain arrays: one of pages, and one or two of their out-of-band
// records (of two, each holds all of them: record_copies.hpp).
//
// Owns the write pointers; the arrays belong to who derives from it (memory_flash.hpp, file_store.hpp).
// Invariants
//   * a unit's pages below its write pointer are programmed, those above are erased; a page is programmed
//   once between erases;
//   * a record is stored after its data, so a process killed at any instruction leaves whole pages or none;
//   * both copies of a record are stored and erased together; where they differ when the arrays are taken
//   over, or one is found damaged, the one that counts is read, and replaces the other when the arrays may be
//   changed (mend_records()); two that contradict each other stay as they are until their unit is erased;
//   * write pointers are derived from the records alone: an erased record is 64 zero bytes (a hole in a
//   sparse file).
//   * pages of units outside of its range are refused: several of them, each with a range of its own, may
//   stand over the same arrays (store.hpp).
// One owner thread. No allocation, no locks after construction.
#pragma once

#include "ssd/flash/file/journal_marks.hpp"
#include "ssd/flash/file/store_format.hpp"
#include "ssd/flash/memory/memory_use.hpp"
#include "ssd/flash/record_copies.hpp"

#include <utility>
#include <vector>

namespace gnstor::ssd {

class FlashArray : public deengine::Flash {
  public:
    [[nodiscard]] deengine::FlashGeometry geometry() const override { return geometry_; }
    deengine::FlashStatus program(deengine::PageNumber page, const std::byte* data,
                                  deengine::PageOob& oob) override;
    deengine::FlashStatus read(deengine::PageNumber page, std::uint32_t first, std::uint32_t count,
                               std::byte* to, std::uint32_t* crcs) override;
    deengine::FlashStatus read_oob(deengine::PageNumber page, deengine::PageOob& oob) override;
    deengine::FlashStatus erase(std::uint32_t unit) override;
    deengine::FlashStatus reserve(std::uint32_t unit) override;
    deengine::FlashStatus copy_back(deengine::PageNumber from, deengine::PageNumber to,
                                    deengine::PageOob& oob, std::uint32_t* crcs) override;
    void prefetch(deengine::PageNumber page) const override {
        __builtin_prefetch(oob_ + std::size_t{page} * sizeof(deengine::PageOob));
    }
    /// The first lines: what lies behind them the processor sees coming.
    void prefetch_data(deengine::PageNumber page, std::uint32_t first_sector) const override {
        const std::byte* data = data_of(page) + std::size_t{first_sector} * nvme::kSectorBytes;
        for (std::size_t line = 0; line < kPrefetchLines; ++line) __builtin_prefetch(data + line * 64);
    }
    using deengine::Flash::sync;
    /// Of memory: nothing to do, and ended at once.
    deengine::FlashStatus sync(deengine::SyncLevel) override { return deengine::FlashStatus::kOk; }
    deengine::FlashStatus sync_begin(deengine::SyncLevel) override {
        if (begun_) return deengine::FlashStatus::kRefused;
        begun_ = true;
        return deengine::FlashStatus::kOk;
    }
    deengine::SyncState sync_poll() override {
        return std::exchange(begun_, false) ? deengine::SyncState::kDone : deengine::SyncState::kIdle;
    }

  protected:
    /// `data` has geometry.pages() * 4096 bytes, `oob` 64 a page, and so has `oob_copies` where there are
    /// second copies (else it is null); all outlive this object.
    void attach(deengine::FlashGeometry geometry, std::byte* data, std::byte* oob, std::byte* oob_copies,
                UnitRange range);
    /// Reads every record of the range once, and sets the write pointers: first page above the last one that
    /// is not erased. Changes nothing. Returns what of the records is damaged.
    RecordDamage scan_records();
    /// Makes the copies equal that scan_records() found to differ, but for those that contradict each other.
    void mend_records();
    /// Before the first program of a unit since it was erased, and when another unit was programmed in
    /// between (a copy of a store may have lost the room of a unit that was begun): makes its room certain,
    /// so that no store can fault. False: no space left.
    [[nodiscard]] virtual bool reserve_unit(std::uint32_t) { return true; }
    /// After a unit's records are erased: its data may be dropped, and its room below is kept.
    virtual void drop_data(std::uint32_t) {}

    [[nodiscard]] std::byte* data_of(deengine::PageNumber page) const {
        return data_ + std::size_t{page} * nvme::kBlockBytes;
    }

    [[nodiscard]] std::byte* records() const { return oob_; }
    [[nodiscard]] UnitRange range() const { return range_; }
    /// The newest pages of a journal in the range when scan_records() ended.
    [[nodiscard]] const FoundJournal& scanned_journal() const { return scanned_journal_; }
    void copy_past_caches(CopiesPastCaches which) { past_caches_ = which; }
    [[nodiscard]] CopiesPastCaches past_caches() const { return past_caches_; }

  private:
    static constexpr std::size_t kPrefetchLines = 8;

    [[nodiscard]] bool programmed(deengine::PageNumber page) const;
    deengine::FlashStatus check_program(deengine::PageNumber page, const deengine::PageOob& oob);
    void store_record(deengine::PageNumber page, deengine::PageOob& oob);
    [[nodiscard]] std::byte* copy_of(deengine::PageNumber page) const {
        return oob_copies_ + std::size_t{page} * sizeof(deengine::PageOob);
    }
    /// The page's record as it counts.
    [[nodiscard]] deengine::PageOob settled(deengine::PageNumber page) const;
    /// Makes both copies what counts, if they differ and one of them does.
    void mend(deengine::PageNumber page);

    deengine::FlashGeometry geometry_{};
    std::byte* data_ = nullptr;
    std::byte* oob_ = nullptr;
    std::byte* oob_copies_ = nullptr;
    std::uint32_t reserved_unit_ = 0;  // the last whose room was made certain; geometry_.units: none yet
    bool begun_ = false;               // a sync that was not asked for yet
    FoundJournal scanned_journal_;
    std::vector<std::uint32_t> units_to_mend_;  // of which copies of records differ
    bool contradictions_ = false;               // copies of a record that contradict each other
    bool compares_copies_ = false;              // one of both: the first copy alone tells nothing
    UnitRange range_{};
    CopiesPastCaches past_caches_;
    std::vector<std::uint32_t>
        write_pointer_;  // next page of each unit of the range, pages_per_unit when full
};

}  // namespace gnstor::ssd
