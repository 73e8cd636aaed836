// tombstones.cpp: intervals split where another tombstone or a write overlaps them, and are merged again.
#include "deengine/map/tombstones.hpp"

#include <algorithm>
#include <cassert>
#include <iterator>

namespace gnstor::deengine {
namespace {

constexpr std::uint32_t kLongest = 1u << 30;  ///< longer ones are not merged: lengths have 32 bits

bool is_newer(nvme::Epoch epoch, std::uint64_t sequence, const Tombstone& than) {
    return epoch != than.epoch ? epoch > than.epoch : sequence > than.sequence;
}

}  // namespace

Tombstones::Map::iterator Tombstones::erase(Map::iterator it) {
    const auto count = by_volume_.find(key_volume(it->first));
    if (--count->second == 0) by_volume_.erase(count);
    return map_.erase(it);
}

/// The first interval that ends behind `key`.
Tombstones::Map::iterator Tombstones::first_behind(BlockKey key) {
    auto it = map_.upper_bound(key);
    if (it != map_.begin()) {
        const auto before = std::prev(it);
        if (before->first + before->second.blocks > key) return before;
    }
    return it;
}

std::optional<WriteOrder> Tombstones::find(BlockKey key) const {
    auto it = map_.upper_bound(key);
    if (it == map_.begin()) return std::nullopt;
    --it;
    if (it->first + it->second.blocks <= key) return std::nullopt;
    return WriteOrder::of_tombstone(it->second.epoch, it->second.sequence);
}

std::size_t Tombstones::overlapping(BlockKey first, std::uint32_t blocks) const {
    auto it = map_.upper_bound(first);
    if (it != map_.begin() && std::prev(it)->first + std::prev(it)->second.blocks > first) --it;
    std::size_t count = 0;
    for (; it != map_.end() && it->first < first + blocks; ++it) ++count;
    return count;
}

void Tombstones::add(const Tombstone& t) {
    if (t.blocks == 0) return;
    const BlockKey end = t.first + t.blocks;
    assert(key_volume(t.first) == key_volume(end - 1) && "an interval lies within one volume");
    BlockKey at = t.first;  // up to here the interval is placed
    const Value value{0, t.epoch, t.sequence, t.born};
    for (auto it = first_behind(at); it != map_.end() && it->first < end; it = first_behind(at)) {
        const Tombstone other = as_tombstone(*it);
        const BlockKey other_end = other.first + other.blocks;
        if (!is_newer(t.epoch, t.sequence, other)) {
            place(at, other.first, value);
            at = std::min(end, other_end);
            if (at == end) return;
            continue;
        }
        // The parts of the older one outside the new one stay.
        erase(it);
        const Value rest{0, other.epoch, other.sequence, other.born};
        place(other.first, std::max(t.first, other.first), rest);
        place(std::min(end, other_end), other_end, rest);
    }
    place(at, end, value);
}

/// Merges with neighbours of the same order: a long trim comes in many parts.
void Tombstones::place(BlockKey first, BlockKey end, Value value) {
    if (first >= end) return;
    const auto joins = [&](const std::pair<const BlockKey, Value>& other) {
        return other.second.blocks < kLongest && end - first < kLongest &&
               key_volume(other.first) == key_volume(first) && other.second.epoch == value.epoch &&
               other.second.sequence == value.sequence && other.second.born == value.born;
    };
    auto after = map_.lower_bound(first);
    if (after != map_.begin()) {
        const auto before = std::prev(after);
        if (before->first + before->second.blocks == first && joins(*before)) {
            first = before->first;
            erase(before);
        }
    }
    if (after != map_.end() && after->first == end && joins(*after)) {
        end += after->second.blocks;
        erase(after);
    }
    value.blocks = static_cast<std::uint32_t>(end - first);
    if (map_.insert_or_assign(first, value).second) ++by_volume_[key_volume(first)];
}

void Tombstones::remove(BlockKey key) {
    const auto it = first_behind(key);
    if (it == map_.end() || it->first > key) return;
    const Tombstone t = as_tombstone(*it);
    const Value rest = it->second;
    erase(it);
    place(t.first, key, rest);
    place(key + 1, t.first + t.blocks, rest);
}

}  // namespace gnstor::deengine
