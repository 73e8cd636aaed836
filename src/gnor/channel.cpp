#include "gnor/channel.hpp"

#include <gnstor/base/log.hpp>

#include "gnor/host_command.hpp"

namespace gnstor::gnor {

namespace {

Result<void> check_options(const ChannelOptions& o) {
    if (o.ssds == 0 || o.ssds > placement::kMaxSlots)
        return error(Errc::kInvalidArgument, "a channel cannot have {} SSDs; give 1 to {}", o.ssds,
                     placement::kMaxSlots);
    if (o.depth < 2 || o.depth > 1024 || (o.depth & (o.depth - 1)) != 0)
        return error(Errc::kInvalidArgument, "channel depth {}: give a power of two of 2 to 1024", o.depth);
    if (std::uint64_t{o.depth} * o.ssds > kMaxCommandSlots)
        return error(Errc::kInvalidArgument,
                     "channel of {} SSDs x depth {}: at most {} commands; lower the depth", o.ssds, o.depth,
                     kMaxCommandSlots);
    return {};
}

}  // namespace

Channel::Channel(rdma::Nic& nic, const ChannelOptions& options, const PoolPlan& plan,
                 const ChannelLayout& layout)
    : options_(options),
      memory_(nic, options.lanes, layout),
      pool_(nic, memory_, plan),
      regions_(nic, memory_),
      queues_(nic, memory_) {}

Result<std::unique_ptr<Channel>> Channel::create(rdma::Nic& nic, const ChannelOptions& options) {
    GN_TRY(check_options(options));
    const PoolOptions pool{options.pool_bytes, options.pool_bytes_max, options.pool_levels};
    GN_TRY(check_pool(pool));
    GN_TRY(simt::check_lanes(options.lanes));
    GN_TRY(simt::ensure_lane_stack(options.lanes));
    const PoolPlan plan = PoolPlan::of(pool);
    const auto layout = ChannelLayout::of(options.depth, options.ssds, plan);
    std::unique_ptr<Channel> channel(new Channel(nic, options, plan, layout));
    GN_TRY(channel->set_up());
    return channel;
}

Result<void> Channel::set_up() {
    GN_TRY(memory_.set_up());
    GN_TRY(pool_.set_up(options_.huge_pages));
    GN_ASSIGN(LaneAccess access, LaneAccess::begin(memory_));
    memory_.fill(*access, options_);
    pool_.fill(*access);
    GN_TRY(queues_.create(*access, options_));
    return access.commit();
}

Channel::~Channel() {
    if (!queues_.destroy()) {
        memory_.leave_mapped();
        pool_.leave_mapped();
        return;
    }
    regions_.deregister();
    pool_.deregister();
    memory_.deregister();
}

ChannelRef Channel::ref() const {
    if (auto here = memory_.lane_memory().check_this_gpu(); !here.ok()) {
        log_error("kernels that this thread launches cannot use a channel: {}", here.error().message);
        return ChannelRef::none(nvme::Status::kWrongLanes);
    }
    return ChannelRef(memory_.lane_memory().lane_as<ChannelState>(), options_.lanes);
}

Result<nvme::Completion> Channel::execute_from_host(std::uint32_t slot, nvme::Command command,
                                                    std::span<const std::byte> data, std::uint32_t timeout_ms,
                                                    std::span<std::byte> returned) {
    if (slot >= options_.ssds)
        return error(Errc::kInvalidArgument,
                     "cannot send a command to slot {}: the channel has {} queue pairs", slot, options_.ssds);
    if (data.size() > kInCapsuleBytes || returned.size() > kInCapsuleBytes)
        return error(Errc::kInvalidArgument,
                     "a command of the host moves at most {} bytes, not {} to the SSD and {} back",
                     kInCapsuleBytes, data.size(), returned.size());
    GN_ASSIGN(LaneAccess access, LaneAccess::begin(memory_));
    auto response = HostCommand(*access, slot).execute(command, data, timeout_ms, returned);
    GN_TRY(access.commit());
    return response;
}

Result<void> Channel::unregister_buffer(void* base) {
    GN_ASSIGN(const std::uint32_t entry, regions_.find(base));
    GN_ASSIGN(LaneAccess access, LaneAccess::begin(memory_));
    const std::uint32_t commands = count_unanswered_in(*access, regions_[entry]);
    if (commands != 0)
        return error(Errc::kBusy,
                     "cannot unregister the region at {1}: {0} commands in flight use it, and a drive may "
                     "still write there; wait for them (quiesce), or end them (reclaim)",
                     commands, base);
    return regions_.remove(entry);
}

Result<void> Channel::clear_first_error() {
    GN_ASSIGN(LaneAccess access, LaneAccess::begin(memory_));
    access->first_error = FirstError{};
    return access.commit();
}

nvme::MapVersion Channel::refused_map() const {
    return simt::load_relaxed<simt::Scope::kSystem>(&memory_.mailbox()->refused_map);
}

void Channel::clear_refused_map() {
    simt::store_relaxed<simt::Scope::kSystem>(&memory_.mailbox()->refused_map, 0u);
}

Result<Channel::Usage> Channel::usage() {
    GN_ASSIGN(LaneAccess access, LaneAccess::begin(memory_));
    return usage_of(*access, pool_);
}

Result<void> Channel::quiesce(simt::Deadline deadline) {
    GN_ASSIGN(LaneAccess access, LaneAccess::begin(memory_));
    const bool callbacks = options_.lanes == simt::LanesKind::kCpu;  // the host cannot run a GPU's functions
    std::uint32_t backoff = 0;
    std::uint32_t pending = 0;
    for (;;) {
        // A callback may send the next request: arrivals alone must not keep this loop running past the
        // deadline.
        const bool arrived = poll_once(simt::self(simt::Lane{}), *access, callbacks) != 0;
        if (arrived && !deadline.passed()) {
            backoff = 0;
            continue;
        }
        pending = count_unanswered(*access);
        if (pending == 0 || deadline.passed()) break;
        simt::pause(backoff);
    }
    GN_TRY(access.commit());
    if (pending != 0)
        return error(Errc::kTimedOut,
                     "{} commands are still without an answer; reclaim the slots of their SSDs", pending);
    return {};
}

Result<void> Channel::reclaim(std::uint32_t slot) {
    if (slot >= options_.ssds)
        return error(Errc::kInvalidArgument, "cannot reclaim slot {}: the channel has {} slots", slot,
                     options_.ssds);
    GN_TRY(queues_.reset(slot));
    GN_ASSIGN(LaneAccess access, LaneAccess::begin(memory_));
    ChannelState& c = *access;
    // Its remaining completions must be consumed before the queue pair is used again.
    while (poll_once(simt::self(simt::Lane{}), c, false) != 0) {
    }
    for (std::uint32_t i = 0; i < c.command_slots; ++i)
        while (settle(c, slot, command_id(c, i), nvme::Status::kQueueError)) {
        }
    queues_.begin_again(slot, c);
    return access.commit();
}

Result<void> Channel::give_up(std::uint32_t slot) {
    GN_ASSIGN(LaneAccess access, LaneAccess::begin(memory_));
    simt::store_release<simt::Scope::kDevice>(&access->queue(slot).broken, 1u);
    return access.commit();
}

Result<std::uint32_t> Channel::drop_tokens() {
    GN_ASSIGN(LaneAccess access, LaneAccess::begin(memory_));
    const std::uint32_t dropped = gnor::drop_tokens(*access);
    GN_TRY(access.commit());
    return dropped;
}

Result<std::uint32_t> Channel::drop_callbacks() {
    GN_ASSIGN(LaneAccess access, LaneAccess::begin(memory_));
    const std::uint32_t dropped = gnor::drop_callbacks(*access);
    GN_TRY(access.commit());
    return dropped;
}

Result<Channel::LeftBuffers> Channel::free_left_buffers() {
    GN_ASSIGN(LaneAccess access, LaneAccess::begin(memory_));
    const LeftBuffers left = gnor::free_left_buffers(*access, pool_.blocks_max());
    GN_TRY(access.commit());
    return left;
}

}  // namespace gnstor::gnor
