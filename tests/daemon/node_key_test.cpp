// node_key_test.cpp: the daemon's port to a drive whose node authenticates hosts, over udp: it proves itself
// and demands proof, and tells the node whom to let in.
#include "daemon/decisions/nvmf_ssd_port.hpp"
#include "nvmf/access/derived_hosts.hpp"
#include "nvmf/loop_rig.hpp"

using namespace gnstor;
using namespace gnstor::daemon;

namespace {

std::shared_ptr<const nvmf::auth::DhchapKey> node_key(std::uint8_t seed) {
    const std::array<std::uint8_t, 48> bytes{seed, 9};
    return std::make_shared<const nvmf::auth::DhchapKey>(
        nvmf::auth::DhchapKey::from_bytes(nvmf::auth::KeyTransform::kSha384, std::as_bytes(std::span(bytes)))
            .value());
}

nvmf::RigOptions with_key(const nvmf::auth::DhchapKey& key) {
    nvmf::RigOptions options;
    options.udp = true;
    options.target.hosts =
        std::make_shared<nvmf::DerivedHosts>(key.clone(), std::string(nvmf::kAdminHostNqn));
    return options;
}

class NodeKeyTest : public ::testing::Test {
  protected:
    [[nodiscard]] SsdIdentity identity() const {
        const nvmf::HostOptions host = rig.host();
        SsdIdentity ssd;
        ssd.nic_address = host.peer_address;
        ssd.service = host.service;
        ssd.subsystem_nqn = host.subsystem_nqn;
        return ssd;
    }
    [[nodiscard]] auto port(std::shared_ptr<const nvmf::auth::DhchapKey> with) {
        NvmfSsdPortOptions options;
        options.timeout_ms = 100'000;  // a busy machine is no lost node
        options.node_key = std::move(with);
        return NvmfSsdPort::connect(rig.host_nic(), 0, identity(), options);
    }
    /// Connects as the client with the keys of this generation.
    [[nodiscard]] auto client(nvme::ClientId id, std::uint32_t generation) {
        nvmf::HostOptions host = rig.host(nvmf::client_host_nqn(id));
        auto keys = nvmf::auth::derive_keys(*key, host.host_nqn, generation).value();
        nvmf::HostAuthentication own{std::move(keys.host), std::move(keys.controller), {}};
        own.policy.require_bidirectional = true;
        host.authentication = std::make_shared<const nvmf::HostAuthentication>(std::move(own));
        return rig.connect(host);
    }
    std::shared_ptr<const nvmf::auth::DhchapKey> key = node_key(1);
    nvmf::LoopRig rig{with_key(*key)};
};

TEST_F(NodeKeyTest, ThePortAuthenticatesAndADaemonWithoutTheKeyIsRefused) {
    const auto open = port(key);
    ASSERT_TRUE(open.ok()) << open.error().message;
    EXPECT_EQ((*open)->node_key(), key.get());
    EXPECT_TRUE((*open)->volume_list(3).ok());
    for (const auto& wrong : {std::shared_ptr<const nvmf::auth::DhchapKey>(), node_key(2)}) {
        const auto refused = port(wrong);
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error().code, Errc::kPermission) << refused.error().message;
        EXPECT_EQ(refused.error().message.find("DHHC-1"), std::string::npos) << "a key in an error";
    }
    NvmfSsdPortOptions options;
    options.node_key = key;
    EXPECT_TRUE(NvmfSsdPort::identify(rig.host_nic(), identity(), options).ok());
    EXPECT_FALSE(NvmfSsdPort::identify(rig.host_nic(), identity(), {}).ok());
}

TEST_F(NodeKeyTest, ANodeThatAuthenticatesNobodyIsRefusedByADaemonThatHasItsKey) {
    nvmf::LoopRig open;
    const nvmf::HostOptions host = open.host();
    SsdIdentity ssd;
    ssd.nic_address = host.peer_address;
    ssd.service = host.service;
    ssd.subsystem_nqn = host.subsystem_nqn;
    NvmfSsdPortOptions port;
    port.node_key = key;
    const auto refused = NvmfSsdPort::connect(open.host_nic(), 0, ssd, port);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("another program may listen"), std::string::npos)
        << refused.error().message;
}

TEST_F(NodeKeyTest, OnlyListedClientsAreLetInAndARemovedOneLosesItsQueues) {
    const auto daemon = port(key).value();
    ASSERT_TRUE(daemon->volume_list(3).ok());
    EXPECT_FALSE(client(9, 5).ok()) << "no list yet";
    std::vector<nvme::HostSetEntry> hosts{{9, 0, 5}, {12, 0, 4096}};
    ASSERT_TRUE(daemon->hosts_set(3, 1, hosts).ok());
    const auto nine = client(9, 5);
    ASSERT_TRUE(nine.ok()) << nine.error().message;
    const auto twelve = client(12, 4096);
    ASSERT_TRUE(twelve.ok()) << twelve.error().message;
    EXPECT_FALSE(client(9, 6).ok());
    hosts = {{12, 0, 4097}};
    const auto changed = daemon->hosts_set(3, 2, hosts);
    ASSERT_TRUE(changed.ok()) << changed.error().message;
    EXPECT_FALSE((*nine)->identify_controller().ok()) << "its queues have ended when HOST SET is answered";
    EXPECT_FALSE((*twelve)->identify_controller().ok());
    EXPECT_FALSE(client(9, 5).ok());
    EXPECT_FALSE(client(12, 4096).ok());
    EXPECT_TRUE(client(12, 4097).ok());
    const auto stale = daemon->hosts_set(2, 9, hosts);
    ASSERT_FALSE(stale.ok());
    EXPECT_EQ(stale.error().code, Errc::kState) << stale.error().message;
    EXPECT_FALSE(daemon->hosts_set(3, 1, {}).ok()) << "an older list of this term";
    EXPECT_TRUE(client(12, 4097).ok());
}

TEST_F(NodeKeyTest, AListOfManyPagesTakesEffectAsAWhole) {
    const auto daemon = port(key).value();
    ASSERT_TRUE(daemon->volume_list(3).ok());
    std::vector<nvme::HostSetEntry> hosts;
    for (std::uint32_t id = 1; id <= 2 * nvme::kHostSetEntriesMax; ++id)
        hosts.push_back({static_cast<nvme::ClientId>(id), 0, id + 7});
    ASSERT_TRUE(daemon->hosts_set(3, 1, hosts).ok());
    const auto last = static_cast<nvme::ClientId>(2 * nvme::kHostSetEntriesMax);
    EXPECT_TRUE(client(1, 8).ok());
    EXPECT_TRUE(client(last, last + 7).ok());
    hosts.push_back({static_cast<nvme::ClientId>(last + 1), 0, 5});
    ASSERT_TRUE(daemon->hosts_set(3, 2, hosts).ok());
    EXPECT_TRUE(client(static_cast<nvme::ClientId>(last + 1), 5).ok());
    ASSERT_TRUE(daemon->hosts_set(3, 3, {}).ok());
    EXPECT_FALSE(client(1, 8).ok());
}

}  // namespace
