// events.hpp: what happened to an array: the last events, and what makes events of changes.
//
// Pure: the time and the state of the array are arguments. One caller at a time (InProcessControlPlane's mutex).
//
// Invariants
//   * numbers begin at 1 when gnstord starts and have no gaps; of the events, the newest kEventsMax are kept;
//   * an event is made of two observations: what came and went between them leaves none.
#pragma once

#include "daemon/decisions/health.hpp"
#include "daemon/decisions/inspector.hpp"

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace gnstor::daemon {

inline constexpr std::size_t kEventsMax = 1'000;

/// Codes of events. Like those of health, they never change their meaning; docs/operations.md lists them.
namespace event {
inline constexpr std::string_view kDaemonStarted = "DAEMON_STARTED", kSsdSilent = "SSD_SILENT",
                                  kSsdOut = "SSD_OUT", kSsdBack = "SSD_BACK", kSsdReplaced = "SSD_REPLACED",
                                  kSsdFilled = "SSD_FILLED", kVolumeCreated = "VOLUME_CREATED",
                                  kVolumeDeleted = "VOLUME_DELETED", kLeaseExpired = "LEASE_EXPIRED",
                                  kClientAdded = "CLIENT_ADDED", kClientRemoved = "CLIENT_REMOVED",
                                  kClientRotated = "CLIENT_ROTATED", kScrubEnded = "SCRUB_ENDED",
                                  kHealthFound = "HEALTH_FOUND", kHealthGone = "HEALTH_GONE";
}  // namespace event

/// The newest events, oldest first.
class EventRing {
  public:
    void add(Event event);  ///< gives it its number
    /// Those with a higher number; all that are kept, if no event has had this number yet (gnstord has restarted).
    [[nodiscard]] EventPage since(std::uint64_t number) const;

  private:
    std::deque<Event> events_;
    std::uint64_t last_ = 0;
};

/// What was done right before an observation.
enum class Observed : std::uint8_t {
    kCall,  ///< a request, which may have ended a lease by a release
    kTick,  ///< Manager::tick(), which ends leases that have expired
};

class EventRecorder {
  public:
    /// Adds an event for everything that has changed since the last call; the first call says that gnstord started.
    /// `readings`: info has what the SSDs say of themselves. Without it, findings that come from readings stay as
    /// they were. `time_ms`: since 1970.
    void observe(const ArrayInfo& info, Observed after, bool readings, std::uint64_t time_ms);
    /// As EventRing::since().
    [[nodiscard]] EventPage since(std::uint64_t number) const;

  private:
    void add(std::string_view code, Event event);
    void start(const ArrayInfo& info);
    void compare_ssds(const ArrayInfo& info);
    void compare_ssd(const SsdInfo* before, const SsdInfo& ssd);
    void compare_volumes(const ArrayInfo& info);
    void compare_leases(const ArrayInfo& info, Observed after);
    void compare_clients(const ArrayInfo& info);
    void compare_scrub(const ArrayInfo& info);
    void compare_health(const ArrayInfo& info, bool readings);

    EventRing ring_;
    std::uint64_t started_ms_ = 0;     ///< of the first observation
    std::uint64_t time_ms_ = 0;        ///< of the present observation
    std::optional<ArrayInfo> before_;  ///< the last observation
    std::set<std::uint32_t> silent_;   ///< slots that were reported silent, and not back since
    std::set<const HealthCode*> found_;
};

}  // namespace gnstor::daemon
