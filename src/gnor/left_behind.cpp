// left_behind.cpp: releases what ended kernels left behind: tokens, callbacks, pool buffers. One host
// thread, quiet (channel.hpp).
//
// Nothing here ends a command: one that a drive has not answered goes into quarantine with its buffer; both
// come back with the answer or by reclaim().
#include "gnor/channel_memory.hpp"

namespace gnstor::gnor {

Result<std::uint32_t> Channel::drop_tokens() {
    GN_ASSIGN(HostAccess access, HostAccess::begin(*this));
    std::uint32_t dropped = 0;
    for (std::uint32_t i = 0; i < access->command_slots; ++i) {
        if (state_of(load_control(access->slot(i))) != SlotState::kOwned) continue;
        (void)leave_slot(*access, i);
        ++dropped;
    }
    GN_TRY(access.commit());
    return dropped;
}

Result<std::uint32_t> Channel::drop_callbacks() {
    GN_ASSIGN(HostAccess access, HostAccess::begin(*this));
    ChannelState& c = *access;
    std::uint32_t dropped = 0;
    for (std::uint32_t i = 0; i < c.command_slots; ++i) dropped += is_first_with_callback(c, i) ? 1 : 0;
    for (std::uint32_t i = 0; i < c.command_slots; ++i) {
        const SlotState state = state_of(load_control(c.slot(i)));
        if (state == SlotState::kCallback || state == SlotState::kEnded) (void)leave_slot(c, i);
    }
    // The ready bitmap named only callbacks that were dropped just now.
    for (std::uint32_t w = 0; w < c.slot_words; ++w)
        simt::store_relaxed<simt::Scope::kDevice>(&c.ready_slots()[w], 0ull);
    simt::store_relaxed<simt::Scope::kDevice>(&c.any_ready, 0u);
    GN_TRY(access.commit());
    return dropped;
}

Result<Channel::LeftBuffers> Channel::free_left_buffers() {
    GN_ASSIGN(HostAccess access, HostAccess::begin(*this));
    ChannelState& c = *access;
    LeftBuffers left{};
    for (std::uint32_t first = 0; first < plan_.blocks; ++first) {
        if ((c.pool_length()[first] & kRunLengthMask) == 0) continue;
        const auto status = pool_free(c, reinterpret_cast<void*>(pool_address(c, first)));
        ++(nvme::ok(status) ? left.freed : left.in_use);
    }
    GN_TRY(access.commit());
    return left;
}

}  // namespace gnstor::gnor
