// recovery_input.hpp: what a recovery is given: flash, the shard's range of it, and which volumes exist. Does
// not change during a mount.
#pragma once

#include "deengine/shard/shard.hpp"

namespace gnstor::deengine {

struct RecoveryInput {
    RecoveryInput(Flash& flash_in, const ShardRange& range_in, const EngineOptions& options_in,
                  const VolumeRegistry& lives_in)
        : flash(flash_in),
          range(range_in),
          options(options_in),
          lives(lives_in),
          only_killed(options_in.same_boot),
          pages_per_unit(flash_in.geometry().pages_per_unit),
          first_page(range_in.first_unit * pages_per_unit),
          pages(range_in.units * pages_per_unit),
          end_unit(range_in.first_unit + range_in.units) {}

    [[nodiscard]] std::uint32_t unit_of(PageNumber page) const { return page / pages_per_unit; }
    [[nodiscard]] bool has_page(PageNumber page) const {
        return page >= first_page && page - first_page < pages;
    }
    [[nodiscard]] bool has_unit(std::uint32_t unit) const {
        return unit >= range.first_unit && unit < end_unit;
    }

    Flash& flash;
    const ShardRange range;
    const EngineOptions& options;
    const VolumeRegistry& lives;
    const bool only_killed;  ///< after a kill: nothing is missing but the operation in progress
    const std::uint32_t pages_per_unit;
    const PageNumber first_page;
    const std::uint32_t pages;     ///< of the range
    const std::uint32_t end_unit;  ///< one beyond the last unit of the range
};

}  // namespace gnstor::deengine
