// opening_floor.hpp: computes the floor of one opening for writing, and sends it to the SSDs. docs/array.md,
// rule 8.
//
// Owns the memory in which lanes take sequences and record what is resolved
// (gnor/detail/resources/resolved.hpp). With GPU lanes, the host's CPU lanes cannot reach that memory: they
// use a counter of their own, and resolve() records their results while no kernel writes.
//
// Reading and sending are separate: look() does no I/O, because a hanging SSD must not delay it until the
// sequence ring overruns; publish() sends the result on a thread that may wait for one.
// Invariants
//   * an SSD is sent only floors that a FloorTracker computed, for this opening's own epoch;
//   * which SSDs know a floor, and since when, does not affect correctness: an SSD that missed one only keeps
//     tombstones longer, and gets the next one. One that fails to take it is not retried for kLeftAlone, and
//     does not delay the others;
//   * only Stale Epoch ends the sending: another opening has the volume. Access Denied does not, because a
//     drive that has not received the volume's record yet returns it too.
// A floor below a write in doubt does not move until the opening ends: is_held(). The lanes' memory keeps its
// address for the life of this object, also over begin_next_epoch().
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
    /// Usual interval between sends; sooner where SSDs keep many tombstones.
    static constexpr auto kPeriod = std::chrono::seconds(1);
    static constexpr auto kLook = std::chrono::milliseconds(100);
    /// Pause before an SSD that did not take the floor is asked again.
    static constexpr auto kLeftAlone = std::chrono::seconds(5);
    static constexpr auto kStuck = std::chrono::seconds(60);  ///< time without progress before a warning
    static constexpr std::uint32_t kManyTombstones = 64;  ///< below what the smallest tombstone table holds

    static Result<std::unique_ptr<OpeningFloor>> create(simt::LanesKind lanes);

    /// VolumeRef::last_sequence and ::resolved, for lanes of the client's kind or for the host's own.
    [[nodiscard]] std::uint64_t* last_sequence(bool host) const {
        return (host && own() ? host_ : lanes_).lane_as<std::uint64_t>();
    }
    [[nodiscard]] std::uint64_t* resolved(bool host) const {
        return host && own() ? nullptr : lanes_.lane_as<std::uint64_t>(kRing);
    }
    /// The memory that holds the sequence counters.
    [[nodiscard]] simt::DeviceMemory& lane_memory() { return lanes_; }
    [[nodiscard]] simt::DeviceMemory& host_memory() { return host_; }
    /// Whether the host's CPU lanes use a counter of their own (GPU clients).
    [[nodiscard]] bool own() const { return host_.size() != 0; }
    /// Records results of the host's CPU lanes, where those cannot do so themselves: resolved, or in doubt.
    Result<void> resolve(std::uint64_t first, std::uint64_t count, bool in_doubt);

    /// Updates and returns the floor. One thread at a time.
    Result<std::uint64_t> look();
    /// look(), and the reason, in one line, if the floor has not moved for kStuck; returned once, else empty.
    std::string look_at(Clock::time_point now, nvme::VolumeId volume);
    /// Whether all sequences taken are resolved, so that no lane writes this memory any more. Threads: as
    /// look().
    [[nodiscard]] bool is_settled();
    /// Any thread: whether a write ended in doubt, which holds the floor below it.
    [[nodiscard]] bool is_held() const { return in_doubt_.load(std::memory_order_relaxed) != 0; }

    using Tell = std::function<Result<nvme::Completion>(std::size_t session, std::uint64_t floor)>;
    /// If it is time, sends the floor to the sessions that know an older one. `association`: number of the session's
    /// present one, which need not know what an earlier one was told; 0: it is not reachable. False: the epoch is
    /// over, nothing is left to send. One thread, which need not be look()'s.
    bool publish(Clock::time_point now, std::size_t sessions,
                 const std::function<std::uint64_t(std::size_t)>& association, const Tell& tell);

    /// publish() at once, of what is resolved now, when the opening ends: what the SSDs know to be resolved need not be
    /// compared between replicas (docs/array.md, rule 11). With no thread in look() or publish().
    void publish_last(std::size_t sessions, const std::function<std::uint64_t(std::size_t)>& association,
                      const Tell& tell);

    /// Begins the next epoch of the same opening: sequences continue, and all taken so far count as resolved,
    /// because none belongs to the new epoch. Call with no write in flight and no thread in look() or
    /// publish().
    Result<void> begin_next_epoch();

  private:
    struct Session {
        std::uint64_t association = 0, told = 0;
        Clock::time_point next{};  ///< no send before
    };
    /// Offset; the counter before it, which all lanes write, has its own cache lines.
    static constexpr std::size_t kRing = 256;
    static constexpr std::size_t kInDoubt = kRing + gnor::kInDoubtWord * sizeof(std::uint64_t);
    OpeningFloor() = default;
    [[nodiscard]] std::string why_it_stays(nvme::VolumeId volume) const;

    simt::DeviceMemory lanes_, host_;
    FloorTracker tracker_;        // used by look() only, as the next four
    std::uint64_t moved_to_ = 0;  // the floor when it last moved
    Clock::time_point moved_{};
    bool complained_ = false;
    // Written by look(), read by any thread: relaxed, because they are hints and order nothing.
    std::atomic<std::uint64_t> floor_{0}, in_doubt_{0};
    std::vector<Session> sessions_;  // used by publish() only, as the next
    Clock::time_point next_{};
};

}  // namespace gnstor::client
