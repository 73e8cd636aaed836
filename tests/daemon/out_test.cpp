// out_test.cpp: SSDs that are silent are taken out of the map, and come back (manager_out.cpp).
#include "daemon/manager_rig.hpp"

namespace gnstor::daemon::test::out_test {

class OutTest : public ManagerTest {
  protected:
    static constexpr std::uint32_t kSilent = 2;

    void SetUp() override {
        options.grant_ms = kGrantMs;
        options.lease_ms = 100'000;
        start();
        owner = client("alice");
        ASSERT_TRUE(create(owner, "v").ok());
        ASSERT_TRUE(create(owner, "w").ok());
        manager->tick(now);
    }
    /// Another array, of two nodes with two SSDs each, and volume 'v'.
    void start_with_two_nodes() {
        manager.reset();
        for (std::uint32_t s = 0; s < 4; ++s) {
            array.flash[s] = std::make_unique<ModelFlash>();
            array.flash[s]->uuid[0] = static_cast<std::uint8_t>(0x70 + s);
            array.flash[s]->node = s < 2 ? "10.0.0.1" : "10.0.0.2";
        }
        lose_store();
        start();
        owner = client("alice");
        ASSERT_TRUE(create(owner, "v").ok());
    }
    void silence(std::uint32_t slot) {
        refuse(slot);
        array.flash[slot]->was_out = true;
    }
    void silence_until_out() {
        silence(kSilent);
        let_pass(kBoundMs + kGrantMs);
        ASSERT_EQ(state(kSilent), "out");
    }
    using ManagerTest::rebuild;
    void rebuild() { rebuild(kSilent); }
    void come_back() {
        heal();
        let_pass(7 * kGrantMs);  // it may have been taken back a short time ago
        EXPECT_EQ(state(kSilent), "rebuilding");
        rebuild();
        EXPECT_EQ(state(kSilent), "in");
    }
    std::string warnings() {
        std::string all;
        for (const std::string& warning : manager->info(now).warnings) all += warning + "\n";
        return all;
    }
    [[nodiscard]] bool knows(std::uint32_t slot, const std::string& name) {
        for (const auto& [id, record] : array.flash[slot]->volumes)
            if (name == record.name) return true;
        return false;
    }

    void add_spare() {
        spare_flash.uuid[0] = 0xC0;
        ASSERT_TRUE(manager->add_spare(spare, now).ok());
    }

    nvme::ClientId owner = 0;
    ModelFlash spare_flash;
    ModelSsd spare{9, spare_flash};
};

TEST_F(OutTest, ASilentSsdIsTakenOutWhenItsGrantHasEndedAndNotBefore) {
    const std::uint32_t before = version();
    silence(kSilent);
    for (std::uint64_t passed = 0; passed + 1'000 < kBoundMs; passed += 1'000) {
        EXPECT_EQ(state(kSilent), "in") << passed << " ms after it was last heard of";
        EXPECT_EQ(version(), before);
        let_pass(1'000);
    }
    let_pass(kGrantMs / 3 + 2'000);
    EXPECT_EQ(state(kSilent), "out");
    EXPECT_EQ(version(), before + 1);
    EXPECT_TRUE(manager->info(now).map_in_force);
    for (const std::uint32_t s : {0u, 1u, 3u}) {
        EXPECT_EQ(array.flash[s]->map_version, before + 1) << "slot " << s;
        EXPECT_EQ(array.flash[s]->maps[before + 1].slots[kSilent].state, placement::SlotState::kOut);
    }
    EXPECT_EQ(array.flash[kSilent]->map_version, before);
}

TEST_F(OutTest, CreationsOpeningsAndDeletionsDoNotWaitForIt) {
    silence_until_out();
    EXPECT_TRUE(create(owner, "x").ok());
    EXPECT_TRUE(open(owner, "x").ok());
    EXPECT_TRUE(manager->delete_volume(owner, "w", now).ok());
    EXPECT_EQ(pending(), 0u);
    const auto view = manager->array();
    ASSERT_TRUE(view.ok());
    for (const client::SsdAddress& ssd : view->ssds) EXPECT_NE(ssd.slot, kSilent);
}

TEST_F(OutTest, NoDeletionReliesOnAMapWithoutItThatNoSsdHasTaken) {
    silence(kSilent);
    const std::uint32_t before = version();
    // The others take their grants, and no further command of the same second: not the map without the silent SSD.
    std::uint32_t sent[4] = {};
    for (const std::uint32_t s : {0u, 1u, 3u})
        array.drives[s]->fault = [&sent, s](bool after) {
            return !after && ++sent[s] > 2 ? Fault::kRefuse : Fault::kNone;
        };
    for (int i = 0; i < 60 && version() == before; ++i) {
        std::ranges::fill(sent, 0u);
        let_pass(1'000);
    }
    ASSERT_EQ(version(), before + 1);
    for (const std::uint32_t s : {0u, 1u, 3u}) ASSERT_EQ(array.flash[s]->map_version, before);
    for (const std::uint32_t s : {0u, 1u, 3u}) array.drives[s]->fault = nullptr;
    EXPECT_FALSE(manager->delete_volume(owner, "w", now).ok());
    for (const std::uint32_t s : {0u, 1u, 3u}) EXPECT_TRUE(knows(s, "w")) << "slot " << s;
    let_pass(kGrantMs);
    EXPECT_EQ(pending(), 0u);
    EXPECT_FALSE(knows(0, "w"));
    come_back();
    EXPECT_FALSE(knows(kSilent, "w"));
}

TEST_F(OutTest, ItComesBackWithTheVolumesOfNowIsFilledAndBecomesIn) {
    silence_until_out();
    ASSERT_TRUE(create(owner, "x").ok());
    ASSERT_TRUE(manager->delete_volume(owner, "w", now).ok());
    const std::uint32_t grants = array.drives[kSilent]->grants;
    heal();
    let_pass(kGrantMs / 3 + 1'000);
    EXPECT_EQ(state(kSilent), "rebuilding");
    EXPECT_GT(array.drives[kSilent]->grants, grants);
    EXPECT_TRUE(knows(kSilent, "v") && knows(kSilent, "x"));
    EXPECT_FALSE(knows(kSilent, "w"));
    EXPECT_EQ(array.drives[kSilent]->copies_taken, 0u);
    rebuild();
    EXPECT_EQ(state(kSilent), "in");
    EXPECT_NE(array.drives[kSilent]->copies_taken, 0u);
    EXPECT_EQ(warnings(), "");
}

TEST_F(OutTest, AVolumeIdThatLivesAgainIsPurgedOfItsFormerLife) {
    const nvme::VolumeId id = array.flash[kSilent]->volumes.begin()->first;
    silence_until_out();
    // As after a deletion and a creation that got the same VID.
    nvme::VolumeRecord& former = array.flash[kSilent]->volumes.at(id);
    former.birth_epoch = 0;
    former.epoch = 0;
    come_back();
    EXPECT_EQ(array.flash[kSilent]->volumes.at(id).birth_epoch, array.flash[0]->volumes.at(id).birth_epoch);
}

TEST_F(OutTest, AChangeThatItAloneHasAndThatWasLostWithTheRecordsDoesNotKeepItFromComingBack) {
    silence_until_out();
    nvme::VolumeRecord& alone = array.flash[kSilent]->volumes.begin()->second;
    alone.epoch += 5;
    alone.revision += 3;
    const nvme::VolumeId id = alone.geometry.volume;
    const nvme::Epoch reached = alone.epoch;
    come_back();
    for (std::uint32_t s = 0; s < 4; ++s)
        EXPECT_GT(array.flash[s]->volumes.at(id).epoch, reached) << "slot " << s;
    EXPECT_EQ(pending(), 0u);
}

TEST_F(OutTest, WhileAClientWritesItWaitsOrIsTakenBackOnRequest) {
    silence_until_out();
    const auto opened = open(owner, "v");
    ASSERT_TRUE(opened.ok());
    heal();
    let_pass(2 * kGrantMs);
    EXPECT_EQ(state(kSilent), "out");
    EXPECT_NE(manager->info(now).ssds[kSilent].trouble.find("no volume is open for writing"),
              std::string::npos);
    ASSERT_TRUE(manager->replace_ssd(kSilent, now).ok());
    EXPECT_EQ(state(kSilent), "rebuilding");
    rebuild();
    EXPECT_EQ(state(kSilent), "in");
    silence_until_out();
    ASSERT_TRUE(
        manager->release_volume(owner, opened->record.geometry.volume, opened->record.epoch, ~0ull).ok());
    come_back();
}

TEST_F(OutTest, ASecondFailureDomainIsNotTakenOut) {
    silence_until_out();
    const std::uint32_t before = version();
    silence(0);
    let_pass(3 * kGrantMs);
    EXPECT_EQ(version(), before);
    EXPECT_EQ(state(0), "in");
    EXPECT_NE(warnings().find("slot 0 stays in the map"), std::string::npos) << warnings();
    heal();
    let_pass(kGrantMs);
    rebuild();
    EXPECT_EQ(state(kSilent), "in");
    EXPECT_EQ(warnings(), "");
}

TEST_F(OutTest, IfNoOtherSsdServesNoneIsTakenOut) {
    for (std::uint32_t s = 0; s < 4; ++s) silence(s);
    const std::uint32_t before = version();
    let_pass(3 * kGrantMs);
    EXPECT_EQ(version(), before);
    heal();
    let_pass(kGrantMs);
    for (std::uint32_t s = 0; s < 4; ++s) EXPECT_EQ(state(s), "in");
}

TEST_F(OutTest, WithAVolumeOfOneReplicaNoSsdIsTakenOut) {
    client::CreateVolume request{"lone", 1 << 20};
    request.replicas = 1;
    ASSERT_TRUE(manager->create_volume(owner, request).ok());
    silence(kSilent);
    let_pass(3 * kGrantMs);
    EXPECT_EQ(state(kSilent), "in");
    EXPECT_NE(warnings().find("'lone' has one replica"), std::string::npos) << warnings();
    ASSERT_FALSE(create(owner, "x").ok());
}

TEST_F(OutTest, AVolumeOfOneReplicaThatWasCreatedMeanwhileDoesNotKeepItFromComingBack) {
    silence_until_out();
    client::CreateVolume request{"lone", 1 << 20};
    request.replicas = 1;
    ASSERT_TRUE(manager->create_volume(owner, request).ok());
    come_back();
}

TEST_F(OutTest, TheSsdsOfANodeAreTakenOutInOneVersionAndComeBackOneByOne) {
    start_with_two_nodes();
    const std::uint32_t before = version();
    silence(2);
    silence(3);
    let_pass(3 * kGrantMs);
    EXPECT_EQ(state(2), "out");
    EXPECT_EQ(state(3), "out");
    EXPECT_EQ(version(), before + 1);
    heal();
    bool both = false;
    for (int i = 0; i < 10'000 && (state(2) != "in" || state(3) != "in"); ++i) {
        both = both || (state(2) == "rebuilding" && state(3) == "rebuilding");
        if (!manager->copy_some(16)) let_pass(1'000);
    }
    EXPECT_EQ(state(2), "in");
    EXPECT_EQ(state(3), "in");
    EXPECT_FALSE(both);
}

TEST_F(OutTest, ItStaysOutAcrossRestartsOfTheDaemonWithAndWithoutRecordsAndTellsNoVolumes) {
    silence_until_out();
    ASSERT_TRUE(manager->delete_volume(owner, "w", now).ok());
    for (const bool lost_records : {false, true}) {
        manager.reset();
        if (lost_records) lose_store();
        array.boot();
        array.drives[kSilent]->fault = nullptr;
        auto started = Manager::start(*store, array.ports(), options, now);
        ASSERT_TRUE(started.ok()) << started.error().message;
        manager = std::move(started).value();
        EXPECT_EQ(state(kSilent), "out");
        EXPECT_EQ(manager->list_volumes().size(), 1u) << "'w' was deleted without this SSD";
    }
    come_back();
    EXPECT_FALSE(knows(kSilent, "w"));
}

TEST_F(OutTest, WithoutRecordsAVolumeThatOnlyTheRebuildingSsdLacksIsNotTakenForAPendingCreation) {
    silence_until_out();
    ASSERT_TRUE(create(owner, "x").ok());
    heal();
    let_pass(kGrantMs);
    ASSERT_EQ(state(kSilent), "rebuilding");
    manager.reset();
    lose_store();
    array.flash[kSilent]->volumes.clear();
    array.flash[kSilent]->max_volumes = 2;  // a pending creation that an SSD refuses for good is undone
    start();
    let_pass(kGrantMs);
    EXPECT_EQ(manager->list_volumes().size(), 3u);
    EXPECT_TRUE(knows(0, "x") && knows(1, "x") && knows(3, "x"));
}

TEST_F(OutTest, WithoutRecordsAnSsdThatIsOutNeedNotBeHere) {
    silence_until_out();
    manager.reset();
    lose_store();
    array.boot();
    auto ports = array.ports();
    ports.erase(ports.begin() + kSilent);
    auto started = Manager::start(*store, ports, options, now);
    ASSERT_TRUE(started.ok()) << started.error().message;
    manager = std::move(started).value();
    EXPECT_EQ(state(kSilent), "out");
    EXPECT_TRUE(create(owner, "x").ok());
    // It is found while this daemon runs.
    ASSERT_TRUE(manager->add_spare(*array.drives[kSilent], now).ok());
    EXPECT_EQ(state(kSilent), "out");
    come_back();
}

TEST_F(OutTest, ANodeStaysInTheMapWhereItMayHoldAllButOneReplicaOfAChunk) {
    start_with_two_nodes();
    client::CreateVolume request{"thrice", 1 << 20};
    request.replicas = 3;
    ASSERT_TRUE(manager->create_volume(owner, request).ok());
    silence(2);
    silence(3);
    let_pass(3 * kGrantMs);
    EXPECT_EQ(state(2), "in");
    EXPECT_EQ(state(3), "in");
    EXPECT_NE(warnings().find("3 replicas in 2 failure domains"), std::string::npos) << warnings();
    array.drives[3]->fault = nullptr;
    let_pass(2 * kGrantMs);
    EXPECT_EQ(state(2), "out") << "one SSD holds one replica of a chunk at most";
}

TEST_F(OutTest, AnSsdThatIsSilentWhileItIsFilledIsTakenOutAgain) {
    silence_until_out();
    heal();
    let_pass(kGrantMs);
    ASSERT_EQ(state(kSilent), "rebuilding");
    (void)manager->copy_some(3);
    silence_until_out();
    EXPECT_TRUE(create(owner, "x").ok());
    EXPECT_FALSE(manager->copy_some(3));
    come_back();
}

TEST_F(OutTest, ACreationThatIsPendingDoesNotKeepItFromBeingFilled) {
    silence_until_out();
    heal();
    let_pass(kGrantMs);
    ASSERT_EQ(state(kSilent), "rebuilding");
    refuse(0);
    ASSERT_FALSE(create(owner, "x").ok());
    heal();
    for (int i = 0; i < 10'000; ++i)
        (void)manager->copy_some(1);  // before tick() has the creation carried out
    const ArrayInfo info = manager->info(now);
    EXPECT_TRUE(!info.rebuild || info.rebuild->ranges_stuck == 0);
    rebuild();
    EXPECT_EQ(state(kSilent), "in");
    let_pass(kGrantMs);
    EXPECT_TRUE(knows(kSilent, "x") && knows(0, "x"));
}

TEST_F(OutTest, ASpareTakesASlotThatIsOut) {
    silence_until_out();
    expect_error(manager->replace_ssd(kSilent, now), Errc::kNotFound, "nor is there a spare");
    add_spare();
    ASSERT_TRUE(manager->replace_ssd(kSilent, now).ok());
    rebuild();
    EXPECT_EQ(state(kSilent), "in");
    EXPECT_EQ(spare_flash.volumes.size(), 2u);
    heal();
    let_pass(kGrantMs);
    EXPECT_EQ(array.flash[kSilent]->map_version, 1u) << "the SSD that was replaced does not come back";
}

TEST_F(OutTest, ASpareTakesASlotByItselfThatHasBeenOutForLong) {
    add_spare();
    silence_until_out();
    let_pass(options.spare_after_ms - 2 * kGrantMs);
    EXPECT_EQ(state(kSilent), "out");
    EXPECT_EQ(spare_flash.map_version, 0u);
    let_pass(4 * kGrantMs);
    EXPECT_EQ(state(kSilent), "rebuilding");
    EXPECT_NE(spare_flash.map_version, 0u);
    rebuild();
    EXPECT_EQ(state(kSilent), "in");
    heal();
    let_pass(kGrantMs);
    EXPECT_EQ(array.flash[kSilent]->map_version, 1u) << "the SSD that was replaced does not come back";
}

TEST_F(OutTest, ASpareWaitsWhileAVolumeIsOpenForWritingAndIfItIsToldTo) {
    add_spare();
    silence_until_out();
    const auto opened = open(owner, "v");
    ASSERT_TRUE(opened.ok());
    for (std::uint64_t passed = 0; passed < options.spare_after_ms + 4 * kGrantMs; passed += 50'000) {
        let_pass(50'000);
        ASSERT_TRUE(
            manager->renew_lease(owner, opened->record.geometry.volume, opened->record.epoch, now).ok());
    }
    EXPECT_EQ(state(kSilent), "out");
    EXPECT_NE(warnings().find("'gnstor ssd replace 2' has a spare take it now"), std::string::npos)
        << warnings();
    ASSERT_TRUE(
        manager->release_volume(owner, opened->record.geometry.volume, opened->record.epoch, ~0ull).ok());
    let_pass(2 * kGrantMs);
    EXPECT_EQ(state(kSilent), "rebuilding");
}

/// Its bound is counted from a reading of the clock that was made after the grant was sent (docs/array.md, rule 3).
TEST_F(OutTest, ATickThatFindsNoSpareForASlotDoesNotShortenTheGrantsThatItGave) {
    const nvme::ClientId reader = client("bob");
    ASSERT_TRUE(manager->share_volume(owner, "v", reader).ok());
    spare_flash.purged[1] = 1;  // not empty, so it is asked and refused
    add_spare();
    silence_until_out();
    let_pass(options.spare_after_ms);
    // An SSD takes a second for each command, so another one is asked some seconds after tick() was called.
    std::uint64_t asked_ms = 0;
    array.drives[1]->fault = [&](bool after) {
        now += after ? 1'000 : 0;
        return Fault::kNone;
    };
    array.drives[3]->fault = [&](bool after) {
        if (!after && asked_ms == 0) asked_ms = now;
        return Fault::kNone;
    };
    const std::uint64_t before = spare_flash.commands;
    for (int i = 0; i < 200 && spare_flash.commands == before; ++i) {
        asked_ms = 0;
        manager->tick(now += 1'000);
    }
    ASSERT_NE(spare_flash.commands, before) << "no spare was tried";
    ASSERT_NE(asked_ms, 0u);
    array.drives[1]->fault = nullptr;
    refuse(3);
    EXPECT_FALSE(manager->unshare_volume(owner, "v", reader).ok());
    for (int i = 0; i < 200 && pending() != 0; ++i) manager->tick(now += 100);
    EXPECT_EQ(pending(), 0u);
    EXPECT_GE(now, asked_ms + kGrantMs) << "in force while SSD 3 may still serve the reader";
}

TEST_F(OutTest, WithoutATimeForItNoSpareTakesASlotByItself) {
    options.spare_after_ms = 0;
    start();
    add_spare();
    silence_until_out();
    let_pass(3'600'000);
    EXPECT_EQ(state(kSilent), "out");
}

TEST_F(OutTest, AnSsdThatComesBackInTimeKeepsItsSlot) {
    add_spare();
    silence_until_out();
    let_pass(options.spare_after_ms / 2);
    come_back();
    let_pass(options.spare_after_ms);
    EXPECT_EQ(spare_flash.map_version, 0u);
    EXPECT_EQ(state(kSilent), "in");
}

TEST_F(OutTest, AnOlderCopyOfItsStoreDoesNotComeBack) {
    const ModelFlash copy = *array.flash[kSilent];
    start();
    ASSERT_TRUE(create(owner, "x").ok());  // records what the SSDs have stored
    let_pass(kGrantMs);
    silence_until_out();
    manager.reset();
    const bool was_out = array.flash[kSilent]->was_out;
    *array.flash[kSilent] = copy;
    array.flash[kSilent]->was_out = was_out;
    start();
    let_pass(3 * kGrantMs);
    EXPECT_EQ(state(kSilent), "stale");
    EXPECT_TRUE(create(owner, "y").ok()) << "nothing waits for it";
}

TEST_F(OutTest, AnSsdThatAnswersAndRefusesTheMapDoesNotKeepTheOthersFromServing) {
    silence_until_out();
    heal();
    array.drives[kSilent]->refuses_maps = true;
    std::uint32_t served = 0, looked = 0;
    const std::uint32_t before = version();
    for (int i = 0; i < 300; ++i) {
        let_pass(1'000);
        ++looked;
        served += manager->array().ok() ? 1 : 0;
    }
    EXPECT_EQ(served, looked) << "clients always get a map that is in force";
    EXPECT_LT(version(), before + 16) << "it is not taken back again and again";
    array.drives[kSilent]->refuses_maps = false;
    come_back();
}

TEST_F(OutTest, AnSsdThatRefusesAVolumeIsNotTakenBack) {
    silence_until_out();
    ASSERT_TRUE(create(owner, "x").ok());
    array.flash[kSilent]->max_volumes = 2;
    heal();
    const std::uint32_t before = version();
    let_pass(20 * kGrantMs);
    EXPECT_EQ(state(kSilent), "out");
    EXPECT_EQ(version(), before) << "what it refuses is sent before the map is changed";
    EXPECT_NE(manager->info(now).ssds[kSilent].trouble.find("Capacity Exceeded"), std::string::npos)
        << "the reason stays until the next try; it says: " << manager->info(now).ssds[kSilent].trouble;
    array.flash[kSilent]->max_volumes = 1024;
    come_back();
}

TEST_F(OutTest, BothSsdsOfALostNodeAreReplacedOneAfterTheOther) {
    start_with_two_nodes();
    silence(2);
    silence(3);
    let_pass(3 * kGrantMs);
    ModelFlash flash[2];
    std::vector<std::unique_ptr<ModelSsd>> spares;
    for (std::uint32_t i = 0; i < 2; ++i) {
        flash[i].uuid[0] = static_cast<std::uint8_t>(0xC0 + i);
        flash[i].node = "10.0.0.2";
        spares.push_back(std::make_unique<ModelSsd>(8 + i, flash[i]));
        ASSERT_TRUE(manager->add_spare(*spares.back(), now).ok());
    }
    for (const std::uint32_t slot : {3u, 2u}) {
        const auto replaced = manager->replace_ssd(slot, now);
        ASSERT_TRUE(replaced.ok()) << replaced.error().message;
        rebuild(slot);
        EXPECT_EQ(state(slot), "in");
    }
}

TEST_F(OutTest, FirmwareThatDoesNotKnowSlotsThatAreOutGetsNoSuchMap) {
    for (auto& flash : array.flash) flash->tells_map = false;
    start();
    silence(kSilent);
    let_pass(3 * kGrantMs);
    EXPECT_EQ(state(kSilent), "in");
    EXPECT_NE(warnings().find("older program"), std::string::npos) << warnings();
}

TEST_F(OutTest, WithoutGrantsThatEndNoSsdIsTakenOut) {
    options.grant_ms = 0;
    start();
    silence(kSilent);
    let_pass(100 * kGrantMs);
    EXPECT_EQ(state(kSilent), "in");
}

}  // namespace gnstor::daemon::test::out_test
