// id_set.hpp: the command ids of a queue's outstanding commands. Pure; one owner.
//
// A bitmap of all ids would be simpler but takes 8 KiB a connection: with hundreds of connections each lookup
// is a cache miss. A queue has few commands outstanding, so this is a hash table with linear probing and
// twice as many places.
// Invariants
//   * an id lies between its home and the first empty place after it, so a search ends there;
//   * at least half of the places are empty: the owner never puts in more than `most` ids.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace gnstor::nvmf {

class IdSet {
  public:
    explicit IdSet(std::uint32_t most) : places_(2 * std::bit_ceil(most)) {}

    [[nodiscard]] bool has(std::uint16_t id) const { return places_[find(id)] != kEmpty; }
    /// Inserts the id, or removes it if it is present.
    void toggle(std::uint16_t id) {
        const std::uint32_t at = find(id);
        if (places_[at] == kEmpty)
            places_[at] = id + 1u;
        else
            close_gap(at);
    }

  private:
    static constexpr std::uint32_t kEmpty = 0;

    [[nodiscard]] std::uint32_t mask() const { return static_cast<std::uint32_t>(places_.size()) - 1; }
    /// Hashes both parts of an id: hosts often use a slot in the low bits and a counter above it.
    [[nodiscard]] std::uint32_t home(std::uint32_t id) const { return (id * 0x9E3779B1u >> 16) & mask(); }
    /// The place of the id, or the empty place where it would go.
    [[nodiscard]] std::uint32_t find(std::uint16_t id) const {
        std::uint32_t at = home(id);
        while (places_[at] != kEmpty && places_[at] != id + 1u) at = (at + 1) & mask();
        return at;
    }
    /// Empties a place and moves up entries that a search would no longer reach.
    void close_gap(std::uint32_t gap) {
        for (std::uint32_t at = (gap + 1) & mask(); places_[at] != kEmpty; at = (at + 1) & mask()) {
            // Compares probe distances: an entry whose home lies after the gap stays.
            const std::uint32_t from_home = (at - home(places_[at] - 1)) & mask();
            if (from_home < ((at - gap) & mask())) continue;
            places_[gap] = places_[at];
            gap = at;
        }
        places_[gap] = kEmpty;
    }

    std::vector<std::uint32_t> places_;  ///< id + 1, or kEmpty
};

}  // namespace gnstor::nvmf
