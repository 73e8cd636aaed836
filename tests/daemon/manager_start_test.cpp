// manager_start_test.cpp: what a start makes of store and drives: restarts, lost and old stores, drives that
// are missing, late, foreign or in the middle of a change.
#include "daemon/manager_rig.hpp"

using namespace gnstor;
using namespace gnstor::daemon;
using namespace gnstor::daemon::test;

namespace {

TEST_F(ManagerTest, ADeletionIsFinishedAfterARestartWithOrWithoutTheStore) {
    for (const bool lost : {false, true}) {
        const auto a = client("alice");
        ASSERT_TRUE(create(a, "v").ok());
        // Drive 1 takes the mark and refuses to purge.
        int commands = 0;
        array.drives[1]->fault = [&commands](bool after) {
            return !after && ++commands > 1 ? Fault::kRefuse : Fault::kNone;
        };
        expect_error(manager->delete_volume(a, "v", now), Errc::kIo, "not in force");
        EXPECT_TRUE(array.flash[0]->volumes.empty());
        EXPECT_EQ(array.flash[1]->volumes.size(), 1u);
        expect_error(create(a, "v"), Errc::kBusy, "being deleted");
        if (lost) lose_store();
        start();
        for (const auto& flash : array.flash) EXPECT_TRUE(flash->volumes.empty()) << "lost: " << lost;
        ASSERT_TRUE(create(client("alice"), "v").ok());
        ASSERT_TRUE(manager->delete_volume(client("alice"), "v", now).ok());
    }
}

TEST_F(ManagerTest, ALostStoreIsRebuiltFromTheDrives) {
    const auto a = client("alice"), b = client("bob");
    ASSERT_TRUE(create(a, "v").ok());
    ASSERT_TRUE(create(b, "w", true).ok());
    ASSERT_TRUE(manager->share_volume(a, "v", b).ok());
    const auto opened = open(b, "w");
    const auto old_term = manager->term();
    lose_store();
    start();
    EXPECT_TRUE(manager->start_report().rebuilt);
    EXPECT_EQ(manager->start_report().adopted, 2u);
    EXPECT_GT(manager->term(), old_term);
    ASSERT_EQ(manager->list_volumes().size(), 2u);
    EXPECT_EQ(client("alice"), a);
    EXPECT_EQ(client("bob"), b);
    EXPECT_TRUE(open(b, "v", client::OpenMode::kRead).ok());
    EXPECT_TRUE(manager->renew_lease(b, opened->record.geometry.volume, opened->record.epoch, now).ok());
    expect_error(open(a, "w"), Errc::kBusy, "'bob'");
}

TEST_F(ManagerTest, ARebuildDoesNotMistakeANewDriveForTheOneItReplaces) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    lose_store();
    // As formatted: no daemon has ever spoken to it.
    const auto old = *array.flash[1];
    array.flash[1]->volumes.clear();
    array.flash[1]->purged.clear();
    array.flash[1]->term = 0;
    manager.reset();
    array.boot();
    const auto refused = Manager::start(*store, array.ports(), options, now);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::kState);
    EXPECT_NE(refused.error().message.find("is new"), std::string::npos);
    *array.flash[1] = old;
    start();
    EXPECT_EQ(manager->list_volumes().size(), 1u);
}

TEST_F(ManagerTest, ARebuildNeverGivesAReadersClientIdToAnotherClient) {
    const auto a = client("alice"), b = client("bob");
    ASSERT_TRUE(create(a, "v").ok());
    ASSERT_TRUE(manager->share_volume(a, "v", b).ok());
    lose_store();
    start();
    const auto stranger = client("stranger");
    EXPECT_NE(stranger, b);
    expect_error(open(stranger, "v", client::OpenMode::kRead), Errc::kPermission, "not shared");
}

TEST_F(ManagerTest, ARebuildRefusesToGuessWhenADriveIsMissing) {
    ASSERT_TRUE(create(client("alice"), "v").ok());
    lose_store();
    array.boot();
    auto ports = array.ports();
    ports.pop_back();
    expect_error(Manager::start(*store, ports, options, now), Errc::kState,
                 "bring back exactly the SSDs of that array");
    refuse(1);
    expect_error(Manager::start(*store, array.ports(), options, now), Errc::kIo, "bring it back");
}

TEST_F(ManagerTest, AnOlderStoreTakesNewerRecordsFromTheDrives) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    auto backup = std::make_unique<MemoryRecordStore>(static_cast<MemoryRecordStore&>(*store));
    const auto opened = open(a, "v");
    ASSERT_TRUE(create(a, "later").ok());
    store = std::move(backup);
    start();
    EXPECT_EQ(manager->start_report().adopted, 2u);
    EXPECT_EQ(manager->list_volumes().size(), 2u);
    EXPECT_TRUE(manager->renew_lease(a, opened->record.geometry.volume, opened->record.epoch, now).ok());
}

TEST_F(ManagerTest, ADriveWithOlderRecordsIsUpdatedAtStart) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    refuse(0);
    ASSERT_FALSE(open(a, "v").ok());
    start();
    EXPECT_EQ(manager->start_report().repaired, 1u);
    EXPECT_EQ(array.flash[0]->volumes.begin()->second.writer, a);
}

TEST_F(ManagerTest, ADaemonWithAnOlderTermStopsAndReportsIt) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    array.boot();
    auto newer_store = std::make_unique<MemoryRecordStore>(static_cast<MemoryRecordStore&>(*store));
    auto newer = Manager::start(*newer_store, array.ports(), options, now);
    ASSERT_TRUE(newer.ok());
    std::vector<std::unique_ptr<ModelSsd>> fresh;
    array.boot();
    // The old Manager's ports are gone with boot(); a third one with the old store takes over instead.
    auto old_store = std::make_unique<MemoryRecordStore>(static_cast<MemoryRecordStore&>(*store));
    for (auto& flash : array.flash)
        flash->term += 10;  // somebody else took over between its start and its next change
    auto third = Manager::start(*old_store, array.ports(), options, now);
    ASSERT_TRUE(third.ok());
    for (auto& flash : array.flash) flash->term += 10;
    expect_error(third.value()->open_volume(a, "v", client::OpenMode::kWrite, now), Errc::kState,
                 "superseded");
    expect_error(third.value()->register_client("zoe"), Errc::kState, "superseded");
    manager.reset();
}

TEST_F(ManagerTest, AMissingDriveKeepsItsSlotAndBlocksOnlyChanges) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    const auto version = manager->array()->map.version;
    manager.reset();
    array.boot();
    auto ports = array.ports();
    ports.erase(ports.begin() + 1);
    auto started = Manager::start(*store, ports, options, now);
    ASSERT_TRUE(started.ok()) << started.error().message;
    EXPECT_EQ(started.value()->info(now).warnings.size(), 1u);
    EXPECT_EQ(started.value()->array()->map.version, version);
    EXPECT_TRUE(started.value()->open_volume(a, "v", client::OpenMode::kRead, now).ok());
    expect_error(started.value()->open_volume(a, "v", client::OpenMode::kWrite, now), Errc::kIo,
                 "slot 1 is missing");
    expect_error(started.value()->create_volume(a, {"w", 1 << 20}), Errc::kState, "slot 1 is missing");
    EXPECT_EQ(started.value()->list_volumes().size(), 1u) << "the volume must not be recorded";
    expect_error(started.value()->delete_volume(a, "v", now), Errc::kState, "nothing was changed");
    EXPECT_TRUE(started.value()->open_volume(a, "v", client::OpenMode::kRead, now).ok());
    started.value().reset();
    start();
    EXPECT_TRUE(open(a, "v").ok());
}

TEST_F(ManagerTest, MembersAreAddedToTheMapOnlyWhileNoVolumeExists) {
    EXPECT_EQ(manager->array()->map.version, 1u);
    EXPECT_EQ(manager->array()->ssds.size(), 4u);
    start();
    EXPECT_EQ(manager->array()->map.version, 1u) << "same members, same version";
    manager.reset();
    array.flash.push_back(std::make_unique<ModelFlash>());
    array.flash.back()->uuid[0] = 0x55;
    start();
    EXPECT_EQ(manager->array()->map.version, 2u);
    EXPECT_EQ(manager->array()->map.slot_count, 5u);
    ASSERT_TRUE(create(client("alice"), "v").ok());
    array.flash.push_back(std::make_unique<ModelFlash>());
    array.flash.back()->uuid[0] = 0x66;
    start();
    EXPECT_EQ(manager->array()->map.slot_count, 5u);
    EXPECT_EQ(manager->info(now).ssds.back().state, "spare");
}

TEST_F(ManagerTest, ReusedVolumeIdsStartAboveTheirOldEpochs) {
    const auto a = client("alice");
    Records full;
    full.term = 1;
    full.clients[a].name = "alice";
    Change change;
    change.term = manager->term();
    for (std::uint32_t id = 1; id <= 0xFFFF; ++id)
        change.retire_volumes.emplace_back(static_cast<nvme::VolumeId>(id), 5 + id % 7);
    ASSERT_TRUE(store->save(change).ok());
    start();
    const auto record = create(a, "again");
    ASSERT_TRUE(record.ok());
    EXPECT_GT(record->birth_epoch, 5u + record->geometry.volume % 7);
    EXPECT_EQ(record->epoch, record->birth_epoch);
}

TEST_F(ManagerTest, AfterTheLossOfTheStoreANewVolumeStartsAboveTheEpochsOfItsDeletedPredecessor) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    for (int i = 0; i < 5000; ++i) ASSERT_TRUE(open(a, "v").ok());
    const auto last = manager->list_volumes().at(0);
    ASSERT_TRUE(manager->delete_volume(a, "v", now).ok());
    lose_store();
    start();
    const auto again = create(client("alice"), "v");
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_TRUE(again->geometry.volume != last.geometry.volume || again->birth_epoch > last.epoch);
    for (const auto& flash : array.flash) EXPECT_EQ(flash->volumes.size(), 1u);
}

TEST_F(ManagerTest, ADriveOfAnotherArrayIsRefused) {
    ASSERT_TRUE(create(client("alice"), "v").ok());
    auto record = array.flash[2]->volumes.begin()->second;
    record.geometry.hash_factor ^= 1;
    array.flash[2]->volumes.begin()->second = record;
    manager.reset();
    array.boot();
    expect_error(Manager::start(*store, array.ports(), options, now), Errc::kCorrupt, "another array");
    record.geometry.capacity_blocks = 0;
    array.flash[2]->volumes.begin()->second = record;
    expect_error(Manager::start(*store, array.ports(), options, now), Errc::kCorrupt, "damaged");
}

TEST_F(ManagerTest, OtherContentsUnderTheSameRevisionAreRefused) {
    ASSERT_TRUE(create(client("alice"), "v").ok());
    const auto volume = array.flash[2]->volumes.begin();
    volume->second.reader_count ^= 1;
    array.boot();
    expect_error(Manager::start(*store, array.ports(), options, now), Errc::kCorrupt, "the same revision");
    volume->second.reader_count ^= 1;
    start();
}

TEST_F(ManagerTest, ACreationThatWasNeverInForceIsNotListedAfterARestart) {
    const auto a = client("alice");
    // An earlier life of the VID that the records know nothing of: every drive refuses, but the first one's
    // answer is lost, so that the creation is taken for one that only waits.
    for (const auto& flash : array.flash) flash->purged[1] = 500;
    array.drives[0]->fault = [](bool after) { return after ? Fault::kLoseAnswer : Fault::kNone; };
    expect_error(create(a, "v"), Errc::kTimedOut, "not in force");
    start();
    EXPECT_TRUE(manager->list_volumes().empty())
        << "a volume whose creation may be undone must not be listed";
    ASSERT_TRUE(create(a, "v").ok())
        << "when repeated, the volume starts above the epochs of its deleted predecessor";
    EXPECT_EQ(manager->list_volumes().size(), 1u);
    EXPECT_TRUE(open(a, "v").ok());
}

TEST_F(ManagerTest, ACreationThatOneDriveLacksIsListedAfterARestartOnceThatDriveHasIt) {
    const auto a = client("alice");
    refuse(2);
    expect_error(create(a, "v"), Errc::kIo, "not in force");
    manager.reset();
    array.boot();
    auto ports = array.ports();
    ports.erase(ports.begin() + 2);
    array.flash[1]->volumes.clear();  // as if the command had been lost there too
    auto partial = Manager::start(*store, ports, options, now);
    ASSERT_TRUE(partial.ok()) << partial.error().message;
    EXPECT_TRUE(partial.value()->list_volumes().empty()) << "slot 2 may still refuse it";
    partial.value().reset();
    start();
    EXPECT_EQ(manager->list_volumes().size(), 1u);
}

TEST_F(ManagerTest, ANewVolumeIsListedAfterARestartAlsoWhileADriveIsMissing) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    manager.reset();
    array.boot();
    auto ports = array.ports();
    ports.erase(ports.begin() + 2);
    auto partial = Manager::start(*store, ports, options, now);
    ASSERT_TRUE(partial.ok()) << partial.error().message;
    EXPECT_EQ(partial.value()->list_volumes().size(), 1u);
}

TEST_F(ManagerTest, ARefusalOfOneDriveDoesNotUndoAVolumeInForce) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    array.boot();
    // Slot 1 does not answer the start, and then refuses what it already has for want of space.
    refuse(1);
    manager.reset();
    auto started = Manager::start(*store, array.ports(), options, now);
    ASSERT_TRUE(started.ok()) << started.error().message;
    manager = std::move(started).value();
    heal();
    array.drives[1]->full = true;
    manager->tick(now);
    manager->tick(now);
    EXPECT_EQ(manager->list_volumes().size(), 1u);
    array.drives[1]->full = false;
    manager->tick(now);
    EXPECT_TRUE(open(a, "v").ok());
}

}  // namespace
