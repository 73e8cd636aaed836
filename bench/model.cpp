// model.cpp: the cases of `bench model`: the host alone, then each profile in closed and open loop beside its
// figures.
//
// What the host can do at all is measured in the same run, without a profile: where a case wants nearly that
// much, it says something of the host and nothing of the model, and is marked so. What the host's software
// adds to the latency of one operation is measured there too, of one that is alone, and added to what the
// profile says (model_verdict.hpp).
#include "model.hpp"

#include <gnstor/base/units.hpp>

#include "memory.hpp"
#include "model_figures.hpp"
#include "model_verdict.hpp"
#include "path_options.hpp"
#include "progress.hpp"
#include "repeat.hpp"
#include "result.hpp"
#include "rig.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>

namespace gnstor::bench {
namespace {

constexpr double kIdleLoad = 0.5;  ///< of the limit: below, hardly anything queues

struct Kind {
    bool write;
    std::uint32_t bytes;
    auto operator<=>(const Kind&) const = default;
};
/// What the host does without a model.
struct HostFigures {
    double per_second = 0;  ///< at the best depth
    double alone_ns = 0;    ///< of one operation, nothing else under way, p50
    double crowded_ns = 0;  ///< of one a lane, p50
};

class ModelBench {
  public:
    ModelBench(const ModelOptions& options, std::unique_ptr<PathLanes> lanes, LaneShape shape)
        : options_(options), lanes_(std::move(lanes)), shape_(shape) {}

    Result<ModelEnd> run() {
        if (!options_.json.empty() && !std::ofstream(options_.json, std::ios::app))
            return error(Errc::kInvalidArgument, "cannot write to {}; choose another --json", options_.json);
        load_before_ = load_average();
        print_heading();
        GN_TRY(measure_host());
        for (const std::string& name : options_.profiles) {
            GN_ASSIGN(const embedded::Profile profile, embedded::load_profile(name));
            if (profile.drive.none() && profile.network.none()) continue;  // nothing to come near to
            for (const Kind& kind : kinds()) GN_TRY(measure(name, profile, kind));
        }
        progress_.clear();
        print_summary();
        if (!options_.json.empty()) GN_TRY(keep_results());
        return ModelEnd{judgement_.wrong == 0, far_};
    }

  private:
    [[nodiscard]] std::vector<Kind> kinds() const {
        std::vector<Kind> all;
        for (const bool write : {false, true})
            for (const std::uint32_t bytes : options_.sizes)
                if (write ? options_.write && bytes >= nvme::kBlockBytes : options_.read)
                    all.push_back({write, bytes});
        return all;
    }
    [[nodiscard]] double in_flight(std::uint32_t depth, std::uint32_t bytes) const {
        return double(depth) * shape_.warps * lanes_->lanes_a_warp(bytes);
    }

    void print_heading() const {
        std::printf("bench model on %s\n", lanes_->describe(shape_).c_str());
        std::printf("  array       %u SSD%s, %u replica%s, %s, %u channel%s; working set %s, random\n",
                    options_.ssds, options_.ssds == 1 ? "" : "s", options_.replicas,
                    options_.replicas == 1 ? "" : "s", describe(options_.engine).c_str(), shape_.channels,
                    shape_.channels == 1 ? "" : "s", format_bytes(options_.working_set).c_str());
        std::printf("  machine     load average %s\n\n", load_before_.c_str());
        std::fflush(stdout);
    }

    // ---- measuring

    struct Point {
        std::uint32_t depth;
        double offered;  ///< 0: closed loop
        std::string load;
        bool alone = false;  ///< one lane, one operation at a time
    };
    Result<Repeat> measure_once(const std::string& profile, const Kind& kind, const Point& point,
                                std::uint32_t repeat) {
        // Reads share an array; each repeat of writes has a new one, and ends before its drives collect
        // garbage.
        if (rig_ == nullptr || kind.write || rig_profile_ != profile || rig_write_) {
            rig_.reset();
            RigOptions o;
            o.ssds = options_.ssds;
            o.replicas = options_.replicas;
            o.engine = options_.engine;
            o.working_set = options_.working_set;
            o.write_budget = kind.write ? options_.write_budget : 0;
            o.seed = options_.seed;
            o.bytes_max = *std::max_element(options_.sizes.begin(), options_.sizes.end());
            o.profile = profile;
            GN_TRY(check_memory(o.working_set * o.replicas + o.write_budget));
            GN_ASSIGN(rig_, Rig::build(o, shape_, *lanes_));
            rig_profile_ = profile;
            rig_write_ = kind.write;
        }
        LaneShape shape = shape_;
        shape.depth = point.depth;
        shape.alone = point.alone;
        RunRequest r{};
        r.bytes = kind.bytes;
        r.write = kind.write;
        r.verify = kind.write ? Verify::kNone : Verify::kSample;
        r.working_set = options_.working_set;
        r.seed = options_.seed;
        r.order_seed = options_.seed + 1000 * (repeat + 1);
        r.seconds = options_.seconds;
        r.operations_max = kind.write ? rig_->writes_max(kind.bytes) : ~0ull;
        r.offered_per_second = point.offered;
        return run_on_array(*rig_, *lanes_, shape, r, judgement_);
    }

    /// All repeats of one point; figures that are medians.
    Result<Case> measure_point(const std::string& profile, const Kind& kind, const Point& point) {
        Case c;
        c.parameters = {{"bytes", kind.bytes},
                        {"load", point.load},
                        {"loop", point.offered > 0 ? "open" : "closed"},
                        {"operation", kind.write ? "write" : "read"},
                        {"profile", profile}};
        for (std::uint32_t i = 0; i < options_.repeats; ++i) {
            progress_.show(fmt::format("{}: {} of {} bytes, {}, repeat {}", profile,
                                       kind.write ? "writes" : "reads", kind.bytes, point.load, i + 1));
            GN_ASSIGN(Repeat repeat, measure_once(profile, kind, point, i));
            c.repeats.push_back(std::move(repeat));
        }
        return Result<Case>(std::move(c));
    }
    template <class Get>
    static double median(const Case& c, Get get) {
        std::vector<double> values;
        for (const Repeat& r : c.repeats) values.push_back(get(r));
        std::sort(values.begin(), values.end());
        return values[values.size() / 2];
    }
    static double rate_of(const Case& c) {
        return median(c, [](const Repeat& r) { return static_cast<double>(r.operations) / r.seconds; });
    }
    static double p50_ns_of(const Case& c) {
        return median(c, [](const Repeat& r) { return double(r.latency.p50_ns); });
    }

    /// As fast as this machine emulates: without a profile, and with all of the modelling but no limit that
    /// binds.
    Result<void> measure_host() {
        std::printf(
            "the host alone: first without a profile, then timed but without a limit (profile unbounded)\n");
        for (const Kind& kind : kinds()) {
            std::vector<std::uint32_t> depths = options_.depths;
            if (std::ranges::find(depths, 1u) == depths.end()) depths.insert(depths.begin(), 1);
            GN_ASSIGN(const HostFigures untimed, measure_alone("none", kind, {depths.back()}));
            GN_ASSIGN(hosts_[kind], measure_alone("unbounded", kind, depths));
            GN_ASSIGN(Case alone, measure_point("unbounded", kind, {1, 0, "one alone", true}));
            hosts_[kind].alone_ns = p50_ns_of(alone);
            cases_.push_back(std::move(alone));
            progress_.clear();
            std::printf(
                "  %-5s of %5u bytes: %9.0f per second; timed %9.0f per second; a single operation takes "
                "%.2f us: the host's part of latency (%.2f us where each lane has one in flight)\n",
                kind.write ? "write" : "read", kind.bytes, untimed.per_second, hosts_[kind].per_second,
                hosts_[kind].alone_ns / 1e3, hosts_[kind].crowded_ns / 1e3);
            std::fflush(stdout);
        }
        return {};
    }
    Result<HostFigures> measure_alone(const std::string& profile, const Kind& kind,
                                      const std::vector<std::uint32_t>& depths) {
        HostFigures host;
        for (const std::uint32_t depth : depths) {
            GN_ASSIGN(Case c, measure_point(
                                  profile, kind,
                                  {depth, 0, fmt::format("{:.0f} in flight", in_flight(depth, kind.bytes))}));
            host.per_second = std::max(host.per_second, rate_of(c));
            if (depth == 1) host.crowded_ns = p50_ns_of(c);
            cases_.push_back(std::move(c));
        }
        return host;
    }

    Result<void> measure(const std::string& name, const embedded::Profile& profile, const Kind& kind) {
        const ModelFigures figures =
            figures_of(profile, kind.write, kind.bytes, options_.ssds, options_.replicas);
        const HostFigures& host = hosts_[kind];
        GN_ASSIGN(const std::vector<double> crowded, measure_crowds(kind, figures));
        const Band latency{figures.latency_ns, figures.latency_ns + host.alone_ns};
        progress_.clear();
        std::printf(
            "\n%s, %s of %u bytes: SSDs %.0f a second, network %.0f, latency %.2f us and up to %.2f us of "
            "the "
            "host\n",
            name.c_str(), kind.write ? "writes" : "reads", kind.bytes, figures.drives_per_second,
            figures.network_per_second, figures.latency_ns / 1e3, host.alone_ns / 1e3);
        std::printf("  %-15s %20s %10s %7s %8s %9s %9s %9s %9s %8s\n", "load", "expected/s", "achieved/s",
                    "ratio", "GB/s", "mean us", "p50 us", "p99 us", "p99.9 us", "latency");
        for (const std::uint32_t depth : options_.depths) {
            const double flying = in_flight(depth, kind.bytes);
            const Band expected{std::min(figures.limit(), flying * 1e9 / latency.most),
                                std::min(figures.limit(), flying * 1e9 / latency.least)};
            const bool idle = depth == 1 && expected.most < figures.limit();
            GN_TRY(measure_beside(name, kind, {depth, 0, fmt::format("{:.0f} in flight", flying)}, figures,
                                  {expected, latency, idle, host.per_second, host.crowded_ns}));
        }
        for (std::size_t i = 0; i < options_.loads.size(); ++i) {
            const double load = options_.loads[i], offered = load * figures.limit();
            GN_TRY(measure_beside(
                name, kind, open_loop(kind, figures, load, fmt::format("{:.0f} % offered", load * 100)),
                figures, {{offered, offered}, latency, load <= kIdleLoad, host.per_second, crowded[i]}));
        }
        return {};
    }
    [[nodiscard]] Point open_loop(const Kind& kind, const ModelFigures& figures, double load,
                                  std::string name) {
        const double offered = load * figures.limit();
        // Twice what is in flight on average, so that a late one finds room.
        const double latency_ns = figures.latency_ns + hosts_[kind].crowded_ns;
        const double each = 2 * offered * latency_ns / 1e9 / in_flight(1, kind.bytes) + 4;
        const std::uint32_t depth = std::bit_ceil(static_cast<std::uint32_t>(std::min(each, 1e6)));
        return {std::min(depth, shape_.depth), offered, std::move(name)};
    }
    /// Of each load whose latency will be judged: p50 at the same rate, where nothing limits. All of them
    /// before the profile's own cases, which have another array.
    Result<std::vector<double>> measure_crowds(const Kind& kind, const ModelFigures& figures) {
        std::vector<double> crowded(options_.loads.size());
        for (std::size_t i = 0; i < options_.loads.size(); ++i) {
            const double load = options_.loads[i];
            if (load > kIdleLoad || load * figures.limit() > kHostShare * hosts_[kind].per_second) continue;
            const std::string name = fmt::format("{:.0f} a second offered", load * figures.limit());
            GN_ASSIGN(Case c, measure_point("unbounded", kind, open_loop(kind, figures, load, name)));
            crowded[i] = p50_ns_of(c);
            cases_.push_back(std::move(c));
        }
        return Result<std::vector<double>>(std::move(crowded));
    }

    Result<void> measure_beside(const std::string& name, const Kind& kind, const Point& point,
                                const ModelFigures& figures, const Expectation& said) {
        const Band& rates = said.per_second;
        const std::string expected = rates.most < rates.least * 1.001
                                         ? fmt::format("{:.0f}", rates.most)
                                         : fmt::format("{:.0f} .. {:.0f}", rates.least, rates.most);
        if (said.wants_all_of_the_host() && point.offered > 0) {
            std::printf("  %-15s %20s %10s  left out: more than the host can do\n", point.load.c_str(),
                        expected.c_str(), "-");
            ++left_out_;
            return {};
        }
        GN_ASSIGN(Case c, measure_point(name, kind, point));
        const double rate = rate_of(c);
        const double p50_ns = p50_ns_of(c);
        const Verdict verdict = verdict_of(said, rate, p50_ns);
        c.verdict = words_of(verdict);
        for (Repeat& r : c.repeats) {
            r.more["expected_per_second_least"] = rates.least;
            r.more["expected_per_second_most"] = rates.most;
            r.more["configured_limit_per_second"] = figures.limit();
            r.more["configured_latency_ns"] = figures.latency_ns;
            r.more["host_latency_ns"] = hosts_[kind].alone_ns;
            if (said.host_crowded_ns != 0) r.more["host_crowded_latency_ns"] = said.host_crowded_ns;
            r.more["bound_by_host"] = said.wants_all_of_the_host() ? 1 : 0;
        }
        ++(is_outside(verdict) ? far_ : verdict == Verdict::kWithin ? near_ : of_the_host_);
        progress_.clear();
        const auto us = [&c](auto Latency::*figure) {
            return median(c, [figure](const Repeat& r) { return double(r.latency.*figure) / 1e3; });
        };
        std::printf("  %-15s %20s %10.0f %7.3f %8.3f %9.2f %9.2f %9.2f %9.2f %8s  %s\n", point.load.c_str(),
                    expected.c_str(), rate, rates.ratio(rate), rate * kind.bytes / 1e9, us(&Latency::mean_ns),
                    us(&Latency::p50_ns), us(&Latency::p99_ns), us(&Latency::p999_ns),
                    said.idle ? fmt::format("{:.3f}", said.latency_ns.ratio(p50_ns)).c_str() : "-",
                    c.verdict.c_str());
        std::fflush(stdout);
        cases_.push_back(std::move(c));
        return {};
    }

    void print_summary() const {
        std::printf(
            "\nWithin 3 %%: %u of %u cases that the host does not limit; %u cases are limited by the host "
            "(they need more than %.0f %%\nof its throughput without a profile, or exceed the latency by no "
            "more than the host adds at that rate), %u open loops were\nleft out for this reason. Medians of "
            "%u repeats of %g s.\n"
            "expected: closed loop, the lower of the limit and the operations in flight divided by the "
            "latency of an idle array,\nwith none and with all of the host's part; open loop, the offered "
            "rate. ratio, latency: 1 within these bounds, else the\nmeasured value divided by the bound that "
            "it missed; latency is the p50 where nothing queues (open loop: up to %.0f %%\nof the limit). In "
            "an open loop, latency counts from when an operation was meant to be sent.\n",
            near_, near_ + far_, of_the_host_, kHostShare * 100, left_out_, options_.repeats,
            options_.seconds, kIdleLoad * 100);
        if (far_ != 0) std::printf("%u CASES OUTSIDE\n", far_);
        if (judgement_.wrong != 0) std::printf("SOME WRONG\n");
        std::printf("Load average of the machine: %s before, %s after.\n", load_before_.c_str(),
                    load_average().c_str());
    }

    [[nodiscard]] Result<void> keep_results() const {
        nlohmann::json configuration = {{"lanes", simt::lanes_name(lanes_->kind())},
                                        {"ssds", options_.ssds},
                                        {"replicas", options_.replicas},
                                        {"channels", shape_.channels},
                                        {"warps", shape_.warps},
                                        {"working set", format_bytes(options_.working_set)},
                                        {"seed", options_.seed},
                                        {"load average before", load_before_},
                                        {"load average after", load_average()}};
        add_to_configuration(options_.engine, configuration);
        const char* commit = std::getenv("GN_COMMIT");
        nlohmann::json run =
            to_json("model", options_.command, commit != nullptr ? commit : "unknown", configuration, cases_);
        if (!lanes_->gpu_name().empty()) run["machine"]["gpu"] = lanes_->gpu_name();
        GN_TRY(write_json(options_.json, run));
        std::printf("Raw result: %s\n", options_.json.c_str());
        return {};
    }

    const ModelOptions options_;
    const std::unique_ptr<PathLanes> lanes_;
    const LaneShape shape_;
    Progress progress_;
    std::unique_ptr<Rig> rig_;
    std::string rig_profile_, load_before_;
    bool rig_write_ = false;
    std::map<Kind, HostFigures> hosts_;
    std::vector<Case> cases_;
    std::uint32_t near_ = 0, far_ = 0, of_the_host_ = 0, left_out_ = 0;
    Judgement judgement_;
};

Result<void> check_model_options(const ModelOptions& o) {
    if (o.depths.empty() || std::ranges::any_of(o.depths, [](std::uint32_t d) { return d == 0; }))
        return error(Errc::kInvalidArgument, "--depths takes numbers of at least 1");
    for (const double load : o.loads)
        if (!(load > 0) || load > 1)
            return error(Errc::kInvalidArgument, "--loads takes shares above 0 and up to 1, not {}", load);
    if (o.profiles.empty())
        return error(Errc::kInvalidArgument, "nothing to measure: name at least one profile with --profiles");
    for (const std::string& name : o.profiles)
        if (const auto profile = embedded::load_profile(name); !profile.ok()) return profile.error();
    return {};
}

}  // namespace

Result<ModelEnd> run_model(const ModelOptions& given) {
    ModelOptions options = given;
    GN_TRY(check_model_options(options));
    GN_TRY(simt::check_lanes(options.lanes));
    const bool gpu = options.lanes == simt::LanesKind::kGpu;
    std::unique_ptr<PathLanes> lanes = gpu ? make_gpu_path_lanes() : make_cpu_path_lanes();
    if (!lanes)
        return error(Errc::kUnsupported, "this build has no GPU lanes; build with nvcc, or use --lanes cpu");
    GN_ASSIGN(options.engine, complete(options.engine));
    for (std::uint32_t& depth : options.depths) depth = std::min(depth, lanes->depth_max());
    options.depths.erase(std::unique(options.depths.begin(), options.depths.end()), options.depths.end());
    PathOptions path;  // the checks of `bench path`, for what both have
    path.sizes = options.sizes;
    path.read = options.read;
    path.write = options.write;
    path.repeats = options.repeats;
    path.seconds = options.seconds;
    path.ssds = options.ssds;
    path.replicas = options.replicas;
    path.working_set = options.working_set;
    path.channels = options.channels;
    path.warps = options.warps;
    path.depth = lanes->depth_max();
    GN_TRY(check_options(path));
    GN_ASSIGN(const LaneShape shape, choose_shape(path, *lanes, options.engine.threads));
    ModelBench bench(options, std::move(lanes), shape);
    return bench.run();
}

}  // namespace gnstor::bench
