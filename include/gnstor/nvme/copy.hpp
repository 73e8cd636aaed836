// copy.hpp: the vendor I/O commands that copy the blocks of a chunk from one drive to another with their versions.
// docs/array.md, rule 12. Little endian.
//
// A rebuild copies each range of blocks in three commands. Only the array's admin host may send them.
//
//   COPY OPEN   to the rebuilding drive. Opens a window over the range: from now on the drive keeps the orders of
//               the tombstones and trims of these blocks. DW0: the window's number. A drive has a few windows; a new one
//               closes the oldest.
//   COPY READ   to a drive that is *in*. Returns, per block, a CopyRecord and the contents.
//   COPY WRITE  to the rebuilding drive, with the window's number and what COPY READ returned. A block becomes the
//               donor's version if that is newer than the block's own, and than the trims that the window knows of.
//               Answered when it is durable. A window that is not open any more: Command Sequence Error; open again.
//
// Why the window: a rebuilding drive drops tombstones at the floor, as every drive does. A copy that was read before
// the donor carried a trim out, and arrives when the trim's tombstone is gone, would bring the trimmed block back. A
// trim whose tombstone was dropped before the window was opened is resolved: a donor that is read afterwards has it.
//
// Fields as encode_io(): VID, first block, number of blocks (1 .. kCopyBlocksMax, within 256 aligned blocks), map
// version; client and epoch 0; the sequence is the window's number (COPY WRITE). Data of COPY READ and COPY WRITE:
// a CopyRecord for each block, then 4,096 bytes for each block (zeroes unless kData).
#pragma once

#include <gnstor/nvme/command.hpp>

#include <cstddef>
#include <cstdint>

namespace gnstor::nvme {

/// Opcodes 80h to FFh are vendor specific; bits 1:0 give the data direction (NVMe Base 2.0, figure 88).
enum class CopyOpcode : std::uint8_t {
    kCopyOpen = 0x84,
    kCopyWrite = 0x85,
    kCopyRead = 0x86,
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

inline Command encode_copy(CopyOpcode opcode, VolumeId volume, BlockAddress first, std::uint32_t blocks,
                           MapVersion version, std::uint32_t window = 0) {
    IoFields f;
    f.volume = volume;
    f.block = first;
    f.blocks = blocks;
    f.map_version = version;
    f.sequence = window;
    Command c = encode_io(IoOpcode::kRead, f);
    c.opcode = static_cast<std::uint8_t>(opcode);
    return c;
}

}  // namespace gnstor::nvme
