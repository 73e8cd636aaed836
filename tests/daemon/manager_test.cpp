// manager_test.cpp: promises of the daemon's decisions, one by one, against model drives.
#include "daemon/manager_rig.hpp"

using namespace gnstor;
using namespace gnstor::daemon;
using namespace gnstor::daemon::test;

namespace {

TEST_F(ManagerTest, TheSameClientNameGetsTheSameIdAlsoAfterARestart) {
    const auto a = client("alice"), b = client("bob");
    EXPECT_NE(a, b);
    EXPECT_EQ(client("alice"), a);
    start();
    EXPECT_EQ(client("bob"), b);
}

TEST_F(ManagerTest, EveryNewRecordIsOnEveryDriveWhenItIsAcknowledged) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    const auto opened = open(a, "v");
    ASSERT_TRUE(opened.ok());
    for (const auto& flash : array.flash) {
        ASSERT_EQ(flash->volumes.size(), 1u);
        EXPECT_EQ(std::memcmp(&flash->volumes.begin()->second, &opened->record, sizeof(opened->record)), 0);
    }
}

TEST_F(ManagerTest, GrantsAreRenewedAtAThirdOfTheirTimeAndNotBefore) {
    options.grant_ms = 9000;
    start();
    const auto grants = [this] { return array.drives[0]->grants; };
    EXPECT_EQ(grants(), 1u);
    manager->tick(now += 2999);
    EXPECT_EQ(grants(), 1u);
    manager->tick(now += 1);
    EXPECT_EQ(grants(), 2u);
    // A drive that did not hear of it is asked again at the next tick.
    refuse(0);
    manager->tick(now += 3000);
    heal();
    EXPECT_EQ(grants(), 2u);
    manager->tick(now += 1);
    EXPECT_EQ(grants(), 3u);
    manager->tick(now += 1);
    EXPECT_EQ(grants(), 3u);
}

// A version that was in force has the same bytes for ever: who comes then may have it. One that never was is
// nobody's.
TEST_F(ManagerTest, ClientsGetAMapInForceAlsoWhileADriveDoesNotAnswer) {
    options.grant_ms = 9000;
    start();
    const auto before = manager->array();
    ASSERT_TRUE(before.ok());
    refuse(2);
    now += options.grant_ms;
    (void)manager->tick(now);
    EXPECT_FALSE(manager->info(now).map_in_force)
        << "the map is in force before every drive has confirmed it";
    const auto meanwhile = manager->array();
    ASSERT_TRUE(meanwhile.ok()) << meanwhile.error().message;
    EXPECT_EQ(meanwhile->map.version, before->map.version);
    EXPECT_EQ(meanwhile->ssds.size(), before->ssds.size());
    heal();
    (void)manager->tick(now);
    EXPECT_TRUE(manager->info(now).map_in_force);
}

TEST_F(ManagerTest, ClientsGetAMapInForceAfterARestartWithoutOneOfItsDrives) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    const auto before = manager->array();
    ASSERT_TRUE(before.ok()) << before.error().message;
    manager.reset();
    refuse(2);
    auto started = Manager::start(*store, array.ports(), options, now);
    ASSERT_TRUE(started.ok()) << started.error().message;
    manager = std::move(started).value();
    EXPECT_FALSE(manager->info(now).map_in_force);
    const auto after = manager->array();
    ASSERT_TRUE(after.ok()) << after.error().message;
    EXPECT_EQ(after->map.version, before->map.version);
    EXPECT_TRUE(open(a, "v", client::OpenMode::kRead).ok());
    EXPECT_FALSE(open(a, "v").ok()) << "the volume was opened before that drive has the new epoch";
    // What nobody was told of stays so.
    EXPECT_FALSE(create(a, "w").ok());
    EXPECT_FALSE(open(a, "w", client::OpenMode::kRead).ok());
}

TEST_F(ManagerTest, ClientsDoNotGetAMapThatADriveHasNotReceived) {
    std::uint32_t unheard = 0;
    for (std::uint32_t answered = 0; answered < 12; ++answered) {
        lose_store();
        array = ModelArray(4);
        array.drives[2]->fault = [left = answered](bool) mutable {
            return left == 0 ? Fault::kRefuse : (--left, Fault::kNone);
        };
        auto started = Manager::start(*store, array.ports(), options, now);
        if (!started.ok() || (*started)->info(now).map_in_force) continue;
        ++unheard;
        expect_error((*started)->array(), Errc::kBusy, "not in force yet");
        heal();
        (void)(*started)->tick(now);
        EXPECT_TRUE((*started)->array().ok());
    }
    EXPECT_GT(unheard, 0u) << "the race between finding and publishing the map did not occur";
}

TEST_F(ManagerTest, BadRequestsAreRefusedWithAnErrorMessage) {
    const auto a = client("alice");
    const auto make = [&](client::CreateVolume r) { return manager->create_volume(a, r); };
    expect_error(make({"", 4096}), Errc::kInvalidArgument, "empty");
    expect_error(make({".x", 4096}), Errc::kInvalidArgument, "begins with");
    expect_error(make({"a/b", 4096}), Errc::kInvalidArgument, "0x2f");
    expect_error(make({std::string(64, 'x'), 4096}), Errc::kInvalidArgument, "64 characters");
    expect_error(make({"v", 0}), Errc::kInvalidArgument, "0 bytes");
    expect_error(make({"v", (16ull << 40) + 1}), Errc::kInvalidArgument, "16 TiB");
    expect_error(make({"v", ~0ull}), Errc::kInvalidArgument, "16 TiB");
    expect_error(make({"v", 4096, 5000}), Errc::kInvalidArgument, "power of two");
    expect_error(make({"v", 4096, 1u << 21}), Errc::kInvalidArgument, "power of two");
    expect_error(make({"v", 4096, 65536, 0}), Errc::kInvalidArgument, "replicas");
    expect_error(make({"v", 4096, 65536, 5}), Errc::kInvalidArgument, "replicas");
    expect_error(manager->create_volume(9, {"v", 4096}), Errc::kPermission, "not registered");
    expect_error(manager->register_client("a b"), Errc::kInvalidArgument, "0x20");
    expect_error(open(a, "nothing"), Errc::kNotFound, "nothing");
    EXPECT_TRUE(make({"v", 16ull << 40}).ok()) << "thin: a volume may be larger than the array";
    EXPECT_TRUE(make({"w", 1}).ok());
    expect_error(make({"v", 4096}), Errc::kExists, "choose another name");
}

TEST_F(ManagerTest, OnlyOneClientHoldsTheRightToWriteAndTheErrorNamesIt) {
    const auto a = client("alice"), b = client("bob");
    ASSERT_TRUE(create(a, "v", true).ok());
    const auto first = open(a, "v");
    ASSERT_TRUE(first.ok());
    expect_error(open(b, "v"), Errc::kBusy, "'alice'");
    expect_error(manager->release_volume(b, first->record.geometry.volume, first->record.epoch, 4096),
                 Errc::kState, "closed");
    ASSERT_TRUE(manager->release_volume(a, first->record.geometry.volume, first->record.epoch, ~0ull).ok());
    const auto second = open(b, "v");
    ASSERT_TRUE(second.ok());
    EXPECT_GT(second->record.epoch, first->record.epoch);
}

TEST_F(ManagerTest, TheSameClientOpeningAgainRaisesTheEpochAgain) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    const auto one = open(a, "v"), two = open(a, "v");
    EXPECT_EQ(two->record.epoch, one->record.epoch + 1);
    expect_error(manager->renew_lease(a, one->record.geometry.volume, one->record.epoch, now), Errc::kState,
                 "closed");
    EXPECT_TRUE(manager->renew_lease(a, two->record.geometry.volume, two->record.epoch, now).ok());
}

TEST_F(ManagerTest, ALeaseThatRunsOutIsClosedByTickAndOnlyThen) {
    const auto a = client("alice"), b = client("bob");
    ASSERT_TRUE(create(a, "v", true).ok());
    const auto opened = open(a, "v");
    const auto id = opened->record.geometry.volume;
    now += 600;
    ASSERT_TRUE(manager->renew_lease(a, id, opened->record.epoch, now).ok());
    now += 999;
    EXPECT_EQ(manager->tick(now).expired, 0u);
    expect_error(open(b, "v"), Errc::kBusy, "alice");
    now += 1;
    EXPECT_EQ(manager->tick(now).expired, 1u);
    for (const auto& flash : array.flash) {
        EXPECT_EQ(flash->volumes.at(id).writer, 0);
        EXPECT_EQ(flash->volumes.at(id).epoch, opened->record.epoch) << "until the replicas are equal";
    }
    expect_error(manager->renew_lease(a, id, opened->record.epoch, now), Errc::kState, "closed");
    EXPECT_TRUE(open(b, "v").ok());
}

TEST_F(ManagerTest, AnEndedLeaseDoesNotBlockTheNextWriterEvenBeforeTick) {
    const auto a = client("alice"), b = client("bob");
    ASSERT_TRUE(create(a, "v", true).ok());
    const auto first = open(a, "v");
    now += 1000;
    const auto second = open(b, "v");
    ASSERT_TRUE(second.ok()) << second.error().message;
    EXPECT_GT(second->record.epoch, first->record.epoch);
}

TEST_F(ManagerTest, ARestartKeepsAWritersLeaseForAFullTerm) {
    const auto a = client("alice"), b = client("bob");
    ASSERT_TRUE(create(a, "v", true).ok());
    const auto opened = open(a, "v");
    now += 900;
    start();
    now += 500;
    EXPECT_EQ(manager->tick(now).expired, 0u);
    expect_error(open(b, "v"), Errc::kBusy, "alice");
    EXPECT_TRUE(manager->renew_lease(a, opened->record.geometry.volume, opened->record.epoch, now).ok());
}

TEST_F(ManagerTest, SharingAllowsReadingOnly) {
    const auto a = client("alice"), b = client("bob"), c = client("carol");
    ASSERT_TRUE(create(a, "v").ok());
    expect_error(open(b, "v", client::OpenMode::kRead), Errc::kPermission, "not shared");
    expect_error(manager->share_volume(b, "v", b), Errc::kPermission, "owner");
    expect_error(manager->share_volume(a, "v", 99), Errc::kNotFound, "not registered");
    const auto epoch = manager->list_volumes().at(0).epoch;
    ASSERT_TRUE(manager->share_volume(a, "v", b).ok());
    EXPECT_EQ(manager->list_volumes().at(0).epoch, epoch) << "sharing does not fence the writer";
    EXPECT_TRUE(open(b, "v", client::OpenMode::kRead).ok());
    expect_error(open(b, "v"), Errc::kPermission, "reading only");
    expect_error(open(c, "v", client::OpenMode::kRead), Errc::kPermission, "not shared");
    ASSERT_TRUE(manager->share_volume(a, "v", 0).ok());
    EXPECT_TRUE(open(c, "v", client::OpenMode::kRead).ok());
    expect_error(manager->delete_volume(c, "v", now), Errc::kPermission, "owner");
}

TEST_F(ManagerTest, ASharingThatHasEndedLetsNobodyReadOnAnySsd) {
    const auto a = client("alice"), b = client("bob"), c = client("carol"), d = client("dave");
    ASSERT_TRUE(create(a, "v").ok());
    for (const nvme::ClientId reader : {b, c, d}) ASSERT_TRUE(manager->share_volume(a, "v", reader).ok());
    expect_error(manager->unshare_volume(b, "v", c), Errc::kPermission, "only the owner");
    expect_error(manager->unshare_volume(a, "w", c), Errc::kNotFound, "no volume 'w'");
    expect_error(manager->unshare_volume(a, "v", 99), Errc::kNotFound, "not registered");
    expect_error(manager->unshare_volume(a, "v", a), Errc::kInvalidArgument, "owns volume");
    const auto before = manager->list_volumes().at(0);
    ASSERT_TRUE(manager->unshare_volume(a, "v", c).ok());
    const auto after = manager->list_volumes().at(0);
    EXPECT_EQ(after.epoch, before.epoch) << "it does not fence the writer";
    EXPECT_EQ(after.revision, before.revision + 1);
    expect_error(open(c, "v", client::OpenMode::kRead), Errc::kPermission, "not shared");
    for (const auto& flash : array.flash) {
        const nvme::VolumeRecord& record = flash->volumes.at(after.geometry.volume);
        EXPECT_TRUE(may_read(record, b) && may_read(record, d));
        EXPECT_FALSE(may_read(record, c));
    }
    ASSERT_TRUE(manager->unshare_volume(a, "v", c).ok()) << "again";
    EXPECT_EQ(manager->list_volumes().at(0).revision, after.revision) << "which changes nothing";
    ASSERT_TRUE(manager->remove_client("bob", now).ok());
    EXPECT_TRUE(manager->unshare_volume(a, "v", b).ok()) << "its place in the list is free again";
    EXPECT_EQ(manager->list_volumes().at(0).reader_count, 1u);
    EXPECT_EQ(manager->list_volumes().at(0).readers[1], 0u);
    start();
    EXPECT_FALSE(may_read(manager->list_volumes().at(0), c));
}

TEST_F(ManagerTest, WhoMayReadAllTheSameIsNotToldThatTheSharingHasEnded) {
    const auto a = client("alice"), b = client("bob"), c = client("carol");
    ASSERT_TRUE(create(a, "v").ok());
    ASSERT_TRUE(create(a, "any", true).ok());
    ASSERT_TRUE(manager->share_volume(a, "v", b).ok());
    ASSERT_TRUE(manager->share_volume(a, "v", 0).ok());
    expect_error(manager->unshare_volume(a, "v", b), Errc::kState, "shared with all clients");
    expect_error(manager->unshare_volume(a, "any", b), Errc::kState, "any client may write");
    expect_error(manager->unshare_volume(a, "any", 0), Errc::kState, "any client may write");
    ASSERT_TRUE(manager->unshare_volume(a, "v", 0).ok());
    EXPECT_TRUE(open(b, "v", client::OpenMode::kRead).ok()) << "it was named";
    expect_error(open(c, "v", client::OpenMode::kRead), Errc::kPermission, "not shared");
}

TEST_F(ManagerTest, AnEndOfSharingThatAnSsdHasNotTakenIsPendingAndComesIntoForce) {
    const auto a = client("alice"), b = client("bob");
    ASSERT_TRUE(create(a, "v").ok());
    ASSERT_TRUE(manager->share_volume(a, "v", b).ok());
    refuse(1);
    expect_error(manager->unshare_volume(a, "v", b), Errc::kIo, "the change");
    expect_error(manager->unshare_volume(a, "v", b), Errc::kIo, "the end of the sharing of volume 'v'");
    EXPECT_EQ(pending(), 1u);
    EXPECT_FALSE(open(b, "v", client::OpenMode::kRead).ok()) << "whoever asks gnstord is refused at once";
    const nvme::VolumeId id = manager->list_volumes().at(0).geometry.volume;
    EXPECT_TRUE(may_read(array.flash[1]->volumes.at(id), b)) << "that SSD has not heard of it";
    heal();
    manager->tick(now += 1'000);
    EXPECT_EQ(pending(), 0u);
    EXPECT_FALSE(may_read(array.flash[1]->volumes.at(id), b));
    EXPECT_TRUE(manager->unshare_volume(a, "v", b).ok());
}

TEST_F(ManagerTest, AReaderListIsBoundedAndTheErrorSaysHowToMakeRoom) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    for (std::uint32_t i = 0; i < nvme::kMaxReaders; ++i)
        ASSERT_TRUE(manager->share_volume(a, "v", client(fmt::format("r{}", i))).ok());
    expect_error(manager->share_volume(a, "v", client("late")), Errc::kNoSpace, "share it with all clients");
    EXPECT_TRUE(manager->share_volume(a, "v", client("r0")).ok()) << "sharing twice changes nothing";
}

TEST_F(ManagerTest, AVolumeOpenForWritingByAnotherIsNotDeleted) {
    const auto a = client("alice"), b = client("bob");
    ASSERT_TRUE(create(a, "v", true).ok());
    const auto opened = open(b, "v");
    expect_error(manager->delete_volume(a, "v", now), Errc::kBusy, "'bob'");
    ASSERT_TRUE(manager->release_volume(b, opened->record.geometry.volume, opened->record.epoch, ~0ull).ok());
    EXPECT_TRUE(manager->delete_volume(a, "v", now).ok());
    for (const auto& flash : array.flash) EXPECT_TRUE(flash->volumes.empty());
    expect_error(open(a, "v"), Errc::kNotFound, "v");
}

TEST_F(ManagerTest, ReleaseRecordsTheLengthAndCanBeRepeated) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    const auto o = open(a, "v");
    const auto id = o->record.geometry.volume;
    expect_error(manager->release_volume(a, id, o->record.epoch, (1 << 20) + 1), Errc::kInvalidArgument,
                 "capacity");
    ASSERT_TRUE(manager->release_volume(a, id, o->record.epoch, 1234).ok());
    ASSERT_TRUE(manager->release_volume(a, id, o->record.epoch, 1234).ok());
    EXPECT_EQ(manager->list_volumes().at(0).byte_length, 1234u);
    expect_error(manager->release_volume(a, id, o->record.epoch, 99), Errc::kState, "not recorded");
    start();
    EXPECT_EQ(manager->list_volumes().at(0).byte_length, 1234u);
}

TEST_F(ManagerTest, AReleaseOfAnOpeningThatWasNotGrantedIsRefused) {
    const auto a = client("alice"), b = client("bob");
    ASSERT_TRUE(create(a, "v").ok());
    const auto o = open(a, "v");
    const auto id = o->record.geometry.volume;
    const auto epoch = o->record.epoch;
    for (const std::uint64_t length : {std::uint64_t{1234}, ~std::uint64_t{0}}) {
        expect_error(manager->release_volume(a, id, 99, length), Errc::kState, "epoch 99");
        expect_error(manager->release_volume(b, id, epoch, length), Errc::kPermission, "'bob'");
    }
    ASSERT_TRUE(manager->release_volume(a, id, epoch, 1234).ok());
    expect_error(manager->release_volume(a, id, epoch + 1, ~0ull), Errc::kState, "never opened");
    EXPECT_TRUE(manager->release_volume(a, id, epoch, ~0ull).ok())
        << "a release repeated after a lost answer must succeed";
}

TEST_F(ManagerTest, AChangeThatADriveRefusedStaysPendingAndIsCompletedByTick) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    refuse(2);
    expect_error(open(a, "v"), Errc::kIo, "not in force");
    EXPECT_TRUE(open(a, "v", client::OpenMode::kRead).ok()) << "reading waits for no drive";
    EXPECT_EQ(manager->tick(now).pending, 1u);
    heal();
    EXPECT_EQ(manager->tick(now).settled, 1u);
    EXPECT_TRUE(open(a, "v", client::OpenMode::kRead).ok());
}

TEST_F(ManagerTest, AnInterruptedCreationIsNotListedAndIsCompletedWhenRepeated) {
    const auto a = client("alice");
    refuse(3);
    expect_error(create(a, "v"), Errc::kIo, "not in force");
    EXPECT_TRUE(manager->list_volumes().empty());
    heal();
    EXPECT_TRUE(create(a, "v").ok());
    EXPECT_EQ(manager->list_volumes().size(), 1u);
}

TEST_F(ManagerTest, AChangeWhoseRecordSurvivesOnlyTheProcessIsReportedAsRecorded) {
    refuse(3);
    const auto with = create(client("alice"), "v");
    expect_error(with, Errc::kIo, "not in force on every SSD");
    EXPECT_EQ(with.error().message.find("recorded"), std::string::npos) << with.error().message;
    manager.reset();
    heal();
    store = std::make_unique<FlakyStore>();
    start();
    refuse(3);
    expect_error(create(client("bob"), "w"), Errc::kIo, "recorded but not in force");
}

TEST_F(ManagerTest, ADriveWhoseTableIsFullUndoesTheCreation) {
    const auto a = client("alice");
    array.flash[1]->max_volumes = 1;
    ASSERT_TRUE(create(a, "v").ok());
    expect_error(create(a, "w"), Errc::kNoSpace, "not created");
    manager->tick(now);
    for (const auto& flash : array.flash) EXPECT_EQ(flash->volumes.size(), 1u);
    array.flash[1]->max_volumes = 8;
    EXPECT_TRUE(create(a, "w").ok());
}

TEST_F(ManagerTest, OpeningAVolumeThatADriveRefusesForGoodFailsAndUndoesItsCreation) {
    const auto a = client("alice");
    for (const auto& flash : array.flash) flash->purged[1] = 500;
    array.drives[0]->fault = [](bool after) { return after ? Fault::kLoseAnswer : Fault::kNone; };
    expect_error(create(a, "v"), Errc::kTimedOut, "not in force");
    heal();
    EXPECT_FALSE(open(a, "v").ok());
    expect_error(open(a, "v"), Errc::kNotFound, "no volume 'v'");
    EXPECT_TRUE(create(a, "v").ok());
}

TEST_F(ManagerTest, AReleaseAskedAgainWhileTheStoreWasUnsureNamesItsVolume) {
    auto flaky = std::make_unique<FlakyStore>();
    FlakyStore& fails = *flaky;
    store = std::move(flaky);
    start();
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    const auto opened = open(a, "v");
    ASSERT_TRUE(opened.ok());
    const auto release = [&] {
        return manager->release_volume(a, opened->record.geometry.volume, opened->record.epoch, 5);
    };
    refuse(3);
    expect_error(release(), Errc::kIo, "not in force");
    fails.broken = true;
    expect_error(manager->register_client("zoe"), Errc::kIo, "broken");
    fails.broken = false;
    expect_error(release(), Errc::kIo, "the release of volume 'v'");
    heal();
    EXPECT_TRUE(release().ok());
    EXPECT_EQ(manager->list_volumes().at(0).byte_length, 5u);
}

TEST_F(ManagerTest, AVolumeWhoseDeletionTheStoreMayHaveKeptIsNotOpened) {
    auto flaky = std::make_unique<FlakyStore>();
    FlakyStore& fails = *flaky;
    store = std::move(flaky);
    start();
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    refuse(1);
    ASSERT_FALSE(open(a, "v").ok()) << "the volume's last change still waits for a drive";
    // The mark is kept, but neither the store's answer nor the store itself can be read.
    fails.keeps = true;
    fails.broken = true;
    ASSERT_FALSE(manager->delete_volume(a, "v", now).ok());
    expect_error(open(a, "v", client::OpenMode::kRead), Errc::kIo, "broken");
    fails.broken = false;
    heal();
    expect_error(open(a, "v", client::OpenMode::kRead), Errc::kNotFound, "being deleted");
}

}  // namespace
