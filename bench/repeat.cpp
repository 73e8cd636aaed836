// repeat.cpp: runs lanes once, and holds what they say against itself and against the SSDs.
#include "repeat.hpp"

#include "engine_busy.hpp"
#include "serving_processes.hpp"

#include <cstdio>

namespace gnstor::bench {
namespace {

Repeat repeat_of(const RunRequest& r, RunOutcome& o, simt::LanesKind kind) {
    Repeat repeat;
    repeat.seconds = o.seconds;
    repeat.operations = o.operations;
    repeat.bytes = o.operations * r.bytes;
    repeat.latency = summarize(std::move(o.latency_ns));
    if (kind == simt::LanesKind::kCpu) repeat.lane_cpu_seconds = o.lane_cpu_seconds;
    repeat.lane_waiting_seconds = o.waiting_seconds;
    repeat.checked = o.checked;
    if (r.offered_per_second > 0) repeat.more["offered_per_second"] = r.offered_per_second;
    for (const auto& [name, value] : o.step_ns) repeat.more[name] = value;
    return repeat;
}

Result<void> judge(const char* where, const RunRequest& r, const RunOutcome& o, Judgement& judgement) {
    judgement.checked += o.checked;
    if (o.quota_used) ++judgement.ended_at_quota;
    if (o.wrong != 0) {
        judgement.wrong += o.wrong;
        std::fprintf(stderr,
                     "WRONG: %llu of %llu checked reads of %u bytes returned other data than was written, "
                     "one of them at byte "
                     "%llu\n",
                     static_cast<unsigned long long>(o.wrong), static_cast<unsigned long long>(o.checked),
                     r.bytes, static_cast<unsigned long long>(o.first_offset));
    }
    if (o.failures == 0 && o.operations != 0) return {};
    if (o.failures == 0)
        return error(Errc::kInvalidArgument,
                     "no operation of {} bytes completed within a repeat; give it more --seconds or a larger "
                     "--write-budget",
                     r.bytes);
    return error(Errc::kIo, "{} of {} bytes ({}) failed {} times, the first time at byte {}: {}",
                 r.write ? "writing" : "reading", r.bytes, where, o.failures, o.first_offset,
                 nvme::status_name(o.first_status));
}

}  // namespace

Result<Repeat> run_on_array(Rig& rig, PathLanes& lanes, const LaneShape& shape, const RunRequest& r,
                            Judgement& judgement) {
    Bed& bed = rig.bed();
    CpuMeter meter([&bed] { return bed.threads(); });
    GN_ASSIGN(const HardwareCounts before, bed.counts());
    const std::vector<HardwareProcess> processes_before = bed.processes();
    GN_ASSIGN(RunOutcome outcome, lanes.run(shape, rig.client(), rig.volume(), r, meter));
    const std::vector<HardwareProcess> processes_after = bed.processes();
    GN_ASSIGN(const HardwareCounts after, bed.counts());
    GN_TRY(judge("array", r, outcome, judgement));
    const std::uint64_t executed = after.commands - before.commands;
    const std::uint64_t expected =
        outcome.operations * (r.write ? rig.volume().record().geometry.replicas : 1u);
    // Where others work too, SSDs count theirs as well.
    const bool others = bed.served() && executed > expected;
    if (executed != expected && !others) {
        ++judgement.wrong;
        std::fprintf(stderr,
                     "WRONG: the lanes count %llu commands sent, the SSDs count %llu commands executed\n",
                     static_cast<unsigned long long>(expected), static_cast<unsigned long long>(executed));
    }
    Repeat repeat = repeat_of(r, outcome, lanes.kind());
    add_engine(repeat, meter.hardware_before(), meter.hardware_after());
    add_processes(repeat, processes_before, processes_after);
    repeat.more["initiator_cpu_seconds"] = meter.initiator_seconds();
    return repeat;
}

Result<Repeat> run_on_memory(const ReferenceMemory& memory, PathLanes& lanes, const LaneShape& shape,
                             const RunRequest& r, Judgement& judgement) {
    GN_ASSIGN(RunOutcome outcome, lanes.run_reference(shape, memory, r));
    GN_TRY(judge("plain copy", r, outcome, judgement));
    return repeat_of(r, outcome, lanes.kind());
}

}  // namespace gnstor::bench
