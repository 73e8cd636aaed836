// rig.cpp: builds an array of drives in memory or in files, fills a volume, knows how much may still be
// written.
#include "rig.hpp"

#include <stdlib.h>

#include <algorithm>
#include <cmath>

namespace gnstor::bench {
namespace {

constexpr std::uint64_t kPoolGrain = 256u << 10;

std::uint64_t round_up(std::uint64_t value, std::uint64_t grain) {
    return (value + grain - 1) / grain * grain;
}

/// Registered memory of one channel: what the warps that share it hold at once.
std::uint64_t pool_bytes(const RigOptions& options, const LaneShape& shape, const PathLanes& lanes) {
    const std::uint64_t warps = (shape.warps + shape.channels - 1) / shape.channels;
    std::uint64_t a_warp = 64ull * nvme::kBlockBytes;  // filling: one piece
    for (std::uint32_t bytes = nvme::kBlockBytes; bytes <= std::max(options.bytes_max, nvme::kBlockBytes);
         bytes *= 2)
        a_warp =
            std::max<std::uint64_t>(a_warp, std::uint64_t{lanes.lanes_a_warp(bytes)} * shape.depth * bytes);
    return round_up(warps * a_warp, kPoolGrain) + kPoolGrain;
}

}  // namespace

Result<std::unique_ptr<Rig>> Rig::build(const RigOptions& options, const LaneShape& shape, PathLanes& lanes) {
    std::unique_ptr<Rig> rig(new Rig(options));
    BedOptions bed;
    bed.ssds = options.ssds;
    bed.programmed_bytes = options.working_set * options.replicas + options.write_budget;
    bed.engine_threads = options.engine.threads;
    bed.nic_threads = options.engine.nic_threads;
    bed.service_units = options.engine.service_units;
    bed.reads_for_device = lanes.kind() == simt::LanesKind::kGpu;
    bed.seed = options.seed;
    if (!options.store.empty()) {
        std::string name = (options.store / "gnstor-bench-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr)
            return error(Errc::kIo,
                         "cannot create a folder in {} for the drives' stores; choose another --store",
                         options.store.string());
        rig->folder_.path = name;
        bed.directory = name;
        bed.direct_io = options.direct_io;
    }
    bed.durability = options.durability;
    bed.profile = options.profile;
    bed.served = options.served;
    GN_ASSIGN(rig->bed_, Bed::build(bed));

    client::ClientOptions& client = rig->connection_;
    client.name = "bench-path";
    client.lanes = lanes.kind();
    client.channels = shape.channels;
    client.pool_bytes = pool_bytes(options, shape, lanes);
    GN_ASSIGN(rig->client_, rig->bed_->array().connect(client));

    client::CreateVolume volume;
    volume.name = rig->bed_->volume_name(0);
    volume.capacity_bytes = options.working_set;
    volume.replicas = options.replicas;
    GN_TRY(rig->client_->create(volume));
    GN_ASSIGN(rig->volume_, rig->client_->open(volume.name, client::OpenMode::kWrite));
    GN_TRY(lanes.fill(shape, *rig->client_, *rig->volume_, options.working_set, options.seed));
    return rig;
}

Result<void> Rig::share_channels(Sharing sharing) {
    if (sharing == connection_.sharing) return {};
    volume_.reset();
    client_.reset();
    connection_.sharing = sharing;
    GN_ASSIGN(client_, bed_->array().connect(connection_));
    GN_ASSIGN(volume_, client_->open(bed_->volume_name(0), client::OpenMode::kWrite));
    return {};
}

Rig::~Rig() {
    if (client_ != nullptr) bed_->leave(*client_, volume_);
}

Rig::Folder::~Folder() {
    std::error_code ignored;
    if (!path.empty()) std::filesystem::remove_all(path, ignored);
}

std::uint64_t Rig::writes_max(std::uint32_t bytes) const {
    if (bed_->served()) return ~std::uint64_t{0};
    const placement::VolumeGeometry& geometry = volume_->record().geometry;
    const std::uint64_t blocks = options_.working_set / nvme::kBlockBytes;
    const std::uint64_t chunks = (blocks + (1ull << geometry.chunk_shift) - 1) >> geometry.chunk_shift;
    std::vector<std::uint64_t> replicas_on(placement::kMaxSlots);
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
        const auto targets = placement::place(client_->array().map, geometry, chunk);
        for (std::uint32_t r = 0; r < options_.replicas; ++r) ++replicas_on[targets.slot[r]];
    }
    double least = 1e18;
    for (const EmbeddedSsd& ssd : bed_->ssds()) {
        const double share =
            static_cast<double>(replicas_on[ssd.slot]) / static_cast<double>(chunks);  // of all writes
        if (share == 0) continue;
        // What a uniformly random order may send to it beyond its share stays below five standard deviations.
        const double pages = static_cast<double>(ssd.free_pages) * nvme::kBlockBytes / bytes;
        least = std::min(least, (pages - 5 * std::sqrt(pages)) / share);
    }
    return least > 0 ? static_cast<std::uint64_t>(least) : 0;
}

}  // namespace gnstor::bench
