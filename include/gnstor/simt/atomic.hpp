// atomic.hpp: scoped atomics, one source for GPU and CPU lanes.
//
// Control words shared between lanes, or between lanes and the NIC, are accessed through these functions
// only; payload is plain memory ordered by them. There are no bare fences: ThreadSanitizer cannot see them,
// and an acquire load costs a GPU nothing extra. Words are 32 or 64 bits, naturally aligned. A 64-bit word
// for read-modify-writes must not lie in a GPU's shared or local memory: they are compiled for global memory
// (which includes the host's pinned memory), since for an address of any kind the compiler adds an emulation
// for the other two, some 40 instructions each time.
//
// On the GPU these are PTX instructions with an explicit scope (PTX ISA 8.2, "Memory Consistency Model"); on
// the CPU they are the compiler's atomics, and the scope is ignored. A test build (GN_TEST_WARPS) may yield
// before each.
#pragma once

#include <gnstor/base/target.hpp>
#include <gnstor/simt/yield.hpp>

#include <cstdint>
#include <type_traits>

namespace gnstor::simt {

/// Who must see the operation: only the calling lane, lanes of one block, lanes of one GPU, or CPU and NIC
/// too. With kLane nothing is atomic and nothing is ordered: a read-modify-write is a load and a store. It is
/// for memory that one lane has to itself; the host may read it meanwhile.
enum class Scope { kLane, kBlock, kDevice, kSystem };

/// Which of the lane's other accesses a read-modify-write orders. On a GPU a release is a fence, which waits
/// for all of the lane's stores: about half a microsecond if stores to pinned memory are in flight. So hot
/// paths name what they need, and what pairs with it.
enum class Order { kRelaxed, kAcquire, kRelease, kBoth };

/// For a word that is published by this lane's later release: relaxed on a GPU. On a CPU a release, which
/// costs nothing there and shows ThreadSanitizer an order that otherwise goes through a NIC, which maps the
/// memory at other addresses.
inline constexpr Order kReleasedLater = GN_DEVICE_PASS ? Order::kRelaxed : Order::kRelease;

namespace detail {
#if !GN_DEVICE_PASS
GN_HD
constexpr int gcc_order(Order o) {
    if (o == Order::kRelaxed) return __ATOMIC_RELAXED;
    if (o == Order::kAcquire) return __ATOMIC_ACQUIRE;
    return o == Order::kRelease ? __ATOMIC_RELEASE : __ATOMIC_ACQ_REL;
}
#endif
// Words of one lane. On a CPU each access is atomic, so that a host thread may read; on a GPU it is plain.
template <class T>
GN_HD T load_own(const T* p) {
#if GN_DEVICE_PASS
    return *p;
#else
    return __atomic_load_n(p, __ATOMIC_RELAXED);
#endif
}
template <class T>
GN_HD T store_own(T* p, std::type_identity_t<T> v) {
#if GN_DEVICE_PASS
    *p = v;
#else
    __atomic_store_n(p, v, __ATOMIC_RELAXED);
#endif
    return v;
}
template <class T>
GN_HD T replace_own(T* p, std::type_identity_t<T> was, std::type_identity_t<T> v) {
    store_own(p, v);
    return was;
}

template <class T>
inline constexpr bool kIsWord = std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8);

#if GN_DEVICE_PASS
/// The address, in the global address space, of a word in global memory.
__device__ inline std::uint64_t global_address(const void* p) {
    return static_cast<std::uint64_t>(__cvta_generic_to_global(p));
}
// One PTX instruction a macro expansion: OP.SEM.SCOPE.TYPE on a generic address.
#define GN_PTX_LOAD(SEM, SCOPE)                                                           \
    if constexpr (sizeof(T) == 4) {                                                       \
        std::uint32_t v;                                                                  \
        asm volatile("ld." SEM "." SCOPE ".u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); \
        return static_cast<T>(v);                                                         \
    } else {                                                                              \
        std::uint64_t v;                                                                  \
        asm volatile("ld." SEM "." SCOPE ".u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory"); \
        return static_cast<T>(v);                                                         \
    }
#define GN_PTX_STORE(SEM, SCOPE)                                                                       \
    if constexpr (sizeof(T) == 4)                                                                      \
        asm volatile("st." SEM "." SCOPE ".u32 [%0], %1;" ::"l"(p), "r"(static_cast<std::uint32_t>(v)) \
                     : "memory");                                                                      \
    else                                                                                               \
        asm volatile("st." SEM "." SCOPE ".u64 [%0], %1;" ::"l"(p), "l"(static_cast<std::uint64_t>(v)) \
                     : "memory");
#define GN_PTX_RMW(SEM, OP, T32, T64, SCOPE)                                              \
    if constexpr (sizeof(T) == 4) {                                                       \
        std::uint32_t old;                                                                \
        asm volatile("atom." SEM "." SCOPE "." OP "." T32 " %0, [%1], %2;"                \
                     : "=r"(old)                                                          \
                     : "l"(p), "r"(static_cast<std::uint32_t>(v))                         \
                     : "memory");                                                         \
        return static_cast<T>(old);                                                       \
    } else {                                                                              \
        std::uint64_t old;                                                                \
        asm volatile("atom." SEM "." SCOPE ".global." OP "." T64 " %0, [%1], %2;"         \
                     : "=l"(old)                                                          \
                     : "l"(detail::global_address(p)), "l"(static_cast<std::uint64_t>(v)) \
                     : "memory");                                                         \
        return static_cast<T>(old);                                                       \
    }
#define GN_PTX_RED_ADD(SEM, SCOPE)                                                                          \
    if constexpr (sizeof(T) == 4)                                                                           \
        asm volatile("red." SEM "." SCOPE ".add.u32 [%0], %1;" ::"l"(p), "r"(static_cast<std::uint32_t>(v)) \
                     : "memory");                                                                           \
    else                                                                                                    \
        asm volatile("red." SEM "." SCOPE ".global.add.u64 [%0], %1;" ::"l"(detail::global_address(p)),     \
                     "l"(static_cast<std::uint64_t>(v))                                                     \
                     : "memory");
#define GN_BY_SCOPE(STATEMENT, ...)             \
    if constexpr (S == Scope::kBlock) {         \
        STATEMENT(__VA_ARGS__, "cta")           \
    } else if constexpr (S == Scope::kDevice) { \
        STATEMENT(__VA_ARGS__, "gpu")           \
    } else {                                    \
        STATEMENT(__VA_ARGS__, "sys")           \
    }
#define GN_BY_ORDER(STATEMENT, ...)                                  \
    if constexpr (O == Order::kRelaxed) {                            \
        GN_BY_SCOPE(STATEMENT, "relaxed" __VA_OPT__(, ) __VA_ARGS__) \
    } else if constexpr (O == Order::kAcquire) {                     \
        GN_BY_SCOPE(STATEMENT, "acquire" __VA_OPT__(, ) __VA_ARGS__) \
    } else if constexpr (O == Order::kRelease) {                     \
        GN_BY_SCOPE(STATEMENT, "release" __VA_OPT__(, ) __VA_ARGS__) \
    } else {                                                         \
        GN_BY_SCOPE(STATEMENT, "acq_rel" __VA_OPT__(, ) __VA_ARGS__) \
    }
#endif
}  // namespace detail

/// Reads a word that others may be writing; orders nothing.
template <Scope S, class T>
GN_HD T load_relaxed(const T* p) {
    static_assert(detail::kIsWord<T>, "atomics work on 32- and 64-bit integers");
    if constexpr (S == Scope::kLane) {
        return detail::load_own(p);
    } else {
#if GN_DEVICE_PASS
        GN_BY_SCOPE(GN_PTX_LOAD, "relaxed")
#else
        yield_point();
        return __atomic_load_n(p, __ATOMIC_RELAXED);
#endif
    }
}

/// Reads a word; what its writer stored before a release of it is visible afterwards.
template <Scope S, class T>
GN_HD T load_acquire(const T* p) {
    static_assert(detail::kIsWord<T>, "atomics work on 32- and 64-bit integers");
    if constexpr (S == Scope::kLane) {
        return detail::load_own(p);
    } else {
#if GN_DEVICE_PASS
        GN_BY_SCOPE(GN_PTX_LOAD, "acquire")
#else
        yield_point();
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
#endif
    }
}

/// Writes a word; orders nothing.
template <Scope S, class T>
GN_HD void store_relaxed(T* p, std::type_identity_t<T> v) {
    static_assert(detail::kIsWord<T>, "atomics work on 32- and 64-bit integers");
    if constexpr (S == Scope::kLane) {
        detail::store_own(p, v);
    } else {
#if GN_DEVICE_PASS
        GN_BY_SCOPE(GN_PTX_STORE, "relaxed")
#else
        yield_point();
        __atomic_store_n(p, v, __ATOMIC_RELAXED);
#endif
    }
}

/// Writes a word after everything this lane wrote or observed before: a lane that acquires it sees all of
/// that.
template <Scope S, class T>
GN_HD void store_release(T* p, std::type_identity_t<T> v) {
    static_assert(detail::kIsWord<T>, "atomics work on 32- and 64-bit integers");
    if constexpr (S == Scope::kLane) {
        detail::store_own(p, v);
    } else {
#if GN_DEVICE_PASS
        GN_BY_SCOPE(GN_PTX_STORE, "release")
#else
        yield_point();
        __atomic_store_n(p, v, __ATOMIC_RELEASE);
#endif
    }
}

/// Adds (wrapping) and returns the value before. Acquire and release unless said otherwise, as all
/// read-modify-writes here.
template <Scope S, Order O = Order::kBoth, class T>
GN_HD T fetch_add(T* p, std::type_identity_t<T> v) {
    static_assert(detail::kIsWord<T>, "atomics work on 32- and 64-bit integers");
    if constexpr (S == Scope::kLane) {
        const T was = detail::load_own(p);
        return detail::replace_own(p, was, static_cast<T>(was + v));
    } else {
#if GN_DEVICE_PASS
        GN_BY_ORDER(GN_PTX_RMW, "add", "u32", "u64")
#else
        yield_point();
        return __atomic_fetch_add(p, v, detail::gcc_order(O));
#endif
    }
}

/// Adds; orders nothing and returns nothing: for counters. A GPU's lane does not wait for it.
template <Scope S, class T>
GN_HD void add(T* p, std::type_identity_t<T> v) {
    static_assert(detail::kIsWord<T>, "atomics work on 32- and 64-bit integers");
    if constexpr (S == Scope::kLane) {
        detail::store_own(p, static_cast<T>(detail::load_own(p) + v));
    } else {
#if GN_DEVICE_PASS
        GN_BY_SCOPE(GN_PTX_RED_ADD, "relaxed")
#else
        yield_point();
        __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
#endif
    }
}

template <Scope S, Order O = Order::kBoth, class T>
GN_HD T fetch_or(T* p, std::type_identity_t<T> v) {
    static_assert(detail::kIsWord<T>, "atomics work on 32- and 64-bit integers");
    if constexpr (S == Scope::kLane) {
        const T was = detail::load_own(p);
        return detail::replace_own(p, was, static_cast<T>(was | v));
    } else {
#if GN_DEVICE_PASS
        GN_BY_ORDER(GN_PTX_RMW, "or", "b32", "b64")
#else
        yield_point();
        return __atomic_fetch_or(p, v, detail::gcc_order(O));
#endif
    }
}

template <Scope S, Order O = Order::kBoth, class T>
GN_HD T fetch_and(T* p, std::type_identity_t<T> v) {
    static_assert(detail::kIsWord<T>, "atomics work on 32- and 64-bit integers");
    if constexpr (S == Scope::kLane) {
        const T was = detail::load_own(p);
        return detail::replace_own(p, was, static_cast<T>(was & v));
    } else {
#if GN_DEVICE_PASS
        GN_BY_ORDER(GN_PTX_RMW, "and", "b32", "b64")
#else
        yield_point();
        return __atomic_fetch_and(p, v, detail::gcc_order(O));
#endif
    }
}

template <Scope S, Order O = Order::kBoth, class T>
GN_HD T exchange(T* p, std::type_identity_t<T> v) {
    static_assert(detail::kIsWord<T>, "atomics work on 32- and 64-bit integers");
    if constexpr (S == Scope::kLane) {
        return detail::replace_own(p, detail::load_own(p), v);
    } else {
#if GN_DEVICE_PASS
        GN_BY_ORDER(GN_PTX_RMW, "exch", "b32", "b64")
#else
        yield_point();
        return __atomic_exchange_n(p, v, detail::gcc_order(O));
#endif
    }
}

#if GN_DEVICE_PASS
#define GN_PTX_CAS(SEM, SCOPE)                                                                               \
    if constexpr (sizeof(T) == 4) {                                                                          \
        std::uint32_t old;                                                                                   \
        asm volatile("atom." SEM "." SCOPE ".cas.b32 %0, [%1], %2, %3;"                                      \
                     : "=r"(old)                                                                             \
                     : "l"(p), "r"(static_cast<std::uint32_t>(expected)), "r"(static_cast<std::uint32_t>(v)) \
                     : "memory");                                                                            \
        return static_cast<T>(old);                                                                          \
    } else {                                                                                                 \
        std::uint64_t old;                                                                                   \
        asm volatile("atom." SEM "." SCOPE ".global.cas.b64 %0, [%1], %2, %3;"                               \
                     : "=l"(old)                                                                             \
                     : "l"(detail::global_address(p)), "l"(static_cast<std::uint64_t>(expected)),            \
                       "l"(static_cast<std::uint64_t>(v))                                                    \
                     : "memory");                                                                            \
        return static_cast<T>(old);                                                                          \
    }
#endif

/// Stores `v` if the word holds `expected`; returns what it held (equal to `expected` exactly on success).
template <Scope S, Order O = Order::kBoth, class T>
GN_HD T compare_exchange(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> v) {
    static_assert(detail::kIsWord<T>, "atomics work on 32- and 64-bit integers");
    if constexpr (S == Scope::kLane) {
        const T was = detail::load_own(p);
        if (was == expected) detail::store_own(p, v);
        return was;
    } else {
#if GN_DEVICE_PASS
        GN_BY_ORDER(GN_PTX_CAS)
#else
        yield_point();
        constexpr bool kAcquires = O == Order::kAcquire || O == Order::kBoth;
        __atomic_compare_exchange_n(p, &expected, v, false, detail::gcc_order(O),
                                    kAcquires ? __ATOMIC_ACQUIRE : __ATOMIC_RELAXED);
        return expected;
#endif
    }
}

/// Two adjacent words, p[0] and p[1], 8-byte aligned, loaded at once: a GPU's loads of pinned memory that
/// touch the same 32 bytes wait for one another. An acquire pairs with a release of both words only
/// (store_release_pair). If the words are also stored singly, which the memory models of PTX and C++ do not
/// cover, this relies on processors that load 8 aligned bytes at once, and the caller must accept a pair of
/// which only one word is new.
struct WordPair {
    std::uint32_t first, second;
};
namespace detail {
GN_HD
constexpr WordPair split(std::uint64_t both) {
    return WordPair{static_cast<std::uint32_t>(both), static_cast<std::uint32_t>(both >> 32)};
}
#if GN_DEVICE_PASS
using PairWord = std::uint64_t;
#else
using PairWord __attribute__((may_alias)) = std::uint64_t;
#endif
}  // namespace detail
template <Scope S>
GN_HD WordPair load_relaxed_pair(const std::uint32_t* p) {
#if GN_DEVICE_PASS
    return detail::split(load_relaxed<S>(reinterpret_cast<const std::uint64_t*>(p)));
#else
    yield_point();
    return detail::split(__atomic_load_n(reinterpret_cast<const detail::PairWord*>(p), __ATOMIC_RELAXED));
#endif
}
/// The same, as load_acquire of both.
template <Scope S>
GN_HD WordPair load_acquire_pair(const std::uint32_t* p) {
#if GN_DEVICE_PASS
    return detail::split(load_acquire<S>(reinterpret_cast<const std::uint64_t*>(p)));
#else
    yield_point();
    return detail::split(__atomic_load_n(reinterpret_cast<const detail::PairWord*>(p), __ATOMIC_ACQUIRE));
#endif
}

/// Both at once, as store_release of one word of 8 bytes.
template <Scope S>
GN_HD void store_release_pair(std::uint32_t* p, WordPair v) {
    const std::uint64_t both = v.first | (std::uint64_t{v.second} << 32);
#if GN_DEVICE_PASS
    store_release<S>(reinterpret_cast<std::uint64_t*>(p), both);
#else
    yield_point();
    __atomic_store_n(reinterpret_cast<detail::PairWord*>(p), both, __ATOMIC_RELEASE);
#endif
}

/// Several words that are released together cost a GPU one fence: release_before_stores(), and then
/// store_released for each. A word so stored is ordered after all that this lane wrote or observed before the
/// fence, but not after the other words. On a CPU each is a release store, which costs nothing there. Without
/// such a fence it is a store with the order kReleasedLater.
template <Scope S>
GN_HD void release_before_stores() {
    static_assert(S == Scope::kSystem,
                  "release_before_stores is only for words that the NIC or the host reads");
#if GN_DEVICE_PASS
    asm volatile("fence.acq_rel.sys;" ::: "memory");
#endif
}
template <Scope S, class T>
GN_HD void store_released(T* p, std::type_identity_t<T> v) {
#if GN_DEVICE_PASS
    store_relaxed<S>(p, v);
#else
    store_release<S>(p, v);
#endif
}
/// A doorbell store after such a fence.
GN_HD
inline void store_mmio64_released(std::uint64_t* p, std::uint64_t v) {
#if GN_DEVICE_PASS
    asm volatile("st.mmio.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
#else
    yield_point();
    __atomic_store_n(p, v, __ATOMIC_RELEASE);
#endif
}

/// The doorbell: one 64-bit store to a device register, after everything this lane wrote or observed before.
/// PTX `st.mmio` is relaxed only, so a system fence precedes it on the GPU.
GN_HD
inline void store_mmio64_release(std::uint64_t* p, std::uint64_t v) {
    release_before_stores<Scope::kSystem>();
    store_mmio64_released(p, v);
}

}  // namespace gnstor::simt

#if GN_DEVICE_PASS
#undef GN_PTX_LOAD
#undef GN_PTX_STORE
#undef GN_PTX_RMW
#undef GN_PTX_RED_ADD
#undef GN_BY_ORDER
#undef GN_PTX_CAS
#undef GN_BY_SCOPE
#endif
