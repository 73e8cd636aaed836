// tombstones.hpp: what was trimmed or zeroed, and in which order, as long as an older write could still
// arrive or be found. ARRAY.md, rule 8.
//
// Disjoint intervals of keys, each with one order; a newer tombstone replaces what it overlaps of older ones.
// Invariants
//   * intervals never overlap, never span two volumes; at most `capacity` of them;
//   * the order of a key only rises, until the interval is dropped.
// Owned by one shard; memory is bounded by the capacity.
#pragma once

#include "deengine/block_map.hpp"
#include "deengine/order.hpp"

#include <cstdint>
#include <map>
#include <optional>

namespace gnstor::deengine {

struct Tombstone {
    BlockKey first;
    std::uint32_t blocks;
    nvme::Epoch epoch;
    std::uint64_t sequence;
    std::uint64_t born;  ///< checkpoint id (0: none yet) that was begun last when it was made
};

class Tombstones {
  public:
    explicit Tombstones(std::size_t capacity) : capacity_(capacity) {}

    /// Order of the tombstone over `key`, if there is one.
    [[nodiscard]] std::optional<WriteOrder> find(BlockKey key) const;
    /// Whether `add` of any one interval certainly fits (it may split two others).
    [[nodiscard]] bool has_room(std::size_t intervals = 1) const {
        return map_.size() + 2 * intervals <= capacity_;
    }
    /// Intervals that [first, first + blocks) meets: `add` of that splits off at most so many and one more.
    [[nodiscard]] std::size_t overlapping(BlockKey first, std::uint32_t blocks) const;
    /// Where it is newer than what is there. The caller saw has_room(), or is mounting.
    void add(const Tombstone& t);
    /// A newer write of this key has taken effect.
    void remove(BlockKey key);
    /// Drops every interval for which f(const Tombstone&) is true; returns how many.
    template <class F>
    std::size_t drop_if(F&& f) {
        return std::erase_if(map_, [&](const auto& item) { return f(as_tombstone(item)); });
    }
    template <class F>
    void for_each(F&& f) const {
        for (const auto& item : map_) f(as_tombstone(item));
    }
    [[nodiscard]] std::size_t size() const { return map_.size(); }
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
    std::map<BlockKey, Value>::iterator first_behind(BlockKey key);
    void place(BlockKey first, BlockKey end, Value value);

    std::map<BlockKey, Value> map_;
    std::size_t capacity_;
};

}  // namespace gnstor::deengine
