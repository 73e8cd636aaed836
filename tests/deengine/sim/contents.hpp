// contents.hpp: the bytes of a page, shared between a medium and all its images, with honest sector CRCs.
//
// A block that a client writes is a pattern of one 64-bit id: every sector of it differs from every sector of
// any other id, so that a page mixed of two is seen, and a page of somebody else is named. Pure.
#pragma once

#include <gnstor/base/crc32c.hpp>
#include <gnstor/base/hash.hpp>

#include "deengine/map/order.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace gnstor::deengine::sim {

/// Identifies what a client wrote into one block; 0: zeroes.
using ContentId = std::uint64_t;

struct Contents {
    alignas(64) std::byte bytes[nvme::kBlockBytes];
    std::uint32_t crcs[nvme::kSectorsPerBlock];

    void seal() {
        for (std::uint32_t s = 0; s < nvme::kSectorsPerBlock; ++s)
            crcs[s] = crc32c(bytes + std::size_t{s} * nvme::kSectorBytes, nvme::kSectorBytes);
    }
};
using ContentsRef = std::shared_ptr<const Contents>;

inline constexpr std::uint32_t kWords = nvme::kBlockBytes / 8;
inline constexpr std::uint32_t kWordsPerSector = nvme::kSectorBytes / 8;

/// The pattern of an id: word i is base + i * step.
struct Pattern {
    std::uint64_t base;
    std::uint64_t step;
    explicit Pattern(ContentId id)
        : base(id == 0 ? 0 : mix64(id) | 1), step(id == 0 ? 0 : mix64(id ^ 0xC0FFEE) | 1) {}

    void fill(std::byte* to) const {
        for (std::uint32_t i = 0; i < kWords; ++i) {
            const std::uint64_t word = base + i * step;
            std::memcpy(to + std::size_t{i} * 8, &word, 8);
        }
    }
    /// Whether `sectors` sectors at `from` are this pattern's from `first` on.
    [[nodiscard]] bool matches(const std::byte* from, std::uint32_t first, std::uint32_t sectors) const {
        std::uint64_t word = 0;
        std::memcpy(&word, from, 8);
        const std::uint64_t begin = base + std::uint64_t{first} * kWordsPerSector * step;
        if (word != begin) return false;
        std::uint64_t differ = 0;
        for (std::uint32_t i = 0; i < sectors * kWordsPerSector; ++i) {
            std::memcpy(&word, from + std::size_t{i} * 8, 8);
            differ |= word ^ (begin + i * step);
        }
        return differ == 0;
    }
};

/// What orders it among equal sequences (order.hpp).
inline std::uint32_t order_crc(ContentId id) {
    Contents c;
    if (id == 0) {
        std::memset(c.crcs, 0, sizeof(c.crcs));
    } else {
        Pattern(id).fill(c.bytes);
        c.seal();
    }
    return content_crc(c.crcs);
}

}  // namespace gnstor::deengine::sim
