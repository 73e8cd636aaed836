// doubts.hpp: blocks with a version that recovery cannot tell from a torn write. docs/array.md, rule 18.
//
// After a power cut, a page of the last two durability groups with a good record and bad contents is either a
// write that was never acknowledged, or an acknowledged one that has rotted since. The map keeps the block's
// older version (or none); this table keeps the order of the doubtful one.
// Where both copies of a record are lost, of a page that may have been acknowledged, not even the block is
// known: then every block of every volume is in doubt whose present version is of no later epoch than the
// volume had at that mount. Likewise where pages were dropped of a volume that the firmware's state, an older
// copy of itself, does not know: the volume is listed with their newest epoch before it exists again.
// Invariants
//   * a listed block is in doubt exactly while its present order (page or tombstone) is older than the
//     doubtful one: a change either settles the doubt for good or leaves it;
//   * a block of a volume with lost records is in doubt exactly while it has no version, or a readable one
//     of no later epoch: a write of a later epoch ends the doubt, and dropping its tombstone begins it
//     again;
//   * a volume with lost records stays one until it is deleted;
//   * only a mount lists blocks, and volumes with lost records;
//   * each complete checkpoint contains all of them (LogType::kDoubt and kLostRecords in its records), so
//     that they survive the log before it.
// Bounded: listed blocks by capacity(), with more of them nothing is mounted (recovery_pages.cpp); volumes
// with lost records by the volumes that exist. Owned by one shard.
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
    /// For a shard of so many pages: what a checkpoint has room to list.
    static constexpr std::size_t capacity(std::uint64_t pages) {
        return static_cast<std::size_t>(std::clamp<std::uint64_t>(pages / 32, 126, 65536));
    }

    [[nodiscard]] bool empty() const { return newest_.empty() && lost_.empty(); }
    [[nodiscard]] std::size_t size() const { return newest_.size(); }  ///< blocks that are listed
    [[nodiscard]] std::size_t records() const { return newest_.size() + lost_.size(); }
    [[nodiscard]] bool contains(BlockKey key) const { return newest_.contains(key); }
    /// Keeps the newest doubtful version of a block.
    void add(BlockKey key, const WriteOrder& order) {
        WriteOrder& known = newest_[key];
        known = std::max(known, order);
    }
    /// The block's present version has this order: ends the doubt unless the doubtful version is newer.
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

    /// Versions of any blocks of the volume, of epochs up to this one, may be lost.
    void add_lost(nvme::VolumeId volume, nvme::Epoch epoch) {
        nvme::Epoch& known = lost_[volume];
        known = std::max(known, epoch);
    }
    /// Null: no record of this volume is lost.
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
