// large_pages.cpp: the advice to the kernel (Linux, transparent huge pages); nothing elsewhere.
#include "base/large_pages.hpp"

#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace gnstor {

void advise_large_pages(void* at, std::size_t bytes) noexcept {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const auto begin = reinterpret_cast<std::uintptr_t>(at);
    const std::uintptr_t first = (begin + kLargePageBytes - 1) / kLargePageBytes * kLargePageBytes;
    const std::uintptr_t end = (begin + bytes) / kLargePageBytes * kLargePageBytes;
    // Only advice: if it is refused, plain pages are used.
    if (first < end) (void)::madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#else
    (void)at;
    (void)bytes;
#endif
}

}  // namespace gnstor
