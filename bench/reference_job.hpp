// reference_job.hpp: the floor of comparison: the same lanes move the same random blocks between plain host
// memory and their own, with no array between. Device code, CPU and GPU lanes.
//
// A read copies a block from host memory into the warp's buffer; a write fills the buffer and copies it to
// every replica's place. What is read is checked as PathJob checks it. One block at a time a warp.
#pragma once

#include <gnstor/simt/copy.hpp>

#include "contents.hpp"
#include "recorder.hpp"

#include <cstddef>

namespace gnstor::bench {

struct ReferenceJob {
    Plan plan;
    Contents contents;        ///< of `source`
    const std::byte* source;  ///< the working set
    std::byte* targets;       ///< `replicas` working sets, one behind the other
    std::uint64_t target_stride;
    std::uint32_t replicas;
    std::byte* buffers;  ///< lane memory: plan.bytes a warp

    GN_HD
    void operator()(simt::Lane lane) const {
        const auto group = simt::warp(lane);
        Recorder recorder(plan, lane.grid_rank());
        std::byte* const buffer = buffers + lane.warp_rank() * plan.bytes;
        const bool asks = group.rank() < plan.lanes_a_warp;
        recorder.begin();
        for (;;) {
            const bool more = asks && recorder.wants_more(simt::now_ns());
            const auto askers = group.ballot(more);
            if (askers.empty()) break;
            const std::uint64_t mine = more ? recorder.draw_offset() : 0;
            for (auto rest = askers; !rest.empty(); rest = rest.without_lowest()) {
                const std::uint64_t offset = group.shfl(mine, rest.lowest());
                one(group, group.lane() == rest.lowest(), offset, buffer, recorder);
            }
        }
        recorder.end();
    }

  private:
    template <class Group>
    GN_HD void one(Group group, bool owner, std::uint64_t offset, std::byte* buffer,
                   Recorder& recorder) const {
        if (plan.write) {
            fill(group, Contents{contents.seed + 1, contents.volume}, offset, plan.bytes, buffer);
            group.sync();
        }
        const std::uint64_t begin = simt::now_ns();
        if (plan.write)
            for (std::uint32_t r = 0; r < replicas; ++r)
                simt::copy16(group, targets + r * target_stride + offset, buffer, plan.bytes);
        else
            simt::copy16(group, buffer, source + offset, plan.bytes);
        group.sync();
        if (owner) {
            recorder.issued();
            recorder.success(simt::now_ns() - begin);
        }
        const bool chosen = owner && !plan.write && recorder.chooses_to_check();
        if (group.any(chosen)) {
            const bool right = matches(group, contents, offset, plan.bytes, buffer);
            if (owner) recorder.compared(right, offset);
        }
        group.sync();
    }
};

}  // namespace gnstor::bench
