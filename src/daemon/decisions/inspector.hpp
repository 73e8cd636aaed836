// inspector.hpp: the state of a daemon for people and monitoring; clients use ControlPlane. Values only.
#pragma once

#include <gnstor/client/control_plane.hpp>
#include <gnstor/placement/placement.hpp>

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gnstor::daemon {

/// Names of [a-z_]+, with values that never decrease.
using SsdCounters = std::vector<std::pair<std::string, std::uint64_t>>;

/// What an SSD says of itself when it is asked.
struct SsdReadings {
    SsdCounters counters;
    std::optional<std::uint64_t> used_blocks{};    ///< blocks of 4 KiB that hold data
    std::optional<std::uint32_t> spare_percent{};  ///< Available Spare (NVMe SMART / Health Information)
};

/// Names of placement::SlotState, by value.
inline constexpr const char* kSlotStateNames[] = {"empty", "in", "rebuilding", "joining", "down", "out"};
static_assert(std::size(kSlotStateNames) == static_cast<std::size_t>(placement::kLastSlotState) + 1);

/// SsdInfo::slot of an SSD that fills no slot of the map.
inline constexpr std::uint32_t kSpareSlot = 0xFFFFFFFFu;

struct SsdInfo : SsdReadings {
    std::uint32_t slot = kSpareSlot;
    std::uint32_t domain = 0;  ///< failure domain of the slot (placement.hpp)
    /// It took the map when it was last asked, and so has a grant to serve reads and writes.
    bool serves = false;
    std::string state;  ///< in, missing, stale, spare, rebuilding, joining, down, out
    std::string uuid;   ///< in the usual 8-4-4-4-12 form
    std::string serial;
    std::string nic_address;
    std::string service;
    std::string subsystem_nqn;
    std::uint64_t capacity_blocks = 0;
    /// Version of the program that serves it; empty: unknown, as it cannot be asked now.
    std::string firmware;
    std::string trouble;  ///< empty: none
};

struct LeaseInfo {
    nvme::VolumeId volume = 0;
    std::string volume_name;
    nvme::ClientId client = 0;
    std::string client_name;
    nvme::Epoch epoch = 0;
    std::uint64_t remaining_ms = 0;
};

/// A slot that is being filled from the other replicas.
struct RebuildInfo {
    std::uint32_t slot = 0;
    std::uint64_t blocks_total = 0;  ///< of all volumes, whether written or not; 0: the copy has not begun
    std::uint64_t blocks_done = 0;   ///< of them: compared or copied, or not placed on the slot
    std::uint64_t ranges_stuck =
        0;                  ///< ranges that a donor could not read, or the SSD refused, at the last attempt
    std::string refusal{};  ///< of the last command that failed; empty: none has
};

/// One pass of the scrub over all volumes (scrub.hpp).
struct ScrubPassInfo {
    std::uint64_t blocks_total = 0;  ///< of all volumes with more than one replica, whether written or not
    std::uint64_t blocks_done = 0;   ///< of them: looked at, or known to be empty
    std::uint64_t compared = 0;      ///< blocks that some replica has
    std::uint64_t mended = 0;        ///< blocks put again on an SSD that could not read them
    std::uint64_t refused = 0;       ///< such blocks that the SSD did not take
    std::uint64_t unreadable = 0;    ///< blocks that no replica can read
    std::uint64_t different = 0;     ///< blocks whose replicas differ
    std::uint64_t unresolved = 0;    ///< blocks that were being written each time they were looked at
    std::uint64_t seconds = 0;       ///< since it began; of a pass that has ended, until then
};

/// A volume in which the scrub has found what it cannot mend.
struct ScrubFindings {
    std::string volume;
    std::uint64_t unreadable = 0, different = 0;  ///< blocks
    std::string first{};                          ///< of the blocks that differ, one and the slots
};

struct ScrubInfo {
    bool running = false;
    ScrubPassInfo pass{};                                  ///< the present one, or the last one
    std::uint64_t passes = 0;                              ///< that have ended since gnstord started
    std::uint64_t ended_seconds_ago = 0;                   ///< of the last one that has ended
    std::optional<std::uint64_t> next_in_seconds{};        ///< none: only on request
    std::uint64_t blocks_compared = 0, blocks_mended = 0;  ///< of all passes since gnstord started
    std::vector<ScrubFindings> findings{};  ///< of the present pass, and of the last one that has ended
};

struct VolumeInfo {
    std::string name;
    std::uint32_t replicas = 0;
    nvme::VolumeId id = 0;
    std::string owner_name{};
    std::uint64_t capacity_blocks = 0;
    std::uint64_t byte_length = 0;  ///< of its content, as its last writer recorded it
    /// Ranges of blocks that an SSD refused when the replicas were made equal after a writer's end.
    std::uint64_t ranges_left = 0;
};

struct ClientInfo : client::ClientIdentity {
    std::uint32_t generation = 0;
    bool removed = false;
};

struct ArrayInfo {
    std::uint64_t term = 0;
    std::uint32_t map_version = 0;
    bool map_in_force = false;
    std::uint64_t capacity_blocks = 0;     ///< of all SSDs in slots
    std::uint64_t provisioned_blocks = 0;  ///< volumes times replicas; may be above the capacity (thin)
    std::uint32_t volumes = 0;
    std::uint32_t pending_changes = 0;
    std::string read_only;   ///< why no change can be stored now; empty: changes can be stored
    std::string superseded;  ///< why this daemon may change nothing any more; empty: it may
    std::vector<SsdInfo> ssds;
    std::vector<VolumeInfo> listed_volumes;  ///< those that clients may see, in order of VID
    std::optional<RebuildInfo> rebuild;
    ScrubInfo scrub;
    std::vector<LeaseInfo> leases;
    std::vector<ClientInfo> clients;  ///< also the removed ones
    std::vector<std::string> warnings;
};

/// Something that happened to the array (events.hpp).
struct Event {
    std::uint64_t number = 0;
    std::uint64_t time_ms = 0;  ///< since 1970
    std::string_view code{};    ///< of event::k...
    std::optional<std::uint32_t> slot{};
    std::string volume{}, client{}, health{};  ///< names, and a code of health; empty: not about one
    std::string text{};                        ///< a sentence
};

struct EventPage {
    std::vector<Event> events;     ///< oldest first
    std::uint64_t first = 0;       ///< number of the oldest event that is kept; 0: none
    std::uint64_t last = 0;        ///< number of the newest event
    std::uint64_t started_ms = 0;  ///< when gnstord started, since 1970: numbers begin at 1 then
};

class Inspector {
  public:
    virtual ~Inspector() = default;
    /// Any thread; may block for a bounded time.
    virtual ArrayInfo inspect() = 0;
    /// nullopt: there is no such client, or it was removed. Any thread; may block for a bounded time.
    virtual std::optional<ClientInfo> client_of(nvme::ClientId /*client*/) { return std::nullopt; }
    /// Events with a higher number (EventRing::since). Any thread.
    virtual EventPage events_since(std::uint64_t /*number*/) { return {}; }
};

[[nodiscard]] std::string uuid_text(const std::uint8_t (&uuid)[16]);

}  // namespace gnstor::daemon
