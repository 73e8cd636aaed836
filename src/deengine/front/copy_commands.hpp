// copy_commands.hpp: checks the commands of a rebuild and hands them to the shards. gnstor/nvme/copy.hpp;
// docs/array.md, rule 12.
//
// The first check that fails decides the status:
//    1. sent by the array's admin host (Access Denied); its term was checked before (VendorCommands)
//    2. namespace 1 (Invalid Namespace), not fused (Invalid Field)
//    3. a map is active and its grant has not expired (Not Granted); equal map version (Stale Map)
//    4. the volume exists (No Such Volume): under this map it was deleted
//    5. the drive's slot is *in* for COPY READ, *rebuilding* for the others (Wrong SSD)
//    6. number of blocks, all of them within 256 aligned blocks (Invalid Field)
//    7. data length (Data SGL Length Invalid)
//    8. range within the capacity (LBA Out of Range), every chunk of it on this slot (Wrong SSD)
// Pure but for ActiveMap's cache. One owner thread.
#pragma once

#include <gnstor/nvme/copy.hpp>

#include "deengine/access/active_map.hpp"
#include "deengine/access/permission_table.hpp"
#include "deengine/front/command_check.hpp"
#include "deengine/shard/shard.hpp"

#include <span>

namespace gnstor::deengine {

/// kSuccess: `out` is the shard's command, but for its tag and room. `dw0` is set for kStaleMap.
nvme::Status check_copy(const PermissionTable& permissions, ActiveMap& map, CommandCheck& check,
                        const nvme::Command& command, Requester from, std::span<std::byte> data,
                        std::uint64_t now_ns, ShardCommand& out, std::uint32_t& dw0);

}  // namespace gnstor::deengine
