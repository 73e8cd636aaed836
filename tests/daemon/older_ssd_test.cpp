// older_ssd_test.cpp: an SSD whose store is an older copy of itself answers nothing, and one that is not is
// never taken for it; records that are an older copy take what the SSDs know better.
#include "daemon/chaos.hpp"
#include "daemon/manager_rig.hpp"

using namespace gnstor;
using namespace gnstor::daemon;
using namespace gnstor::daemon::test;

namespace {

class OlderSsd : public ManagerTest {
  protected:
    /// The manager stops, the SSDs stay as they are; what was copied then may be put back.
    void stop() {
        manager.reset();
        array.boot();
    }
    [[nodiscard]] std::string state(std::uint32_t slot) const {
        for (const SsdInfo& ssd : manager->info(now).ssds)
            if (ssd.slot == slot) return ssd.state;
        return "none";
    }
    void expect_stale(std::uint32_t slot) {
        EXPECT_EQ(state(slot), "stale");
        EXPECT_EQ(array.drives[slot]->grants, 0u) << "with a grant the older copy would answer reads";
        const Result<client::ArrayView> view = manager->array();
        ASSERT_TRUE(view.ok()) << view.error().message;
        EXPECT_EQ(view->ssds.size(), 3u);
        for (const client::SsdAddress& ssd : view->ssds) EXPECT_NE(ssd.slot, slot);
    }
};

TEST_F(OlderSsd, AStoreCopyFromBeforeTheLastStartIsNotReadUntilTheNewestStoreReturns) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    stop();
    const ModelFlash copy = *array.flash[1];
    start();
    ASSERT_TRUE(open(a, "v").ok());
    stop();
    const ModelFlash newest = *array.flash[1];
    *array.flash[1] = copy;
    for (int times = 0; times < 2; ++times) {
        start();
        expect_stale(1);
        EXPECT_EQ(array.flash[1]->term, copy.term)
            << "the older copy must not be changed, or its age would be hidden";
        EXPECT_TRUE(open(a, "v", client::OpenMode::kRead).ok());
    }
    *array.flash[1] = newest;
    start();
    EXPECT_EQ(state(1), "in");
    EXPECT_TRUE(open(a, "v").ok());
}

TEST_F(OlderSsd, AStoreCopyThatLacksNothingIsAcceptedAlsoAfterReadOnlyStarts) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    stop();
    const ModelFlash copy = *array.flash[1];
    for (int times = 0; times < 3; ++times) {
        start();
        ASSERT_TRUE(open(a, "v", client::OpenMode::kRead).ok());
    }
    stop();
    *array.flash[1] = copy;
    start();
    EXPECT_EQ(state(1), "in");
    EXPECT_TRUE(open(a, "v").ok());
}

TEST_F(OlderSsd, AWriteProtectedSsdIsAcceptedAgainOnceItIsWritable) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    stop();
    const ModelFlash kept = *array.flash[1];
    array.drives[1]->write_protected = true;
    auto started = Manager::start(*store, array.ports(), options, now);
    ASSERT_TRUE(started.ok()) << started.error().message;
    manager = std::move(started).value();
    ASSERT_TRUE(open(a, "v").ok());
    stop();
    *array.flash[1] = kept;  // what it was told is forgotten with its process
    start();
    EXPECT_EQ(state(1), "in");
}

TEST_F(OlderSsd, AllStoresAndRecordsRestoredTogetherAreAccepted) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    stop();
    std::vector<ModelFlash> copies;
    for (const auto& flash : array.flash) copies.push_back(*flash);
    auto records = std::make_unique<MemoryRecordStore>(static_cast<MemoryRecordStore&>(*store));
    start();
    ASSERT_TRUE(open(a, "v").ok());
    stop();
    for (std::size_t i = 0; i < copies.size(); ++i) *array.flash[i] = copies[i];
    store = std::move(records);
    start();
    for (std::uint32_t slot = 0; slot < 4; ++slot) EXPECT_EQ(state(slot), "in");
    EXPECT_TRUE(open(a, "v").ok());
}

TEST_F(OlderSsd, AnSsdUnreachableAtTheStartIsCheckedBeforeItGetsAGrant) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    stop();
    const ModelFlash copy = *array.flash[2];
    start();
    ASSERT_TRUE(open(a, "v").ok());
    stop();
    *array.flash[2] = copy;
    refuse(2);
    auto started = Manager::start(*store, array.ports(), options, now);
    ASSERT_TRUE(started.ok()) << started.error().message;
    manager = std::move(started).value();
    heal();
    manager->tick(now);
    expect_stale(2);
}

TEST_F(OlderSsd, AStoreCopyPutBackWhileGnstordRunsIsDetectedAtReconnection) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    const auto restart = [&](const ModelFlash& with) {
        *array.flash[3] = with;
        array.drives[3]->reconnected = true;
        array.drives[3]->grants = 0;
    };
    // The copy is taken while the SSD is away, under the term that it has stored last.
    const ModelFlash copy = *array.flash[3];
    const auto term = manager->term();
    restart(copy);
    now += 100'000;
    ASSERT_TRUE(open(a, "v").ok());
    manager->tick(now);
    EXPECT_GT(manager->term(), term) << "the term must rise, or the older copy could not be distinguished";
    ASSERT_TRUE(open(a, "v").ok());
    EXPECT_EQ(state(3), "in");
    restart(copy);
    now += 1000;
    manager->tick(now);
    EXPECT_EQ(state(3), "stale");
    EXPECT_EQ(array.drives[3]->grants, 0u);
    EXPECT_EQ(array.flash[3]->term, copy.term);
    start();
    expect_stale(3);
}

/// Records of the running term, copied before a name was deleted and given away again.
TEST_F(OlderSsd, RecordsOfAnEarlierVolumeOfTheSameNameAreUpdated) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    ASSERT_TRUE(create(a, "other").ok());
    auto copy = std::make_unique<MemoryRecordStore>(static_cast<MemoryRecordStore&>(*store));
    const auto earlier = manager->list_volumes().size();
    ASSERT_TRUE(manager->delete_volume(a, "v", now).ok());
    const auto again = create(a, "v");
    ASSERT_TRUE(again.ok()) << again.error().message;
    manager.reset();
    store = std::move(copy);
    start();
    EXPECT_EQ(manager->list_volumes().size(), earlier);
    const auto opened = open(a, "v");
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_EQ(opened->record.birth_epoch, again->birth_epoch);
    EXPECT_TRUE(open(a, "other").ok());
}

TEST_F(OlderSsd, AnUnstableLinkRaisesTheTermAtMostOnceAMinute) {
    now += 100'000;
    const auto term = manager->term();
    for (int second = 0; second < 300; ++second) {
        array.drives[0]->reconnected = true;
        manager->tick(now += 1000);
        ASSERT_TRUE(create(client("alice"), fmt::format("v{}", second)).ok());
    }
    EXPECT_GE(manager->term(), term + 3);
    EXPECT_LE(manager->term(), term + 6);
}

/// A daemon that ends at any command to an SSD or to its store: no SSD is older than what was recorded.
TEST_F(OlderSsd, NoSsdIsTakenForAnOlderCopyWhereverADaemonWasKilled) {
    struct Counted final : RecordStore {
        explicit Counted(MemoryRecordStore& inner, std::function<void()> at)
            : inner_(inner), at_(std::move(at)) {}
        Result<Records> load() override { return inner_.load(); }
        Result<void> save(const Change& change) override {
            at_();
            GN_TRY(inner_.save(change));
            at_();
            return {};
        }
        MemoryRecordStore& inner_;
        std::function<void()> at_;
    };
    ASSERT_TRUE(create(client("alice"), "v").ok());
    auto& inner = static_cast<MemoryRecordStore&>(*store);
    bool ended = true;
    for (int last = 1; ended; ++last) {
        int count = 0;
        const auto at = [&] {
            if (++count == last) throw Crash{};
        };
        Counted counted(inner, at);
        manager.reset();
        array.boot();
        for (auto& drive : array.drives)
            drive->fault = [&](bool) {
                at();
                return Fault::kNone;
            };
        ended = false;
        try {
            auto started = Manager::start(counted, array.ports(), options, now);
            ASSERT_TRUE(started.ok()) << started.error().message;
            (void)started.value()->open_volume(1, "v", client::OpenMode::kWrite, now).ok();
        } catch (const Crash&) {
            ended = true;
        }
        start();
        for (std::uint32_t slot = 0; slot < 4; ++slot) ASSERT_EQ(state(slot), "in") << "ended at " << last;
        ASSERT_TRUE(open(client("alice"), "v").ok());
    }
}

TEST_F(OlderSsd, WithoutRecordsAnSsdWithADeletedPredecessorOfAVolumeIsRefusedByName) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    const ModelFlash copy = *array.flash[1];
    ASSERT_TRUE(manager->delete_volume(a, "v", now).ok());
    lose_store();
    start();
    ASSERT_TRUE(create(client("alice"), "w").ok());
    ASSERT_EQ(manager->list_volumes().at(0).geometry.volume, copy.volumes.begin()->first);
    lose_store();
    stop();
    *array.flash[1] = copy;
    expect_error(Manager::start(*store, array.ports(), options, now), Errc::kState,
                 "MODEL1 is an older copy");
}

TEST_F(OlderSsd, OlderRecordsDropVolumesDeletedSinceAndKeepTheOthers) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    ASSERT_TRUE(create(a, "kept").ok());
    auto backup = std::make_unique<MemoryRecordStore>(static_cast<MemoryRecordStore&>(*store));
    start();
    ASSERT_TRUE(manager->delete_volume(a, "v", now).ok());
    ASSERT_TRUE(create(a, "v").ok());  // of the same name, with another VID
    store = std::move(backup);
    start();
    ASSERT_TRUE(manager->array().ok()) << manager->array().error().message;
    EXPECT_EQ(manager->list_volumes().size(), 2u);
    ASSERT_EQ(manager->start_report().warnings.size(), 1u);
    EXPECT_NE(manager->start_report().warnings[0].find("volume 'v' was deleted since"), std::string::npos);
    EXPECT_TRUE(open(a, "v").ok());
    EXPECT_TRUE(open(a, "kept").ok());
}

TEST_F(OlderSsd, AVolumeThatTheSsdsRefuseDoesNotBlockOtherVolumes) {
    const auto a = client("alice");
    ASSERT_TRUE(create(a, "v").ok());
    ASSERT_TRUE(create(a, "kept").ok());
    auto backup = std::make_unique<MemoryRecordStore>(static_cast<MemoryRecordStore&>(*store));
    ASSERT_TRUE(manager->delete_volume(a, "v", now).ok());
    const auto term = manager->term();
    store = std::move(backup);  // of the term that the SSDs have seen: nothing tells that it is older
    start();
    EXPECT_GT(manager->term(), term);
    EXPECT_TRUE(manager->info(now).map_in_force);
    EXPECT_TRUE(open(a, "kept").ok());
    expect_error(open(a, "v"), Errc::kUnsupported, "not in force");
    EXPECT_TRUE(manager->delete_volume(a, "v", now).ok());
}

}  // namespace
