#include "gnor/channel_queues.hpp"

#include <gnstor/base/log.hpp>

#include <cstring>

namespace gnstor::gnor {

Result<void> ChannelQueues::create(ChannelState& state, const ChannelOptions& options) {
    const ChannelLayout& layout = memory_.layout();
    GN_ASSIGN(const rdma::CqNumber receive_cq,
              nic_.create_completion_queue({state.completion_ring, layout.completion_entries,
                                            state.consumer_record, false, options.use}));
    completion_queues_.push_back(receive_cq);
    rdma::prepare_completions(state.completion_queue());
    for (std::uint32_t slot = 0; slot < layout.ssds; ++slot) {
        GN_TRY(create_pair(slot, state, options.scatter_to_cqe));
        state.queue(slot).broken = ((options.absent >> slot) & 1u) != 0 ? 1 : 0;
    }
    return {};
}

Result<void> ChannelQueues::create_pair(std::uint32_t slot, ChannelState& state, bool scatter_to_cqe) {
    const ChannelLayout& layout = memory_.layout();
    std::byte* const memory = memory_.queue_memory(slot);
    QueueLane& q = state.queue(slot);
    q.send_ring = reinterpret_cast<mlx5::SendEntry*>(memory + layout.send_ring);
    q.doorbell_record = reinterpret_cast<std::uint32_t*>(memory + layout.records);
    q.bell = reinterpret_cast<std::uint64_t*>(memory + layout.bell);
    q.send_completion = reinterpret_cast<const mlx5::Cqe64*>(memory + layout.send_completion);
    q.capsules = reinterpret_cast<nvme::Command*>(memory + layout.capsules);
    q.capsule_lkey = memory_.keys().lkey;
    rdma::CompletionQueueConfig cq;
    cq.ring = reinterpret_cast<mlx5::Cqe64*>(memory + layout.send_completion);
    cq.entries = 1;
    cq.consumer_record = q.doorbell_record + 4;  // behind the queue pair's own words, in the same 64 bytes
    cq.collapsed = true;
    GN_ASSIGN(const rdma::CqNumber send_cq, nic_.create_completion_queue(cq));
    completion_queues_.push_back(send_cq);
    rdma::QueuePairConfig config;
    config.send_ring = q.send_ring;
    config.send_entries = layout.depth;
    config.receive_ring = reinterpret_cast<mlx5::DataSegment*>(memory + layout.receive_ring);
    config.receive_entries = layout.depth;
    config.doorbell_record = q.doorbell_record;
    config.bell = q.bell;
    config.send_cq = send_cq;
    config.receive_cq = completion_queues_.front();
    config.scatter_to_cqe = scatter_to_cqe;
    GN_ASSIGN(q.qpn, nic_.create_queue_pair(config));
    queue_pairs_.push_back(q.qpn);
    rdma::ReceiveQueueRef& r = state.receives()[slot];
    r.ring = config.receive_ring;
    r.doorbell_record = q.doorbell_record;
    r.buffers = memory + layout.responses;
    r.state = &q.receive;
    r.buffer_bytes = kResponseBytes;
    r.lkey = memory_.keys().lkey;
    r.entries_log2 = static_cast<std::uint32_t>(__builtin_ctz(layout.depth));
    r.qpn = q.qpn;
    rdma::post_all_receives(r);
    return {};
}

bool ChannelQueues::destroy() {
    bool used = false;
    for (const auto qp : queue_pairs_) {
        const auto done = nic_.destroy_queue_pair(qp);
        if (done.ok()) continue;
        used = true;
        log_error("a channel is closed while a drive holds its commands; its memory stays mapped: {}",
                  done.error().message);
    }
    if (used) return false;
    for (const auto cq : completion_queues_) (void)nic_.destroy_completion_queue(cq);
    return true;
}

void ChannelQueues::begin_again(std::uint32_t slot, ChannelState& c) const {
    QueueLane& q = c.queue(slot);
    q.send = rdma::SendQueueState{};
    q.receive = rdma::ReceiveQueueState{};
    std::memset(c.at<std::uint32_t>(c.ready_marks_offset) + (std::size_t{slot} << c.send_entries_log2), 0,
                std::size_t{4} * memory_.layout().depth);
    std::memset(q.doorbell_record, 0, 64);
    *q.bell = 0;
    auto* completion = const_cast<mlx5::Cqe64*>(q.send_completion);
    std::memset(completion, 0, sizeof(*completion));
    simt::store_relaxed<simt::Scope::kSystem>(&completion->counter_own, mlx5::kInitialCounterOwn);
    // Before receives are posted again: a single lane may have deferred this record (single_lane.hpp).
    simt::release_before_stores<simt::Scope::kSystem>();
    rdma::record_consumed(c.completion_queue(), c.completions.consumer);
    rdma::post_all_receives(c.receives()[slot]);
    simt::store_relaxed<simt::Scope::kDevice>(&q.outstanding, 0u);
    simt::fetch_and<simt::Scope::kDevice>(&c.flushed_queues, ~(1ull << slot));
    simt::store_release<simt::Scope::kDevice>(&q.broken, 0u);
}

}  // namespace gnstor::gnor
