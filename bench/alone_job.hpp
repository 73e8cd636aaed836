// alone_job.hpp: the kernel of `bench path --alone`: one lane, one operation at a time. Device code, CPU and
// GPU lanes.
//
// The first lane of the grid reads or writes by itself, into a registered buffer: what one operation takes
// when nothing else is under way. By the synchronous calls, or step by step with a clock (alone_steps.hpp),
// on a channel of its own (Sharing::kLane) or on one of the whole grid. The rest of its warp helps to fill
// and to compare, outside of the time that is taken; all other lanes end at once.
#pragma once

#include "alone_steps.hpp"

namespace gnstor::bench {

template <Sharing kMode, bool kStepwise>
struct AloneJob {
    VolumeRef volume;
    ChannelSet channels;
    Plan plan;
    std::uint32_t* written;  ///< as in PathJob
    AloneSums* sums;         ///< of the lane that works, at its end

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto group = simt::warp(lane);
        Recorder recorder(plan, lane.grid_rank());
        recorder.begin();
        // By number: mine() would want a channel for each lane of the grid, and only one works.
        if (lane.warp_rank() == 0) work(group, lane, channels.template shared<kMode>()[0], recorder);
        recorder.end();
    }

  private:
    using Channel = BasicChannelRef<kMode>;

    template <class Group>
    GN_HD void work(Group group, simt::Lane lane, const Channel& channel, Recorder& recorder) const {
        const auto self = simt::self(lane);
        auto status = nvme::Status::kSuccess;
        std::uint64_t address = 0;
        if (group.is_leader())
            address = reinterpret_cast<std::uint64_t>(channel.alloc(self, plan.bytes, &status));
        group.sync();  // what the leader acquired with it
        void* const buffer = reinterpret_cast<void*>(group.shfl(address, group.leader()));
        if (buffer == nullptr) {
            if (group.is_leader()) recorder.failure(status, 0);
            return;
        }
        AloneSums own{};
        const Contents contents{plan.contents_seed + (plan.write ? 1u : 0u), volume.geometry.volume};
        for (;;) {
            const bool more = group.is_leader() && recorder.wants_more(simt::now_ns());
            if (!group.any(more)) break;
            const std::uint64_t offset =
                group.shfl(group.is_leader() ? recorder.draw_offset() : 0, group.leader());
            if (plan.write) fill(group, contents, offset, plan.bytes, buffer);
            group.sync();
            const bool check = group.is_leader() && one(lane, channel, recorder, offset, buffer, own);
            group.sync();
            if (!group.any(check)) continue;
            const bool right = matches(group, contents, offset, plan.bytes, buffer);
            if (group.is_leader()) recorder.compared(right, offset);
        }
        if (!group.is_leader()) return;
        *sums = own;
        status = channel.free(self, buffer);
        if (!nvme::ok(status)) recorder.failure(status, 0);
    }

    /// One operation; whether what was read shall be compared.
    GN_HD
    bool one(simt::Lane lane, const Channel& channel, Recorder& recorder, std::uint64_t offset, void* buffer,
             AloneSums& own) const {
        const auto block = static_cast<nvme::BlockAddress>(offset / nvme::kBlockBytes);
        const std::uint32_t blocks = plan.bytes / nvme::kBlockBytes;
        recorder.issued();
        const std::uint64_t before = own.operations;
        const std::uint64_t begin = simt::now_ns();
        const nvme::Status status = carry_out(lane, channel, block, blocks, offset, buffer, own);
        const std::uint64_t took = simt::now_ns() - begin;
        if (own.operations != before) own.total_ns += took;
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
    GN_HD
    nvme::Status carry_out(simt::Lane lane, const Channel& channel, nvme::BlockAddress block,
                           std::uint32_t blocks, std::uint64_t offset, void* buffer,
                           [[maybe_unused]] AloneSums& own) const {
        const auto self = simt::self(lane);
        const Deadline deadline = Deadline::in_ns(kStallNs);
        const auto first = static_cast<std::uint8_t>(offset % nvme::kBlockBytes / nvme::kSectorBytes);
        const std::uint32_t sectors = blocks != 0 ? 0 : plan.bytes / nvme::kSectorBytes;
        if constexpr (kStepwise) {
            const IoRequest request{block, blocks != 0 ? blocks : 1, buffer,
                                    sectors != 0 ? first : std::uint8_t{0},
                                    static_cast<std::uint8_t>(sectors)};
            const auto opcode = plan.write ? nvme::IoOpcode::kWrite : nvme::IoOpcode::kRead;
            return one_stepwise(lane, volume, channel, opcode, request, own, deadline);
        }
        if (plan.write) return volume.write(self, channel, block, blocks, buffer, deadline);
        if (blocks != 0) return volume.read(self, channel, block, blocks, buffer, deadline);
        return volume.read_sectors(self, channel, block, first, sectors, buffer, deadline);
    }
};

}  // namespace gnstor::bench
