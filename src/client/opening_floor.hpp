// opening_floor.hpp: keeps the floor of one opening for writing, and tells it to the SSDs. ARRAY.md, rule 8.
//
// Owns the memory in which lanes take sequences and note what is resolved (gnor/resolved.hpp). With GPU lanes
// the host's own lanes, which cannot reach that, have a counter of their own, and what they resolved is noted
// by resolve(), with no kernel writing meanwhile.
//
// Looking and telling are apart: look() asks nobody and is called by a thread that does no I/O, for a ring of
// sequences waits for no SSD; publish() tells what was seen, by a thread that may wait for one.
// Invariants
//   * an SSD is told only of an opening's own epoch, and of what a FloorTracker says;
//   * which SSDs know it, and when, orders nothing: one that was not told only remembers longer, and is told
//   the next time. One that does not take it is left alone for a while, and costs the others nothing;
//   * only Stale Epoch ends the telling: another opening has the volume. Access Denied is said by a drive
//   that has not the volume's record yet, too.
// A floor that a write in doubt holds stays where it is to the end of the opening: is_held(). The memory
// stays where it is for the life of this object, over begin_anew(), too.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/nvme/vendor.hpp>
#include <gnstor/simt/device_memory.hpp>

#include "client/floor_tracker.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gnstor::client {

class OpeningFloor {
  public:
    using Clock = std::chrono::steady_clock;
    /// Told about once so often, sooner where SSDs remember a lot.
    static constexpr auto kPeriod = std::chrono::seconds(1);
    static constexpr auto kLook = std::chrono::milliseconds(100);
    static constexpr auto kLeftAlone = std::chrono::seconds(5);  ///< who did not take it
    static constexpr auto kStuck = std::chrono::seconds(60);     ///< until it is said
    static constexpr std::uint32_t kManyTombstones = 64;  ///< the smallest table has room for some more

    static Result<std::unique_ptr<OpeningFloor>> create(simt::LanesKind lanes);

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
    /// What the host's own lanes did, where they cannot note it: these are resolved, or in doubt.
    Result<void> resolve(std::uint64_t first, std::uint64_t count, bool in_doubt);

    /// The floor as it is now. One thread at a time.
    Result<std::uint64_t> look();
    /// The same, and what there is to say of it: why it does not move, in one line, once; else nothing.
    std::string look_at(Clock::time_point now, nvme::VolumeId volume);
    /// Whether all that was taken is resolved: then no lane will write into this memory any more. As look().
    [[nodiscard]] bool is_settled();
    /// Any thread: whether a write ended in doubt, so that the floor stays below it.
    [[nodiscard]] bool is_held() const { return in_doubt_.load(std::memory_order_relaxed) != 0; }

    using Tell = std::function<Result<nvme::Completion>(std::size_t session, std::uint64_t floor)>;
    /// Tells the sessions that know less, if it is time to; `reachable` says of each whether to ask it at
    /// all. False: the epoch is over, there is nothing left to tell. One thread, another than look()'s.
    bool publish(Clock::time_point now, std::size_t sessions,
                 const std::function<bool(std::size_t)>& reachable, const Tell& tell);

    /// The next epoch of the same opening: the sequences go on, and all up to now count as resolved, for none
    /// of them belongs to it. With no change under way, and nobody in look() or publish().
    Result<void> begin_anew();

  private:
    struct Session {
        std::uint64_t told = 0;
        Clock::time_point next{};  ///< not before
    };
    static constexpr std::size_t kRing = 256;  ///< behind the counter, which lanes share
    static constexpr std::size_t kInDoubt = kRing + gnor::kInDoubtWord * sizeof(std::uint64_t);
    OpeningFloor() = default;
    [[nodiscard]] std::string why_it_stays(nvme::VolumeId volume) const;

    simt::DeviceMemory lanes_, host_;
    FloorTracker tracker_;        // look()'s, as the next
    std::uint64_t moved_to_ = 0;  // where it was when it moved last
    Clock::time_point moved_{};
    bool complained_ = false;
    // Written by look() and read by any: hints alone, nothing is ordered by them.
    std::atomic<std::uint64_t> floor_{0}, in_doubt_{0};
    std::vector<Session> sessions_;  // publish()'s, as the next
    Clock::time_point next_{};
};

}  // namespace gnstor::client
