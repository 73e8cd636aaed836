// trace_job.hpp: one lane reads one block step by step and keeps what passed between it and the NIC. Device
// code, CPU and GPU lanes.
#pragma once

#include <gnstor/client/client.hpp>
#include <gnstor/gnor/batch.hpp>

#include "dissect.hpp"

namespace gnstor::demo {

/// Launched with one lane, on a channel that nobody else uses, whose responses are scattered into
/// completions.
struct TraceJob {
    VolumeRef volume;
    ChannelSet channels;
    nvme::BlockAddress block;
    ReadTrace* trace;
    std::uint32_t* outcome;  ///< nvme::Status

    GN_HD
    void operator()(simt::Lane lane) const {
#if GN_DEVICE_PASS
        __shared__ Batch<32> batch;
#else
        Batch<32> batch;
#endif
        const auto group = simt::self(lane);
        const ChannelRef channel = channels[0];
        batch.init(group, lane);
        void* buffer = channel.alloc(group, nvme::kBlockBytes);
        if (buffer == nullptr) {
            *outcome = static_cast<std::uint32_t>(Status::kNoBuffer);
            return;
        }
        // The last of several is kept: the first ones wake the engine.
        auto result = nvme::Status::kSuccess;
        for (int i = 0; i < kReads && nvme::ok(result); ++i)
            result = read_once(group, lane, channel, batch, buffer);
        const nvme::Status freed = channel.free(group, buffer);
        *outcome = static_cast<std::uint32_t>(nvme::ok(result) ? freed : result);
    }

  private:
    static constexpr int kReads = 32;

    template <class Group>
    GN_HD nvme::Status read_once(Group group, simt::Lane lane, ChannelRef channel, Batch<32>& batch,
                                 void* buffer) const {
        gnor::ChannelState& c = channel.state();
        const auto* map = reinterpret_cast<const placement::ArrayMap*>(
            simt::load_acquire<simt::Scope::kSystem>(volume.current_map));
        const std::uint32_t slot =
            placement::place(*map, volume.geometry, block >> volume.geometry.chunk_shift).slot[0];
        const rdma::SendQueueRef queue = c.send_queue(slot);
        // Nobody else uses the channel: the next entry and the next completion are this read's.
        const std::uint64_t entry = queue.state->reserved;
        const std::uint64_t completion = c.completions.consumer;
        const IoRequest request{block, 1, buffer, 0, 0};

        const std::uint32_t unseen = simt::load_acquire<simt::Scope::kSystem>(
            &c.completion_ring[completion & ((1u << c.completion_entries_log2) - 1)].counter_own);
        const std::uint64_t begin = simt::now_ns();
        nvme::Status status = batch.submit(group, lane, volume, channel, nvme::IoOpcode::kRead, &request);
        const std::uint64_t built = simt::now_ns();
        if (!nvme::ok(status)) return status;
        batch.commit(group, lane, channel);
        const std::uint64_t rung = simt::now_ns();
        const Deadline deadline = Deadline::in_ns(10'000'000'000);
        BatchResult result;
        // Looked at before it is consumed: polling posts the receive again and marks its places.
        const rdma::mlx5::Cqe64& cqe =
            c.completion_ring[completion & ((1u << c.completion_entries_log2) - 1)];
        std::uint32_t backoff = 0;
        while (simt::load_acquire<simt::Scope::kSystem>(&cqe.counter_own) == unseen && !deadline.passed())
            simt::pause(backoff);
        const std::uint64_t completed = simt::now_ns();
        keep(c, slot, entry, cqe);
        while (!result.finished && !deadline.passed())
            if (batch.poll(group, channel) != 0) result = batch.dispatch(group, lane, channel);
        if (!result.finished) {
            batch.abandon(group, lane, channel);
            return nvme::Status::kTimedOut;
        }
        // The branch needs the loaded value, so the clock is read after the data came.
        if (simt::load_relaxed<simt::Scope::kSystem>(static_cast<const std::uint64_t*>(buffer)) == begin)
            simt::pause(backoff);
        const std::uint64_t data_read = simt::now_ns();
        trace->built_ns = built - begin;
        trace->rung_ns = rung - begin;
        trace->completed_ns = completed - begin;
        trace->data_read_ns = data_read - begin;
        return result.status;
    }

    GN_HD
    void keep(gnor::ChannelState& c, std::uint32_t slot, std::uint64_t entry,
              const rdma::mlx5::Cqe64& cqe) const {
        gnor::QueueLane& lane = c.queue(slot);
        const rdma::SendQueueRef queue = c.send_queue(slot);
        const std::uint32_t at = queue.slot(entry);
        trace->slot = slot;
        trace->capsule = lane.capsules[at];
        trace->entry = queue.ring[at];
        trace->bell = *queue.bell;
        trace->doorbell_record = queue.doorbell_record[rdma::mlx5::kSendRecord];
        trace->cqe = cqe;
        static_assert(sizeof trace->response <= sizeof trace->cqe.inline_data,
                      "a response fits into a completion");
        trace->response = *reinterpret_cast<const nvme::Completion*>(trace->cqe.inline_data);
    }
};

}  // namespace gnstor::demo
