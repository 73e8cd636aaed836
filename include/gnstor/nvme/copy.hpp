// copy.hpp: the vendor admin commands that compare and copy the blocks of a chunk between drives with their versions.
// docs/array.md, rules 11 and 12. Little endian. Only the array's admin host may send them.
//
// A rebuild copies each range of blocks in three commands:
//
//   COPY OPEN   to the drive that is written. Opens a window over the range: from now on the drive keeps the orders of
//               the tombstones and trims of these blocks. DW0: the window's number. A drive has a few windows; a new one
//               closes the oldest.
//   COPY READ   to a drive that is *in*. Returns, per block, a CopyRecord and the contents. DW0: the volume's epoch on
//               that drive.
//   COPY WRITE  to that drive, with the window's number, what COPY READ returned, and the lowest of the donors'
//               epochs. A block becomes the donor's version if that is newer than the block's own, and than the trims that
//               the window knows of. Answered when it is durable. A window that is not open any more, or of a later epoch
//               than the donor's: Command Sequence Error; open again, and read again.
//
// Why the window: a rebuilding drive drops tombstones at the floor, as every drive does. A copy that was read before
// the donor carried a trim out, and arrives when the trim's tombstone is gone, would bring the trimmed block back. A
// trim whose tombstone was dropped before the window was opened is resolved, or of an epoch that is closed on the target: a
// donor that is read afterwards, in that epoch or a later one, has it or never takes it. (COPY OPEN is answered Busy while
// a trim may be unresolved and without a tombstone, because the table was full.)
//
// The same three commands mend a block that a drive which is *in* cannot read: such a drive changes only blocks that it
// cannot read, or doubts.
//
// What differs between replicas when an epoch has ended is found and made equal with the volume *closed*: its record names
// no writer, so that nothing but these commands changes its blocks.
//
//   COPY SURVEY to any drive that holds blocks. Returns a SurveyExtent for each 256 blocks: which blocks have data, and
//               which may differ from other replicas, because the drive has changes of them above its floor. With
//               SurveyKind::kChanges only whether any block may differ, and where the next such extent lies: what a drive
//               knows without looking at the blocks.
//   COPY READ and COPY WRITE with window kCopyClosed: as above, but to any drive that holds blocks, and without a window.
//               CDW13 is the volume's epoch; another epoch, or a volume with a writer: Stale Epoch.
//
// Fields: namespace 1; VID, first block and number of blocks as in an I/O command (1 .. kCopyBlocksMax within 256 aligned
// blocks; COPY SURVEY: 1 .. kSurveyBlocksMax from a multiple of 256 on); CDW2 the window's number (COPY SURVEY: a
// SurveyKind) and CDW13 the donors' epoch (COPY WRITE), CDW3 the map version, CDW14-15 the daemon's term. Data of COPY READ
// and COPY WRITE: a CopyRecord for each block, then 4,096 bytes for each block (zeroes unless kData).
#pragma once

#include <gnstor/nvme/command.hpp>

#include <cstddef>
#include <cstdint>

namespace gnstor::nvme {

/// Bits 1:0 give the data direction, as NVMe demands (Base 2.0, figure 138).
enum class CopyOpcode : std::uint8_t {
    kCopyOpen = 0xE0,
    kCopyWrite = 0xE1,
    kCopyRead = 0xE2,
    kCopySurvey = 0xE6,
};

constexpr bool is_copy(std::uint8_t opcode) {
    switch (static_cast<CopyOpcode>(opcode)) {
        case CopyOpcode::kCopyOpen:
        case CopyOpcode::kCopyWrite:
        case CopyOpcode::kCopyRead:
        case CopyOpcode::kCopySurvey:
            return true;
    }
    return false;
}

inline constexpr std::uint32_t kCopyBlocksMax = 64;
/// In place of a window's number: the volume is closed.
inline constexpr std::uint32_t kCopyClosed = ~0u;
/// The floor of an epoch whose replicas were made equal: every sequence that any writer sent is resolved.
inline constexpr std::uint64_t kClosedFloor = ~std::uint64_t{0} - 1;
/// Sequences from here on are orders that drives give to copies; a writer's are below.
inline constexpr std::uint64_t kFirstStamp = 1ull << 63;

enum class CopyKind : std::uint8_t {
    /// Never written, or trimmed so long ago that no order is kept. Epoch and sequence are the volume's floor here: no
    /// change up to it left anything in this block.
    kAbsent = 0,
    kData = 1,        ///< the contents follow
    kTombstone = 2,   ///< trimmed or zeroed by this order
    kUnreadable = 3,  ///< contents or order cannot be read, or are in doubt: ask another replica
    kUnchanged = 4,   ///< COPY WRITE of a closed volume: leave this block as it is
};

/// The version of one block.
struct CopyRecord {
    CopyKind kind;
    /// 1: kUnreadable only because the newest version may be lost (docs/array.md, rule 18).
    std::uint8_t in_doubt;
    std::uint8_t reserved[2];
    Epoch epoch;
    std::uint64_t sequence;
    std::uint32_t content;  ///< third part of the order: CRC-32C over the CRC-32Cs of the sectors
    /// The donor's volume epoch and floor when it was read: the donor holds, of all versions of older epochs and of this
    /// epoch up to the floor, the one that counts. 0: not told.
    Epoch resolved_epoch;
    std::uint32_t resolved_low, resolved_high;  ///< the floor

    [[nodiscard]] constexpr std::uint64_t resolved() const {
        return resolved_low | std::uint64_t{resolved_high} << 32;
    }
};
static_assert(sizeof(CopyRecord) == 32 && offsetof(CopyRecord, content) == 16 &&
              offsetof(CopyRecord, resolved_epoch) == 20);

inline constexpr std::uint32_t kExtentBlocks = 256;     ///< consecutive blocks that lie in one service unit
inline constexpr std::uint32_t kSurveyGroupBlocks = 8;  ///< blocks of one bit of SurveyExtent::groups
inline constexpr std::uint32_t kSurveyExtentsMax = 64;
/// With SurveyKind::kChanges: no block has a version above the floor. Groups and blocks are not told.
inline constexpr std::uint32_t kExtentUnchanged = 1;
inline constexpr std::uint32_t kSurveyBlocksMax = kSurveyExtentsMax * kExtentBlocks;

/// CDW2 of COPY SURVEY.
enum class SurveyKind : std::uint32_t {
    kBlocks = 0,
    kChanges = 1,  ///< what the drive knows without looking at the blocks
};

/// What a drive has of 256 blocks of a volume, and how far the service unit that holds them has come.
struct SurveyExtent {
    std::uint64_t floor;    ///< of the volume's epoch
    std::uint64_t highest;  ///< sequence that the service unit has seen in this epoch, of any block
    /// Bit i: of blocks 8 i to 8 i + 7, one has a version above the floor, a tombstone, or a version that cannot be read or
    /// is in doubt.
    std::uint32_t groups;
    std::uint32_t flags;                      ///< kExtentUnchanged
    std::uint8_t present[kExtentBlocks / 8];  ///< bit i of byte j: block 8 j + i has data
    /// With kChanges: the first block of the service unit's next extent that may differ; ~0: there is none, 0: not
    /// told.
    std::uint64_t next_changed;

    [[nodiscard]] constexpr bool has(std::uint32_t block) const {
        return (present[block / 8] >> (block % 8) & 1u) != 0;
    }
};
static_assert(sizeof(SurveyExtent) == 64);

constexpr std::uint32_t survey_extents(std::uint32_t blocks) {
    return (blocks + kExtentBlocks - 1) / kExtentBlocks;
}

/// Where the contents of block `i` lie in the data of COPY READ and COPY WRITE of so many blocks, behind all records.
constexpr std::size_t copy_contents_at(std::uint32_t blocks, std::uint32_t i) {
    return std::size_t{blocks} * sizeof(CopyRecord) + std::size_t{i} * kBlockBytes;
}

/// Bytes of the data of COPY READ and COPY WRITE.
constexpr std::size_t copy_bytes(std::uint32_t blocks) {
    return copy_contents_at(blocks, blocks);
}

inline Command encode_copy(CopyOpcode opcode, std::uint64_t term, VolumeId volume, BlockAddress first,
                           std::uint32_t blocks, MapVersion version, std::uint32_t window = 0,
                           Epoch donor_epoch = 0) {
    IoFields f;
    f.volume = volume;
    f.block = first;
    f.blocks = blocks;
    f.map_version = version;
    f.epoch = window;
    f.sequence = term;
    Command c = encode_io(IoOpcode::kRead, f);
    c.opcode = static_cast<std::uint8_t>(opcode);
    c.cdw13 = donor_epoch;
    return c;
}

}  // namespace gnstor::nvme
