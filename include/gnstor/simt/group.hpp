// group.hpp: lanes, and groups of lanes that act together. One source for GPU and CPU.
//
// A kernel is a callable that takes a Lane by value. From a Lane come groups:
//   warp(lane)    every live lane of the warp. All of them must call together (convergent by contract).
//   active(lane)  whichever lanes of the warp happen to be here together; at least the caller.
//   self(lane)    the caller alone; its collectives cost nothing.
// A group is a small value. Its collectives must be called by all of its members, at the same place in the
// code. Masks of lanes stay inside LaneSet: code outside simt/ counts and picks lanes, it does no bit
// arithmetic.
//
// On the GPU, collectives are the warp intrinsics with the group's mask. On the CPU a warp has one lane,
// unless the lane belongs to a test warp (tests/support/test_warp.hpp): then they go through WarpRendezvous,
// which checks that all members called the same collective at the same place.
#pragma once

#include <gnstor/base/target.hpp>

#include <cstdint>
#include <type_traits>

namespace gnstor::simt {

// nvcc and the host compiler see different lanes in one program: two names, so that the linker never mixes
// them.
#if defined(__CUDACC__)
inline namespace gpu_lanes {
#else
inline namespace cpu_lanes {
#endif

inline constexpr std::uint32_t kWarpLanes = 32;

/// Where a collective stands in the source: test warps compare it across the members.
struct Site {
    const char* file;
    int line;
};

#if defined(__CUDACC__)
#define GN_SITE_PARAMETER
#define GN_SITE_ARGUMENT
#define GN_ONLY_SITE_PARAMETER
#else
#define GN_ONLY_SITE_PARAMETER ::gnstor::simt::Site site = {__builtin_FILE(), __builtin_LINE()}
#define GN_SITE_PARAMETER , GN_ONLY_SITE_PARAMETER
#endif

#if !defined(__CUDACC__)
/// Which collective a lane calls: members must agree on it. Only kSync orders memory (CUDA C++ Programming
/// Guide, "Warp Vote Functions", "Warp Shuffle Functions": these imply no memory barrier).
enum class Collective : std::uint8_t { kSync, kWarp, kBallot, kShfl, kMatch, kSum, kUnite };

/// Implemented by a test warp: a meeting of the lanes in `mask`, each with one 64-bit value.
class WarpRendezvous {
  public:
    virtual ~WarpRendezvous() = default;
    /// Waits for every live lane of `mask`; `values` (32 entries) then holds each one's value. Returns the
    /// lanes present.
    virtual std::uint32_t meet(std::uint32_t lane, std::uint32_t mask, Collective what, std::uint64_t value,
                               std::uint64_t* values, Site site) = 0;
    /// Waits a while for other lanes at the same place; returns those in the caller's group, the caller
    /// included.
    virtual std::uint32_t gather_active(std::uint32_t lane, Site site) = 0;
    /// Reports a broken rule that only the group can detect. Does not return.
    [[noreturn]] virtual void misuse(std::uint32_t lane, const char* rule, Site site) = 0;
};
#endif

/// One lane of a running kernel. Trivially copyable; valid during the kernel.
struct Lane {
    std::uint32_t index_in_warp = 0;  ///< 0 .. 31
    std::uint32_t thread = 0;         ///< within its block
    std::uint32_t block = 0;
    std::uint32_t block_threads = 1;
    std::uint32_t grid_blocks = 1;
#if !defined(__CUDACC__)
    WarpRendezvous* rendezvous = nullptr;  ///< set in test warps only
    std::uint32_t warp_lanes = 1;          ///< lanes of a warp on this machine (1, or W in a test warp)
#endif
    GN_HD
    std::uint64_t grid_rank() const {
        return std::uint64_t{block} * block_threads + thread;
    }
    GN_HD
    std::uint64_t grid_size() const {
        return std::uint64_t{grid_blocks} * block_threads;
    }
    GN_HD
    std::uint32_t lanes_per_warp() const {
#if GN_DEVICE_PASS
        return kWarpLanes;
#elif defined(__CUDACC__)
        return 1;  // CPU lanes of code that nvcc compiled
#else
        return warp_lanes;
#endif
    }
    /// Which warp of the whole grid this lane is in.
    GN_HD
    std::uint64_t warp_rank() const {
        const std::uint32_t w = lanes_per_warp();
        return std::uint64_t{block} * ((block_threads + w - 1) / w) + thread / w;
    }
};

/// A set of lanes of one warp: what ballots and matches return.
class LaneSet {
  public:
    GN_HD
    explicit constexpr LaneSet(std::uint32_t bits = 0) : bits_(bits) {}
    GN_HD
    bool empty() const { return bits_ == 0; }
    GN_HD
    bool contains(std::uint32_t lane) const { return (bits_ >> lane) & 1u; }
    GN_HD
    std::uint32_t count() const { return popcount(bits_); }
    /// How many members come before `lane`: a member's rank in the set.
    GN_HD
    std::uint32_t count_below(std::uint32_t lane) const { return popcount(bits_ & ((1u << lane) - 1u)); }
    /// The first member; the set must not be empty.
    GN_HD
    std::uint32_t lowest() const {
#if GN_DEVICE_PASS
        return static_cast<std::uint32_t>(__ffs(static_cast<int>(bits_)) - 1);
#else
        return static_cast<std::uint32_t>(__builtin_ctz(bits_));
#endif
    }
    /// The set without its first member.
    GN_HD
    LaneSet without_lowest() const {
        return LaneSet(bits_ & (bits_ - 1u));
    }
    GN_HD
    LaneSet operator&(LaneSet other) const {
        return LaneSet(bits_ & other.bits_);
    }
    GN_HD
    bool operator==(const LaneSet& other) const {
        return bits_ == other.bits_;
    }

  private:
    friend class MaskGroup;
    GN_HD
    static std::uint32_t popcount(std::uint32_t v) {
#if GN_DEVICE_PASS
        return static_cast<std::uint32_t>(__popc(v));
#else
        return static_cast<std::uint32_t>(__builtin_popcount(v));
#endif
    }
    std::uint32_t bits_;
};

/// A lane alone. Collectives are the identity.
class SelfGroup {
  public:
    GN_HD
    explicit SelfGroup(Lane lane) : lane_(lane.index_in_warp) {}
    GN_HD
    std::uint32_t lane() const { return lane_; }
    GN_HD
    std::uint32_t rank() const { return 0; }
    GN_HD
    std::uint32_t size() const { return 1; }
    GN_HD
    std::uint32_t leader() const { return lane_; }
    GN_HD
    bool is_leader() const { return true; }
    GN_HD
    void sync() const {}
    GN_HD
    LaneSet ballot(bool p) const { return LaneSet(p ? 1u << lane_ : 0u); }
    GN_HD
    bool any(bool p) const { return p; }
    GN_HD
    bool all(bool p) const { return p; }
    template <class T>
    GN_HD T shfl(T v, std::uint32_t) const {
        return v;
    }
    template <class T>
    GN_HD LaneSet match(T) const {
        return LaneSet(1u << lane_);
    }
    GN_HD
    std::uint32_t sum(std::uint32_t v) const { return v; }
    GN_HD
    std::uint64_t unite(std::uint64_t v) const { return v; }

  private:
    std::uint32_t lane_;
};

/// Several lanes of one warp.
class MaskGroup {
  public:
    GN_HD
    std::uint32_t lane() const { return lane_.index_in_warp; }
    GN_HD
    std::uint32_t rank() const { return LaneSet(mask_).count_below(lane()); }
    GN_HD
    std::uint32_t size() const { return LaneSet(mask_).count(); }
    /// The lane number of the first member.
    GN_HD
    std::uint32_t leader() const { return LaneSet(mask_).lowest(); }
    GN_HD
    bool is_leader() const { return lane() == leader(); }
    GN_HD
    LaneSet members() const { return LaneSet(mask_); }

    /// Waits for all members; what each wrote before is visible to all afterwards.
    GN_HD
    void sync(GN_ONLY_SITE_PARAMETER) const {
#if GN_DEVICE_PASS
        __syncwarp(mask_);
#elif !defined(__CUDACC__)
        if (lane_.rendezvous != nullptr) exchange_values(Collective::kSync, 0, nullptr, site);
#endif
    }
    /// The members for which `p` holds.
    GN_HD
    LaneSet ballot(bool p GN_SITE_PARAMETER) const {
#if GN_DEVICE_PASS
        return LaneSet(__ballot_sync(mask_, p));
#elif !defined(__CUDACC__)
        if (lane_.rendezvous == nullptr) return LaneSet(p ? 1u : 0u);
        std::uint64_t values[kWarpLanes] = {};
        const std::uint32_t present = exchange_values(Collective::kBallot, p ? 1 : 0, values, site);
        std::uint32_t bits = 0;
        for (std::uint32_t i = 0; i < kWarpLanes; ++i)
            if (((present >> i) & 1u) != 0 && values[i] != 0) bits |= 1u << i;
        return LaneSet(bits);
#else
        return LaneSet(p ? 1u : 0u);
#endif
    }
#if defined(__CUDACC__)
    GN_HD
    bool any(bool p) const {
        return !ballot(p).empty();
    }
    GN_HD
    bool all(bool p) const {
        return ballot(!p).empty();
    }
#else
    bool any(bool p GN_SITE_PARAMETER) const {
        return !ballot(p, site).empty();
    }
    bool all(bool p GN_SITE_PARAMETER) const {
        return ballot(!p, site).empty();
    }
#endif
    /// The value of member `from` (the lane number of a member that has not left). Orders no memory, like all
    /// collectives except sync(). T: up to 8 bytes, trivially copyable.
    template <class T>
    GN_HD T shfl(T v, std::uint32_t from GN_SITE_PARAMETER) const {
        static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8,
                      "a lane can pass a trivially copyable value of at most 8 bytes");
#if GN_DEVICE_PASS
        if constexpr (sizeof(T) == 8) {
            return from_bits<T>(
                __shfl_sync(mask_, static_cast<unsigned long long>(to_bits(v)), static_cast<int>(from)));
        } else {
            return from_bits<T>(
                __shfl_sync(mask_, static_cast<unsigned>(to_bits(v)), static_cast<int>(from)));
        }
#elif !defined(__CUDACC__)
        if (lane_.rendezvous == nullptr) return v;
        std::uint64_t values[kWarpLanes] = {};
        const std::uint32_t present = exchange_values(Collective::kShfl, to_bits(v), values, site);
        if (from >= kWarpLanes || ((present >> from) & 1u) == 0)
            lane_.rendezvous->misuse(
                lane(), "shfl from a lane that is not in the group: its value is undefined on a GPU", site);
        return from_bits<T>(values[from]);
#else
        (void)from;
        return v;
#endif
    }
    /// The members with the same value as the caller. T: up to 8 bytes.
    template <class T>
    GN_HD LaneSet match(T v GN_SITE_PARAMETER) const {
        static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8,
                      "a lane can pass a trivially copyable value of at most 8 bytes");
#if GN_DEVICE_PASS
        return LaneSet(__match_any_sync(mask_, static_cast<unsigned long long>(to_bits(v))));
#elif !defined(__CUDACC__)
        if (lane_.rendezvous == nullptr) return LaneSet(1u);
        std::uint64_t values[kWarpLanes] = {};
        const std::uint32_t present = exchange_values(Collective::kMatch, to_bits(v), values, site);
        std::uint32_t bits = 0;
        for (std::uint32_t i = 0; i < kWarpLanes; ++i)
            if (((present >> i) & 1u) != 0 && values[i] == to_bits(v)) bits |= 1u << i;
        return LaneSet(bits);
#else
        (void)v;
        return LaneSet(1u);
#endif
    }

    /// The sum of all members' values (wrapping); the same for all.
    GN_HD
    std::uint32_t sum(std::uint32_t v GN_SITE_PARAMETER) const {
#if GN_DEVICE_PASS
        return __reduce_add_sync(mask_, v);
#elif !defined(__CUDACC__)
        if (lane_.rendezvous == nullptr) return v;
        std::uint64_t values[kWarpLanes] = {};
        const std::uint32_t present = exchange_values(Collective::kSum, v, values, site);
        std::uint32_t total = 0;
        for (std::uint32_t i = 0; i < kWarpLanes; ++i)
            if (((present >> i) & 1u) != 0) total += static_cast<std::uint32_t>(values[i]);
        return total;
#else
        return v;
#endif
    }
    /// The bitwise OR of all members' values; the same for all.
    GN_HD
    std::uint64_t unite(std::uint64_t v GN_SITE_PARAMETER) const {
#if GN_DEVICE_PASS
        const std::uint64_t high = __reduce_or_sync(mask_, static_cast<unsigned>(v >> 32));
        return high << 32 | __reduce_or_sync(mask_, static_cast<unsigned>(v));
#elif !defined(__CUDACC__)
        if (lane_.rendezvous == nullptr) return v;
        std::uint64_t values[kWarpLanes] = {};
        const std::uint32_t present = exchange_values(Collective::kUnite, v, values, site);
        std::uint64_t bits = 0;
        for (std::uint32_t i = 0; i < kWarpLanes; ++i)
            if (((present >> i) & 1u) != 0) bits |= values[i];
        return bits;
#else
        return v;
#endif
    }

  private:
#if defined(__CUDACC__)
    friend __host__ __device__ MaskGroup warp(Lane);
    friend __host__ __device__ MaskGroup active(Lane);
#else
    friend MaskGroup warp(Lane, Site);
    friend MaskGroup active(Lane, Site);
#endif
    GN_HD
    MaskGroup(Lane lane, std::uint32_t mask) : lane_(lane), mask_(mask) {}

    template <class T>
    GN_HD static std::uint64_t to_bits(T v) {
        std::uint64_t bits = 0;
        memcpy_small(&bits, &v, sizeof(T));
        return bits;
    }
    template <class T>
    GN_HD static T from_bits(std::uint64_t bits) {
        T v;
        memcpy_small(&v, &bits, sizeof(T));
        return v;
    }
    GN_HD
    static void memcpy_small(void* to, const void* from, std::uint32_t n) {
        __builtin_memcpy(to, from, n);
    }

#if !defined(__CUDACC__)
    std::uint32_t exchange_values(Collective what, std::uint64_t value, std::uint64_t* values,
                                  Site site) const {
        std::uint64_t scratch[kWarpLanes];
        return lane_.rendezvous->meet(lane(), mask_, what, value, values != nullptr ? values : scratch, site);
    }
#endif
    Lane lane_;
    std::uint32_t mask_;
};

#if defined(__CUDACC__)
/// All live lanes of the warp; all of them must call.
GN_HD
inline MaskGroup warp(Lane lane) {
#if GN_DEVICE_PASS
    // Lanes that left are not waited for (PTX: only non-exited threads take part), so the ballot names the
    // live ones.
    return MaskGroup(lane, __ballot_sync(0xFFFFFFFFu, 1));
#else
    return MaskGroup(lane, 1u);
#endif
}
/// The lanes of the warp that are here together; they must not diverge while they use the group.
GN_HD
inline MaskGroup active(Lane lane) {
#if GN_DEVICE_PASS
    return MaskGroup(lane, __activemask());
#else
    return MaskGroup(lane, 1u);
#endif
}
#else
inline MaskGroup warp(Lane lane GN_SITE_PARAMETER) {
    if (lane.rendezvous == nullptr) return MaskGroup(lane, 1u);
    std::uint64_t values[kWarpLanes];
    return MaskGroup(
        lane, lane.rendezvous->meet(lane.index_in_warp, 0xFFFFFFFFu, Collective::kWarp, 0, values, site));
}
inline MaskGroup active(Lane lane GN_SITE_PARAMETER) {
    if (lane.rendezvous == nullptr) return MaskGroup(lane, 1u);
    return MaskGroup(lane, lane.rendezvous->gather_active(lane.index_in_warp, site));
}
#endif
GN_HD
inline SelfGroup self(Lane lane) {
    return SelfGroup(lane);
}

}  // namespace gpu_lanes or cpu_lanes
}  // namespace gnstor::simt
