// journal.hpp: the shard's log in flash, of what a scan of data pages cannot find. docs/store-format.md,
// "Journal".
//
// A stream of 4 KiB system pages, numbered from 1 without a gap (a power cut may leave one among the last
// pages), each with a header and either log records or a part of a checkpoint. Records are gathered in one
// open page; flush() programs it. The page's out-of-band record protects it. Pages below release() are given
// back. Owned by one shard; no allocation after construction.
#pragma once

#include "deengine/log/unit_pool.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gnstor::deengine {

enum class JournalPage : std::uint16_t {
    kLog = 1,
    kCheckpointBegin = 2,
    kCheckpointUnits = 3,
    kCheckpointMap = 4,
    kCheckpointMoved = 5,
    kCheckpointTombstones = 6,
    kCheckpointFloors = 7,
    kCheckpointEnd = 8,
    kCheckpointRecords = 9,  ///< log records of a recovery; they count for older checkpoints too
};

/// First 64 bytes of a system page. Little endian.
struct JournalHeader {
    std::uint32_t magic;    ///< kJournalMagic
    std::uint16_t version;  ///< kJournalVersion
    JournalPage type;
    std::uint64_t number;      ///< of this page in the journal, from 1
    std::uint64_t checkpoint;  ///< id of the checkpoint it is a part of; kLog: of the one begun last
    std::uint32_t part;        ///< number of this part in its checkpoint, from 0
    std::uint32_t count;       ///< records, buckets or entries that follow
    std::uint64_t first;       ///< kCheckpointMap: first bucket; kCheckpointUnits: first unit
    /// Serials of the data units that were open when this page was programmed (0: none), and the next serial:
    /// a unit opened before and not among them was full by then.
    std::uint32_t open_user;
    std::uint32_t open_collector;
    std::uint32_t next_serial;
    /// Pages that those two held then, at most 65535: if fewer are found, pages were lost.
    std::uint16_t user_pages;
    std::uint16_t collector_pages;
    std::uint64_t completed;  ///< id of the newest complete checkpoint then: its END had been programmed
};
static_assert(sizeof(JournalHeader) == 64, "payload begins at byte 64 of a system page");
inline constexpr std::uint32_t kJournalMagic = 0x4A534E47;  // "GNSJ"
inline constexpr std::uint16_t kJournalVersion = 1;
inline constexpr std::uint32_t kJournalPayload = nvme::kBlockBytes - sizeof(JournalHeader);

/// kUnitBad: `blocks` is the page whose program failed: those before it count, it and later ones do not (0:
/// the erase failed); `sequence` is the unit's serial. kPurge: every block, tombstone and floor of the volume
/// known before this record is forgotten (a new volume may use its VID afterwards). kTorn and kGap are a
/// recovery's findings after a power cut, for recoveries that will begin at an older checkpoint: pages
/// `first` .. + `blocks` - 1 of a unit with serial `sequence` do not count; journal pages `sequence` .. +
/// `blocks` - 1 were never written.
enum class LogType : std::uint8_t {
    kTombstone = 1,
    kFloor = 2,
    kUnitBad = 3,
    kPurge = 4,
    kTorn = 5,
    kGap = 6,
    kDoubt = 7,        ///< version of block `first` found torn or rotten; `blocks`: its content CRC
    kStamp = 8,        ///< empty: its page shows that the groups before it are durable
    kLostRecords = 9,  ///< versions of unknown blocks of the volume, of epochs up to this one
    kClosed = 10,      ///< a unit closed before it was full, because the medium had no room for more pages
};

struct LogRecord {
    LogType type;
    std::uint8_t reserved;
    std::uint16_t volume;
    std::uint32_t first;   ///< kTombstone: first block; kUnitBad, kClosed: unit; kTorn: page; kDoubt: block
    std::uint32_t blocks;  ///< kTombstone: how many; kDoubt: content CRC; kClosed: pages that it holds
    std::uint32_t epoch;
    std::uint64_t sequence;  ///< kTombstone, kDoubt: of the order; kFloor: the floor
    std::uint64_t reserved2;
};
static_assert(sizeof(LogRecord) == 32, "a page holds 126 of these records");
inline constexpr std::uint32_t kRecordsPerPage = kJournalPayload / sizeof(LogRecord);

class Journal {
  public:
    Journal(Flash& flash, UnitPool& pool);

    /// After a mount: the number of the next page, and each system unit that is kept, in order of first
    /// numbers.
    void restore(std::uint64_t next_number) { next_ = next_number; }
    void note_unit(std::uint32_t unit, std::uint64_t first_number) { kept_.push_back({unit, first_number}); }

    /// Adds to the open page; programs it first if it is full. False: there is no page for it, or flash
    /// failed for good.
    [[nodiscard]] bool append(const LogRecord& record, std::uint32_t group);
    /// Programs the open page if it holds anything.
    [[nodiscard]] bool flush(std::uint32_t group);
    /// Flushes, then programs one page with this payload, at most kJournalPayload bytes. `oob_crc` gets the
    /// CRC of its out-of-band record; may be null.
    [[nodiscard]] bool write(JournalHeader header, std::span<const std::byte> payload, std::uint32_t group,
                             std::uint32_t* oob_crc);
    /// Pages below this number are not needed any more: units that hold only such pages go back to the pool.
    void release(std::uint64_t below, std::uint32_t group);

    [[nodiscard]] bool dirty() const { return count_ != 0; }  ///< records that are not programmed yet
    [[nodiscard]] std::uint32_t records_waiting() const { return count_; }
    /// Whether a record that waits is of this type.
    [[nodiscard]] bool waits(LogType type) const;
    [[nodiscard]] std::uint64_t next_number() const { return next_; }
    /// True: the last page could not be programmed because the medium below had no room
    /// (FlashStatus::kNoRoom).
    [[nodiscard]] bool medium_full() const { return medium_full_; }
    [[nodiscard]] std::size_t units() const { return kept_.size(); }      ///< units that it holds now
    [[nodiscard]] std::uint64_t log_pages() const { return log_pages_; }  ///< programmed since construction
    void set_checkpoint(std::uint64_t id) { checkpoint_ = id; }  ///< begun last: stamped on log pages
    void set_completed(std::uint64_t id) { completed_ = id; }    ///< stamped on every page

  private:
    struct KeptUnit {
        std::uint32_t unit;
        std::uint64_t first_number;
    };
    [[nodiscard]] bool program(JournalHeader header, std::span<const std::byte> payload, std::uint32_t group,
                               std::uint32_t* oob_crc);

    Flash& flash_;
    UnitPool& pool_;
    std::vector<std::byte> page_;     ///< as it is programmed
    std::vector<std::byte> records_;  ///< of the open log page
    std::uint32_t count_ = 0;         ///< records in it
    bool medium_full_ = false;
    std::uint64_t next_ = 1;
    std::uint64_t log_pages_ = 0;
    std::uint64_t checkpoint_ = 0;
    std::uint64_t completed_ = 0;
    std::vector<KeptUnit> kept_;  ///< in order of first_number
};

}  // namespace gnstor::deengine
