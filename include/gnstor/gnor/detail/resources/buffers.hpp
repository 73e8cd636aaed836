// buffers.hpp: which memory the NIC may touch: the channel's pool, and what the user registered. CPU and GPU
// lanes.
//
// A user's buffer in the pool is a run of its blocks (pool.hpp), recorded at its first block: its length, and
// how many commands in quarantine hold it. pool_free refuses a held run until the answer has come or the host
// has reset the queue pair.
#pragma once

#include <gnstor/gnor/detail/resources/pool.hpp>

namespace gnstor::gnor {

struct Keys {
    bool found = false;
    bool unallocated = false;  ///< pool memory that is not allocated (only with checks)
    std::uint32_t lkey = 0;
    std::uint32_t rkey = 0;
};

GN_HD
constexpr bool lies_in(std::uint64_t base, std::uint64_t size, std::uint64_t address, std::uint64_t bytes) {
    return address >= base && bytes <= size && address - base <= size - bytes;
}

/// Copies newly published region entries into lane memory. Lanes that do this at the same time store the same
/// words.
template <class State>
GN_HD std::uint32_t refresh_regions(State& c, std::uint32_t cached) {
    // Pairs with the release of RegisteredRegions::add: entries below the count are whole.
    const std::uint32_t count = simt::load_acquire<simt::Scope::kSystem>(&c.regions->count);
    for (std::uint32_t i = cached; i < count && i < kMaxRegions; ++i) {
        const Region& from = c.regions->entries[i];
        simt::store_relaxed<State::kScope>(&c.cache[i].base, from.base);
        simt::store_relaxed<State::kScope>(&c.cache[i].bytes, from.bytes);
        simt::store_relaxed<State::kScope>(&c.cache[i].lkey, from.lkey);
        simt::store_relaxed<State::kScope>(&c.cache[i].rkey, from.rkey);
    }
    // Publishes the copies: pairs with find_keys. A lane may store a smaller count after another's larger
    // one: that costs one more refresh.
    if (count > cached) simt::store_release<State::kScope>(&c.cached_regions, count);
    return count;
}

/// The keys of a step of the pool below known_pool_steps().
template <class State>
GN_HD Keys pool_keys(const State& c, std::uint32_t step) {
    if (step == 0) return Keys{true, false, c.pool_lkey, c.pool_rkey};
    return Keys{true, false, simt::load_relaxed<State::kScope>(&c.pool_keys[step].lkey),
                simt::load_relaxed<State::kScope>(&c.pool_keys[step].rkey)};
}

/// The keys of a range of pool addresses; found only if one step holds all of it and is registered.
template <class State>
GN_HD Keys find_pool_keys(State& c, std::uint64_t address, std::uint64_t bytes) {
    const auto block = static_cast<std::uint32_t>((address - c.pool_base) / kPoolBlockBytes);
    const std::uint32_t step = pool_step_of(c, block);
    const PoolStep& s = c.pool_step(step);
    const std::uint64_t size = std::uint64_t{s.blocks} * kPoolBlockBytes;
    if (!lies_in(pool_address(c, s.first), size, address, bytes)) return Keys{};
    const std::uint32_t known = known_pool_steps(c);
    if (step >= known && step >= refresh_pool(c, known)) return Keys{};
    return pool_keys(c, step);
}

/// The keys of registered memory that holds all of [address, address + bytes).
template <class State>
GN_HD GN_NOINLINE Keys find_keys(State& c, std::uint64_t address, std::uint64_t bytes) {
    if (lies_in(c.pool_base, c.pool_bytes, address, bytes)) return pool_keys(c, 0);
    if (lies_in(c.pool_base, c.pool_bytes_max, address, bytes)) return find_pool_keys(c, address, bytes);
    // Pairs with the release in refresh_regions.
    std::uint32_t count = simt::load_acquire<State::kScope>(&c.cached_regions);
    for (std::uint32_t i = 0;; ++i) {
        if (i >= count) {
            const std::uint32_t now = refresh_regions(c, count);
            if (now <= count) return Keys{};
            count = now;
        }
        const Region& r = c.cache[i];
        const std::uint64_t base = simt::load_relaxed<State::kScope>(&r.base);
        const std::uint64_t size = simt::load_relaxed<State::kScope>(&r.bytes);
        if (!lies_in(base, size, address, bytes)) continue;
        return Keys{true, false, simt::load_relaxed<State::kScope>(&r.lkey),
                    simt::load_relaxed<State::kScope>(&r.rkey)};
    }
}

// ChannelState::pool_length: a run's length in blocks, and above it how many commands in quarantine hold it.
inline constexpr std::uint32_t kRunLengthMask = 0xFFFF;
inline constexpr std::uint32_t kRunHold = 0x10000;

/// The first block of the user's run that `address` lies in, or kNone.
template <class State>
GN_HD std::uint32_t run_of(State& c, std::uint64_t address) {
    if (!lies_in(c.pool_base, c.pool_bytes_max, address, 1)) return kNone;
    const auto at = static_cast<std::uint32_t>((address - c.pool_base) / kPoolBlockBytes);
    const std::uint32_t begin = c.pool_step(pool_step_of(c, at)).first;
    for (std::uint32_t first = at;; --first) {  // a run lies within one step
        const std::uint32_t blocks =
            simt::load_relaxed<State::kScope>(&c.pool_length()[first]) & kRunLengthMask;
        if (blocks != 0) return first + blocks > at ? first : kNone;
        if (first == begin || at - first + 1 == c.pool_blocks_most) return kNone;
    }
}

/// find_keys; with checks, a range in the pool must also lie in one allocated run.
template <class State>
GN_HD Keys find_buffer(State& c, std::uint64_t address, std::uint64_t bytes) {
    Keys keys = find_keys(c, address, bytes);
    if (c.checks == 0 || !lies_in(c.pool_base, c.pool_bytes_max, address, bytes)) return keys;
    const std::uint32_t first = run_of(c, address);
    const std::uint32_t blocks =
        first == kNone ? 0 : simt::load_relaxed<State::kScope>(&c.pool_length()[first]) & kRunLengthMask;
    if (first != kNone &&
        lies_in(pool_address(c, first), std::uint64_t{blocks} * kPoolBlockBytes, address, bytes))
        return keys;
    keys = Keys{};
    keys.unallocated = true;
    return keys;
}

/// Keeps the run that `address` lies in from being freed; returns its first block, or kNone.
template <class State>
GN_HD std::uint32_t hold_run(State& c, std::uint64_t address) {
    const std::uint32_t first = run_of(c, address);
    // Before the slot is handed over: once the call has reported that its buffer is in use, free() must
    // refuse it.
    if (first != kNone) simt::fetch_add<State::kScope>(&c.pool_length()[first], kRunHold);
    return first;
}

template <class State>
GN_HD void release_run(State& c, std::uint32_t first) {
    // Releases what was acquired with the answer to the lane that frees the run (pool_free).
    simt::fetch_add<State::kScope>(&c.pool_length()[first], 0u - kRunHold);
}

/// How many blocks `bytes` take; 0: no run is that long.
GN_HD
inline std::uint32_t pool_blocks_for(const ChannelState& c, std::uint64_t bytes) {
    if (bytes > std::uint64_t{c.pool_blocks_most} * kPoolBlockBytes) return 0;
    return static_cast<std::uint32_t>((bytes + kPoolBlockBytes - 1) / kPoolBlockBytes);
}

/// Records a run as allocated to a user; returns its address.
template <class State>
GN_HD void* lend_run(State& c, std::uint32_t first, std::uint32_t blocks) {
    simt::fetch_add<State::kScope>(&c.pool_length()[first], blocks);
    return reinterpret_cast<void*>(pool_address(c, first));
}

/// Allocates registered memory for the user; null: `status` says why (kNoBuffer: no such run is free).
template <class State>
GN_HD void* pool_alloc(State& c, std::uint64_t bytes, std::uint32_t hint, nvme::Status& status) {
    status = nvme::Status::kBadArgument;
    const std::uint32_t blocks = pool_blocks_for(c, bytes);
    if (blocks == 0) return nullptr;
    const std::uint32_t first = take_pool_run(c, blocks, hint);
    status = first == kNone ? nvme::Status::kNoBuffer : nvme::Status::kSuccess;
    return first == kNone ? nullptr : lend_run(c, first, blocks);
}

/// Frees what pool_alloc returned. kBadArgument: not the beginning of such a run, or freed before;
/// kBufferInUse: a command in quarantine holds it.
template <class State>
GN_HD nvme::Status pool_free(State& c, void* buffer) {
    const auto address = reinterpret_cast<std::uint64_t>(buffer);
    if (!lies_in(c.pool_base, c.pool_bytes_max, address, kPoolBlockBytes) ||
        (address - c.pool_base) % kPoolBlockBytes != 0)
        return nvme::Status::kBadArgument;
    const auto first = static_cast<std::uint32_t>((address - c.pool_base) / kPoolBlockBytes);
    std::uint32_t* const length = &c.pool_length()[first];
    std::uint32_t seen = simt::load_relaxed<State::kScope>(length);
    for (;;) {
        if ((seen & kRunLengthMask) == 0) return nvme::Status::kBadArgument;
        if (seen >= kRunHold) return nvme::Status::kBufferInUse;
        // Of two lanes that free the same buffer only one succeeds here.
        const std::uint32_t was = simt::compare_exchange<State::kScope>(length, seen, 0u);
        if (was == seen) break;
        seen = was;
    }
    give_pool_run(c, first, seen);
    return nvme::Status::kSuccess;
}

}  // namespace gnstor::gnor
