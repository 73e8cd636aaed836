// left_behind.hpp: releases what ended kernels left behind in a channel: tokens, callbacks, pool buffers.
//
// No state of its own: each function works on the channel's state while no lane is in a call (LaneAccess).
// Nothing here ends a command: one that a drive has not answered goes into quarantine with its buffer; both
// come back with the answer or by Channel::reclaim(). One host thread.
#pragma once

#include <gnstor/gnor/detail/resources/channel_state.hpp>

#include <cstdint>

namespace gnstor::gnor {

/// Drops all tokens; returns the number of their commands.
std::uint32_t drop_tokens(ChannelState& channel);
/// Drops all callbacks that have not run; returns their number.
std::uint32_t drop_callbacks(ChannelState& channel);

struct LeftBuffers {
    std::uint32_t freed;
    std::uint32_t in_use;  ///< kept: a command in quarantine may still touch them
};
/// Frees all buffers of a pool of `blocks` blocks that users hold.
LeftBuffers free_left_buffers(ChannelState& channel, std::uint32_t blocks);

}  // namespace gnstor::gnor
