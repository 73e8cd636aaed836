// block_map.hpp: where each block of each volume lies on this drive. docs/design.md, "Block map".
//
// Invariants
//   * a key is in at most one slot, and that slot is in one of its two buckets;
//   * a slot holds no key: bucket number, bijection bit and remainder give the key back, so a hit is never
//     another volume's block;
//   * a reserved slot is neither found nor displaced, so a ticket stays valid until commit() or cancel();
//   * size() counts reserved slots too.
// A lookup touches at most two cache lines. Owned by one thread; no locks, no allocation after construction.
#pragma once

#include <gnstor/nvme/command.hpp>

#include "base/large_pages.hpp"
#include "deengine/flash.hpp"
#include "deengine/map/bijection.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace gnstor::deengine {

/// [VID:16 | VBA:32]
using BlockKey = std::uint64_t;
constexpr BlockKey make_key(nvme::VolumeId vid, nvme::BlockAddress vba) {
    return (BlockKey{vid} << 32) | vba;
}
constexpr nvme::VolumeId key_volume(BlockKey key) {
    return static_cast<nvme::VolumeId>(key >> 32);
}
constexpr nvme::BlockAddress key_block(BlockKey key) {
    return static_cast<nvme::BlockAddress>(key);
}

struct MapEntry {
    PageNumber page;
    bool tombstone;  ///< trimmed or zeroed: reads as zeroes, its order is on `page`
    bool operator==(const MapEntry&) const = default;
};

class BlockMap {
  public:
    static constexpr std::uint32_t kSlotsPerBucket = 8;
    static constexpr std::uint32_t kBucketBytes = 64;
    /// Called for each entry that an insertion moves to its other bucket (a checkpoint that copies buckets in
    /// order would otherwise copy it twice or never).
    class MoveListener {
      public:
        virtual ~MoveListener() = default;
        virtual void moved(BlockKey key, MapEntry entry, std::uint32_t from, std::uint32_t to) = 0;
    };
    /// A reserved slot whose page is not known yet.
    struct Ticket {
        std::uint32_t bucket;
        std::uint32_t index;
    };

    /// Buckets that `keys` keys fill to 0.9 at most.
    static constexpr std::uint32_t buckets_for(std::uint64_t keys) {
        return static_cast<std::uint32_t>(keys * 10 / (9 * kSlotsPerBucket) + 1);
    }
    /// For page numbers below `pages`, with so many buckets that `pages` keys fill the table to 0.9 at most.
    explicit BlockMap(std::uint64_t pages);
    /// The same with the number of buckets given (tests: other loads).
    BlockMap(std::uint64_t pages, std::uint32_t buckets);

    [[nodiscard]] std::optional<MapEntry> find(BlockKey key) const;
    /// Prefetches both buckets of `key`, and remembers them for a while.
    void prefetch(BlockKey key) const;

    /// A slot for `key`, which must be absent and not reserved. Nothing if the bounded search finds no room.
    [[nodiscard]] std::optional<Ticket> reserve(BlockKey key);
    void commit(Ticket ticket, MapEntry entry);
    void cancel(Ticket ticket);

    /// False if the key is absent.
    bool update(BlockKey key, MapEntry entry);
    bool erase(BlockKey key);

    /// f(key, entry) for every key, in no order.
    template <class F>
    void for_each(F&& f) const {
        for (std::uint32_t b = 0; b < split_.buckets(); ++b)
            for (const std::uint64_t slot : table_[b].slots)
                if (is_visible(slot)) f(key_of(b, slot), entry_of(slot));
    }
    /// The key of this page; nothing if no entry names it. Searches the whole map: for pages without a
    /// record.
    [[nodiscard]] std::optional<BlockKey> key_of_page(PageNumber page) const {
        std::optional<BlockKey> found;
        for_each([&](BlockKey key, MapEntry entry) {
            if (entry.page == page) found = key;
        });
        return found;
    }
    /// Erases every key for which f(key, entry) says so; returns how many.
    template <class F>
    std::uint64_t erase_if(F&& f) {
        std::uint64_t erased = 0;
        for (std::uint32_t b = 0; b < split_.buckets(); ++b)
            for (std::uint64_t& slot : table_[b].slots)
                if (is_visible(slot) && f(key_of(b, slot), entry_of(slot))) {
                    slot = 0;
                    ++erased;
                }
        size_ -= erased;
        return erased;
    }

    [[nodiscard]] std::uint64_t size() const { return size_; }
    /// Entries that insertions moved so far.
    [[nodiscard]] std::uint64_t moves() const { return moves_; }
    /// Memory of this map, in bytes.
    [[nodiscard]] std::uint64_t memory_bytes() const {
        return sizeof(*this) + table_.capacity() * sizeof(Bucket) + search_.capacity() * sizeof(SearchNode);
    }
    [[nodiscard]] std::uint64_t slots() const { return std::uint64_t{split_.buckets()} * kSlotsPerBucket; }
    [[nodiscard]] std::uint32_t buckets() const { return split_.buckets(); }
    [[nodiscard]] std::uint32_t page_bits() const { return remainder_shift_ - kPageShift; }

    // Checkpoints (block_map_image.cpp). Format of raw buckets: docs/store-format.md, "The block map".
    /// Null: no listener.
    void set_move_listener(MoveListener* listener) { move_listener_ = listener; }
    /// Only for Mutation::kMoveKeepsWay.
    void set_move_keeps_way(bool on) { move_keeps_way_ = on; }
    /// `count` buckets as they are; reserved slots as empty ones.
    void copy_out(std::uint32_t first, std::uint32_t count, std::byte* to) const;
    /// While mounting: buckets as copy_out() gave them, unchecked until settle_loaded().
    void copy_in(std::uint32_t first, std::uint32_t count, const std::byte* from);
    /// While mounting: replaces all copies of the key by this entry. False: there is no slot for it.
    [[nodiscard]] bool put_moved(BlockKey key, MapEntry entry);
    /// After the last copy_in(), before put_moved(): why the table is invalid (a page number beyond `pages`,
    /// a reserved slot, a slot that is not in a bucket of its key, a key twice in one bucket); null if it is
    /// valid. A key that was erased and inserted into its other bucket while the table was copied is present
    /// twice: the copy in the higher bucket, which is the later one, stays.
    [[nodiscard]] const char* settle_loaded(std::uint64_t pages);
    /// f(page) for every mapped page, without recovering keys.
    template <class F>
    void for_each_page(F&& f) const {
        for (const Bucket& bucket : table_)
            for (const std::uint64_t slot : bucket.slots)
                if (is_visible(slot)) f(static_cast<PageNumber>((slot >> kPageShift) & page_mask_));
    }

  private:
    // A slot, from bit 0: used | state (2) | which bijection | page number (page_bits) | remainder. 0 is an
    // empty slot.
    static constexpr std::uint64_t kUsed = 1;
    static constexpr std::uint64_t kStateMask = 3ull << 1;
    static constexpr std::uint64_t kStateData = 0ull << 1;
    static constexpr std::uint64_t kStateTombstone = 1ull << 1;
    static constexpr std::uint64_t kStateReserved = 2ull << 1;
    static constexpr std::uint64_t kWhich = 1ull << 3;
    static constexpr std::uint32_t kPageShift = 4;
    static constexpr std::uint32_t kSearchBuckets = 512;  ///< bound of the breadth-first search

    struct alignas(64) Bucket {
        std::uint64_t slots[kSlotsPerBucket] = {};
    };
    static_assert(sizeof(Bucket) == 64, "a bucket is one cache line");
    struct Home {
        std::uint32_t bucket;
        std::uint64_t tag;  ///< used, bijection bit and remainder that a slot of this key must hold there
    };
    /// A prefetched key: its buckets, and the slot where it was found last. Only a hint: the slot's own tag
    /// decides whether it still holds the key.
    struct Recent {
        BlockKey key = ~BlockKey{0};  ///< no key has so many bits
        Home homes[2] = {};
        std::uint32_t at = kNowhere;  ///< slot, counted through both buckets
    };
    static constexpr std::uint32_t kNowhere = 2 * kSlotsPerBucket;
    static constexpr std::uint32_t kRecentKeys = 128;
    struct SearchNode {
        std::uint32_t bucket;
        std::uint32_t parent;  ///< index of the node it was reached from
        std::uint32_t index;   ///< the slot there whose entry may move to this bucket
    };

    static bool is_visible(std::uint64_t slot) {
        return (slot & kUsed) != 0 && (slot & kStateMask) != kStateReserved;
    }
    [[nodiscard]] Home home(BlockKey key, std::uint32_t which) const;
    [[nodiscard]] BlockKey key_of(std::uint32_t bucket, std::uint64_t slot) const;
    [[nodiscard]] MapEntry entry_of(std::uint64_t slot) const;
    [[nodiscard]] std::uint64_t encode(std::uint64_t tag, MapEntry entry) const;
    [[nodiscard]] std::uint32_t match(Home home) const;
    [[nodiscard]] std::uint32_t search(const Home (&homes)[2]) const;
    [[nodiscard]] const std::uint64_t* slot_of(BlockKey key) const;
    static std::optional<std::uint32_t> empty_in(const Bucket& bucket);
    Ticket take(Home home, std::uint32_t index);
    std::optional<std::uint32_t> make_room();
    std::uint32_t displace_along(std::uint32_t leaf, std::uint32_t empty_index);
    [[nodiscard]] const char* check_slot(std::uint32_t bucket, std::uint32_t index,
                                         std::uint64_t pages) const;

    Bijection bijection_[2];
    BucketSplit split_;
    std::uint32_t remainder_shift_;
    std::uint64_t tag_mask_;
    std::uint64_t page_mask_;
    std::uint64_t size_ = 0;
    std::uint64_t moves_ = 0;
    bool move_keeps_way_ = false;
    std::vector<Bucket, LargePages<Bucket>> table_;
    std::vector<SearchNode> search_;
    mutable std::array<Recent, kRecentKeys> recent_{};  ///< by the key's low bits
    MoveListener* move_listener_ = nullptr;
};

}  // namespace gnstor::deengine
