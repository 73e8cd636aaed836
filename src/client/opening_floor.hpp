// opening_floor.hpp: keeps the floor of one opening for writing, and tells it to the SSDs. ARRAY.md, rule 8.
//
// Owns the memory in which lanes take sequences and note what is resolved (gnor/resolved.hpp). With GPU lanes
// the host's own lanes, which cannot reach that, have a counter of their own, and what they resolved is noted
// by resolve(), with no kernel writing meanwhile.
// Invariants
//   * an SSD is told only of an opening's own epoch, and of what a FloorTracker says;
//   * which SSDs know it, and when, orders nothing: one that was not told only remembers longer, and is told
//   the next time.
// publish() by one thread at a time, the client's for floors; the rest is constant after create().
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/nvme/vendor.hpp>
#include <gnstor/simt/device_memory.hpp>

#include "client/floor_tracker.hpp"

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

namespace gnstor::client {

class SsdSession;

class OpeningFloor {
  public:
    using Clock = std::chrono::steady_clock;
    /// About once so often, sooner where SSDs remember a lot.
    static constexpr auto kPeriod = std::chrono::seconds(1);
    static constexpr auto kLook = std::chrono::milliseconds(100);
    static constexpr std::uint32_t kManyTombstones = 64;  ///< the smallest table has room for some more

    static Result<OpeningFloor> create(simt::LanesKind lanes);

    /// VolumeRef::last_sequence and ::resolved, for lanes of the client's kind or for the host's own.
    [[nodiscard]] std::uint64_t* last_sequence(bool host) const {
        return (host && own() ? host_ : lanes_).lane_as<std::uint64_t>();
    }
    [[nodiscard]] std::uint64_t* resolved(bool host) const {
        return host && own() ? nullptr : lanes_.lane_as<std::uint64_t>(kRing);
    }
    /// The counters.
    [[nodiscard]] simt::DeviceMemory& lane_memory() { return lanes_; }
    [[nodiscard]] simt::DeviceMemory& host_memory() { return host_; }
    /// Whether the host's own lanes have a counter of their own.
    [[nodiscard]] bool own() const { return host_.size() != 0; }
    /// What the host's own lanes did, where they cannot note it.
    Result<void> resolve(std::uint64_t first, std::uint64_t count);

    /// The floor as it is now.
    Result<std::uint64_t> look();
    /// Looks, and tells the SSDs that know less, if it is time to: `reachable` says of each whether to ask it
    /// at all. False: the epoch is over, there is nothing left to tell.
    bool publish(Clock::time_point now, nvme::VolumeId volume, nvme::Epoch epoch,
                 const std::vector<std::unique_ptr<SsdSession>>& sessions,
                 const std::function<bool(const SsdSession&)>& reachable);

  private:
    static constexpr std::size_t kRing = 256;  ///< behind the counter, which lanes share
    OpeningFloor() = default;

    simt::DeviceMemory lanes_, host_;
    FloorTracker tracker_;
    std::vector<std::uint64_t> told_;  ///< by session
    Clock::time_point next_{};
    bool complained_ = false;
};

}  // namespace gnstor::client
