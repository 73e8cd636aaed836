// lane_initiator.cpp: lanes that initiate I/O themselves: gnor, and the paper's two straw designs.
#include "bench/initiators/bed.hpp"
#include "bench/initiators/cpu_initiator.hpp"

#include <algorithm>
#include <bit>

namespace gnstor::bench {
namespace {

constexpr std::uint64_t kPoolGrain = 256u << 10;

Discipline discipline_of(PathKind path) {
    if (path == PathKind::kPortedLocks) return Discipline::kPortedLocks;
    return path == PathKind::kCoordinating ? Discipline::kCoordinating : Discipline::kAtomics;
}

class LaneInitiator final : public Initiator {
  public:
    LaneInitiator(Bed& bed, const InitiatorOptions& options, std::unique_ptr<LoadLanes> lanes)
        : bed_(bed),
          options_(options),
          discipline_(discipline_of(options.path)),
          lanes_(std::move(lanes)),
          warps_(warps_for(*lanes_, options.warps, options.depth)),
          data_blocks_(static_cast<std::uint32_t>(options.volume_bytes / nvme::kBlockBytes)) {}

    ~LaneInitiator() override {
        for (Opened& o : clients_) bed_.leave(*o.client, o.volume);
    }
    LaneInitiator(const LaneInitiator&) = delete;
    LaneInitiator& operator=(const LaneInitiator&) = delete;

    Result<void> open() {
        for (std::uint32_t i = 0; i < options_.clients; ++i) GN_TRY(open_client(i));
        return {};
    }

    [[nodiscard]] std::string describe() const override {
        return fmt::format(
            "{}: {} warps of {} lanes initiate requests, {} in flight per client, {} channel{} per client{}",
            path_name(options_.path), streams(), simt::lanes_name(options_.lanes), options_.depth,
            options_.channels, options_.channels == 1 ? "" : "s",
            discipline_ == Discipline::kPortedLocks    ? ", one lock per channel"
            : discipline_ == Discipline::kCoordinating ? ", clients keep the block map and the log themselves"
                                                       : "");
    }
    [[nodiscard]] std::uint32_t streams() const override { return options_.clients * warps_; }
    [[nodiscard]] std::uint64_t members(std::uint32_t) const override {
        return std::uint64_t{streams()} * lanes_->askers(options_.depth / warps_);
    }

    Result<Outcome> run(const Load& load) override {
        if (load.depth > options_.depth || load.bytes > options_.bytes_max)
            return error(Errc::kInvalidArgument,
                         "the run asks for {} requests in flight of {} bytes, but the initiator was opened "
                         "for at most {} of {} bytes",
                         load.depth, load.bytes, options_.depth, options_.bytes_max);
        std::vector<ClientRefs> refs;
        for (const Opened& o : clients_) {
            ClientRefs r{};
            r.volume = options_.fua ? o.volume->ref().stable() : o.volume->ref();
            r.channels = o.client->channels();
            r.written = o.written.lane_as<std::uint32_t>();
            r.locks = discipline_ != Discipline::kAtomics ? o.locks.lane_as<std::uint32_t>() : nullptr;
            r.data_blocks = data_blocks_;
            refs.push_back(r);
        }
        Load own = load;
        const std::uint32_t warps = warps_for(*lanes_, options_.warps, load.depth);
        own.depth = load.depth / warps;
        CpuMeter meter([this] { return bed_.threads(); });
        GN_ASSIGN(Outcome out, lanes_->run(refs, warps, discipline_, own, meter));
        out.initiator_cpu_seconds = meter.initiator_seconds();
        return out;
    }

  private:
    /// Volume before client: destroyed first.
    struct Opened {
        std::unique_ptr<client::Client> client;
        std::unique_ptr<client::Volume> volume;
        simt::DeviceMemory written, locks;
    };

    /// Buffers of the warps that share a channel.
    [[nodiscard]] std::uint64_t pool_bytes() const {
        const std::uint64_t warps = (warps_ + options_.channels - 1) / options_.channels;
        std::uint64_t a_request = std::max(options_.bytes_max, nvme::kBlockBytes);
        if (discipline_ == Discipline::kCoordinating) a_request += nvme::kBlockBytes;
        const std::uint64_t flights = options_.depth / warps_;
        // Half as much again: runs of several blocks do not always fill up.
        return (warps * flights * a_request * 3 / 2 + kPoolGrain) / kPoolGrain * kPoolGrain;
    }

    Result<void> open_client(std::uint32_t i) {
        client::ClientOptions o;
        o.name = fmt::format("bench-client-{}", i);
        o.lanes = options_.lanes;
        o.channels = options_.channels;
        // All requests of a channel may want the same SSD, as with the queue pairs of a CPU initiator.
        o.depth = std::clamp(std::bit_ceil((options_.depth + options_.channels - 1) / options_.channels), 32u,
                             256u);
        o.pool_bytes = pool_bytes();
        Opened opened;
        GN_ASSIGN(opened.client, bed_.array().connect(o));
        client::CreateVolume volume;
        volume.name = bed_.volume_name(i);
        volume.capacity_bytes = options_.volume_bytes;
        if (discipline_ == Discipline::kCoordinating)
            volume.capacity_bytes +=
                std::uint64_t{data_blocks_ / kMapEntriesABlock + 1 + kLogBlocks} * nvme::kBlockBytes;
        volume.replicas = options_.replicas;
        GN_TRY(opened.client->create(volume));
        GN_ASSIGN(opened.volume, opened.client->open(volume.name, client::OpenMode::kWrite));
        GN_ASSIGN(opened.written,
                  simt::DeviceMemory::allocate((std::size_t{data_blocks_} + 31) / 32 * 4, options_.lanes));
        const std::size_t locks =
            discipline_ == Discipline::kPortedLocks ? options_.channels : std::size_t{data_blocks_} / 16 + 1;
        GN_ASSIGN(opened.locks, simt::DeviceMemory::allocate(locks * 4, options_.lanes));
        clients_.push_back(std::move(opened));
        return {};
    }

    Bed& bed_;
    const InitiatorOptions options_;
    const Discipline discipline_;
    const std::unique_ptr<LoadLanes> lanes_;
    const std::uint32_t warps_;  // of a client
    const std::uint32_t data_blocks_;
    std::vector<Opened> clients_;
};

}  // namespace

Result<std::unique_ptr<Initiator>> make_lane_initiator(Bed& bed, const InitiatorOptions& options,
                                                       std::unique_ptr<LoadLanes> lanes) {
    auto initiator = std::make_unique<LaneInitiator>(bed, options, std::move(lanes));
    GN_TRY(initiator->open());
    return std::unique_ptr<Initiator>(std::move(initiator));
}

}  // namespace gnstor::bench
