#include "gnor/left_behind.hpp"

#include <gnstor/gnor/detail/resources/command_slots.hpp>

#include "gnor/channel_report.hpp"

namespace gnstor::gnor {

std::uint32_t drop_tokens(ChannelState& c) {
    std::uint32_t dropped = 0;
    for (std::uint32_t i = 0; i < c.command_slots; ++i) {
        if (state_of(load_control(c.slot(i))) != SlotState::kOwned) continue;
        (void)leave_slot(c, i);
        ++dropped;
    }
    return dropped;
}

std::uint32_t drop_callbacks(ChannelState& c) {
    const std::uint32_t dropped = count_callbacks(c);
    for (std::uint32_t i = 0; i < c.command_slots; ++i) {
        const SlotState state = state_of(load_control(c.slot(i)));
        if (state == SlotState::kCallback || state == SlotState::kEnded) (void)leave_slot(c, i);
    }
    // The ready bitmap named only callbacks that were dropped just now.
    for (std::uint32_t w = 0; w < c.slot_words; ++w)
        simt::store_relaxed<simt::Scope::kDevice>(&c.ready_slots()[w], 0ull);
    simt::store_relaxed<simt::Scope::kDevice>(&c.any_ready, 0u);
    return dropped;
}

LeftBuffers free_left_buffers(ChannelState& c, std::uint32_t blocks) {
    LeftBuffers left{};
    for (std::uint32_t first = 0; first < blocks; ++first) {
        if ((c.pool_length()[first] & kRunLengthMask) == 0) continue;
        const auto status = pool_free(c, reinterpret_cast<void*>(pool_address(c, first)));
        ++(nvme::ok(status) ? left.freed : left.in_use);
    }
    return left;
}

}  // namespace gnstor::gnor
