// erase_hold.hpp: emptied units that must not be erased yet, because a damaged page was copied out of one.
//
// The contents of such a copy do not match its record. In the last two groups recovery takes it for torn, and
// needs the page that it was made from.
// Invariant: a unit emptied in the group of the first copy, or later, is erased only when a group is durable
// that holds a page and lies two groups, empty ones not counted, behind that of the last copy.
// Owned by one shard; pure.
#pragma once

#include "deengine/flash.hpp"
#include "deengine/log/journal.hpp"

#include <cstdint>
#include <optional>

namespace gnstor::deengine {

class EraseHold {
  public:
    /// A damaged page with this record was copied in group `current`.
    void begin(std::uint32_t current, const PageOob& damaged) {
        const std::uint32_t from = held_ ? held_->from : current;
        held_ = Held{from, current + 2, damaged.vid, damaged.epoch};
    }
    [[nodiscard]] bool active() const { return held_.has_value(); }
    void drop() { held_.reset(); }
    /// Empty groups do not count: no page shows a recovery that the groups before them were durable.
    void note_empty_group() {
        if (held_) ++held_->until;
    }
    /// While active(): a record that changes nothing, for a group that would end empty.
    [[nodiscard]] LogRecord filler() const {
        LogRecord record{};
        record.type = LogType::kFloor;
        record.volume = held_->volume;
        record.epoch = held_->epoch;
        return record;
    }
    /// Group `durable` survives power loss now: the last group whose emptied units may be erased. Ends the
    /// hold if that is all of them.
    [[nodiscard]] std::uint32_t erasable(std::uint32_t durable) {
        if (held_ && static_cast<std::int32_t>(durable - held_->until) < 0) return held_->from - 1;
        held_.reset();
        return durable;
    }

  private:
    struct Held {
        std::uint32_t from;   ///< units emptied in this group or later are not erased ..
        std::uint32_t until;  ///< .. before this group is durable and holds a page
        nvme::VolumeId volume;
        nvme::Epoch epoch;
    };
    std::optional<Held> held_;
};

}  // namespace gnstor::deengine
