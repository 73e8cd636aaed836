// load_lanes.inl: LoadLanes for one kind of lanes, included by load_lanes_cpu.cpp and load_lanes_gpu.cu,
// which say what differs.
#pragma once

#include "bench/initiators/consumer_job.hpp"
#include "bench/initiators/load_job.hpp"

#include <algorithm>
#include <optional>

namespace gnstor::bench {
namespace {

constexpr std::uint64_t kLoadSamplesMax = 1u << 22;  // 16 MiB of latencies, whatever the number of lanes
constexpr std::uint64_t kConsumerGiveUpNs = 30'000'000'000;

class ConsumersBase final : public Consumers {
  public:
    ConsumersBase(simt::DeviceMemory expected, simt::DeviceMemory results, simt::DeviceMemory notes,
                  std::uint32_t count, std::uint32_t samples_a_box)
        : expected_(std::move(expected)),
          results_(std::move(results)),
          notes_(std::move(notes)),
          count_(count),
          samples_a_box_(samples_a_box) {}
    void started(simt::Launch launch) { launch_.emplace(std::move(launch)); }

    Result<MailResult> finish(std::vector<std::uint32_t>& latency_ns) override {
        GN_TRY(launch_->wait(simt::Deadline::in_ns(2 * kConsumerGiveUpNs)));
        std::vector<MailResult> each(count_);
        GN_TRY(results_.download(0, each.data(), each.size() * sizeof(MailResult)));
        MailResult all{};
        for (const MailResult& r : each) {
            if (all.wrong == 0 && r.wrong != 0) all.first_wrong_offset = r.first_wrong_offset;
            all.checked += r.checked;
            all.wrong += r.wrong;
            all.cpu_ns += r.cpu_ns;
            all.finished += r.finished;
        }
        std::vector<std::uint32_t> samples(std::size_t{count_} * samples_a_box_);
        GN_TRY(notes_.download(std::size_t{count_} * kMailFlights * 8, samples.data(), samples.size() * 4));
        for (std::uint32_t i = 0; i < count_; ++i) {
            const auto row = samples.begin() + static_cast<std::ptrdiff_t>(std::size_t{i} * samples_a_box_);
            latency_ns.insert(
                latency_ns.end(), row,
                row + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(each[i].finished, samples_a_box_)));
        }
        return all;
    }

  private:
    simt::DeviceMemory expected_, results_, notes_;
    std::uint32_t count_, samples_a_box_;
    std::optional<simt::Launch> launch_;  // its destructor waits for the kernel, before the memory goes
};

class LoadLanesBase : public LoadLanes {
  public:
    /// Warps of `lanes_a_warp` lanes, blocks of `warps_a_block` warps.
    LoadLanesBase(simt::LanesKind kind, std::uint32_t lanes_a_warp, std::uint32_t warps_a_block)
        : kind_(kind), warp_lanes_(lanes_a_warp), warps_a_block_(warps_a_block) {}

    [[nodiscard]] simt::LanesKind kind() const override { return kind_; }
    [[nodiscard]] std::uint32_t askers(std::uint32_t depth) const override {
        return std::min(depth, warp_lanes_);
    }

    Result<Outcome> run(std::span<const ClientRefs> clients, std::uint32_t warps_a_client,
                        Discipline discipline, const Load& load, CpuMeter& meter) override {
        const std::uint64_t warps = clients.size() * warps_a_client;
        const std::uint64_t blocks = (warps + warps_a_block_ - 1) / warps_a_block_;
        const std::uint64_t lanes = blocks * warps_a_block_ * warp_lanes_;
        const auto samples_a_lane =
            static_cast<std::uint32_t>(std::max<std::uint64_t>(64, kLoadSamplesMax / lanes));
        GN_ASSIGN(simt::DeviceMemory refs, simt::DeviceMemory::allocate(clients.size_bytes(), kind_));
        GN_TRY(refs.upload(0, clients.data(), clients.size_bytes()));
        GN_ASSIGN(const simt::DeviceMemory results,
                  simt::DeviceMemory::allocate(lanes * sizeof(LaneResult), kind_));
        GN_ASSIGN(const simt::DeviceMemory samples,
                  simt::DeviceMemory::allocate(lanes * samples_a_lane * sizeof(std::uint32_t), kind_));
        GN_ASSIGN(const simt::DeviceMemory counts,
                  simt::DeviceMemory::allocate(lanes * 16 + lanes / warp_lanes_ * kLaneStages * 8, kind_));
        LoadJob job{};
        LoadJobShared& s = job.shared;
        s.clients = refs.lane_as<ClientRefs>();
        s.client_count = static_cast<std::uint32_t>(clients.size());
        s.warps_a_client = warps_a_client;
        s.askers = askers(load.depth);
        s.flights = (load.depth + s.askers - 1) / s.askers;
        s.discipline = discipline;
        s.load = load;
        s.plan.verify = load.verify;
        s.plan.order_seed = load.order_seed ^ 0x5EED;
        s.plan.duration_ns = load.duration_ns;
        s.plan.quota = load.quota;
        s.plan.interval_ps = load.interval_ps;
        s.plan.samples_a_lane = samples_a_lane;
        s.plan.results = results.lane_as<LaneResult>();
        s.plan.samples = samples.lane_as<std::uint32_t>();
        s.reads = counts.lane_as<std::uint64_t>();
        s.commands = counts.lane_as<std::uint64_t>(lanes * 8);
        s.stage_ns = counts.lane_as<std::uint64_t>(lanes * 16);
        simt::LaunchOptions options;
        options.cpu_workers = kind_ == simt::LanesKind::kCpu ? static_cast<std::uint32_t>(warps) : 0;
        meter.begin();
        GN_TRY(simt::launch(kind_, static_cast<std::uint32_t>(blocks), warps_a_block_ * warp_lanes_, job,
                            options));
        meter.end();
        return sum_up(lanes, lanes / warp_lanes_, discipline, samples_a_lane, results, samples, counts);
    }

    Result<std::unique_ptr<Consumers>> start_consumers(Mailbox* mailboxes,
                                                       std::span<const Expected> owners) override {
        const auto count = static_cast<std::uint32_t>(owners.size());
        const std::uint32_t warps = std::min(count, consumer_warps_max());
        const std::uint32_t blocks = (warps + warps_a_block_ - 1) / warps_a_block_;
        GN_ASSIGN(simt::DeviceMemory expected, simt::DeviceMemory::allocate(owners.size_bytes(), kind_));
        GN_TRY(expected.upload(0, owners.data(), owners.size_bytes()));
        GN_ASSIGN(simt::DeviceMemory results,
                  simt::DeviceMemory::allocate(count * sizeof(MailResult), kind_));
        const auto samples_a_box =
            static_cast<std::uint32_t>(std::max<std::uint64_t>(64, kLoadSamplesMax / count));
        const std::size_t flights = std::size_t{count} * kMailFlights * 8;
        GN_ASSIGN(simt::DeviceMemory notes,
                  simt::DeviceMemory::allocate(flights + std::size_t{count} * samples_a_box * 4, kind_));
        const ConsumerJob job{mailboxes,
                              expected.lane_as<Expected>(),
                              results.lane_as<MailResult>(),
                              count,
                              blocks * warps_a_block_,
                              kConsumerGiveUpNs,
                              notes.lane_as<std::uint64_t>(),
                              notes.lane_as<std::uint32_t>(flights),
                              samples_a_box};
        auto consumers = std::make_unique<ConsumersBase>(std::move(expected), std::move(results),
                                                         std::move(notes), count, samples_a_box);
        simt::LaunchOptions options;
        options.cpu_workers = kind_ == simt::LanesKind::kCpu ? blocks * warps_a_block_ : 0;
        GN_ASSIGN(simt::Launch launch,
                  simt::launch_async(kind_, blocks, warps_a_block_ * warp_lanes_, job, options));
        consumers->started(std::move(launch));
        return std::unique_ptr<Consumers>(std::move(consumers));
    }

  protected:
    [[nodiscard]] virtual std::uint32_t consumer_warps_max() const = 0;

  private:
    /// Whether there is such a stage on the path.
    static bool has_stage(Discipline discipline, std::uint64_t stage) {
        if (stage == static_cast<std::uint64_t>(LaneStage::kAgree))
            return discipline == Discipline::kCoordinating;
        if (stage == static_cast<std::uint64_t>(LaneStage::kLock))
            return discipline == Discipline::kPortedLocks;
        return true;
    }
    static Result<Outcome> sum_up(std::uint64_t lanes, std::uint64_t warps, Discipline discipline,
                                  std::uint32_t samples_a_lane, const simt::DeviceMemory& results,
                                  const simt::DeviceMemory& samples, const simt::DeviceMemory& counts) {
        std::vector<LaneResult> each(lanes);
        GN_TRY(results.download(0, each.data(), each.size() * sizeof(LaneResult)));
        std::vector<std::uint32_t> all(lanes * samples_a_lane);
        GN_TRY(samples.download(0, all.data(), all.size() * sizeof(std::uint32_t)));
        std::vector<std::uint64_t> numbers(lanes * 2 + warps * kLaneStages);
        GN_TRY(counts.download(0, numbers.data(), numbers.size() * 8));
        Outcome out;
        std::uint64_t begin = ~0ull, end = 0;
        for (std::uint64_t i = 0; i < lanes; ++i) {
            const LaneResult& r = each[i];
            if (r.begin_ns == 0) continue;  // a lane beyond the last stream
            begin = std::min(begin, r.begin_ns);
            end = std::max(end, r.end_ns);
            add_result(out, r);
            out.reads += numbers[i];
            out.commands += numbers[lanes + i];
            const auto row = all.begin() + static_cast<std::ptrdiff_t>(i * samples_a_lane);
            out.latency_ns.insert(out.latency_ns.end(), row, row + r.samples);
        }
        out.seconds = static_cast<double>(end - begin) / 1e9;
        for (std::uint64_t i = 0; i < warps * kLaneStages; ++i) {
            const char* const stage = kLaneStageNames[i % kLaneStages];
            if (has_stage(discipline, i % kLaneStages))
                out.work_seconds[fmt::format("lane_{}", stage)] +=
                    static_cast<double>(numbers[lanes * 2 + i]) / 1e9;
        }
        return out;
    }

    const simt::LanesKind kind_;
    const std::uint32_t warp_lanes_;
    const std::uint32_t warps_a_block_;
};

}  // namespace
}  // namespace gnstor::bench
