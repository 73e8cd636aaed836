// command_check.hpp: decodes an I/O command and checks all of it before any of it is done. docs/design.md,
// "The command".
//
// The first check that fails decides the status:
//    1. opcode (Invalid Opcode), namespace 1 (Invalid Namespace), not fused (Invalid Field)
//    2. client id nonzero and the one bound to the connection; volume known and readable by the client
//       (Access Denied, which does not reveal whether a volume exists)
//    3. a map is active and its grant has not expired (Not Granted)
//    4. map version strictly equal (Stale Map; the drive's version in DW0)
//       A read: the drive's slot is not rebuilding (Wrong SSD)
//    5. epoch. Writes, zeroes, trims: exactly the volume's; older is Stale Epoch. Reads and flushes: not
//       older than `birth_epoch` (else Stale Epoch), but older openings may read: raising the epoch fences
//       writers only, and a reader's map version already shows that it uses the map in force (docs/array.md,
//       rules 4, 6, 9). An epoch above the volume's, not announced to this drive yet: Not Granted (retry)
//    6. writing only by the volume's writer (Namespace Write Protected)
//    7. fields: sector range, reserved bits, protection information, number of blocks at most MDTS, sequence
//       not 0 (Invalid Field); sequence above the floor (Command Sequence Error: it was resolved; do not
//       retry)
//    8. data length (Data SGL Length Invalid)
//    9. range within the capacity (LBA Out of Range)
//   10. every chunk of the range on this drive's slot (Wrong SSD)
// Trims repeat 7, 9 and 10 for every range. Pure but for ActiveMap's cache.
#pragma once

#include <gnstor/nvme/command.hpp>

#include "deengine/access/active_map.hpp"
#include "deengine/access/permission_table.hpp"
#include "deengine/engine_types.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gnstor::deengine {

inline constexpr std::uint32_t kMaxTrimRanges = 256;
inline constexpr std::uint8_t kFused = 0x03;  ///< CDW0 bits 9:8, here of the flags: a fused operation

struct CheckedCommand {
    nvme::IoOpcode opcode{};
    nvme::IoFields fields;
    /// Dataset management: the checked ranges, copied because the sender may still change the data. Valid
    /// until the next run().
    std::span<const nvme::DsmRange> ranges;
    bool deallocate = false;  ///< dataset management: attribute AD; without it the command is a hint
};

class CommandCheck {
  public:
    CommandCheck(const PermissionTable& permissions, ActiveMap& map, std::uint32_t mdts_blocks,
                 Mutation mutation = Mutation::kNone)
        : permissions_(permissions),
          map_(map),
          mdts_blocks_(mdts_blocks),
          mutation_(mutation),
          ranges_(kMaxTrimRanges) {}

    /// kSuccess: `out` is filled; else the status to answer. `dw0` is set for kStaleMap.
    nvme::Status run(const nvme::Command& command, Requester from, std::span<const std::byte> data,
                     std::uint64_t now_ns, CheckedCommand& out, std::uint32_t& dw0);
    /// Checks 9 and 10 alone: `blocks` is not 0.
    nvme::Status check_range(const Volume& volume, std::uint64_t first, std::uint64_t blocks);

  private:
    nvme::Status check_rights(const CheckedCommand& c, Requester from, const Volume*& volume,
                              std::uint64_t now_ns, std::uint32_t& dw0) const;
    nvme::Status check_fields(const nvme::Command& raw, const CheckedCommand& c, const Volume& volume) const;
    nvme::Status check_ranges(const Volume& volume, std::span<const nvme::DsmRange> ranges);

    const PermissionTable& permissions_;
    ActiveMap& map_;
    std::uint32_t mdts_blocks_;
    Mutation mutation_;
    std::vector<nvme::DsmRange> ranges_;
};

constexpr bool changes_blocks(nvme::IoOpcode opcode) {
    return opcode == nvme::IoOpcode::kWrite || opcode == nvme::IoOpcode::kWriteZeroes ||
           opcode == nvme::IoOpcode::kDatasetManagement;
}

}  // namespace gnstor::deengine
