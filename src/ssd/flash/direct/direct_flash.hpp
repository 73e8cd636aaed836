// direct_flash.hpp: NAND's rules over a range of units of a store that is accessed with O_DIRECT.
//
// A program copies its page to a staging buffer and queues the write; reads use that buffer until the page is
// on the medium. The page's record stays in memory until a sync writes it.
// Invariants
//   * a record is written only after the data of its page, and of all earlier pages of its unit: a process
//     killed at any instant leaves whole pages or none;
//   * records are rewritten in place in lines of 4096 bytes, both copies of each; a logical block (512 or
//     4096 bytes, written atomically by the device) holds whole records, so that no power cut tears one;
//   * no page is written while an earlier write of it, or the erasure of its unit, is in flight;
//   * a failed write is retried once (a page's synchronously); if it fails again, no later sync succeeds, and
//     a page's unit is bad.
// One owner thread. No locks. Buffers are allocated at construction.
#pragma once

#include "ssd/flash/direct/aligned_buffer.hpp"
#include "ssd/flash/direct/direct_store.hpp"
#include "ssd/flash/direct/read_ahead.hpp"
#include "ssd/flash/record_copies.hpp"

#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

namespace gnstor::ssd {

class DirectFlash final : public deengine::Flash {
  public:
    static constexpr std::uint32_t kLineBytes = kStorePage;
    static constexpr std::uint32_t kRecordsPerLine = kLineBytes / sizeof(deengine::PageOob);
    static constexpr std::uint32_t kLineBuffers = 32;
    static constexpr std::uint32_t kAheadBuffers = 64;
    /// Staged pages, record lines (two copies), announced pages, a sync.
    static std::uint32_t queue_depth(const DirectOptions& o) {
        return o.staged_pages + 2 * kLineBuffers + kAheadBuffers + 1;
    }

    DirectFlash(DirectFile& shared, UnitRange range, std::unique_ptr<IoQueue> queue);
    ~DirectFlash() override = default;

    [[nodiscard]] deengine::FlashGeometry geometry() const override { return geometry_; }
    deengine::FlashStatus program(deengine::PageNumber page, const std::byte* data,
                                  deengine::PageOob& oob) override;
    deengine::FlashStatus read(deengine::PageNumber page, std::uint32_t first, std::uint32_t count,
                               std::byte* to, std::uint32_t* crcs) override;
    deengine::FlashStatus read_oob(deengine::PageNumber page, deengine::PageOob& oob) override;
    deengine::FlashStatus copy_back(deengine::PageNumber from, deengine::PageNumber to,
                                    deengine::PageOob& oob, std::uint32_t* crcs) override;
    deengine::FlashStatus erase(std::uint32_t unit) override;
    deengine::FlashStatus reserve(std::uint32_t unit) override;
    [[nodiscard]] bool is_bad(std::uint32_t unit) const override {
        return range_.has(unit) && units_[unit - range_.first].bad;
    }
    void prefetch(deengine::PageNumber page) const override { __builtin_prefetch(record_of(page)); }
    /// Begins to read the page, if the queue overlaps operations.
    void prefetch_data(deengine::PageNumber page, std::uint32_t first_sector) const override;
    [[nodiscard]] bool survives_kill() const override { return false; }
    deengine::FlashStatus sync_begin(deengine::SyncLevel level) override;
    deengine::SyncState sync_poll() override;
    using deengine::Flash::sync;
    deengine::FlashStatus sync(deengine::SyncLevel level) override;

  private:
    static constexpr std::uint32_t kNoSlot = 0xFFFFFFFFu;
    /// A token of the queue: the kind in the upper half, the index of a slot or buffer in the lower.
    enum class Op : std::uint32_t { kPage = 1, kLine = 2, kSync = 3, kAhead = 4 };
    static std::uint64_t token(Op op, std::uint32_t index) {
        return (std::uint64_t{static_cast<std::uint32_t>(op)} << 32) | index;
    }
    enum class Phase : std::uint8_t { kIdle, kPages, kLines, kSync, kDone, kFailed };
    struct Unit {
        std::uint32_t next = 0;     ///< page to be programmed next
        std::uint32_t written = 0;  ///< pages below it are on the medium: their records may be written
        bool bad = false;
        bool has_room = false;  ///< its disk space was ensured since this object was made
    };
    struct Slot {
        deengine::PageNumber page = deengine::kNoPage;
        std::uint32_t generation = 0;  ///< number of the sync that waits for this write
    };

    [[nodiscard]] std::byte* record_of(deengine::PageNumber page) const {
        return shared_.records.data() + std::size_t{page} * sizeof(deengine::PageOob);
    }
    [[nodiscard]] deengine::PageOob record(deengine::PageNumber page) const {
        deengine::PageOob oob;
        std::memcpy(&oob, record_of(page), sizeof oob);
        return oob;
    }
    [[nodiscard]] std::byte* slot_data(std::uint32_t slot) const {
        return staging_.data() + std::size_t{slot} * nvme::kBlockBytes;
    }
    [[nodiscard]] Unit& unit_of(deengine::PageNumber page) {
        return units_[page / geometry_.pages_per_unit - range_.first];
    }
    [[nodiscard]] bool programmed(deengine::PageNumber page) const;
    [[nodiscard]] deengine::FlashStatus check_program(deengine::PageNumber page,
                                                      const deengine::PageOob& oob);
    /// Takes a staging slot; waits (bounded) for one. kNoSlot: none will come free.
    [[nodiscard]] std::uint32_t take_slot();
    void queue_page(deengine::PageNumber page, std::uint32_t slot);
    void store_record(deengine::PageNumber page, deengine::PageOob& oob);
    /// Whole sectors of a programmed page, from the staging buffer or the medium; null: unreadable.
    [[nodiscard]] const std::byte* fetch(deengine::PageNumber page, std::uint32_t first, std::uint32_t count);
    /// The buffer of an announced page, once it is read; null: not announced, or unreadable.
    [[nodiscard]] const std::byte* announced(deengine::PageNumber page);
    [[nodiscard]] std::uint64_t page_offset(deengine::PageNumber page) const {
        return shared_.superblock().data_offset + std::uint64_t{page} * nvme::kBlockBytes;
    }

    void pump();  ///< handles ended operations, and advances the sync in flight
    void handle(const IoQueue::Done& done);
    void page_ended(std::uint32_t slot, std::int64_t result);
    void page_written(deengine::PageNumber page);
    void advance();
    void write_lines();
    /// Index in a token: the line buffer, and which of the two record areas it is written to.
    static std::uint32_t line_index(std::uint32_t buffer, std::uint32_t copy) { return buffer * 2 + copy; }
    void queue_line(std::uint32_t index);
    void line_ended(std::uint32_t index, std::int64_t result);
    /// Fills `to` with those records of the line that may be written now.
    void compose(std::uint32_t line, std::byte* to) const;
    [[nodiscard]] std::uint64_t line_offset(std::uint32_t line, std::uint32_t copy) const {
        const Superblock& s = shared_.superblock();
        return s.oob_offset + copy * s.records_bytes() + std::uint64_t{line} * kLineBytes;
    }
    void mark_dirty(std::uint32_t line);
    void fail(const char* what, std::int64_t result);
    /// Pumps until `done` holds; false: the deadline passed, and the store has failed.
    [[nodiscard]] bool pump_until(const std::function<bool()>& done);

    DirectFile& shared_;
    deengine::FlashGeometry geometry_;
    DriveSeed drive_;
    UnitRange range_;
    std::uint32_t first_line_;
    std::vector<Unit> units_;
    AlignedBuffer staging_;
    AlignedBuffer lines_;    // kLineBuffers record lines that are being written
    AlignedBuffer scratch_;  // a page that is being read
    std::vector<Slot> slots_;
    std::vector<std::uint32_t> free_slots_;
    std::unordered_map<deengine::PageNumber, std::uint32_t> staged_;  // page -> slot, write in flight
    std::array<std::uint32_t, 2> in_flight_{};                        // page writes, by parity of generation
    std::uint32_t generation_ = 0;
    std::uint32_t unsent_ = 0;

    Phase phase_ = Phase::kIdle;
    deengine::SyncLevel level_ = deengine::SyncLevel::kKill;
    std::vector<std::uint32_t> dirty_;       // lines with records that are not on the medium yet
    std::vector<bool> is_dirty_;             // by line of the range
    std::vector<std::uint32_t> to_write_;    // lines that the sync in flight has not written yet
    std::vector<std::uint32_t> free_lines_;  // free line buffers
    std::uint32_t lines_in_flight_ = 0;
    struct LineBuffer {
        std::uint32_t line = 0;
        std::array<bool, 2> tried{};     ///< its write to this area has failed once
        std::uint32_t on_their_way = 0;  ///< writes in flight, of the two
    };
    std::array<LineBuffer, kLineBuffers> line_buffers_{};
    struct JournalPage {
        deengine::PageNumber page = 0;
        std::uint64_t number = 0;
    };
    JournalPage newest_journal_page_;                // programmed last
    JournalPage synced_journal_page_;                // whose record the sync in flight writes
    bool unsynced_ = true;                           // something may be in a volatile cache
    std::chrono::steady_clock::time_point began_{};  // when the sync in flight began

    std::unique_ptr<ReadAhead> ahead_;
    std::unique_ptr<IoQueue> queue_;  // last: operations in flight use the buffers above
};

}  // namespace gnstor::ssd
