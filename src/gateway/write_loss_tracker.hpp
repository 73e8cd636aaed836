// write_loss_tracker.hpp: decides whether a flush may report that all writes answered before it survive.
// Pure.
//
// An SSD that keeps answered writes in a volatile cache loses them when its node loses power. It comes back
// as another incarnation, or not at all (docs/array.md, rule 10), and the map shows that: another UUID in its
// slot, or none. But a flush asks only the SSDs of the present map, and all of those answer with success.
//
// Every answered write is on as many SSDs of one map version as the volume has replicas, or on all SSDs if
// that map had fewer. (While a slot is out, perhaps on one less; then no other SSD is taken out or replaced.)
// So while fewer slots than that have lost their SSD since the last flush that covered the write, some SSD
// still has it, and a flush makes it durable there. With that many or more lost, the write may be gone, and
// no later flush may report success: not only the next one fails, because every host must learn of it.
//
// A gateway that is started after another one (resume) continues from its record, and finds out what was lost
// in between. Each of its hosts is told of that once (CommandExecutor), as none was told yet. One thread.
#pragma once

#include <gnstor/placement/placement.hpp>

#include "gateway/loss_record.hpp"

#include <cstdint>

namespace gnstor::gateway {

class WriteLossTracker {
  public:
    WriteLossTracker(std::uint32_t replicas, const placement::ArrayMap& map)
        : replicas_(replicas), map_(map) {}

    /// Continues after the gateway that left `predecessor`; null: its record is unreadable, which counts as a
    /// loss.
    static WriteLossTracker resume(std::uint32_t replicas, const LossRecord* predecessor,
                                   const placement::ArrayMap& map);

    /// Compares the map now in use with the last one. `changing`: whether a write, trim or the like is in
    /// flight. True: this map shows for the first time that answered writes may be lost.
    bool look_at(const placement::ArrayMap& map, bool changing);
    /// The version that a change records when it begins, for flush_begins().
    [[nodiscard]] nvme::MapVersion version() const { return map_.version; }
    /// A change was answered with success.
    void answered() { ++answers_; }

    /// What a flush that begins now will have covered if it succeeds.
    struct Mark {
        std::uint64_t slots = 0;
        std::uint64_t answers = 0;
    };
    /// `old_changes`: whether a change is in flight that began under an earlier map.
    [[nodiscard]] Mark flush_begins(bool old_changes) const { return {old_changes ? 0 : gone_, answers_}; }
    /// Call after success. Slots lost before the flush began are cleared, because it made their writes
    /// durable elsewhere; slots lost during the flush are cleared too if no change was answered meanwhile.
    /// `old_changes`: as above, now.
    void flush_ended(const Mark& mark, bool old_changes) {
        const bool all = answers_ == mark.answers && !old_changes;
        gone_ &= all ? 0 : ~mark.slots;
        if (all) fewest_ = ~0u;
        settled_ = mark.answers;
    }

    [[nodiscard]] bool lost() const { return lost_; }
    /// Whether writes that a predecessor answered may be lost.
    [[nodiscard]] bool inherited_loss() const { return inherited_; }
    /// Notes that a host's flush failed because of a loss. For lost(), this covers the slots gone so far; a
    /// successor looks only for later losses. `old_changes`: as above, now.
    void tell(bool old_changes) {
        told_ = true;
        if (lost_ && !old_changes) gone_ = 0;
    }
    /// The record for a successor. `changing`: as above. The caller fills in the volume.
    [[nodiscard]] LossRecord record(bool changing) const;
    /// unsettled(): changes answered since the start of the last successful flush. slots_gone(): slots that
    /// lost their SSD since the last flush that covered everything before it.
    [[nodiscard]] std::uint64_t unsettled() const { return answers_ - settled_; }
    [[nodiscard]] std::uint32_t slots_gone() const;

  private:
    std::uint32_t replicas_;
    placement::ArrayMap map_;
    std::uint32_t fewest_ = ~0u;  // smallest number of SSDs in a map that an uncovered write may have used
    std::uint64_t gone_ = 0;      // slots that lost their SSD since the last flush
    std::uint64_t answers_ = 0, settled_ = 0;
    bool lost_ = false, inherited_ = false, told_ = false;
};

}  // namespace gnstor::gateway
