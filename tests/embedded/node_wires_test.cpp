// node_wires_test.cpp: a node serves packets and shared memory side by side: one target, whichever way hosts
// come.
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "embedded/node.hpp"
#include "nvmf/host/host.hpp"
#include "nvmf/protocol/nqn.hpp"
#include "rdma/wire/shm/shm_nic.hpp"
#include "rdma/wire/shm/shm_server.hpp"
#include "support/count.hpp"
#include "support/loopback.hpp"

namespace gnstor::embedded::node_wires_test {

constexpr std::uint32_t kAsks = 200;

std::filesystem::path socket_path() {
    return std::filesystem::temp_directory_path() / ("gnstor-node-" + std::to_string(::getpid()) + ".shm");
}

EmbeddedArrayOptions small(std::uint32_t ssds) {
    EmbeddedArrayOptions options;
    options.ssds = ssds;
    options.ssd_capacity_bytes = 64u << 20;
    options.engine_threads = ssds;
    return options;
}

nvmf::HostOptions host_options() {
    nvmf::HostOptions o;
    o.service = "4420";
    o.host_nqn = nvmf::client_host_nqn(7);
    o.host_id = {1, 2, 3, 4};
    o.timeout_ms = 100'000;
    o.keep_alive_ms = 0;
    return o;
}

class NodeWires : public ::testing::Test {
  protected:
    void SetUp() override {
        UdpListen listen;
        listen.address = gnstor::test::loopback_address(4);
        listen.shm = socket;
        node = Node::open(small(2), listen).value();
        reactor = Reactor::start("host").value();
        udp = rdma::UdpWire::open({.address = gnstor::test::loopback_address(5)}, *reactor).value();
        far = rdma::open_udp_nic(*udp, {}).value();
        near = rdma::open_shm_nic(socket).value();
    }
    [[nodiscard]] std::unique_ptr<nvmf::HostController> connect(rdma::Nic& nic, std::uint32_t ssd) const {
        nvmf::HostOptions o = host_options();
        o.peer_address = node->address();
        o.subsystem_nqn = node->subsystem_nqn(ssd);
        return nvmf::HostController::connect(nic, o).value();
    }
    const std::filesystem::path socket = socket_path();
    std::unique_ptr<Node> node;
    std::unique_ptr<Reactor> reactor;
    std::unique_ptr<rdma::UdpWire> udp;
    std::unique_ptr<rdma::SoftNic> far;
    std::unique_ptr<rdma::Nic> near;
};

TEST_F(NodeWires, HostsOfBothWiresAreControllersOfOneTarget) {
    const auto by_packets = connect(*far, 0), by_memory = connect(*near, 0), other = connect(*near, 1);
    EXPECT_NE(by_packets->identify_controller().value().cntlid,
              by_memory->identify_controller().value().cntlid)
        << "the drive keeps what belongs to a controller by its id";
    std::atomic<std::uint32_t> answered{0};
    const auto ask = [&](nvmf::HostController& host, std::uint32_t ssd) {
        for (std::uint32_t i = 0; i < kAsks; ++i) {
            const auto said = host.identify_controller();
            ASSERT_TRUE(said.ok()) << said.error().message;
            ASSERT_EQ(std::string(said->subnqn), node->subsystem_nqn(ssd));
            ++answered;
        }
    };
    std::thread packets([&] { ask(*by_packets, 0); }), memory([&] { ask(*by_memory, 0); });
    ask(*other, 1);
    packets.join();
    memory.join();
    gnstor::test::count("node_wires_asked", answered);
}

TEST(NodeWiresIpv6, ANodeNamedByAnotherSpellingOfItsAddressIsFound) {
    UdpListen listen;
    listen.address = "0:0:0:0:0:0:0:1";
    listen.shm = socket_path();
    auto opened = Node::open(small(1), listen);
    if (!opened.ok()) GTEST_SKIP() << opened.error().message;
    const auto nic = rdma::open_shm_nic(listen.shm).value();
    nvmf::HostOptions o = host_options();
    o.subsystem_nqn = (*opened)->subsystem_nqn(0);
    EXPECT_TRUE(nvmf::HostController::connect(*nic, o).ok());
}

TEST_F(NodeWires, WithoutAUsableSocketFolderClientsUsePackets) {
    UdpListen listen;
    listen.address = gnstor::test::loopback_address(6);
    listen.shm = "/proc/self/node.shm";
    const auto other = Node::open(small(1), listen);
    ASSERT_TRUE(other.ok()) << other.error().message;
    EXPECT_FALSE((*other)->serves_shm());
    EXPECT_TRUE(node->serves_shm());
}

TEST_F(NodeWires, AClientThatExpectsAnotherNodeProcessIsRefused) {
    EXPECT_TRUE(rdma::open_shm_nic(socket, ::getpid()).ok());
    const auto refused = rdma::open_shm_nic(socket, 1);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::kPermission);
}

TEST_F(NodeWires, AHostThatDisconnectsDoesNotAffectHostsOfTheOtherWire) {
    const auto by_packets = connect(*far, 0);
    {
        const auto by_memory = connect(*near, 0);
        EXPECT_TRUE(by_memory->identify_controller().ok());
    }
    near.reset();
    EXPECT_TRUE(by_packets->identify_controller().ok());
    near = rdma::open_shm_nic(socket).value();
    EXPECT_TRUE(connect(*near, 1)->identify_controller().ok());
}

TEST_F(NodeWires, ANodeThatEndsDisconnectsHostsOfBothWires) {
    const auto by_packets = connect(*far, 0), by_memory = connect(*near, 0);
    node.reset();
    EXPECT_FALSE(by_packets->identify_controller().ok());
    EXPECT_FALSE(by_memory->identify_controller().ok());
    EXPECT_FALSE(rdma::open_shm_nic(socket).ok());
}

}  // namespace gnstor::embedded::node_wires_test
