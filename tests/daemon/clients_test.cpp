// clients_test.cpp: who takes part (docs/array.md, rule 19): clients added, removed and rotated; the lists of
// hosts that drives get before their grants; generations that never come back.
#include "daemon/manager_rig.hpp"
#include "daemon/records/generations.hpp"
#include "nvmf/access/derived_hosts.hpp"
#include "nvmf/protocol/nqn.hpp"

#include <algorithm>

using namespace gnstor;
using namespace gnstor::daemon;
using namespace gnstor::daemon::test;

namespace {

/// Nodes of the drives 0 to 2 authenticate hosts; that of drive 3 does not.
class ClientsTest : public ManagerTest {
  protected:
    void SetUp() override {
        options.lease_ms = 1'000'000;
        options.grant_ms = kGrantMs;
        array.authenticate({0, 1, 2});
        start();
        alice = client("alice");
        bob = client("bob");
        ASSERT_TRUE(create(alice, "v", true).ok());
        manager->tick(now);
    }
    [[nodiscard]] std::uint32_t generation(nvme::ClientId id) {
        const auto known = manager->client_of(id);
        return known ? known->generation : 0;
    }
    [[nodiscard]] std::uint32_t on(std::uint32_t slot, nvme::ClientId id) {
        const auto& hosts = array.drives[slot]->hosts;
        return hosts && hosts->contains(id) ? hosts->at(id) : 0;
    }
    [[nodiscard]] Change all_records() {
        const Records records = store->load().value();
        Change all;
        all.term = records.term;
        all.map = records.map;
        all.told = records.told;
        all.put_clients.assign(records.clients.begin(), records.clients.end());
        for (const auto& [id, record] : records.volumes) all.put_volumes.push_back(record);
        return all;
    }
    nvme::ClientId alice = 0, bob = 0;
};

TEST_F(ClientsTest, DrivesGetTheListBeforeTheirFirstGrantAndAfterEachChange) {
    for (const std::uint32_t slot : {0u, 1u, 2u}) {
        EXPECT_EQ(on(slot, alice), generation(alice));
        EXPECT_EQ(on(slot, bob), generation(bob)) << "a client is told its keys when drives know them";
        EXPECT_EQ(array.drives[slot]->host_sets, 3u) << "an empty one, and one for each client";
    }
    EXPECT_FALSE(array.drives[3]->hosts) << "a node that authenticates nobody is sent no list";
    let_pass(kGrantMs);
    EXPECT_EQ(array.drives[0]->host_sets, 3u) << "a list that a drive has is not sent again";
    EXPECT_EQ(client("alice"), alice);
    EXPECT_EQ(array.drives[0]->host_sets, 3u);
}

TEST_F(ClientsTest, NoClientGetsKeysOfATermThatNoDriveHasStored) {
    manager.reset();
    array.boot();
    for (std::uint32_t s = 0; s < 4; ++s) refuse(s);
    manager = Manager::start(*store, array.ports(), options, now).value();
    expect_error(manager->add_client("carol"), Errc::kBusy, "gets no keys before an SSD");
    expect_error(manager->rotate_client("bob", now), Errc::kBusy, "gets no keys before an SSD");
    array.drives[3]->fault = nullptr;  // its node authenticates nobody
    let_pass(kGrantMs);
    EXPECT_TRUE(manager->add_client("carol").ok());
}

TEST_F(ClientsTest, ADriveThatReconnectsGetsTheListAgainBeforeItsGrant) {
    array.drives[1]->restart();
    let_pass(kGrantMs / 3);
    EXPECT_EQ(on(1, alice), generation(alice));
}

TEST_F(ClientsTest, TheModelDriveNoticesAGrantWithoutTheList) {
    manager.reset();
    array.boot();
    for (auto& drive : array.drives) drive->hides_key = true;
    ASSERT_TRUE(Manager::start(*store, array.ports(), options, now).ok());
    for (const std::uint32_t slot : {0u, 1u, 2u}) {
        ASSERT_FALSE(array.flash[slot]->violations.empty()) << slot;
        EXPECT_NE(array.flash[slot]->violations[0].find("before the list of hosts"), std::string::npos);
        array.flash[slot]->violations.clear();
    }
}

TEST_F(ClientsTest, KeysAreThoseThatTheNodesDerive) {
    const auto keys = manager->ssd_keys(alice);
    ASSERT_TRUE(keys.ok()) << keys.error().message;
    ASSERT_EQ(keys->size(), 3u) << "none for the drive whose node authenticates nobody";
    for (std::uint32_t slot = 0; slot < 3; ++slot) {
        EXPECT_EQ((*keys)[slot].slot, slot);
        const auto derived = nvmf::auth::derive_keys(*array.flash[slot]->node_key,
                                                     nvmf::client_host_nqn(alice), generation(alice));
        ASSERT_TRUE(derived.ok());
        const auto same = [](const std::string& text, const nvmf::auth::DhchapKey& key) {
            return key.text().equals(std::as_bytes(std::span(text)));
        };
        EXPECT_TRUE(same((*keys)[slot].host_key, derived->host));
        EXPECT_TRUE(same((*keys)[slot].controller_key, *derived->controller));
    }
    EXPECT_NE((*keys)[0].host_key, (*keys)[1].host_key);
    EXPECT_NE((*keys)[0].host_key, manager->ssd_keys(bob).value()[0].host_key);
    expect_error(manager->ssd_keys(77), Errc::kPermission, "not registered");
}

TEST_F(ClientsTest, ARemovedClientMayDoNothingAndItsLeaseEnds) {
    const auto opened = open(alice, "v");
    ASSERT_TRUE(opened.ok());
    const nvme::Epoch epoch = opened->record.epoch;
    ASSERT_TRUE(manager->remove_client("alice", now).ok());
    EXPECT_EQ(manager->list_volumes().at(0).writer, 0);
    EXPECT_EQ(manager->list_volumes().at(0).epoch, epoch) << "closed, until the replicas are equal";
    const std::string what = "was removed";
    expect_error(open(alice, "v"), Errc::kPermission, what);
    expect_error(open(alice, "v", client::OpenMode::kRead), Errc::kPermission, what);
    expect_error(create(alice, "w"), Errc::kPermission, what);
    expect_error(manager->renew_lease(alice, opened->record.geometry.volume, epoch, now), Errc::kPermission,
                 what);
    expect_error(manager->release_volume(alice, opened->record.geometry.volume, epoch, 1), Errc::kPermission,
                 what);
    expect_error(manager->share_volume(alice, "v", bob), Errc::kPermission, what);
    expect_error(manager->delete_volume(alice, "v", now), Errc::kPermission, what);
    expect_error(manager->ssd_keys(alice), Errc::kPermission, what);
    expect_error(manager->register_client("alice"), Errc::kPermission, "gnstor client add alice");
    expect_error(manager->rotate_client("alice", now), Errc::kPermission, what);
    expect_error(manager->remove_client("nobody", now), Errc::kNotFound, "nobody");
    for (const std::uint32_t slot : {0u, 1u, 2u}) EXPECT_EQ(on(slot, alice), 0u);
    EXPECT_TRUE(manager->remove_client("alice", now).ok()) << "asked again";
    ASSERT_TRUE(create(bob, "w").ok());
    expect_error(manager->share_volume(bob, "w", alice), Errc::kNotFound, what);
    EXPECT_TRUE(open(bob, "v").ok()) << "its volumes stay";
}

TEST_F(ClientsTest, ARemovedClientsNameAndIdAreKeptForItAndItComesBackWithOtherKeys) {
    const std::uint32_t before = generation(alice);
    const auto key = manager->ssd_keys(alice).value()[0].host_key;
    ASSERT_TRUE(manager->remove_client("alice", now).ok());
    start();
    EXPECT_EQ(client("carol"), 3u) << "the id of a removed client is not given to another one";
    expect_error(manager->register_client("alice"), Errc::kPermission, "was removed");
    const auto again = manager->add_client("alice");
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->identity.id, alice);
    EXPECT_GT(again->generation, before);
    EXPECT_EQ(on(0, alice), again->generation);
    EXPECT_NE(manager->ssd_keys(alice).value()[0].host_key, key);
    EXPECT_TRUE(open(alice, "v").ok());
    EXPECT_EQ(manager->add_client("alice")->generation, again->generation) << "it is there: nothing changes";
}

TEST_F(ClientsTest, ALeaseOfAClientThatWasRemovedBeforeARestartEndsAtTheFirstTick) {
    ASSERT_TRUE(open(alice, "v").ok());
    Change change;
    change.put_clients.emplace_back(alice, ClientRecord{"alice", generation(alice) + 1, true});
    ASSERT_TRUE(store->save(change).ok());  // and the daemon was killed before it closed the epoch
    start();
    EXPECT_EQ(manager->list_volumes().at(0).writer, alice);
    manager->tick(now);
    EXPECT_EQ(manager->list_volumes().at(0).writer, 0);
}

TEST_F(ClientsTest, ARotatedClientKeepsItsLeaseAndGetsOtherKeys) {
    const auto opened = open(alice, "v");
    const auto key = manager->ssd_keys(alice).value()[0].host_key;
    const std::uint32_t before = generation(alice);
    const auto rotated = manager->rotate_client("alice", now);
    ASSERT_TRUE(rotated.ok()) << rotated.error().message;
    EXPECT_GT(rotated->generation, before);
    EXPECT_EQ(on(0, alice), rotated->generation);
    EXPECT_EQ(on(0, bob), generation(bob));
    EXPECT_NE(manager->ssd_keys(alice).value()[0].host_key, key);
    EXPECT_TRUE(manager->renew_lease(alice, opened->record.geometry.volume, opened->record.epoch, now).ok());
}

TEST_F(ClientsTest, ARemovalWaitsUntilTheGrantOfADriveThatDidNotTakeItHasEnded) {
    refuse(2);
    expect_error(manager->remove_client("bob", now), Errc::kIo, "the removal of client 'bob'");
    EXPECT_EQ(on(1, bob), 0u) << "other drives take it at once";
    EXPECT_NE(on(2, bob), 0u);
    const auto grants = array.drives[2]->grants;
    let_pass(kBoundMs - 1);
    EXPECT_EQ(pending(), 1u);
    EXPECT_FALSE(manager->remove_client("bob", now).ok());
    let_pass(1);
    EXPECT_EQ(pending(), 0u);
    EXPECT_TRUE(manager->remove_client("bob", now).ok());
    EXPECT_EQ(array.drives[2]->grants, grants);
    heal();
    let_pass(1'000);
    EXPECT_EQ(on(2, bob), 0u);
    EXPECT_GT(array.drives[2]->grants, grants);
}

TEST_F(ClientsTest, ADriveGetsNoGrantBeforeItHasTakenTheNewestList) {
    const auto grants = array.drives[2]->grants;
    array.drives[2]->fault = nullptr;
    refuse(2);
    EXPECT_FALSE(manager->remove_client("bob", now).ok());
    // It answers again, one command more each time, and never all of them.
    for (std::uint32_t answered = 0; on(2, bob) != 0; ++answered) {
        ASSERT_LT(answered, 10u);
        EXPECT_EQ(array.drives[2]->grants, grants);
        array.drives[2]->fault = [left = answered](bool after) mutable {
            if (after) return Fault::kNone;
            return left == 0 ? Fault::kRefuse : (--left, Fault::kNone);
        };
        manager->tick(now += kGrantMs / 3);
    }
    EXPECT_LE(array.drives[2]->grants, grants + 1);
}

TEST_F(ClientsTest, ARotationThatIsPendingIsNotRepeatedWhenItIsAskedForAgain) {
    refuse(2);
    expect_error(manager->rotate_client("bob", now), Errc::kIo, "the rotation of the keys of client 'bob'");
    const std::uint32_t rotated = generation(bob);
    EXPECT_FALSE(manager->rotate_client("bob", now).ok());
    EXPECT_EQ(generation(bob), rotated);
    heal();
    EXPECT_EQ(manager->rotate_client("bob", now)->generation, rotated);
    EXPECT_GT(manager->rotate_client("bob", now)->generation, rotated);
}

TEST_F(ClientsTest, ANewClientIsTakenWhileADriveIsAwayWhichTakesItBeforeItServesAgain) {
    refuse(2);
    const auto carol = manager->register_client("carol");
    ASSERT_TRUE(carol.ok()) << carol.error().message;
    EXPECT_EQ(on(1, carol->id), generation(carol->id));
    EXPECT_EQ(on(2, carol->id), 0u);
    heal();
    let_pass(1'000);
    EXPECT_EQ(on(2, carol->id), generation(carol->id));
}

TEST_F(ClientsTest, WithoutAuthenticationChangesOfClientsWaitForNoDrive) {
    for (auto& flash : array.flash) flash->node_key.reset();
    start();
    refuse(2);
    EXPECT_TRUE(manager->remove_client("bob", now).ok());
    EXPECT_TRUE(manager->add_client("bob").ok());
    EXPECT_TRUE(manager->rotate_client("bob", now).ok());
    EXPECT_TRUE(manager->ssd_keys(bob)->empty());
}

TEST_F(ClientsTest, AfterARestartWithAMissingDriveARemovalWaitsForItsGrant) {
    manager.reset();
    array.boot();
    std::vector<SsdPort*> ports = array.ports();
    ports.erase(ports.begin() + 2);
    auto again = Manager::start(*store, ports, options, now);
    ASSERT_TRUE(again.ok()) << again.error().message;
    manager = std::move(again).value();
    manager->tick(now);
    expect_error(manager->remove_client("bob", now), Errc::kIo, "slot 2 is missing");
    let_pass(kBoundMs);
    EXPECT_TRUE(manager->remove_client("bob", now).ok());
}

TEST_F(ClientsTest, GenerationsOfATermLieAboveThoseOfEarlierTermsAndEndWithIt) {
    static_assert(first_generation(1) == last_generation(0) + 1);
    static_assert(first_generation(nvme::kTermOfDriveMost + 1) ==
                  last_generation(nvme::kTermOfDriveMost) + 1);
    static_assert(first_generation(~0ull) == first_generation(nvme::kTermOfDriveMost + 1));
    EXPECT_GE(generation(alice), first_generation(manager->term()));
    Change change;
    change.put_clients.emplace_back(alice,
                                    ClientRecord{"alice", last_generation(manager->term() + 1), false});
    ASSERT_TRUE(store->save(change).ok());
    start();
    expect_error(manager->rotate_client("alice", now), Errc::kNoSpace, "restart gnstord");
    start();
    EXPECT_EQ(manager->rotate_client("alice", now)->generation, first_generation(manager->term()));
}

TEST_F(ClientsTest, ALostStoreGivesNoEarlierGenerationBackToAnybody) {
    std::uint32_t newest = 0;
    for (int i = 0; i < 50; ++i) newest = std::max(newest, manager->rotate_client("bob", now)->generation);
    ASSERT_TRUE(manager->remove_client("bob", now).ok());
    const auto key = manager->ssd_keys(alice).value()[0].host_key;
    lose_store();
    start();
    EXPECT_EQ(client("alice"), alice) << "the owner of a volume is known from the drives";
    EXPECT_NE(manager->ssd_keys(alice).value()[0].host_key, key);
    const auto bob_again = manager->register_client("bob");
    ASSERT_TRUE(bob_again.ok());
    for (const nvme::ClientId id : {alice, bob_again->id}) EXPECT_GT(generation(id), newest);
    EXPECT_EQ(on(0, alice), generation(alice));
}

TEST_F(ClientsTest, RecordsThatAreAnOlderCopyGiveNoEndedKeyBack) {
    auto copy = std::make_unique<MemoryRecordStore>();
    ASSERT_TRUE(copy->save(all_records()).ok());
    const std::uint32_t ended = generation(bob);
    start();  // under another term, which the drives see
    ASSERT_TRUE(manager->remove_client("bob", now).ok());
    const std::uint32_t newest = manager->rotate_client("alice", now)->generation;
    store = std::move(copy);
    start();
    EXPECT_GT(generation(bob), ended) << "its removal is lost, but not that its keys ended";
    EXPECT_GT(generation(alice), newest);
    EXPECT_EQ(on(0, bob), generation(bob));
}

TEST_F(ClientsTest, ADaemonThatCannotStoreSendsTheStoredListAndChangesNothing) {
    auto full = std::make_unique<FlakyStore>();
    FlakyStore& flaky = *full;
    ASSERT_TRUE(flaky.save(all_records()).ok());
    store = std::move(full);
    flaky.full = true;
    start();
    ASSERT_FALSE(manager->read_only().empty());
    EXPECT_EQ(on(0, alice), generation(alice));
    EXPECT_GT(array.drives[0]->grants, 0u);
    expect_error(manager->remove_client("bob", now), Errc::kNoSpace, "read-only");
    EXPECT_EQ(on(0, bob), generation(bob));
    flaky.full = false;
    let_pass(2'000);
    EXPECT_TRUE(manager->remove_client("bob", now).ok());
    EXPECT_EQ(on(0, bob), 0u);
}

TEST_F(ClientsTest, ANewerDaemonsListSupersedesThisOne) {
    auto& drive = *array.drives[1];
    const std::vector<nvme::HostSetEntry> none;
    ASSERT_TRUE(drive.hosts_set(manager->term() + 1, 1, none).ok());
    expect_error(manager->remove_client("bob", now), Errc::kState, "superseded");
    expect_error(manager->register_client("carol"), Errc::kState, "superseded");
}

}  // namespace
