// read_only_test.cpp: a daemon whose records can be read and not written (manager_read_only.cpp).
#include "daemon/manager_rig.hpp"

using namespace gnstor;
using namespace gnstor::daemon;
using namespace gnstor::daemon::test;

namespace {

class ReadOnlyTest : public ManagerTest {
  protected:
    void SetUp() override {
        auto flaky = std::make_unique<FlakyStore>();
        flaky_ = flaky.get();
        store = std::move(flaky);
        start();
        alice_ = client("alice");
        ASSERT_TRUE(create(alice_, "v").ok());
        ASSERT_TRUE(create(alice_, "gone").ok());
    }
    /// As after a kill on a full disk.
    void start_on_a_full_disk() {
        flaky_->full = true;
        start();
    }
    void expect_refused_start(Errc code, const std::string& part) {
        manager.reset();
        array.boot();
        auto refused = Manager::start(*store, array.ports(), options, now);
        expect_error(refused, code, part);
    }
    [[nodiscard]] std::vector<std::uint64_t> terms() const {
        std::vector<std::uint64_t> all;
        for (const auto& flash : array.flash) all.push_back(flash->term);
        return all;
    }

    FlakyStore* flaky_ = nullptr;
    nvme::ClientId alice_ = 0;
};

TEST_F(ReadOnlyTest, WithAFullStoreTheDaemonServesReadOnlyUnderTheStoredTermAndReportsIt) {
    const auto term = manager->term();
    const auto version = manager->array()->map.version;
    start_on_a_full_disk();
    ASSERT_NE(manager, nullptr);
    EXPECT_EQ(manager->term(), term) << "a term that cannot be stored must not be used";
    for (const std::uint64_t seen : terms()) EXPECT_EQ(seen, term);
    EXPECT_NE(manager->info(now).read_only.find("told to be full"), std::string::npos);
    ASSERT_TRUE(manager->array().ok());
    EXPECT_EQ(manager->array()->map.version, version);
    EXPECT_EQ(client("alice"), alice_);
    EXPECT_TRUE(open(alice_, "v", client::OpenMode::kRead).ok());
    expect_error(manager->register_client("zoe"), Errc::kNoSpace, "read-only");
    expect_error(create(alice_, "w"), Errc::kNoSpace, "read-only");
    expect_error(open(alice_, "v"), Errc::kNoSpace, "read-only");
    expect_error(manager->share_volume(alice_, "v", 0), Errc::kNoSpace, "read-only");
    expect_error(manager->delete_volume(alice_, "v", now), Errc::kNoSpace, "read-only");
    EXPECT_EQ(manager->list_volumes().size(), 2u);
}

TEST_F(ReadOnlyTest, ItBecomesWritableWhenThereIsRoomAndRaisesTheTerm) {
    const auto term = manager->term();
    start_on_a_full_disk();
    manager->tick(now += 1000);
    EXPECT_FALSE(manager->info(now).read_only.empty());
    flaky_->full = false;
    manager->tick(now += 1000);
    EXPECT_EQ(manager->info(now).read_only, "");
    EXPECT_EQ(manager->term(), term + 1);
    for (const std::uint64_t seen : terms()) EXPECT_EQ(seen, term + 1);
    EXPECT_TRUE(open(alice_, "v").ok());
    EXPECT_TRUE(create(client("zoe"), "w").ok());
    start();
    EXPECT_EQ(manager->term(), term + 2);
}

TEST_F(ReadOnlyTest, ALeaseStaysValidAndItsEndWaitsForTheStore) {
    const auto opened = open(alice_, "v");
    ASSERT_TRUE(opened.ok());
    const auto id = opened->record.geometry.volume;
    start_on_a_full_disk();
    EXPECT_TRUE(manager->renew_lease(alice_, id, opened->record.epoch, now).ok());
    expect_error(manager->release_volume(alice_, id, opened->record.epoch, ~0ull), Errc::kNoSpace,
                 "read-only");
    manager->tick(now += 10 * options.lease_ms);
    EXPECT_EQ(manager->list_volumes()[0].writer, alice_) << "an epoch that is not stored is not closed";
    flaky_->full = false;
    manager->tick(now += 1000);
    manager->tick(now += options.lease_ms);
    EXPECT_EQ(manager->list_volumes()[0].writer, 0);
}

TEST_F(ReadOnlyTest, AnSsdWithOlderRecordsIsUpdatedAndADeletionWaits) {
    refuse(1);
    expect_error(manager->share_volume(alice_, "v", 0), Errc::kIo, "not in force");
    expect_error(manager->delete_volume(alice_, "gone", now), Errc::kIo, "not in force");
    start_on_a_full_disk();
    EXPECT_TRUE(open(alice_, "v", client::OpenMode::kRead).ok())
        << "the SSD must have received its missing records";
    EXPECT_EQ(array.flash[0]->volumes.size(), 2u) << "no volume may be purged";
    flaky_->full = false;
    manager->tick(now += 1000);
    for (const auto& flash : array.flash) EXPECT_EQ(flash->volumes.size(), 1u);
}

TEST_F(ReadOnlyTest, AStoreOlderThanTheSsdsIsNotServed) {
    // A daemon after this one, with another store, raised the term.
    array.flash[2]->term += 1;
    flaky_->full = true;
    expect_refused_start(Errc::kState, "a newer term");
    array.flash[2]->term -= 1;
    for (auto& [id, record] : array.flash[3]->volumes) record.revision += 1;
    expect_refused_start(Errc::kState, "a newer record of volume");
}

TEST_F(ReadOnlyTest, ANewArrayIsNotCreatedOnAFullDisk) {
    auto empty = std::make_unique<FlakyStore>();
    empty->full = true;
    manager.reset();
    store = std::move(empty);
    array = ModelArray(4);
    expect_refused_start(Errc::kNoSpace, "told to be full");
    for (const std::uint64_t seen : terms()) EXPECT_EQ(seen, 0u);
}

TEST_F(ReadOnlyTest, AStoreThatFillsUpIsReportedUntilItHasRoom) {
    flaky_->full = true;
    expect_error(create(alice_, "w"), Errc::kNoSpace, "told to be full");
    EXPECT_NE(manager->info(now).read_only.find("told to be full"), std::string::npos);
    EXPECT_TRUE(open(alice_, "v", client::OpenMode::kRead).ok());
    const auto term = manager->term();
    flaky_->full = false;
    manager->tick(now += 1000);
    EXPECT_EQ(manager->info(now).read_only, "");
    EXPECT_EQ(manager->term(), term) << "it was stored at the start";
    EXPECT_TRUE(create(alice_, "w").ok());
}

}  // namespace
