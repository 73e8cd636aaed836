// path.cpp: the cases of `bench path`, their repeats, and what is printed about them.
#include "path.hpp"

#include <gnstor/base/units.hpp>

#include "memory.hpp"
#include "path_options.hpp"
#include "progress.hpp"
#include "result.hpp"
#include "rig.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

namespace gnstor::bench {
namespace {

constexpr std::uint64_t kReferenceMax = ~0ull;  // copies need no free pages

std::string load_average() {
    std::ifstream file("/proc/loadavg");
    std::string one_minute;
    file >> one_minute;
    return one_minute.empty() ? "unknown" : one_minute;
}

class PathBench {
  public:
    PathBench(const PathOptions& options, std::unique_ptr<PathLanes> lanes, LaneShape shape)
        : options_(options), lanes_(std::move(lanes)), shape_(shape) {}

    Result<bool> run() {
        GN_TRY(check_memory());
        // Before minutes of measuring: can the result be kept?
        if (!options_.json.empty() && !std::ofstream(options_.json, std::ios::app))
            return error(Errc::kInvalidArgument, "cannot write to {}; choose another --json", options_.json);
        print_heading();
        const std::string load_before = load_average();
        for (const std::uint32_t bytes : options_.sizes) count_steps(bytes);
        if (options_.reference) {
            progress_.show("filling plain memory");
            GN_ASSIGN(reference_,
                      lanes_->make_reference(options_.working_set, options_.replicas, options_.seed));
        }
        if (options_.read) GN_TRY(measure_reads());
        rig_.reset();
        if (options_.write) GN_TRY(measure_writes());
        progress_.clear();
        print_results(load_before);
        if (!options_.json.empty()) GN_TRY(keep_results(load_before));
        return wrong_ == 0;
    }

  private:
    struct Measured {
        Repeat repeat;
        bool quota_used;
    };

    void count_steps(std::uint32_t bytes) {
        const std::uint32_t paths = options_.reference ? 2 : 1;
        if (options_.read) steps_ += paths * options_.repeats;
        if (options_.write && bytes >= nvme::kBlockBytes) steps_ += paths * options_.repeats;
    }

    Result<void> check_memory() const {
        const std::uint64_t copies = 1 + options_.replicas;
        const std::uint64_t array = options_.working_set * options_.replicas + options_.write_budget;
        const std::uint64_t needed =
            (options_.store.empty() ? array : 0) + (options_.reference ? options_.working_set * copies : 0);
        return bench::check_memory(needed);
    }

    [[nodiscard]] std::string drives() const {
        if (options_.store.empty()) return "memory";
        const bool process = options_.durability == SsdDurability::kProcess;
        return fmt::format("{} files, durability {}", options_.direct_io ? "O_DIRECT" : "mapped",
                           process ? "process" : "power");
    }

    void print_heading() const {
        std::printf("bench path on %s\n", lanes_->describe(shape_).c_str());
        std::printf(
            "  array       %u SSDs of %s, %u replicas, %u engine thread%s, %u channel%s; NIC and SSDs "
            "are "
            "emulated on the same machine\n",
            options_.ssds, drives().c_str(), options_.replicas, options_.engine_threads,
            options_.engine_threads == 1 ? "" : "s", shape_.channels, shape_.channels == 1 ? "" : "s");
        std::printf(
            "  load        uniformly random over a filled working set of %s; %u repeats of %g s; checked: "
            "%s\n",
            format_bytes(options_.working_set).c_str(), options_.repeats, options_.seconds,
            verify_words(options_.verify));
        if (options_.profile != "none")
            std::printf(
                "  profile     %s: SSDs and network take the time of the hardware that it describes\n",
                options_.profile.c_str());
        if (options_.write)
            std::printf(
                "  writes      each repeat has a new array and ends before its drives collect garbage\n      "
                "        (%s programmed); afterwards every block of the "
                "working set is read and compared\n",
                format_bytes(options_.write_budget).c_str());
        for (const std::uint32_t bytes : options_.sizes)
            if (options_.write && bytes < nvme::kBlockBytes)
                std::printf("  left out    writes of %u bytes: the array writes whole blocks of 4096 bytes\n",
                            bytes);
        if (options_.reference)
            std::printf(
                "  plain copy  the same lanes copy the same blocks from and to plain memory, no array "
                "between\n");
        std::printf("  machine     load average %s\n\n", load_average().c_str());
        std::fflush(stdout);
    }

    // ---- cases

    Result<void> measure_reads() {
        GN_TRY(renew_rig(0));
        for (const std::uint32_t bytes : options_.sizes) {
            Case array = new_case("read", bytes, "array");
            Case plain = new_case("read", bytes, "plain copy");
            for (std::uint32_t i = 0; i < options_.repeats; ++i) {
                if (options_.reference) GN_TRY(measure_reference(plain, request(bytes, false, i)));
                GN_TRY(measure_array(array, request(bytes, false, i)));
            }
            keep(std::move(array), std::move(plain));
        }
        return {};
    }

    Result<void> measure_writes() {
        for (const std::uint32_t bytes : options_.sizes) {
            if (bytes < nvme::kBlockBytes) continue;
            Case array = new_case("write", bytes, "array");
            Case plain = new_case("write", bytes, "plain copy");
            for (std::uint32_t i = 0; i < options_.repeats; ++i) {
                if (options_.reference) GN_TRY(measure_reference(plain, request(bytes, true, i)));
                rig_.reset();
                GN_TRY(renew_rig(options_.write_budget));
                RunRequest r = request(bytes, true, i);
                r.operations_max = rig_->writes_max(bytes);
                GN_TRY(measure_array(array, r));
                GN_TRY(compare_all());
            }
            keep(std::move(array), std::move(plain));
        }
        return {};
    }

    Result<void> renew_rig(std::uint64_t write_budget) {
        progress_.show(fmt::format("[{}/{}] filling a new array", step_, steps_));
        const RigOptions o{options_.ssds,
                           options_.replicas,
                           options_.engine_threads,
                           options_.working_set,
                           write_budget,
                           options_.seed,
                           *std::max_element(options_.sizes.begin(), options_.sizes.end()),
                           options_.store,
                           options_.durability,
                           options_.direct_io,
                           options_.profile};
        GN_ASSIGN(rig_, Rig::build(o, shape_, *lanes_));
        return {};
    }

    Result<void> measure_array(Case& c, const RunRequest& r) {
        announce(c, r);
        const double engine_before = rig_->engine_cpu_seconds();
        const std::uint64_t commands_before = rig_->commands();
        GN_ASSIGN(RunOutcome outcome, lanes_->run(shape_, rig_->client(), rig_->volume(), r));
        GN_TRY(check_outcome(c, r, outcome));
        const std::uint64_t executed = rig_->commands() - commands_before;
        const std::uint64_t expected = outcome.operations * (r.write ? options_.replicas : 1);
        if (executed != expected) {
            ++wrong_;
            std::printf("WRONG: lanes count %llu commands, SSDs %llu\n",
                        static_cast<unsigned long long>(expected), static_cast<unsigned long long>(executed));
        }
        if (outcome.quota_used) ++ended_early_;
        Repeat repeat = to_repeat(r, outcome);
        repeat.engine_cpu_seconds = rig_->engine_cpu_seconds() - engine_before;
        c.repeats.push_back(repeat);
        return {};
    }

    Result<void> measure_reference(Case& c, const RunRequest& r) {
        announce(c, r);
        GN_ASSIGN(RunOutcome outcome, lanes_->run_reference(shape_, reference_, r));
        GN_TRY(check_outcome(c, r, outcome));
        c.repeats.push_back(to_repeat(r, outcome));
        return {};
    }

    Result<void> check_outcome(const Case& c, const RunRequest& r, const RunOutcome& o) {
        checked_ += o.checked;
        if (o.wrong != 0) {
            wrong_ += o.wrong;
            std::printf(
                "WRONG: %llu of %llu checked reads of %u bytes hold another word than was written, "
                "one at byte %llu\n",
                static_cast<unsigned long long>(o.wrong), static_cast<unsigned long long>(o.checked), r.bytes,
                static_cast<unsigned long long>(o.first_offset));
        }
        if (o.failures == 0 && o.operations != 0) return {};
        if (o.failures == 0)
            return error(Errc::kInvalidArgument,
                         "no operation of {} bytes fitted into a repeat; give it more --seconds or a larger "
                         "--write-budget",
                         r.bytes);
        return error(Errc::kIo, "{} of {} bytes ({}) failed {} times, first at byte {}: {}",
                     r.write ? "writing" : "reading", r.bytes, c.parameters["path"].get<std::string>(),
                     o.failures, o.first_offset, nvme::status_name(o.first_status));
    }

    Result<void> compare_all() {
        progress_.show(fmt::format("[{}/{}] reading the working set back", step_, steps_));
        GN_ASSIGN(const std::uint64_t wrong,
                  lanes_->check(shape_, rig_->client(), rig_->volume(), options_.working_set, options_.seed));
        compared_blocks_ += options_.working_set / nvme::kBlockBytes;
        if (wrong == 0) return {};
        wrong_ += wrong;
        std::printf("WRONG: after writing, %llu blocks hold another word than they should\n",
                    static_cast<unsigned long long>(wrong));
        return {};
    }

    // ---- bookkeeping

    [[nodiscard]] RunRequest request(std::uint32_t bytes, bool write, std::uint32_t repeat) const {
        RunRequest r{};
        r.bytes = bytes;
        r.write = write;
        r.verify = options_.verify;
        r.working_set = options_.working_set;
        r.seed = options_.seed;
        r.order_seed = options_.seed + 1000 * (repeat + 1);
        r.seconds = options_.seconds;
        r.operations_max = kReferenceMax;
        return r;
    }
    static Case new_case(const char* operation, std::uint32_t bytes, const char* path) {
        Case c;
        c.parameters = {{"operation", operation}, {"bytes", bytes}, {"path", path}};
        return c;
    }
    void keep(Case array, Case plain) {
        cases_.push_back(std::move(array));
        if (options_.reference) cases_.push_back(std::move(plain));
    }
    Repeat to_repeat(const RunRequest& r, RunOutcome& o) const {
        Repeat repeat;
        repeat.seconds = o.seconds;
        repeat.operations = o.operations;
        repeat.bytes = o.operations * r.bytes;
        repeat.latency = summarize(std::move(o.latency_ns));
        if (lanes_->kind() == simt::LanesKind::kCpu) repeat.lane_cpu_seconds = o.lane_cpu_seconds;
        repeat.lane_waiting_seconds = o.waiting_seconds;
        repeat.checked = o.checked;
        return repeat;
    }
    void announce(const Case& c, const RunRequest& r) {
        ++step_;
        progress_.show(fmt::format("[{}/{}] {} of {} bytes, {}", step_, steps_, r.write ? "writes" : "reads",
                                   r.bytes, c.parameters["path"].get<std::string>()));
    }

    void print_results(const std::string& load_before) const {
        std::printf("%s\n", table(cases_).c_str());
        std::printf(
            "Median over repeats (least .. most). Latency: from issue until a lane sees the status; plain "
            "copies: of "
            "the copy alone.\nEngine and lanes: CPU time an operation of the threads that emulate NIC and "
            "SSDs, and "
            "of the lanes' own (polling included).\n");
        std::printf("Checked: %s reads, every word; %s blocks after writes; %s.\n",
                    format_count(checked_).c_str(), format_count(compared_blocks_).c_str(),
                    wrong_ == 0 ? "all as written" : "SOME WRONG");
        if (ended_early_ != 0)
            std::printf(
                "%u repeats of writes ended before their time, at the drives' last free pages "
                "(--write-budget).\n",
                ended_early_);
        std::printf("Load average of the machine: %s before, %s after.\n", load_before.c_str(),
                    load_average().c_str());
    }

    [[nodiscard]] Result<void> keep_results(const std::string& load_before) const {
        const nlohmann::json configuration = {{"lanes", simt::lanes_name(lanes_->kind())},
                                              {"ssds", options_.ssds},
                                              {"drives", drives()},
                                              {"profile", options_.profile},
                                              {"replicas", options_.replicas},
                                              {"channels", shape_.channels},
                                              {"warps", shape_.warps},
                                              {"in flight a lane", shape_.depth},
                                              {"engine threads", options_.engine_threads},
                                              {"working set", format_bytes(options_.working_set)},
                                              {"checked", verify_words(options_.verify)},
                                              {"seed", options_.seed},
                                              {"load average before", load_before},
                                              {"load average after", load_average()}};
        const char* commit = std::getenv("GN_COMMIT");
        nlohmann::json run =
            to_json("path", options_.command, commit != nullptr ? commit : "unknown", configuration, cases_);
        if (!lanes_->gpu_name().empty()) run["machine"]["gpu"] = lanes_->gpu_name();
        GN_TRY(write_json(options_.json, run));
        std::printf("Raw result: %s\n", options_.json.c_str());
        return {};
    }

    const PathOptions options_;
    const std::unique_ptr<PathLanes> lanes_;
    const LaneShape shape_;
    Progress progress_;
    ReferenceMemory reference_;
    std::unique_ptr<Rig> rig_;
    std::vector<Case> cases_;
    std::uint32_t step_ = 0, steps_ = 0, ended_early_ = 0;
    std::uint64_t checked_ = 0, compared_blocks_ = 0, wrong_ = 0;
};

}  // namespace

Result<bool> run_path(const PathOptions& given) {
    PathOptions options = given;
    GN_TRY(check_options(options));
    GN_TRY(simt::check_lanes(options.lanes));
    const bool gpu = options.lanes == simt::LanesKind::kGpu;
    std::unique_ptr<PathLanes> lanes = gpu ? make_gpu_path_lanes() : make_cpu_path_lanes();
    if (!lanes)
        return error(Errc::kUnsupported, "this build has no GPU lanes; build with nvcc, or use --lanes cpu");
    if (options.engine_threads == 0)
        options.engine_threads = std::max(1u, std::thread::hardware_concurrency() / 2);
    if (options.write_budget == 0) options.write_budget = (gpu ? 16ull : 2ull) << 30;
    GN_ASSIGN(const LaneShape shape, choose_shape(options, *lanes, options.engine_threads));
    std::sort(options.sizes.begin(), options.sizes.end());
    options.sizes.erase(std::unique(options.sizes.begin(), options.sizes.end()), options.sizes.end());
    PathBench bench(options, std::move(lanes), shape);
    return bench.run();
}

}  // namespace gnstor::bench
