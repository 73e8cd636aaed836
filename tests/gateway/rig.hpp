// rig.hpp: a volume of an embedded array, served to a host that knows nothing of GNStor, all on one loop
// wire.
#pragma once

#include "embedded/rig.hpp"
#include "gateway/serve.hpp"
#include "nvmf/loop_rig.hpp"
#include "rdma/wire/udp/udp_wire.hpp"
#include "support/count.hpp"
#include "support/loopback.hpp"

#include <gnstor/base/hash.hpp>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gnstor::test {

using nvme::IoOpcode;
using nvme::Status;

inline constexpr std::uint32_t kBlock = nvme::kBlockBytes;

/// A command of an ordinary host: the fields that GNStor has for itself are zero, or hold a host's hints.
inline nvme::Command block_command(IoOpcode opcode, std::uint64_t first, std::uint32_t blocks) {
    nvme::Command c{};
    c.opcode = static_cast<std::uint8_t>(opcode);
    c.flags = nvme::kFlagsSgl;
    c.namespace_id = 1;
    c.cdw10 = static_cast<std::uint32_t>(first);
    c.cdw11 = static_cast<std::uint32_t>(first >> 32);
    c.cdw12 = (blocks - 1) & 0xFFFFu;
    return c;
}
inline nvme::Command trim_command(std::uint32_t ranges) {
    nvme::Command c = block_command(IoOpcode::kDatasetManagement, 0, 1);
    c.cdw10 = ranges - 1;
    c.cdw11 = 1u << 2;  // AD
    c.cdw12 = 0;
    return c;
}

inline EmbeddedArrayOptions gateway_array() {
    EmbeddedArrayOptions o = rig_options(2);
    o.nic_threads = 1;  // the drives on the other
    return o;
}

class GatewayRig {
  public:
    /// `packets`: host and gateway talk over the udp wire, not over the array's.
    explicit GatewayRig(const EmbeddedArrayOptions& o = gateway_array(), bool own_clock = false,
                        bool packets = false)
        : array(o, own_clock) {
        rdma::NicOptions n;
        n.strict = true;
        n.pollers = packets ? 1 : static_cast<std::uint32_t>(array.node->nic_reactors().size());
        n.seed = o.seed + 2;
        if (packets) {
            target_nic = rdma::open_udp_nic(open_udp(loopback_address(2)), n).value();
            host_nic = rdma::open_udp_nic(open_udp(loopback_address(3)), n).value();
            return;
        }
        target_nic = rdma::SoftNic::open(array.wire, "gateway", n, array.node->nic_reactors()).value();
        n.seed = o.seed + 3;
        host_nic = rdma::SoftNic::open(array.wire, "linux", n, array.node->nic_reactors()).value();
    }
    ~GatewayRig() {
        EXPECT_EQ(target_nic->counters().strict_violations, 0u);
        EXPECT_EQ(host_nic->counters().strict_violations, 0u);
    }

    std::unique_ptr<client::Client> client(const std::string& name) {
        client::ClientOptions c = gateway::client_options(name);
        c.keep_alive_ms = 0;  // a held engine is no lost host
        return client::Client::connect(*array.control, *array.nic, c).value();
    }
    /// Makes a volume that any client may read and open for writing.
    void make_volume(client::Client& owner, const std::string& name, std::uint64_t blocks) {
        client::CreateVolume r;
        r.name = name;
        r.capacity_bytes = blocks * kBlock;
        r.any_writer = true;
        (void)owner.create(r).value();
        array.control->share_volume(owner.identity().id, name, 0).value();
    }
    Result<std::unique_ptr<gateway::ServedVolumes>> serve(client::Client& client,
                                                          const gateway::GatewayOptions& options) {
        const gateway::VolumeToServe volume{&client, options, ""};
        return gateway::serve(*target_nic, {&volume, 1});
    }
    [[nodiscard]] nvmf::HostOptions host(const std::string& nqn) const {
        nvmf::HostOptions o;
        o.peer_address = udp_.empty() ? "gateway" : udp_.front()->address();
        o.service = "4420";
        o.subsystem_nqn = nqn;
        o.host_nqn = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
        o.host_id = {9, 9, 9};
        o.keep_alive_ms = 0;
        o.timeout_ms = 60'000;
        return o;
    }

    ArrayRig array;

  private:
    rdma::UdpWire& open_udp(const std::string& address) {
        wire_threads_.push_back(Reactor::start("udp").value());
        udp_.push_back(
            rdma::UdpWire::open({.address = address, .port = kPort, .mtu = 0}, *wire_threads_.back())
                .value());
        return *udp_.back();
    }
    static constexpr std::uint16_t kPort = 47913;
    std::vector<std::unique_ptr<Reactor>> wire_threads_;
    std::vector<std::unique_ptr<rdma::UdpWire>> udp_;

  public:
    std::unique_ptr<rdma::SoftNic> target_nic, host_nic;
};

/// A host with one controller, and queues with many commands under way.
class BlockHost {
  public:
    static constexpr std::uint32_t kDepth = 16;
    static constexpr std::uint32_t kDataBlocks = 64;  ///< of one command at most

    BlockHost(GatewayRig& rig, const gateway::ServedVolumes& served, std::uint32_t queues,
              std::size_t volume = 0)
        : rig_(rig), buffer(*rig.host_nic, std::size_t{queues} * kDepth * kDataBlocks * kBlock) {
        connect(served, queues, volume);
    }
    void connect(const gateway::ServedVolumes& served, std::uint32_t queues, std::size_t volume = 0) {
        controller = nvmf::HostController::connect(*rig_.host_nic, rig_.host(served.nqn(volume))).value();
        for (std::uint32_t i = 0; i < queues; ++i)
            queues_.push_back(controller->open_io_queue(static_cast<std::uint16_t>(i + 1), kDepth).value());
    }
    /// With commands under way, too: nothing of theirs reaches the buffer afterwards.
    void disconnect() {
        queues_.clear();
        controller.reset();
    }
    [[nodiscard]] std::uint32_t queues() const { return static_cast<std::uint32_t>(queues_.size()); }
    nvmf::HostQueue& queue(std::uint32_t i) { return *queues_[i]; }
    /// Where the data of command `slot` of queue `queue` lies.
    [[nodiscard]] std::size_t offset(std::uint32_t queue, std::uint32_t slot) const {
        return (std::size_t{queue} * kDepth + slot) * kDataBlocks * kBlock;
    }
    bool post(std::uint32_t queue, const nvme::Command& command, std::span<const std::byte> in_capsule = {}) {
        return nvmf::eventually([&] {
            const auto posted = queues_[queue]->post(command, in_capsule);
            return posted != nvmf::HostQueue::Posted::kFull;
        });
    }
    /// One command on queue 0, with data under a key where it has any.
    nvme::Completion run(nvme::Command command, std::uint32_t bytes) {
        command.command_id = 7;
        if (bytes != 0) command.data = buffer.sgl(0, bytes);
        EXPECT_TRUE(post(0, command));
        nvme::Completion completion{};
        EXPECT_TRUE(nvmf::eventually([&] { return queues_[0]->poll(completion); }, 60));
        return completion;
    }
    Status status(const nvme::Command& command, std::uint32_t bytes = 0) {
        return run(command, bytes).result();
    }
    Status trim(const std::vector<nvme::DsmRange>& ranges) {
        std::memcpy(buffer.data(), ranges.data(), ranges.size() * sizeof(nvme::DsmRange));
        return status(trim_command(static_cast<std::uint32_t>(ranges.size())),
                      static_cast<std::uint32_t>(ranges.size() * sizeof(nvme::DsmRange)));
    }

  private:
    GatewayRig& rig_;
    std::vector<std::unique_ptr<nvmf::HostQueue>> queues_;

  public:
    std::unique_ptr<nvmf::HostController> controller;
    nvmf::Buffer buffer;
};

}  // namespace gnstor::test
