// path_report.cpp: words about a run of `bench path`, for people and for docs/runs.
#include "path_report.hpp"

#include <gnstor/base/units.hpp>

#include "engine_busy.hpp"
#include "path_options.hpp"
#include "serving_processes.hpp"

#include <cstdio>
#include <cstdlib>

namespace gnstor::bench {
namespace {

bool is_served(const PathOptions& o) {
    return !o.served.array.empty();
}

std::string drives_of(const PathOptions& o) {
    if (is_served(o)) return "served by other processes";
    if (o.store.empty()) return "memory";
    const bool process = o.durability == SsdDurability::kProcess;
    return fmt::format("{} files, durability {}", o.direct_io ? "O_DIRECT" : "mapped",
                       process ? "process" : "power");
}

void print_left_out(const PathOptions& o) {
    for (const std::uint32_t bytes : o.sizes)
        if (o.write && bytes < nvme::kBlockBytes)
            std::printf("  left out    writes of %u bytes: the array writes whole blocks of 4096 bytes\n",
                        bytes);
}

/// What an operation of a single lane consists of.
void print_steps(const std::vector<Case>& cases) {
    for (const Case& c : cases) {
        if (c.repeats.empty()) continue;
        std::string line;
        for (const auto& [name, value] : c.repeats.back().more)
            if (name.rfind("step_", 0) == 0)
                line += fmt::format("  {} {:.0f}", name.substr(7, name.size() - 10), value);
        if (!line.empty())
            std::printf("Steps of %s, ns per operation (last repeat):%s\n", name_of(c).c_str(), line.c_str());
    }
}

}  // namespace

void print_heading(const PathOptions& o, const PathSummary& s) {
    std::printf("bench path on %s\n", s.lanes.c_str());
    if (is_served(o))
        std::printf("  array       %u SSDs that other processes serve (%s), %u replicas, %u channel%s\n",
                    o.ssds, o.served.array.c_str(), o.replicas, s.shape.channels,
                    s.shape.channels == 1 ? "" : "s");
    else
        std::printf(
            "  array       %u SSDs of %s, %u replicas, %s, %u channel%s; NIC and SSDs are emulated on the "
            "same "
            "machine\n",
            o.ssds, drives_of(o).c_str(), o.replicas, describe(o.engine).c_str(), s.shape.channels,
            s.shape.channels == 1 ? "" : "s");
    std::printf(
        "  load        uniformly random over a filled working set of %s; %u repeats of %g s; checked: %s\n",
        format_bytes(o.working_set).c_str(), o.repeats, o.seconds, verify_words(o.verify));
    if (o.rate > 0)
        std::printf(
            "  open loop   %.0f operations per second are meant to be sent; latency counts from when each "
            "was "
            "meant to be\n",
            o.rate);
    if (o.profile != "none")
        std::printf(
            "  profile     %s: SSDs and network imitate the timing of the hardware that the profile "
            "describes\n",
            o.profile.c_str());
    if (o.write && is_served(o))
        std::printf(
            "  writes      each repeat uses a new volume; the drives collect garbage when they need to; "
            "afterwards "
            "every\n"
            "              block of the working set is read and compared\n");
    else if (o.write)
        std::printf(
            "  writes      each repeat has a new array and ends before its drives collect garbage\n      "
            "        (%s programmed); afterwards every block of the working set is read and compared\n",
            format_bytes(o.write_budget).c_str());
    print_left_out(o);
    if (o.reference)
        std::printf(
            "  plain copy  the same lanes copy the same blocks from and to plain memory, no array between\n");
    std::printf("  fio         %s\n", s.fio.c_str());
    std::printf("  machine     load average %s\n\n", s.load_before.c_str());
    std::fflush(stdout);
}

void print_results(const PathOptions& o, const PathSummary& s, const std::vector<Case>& cases) {
    std::printf("%s\n", table(cases).c_str());
    std::printf(
        "Median over repeats (least .. most). Latency: from issue until a lane sees the status; plain "
        "copies: of "
        "the copy alone.\nCPU time per operation: init. of the process without the emulated hardware; "
        "engine: of the threads that emulate NIC and SSDs;\nlanes: of the lanes' threads (polling included; "
        "fio: its "
        "threads).\n%s",
        busy_lines(cases).c_str());
    std::printf("Wire: %s\n%s", s.wire.c_str(), process_lines(cases).c_str());
    print_steps(cases);
    std::printf("Checked: %s reads, every word; %s blocks after writes; %s.\n",
                format_count(s.judgement.checked).c_str(), format_count(s.compared_blocks).c_str(),
                s.judgement.wrong == 0 ? "all as written" : "SOME WRONG");
    if (s.judgement.ended_at_quota != 0)
        std::printf(
            "%u repeats of writes ended early because the drives had no free pages left (see "
            "--write-budget).\n",
            s.judgement.ended_at_quota);
    std::printf("fio: %s.\n", s.fio.c_str());
    std::printf("Load average of the machine: %s before, %s after.\n", s.load_before.c_str(),
                load_average().c_str());
    if (o.json.empty()) return;
    std::printf("Raw result: %s\n", o.json.c_str());
}

nlohmann::json result_of(const PathOptions& o, const PathSummary& s, const std::vector<Case>& cases) {
    nlohmann::json configuration = {{"lanes", simt::lanes_name(o.lanes)},
                                    {"ssds", o.ssds},
                                    {"drives", drives_of(o)},
                                    {"profile", o.profile},
                                    {"replicas", o.replicas},
                                    {"channels", s.shape.channels},
                                    {"warps", s.shape.warps},
                                    {"in flight a lane", s.shape.depth},
                                    {"working set", format_bytes(o.working_set)},
                                    {"checked", verify_words(o.verify)},
                                    {"fio", s.fio},
                                    {"seed", o.seed},
                                    {"load average before", s.load_before},
                                    {"load average after", load_average()}};
    configuration["wire"] = s.wire.substr(0, s.wire.find(" ("));  // no folders
    if (o.alone) configuration["one lane alone"] = true;
    if (!is_served(o)) add_to_configuration(o.engine, configuration);
    const char* commit = std::getenv("GN_COMMIT");
    nlohmann::json run =
        to_json("path", o.command, commit != nullptr ? commit : "unknown", configuration, cases);
    if (!s.gpu.empty()) run["machine"]["gpu"] = s.gpu;
    return run;
}

}  // namespace gnstor::bench
