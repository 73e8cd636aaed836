// ring_spread.hpp: which poller executes the queue pairs of a new completion ring. Pure logic; the caller
// locks.
//
// Invariants
//   * a ring goes to the poller whose rings of the same use have the fewest entries. Rings for lanes, for
//     the host and for administration are spread separately, since an idle ring of one use says nothing
//     about the load of another (a client opens a ring for its host beside those of its lanes: counted
//     together, two of four pollers got all lanes);
//   * ties go to the poller with the fewest entries of all uses, then to the lowest number.
#pragma once

#include "rdma/nic/nic.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gnstor::rdma {

class RingSpread {
  public:
    /// Returns a poller below `pollers` and counts the ring there.
    std::uint32_t place(std::size_t pollers, RingUse use, std::uint32_t entries) {
        if (pollers_.size() < pollers) pollers_.resize(pollers);
        std::uint32_t best = 0;
        for (std::uint32_t i = 1; i < pollers; ++i) {
            if (load(i, use) < load(best, use)) best = i;
        }
        pollers_[best][index(use)] += entries;
        return best;
    }
    void drop(std::uint32_t poller, RingUse use, std::uint32_t entries) {
        pollers_[poller][index(use)] -= entries;
    }

  private:
    using Entries = std::array<std::uint64_t, kRingUses>;
    static std::size_t index(RingUse use) { return static_cast<std::size_t>(use); }
    /// Entries of this use, then of all uses.
    [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> load(std::uint32_t poller, RingUse use) const {
        const Entries& of = pollers_[poller];
        std::uint64_t all = 0;
        for (const std::uint64_t entries : of) all += entries;
        return {of[index(use)], all};
    }

    std::vector<Entries> pollers_;
};

}  // namespace gnstor::rdma
