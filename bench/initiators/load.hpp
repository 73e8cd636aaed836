// load.hpp: what a stream of requests looks like: which unit of the volume next, and whether to read or to
// write it. Device code, CPU and GPU lanes; pure.
//
// A *stream* keeps `depth` requests in flight; a client has one or several. A *member* draws requests
// for a stream: the lanes of a warp are 32 members, a CPU thread is one. Sequential order is that of
// the client: member m of M takes the units m, m + M, m + 2M, ... and so on round the volume; random order is
// uniform.
//
// What a volume holds: generation 0 (contents of `contents_seed`) from filling on, generation 1 (of
// `contents_seed` + 1) where a run wrote. While a mix runs, a block that is read may be of either.
#pragma once

#include <gnstor/base/hash.hpp>
#include <gnstor/base/target.hpp>

#include "bench/contents.hpp"
#include "bench/recorder.hpp"

#include <cstdint>

namespace gnstor::bench {

enum class Pattern : std::uint32_t { kRandom, kSequential };

/// Which of the two generations a run deals in.
enum class Pass : std::uint32_t {
    kMeasure,  ///< for `duration_ns`, by pattern and mix; writes are of generation 1
    kFill,     ///< every unit once: writes of generation 0
    kCompare,  ///< every unit once: reads, each block of generation 1 where `written` says so, else of 0
};

/// One run, the same for all streams; taken by value.
struct Load {
    Pass pass;
    Pattern pattern;
    std::uint32_t write_percent;  ///< of the requests, 0 .. 100
    std::uint32_t bytes;          ///< of a request
    std::uint32_t depth;          ///< requests in flight a stream
    Verify verify;
    std::uint64_t units;  ///< of each volume, in pieces of `bytes`
    std::uint64_t contents_seed;
    std::uint64_t order_seed;
    std::uint64_t duration_ns;
    std::uint64_t quota;        ///< requests a member may issue
    std::uint64_t interval_ps;  ///< open loop: a member means to send every so often; 0: whenever it can
};

/// What is to be asked next.
struct Drawn {
    std::uint64_t offset;  ///< byte offset in the volume
    bool write;
};

/// One member's order of requests.
class Draw {
  public:
    Draw() = default;
    /// `stranger`: different for every member of every client.
    GN_HD
    Draw(const Load& load, std::uint64_t member, std::uint64_t members, std::uint64_t stranger)
        : at_(member), step_(members), random_(mix64(mix64(load.order_seed) + stranger)) {}

    /// Whether a pass that takes every unit once has come to its end.
    GN_HD
    bool exhausted(const Load& load) const { return load.pass != Pass::kMeasure && at_ >= load.units; }

    GN_HD
    Drawn next(const Load& load) {
        Drawn drawn{};
        if (load.pass == Pass::kMeasure && load.pattern == Pattern::kRandom) {
            drawn.offset = random_.below(load.units) * load.bytes;
        } else {
            drawn.offset = at_ % load.units * load.bytes;
            at_ += step_;
        }
        drawn.write = load.pass == Pass::kFill ||
                      (load.pass == Pass::kMeasure && random_.below(100) < load.write_percent);
        return drawn;
    }

  private:
    std::uint64_t at_ = 0, step_ = 1;
    SplitMix64 random_{0};
};

/// The contents that a block must, or may, have.
struct Expected {
    nvme::VolumeId volume;
    std::uint64_t seed;            ///< of generation 0
    const std::uint32_t* written;  ///< compare: a bit a block of those of generation 1; else null
    bool either;                   ///< a block may be of either generation
};

/// Whether volume bytes [offset, offset + bytes) at `from` are as expected. All members call and get the same
/// answer.
template <class Group>
GN_HD bool as_expected(Group group, const Expected& e, std::uint64_t offset, std::uint32_t bytes,
                       const void* from) {
    bool right = true;
    for (std::uint32_t at = 0; at < bytes;) {
        const std::uint64_t block = (offset + at) / nvme::kBlockBytes;
        const auto room = static_cast<std::uint32_t>(nvme::kBlockBytes - (offset + at) % nvme::kBlockBytes);
        const std::uint32_t length = bytes - at < room ? bytes - at : room;
        const auto* const data = static_cast<const std::byte*>(from) + at;
        const bool changed = e.written != nullptr && ((e.written[block / 32] >> (block % 32)) & 1u) != 0;
        bool same =
            matches(group, Contents{changed ? e.seed + 1 : e.seed, e.volume}, offset + at, length, data);
        if (!same && e.either)
            same = matches(group, Contents{e.seed + 1, e.volume}, offset + at, length, data);
        right = right && same;
        at += length;
    }
    return right;
}

}  // namespace gnstor::bench
