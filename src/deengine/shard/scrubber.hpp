// scrubber.hpp: reads data at rest in the background, to find pages that rotted while replicas are intact.
//
// Round robin over the programmed pages of data units, at the rate that the options give; a mapped page that
// fails is counted and its place kept. A page whose record cannot be read may be torn: then the map does not
// name it. Scrub moves no data, but has units rewritten that need correction too often (collector.hpp).
// Owns the next page to read, the pages that the time passed so far allows, the latest bad places, and pages
// that it need not look up again.
// Invariant: the next page is of the shard's range, or one beyond it.
// One owner thread.
#pragma once

#include "deengine/shard/collector.hpp"
#include "deengine/shard/shard_state.hpp"

#include <cstdint>
#include <utility>
#include <vector>

namespace gnstor::deengine {

class Scrubber {
  public:
    Scrubber(ShardState& state, Collector& collector);

    /// Reads the pages that the time since the last call allows.
    void poll(std::uint64_t now_ns);
    /// The latest few, oldest first.
    [[nodiscard]] const std::vector<ScrubError>& bad_places() const { return bad_places_; }

  private:
    void check(PageNumber page);

    ShardState& state_;
    Collector& collector_;
    std::uint64_t last_ns_ = 0;
    std::uint64_t credit_ = 0;  ///< 1e9 allow one page
    PageNumber next_;
    std::vector<ScrubError> bad_places_;
    /// Unmapped pages without a readable record, and their unit's serial.
    std::vector<std::pair<PageNumber, std::uint32_t>> nobodys_;
    std::vector<std::byte> scratch_;  ///< one page
};

}  // namespace gnstor::deengine
