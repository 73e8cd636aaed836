// loss_watch.hpp: whether a flush may say that what was answered before it survives. Pure.
//
// An SSD that keeps answered writes in a volatile cache loses them with its host's power. It comes back as
// another incarnation, or not at all (ARRAY.md, rule 10), and the map says so: another UUID in its slot, or
// nobody there. A flush asks those SSDs alone that the map has by then, and hears success from all of them.
//
// Every answered write is on as many SSDs of one version of the map as the volume has replicas, or on all
// where that map had fewer. So while fewer slots than that lost their SSD since the last flush that has
// settled the write, one SSD has it, and the flush makes it durable there. From as many on nobody knows, and
// no flush may say success: not the next one alone, for each host above has to hear it.
//
// A gateway that is started after another one (resume) goes on with its record, and finds out what was lost
// in between. That its hosts hear once each (CommandEngine): they were told nothing yet. One thread.
#pragma once

#include <gnstor/placement/placement.hpp>

#include "gateway/loss_record.hpp"

#include <cstdint>

namespace gnstor::gateway {

class LossWatch {
  public:
    LossWatch(std::uint32_t replicas, const placement::ArrayMap& map) : replicas_(replicas), map_(map) {}

    /// After the gateway that left `predecessor`; null: what it left cannot be read, which counts as a loss.
    static LossWatch resume(std::uint32_t replicas, const LossRecord* predecessor,
                            const placement::ArrayMap& map);

    /// The map that is in use now. `changing`: whether a write, trim or the like is under way. True: with
    /// this map answered writes may be lost, which was not so before.
    bool look_at(const placement::ArrayMap& map, bool changing);
    /// Of a change that begins: for flush_begins().
    [[nodiscard]] nvme::MapVersion version() const { return map_.version; }
    /// A change was answered with success.
    void answered() { ++answers_; }

    /// What a flush that begins now will have settled when it ends well.
    struct Mark {
        std::uint64_t slots = 0;
        std::uint64_t answers = 0;
    };
    /// `old_changes`: whether a change is under way that began under an earlier map.
    [[nodiscard]] Mark flush_begins(bool old_changes) const { return {old_changes ? 0 : gone_, answers_}; }
    /// Well. A loss that came before it began concerns nothing later than what it made durable elsewhere; one
    /// that came meanwhile neither, if nothing was answered meanwhile. `old_changes`: as above, now.
    void flush_ended(const Mark& mark, bool old_changes) {
        const bool all = answers_ == mark.answers && !old_changes;
        gone_ &= all ? 0 : ~mark.slots;
        if (all) fewest_ = ~0u;
        settled_ = mark.answers;
    }

    [[nodiscard]] bool lost() const { return lost_; }
    /// Whether what a predecessor answered may be lost.
    [[nodiscard]] bool inherited_loss() const { return inherited_; }
    /// A flush of a host fails for a loss. Of lost(): what is gone by now it was told with that; a successor
    /// looks for more. `old_changes`: as above, now.
    void tell(bool old_changes) {
        told_ = true;
        if (lost_ && !old_changes) gone_ = 0;
    }
    /// For a successor. `changing`: as above. The volume is the caller's to fill in.
    [[nodiscard]] LossRecord record(bool changing) const;
    /// Changes that were answered after the last flush that settled any began; and slots that lost their SSD
    /// since the last one that settled all before it.
    [[nodiscard]] std::uint64_t unsettled() const { return answers_ - settled_; }
    [[nodiscard]] std::uint32_t slots_gone() const;

  private:
    std::uint32_t replicas_;
    placement::ArrayMap map_;
    std::uint32_t fewest_ = ~0u;  // SSDs of an earlier map that a write may lie on which is not settled
    std::uint64_t gone_ = 0;      // slots that lost their SSD, since the last flush
    std::uint64_t answers_ = 0, settled_ = 0;
    bool lost_ = false, inherited_ = false, told_ = false;
};

}  // namespace gnstor::gateway
