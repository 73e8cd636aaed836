// block_map.cpp: lookup, and insertion by breadth-first displacement (shortest path to an empty slot,
// bounded).
#include "deengine/map/block_map.hpp"

#include <bit>
#include <cassert>

#if defined(__SSE4_1__)
#include <smmintrin.h>
#endif

namespace gnstor::deengine {
namespace {

constexpr std::uint64_t kSeeds[2] = {0x676E73746F726D30ull, 0x676E73746F726D31ull};

}  // namespace

BlockMap::BlockMap(std::uint64_t pages) : BlockMap(pages, buckets_for(pages)) {}

BlockMap::BlockMap(std::uint64_t pages, std::uint32_t buckets)
    : bijection_{Bijection(BucketSplit::kKeyBits, kSeeds[0]), Bijection(BucketSplit::kKeyBits, kSeeds[1])},
      split_(buckets),
      table_(buckets) {
    const auto page_bits = static_cast<std::uint32_t>(std::bit_width(pages));
    remainder_shift_ = kPageShift + page_bits;
    assert(remainder_shift_ + split_.remainder_bits() <= 64 &&
           "the block map needs more buckets for page numbers of this size");
    page_mask_ = (1ull << page_bits) - 1;
    tag_mask_ = ~((page_mask_ << kPageShift) | kStateMask);
    search_.reserve(kSearchBuckets);
}

BlockMap::Home BlockMap::home(BlockKey key, std::uint32_t which) const {
    const auto parts = split_.split(bijection_[which].forward(key));
    return {parts.bucket, (parts.remainder << remainder_shift_) | (which != 0 ? kWhich : 0) | kUsed};
}

BlockKey BlockMap::key_of(std::uint32_t bucket, std::uint64_t slot) const {
    const std::uint32_t which = (slot & kWhich) != 0 ? 1 : 0;
    return bijection_[which].inverse(split_.join({bucket, slot >> remainder_shift_}));
}

MapEntry BlockMap::entry_of(std::uint64_t slot) const {
    return {static_cast<PageNumber>((slot >> kPageShift) & page_mask_),
            (slot & kStateMask) == kStateTombstone};
}

std::uint64_t BlockMap::encode(std::uint64_t tag, MapEntry entry) const {
    return tag | (std::uint64_t{entry.page} << kPageShift) | (entry.tombstone ? kStateTombstone : kStateData);
}

/// Bit i is set where slot i of the bucket has the tag; at most one is.
std::uint32_t BlockMap::match(Home h) const {
    const Bucket& bucket = table_[h.bucket];
    std::uint32_t hits = 0;
#if defined(__SSE4_1__)
    const __m128i mask = _mm_set1_epi64x(static_cast<long long>(tag_mask_));
    const __m128i tag = _mm_set1_epi64x(static_cast<long long>(h.tag));
    for (std::uint32_t i = 0; i < kSlotsPerBucket; i += 2) {
        const __m128i pair = _mm_load_si128(reinterpret_cast<const __m128i*>(&bucket.slots[i]));
        const __m128i equal = _mm_cmpeq_epi64(_mm_and_si128(pair, mask), tag);
        hits |= static_cast<std::uint32_t>(_mm_movemask_pd(_mm_castsi128_pd(equal))) << i;
    }
#else
    for (std::uint32_t i = 0; i < kSlotsPerBucket; ++i)
        hits |= static_cast<std::uint32_t>((bucket.slots[i] & tag_mask_) == h.tag) << i;
#endif
    return hits;
}

/// Where the key is, counted through both buckets, or kNowhere. Reads both buckets always: two parallel cache
/// misses cost one, and no processor could predict a branch on which bucket has the key.
std::uint32_t BlockMap::search(const Home (&homes)[2]) const {
    const std::uint32_t hits = match(homes[0]) | match(homes[1]) << kSlotsPerBucket;
    return hits == 0 ? kNowhere : static_cast<std::uint32_t>(std::countr_zero(hits));
}

/// The key's slot if it is visible, else null.
const std::uint64_t* BlockMap::slot_of(BlockKey key) const {
    const auto slot_at = [this](const Home(&homes)[2], std::uint32_t at) {
        return &table_[homes[at / kSlotsPerBucket].bucket].slots[at % kSlotsPerBucket];
    };
    const auto if_visible = [](const std::uint64_t* slot) { return is_visible(*slot) ? slot : nullptr; };
    Recent& recent = recent_[key % kRecentKeys];
    if (recent.key != key) {
        const Home homes[2] = {home(key, 0), home(key, 1)};
        const std::uint32_t at = search(homes);
        return at == kNowhere ? nullptr : if_visible(slot_at(homes, at));
    }
    if (recent.at != kNowhere) {
        const std::uint64_t* slot = slot_at(recent.homes, recent.at);
        if ((*slot & tag_mask_) == recent.homes[recent.at / kSlotsPerBucket].tag) return if_visible(slot);
    }
    recent.at = search(recent.homes);
    return recent.at == kNowhere ? nullptr : if_visible(slot_at(recent.homes, recent.at));
}

std::optional<MapEntry> BlockMap::find(BlockKey key) const {
    const std::uint64_t* slot = slot_of(key);
    if (slot == nullptr) return std::nullopt;
    return entry_of(*slot);
}

void BlockMap::prefetch(BlockKey key) const {
    Recent& recent = recent_[key % kRecentKeys];
    // Field by field: if a structure was built first, the wide loads that copy it would stall.
    recent.key = key;
    recent.at = kNowhere;
    for (std::uint32_t which = 0; which < 2; ++which) {
        const Home h = home(key, which);
        __builtin_prefetch(&table_[h.bucket]);
        recent.homes[which].bucket = h.bucket;
        recent.homes[which].tag = h.tag;
    }
}

bool BlockMap::update(BlockKey key, MapEntry entry) {
    auto* slot = const_cast<std::uint64_t*>(slot_of(key));  // the table is not const here
    if (slot == nullptr) return false;
    *slot = encode(*slot & tag_mask_, entry);
    return true;
}

bool BlockMap::erase(BlockKey key) {
    auto* slot = const_cast<std::uint64_t*>(slot_of(key));
    if (slot == nullptr) return false;
    *slot = 0;
    --size_;
    return true;
}

std::optional<std::uint32_t> BlockMap::empty_in(const Bucket& bucket) {
    for (std::uint32_t i = 0; i < kSlotsPerBucket; ++i)
        if (bucket.slots[i] == 0) return i;
    return std::nullopt;
}

BlockMap::Ticket BlockMap::take(Home h, std::uint32_t index) {
    assert(table_[h.bucket].slots[index] == 0);
    table_[h.bucket].slots[index] = h.tag | kStateReserved;
    ++size_;
    return {h.bucket, index};
}

std::optional<BlockMap::Ticket> BlockMap::reserve(BlockKey key) {
    const Home homes[2] = {home(key, 0), home(key, 1)};
    assert(match(homes[0]) == 0 && match(homes[1]) == 0 && "a key is reserved once, and only while absent");
    for (const Home& h : homes)
        if (const auto index = empty_in(table_[h.bucket])) return take(h, *index);
    search_.clear();
    for (const Home& h : homes) search_.push_back({h.bucket, ~0u, 0});
    const auto root = make_room();
    if (!root) return std::nullopt;
    const Home& h = homes[*root];
    return take(h, *empty_in(table_[h.bucket]));
}

/// Displaces entries until one of the roots (the first two search nodes) has an empty slot; returns which.
std::optional<std::uint32_t> BlockMap::make_room() {
    for (std::uint32_t at = 0; at < search_.size(); ++at) {
        const std::uint32_t bucket = search_[at].bucket;
        for (std::uint32_t i = 0; i < kSlotsPerBucket; ++i) {
            if (search_.size() == kSearchBuckets) return std::nullopt;
            const std::uint64_t slot = table_[bucket].slots[i];
            if ((slot & kStateMask) == kStateReserved) continue;
            const std::uint32_t other = (slot & kWhich) != 0 ? 0 : 1;
            const Home h = home(key_of(bucket, slot), other);
            if (h.bucket == bucket) continue;
            search_.push_back({h.bucket, at, i});
            if (const auto empty = empty_in(table_[h.bucket]))
                return displace_along(static_cast<std::uint32_t>(search_.size() - 1), *empty);
        }
    }
    return std::nullopt;
}

/// Moves each entry of the path one step towards the empty slot, the last one first; returns the root that
/// gained room. The path is shortest, so no bucket is on it twice and no entry moved before its turn.
std::uint32_t BlockMap::displace_along(std::uint32_t leaf, std::uint32_t empty_index) {
    std::uint32_t node = leaf;
    std::uint32_t index = empty_index;
    while (search_[node].parent != ~0u) {
        const SearchNode& step = search_[node];
        std::uint64_t& from = table_[search_[step.parent].bucket].slots[step.index];
        const std::uint32_t other = (from & kWhich) != 0 ? 0 : 1;
        const BlockKey key = key_of(search_[step.parent].bucket, from);
        const Home h = home(key, other);
        assert(h.bucket == step.bucket && table_[h.bucket].slots[index] == 0);
        table_[h.bucket].slots[index] = (h.tag ^ (move_keeps_way_ ? kWhich : 0)) | (from & ~tag_mask_);
        ++moves_;
        if (move_listener_ != nullptr) [[unlikely]]
            move_listener_->moved(key, entry_of(from), search_[step.parent].bucket, h.bucket);
        from = 0;
        index = step.index;
        node = step.parent;
    }
    return node;
}

void BlockMap::commit(Ticket t, MapEntry entry) {
    std::uint64_t& slot = table_[t.bucket].slots[t.index];
    assert((slot & kStateMask) == kStateReserved);
    slot = encode(slot & tag_mask_, entry);
}

void BlockMap::cancel(Ticket t) {
    std::uint64_t& slot = table_[t.bucket].slots[t.index];
    assert((slot & kStateMask) == kStateReserved);
    slot = 0;
    --size_;
}

}  // namespace gnstor::deengine
