// loss_watch.hpp: whether a flush may say that what was answered before it survives. Pure.
//
// An SSD that keeps answered writes in a volatile cache loses them with its host's power. It comes back as
// another incarnation, or not at all (ARRAY.md, rule 10), and the map says so: another UUID in its slot, or
// nobody there. A flush asks those SSDs alone that the map has by then, and hears success from all of them.
//
// Every answered write is on as many SSDs of one version of the map as the volume has replicas. So while
// fewer slots than that lost their SSD since the last flush that has settled the write, one SSD has it, and
// the flush makes it durable there. From as many on nobody knows, and no flush may say success: not the next
// one alone, for each host above has to hear it. One thread.
#pragma once

#include <gnstor/placement/placement.hpp>

#include <cstdint>

namespace gnstor::gateway {

class LossWatch {
  public:
    LossWatch(std::uint32_t replicas, const placement::ArrayMap& map) : replicas_(replicas), map_(map) {}

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
        gone_ &= answers_ == mark.answers && !old_changes ? 0 : ~mark.slots;
        settled_ = mark.answers;
    }

    [[nodiscard]] bool lost() const { return lost_; }
    /// Changes that were answered after the last flush that settled any began; and slots that lost their SSD
    /// since the last one that settled all before it.
    [[nodiscard]] std::uint64_t unsettled() const { return answers_ - settled_; }
    [[nodiscard]] std::uint32_t slots_gone() const;

  private:
    std::uint32_t replicas_;
    placement::ArrayMap map_;
    std::uint64_t gone_ = 0;  // slots that lost their SSD, since the last flush
    std::uint64_t answers_ = 0, settled_ = 0;
    bool lost_ = false;
};

}  // namespace gnstor::gateway
