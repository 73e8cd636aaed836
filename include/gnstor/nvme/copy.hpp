// copy.hpp: the vendor admin commands that copy the blocks of a chunk from one drive to another with their versions.
// docs/array.md, rule 12. Little endian.
//
// A rebuild copies each range of blocks in three commands. Only the array's admin host may send them.
//
//   COPY OPEN   to the rebuilding drive. Opens a window over the range: from now on the drive keeps the orders of
//               the tombstones and trims of these blocks. DW0: the window's number. A drive has a few windows; a new one
//               closes the oldest.
//   COPY READ   to a drive that is *in*. Returns, per block, a CopyRecord and the contents. DW0: the volume's epoch on
//               that drive.
//   COPY WRITE  to the rebuilding drive, with the window's number, what COPY READ returned, and the lowest of the donors'
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
// Fields: namespace 1; VID, first block and number of blocks (1 .. kCopyBlocksMax, within 256 aligned blocks) as in an
// I/O command; CDW2 the window's number and CDW13 the donors' epoch (COPY WRITE), CDW3 the map version, CDW14-15 the
// daemon's term. Data of COPY READ and COPY WRITE: a CopyRecord for each block, then 4,096 bytes for each block (zeroes
// unless kData).
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
};

constexpr bool is_copy(std::uint8_t opcode) {
    return opcode >= static_cast<std::uint8_t>(CopyOpcode::kCopyOpen) &&
           opcode <= static_cast<std::uint8_t>(CopyOpcode::kCopyRead);
}

inline constexpr std::uint32_t kCopyBlocksMax = 64;

enum class CopyKind : std::uint8_t {
    /// Never written, or trimmed so long ago that no order is kept. Epoch and sequence are the volume's floor here: no
    /// change up to it left anything in this block.
    kAbsent = 0,
    kData = 1,        ///< the contents follow
    kTombstone = 2,   ///< trimmed or zeroed by this order
    kUnreadable = 3,  ///< contents or order cannot be read, or are in doubt: ask another replica
};

/// The version of one block.
struct CopyRecord {
    CopyKind kind;
    std::uint8_t reserved[3];
    Epoch epoch;
    std::uint64_t sequence;
    std::uint32_t content;  ///< third part of the order: CRC-32C over the CRC-32Cs of the sectors
    std::uint32_t reserved2[3];
};
static_assert(sizeof(CopyRecord) == 32 && offsetof(CopyRecord, content) == 16);

/// Bytes of the data of COPY READ and COPY WRITE.
constexpr std::size_t copy_bytes(std::uint32_t blocks) {
    return std::size_t{blocks} * (sizeof(CopyRecord) + kBlockBytes);
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
