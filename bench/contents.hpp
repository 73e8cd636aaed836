// contents.hpp: what a volume holds in benchmarks: every 8-byte word follows from (seed, VID, byte offset),
// so that lanes can say of any read whether it is right. Device code, CPU and GPU lanes; pure.
//
// A block's key mixes seed, VID and VBA; its words count up from there by an odd constant: another block,
// another volume, another generation (seed) or a shifted word are all seen, and checking costs one addition a
// word.
#pragma once

#include <gnstor/base/hash.hpp>
#include <gnstor/base/target.hpp>
#include <gnstor/nvme/command.hpp>
#include <gnstor/simt/group.hpp>

#include <cstddef>
#include <cstdint>

namespace gnstor::bench {

/// Whose contents: a volume's, of one generation.
struct Contents {
    std::uint64_t seed;
    nvme::VolumeId volume;

    GN_HD
    constexpr std::uint64_t key(std::uint64_t block) const {
        return mix64(seed ^ mix64((std::uint64_t{volume} << 32) | block));
    }
    GN_HD
    static constexpr std::uint64_t word(std::uint64_t key, std::uint64_t index) {
        return key + index * 0x9E3779B97F4A7C15ull;
    }
};

/// Two words in one 16-byte access: over PCIe anything less costs twice (simt/copy.hpp).
struct alignas(16) WordPair {
    std::uint64_t low, high;
};

/// Calls `visit(pair index, word index, key)` for this member's share of [offset, offset + bytes); both are
/// multiples of 16.
template <class Group, class Visit>
GN_HD void for_each_pair(Group group, const Contents& contents, std::uint64_t offset, std::uint32_t bytes,
                         Visit visit) {
    for (std::uint32_t at = 0; at < bytes;) {
        const std::uint64_t block = (offset + at) / nvme::kBlockBytes;
        const auto in_block = static_cast<std::uint32_t>((offset + at) % nvme::kBlockBytes);
        const std::uint32_t room = nvme::kBlockBytes - in_block;
        const std::uint32_t length = bytes - at < room ? bytes - at : room;
        const std::uint64_t key = contents.key(block);
        for (std::uint32_t i = group.rank(); i < length / 16; i += group.size())
            visit(at / 16 + i, in_block / 8 + 2 * i, key);
        at += length;
    }
}

/// Writes the contents of volume bytes [offset, offset + bytes) to `to` (16-byte aligned). All members call;
/// group.sync() before anybody reads another's part.
template <class Group>
GN_HD void fill(Group group, const Contents& contents, std::uint64_t offset, std::uint32_t bytes, void* to) {
    auto* const pairs = static_cast<WordPair*>(to);
    for_each_pair(group, contents, offset, bytes,
                  [pairs](std::uint32_t pair, std::uint32_t word, std::uint64_t key) {
                      pairs[pair] = WordPair{Contents::word(key, word), Contents::word(key, word + 1)};
                  });
}

/// Words that a member asks for before it looks at the first of them: memory behind PCIe is slow to answer.
inline constexpr std::uint32_t kPairsAhead = 8;

/// Whether every word at `from` is the volume's. All members call and get the same answer.
template <class Group>
GN_HD bool matches(Group group, const Contents& contents, std::uint64_t offset, std::uint32_t bytes,
                   const void* from) {
    const auto* pairs = static_cast<const WordPair*>(from);
    std::uint64_t difference = 0;
    for (std::uint32_t at = 0; at < bytes;) {
        const std::uint64_t block = (offset + at) / nvme::kBlockBytes;
        const auto in_block = static_cast<std::uint32_t>((offset + at) % nvme::kBlockBytes);
        const std::uint32_t room = nvme::kBlockBytes - in_block;
        const std::uint32_t length = bytes - at < room ? bytes - at : room;
        const std::uint32_t count = length / 16, step = group.size();
        const std::uint64_t key = contents.key(block);
        for (std::uint32_t first = group.rank(); first < count; first += kPairsAhead * step) {
            WordPair seen[kPairsAhead];
            for (std::uint32_t u = 0; u < kPairsAhead; ++u)
                if (first + u * step < count) seen[u] = pairs[first + u * step];
            for (std::uint32_t u = 0; u < kPairsAhead; ++u) {
                const std::uint32_t i = first + u * step;
                if (i >= count) continue;
                const std::uint32_t word = in_block / 8 + 2 * i;
                difference |= (seen[u].low ^ Contents::word(key, word)) |
                              (seen[u].high ^ Contents::word(key, word + 1));
            }
        }
        pairs += count;
        at += length;
    }
    return group.all(difference == 0);
}

}  // namespace gnstor::bench
