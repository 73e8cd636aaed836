// tombstones.hpp: which blocks were trimmed or zeroed, and with which order, as long as an older write may
// still arrive or be found. docs/array.md, rule 8.
//
// Disjoint intervals of keys, each with one order; a newer tombstone replaces the parts of older ones that it
// overlaps.
// Invariants
//   * intervals never overlap, never span two volumes; at most `capacity` of them;
//   * the order of a key only rises, until the interval is dropped;
//   * a volume adds intervals only while it has fewer than are free: k volumes that take all they can end
//     with 1 / (k + 1) of the table each, and as much is left for the next one.
// Owned by one shard; memory is bounded by the capacity.
#pragma once

#include "deengine/map/block_map.hpp"
#include "deengine/map/order.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <unordered_map>

namespace gnstor::deengine {

struct Tombstone {
    BlockKey first;
    std::uint32_t blocks;
    nvme::Epoch epoch;
    std::uint64_t sequence;
    std::uint64_t born;  ///< checkpoint begun last when it was made (0: none yet)
};

class Tombstones {
  public:
    explicit Tombstones(std::size_t capacity) : capacity_(capacity) {}

    /// Order of the tombstone over `key`, if there is one.
    [[nodiscard]] std::optional<WriteOrder> find(BlockKey key) const;
    /// Whether `add` of so many intervals of the volume certainly fits (each may split two others) and leaves
    /// the other volumes their share.
    [[nodiscard]] bool has_room(nvme::VolumeId volume, std::size_t intervals = 1) const {
        return map_.size() + size_of(volume) + 2 * intervals <= capacity_;
    }
    /// Intervals that [first, first + blocks) overlaps: adding that splits off at most one more than these.
    [[nodiscard]] std::size_t overlapping(BlockKey first, std::uint32_t blocks) const;
    /// Calls f(begin, end) for each part of [first, first + blocks) that a tombstone covers, counted from `first`.
    template <class F>
    void for_each_within(BlockKey first, std::uint32_t blocks, F&& f) const {
        auto it = map_.upper_bound(first);
        if (it != map_.begin()) --it;
        for (; it != map_.end() && it->first < first + blocks; ++it) {
            const BlockKey begin = std::max(it->first, first);
            const BlockKey end = std::min(it->first + it->second.blocks, first + blocks);
            if (begin < end)
                f(static_cast<std::uint32_t>(begin - first), static_cast<std::uint32_t>(end - first));
        }
    }
    /// Takes effect where no newer tombstone lies. The caller has checked has_room(), or is mounting.
    void add(const Tombstone& t);
    /// A newer write of this key has taken effect.
    void remove(BlockKey key);
    /// Drops every interval for which f(const Tombstone&) is true; returns how many.
    template <class F>
    std::size_t drop_if(F&& f) {
        return drop_between(map_.begin(), map_.end(), f);
    }
    /// The same for one volume's intervals only.
    template <class F>
    std::size_t drop_if(nvme::VolumeId volume, F&& f) {
        return drop_between(map_.lower_bound(make_key(volume, 0)),
                            map_.upper_bound(make_key(volume, ~nvme::BlockAddress{0})), f);
    }
    template <class F>
    void for_each(F&& f) const {
        for (const auto& item : map_) f(as_tombstone(item));
    }
    [[nodiscard]] std::size_t size() const { return map_.size(); }
    [[nodiscard]] std::size_t size_of(nvme::VolumeId volume) const {
        const auto it = by_volume_.find(volume);
        return it == by_volume_.end() ? 0 : it->second;
    }
    [[nodiscard]] std::size_t capacity() const { return capacity_; }

  private:
    struct Value {
        std::uint32_t blocks;
        nvme::Epoch epoch;
        std::uint64_t sequence;
        std::uint64_t born;
    };
    static Tombstone as_tombstone(const std::pair<const BlockKey, Value>& item) {
        return {item.first, item.second.blocks, item.second.epoch, item.second.sequence, item.second.born};
    }
    using Map = std::map<BlockKey, Value>;
    Map::iterator first_behind(BlockKey key);
    void place(BlockKey first, BlockKey end, Value value);
    Map::iterator erase(Map::iterator it);
    template <class F>
    std::size_t drop_between(Map::iterator it, Map::iterator end, F& f) {
        const std::size_t before = map_.size();
        while (it != end) it = f(as_tombstone(*it)) ? erase(it) : std::next(it);
        return before - map_.size();
    }

    Map map_;
    std::unordered_map<nvme::VolumeId, std::size_t> by_volume_;  ///< intervals of each; none: no entry
    std::size_t capacity_;
};

}  // namespace gnstor::deengine
