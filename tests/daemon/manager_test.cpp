// manager_test.cpp: promises of the daemon's decisions, one by one, against model drives.
#include "daemon/manager.hpp"
#include "daemon/model_ssd.hpp"

#include <gtest/gtest.h>

using namespace gnstor;
using namespace gnstor::daemon;
using namespace gnstor::daemon::test;

namespace {

class ManagerTest : public ::testing::Test {
  protected:
    void SetUp() override { start(); }
    void TearDown() override {
        for (const auto& flash : array.flash)
            for (const std::string& v : flash->violations) ADD_FAILURE() << v;
    }
    void start() {
        manager.reset();
        array.boot();
        auto started = Manager::start(*store, array.ports(), options, now);
        ASSERT_TRUE(started.ok()) << started.error().message;
        manager = std::move(started).value();
    }
    void lose_store() { store = std::make_unique<MemoryRecordStore>(); }
    nvme::ClientId client(const std::string& name) { return manager->register_client(name).value().id; }
    Result<nvme::VolumeRecord> create(nvme::ClientId owner, const std::string& name,
                                      bool any_writer = false) {
        client::CreateVolume request{name, 1 << 20};
        request.any_writer = any_writer;
        return manager->create_volume(owner, request);
    }
    Result<client::OpenedVolume> open(nvme::ClientId who, const std::string& name,
                                      client::OpenMode mode = client::OpenMode::kWrite) {
        return manager->open_volume(who, name, mode, now);
    }
    template <class T>
    static void expect_error(const Result<T>& result, Errc code, const std::string& part) {
        ASSERT_FALSE(result.ok());
        EXPECT_EQ(result.error().code, code) << result.error().message;
        EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
    }
    void refuse(std::uint32_t slot) {
        array.drives[slot]->fault = [](bool) { return Fault::kRefuse; };
    }
    void heal() {
        for (auto& drive : array.drives) drive->fault = nullptr;
    }

    ModelArray array{4};
    std::unique_ptr<RecordStore> store = std::make_unique<MemoryRecordStore>();
    ManagerOptions options{1000, 0, 7};
    std::uint64_t now = 50'000;
    std::unique_ptr<Manager> manager;
};

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

TEST_F(ManagerTest, BadRequestsAreRefusedWithASentence) {
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
        EXPECT_EQ(flash->volumes.at(id).epoch, opened->record.epoch + 1);
    }
    expect_error(manager->renew_lease(a, id, opened->record.epoch, now), Errc::kState, "closed");
    EXPECT_TRUE(open(b, "v").ok());
}

TEST_F(ManagerTest, AnEndedLeaseDoesNotHoldUpTheNextWriterBeforeTick) {
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

TEST_F(ManagerTest, SharingGivesReadingAndNoMore) {
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

TEST_F(ManagerTest, AReaderListIsBoundedWithAWayOut) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    for (std::uint32_t i = 0; i < nvme::kMaxReaders; ++i)
        ASSERT_TRUE(manager->share_volume(a, "v", client(fmt::format("r{}", i))).ok());
    expect_error(manager->share_volume(a, "v", client("late")), Errc::kNoSpace, "everybody");
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

TEST_F(ManagerTest, AChangeThatADriveRefusedIsPendingAndSettlesByItself) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    refuse(2);
    expect_error(open(a, "v"), Errc::kIo, "not in force");
    expect_error(open(a, "v", client::OpenMode::kRead), Errc::kIo, "not in force");
    EXPECT_EQ(manager->tick(now).pending, 1u);
    heal();
    EXPECT_EQ(manager->tick(now).settled, 1u);
    EXPECT_TRUE(open(a, "v", client::OpenMode::kRead).ok());
}

TEST_F(ManagerTest, ACreationThatStoppedHalfwayIsNotListedAndGoesOnWhenAskedAgain) {
    const auto a = client("alice");
    refuse(3);
    expect_error(create(a, "v"), Errc::kIo, "recorded but not in force");
    EXPECT_TRUE(manager->list_volumes().empty());
    heal();
    EXPECT_TRUE(create(a, "v").ok());
    EXPECT_EQ(manager->list_volumes().size(), 1u);
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

TEST_F(ManagerTest, ARebuildNeverGivesAReadersNumberToSomebodyElse) {
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
    expect_error(Manager::start(*store, ports, options, now), Errc::kState, "bring exactly its SSDs back");
    refuse(1);
    expect_error(Manager::start(*store, array.ports(), options, now), Errc::kIo, "bring it back");
}

TEST_F(ManagerTest, AnOlderStoreTakesWhatTheDrivesHaveNewer) {
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

TEST_F(ManagerTest, ADriveThatLagsIsBroughtUpAtStart) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    refuse(0);
    ASSERT_FALSE(open(a, "v").ok());
    start();
    EXPECT_EQ(manager->start_report().repaired, 1u);
    EXPECT_EQ(array.flash[0]->volumes.begin()->second.writer, a);
}

TEST_F(ManagerTest, AnOlderDaemonIsSupersededAndSaysSo) {
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

TEST_F(ManagerTest, AMissingDriveKeepsItsSlotAndHoldsUpChangesOnly) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    const auto version = manager->array()->map.version;
    manager.reset();
    array.boot();
    auto ports = array.ports();
    ports.erase(ports.begin() + 1);
    auto started = Manager::start(*store, ports, options, now);
    ASSERT_TRUE(started.ok()) << started.error().message;
    EXPECT_EQ(started.value()->start_report().warnings.size(), 1u);
    EXPECT_EQ(started.value()->array()->map.version, version);
    EXPECT_TRUE(started.value()->open_volume(a, "v", client::OpenMode::kRead, now).ok());
    expect_error(started.value()->open_volume(a, "v", client::OpenMode::kWrite, now), Errc::kIo,
                 "slot 1 is missing");
    started.value().reset();
    start();
    EXPECT_TRUE(open(a, "v").ok());
}

TEST_F(ManagerTest, TheMapChangesWithTheMembershipOnlyWhileThereIsNoVolume) {
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

TEST_F(ManagerTest, VolumeIdsComeBackAboveTheirOldEpochs) {
    const auto a = client("alice");
    Records full;
    full.term = 1;
    full.clients[a] = "alice";
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

TEST_F(ManagerTest, ALostStoreDoesNotLetAVolumeBeBornBelowItsEarlierLife) {
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

}  // namespace
