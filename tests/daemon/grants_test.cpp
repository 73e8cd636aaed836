// grants_test.cpp: what the daemon does by grants and terms (docs/array.md, rules 1 to 3): a change is in
// force when a drive has taken it or has no grant left; a drive that missed one is granted nothing before it
// has taken it; terms that nobody could follow stop a start with a sentence.
#include <gnstor/nvme/fencing.hpp>

#include "daemon/manager_rig.hpp"

#include <algorithm>

using namespace gnstor;
using namespace gnstor::daemon;
using namespace gnstor::daemon::test;

namespace {

class GrantsTest : public ManagerTest {
  protected:
    void SetUp() override {
        options.lease_ms = 1'000'000;
        options.grant_ms = kGrantMs;
        options.takes_out = false;  // changes wait for drives that stay in the map
        start();
        alice = client("alice");
        ASSERT_TRUE(create(alice, "v").ok());
        manager->tick(now);
    }
    [[nodiscard]] nvme::Epoch epoch_on(std::uint32_t slot) {
        return array.flash[slot]->volumes.begin()->second.epoch;
    }
    [[nodiscard]] nvme::Epoch epoch() { return manager->list_volumes().at(0).epoch; }
    nvme::ClientId alice = 0;
};

TEST_F(GrantsTest, AChangeWaitsUntilTheGrantOfAnUnresponsiveDriveHasEnded) {
    refuse(2);
    expect_error(open(alice, "v"), Errc::kIo, "told to refuse");
    let_pass(kBoundMs - 1);
    EXPECT_EQ(pending(), 1u);
    let_pass(1);
    EXPECT_EQ(pending(), 0u);
    EXPECT_EQ(epoch_on(1), epoch());
    EXPECT_LT(epoch_on(2), epoch());
    ASSERT_TRUE(manager->release_volume(alice, 1, epoch(), ~0ull).ok()) << "this change must not wait either";
    expect_error(open(alice, "v"), Errc::kBusy, "slot 2 does not take part");
    heal();
    let_pass(1);
    EXPECT_TRUE(open(alice, "v").ok()) << "with the drive the replicas can be compared";
}

TEST_F(GrantsTest, IfGrantsDoNotExpireAChangeWaitsForEveryDrive) {
    options.grant_ms = 0;
    start();
    refuse(2);
    EXPECT_FALSE(manager->share_volume(alice, "v", client("bob")).ok());
    let_pass(100 * kBoundMs);
    EXPECT_EQ(pending(), 1u);
}

TEST_F(GrantsTest, AGrantWhoseAnswerWasLostCounts) {
    // Of a renewal's two commands the second: the drive has the grant, and its daemon does not know.
    array.drives[2]->fault = [n = 0](bool after) mutable {
        return !after && ++n % 2 == 0 ? Fault::kLoseAnswer : Fault::kNone;
    };
    const auto grants = array.drives[2]->grants;
    manager->tick(now += kGrantMs / 3);
    EXPECT_GT(array.drives[2]->grants, grants);
    refuse(2);
    EXPECT_FALSE(open(alice, "v").ok());
    manager->tick(now += 1);
    let_pass(kBoundMs - 1);
    EXPECT_EQ(pending(), 1u);
    let_pass(1);
    EXPECT_EQ(pending(), 0u);
}

TEST_F(GrantsTest, ADriveGetsNoGrantBeforeItHasReceivedTheChangesMadeInItsAbsence) {
    refuse(2);
    EXPECT_FALSE(open(alice, "v").ok());
    let_pass(kBoundMs);
    ASSERT_EQ(pending(), 0u);
    const auto grants = array.drives[2]->grants;
    for (std::uint32_t answered = 0; epoch_on(2) != epoch(); ++answered) {
        ASSERT_LT(answered, 10u);
        EXPECT_EQ(array.drives[2]->grants, grants);
        array.drives[2]->fault = [left = answered](bool after) mutable {
            if (after) return Fault::kNone;
            return left == 0 ? Fault::kRefuse : (--left, Fault::kNone);
        };
        manager->tick(now += 1);
    }
    heal();
    manager->tick(now += 1);
    EXPECT_GT(array.drives[2]->grants, grants);
    EXPECT_TRUE(manager->info(now).map_in_force);
}

TEST_F(GrantsTest, AStartWaitsForGrantsThatThePreviousDaemonMayHaveGiven) {
    refuse(2);
    EXPECT_FALSE(open(alice, "v").ok());
    let_pass(kBoundMs);
    ASSERT_EQ(pending(), 0u);
    manager.reset();
    auto again = Manager::start(*store, array.ports(), options, now);
    ASSERT_TRUE(again.ok()) << again.error().message;
    manager = std::move(again).value();
    manager->tick(now);
    EXPECT_FALSE(open(alice, "v").ok()) << "after a start the daemon cannot know that a grant has ended";
    let_pass(kBoundMs - 1);
    EXPECT_EQ(pending(), 1u);
    let_pass(1);
    EXPECT_EQ(pending(), 0u);
    const auto grants = array.drives[2]->grants;
    heal();
    manager->tick(now += 1);
    EXPECT_EQ(epoch_on(2), epoch());
    EXPECT_GT(array.drives[2]->grants, grants);
}

TEST_F(GrantsTest, AMissingDriveIsWaitedForAfterAStart) {
    manager.reset();
    array.boot();
    std::vector<SsdPort*> ports = array.ports();
    ports.erase(ports.begin() + 2);
    auto again = Manager::start(*store, ports, options, now);
    ASSERT_TRUE(again.ok()) << again.error().message;
    manager = std::move(again).value();
    manager->tick(now);
    expect_error(open(alice, "v"), Errc::kIo, "slot 2 is missing");
    EXPECT_FALSE(manager->share_volume(alice, "v", client("bob")).ok());
    let_pass(kBoundMs - 1);
    EXPECT_EQ(pending(), 1u);
    let_pass(1);
    EXPECT_EQ(pending(), 0u);
}

TEST_F(GrantsTest, AChangeRepeatedAfterARestartWaitsForTheMissingDrive) {
    const auto bob = client("bob");
    refuse(2);
    EXPECT_FALSE(manager->share_volume(alice, "v", bob).ok());
    manager.reset();
    array.boot();
    std::vector<SsdPort*> ports = array.ports();
    ports.erase(ports.begin() + 2);
    auto again = Manager::start(*store, ports, options, now);
    ASSERT_TRUE(again.ok()) << again.error().message;
    manager = std::move(again).value();
    manager->tick(now);
    EXPECT_FALSE(manager->share_volume(alice, "v", bob).ok())
        << "the missing drive may still serve under its grant";
    EXPECT_TRUE(open(alice, "v", client::OpenMode::kRead).ok()) << "reading waits for no drive that is away";
    let_pass(kBoundMs - 1);
    EXPECT_EQ(pending(), 1u);
    EXPECT_FALSE(manager->share_volume(alice, "v", bob).ok());
    let_pass(1);
    EXPECT_EQ(pending(), 0u);
    EXPECT_TRUE(manager->share_volume(alice, "v", bob).ok());
}

TEST_F(GrantsTest, CreationsAndDeletionsWaitForEveryDrive) {
    refuse(2);
    EXPECT_FALSE(create(alice, "w").ok());
    EXPECT_FALSE(manager->delete_volume(alice, "v", now).ok());
    let_pass(10 * kBoundMs);
    EXPECT_EQ(pending(), 2u) << "a VID that is given out again must be purged everywhere";
    heal();
    let_pass(1);
    EXPECT_EQ(pending(), 0u);
    EXPECT_EQ(array.flash[2]->volumes.size(), 1u);
}

TEST_F(GrantsTest, ClientsGetANewMapWhenDrivesWithoutItHaveNoGrantLeft) {
    lose_store();
    array = ModelArray(4);
    // Found, and gone before it is told the map.
    array.drives[2]->fault = [left = 1](bool after) mutable {
        if (after) return Fault::kNone;
        return left == 0 ? Fault::kRefuse : (--left, Fault::kNone);
    };
    auto started = Manager::start(*store, array.ports(), options, now);
    ASSERT_TRUE(started.ok()) << started.error().message;
    manager = std::move(started).value();
    manager->tick(now);
    expect_error(manager->array(), Errc::kBusy, "not in force yet");
    let_pass(kBoundMs - 1);
    EXPECT_FALSE(manager->array().ok());
    let_pass(1);
    EXPECT_TRUE(manager->array().ok());
    EXPECT_FALSE(manager->info(now).map_in_force) << "the map is not in force before every drive confirms it";
}

TEST_F(GrantsTest, AStartFailsWithAnErrorIfTheTermCannotBeRaised) {
    for (const std::uint64_t term : {nvme::kLastTerm, nvme::kLastTerm - 1, std::uint64_t{1} << 40}) {
        manager.reset();
        array.boot();
        array.flash[1]->term = term;
        expect_error(Manager::start(*store, array.ports(), options, now), Errc::kState, "reset-term --term");
        EXPECT_EQ(array.flash[0]->term, 1u) << "the term must not be sent to a drive";
    }
    array.flash[1]->term = 1;
    start();
    EXPECT_EQ(manager->term(), 2u) << "the term must not be stored";
    lose_store();
    array.flash[1]->term = ~0ull;
    expect_error(Manager::start(*store, array.ports(), options, now), Errc::kState, "term");
    array.flash[1]->term = 2;
}

TEST_F(GrantsTest, RecordsOfTheLastTermAreNotFollowedByTermZero) {
    Change last;
    last.term = nvme::kLastTerm - 1;
    ASSERT_TRUE(store->save(last).ok());
    manager.reset();
    expect_error(Manager::start(*store, array.ports(), options, now), Errc::kCorrupt,
                 "too high for a next term");
}

TEST_F(GrantsTest, ADriveWithATermTooFarBehindIsNamedAndTheOthersServe) {
    Change far;
    far.term = nvme::kTermLeapMost + 1'000;
    ASSERT_TRUE(store->save(far).ok());
    for (auto& flash : array.flash) flash->term = nvme::kTermLeapMost;
    array.flash[2]->term = 3;
    start();
    const auto info = manager->info(now);
    const auto names_it = [](const std::string& w) {
        return w.find("MODEL2") != std::string::npos && w.find("reset-term") != std::string::npos;
    };
    EXPECT_TRUE(std::any_of(info.warnings.begin(), info.warnings.end(), names_it));
    EXPECT_EQ(array.drives[1]->grants, 1u);
    EXPECT_EQ(array.drives[2]->grants, 0u);
    EXPECT_EQ(array.flash[2]->term, 3u);
}

}  // namespace
