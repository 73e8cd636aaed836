// replace_test.cpp: a lost SSD's slot is given to a spare, which is filled and becomes *in*; and when it is not.
#include "daemon/manager_rig.hpp"

namespace gnstor::daemon::test::replace_test {

class ReplaceTest : public ManagerTest {
  protected:
    static constexpr std::uint32_t kLost = 2;

    void SetUp() override {
        options.grant_ms = kGrantMs;
        options.takes_out = false;  // OutTest has slots that are out
        start();
        owner = client("alice");
        ASSERT_TRUE(create(owner, "v").ok());
        ASSERT_TRUE(create(owner, "w").ok());
    }
    /// The store of an SSD is lost, and an empty one is in its place.
    void lose(std::uint32_t slot) {
        manager.reset();
        lost = std::move(array.flash[slot]);
        array.flash[slot] = std::make_unique<ModelFlash>();
        array.flash[slot]->uuid[0] = 0xB0;
        array.flash[slot]->uuid[15] = static_cast<std::uint8_t>(++spares);
        start();
    }
    void lose_and_wait(std::uint32_t slot) {
        lose(slot);
        let_pass(kBoundMs + 1'000);
    }
    using ManagerTest::rebuild;
    void rebuild() { rebuild(kLost); }

    nvme::ClientId owner = 0;
    std::uint32_t spares = 0;
    std::unique_ptr<ModelFlash> lost;
};

TEST_F(ReplaceTest, ASpareTakesTheSlotIsFilledAndBecomesIn) {
    const std::uint32_t before = version();
    lose_and_wait(kLost);
    EXPECT_EQ(state(kLost), "missing");
    EXPECT_FALSE(create(owner, "x").ok());
    ASSERT_TRUE(manager->replace_ssd(kLost, now).ok());
    EXPECT_EQ(state(kLost), "rebuilding");
    EXPECT_EQ(version(), before + 1);
    EXPECT_EQ(array.flash[kLost]->volumes.size(), 2u) << "the spare knows the volumes before it gets the map";
    EXPECT_EQ(array.flash[kLost]->maps.begin()->second.slots[kLost].state, placement::SlotState::kRebuilding);
    ASSERT_TRUE(manager->info(now).rebuild.has_value());
    EXPECT_EQ(manager->info(now).rebuild->slot, kLost);
    rebuild();
    EXPECT_EQ(state(kLost), "in");
    EXPECT_EQ(version(), before + 2);
    EXPECT_FALSE(manager->info(now).rebuild.has_value());
    EXPECT_NE(array.drives[kLost]->copies_taken, 0u);
    for (std::uint32_t s = 0; s < 4; ++s) EXPECT_EQ(array.flash[s]->map_version, before + 2) << "slot " << s;
    EXPECT_TRUE(create(owner, "x").ok()) << "volumes can be created again";
}

TEST_F(ReplaceTest, NothingIsReplacedWhileTheLostSsdMayHoldAGrant) {
    lose(kLost);
    expect_error(manager->replace_ssd(kLost, now), Errc::kBusy, "may still serve");
    let_pass(kBoundMs + 1'000);
    EXPECT_TRUE(manager->replace_ssd(kLost, now).ok());
}

TEST_F(ReplaceTest, AnSsdThatServesIsNotReplaced) {
    expect_error(manager->replace_ssd(kLost, now), Errc::kState, "serves");
    expect_error(manager->replace_ssd(9, now), Errc::kNotFound, "no slot 9");
}

TEST_F(ReplaceTest, AnSsdThatHasBeenPartOfAnArrayIsNoSpare) {
    manager.reset();
    array.flash[kLost]->uuid[0] = 0xC0;  // another incarnation that still holds volumes
    start();
    let_pass(kBoundMs + 1'000);
    expect_error(manager->replace_ssd(kLost, now), Errc::kState, "not empty");
}

TEST_F(ReplaceTest, AVolumeOfOneReplicaIsNotGivenUp) {
    client::CreateVolume request{"lone", 1 << 20};
    request.replicas = 1;
    ASSERT_TRUE(manager->create_volume(owner, request).ok());
    lose_and_wait(kLost);
    expect_error(manager->replace_ssd(kLost, now), Errc::kState, "'lone' has one replica");
}

TEST_F(ReplaceTest, AnotherSlotWithoutItsSsdIsADonorThatMayBeNeeded) {
    lose_and_wait(kLost);
    refuse(0);
    let_pass(kBoundMs + 1'000);
    expect_error(manager->replace_ssd(kLost, now), Errc::kIo, "slot 0 does not serve either");
}

TEST_F(ReplaceTest, ARebuildContinuesInTheNextDaemon) {
    lose_and_wait(kLost);
    ASSERT_TRUE(manager->replace_ssd(kLost, now).ok());
    (void)manager->copy_some(3);
    start();
    EXPECT_EQ(state(kLost), "rebuilding");
    rebuild();
    EXPECT_EQ(state(kLost), "in");
}

TEST_F(ReplaceTest, NothingIsCopiedBeforeTheMapIsInForce) {
    lose_and_wait(kLost);
    array.drives[0]->fault = [n = 0](bool after) mutable {
        return !after && ++n > 1 ? Fault::kRefuse
                                 : Fault::kNone;  // it answers, and does not take the new map
    };
    expect_error(manager->replace_ssd(kLost, now), Errc::kIo, "not in force on every SSD");
    EXPECT_EQ(state(kLost), "rebuilding");
    EXPECT_FALSE(manager->copy_some(16));
    EXPECT_EQ(array.drives[kLost]->copies_taken, 0u);
    heal();
    let_pass(4'000);
    rebuild();
    EXPECT_EQ(state(kLost), "in");
}

TEST_F(ReplaceTest, AnSsdThatIsFoundWhileTheDaemonRunsIsASpare) {
    ModelFlash flash;
    flash.uuid[0] = 0xC0;
    ModelSsd found(9, flash);
    refuse(kLost);
    let_pass(kBoundMs + 1'000);
    expect_error(manager->replace_ssd(kLost, now), Errc::kNotFound, "there is no spare");
    ASSERT_TRUE(manager->add_spare(found, now).ok());
    expect_error(manager->add_spare(found, now), Errc::kExists, "already");
    EXPECT_EQ(manager->info(now).ssds.back().state, "spare");
    ASSERT_TRUE(manager->replace_ssd(kLost, now).ok());
    const ArrayInfo info = manager->info(now);
    EXPECT_EQ(info.ssds.size(), array.flash.size()) << "the lost SSD is shown no more";
    EXPECT_TRUE(info.warnings.empty());
    rebuild();
    EXPECT_EQ(state(kLost), "in");
    EXPECT_EQ(flash.volumes.size(), 2u);
    expect_error(manager->add_spare(*array.drives[0], now), Errc::kExists, "already");
    EXPECT_TRUE(create(owner, "x").ok());
}

TEST_F(ReplaceTest, AnSsdOfTheMapOrOfAnotherArrayIsNoSpare) {
    lose(kLost);
    ModelSsd back(kLost, *lost);
    expect_error(manager->add_spare(back, now), Errc::kState, "restart gnstord");
    ModelFlash flash;
    flash.uuid[0] = 0xC0;
    flash.term = 1'000;
    ModelSsd foreign(9, flash);
    EXPECT_FALSE(manager->add_spare(foreign, now).ok());
    EXPECT_TRUE(manager->info(now).superseded.empty()) << "a stranger's SSD ends no daemon";
    foreign.fault = [](bool) { return Fault::kRefuse; };
    EXPECT_FALSE(manager->add_spare(foreign, now).ok());
    EXPECT_EQ(manager->info(now).ssds.size(), array.flash.size() + 1)
        << "with the spare, and the missing one";
}

TEST_F(ReplaceTest, AnEarlierStoreOfTheSsdThatWasFilledIsAnOlderCopy) {
    // Copied when it had just got the slot, in the middle, and when all was copied but it was not *in* yet.
    for (const std::uint32_t commands : {0u, 40u, 100'000u})
        for (const bool restarted : {false, true}) {
            lose_and_wait(kLost);
            ASSERT_TRUE(manager->replace_ssd(kLost, now).ok());
            const auto before = [&] { return *array.flash[kLost]; };
            ModelFlash copy = before();
            for (std::uint32_t i = 0; i < commands && state(kLost) == "rebuilding"; ++i) {
                copy = before();
                (void)manager->copy_some(1);
            }
            if (restarted) {
                manager.reset();
                start();
            }
            rebuild();
            ASSERT_EQ(state(kLost), "in");
            manager.reset();
            *array.flash[kLost] = copy;
            start();
            EXPECT_EQ(state(kLost), "stale") << commands << " commands, restarted " << restarted;
        }
}

TEST_F(ReplaceTest, AskedAgainItChangesNothingWhileTheNewSsdAnswers) {
    lose_and_wait(kLost);
    ASSERT_TRUE(manager->replace_ssd(kLost, now).ok());
    const std::uint32_t given = version();
    ModelFlash flash;
    flash.uuid[0] = 0xC0;
    ModelSsd another(9, flash);
    ASSERT_TRUE(manager->add_spare(another, now).ok());
    EXPECT_TRUE(manager->replace_ssd(kLost, now).ok());
    EXPECT_EQ(version(), given);
    refuse(kLost);
    expect_error(manager->replace_ssd(kLost, now), Errc::kBusy, "may still serve");
    let_pass(kBoundMs + 1'000);
    EXPECT_TRUE(manager->replace_ssd(kLost, now).ok()) << "the new SSD is lost, too";
    EXPECT_EQ(version(), given + 1);
    rebuild();
    EXPECT_EQ(state(kLost), "in");
    EXPECT_EQ(flash.volumes.size(), 2u);
}

TEST_F(ReplaceTest, ASpareOnTheNodeOfAnotherFailureDomainIsRefused) {
    const auto on_nodes = [&](const char* of_the_spare) {
        manager.reset();
        for (std::uint32_t s = 0; s < 4; ++s) array.flash[s]->node = fmt::format("node-{}", s);
        array.flash[kLost]->node = of_the_spare;
        start();
        let_pass(kBoundMs + 1'000);
    };
    lose(kLost);
    on_nodes("node-0");
    expect_error(manager->replace_ssd(kLost, now), Errc::kState, "another failure domain");
    on_nodes("node-9");
    EXPECT_TRUE(manager->replace_ssd(kLost, now).ok());
}

TEST_F(ReplaceTest, ASaveOfUnknownOutcomeThatWasStoredIsCarriedOut) {
    auto flaky = std::make_unique<FlakyStore>();
    FlakyStore& kept = *flaky;
    lose_store();
    store = std::move(flaky);
    start();
    lose_and_wait(kLost);
    kept.broken = kept.keeps = true;
    EXPECT_FALSE(manager->replace_ssd(kLost, now).ok());
    kept.broken = false;
    let_pass(4'000);
    EXPECT_EQ(state(kLost), "rebuilding");
    EXPECT_EQ(array.flash[kLost]->volumes.size(), 2u);
    rebuild();
    EXPECT_EQ(state(kLost), "in");
}

TEST_F(ReplaceTest, AnSsdThatRefusesTheMapDoesNotKeepItFromComingIntoForce) {
    lose_and_wait(kLost);
    array.drives[kLost]->refuses_maps = true;
    (void)manager->replace_ssd(kLost, now).ok();
    let_pass(kBoundMs + 4'000);
    EXPECT_TRUE(manager->array().ok()) << "it holds no grant, as it refused every one";
    array.drives[kLost]->refuses_maps = false;
    rebuild();
    EXPECT_EQ(state(kLost), "in");
}

TEST_F(ReplaceTest, ADonorThatDoesNotKnowAVolumeDoesNotEndItsCopying) {
    lose_and_wait(kLost);
    ASSERT_TRUE(manager->replace_ssd(kLost, now).ok());
    const auto volumes = array.flash[0]->volumes;
    array.flash[0]->volumes.clear();
    for (int i = 0; i < 2'000; ++i) (void)manager->copy_some(16);
    EXPECT_EQ(state(kLost), "rebuilding");
    EXPECT_NE(manager->info(now).rebuild->ranges_stuck, 0u);
    array.flash[0]->volumes = volumes;
    rebuild();
    EXPECT_EQ(state(kLost), "in");
}

TEST_F(ReplaceTest, ASpareIsAsLargeAsTheSlotNeedsAlsoAfterALargerOne) {
    const std::uint64_t blocks = array.flash[0]->capacity_blocks;
    const auto replace_by = [&](std::uint32_t slot, std::uint64_t capacity) {
        lose(slot);
        array.flash[slot]->capacity_blocks = capacity;
        manager.reset();
        start();
        let_pass(kBoundMs + 1'000);
        return manager->replace_ssd(slot, now);
    };
    ASSERT_TRUE(replace_by(kLost, blocks * 2).ok());
    rebuild();
    ASSERT_EQ(state(kLost), "in");
    expect_error(replace_by(0, blocks - blocks / 100), Errc::kNoSpace, "too small");
    EXPECT_TRUE(replace_by(0, blocks).ok()) << "as large as the one that was lost";
}

TEST_F(ReplaceTest, AnSsdThatReconnectsIsFilledFromTheBeginning) {
    lose_and_wait(kLost);
    ASSERT_TRUE(manager->replace_ssd(kLost, now).ok());
    for (int i = 0; i < 40; ++i) (void)manager->copy_some(1);
    ASSERT_NE(manager->info(now).rebuild->blocks_done, 0u);
    array.drives[kLost]->reconnected = true;
    let_pass(4'000);
    EXPECT_EQ(manager->info(now).rebuild->blocks_done, 0u);
    rebuild();
    EXPECT_EQ(state(kLost), "in");
}

TEST_F(ReplaceTest, AnSsdWithAnOlderStoreIsReplacedLikeALostOne) {
    const ModelFlash copy = *array.flash[kLost];
    manager.reset();
    start();
    ASSERT_TRUE(create(owner, "x").ok());  // records the terms
    manager.reset();
    *array.flash[kLost] = copy;
    start();
    ASSERT_EQ(state(kLost), "stale");
    ModelFlash flash;
    flash.uuid[0] = 0xC0;
    ModelSsd found(9, flash);
    ASSERT_TRUE(manager->add_spare(found, now).ok());
    expect_error(manager->replace_ssd(kLost, now), Errc::kBusy, "may still serve");
    let_pass(kBoundMs + 1'000);
    ASSERT_TRUE(manager->replace_ssd(kLost, now).ok());
    EXPECT_TRUE(manager->info(now).warnings.empty());
    rebuild();
    EXPECT_EQ(state(kLost), "in");
}

TEST_F(ReplaceTest, WithoutRecordsAnSsdThatIsBeingFilledIsNotTakenForWhole) {
    lose_and_wait(kLost);
    ASSERT_TRUE(manager->replace_ssd(kLost, now).ok());
    manager.reset();
    lose_store();
    for (auto& flash : array.flash) flash->tells_map = false;
    array.boot();
    expect_error(Manager::start(*store, array.ports(), options, now), Errc::kState, "was being filled");
    for (auto& flash : array.flash) flash->tells_map = true;
    start();
    EXPECT_EQ(state(kLost), "rebuilding");
    rebuild();
    EXPECT_EQ(state(kLost), "in");
}

TEST_F(ReplaceTest, AnSsdThatWasReplacedDoesNotGetItsSlotBack) {
    for (const bool lost_records : {false, true}) {
        auto backup = std::make_unique<MemoryRecordStore>(static_cast<MemoryRecordStore&>(*store));
        lose_and_wait(kLost);
        ASSERT_TRUE(manager->replace_ssd(kLost, now).ok());
        rebuild();
        ASSERT_EQ(state(kLost), "in");
        const SsdInfo filled = manager->info(now).ssds[kLost];
        manager.reset();
        if (lost_records)
            lose_store();
        else
            store = std::move(backup);
        // The SSD that fills the slot is away, and the replaced one is in its place.
        std::swap(array.flash[kLost], lost);
        array.boot();
        auto started = Manager::start(*store, array.ports(), options, now);
        if (lost_records) {
            expect_error(started, Errc::kState, "is not here");
        } else {
            ASSERT_TRUE(started.ok()) << started.error().message;
            for (const SsdInfo& ssd : started.value()->info(now).ssds)
                EXPECT_EQ(ssd.state, ssd.slot == kLost ? "missing" : ssd.slot == kSpareSlot ? "spare" : "in");
        }
        // Both are there.
        started = error(Errc::kState, "none");
        array.boot();
        std::swap(array.flash[kLost], lost);
        array.boot();
        auto ports = array.ports();
        ModelSsd back(9, *lost);
        ports.push_back(&back);
        started = Manager::start(*store, ports, options, now);
        ASSERT_TRUE(started.ok()) << started.error().message;
        EXPECT_EQ(started.value()->info(now).ssds[kLost].uuid, filled.uuid);
        EXPECT_EQ(started.value()->info(now).ssds.back().state, "spare");
        started = error(Errc::kState, "none");
        start();
        ASSERT_EQ(state(kLost), "in");
    }
}

TEST_F(ReplaceTest, ASilentDonorOrTargetDelaysTheRebuildAndDoesNotEndIt) {
    lose_and_wait(kLost);
    ASSERT_TRUE(manager->replace_ssd(kLost, now).ok());
    for (const std::uint32_t slot : {0u, 1u, 3u, kLost}) {
        refuse(slot);
        for (int i = 0; i < 5; ++i) (void)manager->copy_some(16);
        EXPECT_EQ(state(kLost), "rebuilding") << "with a silent slot " << slot;
        heal();
    }
    rebuild();
    EXPECT_EQ(state(kLost), "in");
}

/// An SSD that was part of another array, whose map has this version and no volume any more.
ModelFlash of_another_array(std::uint32_t version) {
    ModelFlash flash;
    flash.uuid[0] = 0xF0;
    flash.term = 1;
    placement::ArrayMap map{};
    map.version = version;
    map.slot_count = 1;
    map.slots[0].state = placement::SlotState::kIn;
    map.slots[0].weight = 1000;
    std::copy(flash.uuid.begin(), flash.uuid.end(), map.slots[0].ssd_uuid);
    flash.maps[version] = map;
    return flash;
}

TEST_F(ReplaceTest, WithoutRecordsTheMapOfAnotherArrayDoesNotCostThisArrayItsVolumes) {
    for (const std::uint32_t version : {version(), version() + 7}) {
        manager.reset();
        lose_store();
        ModelFlash flash = of_another_array(version);
        array.boot();
        ModelSsd foreign(9, flash);
        std::vector<SsdPort*> ports = {&foreign};
        for (SsdPort* port : array.ports()) ports.push_back(port);
        expect_error(Manager::start(*store, ports, options, now), Errc::kState, "is of another array");
        for (const auto& of_array : array.flash) EXPECT_EQ(of_array->volumes.size(), 2u);
    }
    start();
    EXPECT_EQ(manager->list_volumes().size(), 2u);
}

TEST_F(ReplaceTest, VolumesOfAnSsdOfAnotherArrayDoNotComeIntoTheRecordsNorAreTheyRemovedThere) {
    const nvme::VolumeRecord of_this_array = array.flash[0]->volumes.begin()->second;
    for (const bool empty : {false, true}) {
        if (empty) {
            ASSERT_TRUE(manager->delete_volume(owner, "v", now).ok());
            ASSERT_TRUE(manager->delete_volume(owner, "w", now).ok());
        }
        ModelFlash flash = of_another_array(3);
        nvme::VolumeRecord record = of_this_array;
        record.record_version = nvme::kVolumeRecordVersion;
        record.geometry = {7, 256, 77, 4, 2, 0};
        record.epoch = record.birth_epoch = record.revision = 1;
        record.owner = owner;
        std::memset(record.name, 0, sizeof record.name);
        std::memcpy(record.name, "theirs", 6);
        flash.volumes[77] = record;
        manager.reset();
        array.boot();
        ModelSsd foreign(9, flash);
        auto ports = array.ports();
        ports.push_back(&foreign);
        auto started = Manager::start(*store, ports, options, now);
        ASSERT_TRUE(started.ok()) << started.error().message;
        EXPECT_EQ(started.value()->list_volumes().size(), empty ? 0u : 2u);
        EXPECT_EQ(started.value()->info(now).ssds.back().state, "spare");
        EXPECT_EQ(flash.volumes.size(), 1u);
        started = error(Errc::kState, "none");
        start();
    }
}

TEST_F(ReplaceTest, RecordsThatAreAnOlderCopyTakeTheMapFromTheNewSsdAloneOrFindThatTheyAreOlderLater) {
    auto backup = std::make_unique<MemoryRecordStore>(static_cast<MemoryRecordStore&>(*store));
    lose_and_wait(kLost);
    ASSERT_TRUE(manager->replace_ssd(kLost, now).ok());
    rebuild();
    const std::uint32_t newest = version();
    manager.reset();
    store = std::move(backup);
    const auto boot_with_both = [&](ModelSsd& replaced) {
        auto ports = array.ports();
        ports.push_back(&replaced);
        for (const std::uint32_t s : {0u, 1u, 3u}) refuse(s);
        return ports;
    };
    {  // The SSD that fills the slot and the one that was replaced answer, and no other does.
        array.boot();
        ModelSsd replaced(9, *lost);
        auto started = Manager::start(*store, boot_with_both(replaced), options, now);
        ASSERT_TRUE(started.ok()) << started.error().message;
        EXPECT_EQ(started.value()->info(now).map_version, newest);
        EXPECT_EQ(started.value()->info(now).ssds.back().state, "spare");
    }
    // An SSD of the map that was silent at the start has a newer map: nothing is changed by these records any more.
    backup = std::make_unique<MemoryRecordStore>();
    manager.reset();
    array.boot();
    start();
    auto older = std::make_unique<MemoryRecordStore>(static_cast<MemoryRecordStore&>(*store));
    lose_and_wait(3);
    ASSERT_TRUE(manager->replace_ssd(3, now).ok());
    const ModelFlash filled = *array.flash[3];
    manager.reset();
    store = std::move(older);
    array.boot();
    auto ports = array.ports();
    ports.pop_back();
    for (const std::uint32_t s : {0u, 1u, 2u}) refuse(s);
    auto started = Manager::start(*store, ports, options, now);
    ASSERT_TRUE(started.ok()) << started.error().message;
    heal();
    for (int i = 0; i < 5; ++i) started.value()->tick(now += 1'000);
    EXPECT_NE(started.value()->info(now).superseded.find("older copy"), std::string::npos)
        << started.value()->info(now).superseded;
}

TEST_F(ReplaceTest, RecordsOnAFullDiskWhoseMapIsOlderThanThatOfTheSsdsAreNotServed) {
    auto flaky = std::make_unique<FlakyStore>();
    FlakyStore* records = flaky.get();
    manager.reset();
    store = std::move(flaky);
    start();
    for (auto& flash : array.flash) {  // a later daemon changed the map, and its records are lost
        placement::ArrayMap map = flash->maps.rbegin()->second;
        map.version += 1;
        map.slots[kLost].state = placement::SlotState::kRebuilding;
        flash->maps[map.version] = map;
    }
    manager.reset();
    records->full = true;
    array.boot();
    expect_error(Manager::start(*store, array.ports(), options, now), Errc::kState, "newer map");
    records->full = false;
    start();
    EXPECT_EQ(state(kLost), "rebuilding");
}

TEST_F(ReplaceTest, ADonorThatServedSecondsAgoIsAskedBeforeAnSsdIsGivenUp) {
    lose_and_wait(kLost);
    refuse(0);
    expect_error(manager->replace_ssd(kLost, now), Errc::kIo, "slot 0 does not serve either");
    heal();
    let_pass(kGrantMs);
    EXPECT_TRUE(manager->replace_ssd(kLost, now).ok());
}

TEST_F(ReplaceTest, WithoutRecordsASpareThatNoCommandReachedIsFilledAllTheSame) {
    lose_and_wait(kLost);
    const ModelFlash untouched = *array.flash[kLost];
    ASSERT_TRUE(manager->replace_ssd(kLost, now).ok());
    manager.reset();
    lose_store();
    *array.flash[kLost] = untouched;
    array.flash[kLost]->term = 0;
    start();
    EXPECT_EQ(state(kLost), "rebuilding");
    rebuild();
    EXPECT_EQ(state(kLost), "in");
}

TEST_F(ReplaceTest, AWriteProtectedSsdIsNoSpareAndASpareThatRefusesTheMapIsNamed) {
    lose_and_wait(kLost);
    array.drives[kLost]->write_protected = true;
    expect_error(manager->replace_ssd(kLost, now), Errc::kState, "write protected");
    array.drives[kLost]->write_protected = false;
    array.drives[kLost]->refuses_maps = true;
    (void)manager->replace_ssd(kLost, now).ok();
    let_pass(kBoundMs + kGrantMs);
    expect_error(manager->replace_ssd(kLost, now), Errc::kState, "has not taken the map");
    array.drives[kLost]->refuses_maps = false;
    let_pass(kGrantMs);
    EXPECT_TRUE(manager->replace_ssd(kLost, now).ok());
    rebuild();
    EXPECT_EQ(state(kLost), "in");
}

TEST_F(ReplaceTest, AVolumeThatAnSsdLacksWhileItIsFilledWasNotDeleted) {
    lose_and_wait(kLost);
    ASSERT_TRUE(manager->replace_ssd(kLost, now).ok());
    auto copy = std::make_unique<MemoryRecordStore>(static_cast<MemoryRecordStore&>(*store));
    manager.reset();
    store = std::move(copy);
    // A later daemon had begun to send it the volumes again, and the records are of before.
    array.flash[kLost]->volumes.clear();
    array.flash[kLost]->term += 5;
    array.boot();
    for (const std::uint32_t s : {0u, 1u, 3u}) refuse(s);
    auto started = Manager::start(*store, array.ports(), options, now);
    ASSERT_TRUE(started.ok()) << started.error().message;
    EXPECT_EQ(started.value()->list_volumes().size(), 2u);
}

}  // namespace gnstor::daemon::test::replace_test
