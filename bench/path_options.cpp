// path_options.cpp: checks of `bench path`'s options.
#include "path_options.hpp"

#include <algorithm>
#include <bit>

namespace gnstor::bench {
namespace {

constexpr std::uint32_t kSizeMin = 512, kSizeMax = 65536;
constexpr std::uint64_t kWorkingSetMax = 1ull << 40;

}  // namespace

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
        return error(
            Errc::kInvalidArgument,
            "nothing to measure: writes are whole blocks of 4096 bytes, smaller ones are not possible; "
            "add a larger size or reads");
    if (o.repeats == 0 || o.repeats > 1000)
        return error(Errc::kInvalidArgument, "--repeats takes 1 to 1000, not {}", o.repeats);
    if (!(o.seconds > 0) || o.seconds > 600)
        return error(Errc::kInvalidArgument, "--seconds takes more than 0 and up to 600, not {}", o.seconds);
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
