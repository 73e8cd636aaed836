// store_mount.hpp: mounts the firmware on a view of a store: what it recovers, and whether its map and the
// flash agree. Only recover_store() writes.
// Host code, one thread.
#pragma once

#include "deengine/map/block_map.hpp"
#include "ssd/tools/store_check.hpp"

#include <string>
#include <vector>

namespace gnstor::ssd {

/// What a recovery of this store does and loses.
struct Recovered {
    deengine::RecoveryReport report{};
    double seconds = 0;
    std::uint64_t mapped_blocks = 0;
    /// Accepted losses of metadata and journals, a sentence each.
    std::vector<std::string> accepted_losses{};
};

/// Mounts on the view. Errors: those with which the drive would refuse the store; kState: it was being
/// emptied. If acknowledged writes may be missing, the first finding says so; if such a store is also refused
/// for another reason, the error names the missing writes (kState), because recover_store() would refuse it
/// for them.
Result<Recovered> recover_view(StoreView& view, bool accept_loss);
/// Recovers the store itself and closes it: the next drive finds a checkpoint and has nothing to recover.
/// kState: the contents may lack acknowledged writes; a drive that is started on the store sets them aside.
Result<Recovered> recover_store(const std::filesystem::path& path, bool accept_loss);

/// A block whose page cannot be read completely.
struct UnreadableBlock {
    deengine::PageNumber page;
    deengine::BlockKey key;
};

struct BlockCheck {
    std::vector<StoreFinding> findings;
    std::vector<UnreadableBlock> unreadable;  ///< in order of pages
};

/// Mounts on the view, then reads every mapped block: its record must name the block, and its sectors must
/// match their checksums.
BlockCheck check_blocks(StoreView& view, StoreCheck& check);

}  // namespace gnstor::ssd
