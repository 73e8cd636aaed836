// initiator.cpp: names of paths, checks of options, and which class makes which path.
#include "bench/initiators/initiator.hpp"

#include "bench/initiators/bed.hpp"
#include "bench/initiators/cpu_initiator.hpp"
#include "bench/initiators/mailbox.hpp"

namespace gnstor::bench {
namespace {

constexpr std::uint32_t kClientsMax = 32;

Result<void> check(const InitiatorOptions& o, const LoadLanes& lanes, std::uint32_t ssds) {
    const auto within = [](const char* option, std::uint64_t value, std::uint64_t least,
                           std::uint64_t most) -> Result<void> {
        if (value >= least && value <= most) return {};
        return error(Errc::kInvalidArgument, "{} takes {} to {}, not {}", option, least, most, value);
    };
    GN_TRY(within("--clients", o.clients, 1, kClientsMax));
    GN_TRY(within("--channels", o.channels, 1, 127));
    GN_TRY(within("--warps", o.warps, 1, 4096));
    const bool by_lanes = is_lane_initiated(o.path);
    GN_TRY(within("--depth", o.depth, 1, by_lanes ? lanes.depth_max() * o.warps : kMailFlights));
    GN_TRY(within("--threads", o.threads, 1, 256));
    GN_TRY(within("--array-threads", o.array_threads, 1, 64));
    GN_TRY(within("--replicas", o.replicas, 1, std::min(ssds, placement::kMaxReplicas)));
    if (o.lanes == simt::LanesKind::kCpu && o.clients * o.warps > 256)
        return error(Errc::kInvalidArgument,
                     "--clients times --warps is at most 256 on CPU lanes (each warp is a thread), not {}",
                     o.clients * o.warps);
    if (by_lanes && warps_for(lanes, o.warps, o.depth) == 0)
        return error(Errc::kInvalidArgument,
                     "--depth {} cannot be divided among up to {} warps: each warp takes 1 to 32 requests, "
                     "or a multiple of 32",
                     o.depth, o.warps);
    if (by_lanes && o.channels > o.warps)
        return error(Errc::kInvalidArgument, "--channels takes at most the value of --warps ({}), not {}",
                     o.warps, o.channels);
    if (o.volume_bytes < (1u << 20) || o.volume_bytes % 65536 != 0 || o.volume_bytes > (1ull << 40))
        return error(Errc::kInvalidArgument,
                     "the volume of each client (--working-set divided by --clients) takes 1 MiB to 1 TiB in "
                     "multiples of 64 KiB, not {} bytes",
                     o.volume_bytes);
    return {};
}

}  // namespace

const char* path_name(PathKind path) {
    switch (path) {
        case PathKind::kGnor:
            return "gnor";
        case PathKind::kStrongCpu:
            return "strong-cpu";
        case PathKind::kGdDeEngine:
            return "gd-deengine";
        case PathKind::kGd:
            return "gd";
        case PathKind::kBasic:
            return "basic";
        case PathKind::kPortedLocks:
            return "ported-locks";
        case PathKind::kCoordinating:
            break;
    }
    return "coordinating";
}

Result<PathKind> parse_path(std::string_view word) {
    std::string names;
    for (const PathKind path : kAllPaths) {
        if (word == path_name(path)) return path;
        names += (names.empty() ? "" : ", ") + std::string(path_name(path));
    }
    return error(Errc::kInvalidArgument, "--path does not know '{}'; it takes {}", word, names);
}

Result<std::unique_ptr<Initiator>> make_initiator(Bed& bed, const InitiatorOptions& given) {
    InitiatorOptions options = given;
    GN_TRY(simt::check_lanes(options.lanes));
    const bool gpu = options.lanes == simt::LanesKind::kGpu;
    std::unique_ptr<LoadLanes> lanes = gpu ? make_gpu_load_lanes() : make_cpu_load_lanes();
    if (!lanes)
        return error(Errc::kUnsupported, "this build has no GPU lanes; build with nvcc, or use --lanes cpu");
    if (options.warps == 0) options.warps = lanes->warps_a_client();
    GN_TRY(check(options, *lanes, bed.options().ssds));
    return is_lane_initiated(options.path) ? make_lane_initiator(bed, options, std::move(lanes))
                                           : make_cpu_initiator(bed, options, std::move(lanes));
}

}  // namespace gnstor::bench
