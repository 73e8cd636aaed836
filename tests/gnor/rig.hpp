// rig.hpp: an array of model drives, channels to it and an opened volume: what each test of gnor stands on.
#pragma once

#include <gnstor/gnor/volume_ref.hpp>
#include <gnstor/simt/launch.hpp>

#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gnor/channel.hpp"
#include "gnor/model_target.hpp"
#include "rdma/wire/loop/loop_wire.hpp"
#include "rdma/wire/loop/soft_nic.hpp"
#include "rdma/wire/shm/shm_nic.hpp"
#include "rdma/wire/shm/shm_server.hpp"
#include "support/sent.hpp"

namespace gnstor::test {

struct RigOptions {
    std::uint32_t ssds = 4;
    std::uint32_t channels = 1;
    std::uint32_t depth = 32;
    std::uint64_t pool_bytes = 4ull << 20;
    std::uint64_t pool_bytes_max = 0;
    std::uint32_t replicas = 2;
    std::uint32_t chunk_shift = 4;
    std::uint64_t capacity_blocks = 1u << 20;
    simt::LanesKind lanes = simt::LanesKind::kCpu;
    Sharing sharing = Sharing::kGrid;
    bool check_buffers = false;
    bool scatter = true;
    bool strict = true;
    std::uint64_t seed = 1;
    std::optional<rdma::ShmLimits> shm{};  ///< over the shm wire, of a node that gives its clients so much
};

/// GN_SEED replays a run that failed.
inline std::uint64_t seed_from_environment(std::uint64_t otherwise) {
    const char* text = std::getenv("GN_SEED");
    return text != nullptr ? std::strtoull(text, nullptr, 0) : otherwise;
}

inline constexpr std::uint64_t kSecond = 1'000'000'000ull;
inline constexpr std::uint64_t kLong = 60 * kSecond;          ///< a deadline that nothing healthy reaches
inline constexpr std::uint64_t kShort = 100'000'000ull;       ///< in which a busy machine sends, too
inline const simt::SelfGroup kMe = simt::self(simt::Lane{});  ///< the lane of a test that has one
inline Deadline late() {
    return Deadline::in_ns(kLong);
}
inline Deadline soon() {
    return Deadline::in_ns(kShort);
}

class Rig {
  public:
    explicit Rig(RigOptions o = {}) : options(o) {
        reactor = std::move(Reactor::start("gnor-test").value());
        Reactor* const reactors[] = {reactor.get()};
        rdma::NicOptions nic_options;
        nic_options.strict = o.strict;
        nic_options.seed = o.seed;
        target_nic = std::move(rdma::SoftNic::open(wire, "target", nic_options, reactors).value());
        if (o.shm)
            open_shared(reactors);
        else
            nic = std::move(rdma::SoftNic::open(wire, "host", nic_options, reactors).value());
        for (std::uint32_t i = 0; i < o.ssds; ++i) {
            drives.push_back(std::make_unique<ModelDrive>(*target_nic, *reactor, i));
            drives.back()->expect_client(kClient, kEpoch);
        }
        for (std::uint32_t i = 0; i < o.channels; ++i) {
            gnor::ChannelOptions c;
            c.ssds = o.ssds;
            c.depth = o.depth;
            c.pool_bytes = o.pool_bytes;
            c.pool_bytes_max = o.pool_bytes_max;
            c.lanes = o.lanes;
            c.sharing = o.sharing;
            c.check_buffers = o.check_buffers;
            c.scatter_to_cqe = o.scatter;
            channels.push_back(std::move(gnor::Channel::create(*nic, c).value()));
            for (std::uint32_t s = 0; s < o.ssds; ++s) connect(i, s);
        }
        lane_memory = std::move(simt::DeviceMemory::allocate(65536, o.lanes).value());
        std::vector<ChannelRef> refs;
        for (auto& channel : channels) refs.push_back(channel->ref());
        lane_memory.upload(kRefs, refs.data(), refs.size() * sizeof(ChannelRef)).value();
        set_map(1);
    }
    ~Rig() {
        channels.clear();
        drives.clear();
    }
    void connect(std::uint32_t channel, std::uint32_t slot) {
        (void)nic->connect(channels[channel]->queue_pair(slot), "target", drives[slot]->service(), {}, 10'000)
            .value();
    }
    /// Makes a new map current: all slots in, or as `edit` says.
    void set_map(std::uint32_t version, const std::function<void(placement::ArrayMap&)>& edit = {}) {
        map = placement::ArrayMap{};
        map.version = version;
        map.slot_count = options.ssds;
        for (std::uint32_t s = 0; s < options.ssds; ++s) {
            map.slots[s].state = placement::SlotState::kIn;
            map.slots[s].domain = static_cast<std::uint16_t>(s);
            map.slots[s].weight = 1;
        }
        if (edit) edit(map);
        const std::size_t at = kMaps + (version % 8) * sizeof(placement::LaneMap);
        const placement::LaneMap ranked = placement::LaneMap::of(map);
        lane_memory.upload(at, &ranked, sizeof(ranked)).value();
        const std::uint64_t address = reinterpret_cast<std::uint64_t>(lane_memory.lane_as<std::byte>(at));
        if (options.lanes == simt::LanesKind::kGpu)
            lane_memory.upload(kMapCell, &address, sizeof(address)).value();
        else  // pairs with the acquire of Operation::load_map: lanes may be waiting for it
            simt::store_release<simt::Scope::kSystem>(lane_memory.lane_as<std::uint64_t>(kMapCell), address);
    }
    VolumeRef volume(VolumeMode mode = VolumeMode::kWrite) const {
        VolumeRef v;
        v.geometry.hash_factor = 0x1234567;
        v.geometry.capacity_blocks = options.capacity_blocks;
        v.geometry.volume = 7;
        v.geometry.chunk_shift = static_cast<std::uint8_t>(options.chunk_shift);
        v.geometry.replicas = static_cast<std::uint8_t>(options.replicas);
        v.epoch = kEpoch;
        v.client = kClient;
        v.mode = mode;
        v.current_map = lane_memory.lane_as<std::uint64_t>(kMapCell);
        v.last_sequence = lane_memory.lane_as<std::uint64_t>(kSequence);
        return v;
    }
    ChannelRef channel(std::uint32_t i = 0) const { return channels[i]->ref(); }
    ChannelSet channel_set() const {
        return ChannelSet{lane_memory.lane_as<ChannelRef>(kRefs), static_cast<std::uint32_t>(channels.size()),
                          options.lanes};
    }
    placement::Replicas replicas_of(std::uint32_t block) const {
        return placement::place(map, volume().geometry, block >> options.chunk_shift);
    }
    /// Waits until the drives keep so many commands back. A command whose call has timed out may still be on
    /// its way, and one that comes after answer_kept() would be kept for ever.
    void wait_kept(std::size_t commands) {
        const auto kept = [&] {
            std::size_t n = 0;
            for (auto& drive : drives) n += drive->kept();
            return n;
        };
        const simt::Deadline end = simt::Deadline::in_ns(kLong);
        while (kept() != commands && !end.passed()) std::this_thread::yield();
        EXPECT_EQ(kept(), commands) << "commands that the drives keep back";
    }
    /// Nothing was wrong on the wire, nothing is in flight, no slot and no pool block is lost.
    void expect_clean(std::uint32_t pool_blocks_in_use = 0) {
        for (auto& drive : drives)
            for (const auto& complaint : drive->complaints()) ADD_FAILURE() << complaint;
        EXPECT_EQ(nic->counters().strict_violations, 0u);
        for (auto& c : channels) {
            const auto quiet = c->quiesce(simt::Deadline::in_ns(kLong));
            EXPECT_TRUE(quiet.ok()) << (quiet.ok() ? "" : quiet.error().message);
            const auto usage = c->usage().value();
            EXPECT_EQ(usage.slots_taken, 0u);
            EXPECT_EQ(usage.commands_pending, 0u);
            EXPECT_EQ(usage.pool_blocks_free, usage.pool_blocks - pool_blocks_in_use);
            EXPECT_EQ(c->counters().value().quarantined, 0u);
        }
    }

    static constexpr nvme::ClientId kClient = 42;
    static constexpr nvme::Epoch kEpoch = 3;
    static constexpr std::size_t kMapCell = 0, kSequence = 64, kRefs = 128, kMaps = 4096;

    RigOptions options;
    std::unique_ptr<Reactor> reactor;
    rdma::LoopWire wire;
    std::unique_ptr<rdma::SoftNic> target_nic;
    std::unique_ptr<rdma::ShmServer> server;  ///< where options.shm, and the channels' end of that wire
    std::unique_ptr<rdma::Nic> nic;
    std::vector<std::unique_ptr<ModelDrive>> drives;
    std::vector<std::unique_ptr<gnor::Channel>> channels;
    simt::DeviceMemory lane_memory;
    placement::ArrayMap map{};

  private:
    void open_shared(std::span<Reactor* const> reactors) {
        rdma::ShmServerOptions o;
        o.path = std::filesystem::temp_directory_path() / ("gnstor-gnor-" + std::to_string(::getpid()));
        o.node = "target";
        o.strict = options.strict;
        o.limits = *options.shm;
        server = std::move(rdma::ShmServer::start(wire, reactors, o).value());
        nic = std::move(rdma::open_shm_nic(o.path).value());
    }
};

/// A block whose bytes say which it is.
inline std::vector<std::byte> pattern_block(std::uint32_t vba, std::uint32_t version) {
    std::vector<std::byte> out(nvme::kBlockBytes);
    for (std::uint32_t i = 0; i < nvme::kBlockBytes / 8; ++i) {
        const std::uint64_t word = mix64((std::uint64_t{version} << 48) ^ (std::uint64_t{vba} << 10) ^ i);
        std::memcpy(out.data() + i * 8, &word, 8);
    }
    return out;
}

}  // namespace gnstor::test
