// load_runner.cpp: one case of `bench load`: an array, a fill, repeats, and what is held against what.
#include "engine_busy.hpp"
#include "initiators/bed.hpp"
#include "load.hpp"
#include "load_threads.hpp"
#include "memory.hpp"
#include "model_figures.hpp"
#include "serving_processes.hpp"

#include <algorithm>
#include <cstdio>
#include <thread>

namespace gnstor::bench {
namespace {

constexpr std::uint32_t kPassBytes = 65536;  // of a request that fills or compares
constexpr std::uint64_t kNever = ~0ull;
constexpr std::uint64_t kMostBytes = 1ull << 40;
constexpr double kRateMax = 1e9;
constexpr std::uint32_t kArrayThreadsMax = 64, kLoadThreadsMax = 256;
constexpr std::uint64_t kPassNs = 600'000'000'000;

std::uint32_t cores_here() {
    return std::max(1u, std::thread::hardware_concurrency());
}

bool is_power_of_two(std::uint64_t n) {
    return n != 0 && (n & (n - 1)) == 0;
}

}  // namespace

struct LoadRunner::Rig {
    LoadCase made_for;
    std::uint64_t order = 0;
    bool written = false;
    std::unique_ptr<Bed> bed;
    std::unique_ptr<Initiator> initiator;  // gone before the bed
};

nlohmann::json parameters_of(const LoadCase& c) {
    const std::string operation = c.write_percent == 0     ? "read"
                                  : c.write_percent == 100 ? "write"
                                                           : fmt::format("{} % writes", c.write_percent);
    return {{"path", path_name(c.path)}, {"operation", operation},
            {"bytes", c.bytes},          {"pattern", c.pattern == Pattern::kRandom ? "rand" : "seq"},
            {"clients", c.clients},      {"SSDs", c.ssds},
            {"depth", c.depth}};
}

nlohmann::json configuration_of(const LoadSettings& s) {
    nlohmann::json configuration = {{"lanes", simt::lanes_name(s.lanes)},
                                    {"replicas", s.replicas},
                                    {"channels a client", s.channels},
                                    {"warps a client", s.warps},
                                    {"threads of strong-cpu, at most", s.threads},
                                    {"threads of a central engine, at most", s.array_threads},
                                    {"working set", s.working_set},
                                    {"write budget", s.write_budget},
                                    {"offered a second", s.rate},
                                    {"profile", s.profile},
                                    {"verify", s.verify == Verify::kAll      ? "all"
                                               : s.verify == Verify::kSample ? "sample"
                                                                             : "none"},
                                    {"steady", s.steady},
                                    {"FUA", s.fua},
                                    {"seed", s.seed}};
    configuration["client threads of the others"] = "a client, as cores allow";
    if (s.client_threads != 0) configuration["client threads of the others"] = s.client_threads;
    add_to_configuration(s.engine, configuration);
    // An array that others serve is what they made it, and has gnor alone.
    if (!s.served.array.empty())
        for (const char* unknown : {"engine threads", "NIC threads", "service units an SSD", "profile",
                                    "write budget", "steady", "threads of strong-cpu, at most",
                                    "client threads of the others", "threads of a central engine, at most"})
            configuration.erase(unknown);
    return configuration;
}

Result<LoadSettings> complete(LoadSettings s) {
    const std::uint32_t cores = cores_here();
    GN_ASSIGN(s.engine, complete(s.engine));
    if (s.array_threads == 0) s.array_threads = std::min(8u, cores);
    if (s.threads == 0) s.threads = cores > s.engine.threads ? cores - s.engine.threads : 1;
    if (s.array_threads > kArrayThreadsMax)
        return error(Errc::kInvalidArgument, "--array-threads takes 0 to {}, not {}", kArrayThreadsMax,
                     s.array_threads);
    if (std::max(s.threads, s.client_threads) > kLoadThreadsMax)
        return error(Errc::kInvalidArgument, "--threads and --client-threads take 0 to {}, not {}",
                     kLoadThreadsMax, std::max(s.threads, s.client_threads));
    if (s.warps == 0) s.warps = s.lanes == simt::LanesKind::kGpu ? 8 : 1;
    if (s.repeats == 0 || s.repeats > 1000)
        return error(Errc::kInvalidArgument, "--repeats takes 1 to 1000, not {}", s.repeats);
    if (!(s.seconds > 0) || s.seconds > 600)
        return error(Errc::kInvalidArgument, "--seconds takes more than 0 and up to 600, not {}", s.seconds);
    if (s.write_budget < (1u << 20) || s.write_budget > kMostBytes)
        return error(Errc::kInvalidArgument, "--write-budget takes 1 MiB to 1 TiB, not {} bytes",
                     s.write_budget);
    if (s.working_set > kMostBytes)
        return error(Errc::kInvalidArgument, "--working-set takes up to 1 TiB, not {} bytes", s.working_set);
    if (!(s.rate >= 0) || s.rate > kRateMax)
        return error(Errc::kInvalidArgument,
                     "--rate takes 0 (a closed loop) to {:.0f} requests a second, not {}", kRateMax, s.rate);
    return s;
}

Result<void> check(const LoadCase& c, const LoadSettings& s) {
    if (c.bytes < 512 || c.bytes > 65536 || !is_power_of_two(c.bytes))
        return error(Errc::kInvalidArgument, "--bytes takes powers of two from 512 to 65536, not {}",
                     c.bytes);
    if (c.write_percent > 100)
        return error(Errc::kInvalidArgument, "--write-percent takes 0 to 100, not {}", c.write_percent);
    if (c.write_percent != 0 && c.bytes < nvme::kBlockBytes)
        return error(Errc::kInvalidArgument,
                     "writes cannot have --bytes {}: the array writes whole blocks of 4096 bytes; use "
                     "--write-percent 0",
                     c.bytes);
    if (c.ssds == 0 || c.ssds > placement::kMaxSlots)
        return error(Errc::kInvalidArgument, "--ssds takes 1 to {}, not {}", placement::kMaxSlots, c.ssds);
    if (s.replicas == 0 || s.replicas > std::min(c.ssds, placement::kMaxReplicas))
        return error(Errc::kInvalidArgument,
                     "--replicas takes 1 to {} and at most the number of SSDs ({}), not {}",
                     placement::kMaxReplicas, c.ssds, s.replicas);
    if (c.clients == 0 || c.clients > 32)
        return error(Errc::kInvalidArgument, "--clients takes 1 to 32, not {}", c.clients);
    if (s.working_set / c.clients < (1u << 20))
        return error(Errc::kInvalidArgument,
                     "--working-set takes at least 1 MiB per client, not {} bytes for {} clients",
                     s.working_set, c.clients);
    return {};
}

LoadRunner::LoadRunner(LoadSettings complete) : settings_(complete) {}
LoadRunner::~LoadRunner() = default;

std::uint64_t LoadRunner::volume_bytes(const LoadCase& c) const {
    return settings_.working_set / c.clients / kPassBytes * kPassBytes;
}

/// Of all SSDs together, at most.
std::uint64_t LoadRunner::pages_a_write(const LoadCase& c) const {
    const bool logs = is_central(c.path) || c.path == PathKind::kCoordinating;
    return std::uint64_t{settings_.replicas} *
           (std::max(c.bytes, nvme::kBlockBytes) / nvme::kBlockBytes + (logs ? 1 : 0));
}

Load LoadRunner::load_of(const LoadCase& c) const {
    Load l{};
    l.pass = Pass::kMeasure;
    l.pattern = c.pattern;
    l.write_percent = c.write_percent;
    l.bytes = c.bytes;
    l.depth = c.depth;
    l.verify = settings_.verify;
    l.units = volume_bytes(c) / c.bytes;
    l.contents_seed = settings_.seed;
    l.order_seed = settings_.seed;
    l.duration_ns = static_cast<std::uint64_t>(settings_.seconds * 1e9);
    l.quota = kNever;
    return l;
}

Result<void> LoadRunner::prepare(const LoadCase& c) {
    const bool fits = rig_ != nullptr && rig_->made_for.path == c.path &&
                      rig_->made_for.clients == c.clients && rig_->made_for.ssds == c.ssds &&
                      rig_->made_for.depth == c.depth &&
                      // A central engine's allocator does not join what it has split (extents.hpp).
                      (!is_central(c.path) || rig_->made_for.bytes == c.bytes);
    if (fits && (settings_.steady || (!rig_->written && c.write_percent == 0))) return {};
    rig_.reset();
    auto rig = std::make_unique<Rig>();
    rig->made_for = c;
    BedOptions bed;
    bed.served = settings_.served;
    bed.ssds = c.ssds;
    bed.engine_threads = settings_.engine.threads;
    bed.nic_threads = settings_.engine.nic_threads;
    bed.service_units = settings_.engine.service_units;
    bed.seed = settings_.seed;
    bed.profile = settings_.profile;
    bed.reads_for_device = settings_.lanes == simt::LanesKind::kGpu;
    // The fill, with what a central engine or coordinating clients log of it; then the writes of one repeat.
    bed.programmed_bytes = settings_.working_set * settings_.replicas * 9 / 8 + (64u << 20) +
                           (c.write_percent != 0 || settings_.steady ? settings_.write_budget : 0);
    // A steady state programs every page again and again. Pages that the system
    // allocates during the measurement cost processor time, most for paths whose threads poll on all cores.
    bed.whole_memory = settings_.steady;
    if (settings_.served.array.empty()) GN_TRY(check_memory(memory_of(bed)));
    GN_ASSIGN(rig->bed, Bed::build(bed));
    wire_ = rig->bed->array().wire();
    InitiatorOptions o;
    o.path = c.path;
    o.lanes = settings_.lanes;
    o.clients = c.clients;
    o.channels = settings_.channels;
    o.warps = settings_.warps;
    o.depth = c.depth;
    const LoadThreads threads = threads_for(c, settings_, cores_here());
    o.threads = std::max(1u, threads.client);
    o.array_threads = std::max(1u, threads.array);
    o.volume_bytes = volume_bytes(c);
    o.replicas = settings_.replicas;
    o.bytes_max = kPassBytes;
    o.seed = settings_.seed;
    o.fua = settings_.fua;
    GN_ASSIGN(rig->initiator, make_initiator(*rig->bed, o));
    described_ = rig->initiator->describe();
    rig_ = std::move(rig);
    Load fill = load_of(c);
    fill.pass = Pass::kFill;
    fill.bytes = kPassBytes;
    fill.units = volume_bytes(c) / kPassBytes;
    fill.duration_ns = kPassNs;
    GN_ASSIGN(const Outcome filled, rig_->initiator->run(fill));
    if (filled.failures == 0 && filled.operations == fill.units * c.clients) return {};
    return error(Errc::kIo,
                 "{1} writes failed while the volumes of path {0} were filled; the first error: {2}",
                 path_name(c.path), filled.failures, nvme::status_name(filled.first_status));
}

Result<Repeat> LoadRunner::repeat(const LoadCase& c, std::uint32_t index) {
    GN_TRY(prepare(c));
    Load load = load_of(c);
    load.order_seed = settings_.seed + 1000 * (index + 1);
    if (settings_.rate > 0)
        load.interval_ps = static_cast<std::uint64_t>(
            1e12 * static_cast<double>(rig_->initiator->members(c.bytes)) / settings_.rate);
    if (c.write_percent != 0) {
        // Of a mix a little less, as chance may write more than its share.
        const std::uint64_t writes = settings_.write_budget / nvme::kBlockBytes / pages_a_write(c);
        const std::uint64_t requests = c.write_percent == 100 ? writes : writes * 90 / c.write_percent;
        if (!settings_.steady)
            load.quota = std::max<std::uint64_t>(1, requests / rig_->initiator->members(c.bytes));
        rig_->written = true;
    }
    Bed& bed = *rig_->bed;
    GN_ASSIGN(const HardwareCounts before, bed.counts());
    const std::vector<HardwareProcess> processes_before = bed.processes();
    const std::vector<EngineThread> threads_before = bed.threads();
    GN_ASSIGN(Outcome out, rig_->initiator->run(load));
    const std::vector<EngineThread> threads_after = bed.threads();
    const std::vector<HardwareProcess> processes_after = bed.processes();
    GN_ASSIGN(const HardwareCounts after, bed.counts());
    GN_TRY(check_outcome(c, out, after.commands - before.commands));
    Repeat r;
    r.seconds = out.seconds;
    r.operations = out.operations;
    r.bytes = out.operations * c.bytes;
    r.latency = summarize(std::move(out.latency_ns));
    add_engine(r, threads_before, threads_after);
    add_processes(r, processes_before, processes_after);
    r.checked = out.checked;
    if (settings_.rate > 0) r.more["offered_per_second"] = settings_.rate;
    r.more["initiator_cpu_seconds"] = out.initiator_cpu_seconds;
    if (!is_lane_initiated(c.path) && settings_.lanes == simt::LanesKind::kCpu)
        r.lane_cpu_seconds = out.lane_cpu_seconds;
    if (is_central(c.path)) r.more["array_cpu_seconds"] = out.array_cpu_seconds;
    for (const auto& [stage, us] : out.stage_us) r.more["stage_" + stage + "_us"] = us;
    for (const auto& [stage, seconds] : out.work_seconds)
        r.more["work_" + stage + "_us"] = seconds / static_cast<double>(out.operations) * 1e6;
    if (out.quota_used) r.more["ended_at_write_budget"] = 1;
    if (after.gc_pages_copied != before.gc_pages_copied)
        r.more["gc_pages_copied"] = static_cast<double>(after.gc_pages_copied - before.gc_pages_copied);
    note_limits(c, r);
    const bool last = index + 1 == settings_.repeats;
    if (c.write_percent != 0 && (!settings_.steady || last)) GN_TRY(compare(c));
    return r;
}

/// What the profile allows, of reads or of writes.
void LoadRunner::note_limits(const LoadCase& c, Repeat& r) const {
    if (c.write_percent != 0 && c.write_percent != 100) return;
    const ModelFigures f = figures_of(profile_, c.write_percent == 100, c.bytes, c.ssds, settings_.replicas);
    if (f.drives_per_second != 0) r.more["limit_drives_per_second"] = f.drives_per_second;
    if (f.network_per_second != 0) r.more["limit_network_per_second"] = f.network_per_second;
}

Result<void> LoadRunner::compare(const LoadCase& c) {
    Load load = load_of(c);
    load.pass = Pass::kCompare;
    load.bytes = kPassBytes;
    load.units = volume_bytes(c) / kPassBytes;
    load.verify = Verify::kAll;
    load.duration_ns = kPassNs;
    GN_ASSIGN(const Outcome out, rig_->initiator->run(load));
    checked_ += out.checked;
    if (out.failures != 0 || out.checked != load.units * c.clients)
        return error(Errc::kIo,
                     "{1} reads failed while the volumes of path {0} were read back; the first error: {2}",
                     path_name(c.path), out.failures, nvme::status_name(out.first_status));
    if (out.wrong == 0) return {};
    wrong_ += out.wrong;
    std::fprintf(stderr, "WRONG: %s: after writing, %llu pieces of 64 KiB do not hold what was written\n",
                 path_name(c.path), static_cast<unsigned long long>(out.wrong));
    return {};
}

Result<void> LoadRunner::check_outcome(const LoadCase& c, const Outcome& out, std::uint64_t executed) {
    checked_ += out.checked;
    if (out.wrong != 0) {
        wrong_ += out.wrong;
        std::fprintf(stderr,
                     "WRONG: %s: %llu of %llu checked reads returned other data than was written, one of "
                     "them at byte %llu\n",
                     path_name(c.path), static_cast<unsigned long long>(out.wrong),
                     static_cast<unsigned long long>(out.checked),
                     static_cast<unsigned long long>(out.first_offset));
    }
    // Where others work too, SSDs count theirs as well.
    const bool others = rig_->bed->served() && executed > out.commands;
    if (executed != out.commands && !others) {
        ++wrong_;
        std::fprintf(stderr,
                     "WRONG: path %s counts %llu commands sent, the SSDs count %llu commands executed\n",
                     path_name(c.path), static_cast<unsigned long long>(out.commands),
                     static_cast<unsigned long long>(executed));
    }
    if (out.failures != 0)
        return error(Errc::kIo, "path {}: {} requests failed, the first at byte {}: {}", path_name(c.path),
                     out.failures, out.first_offset, nvme::status_name(out.first_status));
    if (out.operations != 0) return {};
    return error(Errc::kInvalidArgument,
                 "no request completed within a repeat; give it more --seconds or a larger --write-budget");
}

Result<Case> LoadRunner::measure(const LoadCase& c) {
    GN_TRY(check(c, settings_));
    GN_ASSIGN(profile_, embedded::load_profile(settings_.profile));
    Case result;
    result.parameters = parameters_of(c);
    // Of an array that others serve only they know.
    if (settings_.served.array.empty()) {
        const LoadThreads threads = threads_for(c, settings_, cores_here());
        result.threads["engine"] = threads.engine;
        if (threads.client != 0) result.threads["client"] = threads.client;
        if (threads.array != 0) result.threads["array"] = threads.array;
    }
    for (std::uint32_t i = 0; i < settings_.repeats; ++i) {
        GN_ASSIGN(Repeat one, repeat(c, i));
        result.repeats.push_back(std::move(one));
    }
    return result;
}

}  // namespace gnstor::bench
