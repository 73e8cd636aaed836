// copy.hpp: how lanes move bytes. CPU and GPU lanes.
//
// Over PCIe a lane must use all 16 bytes of each load and keep several loads in flight; a single lane must
// not read consecutive words (one round trip per load, twelve times slower than one load per 128-byte line;
// bulk copies are faster still). Source and destination must not overlap. Payload is plain memory: an acquire
// before, or a release after, orders it.
#pragma once

#include <gnstor/base/target.hpp>
#include <gnstor/simt/atomic.hpp>
#include <gnstor/simt/group.hpp>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace gnstor::simt {

namespace detail_copy {

struct alignas(16) Word16 {
    std::uint32_t part[4];
};
inline constexpr std::uint32_t kInFlight = 8;  // loads that a lane has in flight
inline constexpr std::uint32_t kLineBytes = 128;

template <class Word>
GN_HD Word load_word(const Word* p) {
#if GN_DEVICE_PASS
    if constexpr (sizeof(Word) == 16) {
        const uint4 v = *reinterpret_cast<const uint4*>(p);  // one instruction: ld.v4
        return Word{{v.x, v.y, v.z, v.w}};
    }
#endif
    return *p;
}
template <class Word>
GN_HD void store_word(Word* p, const Word& w) {
#if GN_DEVICE_PASS
    if constexpr (sizeof(Word) == 16) {
        *reinterpret_cast<uint4*>(p) = make_uint4(w.part[0], w.part[1], w.part[2], w.part[3]);
        return;
    }
#endif
    *p = w;
}

// Which word is a lane's i-th one. A single lane goes from line to line, and comes back for the next word of
// each line; the lanes of a group take neighbouring words, so that their loads coalesce into lines.
struct Walk {
    std::uint64_t words;
    std::uint64_t lines;         // single lane: whole lines
    std::uint32_t words_a_line;  // single lane
    std::uint32_t rank;
    std::uint32_t size;
    GN_HD
    std::uint64_t steps() const { return size == 1 ? words : (words + size - 1 - rank) / size; }
    GN_HD
    std::uint64_t at(std::uint64_t i) const {
        if (size != 1) return i * size + rank;
        const std::uint64_t in_lines = lines * words_a_line;
        if (i >= in_lines) return i;
        if ((in_lines >> 32) != 0) return (i % lines) * words_a_line + i / lines;
        const auto narrow = static_cast<std::uint32_t>(i);  // a GPU divides 32 bits several times faster
        const auto over = static_cast<std::uint32_t>(lines);
        return std::uint64_t{narrow % over} * words_a_line + narrow / over;
    }
};

template <class Word>
GN_HD void copy_words(Word* to, const Word* from, std::uint64_t words, std::uint32_t rank,
                      std::uint32_t size) {
    constexpr std::uint32_t kWordsALine = kLineBytes / sizeof(Word);
    const Walk walk{words, words / kWordsALine, kWordsALine, rank, size};
    const std::uint64_t steps = walk.steps();
    for (std::uint64_t i = 0; i < steps; i += kInFlight) {
        Word held[kInFlight] = {};
        GN_DEVICE_UNROLL
        for (std::uint32_t k = 0; k < kInFlight; ++k)
            if (i + k < steps) held[k] = load_word(from + walk.at(i + k));
        GN_DEVICE_UNROLL
        for (std::uint32_t k = 0; k < kInFlight; ++k)
            if (i + k < steps) store_word(to + walk.at(i + k), held[k]);
    }
}

// Copies bytes up to the first aligned word, then words, then the remaining bytes. `to` and `from` have the
// same alignment modulo the word's size.
template <class Word>
GN_HD void copy_by(std::uint8_t* to, const std::uint8_t* from, std::uint64_t bytes, std::uint32_t rank,
                   std::uint32_t size) {
    std::uint64_t head = (sizeof(Word) - reinterpret_cast<std::uintptr_t>(to) % sizeof(Word)) % sizeof(Word);
    if (head > bytes) head = bytes;
    const std::uint64_t words = (bytes - head) / sizeof(Word);
    copy_words(reinterpret_cast<Word*>(to + head), reinterpret_cast<const Word*>(from + head), words, rank,
               size);
    const std::uint64_t tail = head + words * sizeof(Word);
    for (std::uint64_t i = rank; i < head; i += size) to[i] = from[i];
    for (std::uint64_t i = tail + rank; i < bytes; i += size) to[i] = from[i];
}

}  // namespace detail_copy

/// Copies `bytes` bytes, divided among the members of `group`: all of them call, with the same arguments.
/// Each lane has copied its part on return: group.sync() before a member reads another's part. Any alignment;
/// fastest where both have the same one modulo 16.
template <class Group>
GN_HD void copy16(const Group& group, void* to, const void* from, std::uint64_t bytes) {
    auto* out = static_cast<std::uint8_t*>(to);
    const auto* in = static_cast<const std::uint8_t*>(from);
    const std::uint32_t rank = group.rank();
    const std::uint32_t size = group.size();
#if !GN_DEVICE_PASS
    if (size == 1) {
        if (bytes != 0) std::memcpy(out, in, bytes);
        return;
    }
#endif
    const auto apart = reinterpret_cast<std::uintptr_t>(out) ^ reinterpret_cast<std::uintptr_t>(in);
    if (apart % 16 == 0)
        detail_copy::copy_by<detail_copy::Word16>(out, in, bytes, rank, size);
    else if (apart % 8 == 0)
        detail_copy::copy_by<std::uint64_t>(out, in, bytes, rank, size);
    else if (apart % 4 == 0)
        detail_copy::copy_by<std::uint32_t>(out, in, bytes, rank, size);
    else
        detail_copy::copy_by<std::uint8_t>(out, in, bytes, rank, size);
}

/// Whether only the calling lane reaches `p` (its stack on a GPU): the same address names other bytes in
/// every other lane, so a group cannot share it.
GN_HD
inline bool is_lane_private(const void* p) {
#if GN_DEVICE_PASS
    return __isLocal(p) != 0;
#else
    (void)p;
    return false;
#endif
}

/// Shared memory of a block that one lane uses for bulk copies. `stage` aligned to 128 bytes, `bytes` a
/// multiple of 16.
struct BulkScratch {
    void* stage;
    std::uint64_t* barrier;
    std::uint32_t bytes;
};

/// One lane copies through shared memory with the copy engine of its SM (PTX cp.async.bulk, sm_90): 4 KiB in
/// a round trip. If an address or `bytes` is no multiple of 16, and on other processors, it is copy16 by one
/// lane.
GN_HD
inline void copy_bulk(Lane lane, void* to, const void* from, std::uint64_t bytes, BulkScratch scratch) {
#if GN_DEVICE_PASS && __CUDA_ARCH__ >= 900
    const auto odd = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | bytes;
    if (odd % 16 == 0 && scratch.bytes >= 16) {
        const auto stage = static_cast<std::uint32_t>(__cvta_generic_to_shared(scratch.stage));
        const auto barrier = static_cast<std::uint32_t>(__cvta_generic_to_shared(scratch.barrier));
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
        // Orders the barrier, and what this lane wrote or acquired so far, before the copy engine's accesses
        // (another proxy).
        asm volatile("fence.proxy.async;" ::: "memory");
        std::uint32_t parity = 0;
        for (std::uint64_t done = 0; done < bytes;) {
            const std::uint64_t left = bytes - done;
            const auto piece =
                static_cast<std::uint32_t>(left < scratch.bytes ? left : scratch.bytes / 16 * 16);
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(piece)
                         : "memory");
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
                    "r"(stage),
                "l"(static_cast<const std::uint8_t*>(from) + done), "r"(piece), "r"(barrier)
                : "memory");
            // Ends when the hardware has copied, as a load does; it depends on no other lane.
            std::uint32_t landed = 0;
            while (landed == 0)
                asm volatile(
                    "{\n\t.reg .pred p;\n\t"
                    "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
                    "selp.u32 %0, 1, 0, p;\n\t}"
                    : "=r"(landed)
                    : "r"(barrier), "r"(parity)
                    : "memory");
            parity ^= 1;
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                             static_cast<std::uint8_t*>(to) + done),
                         "r"(stage), "r"(piece)
                         : "memory");
            asm volatile("cp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group 0;" ::: "memory");
            done += piece;
        }
        asm volatile("fence.proxy.async;\n\tmbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
        return;
    }
#endif
    (void)scratch;
    copy16(self(lane), to, from, bytes);
}

/// For small messages that a NIC may read at any moment: word by word, relaxed. For one lane.
template <Scope S, class T>
GN_HD void store_words_relaxed(T* to, const T* from, std::uint32_t words) {
    for (std::uint32_t i = 0; i < words; ++i) store_relaxed<S>(to + i, from[i]);
}
template <Scope S, class T>
GN_HD void load_words_relaxed(T* to, const T* from, std::uint32_t words) {
    for (std::uint32_t i = 0; i < words; ++i) to[i] = load_relaxed<S>(from + i);
}

}  // namespace gnstor::simt
