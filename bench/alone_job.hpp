// alone_job.hpp: the kernel of `bench path --alone`: one lane, one operation at a time. Device code, CPU and
// GPU lanes.
//
// The first lane of the grid reads or writes by the synchronous calls, by itself, into a registered buffer:
// what one operation takes when nothing else is under way. The rest of its warp helps to fill and to compare,
// outside of the time that is taken; all other lanes end at once.
#pragma once

#include "path_jobs.hpp"

namespace gnstor::bench {

struct AloneJob {
    VolumeRef volume;
    ChannelSet channels;
    Plan plan;
    std::uint32_t* written;  ///< as in PathJob

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto group = simt::warp(lane);
        const ChannelRef channel = channels.mine(lane);
        Recorder recorder(plan, lane.grid_rank());
        recorder.begin();
        if (lane.warp_rank() == 0) work(group, lane, channel, recorder);
        recorder.end();
    }

  private:
    template <class Group>
    GN_HD void work(Group group, simt::Lane lane, const ChannelRef& channel, Recorder& recorder) const {
        auto status = nvme::Status::kSuccess;
        void* const buffer = channel.alloc(group, plan.bytes, &status);
        if (buffer == nullptr) {
            if (group.is_leader()) recorder.failure(status, 0);
            return;
        }
        const Contents contents{plan.contents_seed + (plan.write ? 1u : 0u), volume.geometry.volume};
        for (;;) {
            const bool more = group.is_leader() && recorder.wants_more(simt::now_ns());
            if (!group.any(more)) break;
            const std::uint64_t offset =
                group.shfl(group.is_leader() ? recorder.draw_offset() : 0, group.leader());
            if (plan.write) fill(group, contents, offset, plan.bytes, buffer);
            group.sync();
            const bool check = group.is_leader() && one(lane, channel, recorder, offset, buffer);
            group.sync();
            if (!group.any(check)) continue;
            const bool right = matches(group, contents, offset, plan.bytes, buffer);
            if (group.is_leader()) recorder.compared(right, offset);
        }
        status = channel.free(group, buffer);
        if (group.is_leader() && !nvme::ok(status)) recorder.failure(status, 0);
    }

    /// One operation; whether what was read shall be compared.
    GN_HD
    bool one(simt::Lane lane, const ChannelRef& channel, Recorder& recorder, std::uint64_t offset,
             void* buffer) const {
        const auto self = simt::self(lane);
        const auto block = static_cast<nvme::BlockAddress>(offset / nvme::kBlockBytes);
        const std::uint32_t blocks = plan.bytes / nvme::kBlockBytes;
        recorder.issued();
        const std::uint64_t begin = simt::now_ns();
        nvme::Status status;
        if (plan.write)
            status = volume.write(self, channel, block, blocks, buffer, Deadline::in_ns(kStallNs));
        else if (blocks != 0)
            status = volume.read(self, channel, block, blocks, buffer, Deadline::in_ns(kStallNs));
        else
            status = volume.read_sectors(
                self, channel, block,
                static_cast<std::uint32_t>(offset % nvme::kBlockBytes / nvme::kSectorBytes),
                plan.bytes / nvme::kSectorBytes, buffer, Deadline::in_ns(kStallNs));
        const std::uint64_t took = simt::now_ns() - begin;
        if (!nvme::ok(status)) {
            recorder.failure(status, offset);
            return false;
        }
        recorder.success(took);
        if (!plan.write) return recorder.chooses_to_check();
        const std::uint32_t bits = ((1u << blocks) - 1) << (block % 32);
        simt::fetch_or<simt::Scope::kDevice>(&written[block / 32], bits);
        return false;
    }
};

}  // namespace gnstor::bench
