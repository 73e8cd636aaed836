// large_pages.hpp: an allocator for tables that are read at random and are larger than the processor's TLB
// covers.
//
// Invariants
//   * memory is as of std::allocator, but aligned to a large page when it is at least one page long;
//   * large pages are requested, not required: where the system has none, plain pages are used.
// A random lookup in a table of hundreds of MiB on plain pages is a TLB miss, and on a virtual machine each
// miss walks two page tables. Any thread.
#pragma once

#include <cstddef>
#include <new>

namespace gnstor {

inline constexpr std::size_t kLargePageBytes = std::size_t{2} << 20;

/// Requests large pages for [at, at + bytes), not yet written; partial large pages at the ends keep plain
/// ones.
void advise_large_pages(void* at, std::size_t bytes) noexcept;

template <class T>
struct LargePages {
    using value_type = T;
    LargePages() = default;
    template <class U>
    LargePages(const LargePages<U>&) noexcept {}

    [[nodiscard]] T* allocate(std::size_t n) {
        const std::size_t bytes = n * sizeof(T);
        auto* const at = static_cast<T*>(::operator new(bytes, alignment(bytes)));
        advise_large_pages(at, bytes);
        return at;
    }
    void deallocate(T* at, std::size_t n) noexcept { ::operator delete(at, alignment(n * sizeof(T))); }
    template <class U>
    bool operator==(const LargePages<U>&) const noexcept {
        return true;
    }

  private:
    static std::align_val_t alignment(std::size_t bytes) {
        return std::align_val_t{bytes >= kLargePageBytes ? kLargePageBytes : alignof(T)};
    }
};

}  // namespace gnstor
