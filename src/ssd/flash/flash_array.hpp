// flash_array.hpp: NAND's rules over plain arrays: one of pages, and one or two of their out-of-band records
// (if two, each holds every record: record_copies.hpp).
//
// Owns the write pointers; derived classes own the arrays (memory_flash.hpp, file_store.hpp).
// Invariants
//   * a unit's pages below its write pointer are programmed, those above are erased; a page is programmed
//     once between erases;
//   * a record is stored after its data, so a process killed at any instruction leaves whole pages or none;
//   * both copies of a record are stored and erased together; where they differ at attach(), or one is found
//     damaged, the valid copy is read, and replaces the other when the arrays may be changed
//     (mend_records()); copies that contradict each other stay unchanged until their unit is erased;
//   * write pointers are derived from the records alone: an erased record is 64 zero bytes (a hole in a
//     sparse file);
//   * pages of units outside the range are refused: several objects, each with its own range, may share the
//     arrays (store.hpp).
// One owner thread. No allocation, no locks after construction.
#pragma once

#include "ssd/flash/journal_marks.hpp"
#include "ssd/flash/memory_use.hpp"
#include "ssd/flash/record_copies.hpp"
#include "ssd/flash/store_format.hpp"

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
    /// Prefetches the first lines; the processor itself prefetches the rest.
    void prefetch_data(deengine::PageNumber page, std::uint32_t first_sector) const override {
        const std::byte* data = data_of(page) + std::size_t{first_sector} * nvme::kSectorBytes;
        for (std::size_t line = 0; line < kPrefetchLines; ++line) __builtin_prefetch(data + line * 64);
    }
    using deengine::Flash::sync;
    /// Memory has nothing to sync: it ends at once.
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
    /// `data` has geometry.pages() * 4096 bytes, `oob` 64 bytes per page, as has `oob_copies` if there are
    /// second copies (else null); all outlive this object. `drive` is what its records' checksums begin with.
    void attach(deengine::FlashGeometry geometry, std::byte* data, std::byte* oob, std::byte* oob_copies,
                UnitRange range, DriveSeed drive);
    /// Reads every record of the range once, and sets the write pointers: one above the last page that is not
    /// erased. Changes nothing. Returns how many records are damaged.
    RecordDamage scan_records();
    /// Repairs the copies that scan_records() found to differ, except those that contradict each other.
    void mend_records();
    /// Ensures that the unit has disk space, so that no store to its pages can fault. Called before the first
    /// program since the unit's erasure, and when another unit was programmed in between (a copy of a store
    /// may have lost the space of a partly programmed unit). False: no space left.
    [[nodiscard]] virtual bool reserve_unit(std::uint32_t) { return true; }
    /// Called after a unit's records are erased: its data may be dropped, but its disk space is kept.
    virtual void drop_data(std::uint32_t) {}

    [[nodiscard]] std::byte* data_of(deengine::PageNumber page) const {
        return data_ + std::size_t{page} * nvme::kBlockBytes;
    }

    [[nodiscard]] std::byte* records() const { return oob_; }
    [[nodiscard]] UnitRange range() const { return range_; }
    /// The newest journal pages in the range, as of scan_records().
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
    /// The page's record, chosen from its copies.
    [[nodiscard]] deengine::PageOob settled(deengine::PageNumber page) const;
    /// Makes both copies the valid record, if they differ and do not contradict each other.
    void mend(deengine::PageNumber page);

    deengine::FlashGeometry geometry_{};
    DriveSeed drive_{};
    std::byte* data_ = nullptr;
    std::byte* oob_ = nullptr;
    std::byte* oob_copies_ = nullptr;
    std::uint32_t reserved_unit_ = 0;  // whose space was ensured last; geometry_.units: none yet
    bool begun_ = false;               // a sync is begun and not polled yet
    FoundJournal scanned_journal_;
    std::vector<std::uint32_t> units_to_mend_;  // where copies of records differ
    bool contradictions_ = false;               // some copies contradict each other
    bool compares_copies_ = false;              // read_oob() reads both copies: one of the two above
    UnitRange range_{};
    CopiesPastCaches past_caches_;
    std::vector<std::uint32_t> write_pointer_;  // next page, by unit of the range; pages_per_unit: full
};

}  // namespace gnstor::ssd
