// doubts.hpp: blocks of which a recovery found a version that it cannot tell from a torn write. ARRAY.md,
// rule 18.
//
// After a power cut a young page whose record is good and whose contents are not is either a write that was
// never acknowledged, or one that was and has rotted since. The map keeps the older version of its block (or
// none); the order of the doubtful one stands here.
// Where a record is lost, in both copies, of a page that may have been acknowledged, not even the block is
// known: then each block of each volume is in doubt whose present version is not of a later epoch than the
// volume had at that mount. So it is where pages were dropped of a volume that the firmware's state, an older
// copy of itself, does not know: it is named with their newest epoch before it exists again.
// Invariants
//   * a block that is named is in doubt exactly while its present order (page or tombstone) is older than the
//   doubtful one: a change settles its doubt for good, or leaves it;
//   * a block of a volume of lost records is in doubt exactly while it has no version, or one that can be
//   read and is of no later epoch: a write of a later epoch ends that, and the drop of its tombstone begins
//   it again;
//   * a volume of lost records stays one until it is deleted;
//   * a mount alone names blocks, and volumes of lost records;
//   * each complete checkpoint names all of them (LogType::kDoubt and kLostRecords in its records), so that
//   they outlive it.
// Bounded: of blocks that are named by capacity(), with more of them nothing is mounted (recovery_pages.cpp);
// of volumes of lost records by the volumes that exist. Owned by one shard.
#pragma once

#include "deengine/map/block_map.hpp"
#include "deengine/map/order.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

namespace gnstor::deengine {

class Doubts {
  public:
    /// Of a shard of so many pages: what a checkpoint has room to name.
    static constexpr std::size_t capacity(std::uint64_t pages) {
        return static_cast<std::size_t>(std::clamp<std::uint64_t>(pages / 32, 126, 65536));
    }

    [[nodiscard]] bool empty() const { return newest_.empty() && lost_.empty(); }
    [[nodiscard]] std::size_t size() const { return newest_.size(); }  ///< blocks that are named
    [[nodiscard]] std::size_t records() const { return newest_.size() + lost_.size(); }
    [[nodiscard]] bool contains(BlockKey key) const { return newest_.contains(key); }
    /// The newest doubtful version of a block counts.
    void add(BlockKey key, const WriteOrder& order) {
        WriteOrder& known = newest_[key];
        known = std::max(known, order);
    }
    /// The block has this order now.
    void settle(BlockKey key, const WriteOrder& order) {
        if (newest_.empty()) [[likely]]
            return;
        const auto it = newest_.find(key);
        if (it != newest_.end() && it->second <= order) newest_.erase(it);
    }
    /// Drops every doubt for which f(BlockKey, const WriteOrder&) is true.
    template <class F>
    void drop_if(F&& f) {
        std::erase_if(newest_, [&](const auto& doubt) { return f(doubt.first, doubt.second); });
    }
    template <class F>
    void for_each(F&& f) const {
        for (const auto& [key, order] : newest_) f(key, order);
    }

    /// Any block of the volume may have had a version of an epoch up to this one that is lost.
    void add_lost(nvme::VolumeId volume, nvme::Epoch epoch) {
        nvme::Epoch& known = lost_[volume];
        known = std::max(known, epoch);
    }
    /// Null: nothing of this volume is lost.
    [[nodiscard]] const nvme::Epoch* lost_of(nvme::VolumeId volume) const {
        const auto it = lost_.find(volume);
        return it == lost_.end() ? nullptr : &it->second;
    }
    [[nodiscard]] const std::map<nvme::VolumeId, nvme::Epoch>& lost() const { return lost_; }
    void drop_lost(nvme::VolumeId volume) { lost_.erase(volume); }

  private:
    std::map<BlockKey, WriteOrder> newest_;
    std::map<nvme::VolumeId, nvme::Epoch> lost_;
};

}  // namespace gnstor::deengine
