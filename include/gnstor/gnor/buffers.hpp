// buffers.hpp: which memory the NIC may touch: the channel's pool, and what the user registered. CPU and GPU
// lanes.
//
// The pool is a bitmap of 4 KiB blocks; a run of up to 64 is taken at once (bitmap.hpp). Short runs are
// searched from the low words on, long ones from the high end, so that short ones do not break up the words
// that long ones need.
//
// A run that a command in quarantine may still touch is held: pool_free refuses it until the answer came or
// the host has reset the queue pair.
#pragma once

#include <gnstor/gnor/channel_state.hpp>

namespace gnstor::gnor {

inline constexpr std::uint32_t kLongRun = 16;  ///< blocks from which a run is searched from the high end

struct Keys {
    bool found = false;
    std::uint32_t lkey = 0;
    std::uint32_t rkey = 0;
};

/// A run of pool blocks, or kNone.
GN_HD
inline std::uint32_t take_pool_run(ChannelState& c, std::uint32_t blocks, std::uint32_t hint) {
    if (c.pool_words == 0) return kNone;
    if (blocks < kLongRun) {
        const std::uint32_t low_words = c.pool_words > 1 ? c.pool_words / 2 : 1;
        return take_run(c.pool_free(), c.pool_words, blocks, hint % low_words);
    }
    for (std::uint32_t w = c.pool_words; w-- > 0;) {
        const std::uint32_t first = take_run(c.pool_free() + w, 1, blocks, 0);
        if (first != kNone) return w * 64 + first;
    }
    return kNone;
}

GN_HD
inline std::uint64_t pool_address(const ChannelState& c, std::uint32_t first) {
    return c.pool_base + std::uint64_t{first} * kPoolBlockBytes;
}

GN_HD
constexpr bool lies_in(std::uint64_t base, std::uint64_t size, std::uint64_t address, std::uint64_t bytes) {
    return address >= base && bytes <= size && address - base <= size - bytes;
}

/// Copies region entries that the host has published since into lane memory. Lanes that do this at the same
/// time store the same words.
GN_HD
inline std::uint32_t refresh_regions(ChannelState& c, std::uint32_t cached) {
    // Pairs with the release of Channel::register_buffer: entries below the count are whole.
    const std::uint32_t count = simt::load_acquire<simt::Scope::kSystem>(&c.regions->count);
    for (std::uint32_t i = cached; i < count && i < kMaxRegions; ++i) {
        const Region& from = c.regions->entries[i];
        simt::store_relaxed<simt::Scope::kDevice>(&c.cache[i].base, from.base);
        simt::store_relaxed<simt::Scope::kDevice>(&c.cache[i].bytes, from.bytes);
        simt::store_relaxed<simt::Scope::kDevice>(&c.cache[i].lkey, from.lkey);
        simt::store_relaxed<simt::Scope::kDevice>(&c.cache[i].rkey, from.rkey);
    }
    // Publishes the copies to lanes that look only here (find_keys). Lanes may store it out of order: a
    // smaller count costs a trip.
    if (count > cached) simt::store_release<simt::Scope::kDevice>(&c.cached_regions, count);
    return count;
}

/// The keys of registered memory that holds all of [address, address + bytes).
GN_HD
inline Keys find_keys(ChannelState& c, std::uint64_t address, std::uint64_t bytes) {
    if (lies_in(c.pool_base, c.pool_bytes, address, bytes)) return Keys{true, c.pool_lkey, c.pool_rkey};
    // Pairs with the release in refresh_regions.
    std::uint32_t count = simt::load_acquire<simt::Scope::kDevice>(&c.cached_regions);
    for (std::uint32_t i = 0;; ++i) {
        if (i >= count) {
            const std::uint32_t now = refresh_regions(c, count);
            if (now <= count) return Keys{};
            count = now;
        }
        const Region& r = c.cache[i];
        const std::uint64_t base = simt::load_relaxed<simt::Scope::kDevice>(&r.base);
        const std::uint64_t size = simt::load_relaxed<simt::Scope::kDevice>(&r.bytes);
        if (!lies_in(base, size, address, bytes)) continue;
        return Keys{true, simt::load_relaxed<simt::Scope::kDevice>(&r.lkey),
                    simt::load_relaxed<simt::Scope::kDevice>(&r.rkey)};
    }
}

// ChannelState::pool_length: a run's length in blocks, and above it how many commands in quarantine hold it.
inline constexpr std::uint32_t kRunLengthMask = 0xFF;
inline constexpr std::uint32_t kRunHold = 0x100;

/// The run given to users that `address` lies in, by its first block, or kNone.
GN_HD
inline std::uint32_t run_of(ChannelState& c, std::uint64_t address) {
    if (!lies_in(c.pool_base, c.pool_bytes, address, 1)) return kNone;
    const auto at = static_cast<std::uint32_t>((address - c.pool_base) / kPoolBlockBytes);
    for (std::uint32_t first = at;; --first) {  // a run lies within one word of the bitmap
        const std::uint32_t blocks =
            simt::load_relaxed<simt::Scope::kDevice>(&c.pool_length()[first]) & kRunLengthMask;
        if (blocks != 0) return first + blocks > at ? first : kNone;
        if (first % kMaxRun == 0) return kNone;
    }
}

/// Keeps the run that `address` lies in from being given back; kNone: it lies in none.
GN_HD
inline std::uint32_t hold_run(ChannelState& c, std::uint64_t address) {
    const std::uint32_t first = run_of(c, address);
    // Before the slot is handed over: the owner of the buffer, who was told that it is in use, finds it held.
    if (first != kNone) simt::fetch_add<simt::Scope::kDevice>(&c.pool_length()[first], kRunHold);
    return first;
}

GN_HD
inline void release_run(ChannelState& c, std::uint32_t first) {
    // Releases what was acquired with the answer to whoever gives the run back (pool_free).
    simt::fetch_add<simt::Scope::kDevice>(&c.pool_length()[first], 0u - kRunHold);
}

/// Takes registered memory for the user; null when the pool has no such run.
GN_HD
inline void* pool_alloc(ChannelState& c, std::uint64_t bytes, std::uint32_t hint, nvme::Status& status) {
    status = nvme::Status::kBadArgument;
    if (bytes == 0 || bytes > std::uint64_t{kMaxRun} * kPoolBlockBytes) return nullptr;
    const auto blocks = static_cast<std::uint32_t>((bytes + kPoolBlockBytes - 1) / kPoolBlockBytes);
    const std::uint32_t first = take_pool_run(c, blocks, hint);
    status = first == kNone ? nvme::Status::kNoBuffer : nvme::Status::kSuccess;
    if (first == kNone) return nullptr;
    simt::fetch_add<simt::Scope::kDevice>(&c.pool_length()[first], blocks);
    return reinterpret_cast<void*>(pool_address(c, first));
}

/// Gives back what pool_alloc gave. kBadArgument: not the beginning of such a run, or given back before;
/// kBufferInUse: held.
GN_HD
inline nvme::Status pool_free(ChannelState& c, void* buffer) {
    const auto address = reinterpret_cast<std::uint64_t>(buffer);
    if (!lies_in(c.pool_base, c.pool_bytes, address, kPoolBlockBytes) ||
        (address - c.pool_base) % kPoolBlockBytes != 0)
        return nvme::Status::kBadArgument;
    const auto first = static_cast<std::uint32_t>((address - c.pool_base) / kPoolBlockBytes);
    std::uint32_t* const length = &c.pool_length()[first];
    std::uint32_t seen = simt::load_relaxed<simt::Scope::kDevice>(length);
    for (;;) {
        if ((seen & kRunLengthMask) == 0) return nvme::Status::kBadArgument;
        if (seen >= kRunHold) return nvme::Status::kBufferInUse;
        // One of two lanes that free the same buffer gets the length.
        const std::uint32_t was = simt::compare_exchange<simt::Scope::kDevice>(length, seen, 0u);
        if (was == seen) break;
        seen = was;
    }
    give_run(c.pool_free(), first, seen);
    return nvme::Status::kSuccess;
}

}  // namespace gnstor::gnor
