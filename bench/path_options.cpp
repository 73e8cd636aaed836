// path_options.cpp: `bench path` on the command line, and checks of its options.
#include "path_options.hpp"

#include <gnstor/base/units.hpp>

#include "served_options.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

namespace gnstor::bench {
namespace {

constexpr std::uint32_t kSizeMin = 512, kSizeMax = 65536;
constexpr std::uint64_t kWorkingSetMax = 1ull << 40;
constexpr double kRateMax = 1e9;

constexpr char kPathExamples[] =
    "Examples:\n"
    "  gnstor bench path --sizes 4096 --ops read --output json\n"
    "  gnstor bench path --sizes 512,4096 --ops read --rate 50000    (open loop: latency at a load below the "
    "most)\n"
    "  gnstor bench path --engine-threads 2 --nic-threads 1 --service-units 2 --ssds 2 --json path.json\n"
    "  gnstor bench path --profile gnstor-paper --sizes 65536 --ops read    (modelled SSDs and network)\n"
    "  gnstor bench path --array unix:.gnstor/gnstord.sock --sizes 4096    (after 'gnstor up --nodes 2')\n"
    "  gnstor bench path --store . --durability power --sizes 4096 --ops write    (drives in files of this "
    "folder)";

}  // namespace

void add_path_options(CLI::App& path, PathOptions& o, PathWords& words) {
    path.add_option("--lanes", words.lanes, "what runs the kernels: cpu or gpu")->capture_default_str();
    path.add_option("--sizes", o.sizes,
                    "bytes per operation, powers of two from 512 to 65536; several separated by commas")
        ->delimiter(',')
        ->capture_default_str();
    path.add_option("--ops", words.operations, "read, write or both, separated by commas")
        ->delimiter(',')
        ->check(CLI::IsMember({"read", "write"}))
        ->capture_default_str();
    path.add_option("--repeats", o.repeats, "how often each case is measured")->capture_default_str();
    path.add_option("--seconds", o.seconds, "duration of one repeat")->capture_default_str();
    path.add_option("--ssds", o.ssds, "how many SSDs")->capture_default_str();
    path.add_option("--replicas", o.replicas, "number of replicas of every block")->capture_default_str();
    path.add_option("--channels", o.channels, "channels that the warps share; 0: chosen to fit the lanes")
        ->capture_default_str();
    path.add_option("--warps", o.warps,
                    "number of warps; 0: chosen to fit the lanes; on CPU lanes each warp is a thread")
        ->capture_default_str();
    path.add_option("--depth", o.depth, "operations in flight per lane; 0: chosen automatically")
        ->capture_default_str();
    path.add_flag(
        "--alone", o.alone,
        "measure the latency of a single operation: only one lane works, with one operation at a time");
    add_engine_options(path, o.engine);
    path.add_option("--working-set", words.working_set, "bytes that are read and written, such as 256MiB")
        ->capture_default_str();
    path.add_option("--write-budget", words.write_budget,
                    "most bytes that the writes of one repeat program on all SSDs together (default: 2GiB, "
                    "GPU lanes 16GiB)");
    path.add_option("--seed", o.seed, "seed of the contents and of the order of operations")
        ->capture_default_str();
    path.add_option(
            "--verify", words.verify,
            "which reads are compared word by word with what was written: all, sample (one in 16) or none")
        ->check(CLI::IsMember({"all", "sample", "none"}))
        ->capture_default_str();
    path.add_option("--rate", o.rate,
                    "open loop: operations per second that all lanes together mean to send; 0: closed loop, "
                    "as many as possible")
        ->capture_default_str();
    path.add_flag("!--no-reference", o.reference, "do not measure plain memory copies for comparison");
    path.add_flag("!--no-fio", o.fio,
                  "do not measure fio for comparison (fio is measured with CPU lanes if it is installed)");
    path.add_flag("--fio-sqpoll", o.fio_sqpoll,
                  "also measure fio with SQPOLL: a kernel thread polls its submission queue");
    path.add_option(
            "--store", o.store,
            "folder for the drives' stores during the benchmark (default: drives keep their data in memory)")
        ->check(CLI::ExistingDirectory);
    path.add_option("--durability", o.durability, "durability of stores in files: process or power")
        ->transform(CLI::CheckedTransformer(std::map<std::string, SsdDurability>{
            {"process", SsdDurability::kProcess}, {"power", SsdDurability::kPower}}))
        ->option_text("process|power");
    path.add_flag("--direct", o.direct_io, "access the stores without the page cache (O_DIRECT)");
    path.add_option("--profile", o.profile, kProfileHelp)->capture_default_str();
    add_served_options(path, o.served,
                       "the benchmark creates a volume there, reads and writes it, and removes it at the end",
                       {"--ssds", "--engine-threads", "--nic-threads", "--service-units", "--profile",
                        "--write-budget", "--store", "--durability", "--direct"});
    path.add_option("--json", o.json, "keep the raw result in this file (docs/runs/README.md)");
    path.add_option("--output", o.output, "format of the result on standard output: table or json")
        ->check(CLI::IsMember({"table", "json"}));
    path.footer(kPathExamples);
}

Result<void> read_path_words(const PathWords& words, PathOptions& o) {
    GN_ASSIGN(o.lanes, simt::parse_lanes(words.lanes));
    o.read = std::find(words.operations.begin(), words.operations.end(), "read") != words.operations.end();
    o.write = std::find(words.operations.begin(), words.operations.end(), "write") != words.operations.end();
    GN_ASSIGN(o.working_set, parse_bytes(words.working_set));
    if (!words.write_budget.empty()) {
        GN_ASSIGN(o.write_budget, parse_bytes(words.write_budget));
        if (o.write_budget < (1u << 20))
            return error(Errc::kInvalidArgument, "--write-budget takes at least 1MiB, not {}",
                         words.write_budget);
    }
    o.verify = words.verify == "none"     ? Verify::kNone
               : words.verify == "sample" ? Verify::kSample
                                          : Verify::kAll;
    return {};
}

const char* verify_words(Verify verify) {
    switch (verify) {
        case Verify::kAll:
            return "every word of every read";
        case Verify::kSample:
            return "every word of one read in 16";
        case Verify::kNone:
            break;
    }
    return "nothing";
}

Result<void> check_options(const PathOptions& o) {
    if (o.sizes.empty() || (!o.read && !o.write))
        return error(Errc::kInvalidArgument,
                     "nothing to measure: name sizes with --sizes and read or write with --ops");
    for (const std::uint32_t bytes : o.sizes)
        if (bytes < kSizeMin || bytes > kSizeMax || !std::has_single_bit(bytes))
            return error(Errc::kInvalidArgument, "--sizes takes powers of two from {} to {}, not {}",
                         kSizeMin, kSizeMax, bytes);
    if (!o.read && *std::max_element(o.sizes.begin(), o.sizes.end()) < nvme::kBlockBytes)
        return error(Errc::kInvalidArgument,
                     "nothing to measure: the array writes whole blocks of 4096 bytes, smaller writes are "
                     "not possible; add a larger size to --sizes or read to --ops");
    if (o.repeats == 0 || o.repeats > 1000)
        return error(Errc::kInvalidArgument, "--repeats takes 1 to 1000, not {}", o.repeats);
    if (!(o.seconds > 0) || o.seconds > 600)
        return error(Errc::kInvalidArgument, "--seconds takes more than 0 and up to 600, not {}", o.seconds);
    if (!(o.rate >= 0) || o.rate > kRateMax)
        return error(Errc::kInvalidArgument,
                     "--rate takes 0 (a closed loop) to {:.0f} operations a second, not {}", kRateMax,
                     o.rate);
    if (o.ssds == 0 || o.ssds > placement::kMaxSlots)
        return error(Errc::kInvalidArgument, "--ssds takes 1 to {}, not {}", placement::kMaxSlots, o.ssds);
    if (o.replicas == 0 || o.replicas > placement::kMaxReplicas || o.replicas > o.ssds)
        return error(Errc::kInvalidArgument,
                     "--replicas takes 1 to {} and at most the number of SSDs ({}), not {}",
                     placement::kMaxReplicas, o.ssds, o.replicas);
    if (o.working_set < (1u << 20) || o.working_set > kWorkingSetMax || o.working_set % kSizeMax != 0)
        return error(Errc::kInvalidArgument,
                     "--working-set takes 1 MiB to 1 TiB in multiples of 64 KiB, not {} bytes",
                     o.working_set);
    return {};
}

Result<LaneShape> choose_shape(const PathOptions& o, const PathLanes& lanes, std::uint32_t engine_threads) {
    LaneShape shape = lanes.default_shape(engine_threads);
    if (o.alone) {
        if (o.warps != 0 || o.channels != 0 || o.depth != 0 || o.rate > 0)
            return error(Errc::kInvalidArgument,
                         "--alone measures one lane with one operation in flight: leave --warps, --channels, "
                         "--depth and --rate "
                         "out");
        return LaneShape{lanes.warps_grain(), 1, 1, true};
    }
    if (o.warps != 0) {
        shape.warps = o.warps;
        shape.channels = std::min(shape.channels, shape.warps);
        if (lanes.kind() == simt::LanesKind::kCpu) shape.channels = std::min(32u, shape.warps);
    }
    if (o.channels != 0) shape.channels = o.channels;
    if (o.depth != 0) shape.depth = o.depth;
    if (shape.warps % lanes.warps_grain() != 0 || shape.warps > 65536)
        return error(Errc::kInvalidArgument,
                     "--warps takes multiples of {} up to 65536 on these lanes, not {}", lanes.warps_grain(),
                     shape.warps);
    if (lanes.kind() == simt::LanesKind::kCpu && shape.warps > 256)
        return error(Errc::kInvalidArgument, "--warps takes at most 256 on CPU lanes (a thread each), not {}",
                     shape.warps);
    if (shape.channels > 128)
        return error(Errc::kInvalidArgument, "--channels takes 1 to 128, not {}", shape.channels);
    if (shape.depth > lanes.depth_max())
        return error(Errc::kInvalidArgument, "--depth takes 1 to {} on these lanes, not {}",
                     lanes.depth_max(), shape.depth);
    return shape;
}

}  // namespace gnstor::bench
