// path_lanes.inl: PathLanes for one kind of lanes, included by path_lanes_cpu.cpp and path_lanes_gpu.cu,
// which say what differs: how many lanes there are and what they are called.
#pragma once

#include "alone_job.hpp"
#include "path_jobs.hpp"
#include "path_lanes.hpp"
#include "reference_job.hpp"

#include <algorithm>
#include <cstring>

namespace gnstor::bench {
namespace {

constexpr std::uint64_t kSamplesMax = 1u << 22;  // 16 MiB of latencies, whatever the number of lanes
constexpr nvme::VolumeId kReferenceVolume = 1;

/// What a run leaves behind in lane memory.
struct RunMemory {
    simt::DeviceMemory results, samples;
    std::uint64_t lanes = 0;
    std::uint32_t samples_a_lane = 0;

    static Result<RunMemory> allocate(std::uint64_t lanes, simt::LanesKind kind) {
        RunMemory m;
        m.lanes = lanes;
        m.samples_a_lane = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, kSamplesMax / lanes));
        GN_ASSIGN(m.results, simt::DeviceMemory::allocate(lanes * sizeof(LaneResult), kind));
        GN_ASSIGN(m.samples,
                  simt::DeviceMemory::allocate(lanes * m.samples_a_lane * sizeof(std::uint32_t), kind));
        return Result<RunMemory>(std::move(m));
    }

    Result<RunOutcome> outcome() const {
        std::vector<LaneResult> each(lanes);
        GN_TRY(results.download(0, each.data(), each.size() * sizeof(LaneResult)));
        std::vector<std::uint32_t> all(lanes * samples_a_lane);
        GN_TRY(samples.download(0, all.data(), all.size() * sizeof(std::uint32_t)));
        RunOutcome out;
        std::uint64_t begin = ~0ull, end = 0;
        for (std::uint64_t i = 0; i < lanes; ++i) {
            const LaneResult& r = each[i];
            begin = std::min(begin, r.begin_ns);
            end = std::max(end, r.end_ns);
            add(out, r);
            const auto row = all.begin() + static_cast<std::ptrdiff_t>(i * samples_a_lane);
            out.latency_ns.insert(out.latency_ns.end(), row, row + r.samples);
        }
        out.seconds = static_cast<double>(end - begin) / 1e9;
        return out;
    }

  private:
    static void add(RunOutcome& out, const LaneResult& r) {
        if (out.failures + out.wrong == 0 && r.failures + r.wrong != 0) {
            out.first_status = static_cast<nvme::Status>(r.first_status);
            out.first_offset = r.first_offset;
        }
        out.operations += r.operations;
        out.checked += r.checked;
        out.wrong += r.wrong;
        out.failures += r.failures;
        out.quota_used = out.quota_used || r.quota_used != 0;
        out.lane_cpu_seconds += static_cast<double>(r.cpu_ns) / 1e9;
        out.waiting_seconds += static_cast<double>(r.waiting_ns) / 1e9;
    }
};

class PathLanesBase : public PathLanes {
  public:
    /// Warps of `lanes_a_warp` lanes, blocks of `warps_a_block` warps.
    PathLanesBase(simt::LanesKind kind, std::uint32_t lanes_a_warp, std::uint32_t warps_a_block)
        : kind_(kind), warp_lanes_(lanes_a_warp), warps_a_block_(warps_a_block) {}

    [[nodiscard]] simt::LanesKind kind() const override { return kind_; }
    [[nodiscard]] std::uint32_t warps_grain() const override { return warps_a_block_; }

    Result<void> fill(const LaneShape& shape, client::Client& client, const client::Volume& volume,
                      std::uint64_t working_set, std::uint64_t seed) override {
        GN_ASSIGN(const SetTotals totals, walk(shape, client, volume, working_set, seed, true));
        if (totals.failures == 0) return {};
        return error(Errc::kIo, "{} writes failed while the working set was filled; the first error: {}",
                     totals.failures, nvme::status_name(static_cast<nvme::Status>(totals.first_status)));
    }

    Result<RunOutcome> run(const LaneShape& shape, client::Client& client, const client::Volume& volume,
                           const RunRequest& request, CpuMeter& meter) override {
        GN_ASSIGN(const RunMemory memory, RunMemory::allocate(lanes(shape), kind_));
        if (request.write) {
            GN_ASSIGN(written_, simt::DeviceMemory::allocate(bitmap_bytes(request.working_set), kind_));
        }
        const Plan what = plan(shape, request, memory);
        auto* const written = request.write ? written_.lane_as<std::uint32_t>() : nullptr;
        meter.begin();
        std::map<std::string, double> steps;
        if (shape.alone) {
            GN_ASSIGN(steps, run_alone(shape, client, volume, what, written));
        } else {
            GN_TRY(launch(shape, PathJob{volume.ref(), client.channels(), what, written}));
        }
        meter.end();
        GN_ASSIGN(RunOutcome out, memory.outcome());
        out.step_ns = std::move(steps);
        return out;
    }

    Result<std::uint64_t> check(const LaneShape& shape, client::Client& client, const client::Volume& volume,
                                std::uint64_t working_set, std::uint64_t seed) override {
        GN_ASSIGN(const SetTotals totals, walk(shape, client, volume, working_set, seed, false));
        if (totals.failures == 0) return totals.wrong_blocks;
        return error(Errc::kIo, "{} reads failed while the working set was read back; the first error: {}",
                     totals.failures, nvme::status_name(static_cast<nvme::Status>(totals.first_status)));
    }

    Result<ReferenceMemory> make_reference(std::uint64_t working_set, std::uint32_t replicas,
                                           std::uint64_t seed) override {
        ReferenceMemory m;
        m.working_set = working_set;
        m.replicas = replicas;
        GN_ASSIGN(m.source, simt::PinnedMemory::map(working_set, kind_));
        GN_ASSIGN(m.targets, simt::PinnedMemory::map(working_set * replicas, kind_));
        const Contents contents{seed, kReferenceVolume};
        auto* const words = reinterpret_cast<std::uint64_t*>(m.source.data());
        for (std::uint64_t block = 0; block < working_set / nvme::kBlockBytes; ++block) {
            const std::uint64_t key = contents.key(block);
            for (std::uint64_t i = 0; i < nvme::kBlockBytes / 8; ++i)
                words[block * nvme::kBlockBytes / 8 + i] = Contents::word(key, i);
        }
        std::memset(m.targets.data(), 1, m.targets.size());  // no page fault while it is measured
        return Result<ReferenceMemory>(std::move(m));
    }

    Result<RunOutcome> run_reference(const LaneShape& shape, const ReferenceMemory& reference,
                                     const RunRequest& request) override {
        GN_ASSIGN(const RunMemory memory, RunMemory::allocate(lanes(shape), kind_));
        GN_ASSIGN(const simt::DeviceMemory buffers,
                  simt::DeviceMemory::allocate(std::size_t{shape.warps} * request.bytes, kind_));
        ReferenceJob job{};
        job.plan = plan(shape, request, memory);
        job.contents = Contents{request.seed, kReferenceVolume};
        job.source = reference.source.lane_data();
        job.targets = reference.targets.lane_data();
        job.target_stride = reference.working_set;
        job.replicas = reference.replicas;
        job.buffers = buffers.lane_as<std::byte>();
        GN_TRY(launch(shape, job));
        return memory.outcome();
    }

  private:
    [[nodiscard]] std::uint64_t lanes(const LaneShape& shape) const {
        return std::uint64_t{shape.warps} * warp_lanes_;
    }
    static std::size_t bitmap_bytes(std::uint64_t working_set) {
        return static_cast<std::size_t>(working_set / nvme::kBlockBytes + 31) / 32 * 4;
    }

    [[nodiscard]] Plan plan(const LaneShape& shape, const RunRequest& request,
                            const RunMemory& memory) const {
        Plan p{};
        p.bytes = request.bytes;
        p.write = request.write;
        p.verify = request.verify;
        p.depth = shape.depth;
        p.lanes_a_warp = shape.alone ? 1 : lanes_a_warp(request.bytes);
        p.units = request.working_set / request.bytes;
        p.contents_seed = request.seed;
        p.order_seed = request.order_seed;
        p.duration_ns = static_cast<std::uint64_t>(request.seconds * 1e9);
        const std::uint64_t askers = std::uint64_t{shape.warps} * p.lanes_a_warp;
        p.quota = request.operations_max / askers;
        if (request.offered_per_second > 0)
            p.interval_ps =
                static_cast<std::uint64_t>(1e12 * static_cast<double>(askers) / request.offered_per_second);
        p.samples_a_lane = memory.samples_a_lane;
        p.results = memory.results.lane_as<LaneResult>();
        p.samples = memory.samples.lane_as<std::uint32_t>();
        return p;
    }

    Result<SetTotals> walk(const LaneShape& shape, client::Client& client, const client::Volume& volume,
                           std::uint64_t working_set, std::uint64_t seed, bool write) {
        GN_ASSIGN(const simt::DeviceMemory memory, simt::DeviceMemory::allocate(sizeof(SetTotals), kind_));
        WorkingSetJob job{};
        job.volume = volume.ref();
        job.channels = client.channels();
        job.blocks = static_cast<std::uint32_t>(working_set / nvme::kBlockBytes);
        job.seed = seed;
        job.write = write;
        job.written = write ? nullptr : written_.lane_as<std::uint32_t>();
        job.totals = memory.lane_as<SetTotals>();
        GN_TRY(launch(shape, job));
        SetTotals totals{};
        GN_TRY(memory.download(0, &totals, sizeof totals));
        return totals;
    }

    /// What each step took, where that is asked for.
    Result<std::map<std::string, double>> run_alone(const LaneShape& shape, client::Client& client,
                                                    const client::Volume& volume, const Plan& what,
                                                    std::uint32_t* written) {
        GN_ASSIGN(const simt::DeviceMemory memory, simt::DeviceMemory::allocate(sizeof(AloneSums), kind_));
        auto* const sums = memory.lane_as<AloneSums>();
        const auto with = [&](auto job) { return launch(shape, job); };
        const VolumeRef ref = volume.ref();
        const ChannelSet set = client.channels();
        if (shape.sharing != Sharing::kLane)
            GN_TRY(with(AloneJob<Sharing::kGrid, false>{ref, set, what, written, sums}));
        else if (shape.stepwise)
            GN_TRY(with(AloneJob<Sharing::kLane, true>{ref, set, what, written, sums}));
        else
            GN_TRY(with(AloneJob<Sharing::kLane, false>{ref, set, what, written, sums}));
        std::map<std::string, double> steps;
        AloneSums all{};
        GN_TRY(memory.download(0, &all, sizeof(all)));
        if (all.operations == 0) {
            if (all.others != 0) steps["left_straight_path"] = 1;
            return steps;
        }
        const auto count = static_cast<double>(all.operations);
        for (std::uint32_t s = 0; s < kAloneSteps; ++s)
            steps[fmt::format("step_{}_{}_ns", s, kAloneStepNames[s])] =
                static_cast<double>(all.step_ns[s]) / count;
        steps["steps_total_ns"] = static_cast<double>(all.total_ns) / count;
        steps["completion_queue_trips"] = static_cast<double>(all.trips) / count;
        steps["left_straight_path"] =
            static_cast<double>(all.others) / (count + static_cast<double>(all.others));
        return steps;
    }

    /// Every lane at once: on CPU lanes, a thread each.
    template <class Job>
    Result<void> launch(const LaneShape& shape, const Job& job) const {
        simt::LaunchOptions options;
        options.cpu_workers = kind_ == simt::LanesKind::kCpu ? shape.warps : 0;
        return simt::launch(kind_, shape.warps / warps_a_block_, warps_a_block_ * warp_lanes_, job, options);
    }

    const simt::LanesKind kind_;
    const std::uint32_t warp_lanes_;
    const std::uint32_t warps_a_block_;
    simt::DeviceMemory written_;  // which blocks the last run wrote, a bit each
};

}  // namespace
}  // namespace gnstor::bench
