// deengine_check.cpp: CommandCheck::run() on reads, for arrays of few and of many slots, and for working sets
// that the chunks' ownership is remembered of or not.
#include "deengine.hpp"
#include "deengine/front/command_check.hpp"

#include <gnstor/base/hash.hpp>

#include <cstring>

namespace gnstor::bench::deengine_bench {
namespace {

constexpr std::uint32_t kCommands = 1u << 17;
constexpr std::uint32_t kCheckSlice = 2048;
constexpr std::uint32_t kMdtsBlocks = 256;
constexpr nvme::ClientId kClient = 7;
constexpr std::uint32_t kCheckVolumes = 16;
constexpr std::uint8_t kCheckChunkShift = 4;
constexpr std::size_t kHeldChunks = 1u << 15;  ///< twice as many as ActiveMap remembers

/// The check with all that it looks at, and commands for chunks of this drive.
class CheckBench {
  public:
    CheckBench(std::uint32_t slots, std::uint64_t blocks, std::uint64_t seed)
        : check_(permissions_, map_, kMdtsBlocks), blocks_(blocks / kCheckVolumes), random_(seed) {
        nvme::MapSet set{};
        set.map.version = 1;
        set.map.slot_count = slots;
        for (std::uint32_t s = 0; s < slots; ++s) {
            set.map.slots[s].state = placement::SlotState::kIn;
            set.map.slots[s].domain = static_cast<std::uint16_t>(s / 2);
            set.map.slots[s].weight = 1;
        }
        map_.activate(set);
        map_.grant().begin_without_end();
        placed_ = set.map;
        for (std::uint32_t v = 0; v < kCheckVolumes; ++v) add_volume(static_cast<nvme::VolumeId>(v + 1));
    }

    Result<Repeat> run() {
        draw();
        deengine::CheckedCommand out;
        std::uint32_t dw0 = 0;
        std::uint64_t refused = 0;
        Slices slices;
        for (std::size_t begin = 0; begin < commands_.size(); begin += kCheckSlice) {
            const Stopwatch watch;
            for (const nvme::Command& command : std::span(commands_).subspan(begin, kCheckSlice))
                refused += !nvme::ok(check_.run(command, {kClient, false}, data_, 1, out, dw0));
            slices.add(watch.seconds());
        }
        if (refused != 0) return error(Errc::kIo, "the permission check refused {} valid commands", refused);
        return repeat_of(slices.middle(), kCheckSlice);
    }

  private:
    struct Chunk {
        nvme::VolumeId volume;
        std::uint32_t number;
    };
    void add_volume(nvme::VolumeId vid) {
        nvme::VolumeRecord r{};
        r.record_version = nvme::kVolumeRecordVersion;
        r.epoch = r.birth_epoch = 1;
        r.geometry.volume = vid;
        r.geometry.hash_factor = mix64(vid);
        r.geometry.capacity_blocks = blocks_;
        r.geometry.chunk_shift = kCheckChunkShift;
        r.geometry.replicas = 2;
        r.owner = kClient;
        std::snprintf(r.name, sizeof(r.name), "v%u", vid);
        (void)permissions_.add(r, kCheckVolumes, kMdtsBlocks);
    }
    /// Commands for blocks drawn from the chunks that this drive holds.
    void draw() {
        if (held_.empty()) find_held();
        commands_.clear();
        while (commands_.size() < kCommands) {
            const Chunk chunk = held_[random_.below(held_.size())];
            nvme::IoFields f;
            f.volume = chunk.volume;
            f.client = kClient;
            f.block = (chunk.number << kCheckChunkShift) +
                      static_cast<nvme::BlockAddress>(random_.below(1u << kCheckChunkShift));
            f.epoch = 1;
            f.map_version = 1;
            commands_.push_back(nvme::encode_io(nvme::IoOpcode::kRead, f));
        }
    }
    /// All of them, or twice as many as an ActiveMap remembers, drawn at random. Of 64 slots a drive holds
    /// one chunk in 32: the rank finds them, as place() takes many times longer than what is measured.
    void find_held() {
        const std::uint64_t chunks = blocks_ >> kCheckChunkShift;
        const deengine::SlotRank rank(placed_, 0);
        const auto look = [&](std::uint32_t volume, std::uint64_t number) {
            const Chunk chunk{static_cast<nvme::VolumeId>(volume), static_cast<std::uint32_t>(number)};
            const auto& geometry = permissions_.find(chunk.volume)->record.geometry;
            if (rank.holds(geometry, chunk.number) &&
                placement::holds(placement::place(placed_, geometry, chunk.number), 0))
                held_.push_back(chunk);
        };
        if (chunks * kCheckVolumes <= kHeldChunks) {
            for (std::uint32_t v = 1; v <= kCheckVolumes; ++v)
                for (std::uint64_t c = 0; c < chunks; ++c) look(v, c);
        } else {
            while (held_.size() < kHeldChunks)
                look(static_cast<std::uint32_t>(1 + random_.below(kCheckVolumes)), random_.below(chunks));
        }
    }

    deengine::PermissionTable permissions_;
    deengine::ActiveMap map_;
    deengine::CommandCheck check_;
    placement::ArrayMap placed_{};
    const std::uint64_t blocks_;
    SplitMix64 random_;
    std::vector<Chunk> held_;
    std::vector<nvme::Command> commands_;
    std::byte data_[nvme::kBlockBytes] = {};
};

}  // namespace

Result<std::vector<Case>> measure_check(const DeEngineOptions& options) {
    std::vector<std::unique_ptr<CheckBench>> benches;
    std::vector<Step> steps;
    for (const std::uint32_t slots : {4u, 12u, 64u})
        for (const std::uint64_t gibibytes : {1u, 1024u}) {
            benches.push_back(std::make_unique<CheckBench>(slots, gibibytes << 18, options.seed));
            steps.push_back({{{"operation", "check of a read"},
                              {"slots", slots},
                              {"volumes", std::to_string(gibibytes) + " GiB"}},
                             [bench = benches.back().get()] { return bench->run(); }});
        }
    return measure("check", options.repeats, std::move(steps));
}

}  // namespace gnstor::bench::deengine_bench
