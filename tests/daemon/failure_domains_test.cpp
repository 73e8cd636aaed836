// failure_domains_test.cpp: replicas of a chunk lie on different nodes, and the domains that placement goes
// by never change under a volume: not by a restart, not by a lost store, not by a newer program.
#include "daemon/decisions/failure_domains.hpp"
#include "daemon/manager_rig.hpp"

#include <set>

using namespace gnstor;
using namespace gnstor::daemon;
using namespace gnstor::daemon::test;

namespace {

constexpr std::uint32_t kChunks = 4096;

class FailureDomains : public ManagerTest {
  protected:
    void SetUp() override {}
    void nodes(const std::vector<std::string>& of_slots) {
        for (std::size_t s = 0; s < of_slots.size(); ++s) array.flash[s]->node = of_slots[s];
    }
    std::vector<std::uint32_t> domains() {
        std::vector<std::uint32_t> out;
        const auto view = manager->array();
        if (!view.ok()) return out;
        for (std::uint32_t s = 0; s < view->map.slot_count; ++s) out.push_back(view->map.slots[s].domain);
        return out;
    }
    /// Chunks whose replicas share a node.
    std::uint32_t chunks_on_one_node(const nvme::VolumeRecord& volume) {
        const placement::ArrayMap map = manager->array()->map;
        std::uint32_t together = 0;
        for (std::uint32_t chunk = 0; chunk < kChunks; ++chunk) {
            const placement::Replicas r = placement::place(map, volume.geometry, chunk);
            std::set<std::uint32_t> slots;
            std::set<std::string> at;
            for (std::uint32_t i = 0; i < r.count; ++i) {
                slots.insert(r.slot[i]);
                at.insert(array.flash[r.slot[i]]->node);
            }
            EXPECT_EQ(r.count, volume.geometry.replicas);
            EXPECT_EQ(slots.size(), r.count);
            together += at.size() < r.count ? 1 : 0;
        }
        return together;
    }
    /// As a program made it for which each SSD was a domain: map and records.
    void begin_as_before() {
        const std::vector<std::string> real{"a", "a", "b", "b"};
        nodes({"a", "a", "a", "a"});
        start();
        ASSERT_TRUE(create(client("alice"), "v").ok());
        nodes(real);
    }
};

TEST_F(FailureDomains, ReplicasOfAChunkLieOnDifferentNodes) {
    for (const auto& at : std::vector<std::vector<std::string>>{
             {"a", "a", "b", "b"}, {"a", "b", "a", "b"}, {"a", "b", "b", "b"}, {"a", "b", "c", "c"}}) {
        array = ModelArray(4);
        lose_store();
        nodes(at);
        start();
        const auto volume = create(client("alice"), "v");
        ASSERT_TRUE(volume.ok()) << volume.error().message;
        ASSERT_EQ(volume->geometry.replicas, 2u);
        EXPECT_EQ(chunks_on_one_node(*volume), 0u);
    }
}

TEST_F(FailureDomains, ALabelIsTheLowestSlotOfItsNode) {
    nodes({"a", "b", "a", "b"});
    start();
    EXPECT_EQ(domains(), (std::vector<std::uint32_t>{0, 1, 0, 1}));
}

TEST_F(FailureDomains, SsdsOfOneNodeAloneAreDomainsOfTheirOwn) {
    start();
    EXPECT_EQ(domains(), (std::vector<std::uint32_t>{0, 1, 2, 3}));
    const auto volume = create(client("alice"), "v");
    ASSERT_TRUE(volume.ok());
    EXPECT_EQ(chunks_on_one_node(*volume), kChunks)
        << "two different SSDs of it, as chunks_on_one_node() sees";
}

TEST_F(FailureDomains, MoreReplicasThanNodesTakeSeveralSsdsOfANode) {
    nodes({"a", "a", "b", "b"});
    start();
    client::CreateVolume request{"v", 1 << 20};
    request.replicas = 3;
    const auto volume = manager->create_volume(client("alice"), request);
    ASSERT_TRUE(volume.ok()) << volume.error().message;
    EXPECT_EQ(chunks_on_one_node(*volume), kChunks);
}

TEST_F(FailureDomains, DomainsOutliveARestartAndALostStore) {
    nodes({"a", "a", "b", "b"});
    start();
    const auto volume = create(client("alice"), "v");
    ASSERT_TRUE(volume.ok());
    EXPECT_NE(volume->domains_check, 0u);
    const auto before = domains();
    start();
    EXPECT_EQ(domains(), before);
    lose_store();
    start();
    EXPECT_TRUE(manager->start_report().rebuilt);
    EXPECT_EQ(domains(), before);
    EXPECT_EQ(chunks_on_one_node(*volume), 0u);
}

TEST_F(FailureDomains, AnArrayCreatedWithADomainPerSsdKeepsThatWithAndWithoutItsStore) {
    begin_as_before();
    for (const bool lost : {false, true}) {
        if (lost) lose_store();
        start();
        EXPECT_EQ(domains(), (std::vector<std::uint32_t>{0, 1, 2, 3})) << "store lost: " << lost;
        ASSERT_TRUE(open(client("alice"), "v").ok());
        EXPECT_EQ(manager->list_volumes().front().domains_check, 0u);
    }
}

TEST_F(FailureDomains, WithoutAVolumeSsdsThatJoinAreLabelledByTheirNode) {
    nodes({"a", "a", "b", "b"});
    auto ports = array.ports();
    ports.resize(2);
    {
        auto first = Manager::start(*store, ports, options, now);
        ASSERT_TRUE(first.ok());
    }
    start();
    EXPECT_EQ(domains(), (std::vector<std::uint32_t>{0, 0, 2, 2}));
}

TEST_F(FailureDomains, ARebuildRefusesNodesWithADifferentDivisionOfSsds) {
    nodes({"a", "a", "b", "b"});
    start();
    ASSERT_TRUE(create(client("alice"), "v").ok());
    lose_store();
    manager.reset();
    nodes({"a", "b", "b", "b"});
    array.boot();
    for (auto& flash : array.flash) flash->tells_map = false;
    expect_error(Manager::start(*store, array.ports(), options, now), Errc::kState, "in the same order");
    nodes({"c", "c", "d", "d"});
    start();
    EXPECT_EQ(domains(), (std::vector<std::uint32_t>{0, 0, 2, 2})) << "addresses may change";
    lose_store();
    nodes({"a", "b", "b", "b"});
    for (auto& flash : array.flash) flash->tells_map = true;
    start();
    EXPECT_EQ(domains(), (std::vector<std::uint32_t>{0, 0, 2, 2})) << "by the map, as with the records";
}

}  // namespace
