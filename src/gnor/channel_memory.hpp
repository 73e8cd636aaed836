// channel_memory.hpp: the host's access to a channel's lane memory while no lane is in a call on the channel.
// For the sources of Channel only; one host thread.
//
// With CPU lanes the host works on lane memory directly; with GPU lanes on a copy, which commit() writes back
// as a whole.
#pragma once

#include "gnor/channel.hpp"

namespace gnstor::gnor {

/// Lane memory itself with CPU lanes; with GPU lanes a copy, written back by commit().
class Channel::HostAccess {
  public:
    static Result<HostAccess> begin(Channel& channel) {
        if (channel.options_.lanes == simt::LanesKind::kCpu)
            return HostAccess(channel, channel.lane_memory_.lane_as<ChannelState>());
        auto* image = channel.shadow_.lane_as<ChannelState>();
        GN_TRY(channel.lane_memory_.download(0, image, channel.layout_.lane_bytes));
        channel.point_receives_at(*image, reinterpret_cast<std::byte*>(image));
        return HostAccess(channel, image);
    }
    Result<void> commit() {
        if (channel_->options_.lanes == simt::LanesKind::kCpu) return {};
        channel_->point_receives_at(*state_, static_cast<std::byte*>(channel_->lane_memory_.lane_data()));
        return channel_->lane_memory_.upload(0, state_, channel_->layout_.lane_bytes);
    }
    ChannelState* operator->() const { return state_; }
    ChannelState& operator*() const { return *state_; }

  private:
    HostAccess(Channel& channel, ChannelState* state) : channel_(&channel), state_(state) {}
    Channel* channel_;
    ChannelState* state_;
};

/// Whether this slot is the first of a request whose callback has not run: it is kept until the callback
/// runs.
inline bool is_first_with_callback(ChannelState& c, std::uint32_t index) {
    const SlotState state = state_of(load_control(c.slot(index)));
    return (state == SlotState::kCallback || state == SlotState::kEnded) && c.slot(index).request == index;
}

}  // namespace gnstor::gnor
