// lost_node_test.cpp: a node that dies with commands that it has taken and not answered: nothing more is sent
// to it, so no packet is missed. The keep-alive notices, and reads turn to the other replica.
#include <algorithm>
#include <array>

#include "embedded/daemon_over_ports.hpp"
#include "embedded/rig.hpp"
#include "rdma/wire/udp/udp_wire.hpp"
#include "support/count.hpp"
#include "support/loopback.hpp"

namespace gnstor::test::lost_node_test {

constexpr std::uint32_t kSsdsOfNode = 2;
constexpr std::uint64_t kBlocks = 1024;
constexpr std::uint32_t kChunkBytes = 65536, kChunkBlocks = kChunkBytes / nvme::kBlockBytes;

/// Two nodes, which a client reaches by packets. Replicas lie on both.
class LostNode : public ::testing::Test {
  protected:
    void SetUp() override {
        EmbeddedArrayOptions o = rig_options(2);  // one thread for the NIC, one for the SSDs
        o.strict_nic = false;
        o.ssds = kSsdsOfNode;
        o.ssd_capacity_bytes = 64u << 20;
        for (unsigned n = 0; n < 2; ++n)
            nodes.push_back(
                embedded::Node::open(o, embedded::UdpListen{.address = loopback_address(11 + n)}).value());
        wire = rdma::UdpWire::open({.address = loopback_address(13)}, *reactor).value();
        nic = rdma::open_udp_nic(*wire, {}).value();
        daemon = gnstor::test::start_daemon_over(
            *nic, 2 * kSsdsOfNode, [&](std::uint32_t slot) { return identity(slot); }, ports);
        client::ClientOptions c;
        c.name = "owner";
        c.channels = 1;
        c.keep_alive_ms = 6000;  // longer than it takes to see that a node is dead
        c.transfer_timeout_ms = 60'000;
        client = client::Client::connect(*daemon, *nic, c).value();
        (void)client
            ->create({.name = "v", .capacity_bytes = kBlocks * nvme::kBlockBytes, .chunk_bytes = kChunkBytes})
            .value();
        volume = client->open("v", client::OpenMode::kWrite).value();
        GN_ASSERT_OK(volume->write(0, data));
    }
    [[nodiscard]] daemon::SsdIdentity identity(std::uint32_t slot) const {
        return nodes[slot / kSsdsOfNode]->identity(slot % kSsdsOfNode);
    }
    /// The first block of a chunk whose reads go to this slot.
    [[nodiscard]] std::uint64_t block_at(std::uint32_t slot) const {
        const placement::ArrayMap map = daemon->array().value().map;
        const placement::VolumeGeometry geometry = volume->record().geometry;
        for (std::uint32_t chunk = 0; chunk < kBlocks / kChunkBlocks; ++chunk)
            if (placement::place(map, geometry, chunk).slot[0] == slot)
                return std::uint64_t{chunk} * kChunkBlocks;
        return kBlocks;
    }

    std::vector<std::unique_ptr<embedded::Node>> nodes;
    std::unique_ptr<Reactor> reactor = Reactor::start("host").value();
    std::unique_ptr<rdma::UdpWire> wire;
    std::unique_ptr<rdma::SoftNic> nic;
    std::vector<std::unique_ptr<daemon::NvmfSsdPort>> ports;
    std::unique_ptr<daemon::InProcessControlPlane> daemon;
    std::unique_ptr<client::Client> client;
    std::unique_ptr<client::Volume> volume;
    std::vector<std::byte> data = std::vector<std::byte>(kBlocks * nvme::kBlockBytes, std::byte{0x5A});
};

TEST_F(LostNode, ReadsThatItReceivedButDidNotAnswerAreServedByTheOtherReplica) {
    const std::uint64_t block = block_at(kSsdsOfNode);
    ASSERT_LT(block, kBlocks) << "no chunk is read from the second node";
    std::vector<std::byte> back(kChunkBytes);
    // Its SSDs do nothing, its NIC still acknowledges what it takes; then that is silent, too.
    Hold ssds(*nodes[1]->drive_reactors().front());
    const std::uint64_t before = nic->counters().completions;
    Result<void> read;
    std::thread reader([&] { read = volume->read(block, back); });
    const auto deadline = late();
    while (nic->counters().completions == before && !deadline.passed()) std::this_thread::yield();
    {
        Hold silent(*nodes[1]->nic_reactors().front());
        reader.join();
    }
    ssds.release();
    GN_ASSERT_OK(read);
    EXPECT_TRUE(std::ranges::equal(back, std::span(data).first(kChunkBytes)));
    count("client_lost_nodes", 1);
}

}  // namespace gnstor::test::lost_node_test
