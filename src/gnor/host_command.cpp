#include "gnor/host_command.hpp"

#include <cstring>

namespace gnstor::gnor {

Result<nvme::Completion> HostCommand::execute(nvme::Command command, std::span<const std::byte> data,
                                              std::uint32_t timeout_ms, std::span<std::byte> returned) {
    GN_TRY(take(data.size() + returned.size()));
    send(command, data, returned.size());
    nvme::Completion response{};
    const bool answered = wait(command, response, timeout_ms);
    if (answered && !returned.empty())
        std::memcpy(returned.data(), reinterpret_cast<const void*>(pool_address(channel_, block_)),
                    returned.size());
    const bool broken = channel_.queue(target_).broken != 0;
    leave_slot(channel_, index_);
    if (answered) return response;
    if (broken)
        return error(Errc::kIo,
                     "the queue pair of slot {} went to error before it answered; reclaim and reconnect it",
                     target_);
    return error(Errc::kTimedOut, "slot {} did not answer command {:#04x} within {} ms", target_,
                 command.opcode, timeout_ms);
}

/// All that the command needs, or nothing.
Result<void> HostCommand::take(std::size_t data_bytes) {
    ChannelState& c = channel_;
    if (data_bytes != 0) {
        block_ = take_pool_run(c, 1, 0);
        if (block_ == kNone)
            return error(Errc::kNoSpace, "no pool block for {} bytes of command data: all are in use",
                         data_bytes);
    }
    index_ = take_slot(simt::self(simt::Lane{}), c, true, 0);
    if (index_ == kNone) {
        if (block_ != kNone) give_pool_run(c, block_, 1);
        return error(Errc::kBusy, "all {} command slots of the channel are in use", c.command_slots);
    }
    CommandSlot& s = c.slot(index_);
    s.pool_first = block_;
    s.target[0] = static_cast<std::uint8_t>(target_);
    s.block = 0;
    s.buffer = 0;
    // free_slot() computes the pool buffer's length from these fields: one block, whatever the command is.
    s.opcode = static_cast<std::uint8_t>(nvme::IoOpcode::kWrite);
    s.sectors = 0;
    s.blocks = 1;
    if (take_credits(c, c.queue(target_), 1) == 1) {
        ticket_ = c.send_queue(target_).try_reserve();
        if (!ticket_.granted()) give_credits(c.queue(target_), 1);
    }
    if (ticket_.granted()) return {};
    free_slot(c, index_);
    return error(Errc::kState, "cannot send a command to slot {}: its queue pair is full or in error",
                 target_);
}

void HostCommand::send(nvme::Command& command, std::span<const std::byte> data, std::size_t returned_bytes) {
    ChannelState& c = channel_;
    const auto queue = c.send_queue(target_);
    command.command_id = command_id(c, index_);
    nvme::Command* const capsule = c.queue(target_).capsules + queue.slot(ticket_.index);
    const auto head = mlx5::make_data(reinterpret_cast<std::uint64_t>(capsule), sizeof(command),
                                      c.queue(target_).capsule_lkey);
    if (returned_bytes != 0) {
        const std::uint64_t address = pool_address(c, block_);
        std::memset(reinterpret_cast<void*>(address), 0, returned_bytes);
        command.data = nvme::SglDescriptor::keyed(address, static_cast<std::uint32_t>(returned_bytes),
                                                  pool_keys(c, pool_step_of(c, block_)).rkey);
    }
    if (data.empty()) {
        store_capsule(capsule, command);
        queue.fill_send(ticket_, head);
    } else {
        const std::uint64_t address = pool_address(c, block_);
        std::memcpy(reinterpret_cast<void*>(address), data.data(), data.size());
        const auto bytes = static_cast<std::uint32_t>(data.size());
        command.data = nvme::SglDescriptor::unkeyed(nvme::kSglDataBlockOffset, 0, bytes);
        store_capsule(capsule, command);
        queue.fill_send(ticket_, head,
                        mlx5::make_data(address, bytes, pool_keys(c, pool_step_of(c, block_)).lkey));
    }
    simt::fetch_or<simt::Scope::kDevice>(&c.slot(index_).control, 1u);
    queue.publish(ticket_);
    queue.ring_bell();
}

/// Files all answers that come meanwhile; true if the command's own was among them.
bool HostCommand::wait(const nvme::Command& command, nvme::Completion& response, std::uint32_t timeout_ms) {
    ChannelState& c = channel_;
    bool answered = false;
    const auto deadline = simt::Deadline::in_ns(std::uint64_t{timeout_ms} * 1'000'000u);
    std::uint32_t backoff = 0;
    while (!answered && c.queue(target_).broken == 0 && !deadline.passed()) {
        PollCounts tally;
        rdma::poll(simt::self(simt::Lane{}), c.completion_queue(), rdma::ReceiveSet{c.receives(), c.queues},
                   [&](const rdma::Arrival& arrival) {
                       if (!arrival.is_error() && !arrival.is_short() && arrival.queue == target_ &&
                           (arrival.dw3 & 0xFFFFu) == command.command_id) {
                           std::memcpy(&response, arrival.message, sizeof(response));
                           answered = true;
                       }
                       file_arrival(c, arrival, tally);
                   });
        for (; tally.due != 0; --tally.due, tally.queues >>= 8)
            give_credits(c.queue(static_cast<std::uint32_t>(tally.queues & 0xFF)), 1);
        if (tally.errors + tally.malformed != 0)
            simt::exchange<simt::Scope::kDevice>(&c.any_flushed, 1u);  // as poll_once does
        if (!answered) simt::pause(backoff);
    }
    return answered;
}

}  // namespace gnstor::gnor
