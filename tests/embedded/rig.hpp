// rig.hpp: the parts of an embedded array within reach of a test: engine threads, both NICs, SSD ports, the
// daemon with a clock of the test's own.
//
// Put together as EmbeddedArray does it, with strict NICs. Host threads; the engine is held by hold().
#pragma once

#include <gnstor/client/client.hpp>
#include <gnstor/embedded_array.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "daemon/decisions/in_process.hpp"
#include "daemon/decisions/nvmf_ssd_port.hpp"
#include "embedded/node.hpp"
#include "embedded/overlaid_port.hpp"
#include "gnor/channel.hpp"
#include "nvmf/host/host.hpp"
#include "rdma/wire/loop/loop_wire.hpp"
#include "rdma/wire/loop/soft_nic.hpp"
#include "support/seed.hpp"

#define GN_ASSERT_OK(expression)                          \
    do {                                                  \
        const auto& gn_ok = (expression);                 \
        ASSERT_TRUE(gn_ok.ok()) << gn_ok.error().message; \
    } while (false)

namespace gnstor::test {

inline constexpr std::uint64_t kLongNs = 120'000'000'000;
inline constexpr std::uint32_t kMiB = 1u << 20;

inline simt::Deadline late() {
    return simt::Deadline::in_ns(kLongNs);
}

/// The daemon's answers, but for the map when the test has made a newer one.
class MapOverlay : public client::ControlPlane {
  public:
    explicit MapOverlay(client::ControlPlane& below) : below_(below) {}
    void set_map(const placement::ArrayMap& map) {
        const std::lock_guard lock(mutex_);  // clients' proxies ask at any time
        map_ = map;
    }

    Result<client::ClientIdentity> register_client(const std::string& name) override {
        return below_.register_client(name);
    }
    Result<client::ArrayView> array() override {
        GN_ASSIGN(client::ArrayView view, below_.array());
        const std::lock_guard lock(mutex_);
        if (map_) view.map = *map_;
        return view;
    }
    Result<nvme::VolumeRecord> create_volume(nvme::ClientId c, const client::CreateVolume& r) override {
        return below_.create_volume(c, r);
    }
    Result<client::OpenedVolume> open_volume(nvme::ClientId c, const std::string& n,
                                             client::OpenMode m) override {
        return below_.open_volume(c, n, m);
    }
    Result<std::uint64_t> renew_lease(nvme::ClientId c, nvme::VolumeId v, nvme::Epoch e) override {
        return below_.renew_lease(c, v, e);
    }
    Result<void> release_volume(nvme::ClientId c, nvme::VolumeId v, nvme::Epoch e,
                                std::uint64_t bytes) override {
        return below_.release_volume(c, v, e, bytes);
    }
    Result<void> share_volume(nvme::ClientId o, const std::string& n, nvme::ClientId r) override {
        return below_.share_volume(o, n, r);
    }
    Result<void> unshare_volume(nvme::ClientId o, const std::string& n, nvme::ClientId r) override {
        return below_.unshare_volume(o, n, r);
    }
    Result<void> delete_volume(nvme::ClientId o, const std::string& n) override {
        return below_.delete_volume(o, n);
    }
    Result<std::vector<nvme::VolumeRecord>> list_volumes() override { return below_.list_volumes(); }

  private:
    client::ControlPlane& below_;
    std::mutex mutex_;
    std::optional<placement::ArrayMap> map_;
};

inline EmbeddedArrayOptions rig_options(std::uint32_t engine_threads = 1) {
    EmbeddedArrayOptions o;
    o.ssds = 4;
    o.ssd_capacity_bytes = 256u << 20;
    o.engine_threads = engine_threads;
    o.strict_nic = true;
    o.seed = run_seed();
    return o;
}

class ArrayRig {
  public:
    explicit ArrayRig(const EmbeddedArrayOptions& o = rig_options(), bool own_clock = false) : options(o) {
        if (!o.directory.empty()) std::filesystem::create_directories(o.directory);
        node = embedded::Node::open(o, wire, "node").value();
        rdma::NicOptions n;
        n.strict = true;
        n.seed = o.seed + 1;
        n.pollers = static_cast<std::uint32_t>(node->nic_reactors().size());
        nic = rdma::SoftNic::open(wire, "host", n, node->nic_reactors()).value();
        std::vector<daemon::SsdPort*> raw;
        for (std::uint32_t i = 0; i < o.ssds; ++i) {
            ports.push_back(daemon::NvmfSsdPort::connect(*nic, i, node->identity(i)).value());
            seen_by_daemon.push_back(std::make_unique<OverlaidPort>(*ports.back(), overlaid));
            raw.push_back(seen_by_daemon.back().get());
        }
        daemon::InProcessOptions d;
        d.manager.lease_ms = o.lease_ms;
        d.manager.seed = o.seed;
        d.manager.grant_ms = 0;  // maps come from the tests, engines and clocks are held
        if (own_clock) {
            d.now_ms = [this] { return clock_ms.load(); };
            d.tick = std::chrono::milliseconds(0);
        }
        daemon = daemon::InProcessControlPlane::start(std::make_unique<daemon::MemoryRecordStore>(),
                                                      std::move(raw), std::move(d))
                     .value();
        control = std::make_unique<MapOverlay>(*daemon);
    }

    std::unique_ptr<client::Client> connect(const std::string& name, std::uint32_t channels = 2,
                                            std::uint32_t depth = 32,
                                            simt::LanesKind lanes = simt::LanesKind::kCpu,
                                            std::uint32_t keep_alive_ms = 0) {
        client::ClientOptions c;
        c.name = name;
        c.channels = channels;
        c.depth = depth;
        c.lanes = lanes;
        c.keep_alive_ms = keep_alive_ms;  // 0: a held engine is no lost host
        return client::Client::connect(*control, *nic, c).value();
    }

    /// Creates a volume that everybody may read, and opens it for writing.
    std::unique_ptr<client::Volume> volume(client::Client& client, const std::string& name,
                                           std::uint64_t blocks, std::uint32_t replicas = 2,
                                           std::uint32_t chunk_bytes = 65536) {
        client::CreateVolume r;
        r.name = name;
        r.capacity_bytes = blocks * nvme::kBlockBytes;
        r.replicas = replicas;
        r.chunk_bytes = chunk_bytes;
        (void)client.create(r).value();
        control->share_volume(client.identity().id, name, 0).value();
        return client.open(name, client::OpenMode::kWrite).value();
    }

    /// Gives the SSDs a map of the next version, by `edit`, and clients that ask; with `publish` false not
    /// yet.
    template <class Edit>
    placement::ArrayMap set_map(Edit edit, bool publish = true) {
        placement::ArrayMap next = control->array().value().map;
        ++next.version;
        edit(next);
        overlaid = true;
        for (std::uint32_t i = 0; i < options.ssds; ++i) {
            nvme::MapSet set{};
            set.slot = i;
            set.map = next;
            ports[i]->map_set(daemon->inspect().term, set, 0).value();
        }
        if (publish) control->set_map(next);
        return next;
    }

    /// For a connection of a client's own to the SSD of a slot, beside its channels.
    [[nodiscard]] nvmf::HostOptions host_options(const client::Client& client, std::uint32_t slot) const {
        nvmf::HostOptions o;
        o.peer_address = node->address();
        o.service = embedded::Node::service(slot);
        o.subsystem_nqn = node->subsystem_nqn(slot);
        o.host_nqn = client.identity().host_nqn;
        o.host_id[0] = 7;
        o.keep_alive_ms = 0;
        return o;
    }

    /// Nothing was wrong on the wire; nothing is in flight, no slot and no pool block is lost.
    void expect_clean(client::Client& client) {
        EXPECT_EQ(nic->counters().strict_violations, 0u);
        const auto quiet = client.quiesce(60'000);
        EXPECT_TRUE(quiet.ok()) << (quiet.ok() ? "" : quiet.error().message);
        for (std::uint32_t i = 0; i < client.channel_count(); ++i) {
            gnor::Channel& c = client.channel(i);
            const auto usage = c.usage().value();
            EXPECT_EQ(usage.slots_taken, 0u) << "channel " << i;
            EXPECT_EQ(usage.commands_pending, 0u) << "channel " << i;
            EXPECT_EQ(usage.pool_blocks_free, usage.pool_blocks) << "channel " << i;
            EXPECT_EQ(c.counters().value().quarantined, 0u) << "channel " << i;
        }
    }

    // Destroyed from the last to the first.
    EmbeddedArrayOptions options;
    std::atomic<std::uint64_t> clock_ms{1'000'000};
    rdma::LoopWire wire;
    std::unique_ptr<embedded::Node> node;
    std::unique_ptr<rdma::SoftNic> nic;  // of the daemon and of all clients
    std::vector<std::unique_ptr<daemon::NvmfSsdPort>> ports;
    std::atomic<bool> overlaid{false};  // the SSDs have a map that the daemon does not know
    std::vector<std::unique_ptr<OverlaidPort>> seen_by_daemon;
    std::unique_ptr<daemon::InProcessControlPlane> daemon;
    std::unique_ptr<MapOverlay> control;
};

/// Holds a reactor's thread while it lives: with one engine thread, nothing is answered.
class Hold {
  public:
    explicit Hold(Reactor& reactor)
        : holder_([this, &reactor] {
              reactor.run([this] {
                  held_.release();
                  go_.acquire();
              });
          }) {
        held_.acquire();
    }
    ~Hold() { release(); }
    void release() {
        if (!holder_.joinable()) return;
        go_.release();
        holder_.join();
    }

  private:
    std::binary_semaphore held_{0}, go_{0};
    std::thread holder_;
};

}  // namespace gnstor::test
