#include "pool.hpp"

#include <gnstor/base/units.hpp>
#include <gnstor/simt/launch.hpp>

#include "deengine.hpp"
#include "gnor/pool_plan.hpp"
#include "pool_mix.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

namespace gnstor::bench {
namespace {

using namespace pool_bench;

struct Share {
    std::uint32_t blocks;
    std::uint32_t percent;  ///< of the requests
};
/// What I/O asks for: sectors and blocks, chunks, and some of all that lies between.
constexpr Share kMix[] = {{1, 56}, {2, 6}, {4, 4}, {16, 28}, {64, 3}, {kLarge, 3}};

std::vector<std::uint32_t> draw_sizes(std::uint64_t seed) {
    SplitMix64 random(seed);
    std::vector<std::uint32_t> sizes;
    while (sizes.size() < kDraws) {
        auto at = static_cast<std::uint32_t>(random.below(100));
        const Share* share = kMix;
        for (; at >= share->percent; ++share) at -= share->percent;
        sizes.push_back(share->blocks);
    }
    return sizes;
}

/// One case: an allocator with its memory, used by some lanes.
class PoolCase {
  public:
    PoolCase(const PoolBenchOptions& options, std::uint32_t lanes)
        : options_(options),
          lanes_(lanes),
          plan_(gnor::PoolPlan::of({options.pool_bytes, 0})),
          blocks_(plan_.blocks),
          sizes_(draw_sizes(options.seed)) {}

    template <class Allocator>
    Result<Repeat> run() {
        length_.assign(blocks_, 0);
        next_.assign(blocks_, 0);
        const std::uint32_t high = blocks_ / 100 * options_.high_percent / lanes_;
        const std::uint32_t low = blocks_ / 100 * options_.low_percent / lanes_;
        held_.assign(std::size_t{lanes_} * (high + kLarge), 0);
        logs_.assign(lanes_, {});
        const Allocator allocator = make(static_cast<Allocator*>(nullptr));
        const MixLane<Allocator> lane{
            allocator,    {length_.data(), next_.data()}, sizes_.data(), held_.data(),
            logs_.data(), options_.allocations / lanes_,  low,           high,
            options_.seed};
        simt::LaunchOptions launch;
        launch.cpu_workers = lanes_;
        launch.timeout_ns = 3600ull * 1'000'000'000;
        const deengine_bench::Stopwatch watch;
        GN_TRY(simt::launch(simt::LanesKind::kCpu, lanes_, 1, lane, launch));
        Repeat r = sum_of_lanes(watch.seconds());
        probe(allocator, lane.pieces, r);
        GN_TRY(give_all_back(lane, high + kLarge));
        return r;
    }

  private:
    Levels make(Levels*) {
        words_.assign(plan_.words, 0);
        const gnor::LevelsRef levels(&plan_.levels, &plan_.steps[0], words_.data());
        levels.give(0, blocks_);
        return Levels{levels};
    }
    Bitmap make(Bitmap*) { return Bitmap{full(), blocks_ / 64}; }
    FirstFit make(FirstFit*) { return FirstFit{full(), blocks_ / 64}; }
    std::uint64_t* full() {
        words_.assign(blocks_ / 64, ~0ull);
        return words_.data();
    }

    Repeat sum_of_lanes(double seconds) const {
        LaneLog all{};
        for (const LaneLog& log : logs_) {
            all.allocations += log.allocations;
            all.frees += log.frees;
            all.failed += log.failed;
            all.alloc_ns += log.alloc_ns;
            all.free_ns += log.free_ns;
            all.large += log.large;
            all.large_pieces += log.large_pieces;
        }
        Repeat r = deengine_bench::repeat_of(seconds, all.allocations + all.frees);
        const auto each = [](std::uint64_t n, std::uint64_t of) {
            return of == 0 ? 0.0 : static_cast<double>(n) / static_cast<double>(of);
        };
        r.more["alloc_ns"] = each(all.alloc_ns, all.allocations);
        r.more["free_ns"] = each(all.free_ns, all.frees);
        r.more["failed_share"] = each(all.failed, all.allocations);
        r.more["fragments_while_running"] = each(all.large_pieces, all.large);
        return r;
    }

    /// Runs of 1 MiB for as long as half of what is free lasts; each counted in pieces that do not touch.
    template <class Allocator>
    void probe(const Allocator& from, const Pieces& pieces, Repeat& r) {
        std::uint32_t held = 0;
        for (std::size_t i = 0; i < lanes_; ++i)
            for (std::uint32_t k = 0; k < logs_[i].held; ++k)
                for (std::uint32_t p = held_[i * (held_.size() / lanes_) + k]; p != kNone; p = next_[p])
                    held += length_[p];
        const std::uint32_t wanted = std::max(1u, (blocks_ - held) / kLarge / 2);
        std::vector<std::uint32_t> heads;
        std::uint64_t fragments = 0;
        for (std::uint32_t i = 0; i < wanted; ++i) {
            std::uint32_t apart = 0;
            const std::uint32_t head = take_pieces(from, pieces, kLarge, i, apart);
            if (head == kNone) break;
            heads.push_back(head);
            std::vector<std::uint32_t> firsts;
            for (std::uint32_t p = head; p != kNone; p = next_[p]) firsts.push_back(p);
            std::sort(firsts.begin(), firsts.end());
            for (std::size_t k = 0; k < firsts.size(); ++k)
                fragments += k == 0 || firsts[k - 1] + length_[firsts[k - 1]] != firsts[k] ? 1 : 0;
        }
        for (const std::uint32_t head : heads)
            for (std::uint32_t p = head; p != kNone; p = next_[p]) from.give(p, length_[p]);
        r.more["fragments_after"] =
            heads.empty() ? kNotMeasured : static_cast<double>(fragments) / static_cast<double>(heads.size());
        r.more["requests_after"] = static_cast<double>(heads.size());
        r.more["occupancy_after"] = static_cast<double>(held) / blocks_;
    }

    /// And with them goes the proof that none was lost or given twice.
    template <class Lane>
    Result<void> give_all_back(const Lane& lane, std::size_t stride) {
        for (std::size_t i = 0; i < lanes_; ++i)
            for (std::uint32_t k = 0; k < logs_[i].held; ++k) (void)lane.give_request(held_[i * stride + k]);
        const std::uint32_t free = count_free(lane.from);
        if (free == blocks_) return {};
        return error(Errc::kState,
                     "after all allocations were freed, the pool of {} blocks has only {} free blocks",
                     blocks_, free);
    }
    std::uint32_t count_free(const Levels& l) const { return l.levels.count_free(); }
    template <class Any>
    std::uint32_t count_free(const Any& b) const {
        return gnor::count_free(b.words, b.count);
    }

    const PoolBenchOptions& options_;
    const std::uint32_t lanes_;
    const gnor::PoolPlan plan_;
    const std::uint32_t blocks_;
    const std::vector<std::uint32_t> sizes_;
    std::vector<std::uint64_t> words_;
    std::vector<std::uint32_t> length_, next_, held_;
    std::vector<LaneLog> logs_;
};

Result<void> check(const PoolBenchOptions& o) {
    const auto within = [](const char* option, std::uint64_t value, std::uint64_t least,
                           std::uint64_t most) -> Result<void> {
        if (value >= least && value <= most) return {};
        return error(Errc::kInvalidArgument, "{} takes {} to {}, not {}", option, least, most, value);
    };
    GN_TRY(within("--allocations", o.allocations, 1000, 100'000'000'000));
    GN_TRY(within("--repeats", o.repeats, 1, 1000));
    GN_TRY(within("--most-lanes", o.lanes_most, 1, 256));
    GN_TRY(within("--high", o.high_percent, 2, 95));
    GN_TRY(within("--low", o.low_percent, 1, o.high_percent - 1));
    GN_TRY(gnor::check_pool({o.pool_bytes, 0}));
    if (o.pool_bytes / (4ull << 20) < o.lanes_most)
        return error(Errc::kInvalidArgument,
                     "--pool {} is too small for {} lanes: give at least 4 MiB per lane",
                     format_bytes(o.pool_bytes), o.lanes_most);
    if (!o.json.empty() && !std::ofstream(o.json, std::ios::app))
        return error(Errc::kInvalidArgument, "cannot write to {}; choose another --json", o.json);
    return {};
}

Result<void> keep(const PoolBenchOptions& o, const std::vector<Case>& cases) {
    nlohmann::json mix;
    for (const Share& s : kMix) mix[std::to_string(s.blocks * 4) + " KiB"] = s.percent;
    const nlohmann::json configuration = {{"lanes", "cpu"},
                                          {"pool", format_bytes(o.pool_bytes)},
                                          {"allocations", o.allocations},
                                          {"percent in use", {o.low_percent, o.high_percent}},
                                          {"percent of requests", mix},
                                          {"seed", o.seed}};
    const char* commit = std::getenv("GN_COMMIT");
    GN_TRY(write_json(
        o.json, to_json("pool", o.command, commit != nullptr ? commit : "unknown", configuration, cases)));
    std::printf("Raw result: %s\n", o.json.c_str());
    return {};
}

template <class Allocator>
deengine_bench::Step step(const PoolBenchOptions& options, const char* name, std::uint32_t lanes) {
    return {{{"allocator", name}, {"lanes", lanes}, {"cores", lanes}},
            [&options, lanes]() -> Result<Repeat> { return PoolCase(options, lanes).run<Allocator>(); }};
}

}  // namespace

void add_pool_options(CLI::App& app, PoolBenchOptions& o, PoolBenchWords& words) {
    app.add_option("--allocations", o.allocations, "allocations in one repeat, all lanes together")
        ->capture_default_str();
    app.add_option("--pool", words.pool, "size of the pool, a multiple of 256KiB")->capture_default_str();
    app.add_option("--repeats", o.repeats, "how often each case is measured")->capture_default_str();
    app.add_option("--most-lanes", o.lanes_most,
                   "the cases are 1 lane and this number of lanes; 0: one lane per core")
        ->capture_default_str();
    app.add_option("--low", o.low_percent,
                   "percentage of the pool in use below which lanes allocate instead of freeing")
        ->capture_default_str();
    app.add_option("--high", o.high_percent,
                   "percentage of the pool in use above which lanes free instead of allocating")
        ->capture_default_str();
    app.add_option("--lanes", words.lanes,
                   "accepted because ./run passes the option to every benchmark; this benchmark always runs "
                   "CPU lanes")
        ->check(CLI::IsMember({"cpu", "gpu"}));
    app.add_option("--seed", o.seed, "seed of the sizes and of the order of allocations")
        ->capture_default_str();
    app.add_option("--json", o.json, "keep the raw result in this file (docs/runs/README.md)");
    app.footer(
        "Examples:\n"
        "  gnstor bench pool --allocations 1000000 --most-lanes 1\n"
        "  gnstor bench pool --pool 16MiB --most-lanes 2 --high 80 --low 70 --json pool.json");
}

Result<void> read_pool_words(const PoolBenchWords& words, PoolBenchOptions& o) {
    GN_ASSIGN(o.pool_bytes, parse_bytes(words.pool));
    if (words.lanes == "gpu")
        std::fprintf(stderr,
                     "bench pool has no GPU kernel and runs CPU lanes although --lanes gpu was given\n");
    if (o.lanes_most == 0) o.lanes_most = std::max(1u, std::thread::hardware_concurrency());
    return {};
}

Result<bool> run_pool(const PoolBenchOptions& options) {
    GN_TRY(check(options));
    std::printf(
        "bench pool on %s: %s, %llu allocations a repeat, between %u and %u %% in use\n",
        describe_machine()["cpu"].get<std::string>().c_str(), format_bytes(options.pool_bytes).c_str(),
        static_cast<unsigned long long>(options.allocations), options.low_percent, options.high_percent);
    std::vector<deengine_bench::Step> steps;
    for (std::uint32_t lanes = 1;; lanes = options.lanes_most) {
        steps.push_back(step<Levels>(options, "levels of 4 KiB, 64 KiB, 1 MiB", lanes));
        steps.push_back(step<Bitmap>(options, "single-size bitmap", lanes));
        steps.push_back(step<FirstFit>(options, "single-size bitmap, first fit", lanes));
        if (lanes == options.lanes_most) break;
    }
    GN_ASSIGN(const std::vector<Case> cases,
              deengine_bench::measure("pool", options.repeats, std::move(steps)));
    std::printf("\n%s", cost_table(cases).c_str());
    std::printf(
        "\nMedian over %u repeats (least .. most); cases take turns within every repeat. ns: time per "
        "operation (allocation or free) and lane;\nfragments: number of pieces in which a request of 1 MiB "
        "is served, after all allocations and during them.\n",
        options.repeats);
    if (!options.json.empty()) GN_TRY(keep(options, cases));
    return true;
}

}  // namespace gnstor::bench
