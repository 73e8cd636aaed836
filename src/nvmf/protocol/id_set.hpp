// id_set.hpp: which command ids of a queue are under way. Pure; one owner.
//
// A bit an id would be simpler and takes 8 KiB a connection: with hundreds of connections a look at one is a
// cache miss. A queue has few commands under way, so this is a table of twice as many places, probed in a
// row. Invariants
//   * an id lies between its home and the first empty place behind it, so a search ends there;
//   * at least half of the places are empty: the owner never has more than `most` ids under way.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace gnstor::nvmf {

class IdSet {
  public:
    explicit IdSet(std::uint32_t most) : places_(2 * std::bit_ceil(most)) {}

    [[nodiscard]] bool has(std::uint16_t id) const { return places_[find(id)] != kEmpty; }
    /// Puts it in, or takes it out if it was in.
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
    /// Ids of one host are often a slot in the low bits and a count above it: both parts matter.
    [[nodiscard]] std::uint32_t home(std::uint32_t id) const { return (id * 0x9E3779B1u >> 16) & mask(); }
    /// Where it is, or the empty place where it would be.
    [[nodiscard]] std::uint32_t find(std::uint16_t id) const {
        std::uint32_t at = home(id);
        while (places_[at] != kEmpty && places_[at] != id + 1u) at = (at + 1) & mask();
        return at;
    }
    /// Empties a place and moves up what would not be found behind it.
    void close_gap(std::uint32_t gap) {
        for (std::uint32_t at = (gap + 1) & mask(); places_[at] != kEmpty; at = (at + 1) & mask()) {
            // Distances along the row: one whose home lies behind the gap stays.
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
