// block_map_image.cpp: the table as a checkpoint keeps it: copied out, copied in, checked.
//
// Input comes from flash: nothing is trusted before settle_loaded() has checked all of it.
#include "deengine/map/block_map.hpp"

#include <bit>
#include <cstring>

namespace gnstor::deengine {

void BlockMap::copy_out(std::uint32_t first, std::uint32_t count, std::byte* to) const {
    std::memcpy(to, &table_[first], std::size_t{count} * kBucketBytes);
    for (std::uint32_t i = 0; i < count * kSlotsPerBucket; ++i) {
        std::uint64_t slot = 0;
        std::memcpy(&slot, to + std::size_t{i} * sizeof(slot), sizeof(slot));
        // The page of a reserved slot is programmed after this copy: recovery finds it in its scan.
        if (slot != 0 && !is_visible(slot)) std::memset(to + std::size_t{i} * sizeof(slot), 0, sizeof(slot));
    }
}

void BlockMap::copy_in(std::uint32_t first, std::uint32_t count, const std::byte* from) {
    const auto used = [&] {
        std::uint64_t n = 0;
        for (std::uint32_t b = first; b < first + count; ++b)
            for (const std::uint64_t slot : table_[b].slots) n += slot != 0 ? 1 : 0;
        return n;
    };
    size_ -= used();
    std::memcpy(&table_[first], from, std::size_t{count} * kBucketBytes);
    size_ += used();
}

bool BlockMap::put_moved(BlockKey key, MapEntry entry) {
    for (std::uint32_t which = 0; which < 2; ++which) {
        const Home h = home(key, which);
        for (std::uint64_t& slot : table_[h.bucket].slots)
            if ((slot & tag_mask_) == h.tag) {
                slot = 0;
                --size_;
            }
    }
    const auto ticket = reserve(key);
    if (ticket) commit(*ticket, entry);
    return ticket.has_value();
}

const char* BlockMap::check_slot(std::uint32_t b, std::uint32_t index, std::uint64_t pages) const {
    const std::uint64_t slot = table_[b].slots[index];
    if ((slot & kUsed) == 0) return "a slot that is neither empty nor used";
    if ((slot & kStateMask) != kStateData && (slot & kStateMask) != kStateTombstone)
        return "a slot that was never filled";
    if (entry_of(slot).page >= pages) return "a page that the drive does not have";
    const std::uint32_t which = (slot & kWhich) != 0 ? 1 : 0;
    const BlockKey key = key_of(b, slot);
    const Home own = home(key, which);
    if (own.bucket != b || own.tag != (slot & tag_mask_))
        return "a key in a bucket to which it does not belong";
    if (std::popcount(match(own)) != 1) return "a key twice in one bucket";
    return nullptr;
}

const char* BlockMap::settle_loaded(std::uint64_t pages) {
    for (std::uint32_t b = 0; b < split_.buckets(); ++b)
        for (std::uint32_t i = 0; i < kSlotsPerBucket; ++i) {
            const std::uint64_t slot = table_[b].slots[i];
            if (slot == 0) continue;
            if (const char* why = check_slot(b, i, pages); why != nullptr) return why;
            if ((slot & kWhich) == 0) continue;
            const Home other = home(key_of(b, slot), 0);
            const std::uint32_t hits = match(other);
            if (hits == 0) continue;
            (other.bucket < b ? table_[other.bucket].slots[std::countr_zero(hits)] : table_[b].slots[i]) = 0;
            --size_;
        }
    return nullptr;
}

}  // namespace gnstor::deengine
