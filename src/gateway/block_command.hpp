// block_command.hpp: what an ordinary host asks of a block device, as requests to a volume. Pure.
//
// NVM Command Set 1.0, 3.2. The fields that GNStor's own commands use (SLBA 63:32, CDW2, CDW3, CDW13 to
// CDW15) mean here what NVMe says: an LBA is a block of the volume, and hints are hints. Invariants
//   * any 64 bytes are acceptable input: refused by a status, or requests that lie within the volume;
//   * the whole of a command is checked before any of it is done: no range of a list, no block of a write.
#pragma once

#include <gnstor/gnor/request.hpp>
#include <gnstor/nvme/command.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gnstor::gateway {

/// What is behind the one namespace.
struct BlockNamespace {
    std::uint64_t capacity_blocks = 0;
    bool writable = false;
};

struct BlockCommand {
    nvme::IoOpcode opcode = nvme::IoOpcode::kFlush;
    bool force_unit_access = false;
};

/// Checks an I/O command and says in `requests`, which is emptied first, what it comes to. Success without
/// requests, and no flush: there is nothing to be done. `command.data` is trusted as in a drive's queue
/// (ssd/queues/data_pointer.hpp): where the host's data is, or its ranges.
nvme::Status parse_block_command(const nvme::Command& command, const BlockNamespace& ns, BlockCommand& out,
                                 std::vector<IoRequest>& requests);

/// What the host of an ordinary namespace is told: statuses that the array alone knows become those of NVMe.
nvme::Status host_status(nvme::Status status);

}  // namespace gnstor::gateway
