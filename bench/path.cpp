// path.cpp: the cases of `bench path` and their repeats.
#include "path.hpp"

#include "fio.hpp"
#include "memory.hpp"
#include "path_options.hpp"
#include "path_report.hpp"
#include "progress.hpp"
#include "repeat.hpp"
#include "rig.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>

namespace gnstor::bench {
namespace {

constexpr std::uint64_t kNoQuota = ~0ull;  // copies need no free pages

class PathBench {
  public:
    PathBench(const PathOptions& options, std::unique_ptr<PathLanes> lanes, LaneShape shape)
        : options_(options), lanes_(std::move(lanes)) {
        summary_.shape = shape;
        summary_.lanes = lanes_->describe(shape);
        if (shape.alone)
            summary_.lanes += "; only one lane works, with one operation at a time, on its own channel";
        summary_.gpu = lanes_->gpu_name();
    }

    Result<bool> run() {
        GN_TRY(check_memory());
        // Before minutes of measuring: can the result be kept?
        if (!options_.json.empty() && !std::ofstream(options_.json, std::ios::app))
            return error(Errc::kInvalidArgument, "cannot write to {}; choose another --json", options_.json);
        open_fio();
        summary_.load_before = load_average();
        if (to_people()) print_heading(options_, summary_);
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
        const nlohmann::json result = result_of(options_, summary_, cases_);
        if (!options_.json.empty()) GN_TRY(write_json(options_.json, result));
        if (to_people())
            print_results(options_, summary_, cases_);
        else
            std::printf("%s\n", result.dump(1).c_str());
        return summary_.judgement.wrong == 0;
    }

  private:
    [[nodiscard]] bool to_people() const { return options_.output != "json"; }

    /// The ways that a case of one size and operation is measured, in turn within every repeat.
    struct Ways {
        Case array, plain, fio, fio_sqpoll;
        Case grid, steps;  ///< of a single lane
    };

    void count_steps(std::uint32_t bytes) {
        const std::uint32_t ways =
            (options_.alone ? 3 : 1) + (options_.reference ? 1 : 0) + (fio_ == nullptr ? 0 : fio_ways());
        if (options_.read) steps_ += ways * options_.repeats;
        if (options_.write && bytes >= nvme::kBlockBytes) steps_ += ways * options_.repeats;
    }
    [[nodiscard]] std::uint32_t fio_ways() const { return options_.fio_sqpoll ? 2 : 1; }

    Result<void> check_memory() const {
        const std::uint64_t copies = 1 + options_.replicas;
        const std::uint64_t array = options_.working_set * options_.replicas + options_.write_budget;
        const bool in_memory = options_.store.empty() && options_.served.array.empty();
        return bench::check_memory((in_memory ? array : 0) +
                                   (options_.reference ? options_.working_set * copies : 0) +
                                   (options_.fio && in_memory ? options_.working_set : 0));
    }

    // ---- fio

    [[nodiscard]] std::string why_no_fio() const {
        if (!options_.fio) return "left out because of --no-fio";
        if (options_.lanes != simt::LanesKind::kCpu)
            return "left out: fio is compared with CPU lanes only, which use the same cores";
        if (!options_.served.array.empty())
            return "left out: the benchmark does not know where an array of other processes (--array) keeps "
                   "its stores";
        if (options_.profile != "none")
            return "left out: the array imitates the timing of modelled hardware (--profile), fio does not";
        if (options_.rate > 0)
            return "left out: in an open loop (--rate) fio counts latency from another moment";
        return "";
    }
    /// Without fio the run continues, and its report says that fio is left out.
    void open_fio() {
        summary_.fio = why_no_fio();
        if (!summary_.fio.empty()) return;
        progress_.show("filling a file for fio");
        auto opened = Fio::open(options_.store, options_.working_set);
        auto tried = opened.ok() ? (*opened)->run(fio_run(options_.sizes.back(), false, 0, false, 0.02))
                                 : Result<Repeat>(opened.error());
        if (tried.ok() && options_.fio_sqpoll)
            tried = (*opened)->run(fio_run(options_.sizes.back(), false, 0, true, 0.02));
        if (!tried.ok()) {
            summary_.fio = "LEFT OUT: " + tried.error().message;
            return;
        }
        fio_ = std::move(*opened);
        summary_.fio = fmt::format(
            "{} with io_uring, {} thread{} with {} in flight each, on a file of {} {}{}; one copy, nothing "
            "checked",
            fio_->version(), summary_.shape.warps, summary_.shape.warps == 1 ? "" : "s", summary_.shape.depth,
            format_bytes(options_.working_set),
            fio_->in_memory() ? "in memory (tmpfs)" : "in the stores' folder",
            fmt::format("{}{}", options_.direct_io ? ", O_DIRECT" : ", buffered",
                        writes_sync() ? ", writes O_DSYNC" : ""));
    }
    /// As the array's stores promise.
    [[nodiscard]] bool writes_sync() const {
        return !options_.store.empty() && options_.durability != SsdDurability::kProcess;
    }
    [[nodiscard]] FioRun fio_run(std::uint32_t bytes, bool write, std::uint32_t repeat, bool sqpoll,
                                 double seconds) const {
        FioRun r;
        r.bytes = bytes;
        r.write = write;
        r.depth = summary_.shape.depth;
        r.threads = summary_.shape.warps;
        r.seconds = seconds;
        r.order_seed = options_.seed + 1000 * (repeat + 1);
        r.dsync = writes_sync();
        r.direct = options_.direct_io;
        r.sqpoll = sqpoll;
        return r;
    }
    Result<void> measure_fio(Case& c, const RunRequest& r, std::uint32_t repeat, bool sqpoll) {
        announce(c, r);
        GN_ASSIGN(Repeat done, fio_->run(fio_run(r.bytes, r.write, repeat, sqpoll, options_.seconds)));
        c.repeats.push_back(std::move(done));
        return {};
    }

    // ---- cases

    Result<void> measure_reads() {
        GN_TRY(renew_rig(0));
        for (const std::uint32_t bytes : options_.sizes) {
            Ways ways = new_ways("read", bytes);
            for (std::uint32_t i = 0; i < options_.repeats; ++i) {
                const RunRequest r = request(bytes, false, i);
                GN_TRY(measure_beside(ways, r, i));
                if (!options_.alone) GN_TRY(measure_array(ways.array, r));
                for (const SingleLane& way : single_lanes(ways)) GN_TRY(measure_alone(way, r));
            }
            keep(std::move(ways));
        }
        return {};
    }

    Result<void> measure_writes() {
        for (const std::uint32_t bytes : options_.sizes) {
            if (bytes < nvme::kBlockBytes) continue;
            Ways ways = new_ways("write", bytes);
            for (std::uint32_t i = 0; i < options_.repeats; ++i) {
                RunRequest r = request(bytes, true, i);
                GN_TRY(measure_beside(ways, r, i));
                const auto once = [&](auto measure) -> Result<void> {
                    rig_.reset();
                    GN_TRY(renew_rig(options_.write_budget));
                    r.operations_max = rig_->writes_max(bytes);
                    GN_TRY(measure());
                    return compare_all();
                };
                if (!options_.alone) GN_TRY(once([&] { return measure_array(ways.array, r); }));
                for (const SingleLane& way : single_lanes(ways))
                    GN_TRY(once([&] { return measure_alone(way, r); }));
            }
            keep(std::move(ways));
        }
        return {};
    }

    /// What the array is held against, in the same repeat.
    Result<void> measure_beside(Ways& ways, const RunRequest& r, std::uint32_t repeat) {
        if (options_.reference) {
            announce(ways.plain, r);
            GN_ASSIGN(Repeat done, run_on_memory(reference_, *lanes_, summary_.shape, r, summary_.judgement));
            ways.plain.repeats.push_back(std::move(done));
        }
        if (fio_ == nullptr) return {};
        GN_TRY(measure_fio(ways.fio, r, repeat, false));
        if (options_.fio_sqpoll) GN_TRY(measure_fio(ways.fio_sqpoll, r, repeat, true));
        return {};
    }
    Result<void> measure_array(Case& c, const RunRequest& r) {
        announce(c, r);
        GN_ASSIGN(Repeat done, run_on_array(*rig_, *lanes_, summary_.shape, r, summary_.judgement));
        c.repeats.push_back(std::move(done));
        return {};
    }

    /// How a single lane is measured: on a channel of its own by the synchronous calls, the same step by
    /// step, and on a channel that the whole grid might use.
    struct SingleLane {
        Case* into;
        Sharing sharing;
        bool stepwise;
    };
    [[nodiscard]] std::vector<SingleLane> single_lanes(Ways& ways) const {
        if (!options_.alone) return {};
        return {{&ways.array, Sharing::kLane, false},
                {&ways.steps, Sharing::kLane, true},
                {&ways.grid, Sharing::kGrid, false}};
    }
    Result<void> measure_alone(const SingleLane& way, const RunRequest& r) {
        announce(*way.into, r);
        LaneShape shape = summary_.shape;
        shape.sharing = way.sharing;
        shape.stepwise = way.stepwise;
        GN_TRY(rig_->share_channels(way.sharing));
        GN_ASSIGN(Repeat done, run_on_array(*rig_, *lanes_, shape, r, summary_.judgement));
        way.into->repeats.push_back(std::move(done));
        // Filling and reading back are the whole grid's work.
        return rig_->share_channels(Sharing::kGrid);
    }

    Result<void> renew_rig(std::uint64_t write_budget) {
        progress_.show(fmt::format("[{}/{}] filling a new {}", step_, steps_,
                                   options_.served.array.empty() ? "array" : "volume"));
        RigOptions o;
        o.ssds = options_.ssds;
        o.replicas = options_.replicas;
        o.engine = options_.engine;
        o.working_set = options_.working_set;
        o.write_budget = write_budget;
        o.seed = options_.seed;
        o.bytes_max = options_.sizes.back();
        o.store = options_.store;
        o.durability = options_.durability;
        o.direct_io = options_.direct_io;
        o.profile = options_.profile;
        o.served = options_.served;
        GN_ASSIGN(rig_, Rig::build(o, summary_.shape, *lanes_));
        summary_.wire = rig_->bed().array().wire();
        return {};
    }

    Result<void> compare_all() {
        progress_.show(fmt::format("[{}/{}] reading the working set back", step_, steps_));
        GN_ASSIGN(const std::uint64_t wrong, lanes_->check(summary_.shape, rig_->client(), rig_->volume(),
                                                           options_.working_set, options_.seed));
        summary_.compared_blocks += options_.working_set / nvme::kBlockBytes;
        if (wrong == 0) return {};
        summary_.judgement.wrong += wrong;
        std::fprintf(stderr, "WRONG: after writing, %llu blocks do not hold what was written\n",
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
        r.operations_max = kNoQuota;
        r.offered_per_second = options_.rate;
        return r;
    }
    [[nodiscard]] Ways new_ways(const char* operation, std::uint32_t bytes) const {
        const auto named = [&](const char* path) {
            Case c;
            c.parameters = {{"operation", operation}, {"bytes", bytes}, {"path", path}};
            if (options_.rate > 0) c.parameters["load"] = fmt::format("open loop, {:.0f}/s", options_.rate);
            return c;
        };
        return {named("array"),
                named("plain copy"),
                named("fio io_uring"),
                named("fio io_uring SQPOLL"),
                named("array, channel of the grid"),
                named("array, step by step")};
    }
    void keep(Ways ways) {
        for (Case* c : {&ways.array, &ways.steps, &ways.grid, &ways.plain, &ways.fio, &ways.fio_sqpoll})
            if (!c->repeats.empty()) cases_.push_back(std::move(*c));
    }
    void announce(const Case& c, const RunRequest& r) {
        ++step_;
        progress_.show(fmt::format("[{}/{}] {} of {} bytes, {}", step_, steps_, r.write ? "writes" : "reads",
                                   r.bytes, c.parameters["path"].get<std::string>()));
    }

    const PathOptions options_;
    const std::unique_ptr<PathLanes> lanes_;
    PathSummary summary_;
    Progress progress_;
    std::unique_ptr<Fio> fio_;
    ReferenceMemory reference_;
    std::unique_ptr<Rig> rig_;
    std::vector<Case> cases_;
    std::uint32_t step_ = 0, steps_ = 0;
};

}  // namespace

Result<bool> run_path(const PathOptions& given) {
    PathOptions options = given;
    if (!options.served.array.empty()) {
        GN_ASSIGN(options.ssds, served_ssds(options.served));
    }
    GN_TRY(check_options(options));
    GN_TRY(simt::check_lanes(options.lanes));
    const bool gpu = options.lanes == simt::LanesKind::kGpu;
    std::unique_ptr<PathLanes> lanes = gpu ? make_gpu_path_lanes() : make_cpu_path_lanes();
    if (!lanes)
        return error(Errc::kUnsupported, "this build has no GPU lanes; build with nvcc, or use --lanes cpu");
    GN_ASSIGN(options.engine, complete(options.engine));
    if (options.write_budget == 0) options.write_budget = (gpu ? 16ull : 2ull) << 30;
    if (options.rate > 0) options.reference = false;  // a copy has nothing to wait for
    if (options.alone) options.reference = false;     // copies are a warp's work
    GN_ASSIGN(const LaneShape shape, choose_shape(options, *lanes, options.engine.threads));
    std::sort(options.sizes.begin(), options.sizes.end());
    options.sizes.erase(std::unique(options.sizes.begin(), options.sizes.end()), options.sizes.end());
    PathBench bench(options, std::move(lanes), shape);
    return bench.run();
}

}  // namespace gnstor::bench
