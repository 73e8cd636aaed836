#include "gnor/channel_memory.hpp"

namespace gnstor::gnor {

Result<void> ChannelMemory::set_up() {
    GN_ASSIGN(nic_memory_,
              simt::PinnedMemory::map(layout_.nic_bytes, lanes_, {.shareable = nic_.wants_shared_memory()}));
    GN_TRY(nic_.share_memory(nic_memory_.data(), nic_memory_.size(), nic_memory_.file()));
    if (nic_memory_.data() != nic_memory_.lane_data())
        return error(Errc::kUnsupported,
                     "a channel needs unified addressing: pinned memory has another address on this GPU");
    GN_ASSIGN(lane_memory_, simt::DeviceMemory::allocate(layout_.lane_bytes, lanes_));
    if (lanes_ == simt::LanesKind::kGpu) {
        GN_ASSIGN(copy_, simt::DeviceMemory::allocate(layout_.lane_bytes, simt::LanesKind::kCpu));
    }
    GN_ASSIGN(keys_, nic_.register_memory(nic_memory_.data(), nic_memory_.size(), rdma::kLocalWrite));
    registered_ = true;
    return {};
}

void ChannelMemory::deregister() {
    if (registered_) (void)nic_.deregister_memory(keys_);
    registered_ = false;
    if (nic_memory_.data() != nullptr) (void)nic_.unshare_memory(nic_memory_.data());
}

void ChannelMemory::fill(ChannelState& s, const ChannelOptions& options) const {
    s.queues = layout_.ssds;
    s.depth = layout_.depth;
    s.sharing = options.sharing;
    s.checks = options.check_buffers ? 1 : 0;
    s.command_slots = layout_.command_slots;
    s.slot_bits = layout_.slot_bits;
    s.slot_words = layout_.command_slots / 64;
    s.regions = regions();
    s.notes = mailbox();
    s.completion_ring = nic_visible<mlx5::Cqe64>(layout_.ring);
    s.consumer_record = nic_visible<std::uint32_t>(layout_.consumer_record);
    s.completion_entries_log2 = static_cast<std::uint32_t>(__builtin_ctz(layout_.completion_entries));
    s.send_entries_log2 = static_cast<std::uint32_t>(__builtin_ctz(layout_.depth));
    s.queues_offset = static_cast<std::uint32_t>(layout_.queues);
    s.ready_marks_offset = static_cast<std::uint32_t>(layout_.ready_marks);
    s.receives_offset = static_cast<std::uint32_t>(layout_.receives);
    s.slots_offset = static_cast<std::uint32_t>(layout_.slots);
    s.free_offset = static_cast<std::uint32_t>(layout_.free_words);
    s.ready_offset = static_cast<std::uint32_t>(layout_.ready_words);
    for (std::uint32_t w = 0; w < s.slot_words; ++w) s.free_slots()[w] = ~0ull;
}

void ChannelMemory::point_receives_at(ChannelState& image, std::byte* base) const {
    for (std::uint32_t i = 0; i < layout_.ssds; ++i)
        image.receives()[i].state = reinterpret_cast<rdma::ReceiveQueueState*>(
            base + layout_.queues + i * sizeof(QueueLane) + offsetof(QueueLane, receive));
}

Result<LaneAccess> LaneAccess::begin(ChannelMemory& memory) {
    if (memory.lanes_ == simt::LanesKind::kCpu) return LaneAccess(memory, &memory.cpu_state());
    auto* copy = memory.copy_.lane_as<ChannelState>();
    GN_TRY(memory.lane_memory_.download(0, copy, memory.layout_.lane_bytes));
    memory.point_receives_at(*copy, reinterpret_cast<std::byte*>(copy));
    return LaneAccess(memory, copy);
}

Result<void> LaneAccess::commit() {
    if (memory_->lanes_ == simt::LanesKind::kCpu) return {};
    memory_->point_receives_at(*state_, static_cast<std::byte*>(memory_->lane_memory_.lane_data()));
    return memory_->lane_memory_.upload(0, state_, memory_->layout_.lane_bytes);
}

}  // namespace gnstor::gnor
