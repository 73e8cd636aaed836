// changed_extents.hpp: in which extents of a volume a shard has changed blocks by sequences that are not resolved yet, so
// that a comparison of replicas reads these extents alone. docs/array.md, rules 8 and 11.
//
// Two sets of extents: the older one holds those that sequences up to its `highest` changed, the newer one those that were
// changed since. When the floor has passed the older set's highest, that set is cleared, and the newer one becomes the
// older. Extents share the sets' bits, and a set is kept until its highest sequence is resolved: so an extent may count as
// changed that is not.
//
// Invariants
//   * an extent with an unresolved change counts as changed;
//   * after a mount every extent does, until what the mount found is resolved: flash does not keep the sets.
// Of one volume in one epoch. One owner thread. 8 KiB.
#pragma once

#include <gnstor/nvme/copy.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace gnstor::deengine {

class ChangedExtents {
  public:
    static constexpr std::uint32_t kBits = 32768;  ///< 32 GiB of a volume without sharing

    /// `found`: highest sequence of this epoch that the shard has seen before it kept these sets; 0: none.
    explicit ChangedExtents(std::uint64_t found) {
        sets_[old_].highest = found;
        sets_[old_].all = found != 0;
    }

    /// Blocks of one extent are about to be changed by this sequence.
    void note(nvme::BlockAddress first, std::uint64_t sequence, std::uint64_t floor) {
        if (++noted_ % kNotesOfTurn == 0) turn(floor);
        Set& newer = sets_[old_ ^ 1];
        newer.highest = std::max(newer.highest, sequence);
        const std::uint32_t bit = bit_of(first);
        newer.words[bit / 64] |= std::uint64_t{1} << bit % 64;
    }
    /// Drops what is resolved.
    void turn(std::uint64_t floor) {
        for (int set = 0; set < 2 && floor >= sets_[old_].highest; ++set) {
            sets_[old_] = {};
            old_ ^= 1;
        }
    }
    /// Whether the extent of this block may have an unresolved change; after turn().
    [[nodiscard]] bool has(nvme::BlockAddress block) const {
        const std::uint32_t bit = bit_of(block);
        return sets_[old_].all || (word(bit / 64) >> bit % 64 & 1u) != 0;
    }
    /// The first block of the next extent, behind that of `block`, for which has() is true; kNone: there is none.
    [[nodiscard]] std::uint64_t next(nvme::BlockAddress block) const {
        const std::uint64_t extent = std::uint64_t{block / nvme::kExtentBlocks} + 1;
        if (sets_[old_].all) return extent * nvme::kExtentBlocks;
        for (std::uint64_t e = extent; e < extent + kBits;) {
            const auto bit = static_cast<std::uint32_t>(e % kBits);
            const std::uint64_t rest = word(bit / 64) >> bit % 64;
            if (rest != 0)
                return (e + static_cast<std::uint32_t>(std::countr_zero(rest))) * nvme::kExtentBlocks;
            e += 64 - bit % 64;
        }
        return kNone;
    }
    static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  private:
    /// A turn clears 4 KiB.
    static constexpr std::uint32_t kNotesOfTurn = 16;
    struct Set {
        std::array<std::uint64_t, kBits / 64> words{};
        std::uint64_t highest = 0;
        bool all = false;
    };
    static std::uint32_t bit_of(nvme::BlockAddress block) { return block / nvme::kExtentBlocks % kBits; }
    [[nodiscard]] std::uint64_t word(std::uint32_t i) const { return sets_[0].words[i] | sets_[1].words[i]; }

    std::array<Set, 2> sets_;
    std::uint32_t old_ = 0;  ///< index of the older set
    std::uint32_t noted_ = 0;
};

}  // namespace gnstor::deengine
