// store_mount.hpp: the firmware mounted on a view of a store: what it recovers, and whether its map and the
// flash agree. Nothing is written, but by recover_store().
// Host code, one thread.
#pragma once

#include "deengine/map/block_map.hpp"
#include "ssd/tools/store_check.hpp"

#include <string>
#include <vector>

namespace gnstor::ssd {

/// What a recovery of this store does, and what it costs.
struct Recovered {
    deengine::RecoveryReport report{};
    double seconds = 0;
    std::uint64_t mapped_blocks = 0;
    /// What was lost of metadata and journals, and was accepted, a sentence each.
    std::vector<std::string> accepted_losses{};
};

/// Mounts on the view. Errors: as the drive would refuse the store; kState: it was being emptied. The first
/// finding says where acknowledged writes may be missing from what it holds; where such a store is refused
/// for another reason, that is the error (kState), for recover_store() would refuse it for the same.
Result<Recovered> recover_view(StoreView& view, bool accept_loss);
/// Recovers the store itself, and closes it: the next drive finds a checkpoint and nothing else to do.
/// kState: its contents may lack acknowledged writes, and what starts a drive on it sets them aside.
Result<Recovered> recover_store(const std::filesystem::path& path, bool accept_loss);

/// A block whose page cannot be read whole.
struct UnreadableBlock {
    deengine::PageNumber page;
    deengine::BlockKey key;
};

struct BlockCheck {
    std::vector<StoreFinding> findings;
    std::vector<UnreadableBlock> unreadable;  ///< in order of pages
};

/// Mounts on the view, then reads every mapped block: its record must name it, its sectors must hold.
BlockCheck check_blocks(StoreView& view, StoreCheck& check);

}  // namespace gnstor::ssd
