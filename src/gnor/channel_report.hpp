// channel_report.hpp: what a channel's lanes have done and what they hold, read from its state. Changes
// nothing, and is not used in the I/O path.
//
// No state of its own. Functions that take a ChannelState read it in place while no lane is in a call
// (LaneAccess), or a copy of it; those that take lane memory read it also under a running kernel.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/gnor/detail/resources/channel_state.hpp>

#include "gnor/channel_memory.hpp"
#include "gnor/channel_pool.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace gnstor::gnor {

/// Commands in flight, those in quarantine included; free pool blocks.
struct ChannelUsage {
    std::uint32_t slots_taken;
    std::uint32_t commands_pending;
    std::uint32_t commands_with_tokens;     ///< answered or not, whose token a lane still holds
    std::uint32_t requests_with_callbacks;  ///< answered or not, whose callbacks have not run
    std::uint32_t pool_blocks_free;
    std::uint32_t pool_blocks;     ///< registered now
    std::uint64_t queues_pending;  ///< bit per slot of the array with unanswered commands
    std::uint64_t queues_broken;   ///< bit per slot whose queue pair lanes do not use until reclaim()
};
[[nodiscard]] ChannelUsage usage_of(ChannelState& channel, const ChannelPool& pool);

/// Commands without all of their answers.
[[nodiscard]] std::uint32_t count_unanswered(ChannelState& channel);
/// Those of them whose data lies in `region`.
[[nodiscard]] std::uint32_t count_unanswered_in(ChannelState& channel, const Region& region);
/// Requests whose callbacks have not run.
[[nodiscard]] std::uint32_t count_callbacks(ChannelState& channel);

/// Under a running kernel no consistent snapshot: each word may be of another moment.
Result<Counters> read_counters(const ChannelMemory& memory);
Result<std::optional<FirstError>> read_first_error(const ChannelMemory& memory);
/// A few lines of text, to find out what lanes wait for. Works on a copy of lane memory, and reads
/// NIC-visible memory in place.
Result<std::string> describe(const ChannelMemory& memory, const ChannelPool& pool);

}  // namespace gnstor::gnor
