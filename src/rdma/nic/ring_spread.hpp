// ring_spread.hpp: which poller a new completion ring's queue pairs go to. Pure logic; its owner locks.
//
// Invariants
//   * a ring goes where rings of its own use have the fewest entries: what waits for lanes, for the host and
//   for administration is spread each by itself, since an idle ring of one use says nothing about the work of
//   another (a client opens a ring for its host beside those of its lanes: counted together, two pollers of
//   four got all lanes);
//   * among equals, where all uses together have the fewest, then the lowest number.
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
    /// One of pollers 0 .. `pollers` - 1, where the ring counts from now on.
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
    /// Entries of this use, then of all.
    [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> load(std::uint32_t poller, RingUse use) const {
        const Entries& of = pollers_[poller];
        std::uint64_t all = 0;
        for (const std::uint64_t entries : of) all += entries;
        return {of[index(use)], all};
    }

    std::vector<Entries> pollers_;
};

}  // namespace gnstor::rdma
