// channel.cpp: creates and destroys a channel's memory and queue pairs; commands sent by the host; errors,
// quiesce and reclaim.
#include <gnstor/base/log.hpp>

#include "gnor/channel_memory.hpp"

#include <cstring>
#include <utility>

namespace gnstor::gnor {

namespace {

Result<void> check_options(const ChannelOptions& o) {
    if (o.ssds == 0 || o.ssds > placement::kMaxSlots)
        return error(Errc::kInvalidArgument, "a channel for {} SSDs: give 1 to {}", o.ssds,
                     placement::kMaxSlots);
    if (o.depth < 2 || o.depth > 1024 || (o.depth & (o.depth - 1)) != 0)
        return error(Errc::kInvalidArgument, "channel depth {}: give a power of two of 2 to 1024", o.depth);
    if (std::uint64_t{o.depth} * o.ssds > kMaxCommandSlots)
        return error(Errc::kInvalidArgument,
                     "channel of {} SSDs x depth {}: at most {} commands; lower the depth", o.ssds, o.depth,
                     kMaxCommandSlots);
    return {};
}

simt::Lane host_lane() {
    return simt::Lane{};
}

}  // namespace

Channel::Channel(rdma::Nic& nic, const ChannelOptions& options, const PoolPlan& plan,
                 const ChannelLayout& layout)
    : nic_(nic), options_(options), plan_(plan), layout_(layout) {}

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
    const bool shareable = nic_.wants_shared_memory();
    GN_ASSIGN(nic_memory_,
              simt::PinnedMemory::map(layout_.nic_bytes, options_.lanes, {.shareable = shareable}));
    GN_TRY(nic_.share_memory(nic_memory_.data(), nic_memory_.size(), nic_memory_.file()));
    GN_ASSIGN(pool_, simt::PinnedRange::reserve(std::uint64_t{plan_.blocks} * kPoolBlockBytes, options_.lanes,
                                                {.huge_pages = options_.huge_pages, .shareable = shareable}));
    if (nic_memory_.data() != nic_memory_.lane_data())
        return error(Errc::kUnsupported,
                     "a channel needs unified addressing: pinned memory has another address on this GPU");
    GN_ASSIGN(lane_memory_, simt::DeviceMemory::allocate(layout_.lane_bytes, options_.lanes));
    if (options_.lanes == simt::LanesKind::kGpu) {
        GN_ASSIGN(shadow_, simt::DeviceMemory::allocate(layout_.lane_bytes, simt::LanesKind::kCpu));
    }
    GN_ASSIGN(queue_keys_, nic_.register_memory(nic_memory_.data(), nic_memory_.size(), rdma::kLocalWrite));
    queues_registered_ = true;
    GN_TRY(extend_pool());
    GN_ASSIGN(HostAccess access, HostAccess::begin(*this));
    fill_state(*access);
    // One receive completion queue for all queue pairs; then one queue pair a slot, each with its own
    // collapsed send completion queue (one entry).
    GN_ASSIGN(const rdma::CqNumber receive_cq,
              nic_.create_completion_queue({access->completion_ring, layout_.completion_entries,
                                            access->consumer_record, false, options_.use}));
    completion_queues_.push_back(receive_cq);
    rdma::prepare_completions(access->completion_queue());
    for (std::uint32_t slot = 0; slot < options_.ssds; ++slot) {
        GN_TRY(create_queue(slot, *access));
        access->queue(slot).broken = ((options_.absent >> slot) & 1u) != 0 ? 1 : 0;
    }
    return access.commit();
}

void Channel::fill_state(ChannelState& s) {
    std::byte* const nic = nic_memory_.data();
    s.queues = options_.ssds;
    s.depth = options_.depth;
    s.sharing = options_.sharing;
    s.checks = options_.check_buffers ? 1 : 0;
    s.command_slots = layout_.command_slots;
    s.slot_bits = layout_.slot_bits;
    s.slot_words = layout_.command_slots / 64;
    s.regions = reinterpret_cast<const RegionTable*>(nic + layout_.regions);
    s.notes = reinterpret_cast<HostMailbox*>(nic + layout_.notes);
    s.completion_ring = reinterpret_cast<mlx5::Cqe64*>(nic + layout_.ring);
    s.consumer_record = reinterpret_cast<std::uint32_t*>(nic + layout_.consumer_record);
    s.completion_entries_log2 = static_cast<std::uint32_t>(__builtin_ctz(layout_.completion_entries));
    s.send_entries_log2 = static_cast<std::uint32_t>(__builtin_ctz(options_.depth));
    s.queues_offset = static_cast<std::uint32_t>(layout_.queues);
    s.ready_marks_offset = static_cast<std::uint32_t>(layout_.ready_marks);
    s.receives_offset = static_cast<std::uint32_t>(layout_.receives);
    s.slots_offset = static_cast<std::uint32_t>(layout_.slots);
    s.free_offset = static_cast<std::uint32_t>(layout_.free_words);
    s.ready_offset = static_cast<std::uint32_t>(layout_.ready_words);
    for (std::uint32_t w = 0; w < s.slot_words; ++w) s.free_slots()[w] = ~0ull;
    fill_pool_state(s);
}

Result<void> Channel::create_queue(std::uint32_t slot, ChannelState& state) {
    std::byte* const memory = queue_memory(slot);
    QueueLane& q = state.queue(slot);
    q.send_ring = reinterpret_cast<mlx5::SendEntry*>(memory + layout_.send_ring);
    q.doorbell_record = reinterpret_cast<std::uint32_t*>(memory + layout_.records);
    q.bell = reinterpret_cast<std::uint64_t*>(memory + layout_.bell);
    q.send_completion = reinterpret_cast<const mlx5::Cqe64*>(memory + layout_.send_completion);
    q.capsules = reinterpret_cast<nvme::Command*>(memory + layout_.capsules);
    q.capsule_lkey = queue_keys_.lkey;
    rdma::CompletionQueueConfig cq;
    cq.ring = reinterpret_cast<mlx5::Cqe64*>(memory + layout_.send_completion);
    cq.entries = 1;
    cq.consumer_record = q.doorbell_record + 4;  // behind the queue pair's own words, in the same 64 bytes
    cq.collapsed = true;
    GN_ASSIGN(const rdma::CqNumber send_cq, nic_.create_completion_queue(cq));
    completion_queues_.push_back(send_cq);
    rdma::QueuePairConfig config;
    config.send_ring = q.send_ring;
    config.send_entries = options_.depth;
    config.receive_ring = reinterpret_cast<mlx5::DataSegment*>(memory + layout_.receive_ring);
    config.receive_entries = options_.depth;
    config.doorbell_record = q.doorbell_record;
    config.bell = q.bell;
    config.send_cq = send_cq;
    config.receive_cq = completion_queues_.front();
    config.scatter_to_cqe = options_.scatter_to_cqe;
    GN_ASSIGN(q.qpn, nic_.create_queue_pair(config));
    queue_pairs_.push_back(q.qpn);
    rdma::ReceiveQueueRef& r = state.receives()[slot];
    r.ring = config.receive_ring;
    r.doorbell_record = q.doorbell_record;
    r.buffers = memory + layout_.responses;
    r.state = &q.receive;
    r.buffer_bytes = kResponseBytes;
    r.lkey = queue_keys_.lkey;
    r.entries_log2 = static_cast<std::uint32_t>(__builtin_ctz(options_.depth));
    r.qpn = q.qpn;
    rdma::post_all_receives(r);
    return {};
}

void Channel::point_receives_at(ChannelState& image, std::byte* base) const {
    for (std::uint32_t i = 0; i < options_.ssds; ++i)
        image.receives()[i].state = reinterpret_cast<rdma::ReceiveQueueState*>(
            base + layout_.queues + i * sizeof(QueueLane) + offsetof(QueueLane, receive));
}

Channel::~Channel() {
    bool touched = false;
    for (const auto qp : queue_pairs_) {
        const auto done = nic_.destroy_queue_pair(qp);
        if (done.ok()) continue;
        touched = true;
        log_error("a channel is closed while a drive holds its commands; its memory stays mapped: {}",
                  done.error().message);
    }
    if (touched) {  // the NIC's and the drive's threads still use this memory: it must stay mapped
        nic_memory_.leave_mapped();
        pool_.leave_mapped();
        return;
    }
    for (const auto cq : completion_queues_) (void)nic_.destroy_completion_queue(cq);
    if (nic_memory_.data() != nullptr) {
        const auto* table = reinterpret_cast<const RegionTable*>(nic_memory_.data() + layout_.regions);
        for (std::uint32_t i = 0; i < table->count; ++i)
            if (table->entries[i].bytes != 0)
                (void)nic_.deregister_memory({table->entries[i].lkey, table->entries[i].rkey});
    }
    if (nic_memory_.data() != nullptr) deregister_pool();
    if (queues_registered_) (void)nic_.deregister_memory(queue_keys_);
    if (nic_memory_.data() != nullptr) (void)nic_.unshare_memory(nic_memory_.data());
}

ChannelRef Channel::ref() const {
    if (auto here = lane_memory_.check_this_gpu(); !here.ok()) {
        log_error("a channel is not for kernels of this thread: {}", here.error().message);
        return ChannelRef::none(nvme::Status::kWrongLanes);
    }
    return ChannelRef(lane_memory_.lane_as<ChannelState>(), options_.lanes);
}

Result<nvme::Completion> Channel::execute_from_host(std::uint32_t slot, nvme::Command command,
                                                    std::span<const std::byte> data,
                                                    std::uint32_t timeout_ms) {
    if (slot >= options_.ssds)
        return error(Errc::kInvalidArgument, "command to slot {} of a channel with {} queue pairs", slot,
                     options_.ssds);
    if (data.size() > kInCapsuleBytes)
        return error(Errc::kInvalidArgument, "{} bytes do not fit into a capsule: at most {}", data.size(),
                     kInCapsuleBytes);
    GN_ASSIGN(HostAccess access, HostAccess::begin(*this));
    ChannelState& c = *access;
    const std::uint32_t block = data.empty() ? kNone : take_pool_run(c, 1, 0);
    if (!data.empty() && block == kNone)
        return error(Errc::kNoSpace, "no pool block for {} bytes of command data: all are in use",
                     data.size());
    const std::uint32_t index = take_slot(simt::self(simt::Lane{}), c, true, 0);
    if (index == kNone) {
        if (block != kNone) give_pool_run(c, block, 1);
        return error(Errc::kBusy, "all {} command slots of the channel are in use", c.command_slots);
    }
    CommandSlot& s = c.slot(index);
    s.pool_first = block;
    s.target[0] = static_cast<std::uint8_t>(slot);
    s.block = 0;
    s.buffer = 0;
    // free_slot() computes the pool buffer's length from these fields: one block, whatever the command is.
    s.opcode = static_cast<std::uint8_t>(nvme::IoOpcode::kWrite);
    s.sectors = 0;
    s.blocks = 1;
    const auto send = c.send_queue(slot);
    rdma::SendTicket ticket;
    if (take_credits(c, c.queue(slot), 1) == 1) {
        ticket = send.try_reserve();
        if (!ticket.granted()) give_credits(c.queue(slot), 1);
    }
    if (!ticket.granted()) {
        free_slot(c, index);
        GN_TRY(access.commit());
        return error(Errc::kState, "the queue pair of slot {} takes no command now: full or in error", slot);
    }
    command.command_id = command_id(c, index);
    nvme::Command* const capsule = c.queue(slot).capsules + send.slot(ticket.index);
    const auto head =
        mlx5::make_data(reinterpret_cast<std::uint64_t>(capsule), sizeof(command), queue_keys_.lkey);
    if (data.empty()) {
        store_capsule(capsule, command);
        send.fill_send(ticket, head);
    } else {
        const std::uint64_t address = pool_address(c, block);
        std::memcpy(reinterpret_cast<void*>(address), data.data(), data.size());
        const auto bytes = static_cast<std::uint32_t>(data.size());
        command.data = nvme::SglDescriptor::unkeyed(nvme::kSglDataBlockOffset, 0, bytes);
        store_capsule(capsule, command);
        send.fill_send(ticket, head,
                       mlx5::make_data(address, bytes, pool_keys(c, pool_step_of(c, block)).lkey));
    }
    simt::fetch_or<simt::Scope::kDevice>(&s.control, 1u);
    send.publish(ticket);
    send.ring_bell();

    nvme::Completion response{};
    bool answered = false;
    const auto deadline = simt::Deadline::in_ns(std::uint64_t{timeout_ms} * 1'000'000u);
    std::uint32_t backoff = 0;
    while (!answered && c.queue(slot).broken == 0 && !deadline.passed()) {
        PollCounts tally;
        rdma::poll(simt::self(host_lane()), c.completion_queue(), rdma::ReceiveSet{c.receives(), c.queues},
                   [&](const rdma::Arrival& arrival) {
                       if (!arrival.is_error() && !arrival.is_short() && arrival.queue == slot &&
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
    const bool broken = c.queue(slot).broken != 0;
    leave_slot(c, index);
    GN_TRY(access.commit());
    if (answered) return response;
    if (broken)
        return error(Errc::kIo,
                     "the queue pair of slot {} went to error before it answered; reclaim and reconnect it",
                     slot);
    return error(Errc::kTimedOut, "slot {} did not answer command {:#04x} within {} ms", slot, command.opcode,
                 timeout_ms);
}

Result<Counters> Channel::counters() const {
    Counters out{};
    if (options_.lanes == simt::LanesKind::kGpu) {
        GN_TRY(lane_memory_.download(offsetof(ChannelState, counters), &out, sizeof(out)));
        return out;
    }
    const auto* from =
        reinterpret_cast<const std::uint64_t*>(&lane_memory_.lane_as<ChannelState>()->counters);
    auto* to = reinterpret_cast<std::uint64_t*>(&out);
    for (std::uint32_t i = 0; i < kCounterWords; ++i)
        to[i] = simt::load_relaxed<simt::Scope::kDevice>(from + i);
    return out;
}

Result<std::optional<FirstError>> Channel::first_error() const {
    FirstError out{};
    if (options_.lanes == simt::LanesKind::kGpu) {
        GN_TRY(lane_memory_.download(offsetof(ChannelState, first_error), &out, sizeof(out)));
    } else {
        const FirstError& from = lane_memory_.lane_as<ChannelState>()->first_error;
        // Pairs with the release of record_error.
        if (simt::load_acquire<simt::Scope::kDevice>(&from.recorded) != 0) {
            out.status = from.status;
            out.queue = from.queue;
            out.block = from.block;
            out.syndrome = from.syndrome;
            out.recorded = 1;
        }
    }
    if (out.recorded == 0) return std::optional<FirstError>{};
    return std::optional<FirstError>{out};
}

Result<void> Channel::clear_first_error() {
    GN_ASSIGN(HostAccess access, HostAccess::begin(*this));
    access->first_error = FirstError{};
    return access.commit();
}

nvme::MapVersion Channel::refused_map() const {
    const auto* notes = reinterpret_cast<const HostMailbox*>(nic_memory_.data() + layout_.notes);
    return simt::load_relaxed<simt::Scope::kSystem>(&notes->refused_map);
}

void Channel::clear_refused_map() {
    auto* notes = reinterpret_cast<HostMailbox*>(nic_memory_.data() + layout_.notes);
    simt::store_relaxed<simt::Scope::kSystem>(&notes->refused_map, 0u);
}

Result<Channel::Usage> Channel::usage() {
    GN_ASSIGN(HostAccess access, HostAccess::begin(*this));
    Usage u{};
    u.slots_taken = access->command_slots - count_free(access->free_slots(), access->slot_words);
    for (std::uint32_t i = 0; i < access->command_slots; ++i) {
        const CommandSlot& slot = access->slot(i);
        const std::uint32_t pending = pending_of(load_control(access->slot(i)));
        u.commands_pending += pending != 0 ? 1 : 0;
        u.commands_with_tokens += state_of(load_control(access->slot(i))) == SlotState::kOwned ? 1 : 0;
        u.requests_with_callbacks += is_first_with_callback(*access, i) ? 1 : 0;
        for (std::uint32_t r = 0; r < placement::kMaxReplicas; ++r)
            if (((pending >> r) & 1u) != 0) u.queues_pending |= 1ull << slot.target[r];
    }
    for (std::uint32_t s = 0; s < options_.ssds; ++s)
        u.queues_broken |=
            simt::load_relaxed<simt::Scope::kDevice>(&access->queue(s).broken) != 0 ? 1ull << s : 0;
    u.pool_blocks_free = count_free_blocks(*access);
    u.pool_blocks = static_cast<std::uint32_t>(pool_bytes() / kPoolBlockBytes);
    return u;
}

Result<void> Channel::quiesce(simt::Deadline deadline) {
    GN_ASSIGN(HostAccess access, HostAccess::begin(*this));
    const bool callbacks = options_.lanes == simt::LanesKind::kCpu;  // the host cannot run a GPU's functions
    std::uint32_t backoff = 0;
    std::uint32_t pending = 0;
    for (;;) {
        // A callback may send the next request: arrivals alone must not keep this loop running past the
        // deadline.
        const bool arrived = poll_once(simt::self(host_lane()), *access, callbacks) != 0;
        if (arrived && !deadline.passed()) {
            backoff = 0;
            continue;
        }
        pending = 0;
        for (std::uint32_t i = 0; i < access->command_slots; ++i)
            pending += pending_of(load_control(access->slot(i))) != 0 ? 1 : 0;
        if (pending == 0 || deadline.passed()) break;
        simt::pause(backoff);
    }
    GN_TRY(access.commit());
    if (pending != 0)
        return error(Errc::kTimedOut, "{} commands are still without an answer; reclaim their slots",
                     pending);
    return {};
}

/// Counts the unanswered commands whose data lies in `region`.
Result<std::uint32_t> Channel::count_commands_in(const Region& region) {
    GN_ASSIGN(HostAccess access, HostAccess::begin(*this));
    std::uint32_t n = 0;
    for (std::uint32_t i = 0; i < access->command_slots; ++i) {
        CommandSlot& slot = access->slot(i);
        n += pending_of(load_control(slot)) != 0 &&
                     lies_in(region.base, region.bytes, wire_of(*access, slot), 1)
                 ? 1
                 : 0;
    }
    return n;
}

Result<void> Channel::reclaim(std::uint32_t slot) {
    if (slot >= options_.ssds)
        return error(Errc::kInvalidArgument, "reclaim of slot {}: the channel has {}", slot, options_.ssds);
    // From here on the NIC touches neither queues nor buffers of this queue pair.
    GN_TRY(nic_.reset_queue_pair(queue_pairs_[slot]));
    GN_ASSIGN(HostAccess access, HostAccess::begin(*this));
    ChannelState& c = *access;
    // Its remaining completions must be consumed before the queue pair is used again.
    while (poll_once(simt::self(host_lane()), c, false) != 0) {
    }
    for (std::uint32_t i = 0; i < c.command_slots; ++i)
        while (settle(c, slot, command_id(c, i), nvme::Status::kQueueError)) {
        }
    QueueLane& q = c.queue(slot);
    q.send = rdma::SendQueueState{};
    q.receive = rdma::ReceiveQueueState{};
    std::memset(c.at<std::uint32_t>(c.ready_marks_offset) + (std::size_t{slot} << c.send_entries_log2), 0,
                std::size_t{4} * options_.depth);
    std::memset(q.doorbell_record, 0, 64);
    *q.bell = 0;
    auto* completion = const_cast<mlx5::Cqe64*>(q.send_completion);
    std::memset(completion, 0, sizeof(*completion));
    simt::store_relaxed<simt::Scope::kSystem>(&completion->counter_own, mlx5::kInitialCounterOwn);
    // Before receives are posted again: a lone lane may have deferred this record (lone.hpp).
    simt::release_before_stores<simt::Scope::kSystem>();
    rdma::record_consumed(c.completion_queue(), c.completions.consumer);
    rdma::post_all_receives(c.receives()[slot]);
    simt::store_relaxed<simt::Scope::kDevice>(&q.outstanding, 0u);
    simt::fetch_and<simt::Scope::kDevice>(&c.flushed_queues, ~(1ull << slot));
    simt::store_release<simt::Scope::kDevice>(&q.broken, 0u);
    return access.commit();
}

Result<void> Channel::give_up(std::uint32_t slot) {
    GN_ASSIGN(HostAccess access, HostAccess::begin(*this));
    simt::store_release<simt::Scope::kDevice>(&access->queue(slot).broken, 1u);
    return access.commit();
}

}  // namespace gnstor::gnor
