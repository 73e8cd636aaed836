// block_command.hpp: translates a host's block device commands into requests to a volume. Pure.
//
// NVM Command Set 1.0, 3.2. The fields that GNStor's own commands redefine (SLBA 63:32, CDW2, CDW3, CDW13 to
// CDW15) have NVMe's meaning here: an LBA is a block of the volume, and hints are hints.
// Invariants
//   * any 64 bytes are acceptable input: the result is a status that refuses them, or requests that lie
//     within the volume;
//   * a command is checked completely (all ranges, all blocks) before any part of it is carried out.
#pragma once

#include <gnstor/gnor/types/request.hpp>
#include <gnstor/nvme/command.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gnstor::gateway {

/// The volume behind the gateway's only namespace.
struct BlockNamespace {
    std::uint64_t capacity_blocks = 0;
    bool writable = false;
};

struct BlockCommand {
    nvme::IoOpcode opcode = nvme::IoOpcode::kFlush;
    bool force_unit_access = false;
};

/// Checks an I/O command and replaces `requests` with those that it needs. Success with no requests, except
/// for a flush: nothing to do. `command.data` is trusted as in a drive's queue (ssd/drive/data_pointer.hpp):
/// it points at the host's data, or at the command's ranges.
nvme::Status parse_block_command(const nvme::Command& command, const BlockNamespace& ns, BlockCommand& out,
                                 std::vector<IoRequest>& requests);

/// Maps statuses that only the array defines to NVMe's, for the host of an ordinary namespace.
nvme::Status host_status(nvme::Status status);

}  // namespace gnstor::gateway
