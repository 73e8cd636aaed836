// load_runner.cpp: one case of `bench load`: an array, a fill, repeats, and what is held against what.
#include "initiators/bed.hpp"
#include "load.hpp"
#include "memory.hpp"

#include <algorithm>
#include <cstdio>
#include <thread>

namespace gnstor::bench {
namespace {

constexpr std::uint32_t kPassBytes = 65536;  // of a request that fills or compares
constexpr std::uint64_t kNever = ~0ull;
constexpr std::uint64_t kMostBytes = 1ull << 40;
constexpr std::uint64_t kPassNs = 600'000'000'000;

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
    return {{"lanes", simt::lanes_name(s.lanes)},
            {"replicas", s.replicas},
            {"channels a client", s.channels},
            {"warps a client", s.warps},
            {"threads of strong-cpu", s.threads},
            {"threads of a central engine", s.array_threads},
            {"engine threads", s.engine_threads},
            {"working set", s.working_set},
            {"write budget", s.write_budget},
            {"profile", s.profile},
            {"verify", s.verify == Verify::kAll      ? "all"
                       : s.verify == Verify::kSample ? "sample"
                                                     : "none"},
            {"seed", s.seed}};
}

Result<LoadSettings> complete(LoadSettings s) {
    const std::uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
    if (s.engine_threads == 0) s.engine_threads = std::max(1u, cores / 2);
    if (s.array_threads == 0) s.array_threads = std::min(8u, cores);
    if (s.threads == 0) s.threads = cores > s.engine_threads ? cores - s.engine_threads : 1;
    if (s.repeats == 0 || s.repeats > 1000)
        return error(Errc::kInvalidArgument, "--repeats takes 1 to 1000, not {}", s.repeats);
    if (!(s.seconds > 0) || s.seconds > 600)
        return error(Errc::kInvalidArgument, "--seconds takes more than 0 and up to 600, not {}", s.seconds);
    if (s.engine_threads > 256)
        return error(Errc::kInvalidArgument, "--engine-threads takes 0 to 256, not {}", s.engine_threads);
    if (s.write_budget < (1u << 20) || s.write_budget > kMostBytes)
        return error(Errc::kInvalidArgument, "--write-budget takes 1 MiB to 1 TiB, not {} bytes",
                     s.write_budget);
    if (s.working_set > kMostBytes)
        return error(Errc::kInvalidArgument, "--working-set takes up to 1 TiB, not {} bytes", s.working_set);
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
                     "--bytes {} cannot be written: the array writes whole blocks of 4096 bytes; use "
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
                     "--working-set takes at least 1 MiB a client, not {} bytes for {} clients",
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
    if (rig_ != nullptr && !rig_->written && rig_->made_for.path == c.path &&
        rig_->made_for.clients == c.clients && rig_->made_for.ssds == c.ssds &&
        rig_->made_for.depth == c.depth && c.write_percent == 0)
        return {};
    rig_.reset();
    auto rig = std::make_unique<Rig>();
    rig->made_for = c;
    BedOptions bed;
    bed.ssds = c.ssds;
    bed.engine_threads = settings_.engine_threads;
    bed.seed = settings_.seed;
    bed.profile = settings_.profile;
    // The fill, with what a central engine or coordinating clients log of it; then the writes of one repeat.
    bed.programmed_bytes = settings_.working_set * settings_.replicas * 9 / 8 + (64u << 20) +
                           (c.write_percent != 0 ? settings_.write_budget : 0);
    GN_TRY(check_memory(bed.programmed_bytes));
    GN_ASSIGN(rig->bed, Bed::build(bed));
    InitiatorOptions o;
    o.path = c.path;
    o.lanes = settings_.lanes;
    o.clients = c.clients;
    o.channels = settings_.channels;
    o.warps = settings_.warps;
    o.depth = c.depth;
    o.threads = settings_.threads;
    o.array_threads = settings_.array_threads;
    o.volume_bytes = volume_bytes(c);
    o.replicas = settings_.replicas;
    o.bytes_max = kPassBytes;
    o.seed = settings_.seed;
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
    return error(Errc::kIo, "filling the volumes of {} failed {} times, first with {}", path_name(c.path),
                 filled.failures, nvme::status_name(filled.first_status));
}

Result<Repeat> LoadRunner::repeat(const LoadCase& c, std::uint32_t index) {
    GN_TRY(prepare(c));
    Load load = load_of(c);
    load.order_seed = settings_.seed + 1000 * (index + 1);
    if (c.write_percent != 0) {
        // Of a mix a little less, as chance may write more than its share.
        const std::uint64_t writes = settings_.write_budget / nvme::kBlockBytes / pages_a_write(c);
        const std::uint64_t requests = c.write_percent == 100 ? writes : writes * 90 / c.write_percent;
        load.quota = std::max<std::uint64_t>(1, requests / rig_->initiator->members(c.bytes));
        rig_->written = true;
    }
    const HardwareCounts before = rig_->bed->counts();
    GN_ASSIGN(Outcome out, rig_->initiator->run(load));
    const HardwareCounts after = rig_->bed->counts();
    GN_TRY(check_outcome(c, out, after.commands - before.commands));
    Repeat r;
    r.seconds = out.seconds;
    r.operations = out.operations;
    r.bytes = out.operations * c.bytes;
    r.latency = summarize(std::move(out.latency_ns));
    r.engine_cpu_seconds = after.cpu_seconds - before.cpu_seconds;
    r.checked = out.checked;
    r.more["initiator_cpu_seconds"] = out.initiator_cpu_seconds;
    if (!is_lane_initiated(c.path) && settings_.lanes == simt::LanesKind::kCpu)
        r.lane_cpu_seconds = out.lane_cpu_seconds;
    if (is_central(c.path)) r.more["array_cpu_seconds"] = out.array_cpu_seconds;
    for (const auto& [stage, us] : out.stage_us) r.more["stage_" + stage + "_us"] = us;
    if (out.quota_used) r.more["ended_at_write_budget"] = 1;
    if (after.gc_pages_copied != before.gc_pages_copied)
        r.more["gc_pages_copied"] = static_cast<double>(after.gc_pages_copied - before.gc_pages_copied);
    if (c.write_percent != 0) GN_TRY(compare(c));
    return r;
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
        return error(Errc::kIo, "reading the volumes of {} back failed {} times, first with {}",
                     path_name(c.path), out.failures, nvme::status_name(out.first_status));
    if (out.wrong == 0) return {};
    wrong_ += out.wrong;
    std::fprintf(stderr,
                 "WRONG: %s: after writing, %llu pieces of 64 KiB hold another word than they should\n",
                 path_name(c.path), static_cast<unsigned long long>(out.wrong));
    return {};
}

Result<void> LoadRunner::check_outcome(const LoadCase& c, const Outcome& out, std::uint64_t executed) {
    checked_ += out.checked;
    if (out.wrong != 0) {
        wrong_ += out.wrong;
        std::fprintf(
            stderr,
            "WRONG: %s: %llu of %llu checked reads hold another word than was written, one at byte %llu\n",
            path_name(c.path), static_cast<unsigned long long>(out.wrong),
            static_cast<unsigned long long>(out.checked), static_cast<unsigned long long>(out.first_offset));
    }
    if (executed != out.commands) {
        ++wrong_;
        std::fprintf(stderr, "WRONG: %s counts %llu commands, SSDs %llu\n", path_name(c.path),
                     static_cast<unsigned long long>(out.commands),
                     static_cast<unsigned long long>(executed));
    }
    if (out.failures != 0)
        return error(Errc::kIo, "{}: {} requests failed, first at byte {}: {}", path_name(c.path),
                     out.failures, out.first_offset, nvme::status_name(out.first_status));
    if (out.operations != 0) return {};
    return error(Errc::kInvalidArgument,
                 "no request fitted into a repeat; give it more --seconds or a larger --write-budget");
}

Result<Case> LoadRunner::measure(const LoadCase& c) {
    GN_TRY(check(c, settings_));
    Case result;
    result.parameters = parameters_of(c);
    for (std::uint32_t i = 0; i < settings_.repeats; ++i) {
        GN_ASSIGN(Repeat one, repeat(c, i));
        result.repeats.push_back(std::move(one));
    }
    return result;
}

}  // namespace gnstor::bench
