// retrying.hpp: which refusals are worth another attempt, and when. CPU and GPU lanes; nothing here waits.
//
// A synchronous call repeats a command that an SSD refuses for now, until its deadline, with growing pauses;
// a write keeps its sequence (docs/array.md, rules 5 and 6). A read asks the other replicas first. A stale
// map is cured by a newer map only: a note in NIC-visible memory tells the host, and the command waits until
// the client has published one. A command in pause keeps its slot and its pool buffer (no drive waits for
// these), but no credit.
#pragma once

#include <gnstor/gnor/detail/queues/posting.hpp>
#include <gnstor/simt/time.hpp>

namespace gnstor::gnor {

inline constexpr std::uint64_t kFirstPauseNs = 4'000;
inline constexpr std::uint32_t kPauseDoublings = 11;  ///< up to 8 ms: many lanes may be refused at once

// Bits of CommandSlot::attempts: how many replicas were asked in this round, and what they answered
// (posting.hpp has two more bits, kBlockByBlock and kOlderAccepted).
inline constexpr std::uint8_t kSaidBusy = 0x80;   ///< a replica answered busy or not granted
inline constexpr std::uint8_t kSaidStale = 0x40;  ///< a replica answered stale map
inline constexpr std::uint8_t kSaidDoubt = 0x20;  ///< a replica answered doubtful
inline constexpr std::uint8_t kAskedMask = 0x07;
static_assert(placement::kMaxReplicas <= kAskedMask, "the number of replicas asked must fit three bits");

/// What the commands of one call have in common.
struct Operation {
    CommandContext context;
    placement::VolumeGeometry geometry;
    const std::uint64_t* current_map;  ///< address of the newest map; read once an attempt
    const placement::LaneMap* map;     ///< the map of the current attempt

    GN_HD
    void load_map() {
        // Pairs with the client's release of a new map: that map object is complete and never changes.
        map = reinterpret_cast<const placement::LaneMap*>(
            simt::load_acquire<simt::Scope::kSystem>(current_map));
    }
};

enum class NextAttempt : std::uint32_t {
    kEnd,
    kNextReplica,  ///< at once
    kAfterPause,   ///< asks all replicas again
    kUnderNewMap,  ///< the same, once there is a newer map
    kEachBlock,    ///< at once (singly.hpp): no replica has all of its blocks
};

GN_HD
constexpr std::uint8_t attempts_after(std::uint8_t attempts, nvme::Status status) {
    if (status == nvme::Status::kStaleMap) return attempts | kSaidStale;
    if (nvme::may_retry(status)) return attempts | kSaidBusy;
    return status == nvme::Status::kDoubtful ? attempts | kSaidDoubt : attempts;
}

/// What to do with a command that ended with `status`. Doubtful (docs/array.md, rule 18): another replica is
/// asked, which may have the newest version intact. If no replica has all of the command's blocks, each may
/// have blocks that another lacks: they are read one by one.
GN_HD
inline NextAttempt next_attempt(const CommandSlot& slot, std::uint32_t replicas, nvme::Status status) {
    const bool read = slot.opcode == static_cast<std::uint8_t>(nvme::IoOpcode::kRead);
    const bool elsewhere = status == nvme::Status::kQueueError ||
                           status == nvme::Status::kUnrecoveredReadError || status == nvme::Status::kDoubtful;
    if (!nvme::may_retry(status) && !(read && elsewhere)) return NextAttempt::kEnd;
    if (read && (slot.attempts & kAskedMask) + 1u < replicas) return NextAttempt::kNextReplica;
    const std::uint8_t said = attempts_after(slot.attempts, status);
    if ((said & kSaidBusy) != 0) return NextAttempt::kAfterPause;
    if ((said & kSaidStale) != 0) return NextAttempt::kUnderNewMap;
    const bool apart = slot.blocks > 1 && replicas > 1 && status == nvme::Status::kUnrecoveredReadError;
    return (said & kSaidDoubt) != 0 || apart ? NextAttempt::kEachBlock : NextAttempt::kEnd;
}

/// One lane's pause before its oldest command is sent again.
struct RetryPause {
    std::uint64_t until_ns = 0;  ///< 0: none has begun
    std::uint32_t taken = 0;     ///< pauses in a row

    GN_HD
    void begin() {
        const std::uint32_t doublings = taken < kPauseDoublings ? taken : kPauseDoublings;
        until_ns = simt::now_ns() + (kFirstPauseNs << doublings);
        ++taken;
    }
    /// Whether the command may be sent again now. Called once per round of the lane.
    GN_HD
    bool over(ChannelState& c, Operation& op, const CommandSlot& slot, NextAttempt next) {
        if (next == NextAttempt::kNextReplica) return true;
        const bool for_map = next == NextAttempt::kUnderNewMap;
        if (for_map) {
            op.load_map();
            if (op.map->version != slot.map_version) return true;
        }
        if (until_ns == 0) {
            begin();
            return false;
        }
        if (simt::now_ns() < until_ns) return false;
        if (!for_map) return true;
        note_stale_map(c, slot.map_version);  // again: the host may have found no newer map yet
        begin();
        return false;
    }
    /// The next attempt starts; the pause after it is longer.
    GN_HD
    void start() { until_ns = 0; }
};

}  // namespace gnstor::gnor
