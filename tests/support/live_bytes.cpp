// live_bytes.cpp: operator new and delete, which count.
#include "support/live_bytes.hpp"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

// Counters alone: nothing is ordered by them.
std::atomic<std::int64_t> live{0}, peak{0};

void count(void* memory, std::int64_t sign) noexcept {
    const std::int64_t bytes = sign * static_cast<std::int64_t>(malloc_usable_size(memory));
    const std::int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::int64_t most = peak.load(std::memory_order_relaxed);
    while (now > most && !peak.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
    }
}

}  // namespace

// Not inlined: g++ 12 would see free() and not the malloc() that it belongs to, and take them for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
    void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
    if (memory == nullptr) std::abort();
    count(memory, 1);
    return memory;
}
// The library's own form would take its memory from elsewhere than where the next one returns it.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    return operator new(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    if (memory != nullptr) count(memory, -1);
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
    operator delete(memory);
}

namespace gnstor::test {

std::int64_t live_bytes() noexcept {
    return live.load(std::memory_order_relaxed);
}
std::int64_t peak_live_bytes() noexcept {
    return peak.load(std::memory_order_relaxed);
}
void begin_peak() noexcept {
    peak.store(live_bytes(), std::memory_order_relaxed);
}

}  // namespace gnstor::test
