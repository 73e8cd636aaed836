// close_test.cpp: what happens between the end of a writer and the next one: the replicas are compared
// (manager_close.cpp). How they are compared: tests/array.
#include "daemon/manager_rig.hpp"

namespace gnstor::daemon::test::close_test {

class CloseTest : public ManagerTest {
  protected:
    static constexpr std::uint32_t kSilent = 2;

    void SetUp() override {
        options.grant_ms = kGrantMs;
        options.lease_ms = 100'000;
        start();
        alice = client("alice");
        bob = client("bob");
        ASSERT_TRUE(create(alice, "v", true).ok());
        id = manager->list_volumes().at(0).geometry.volume;
    }
    /// A client opens the volume, and is never heard of again.
    void lose_writer() {
        ASSERT_TRUE(open(alice, "v").ok());
        let_pass(options.lease_ms);
        ASSERT_EQ(manager->list_volumes().at(0).writer, 0);
    }
    void release() {
        const nvme::Epoch epoch = manager->list_volumes().at(0).epoch;
        ASSERT_TRUE(manager->release_volume(alice, id, epoch, ~0ull).ok());
    }
    void compare_all() {
        for (int i = 0; i < 1'000 && manager->copy_some(16); ++i) {
        }
    }
    [[nodiscard]] std::uint64_t surveys() const {
        std::uint64_t sum = 0;
        for (const auto& drive : array.drives) sum += drive->surveys;
        return sum;
    }
    [[nodiscard]] bool resolved() const {
        return std::ranges::none_of(array.flash,
                                    [this](const auto& f) { return f->unresolved.contains(id); });
    }

    nvme::ClientId alice = 0, bob = 0;
    nvme::VolumeId id = 0;
};

TEST_F(CloseTest, TheNextOpeningForWritingFindsEqualReplicas) {
    lose_writer();
    EXPECT_FALSE(resolved());
    ASSERT_TRUE(open(bob, "v").ok());  // a model SSD notices an epoch that begins too early
    EXPECT_GE(surveys(), 4u);
}

TEST_F(CloseTest, ReplicasAreComparedWithoutAnOpeningToo) {
    lose_writer();
    compare_all();
    EXPECT_TRUE(resolved());
    const std::uint64_t before = surveys();
    compare_all();
    ASSERT_TRUE(open(bob, "v").ok());
    EXPECT_EQ(surveys(), before) << "they stay equal until a client can write";
}

TEST_F(CloseTest, ASilentSsdKeepsTheVolumeOfALostWriterClosedUntilItIsOut) {
    lose_writer();
    refuse(kSilent);
    expect_error(open(bob, "v"), Errc::kBusy, "slot 2");
    array.flash[kSilent]->was_out = true;
    let_pass(kBoundMs + kGrantMs);
    ASSERT_EQ(state(kSilent), "out");
    const auto opened = open(bob, "v");
    EXPECT_TRUE(opened.ok()) << opened.error().message;
}

TEST_F(CloseTest, ASilentSsdDoesNotKeepAVolumeClosedWhoseReplicasAreKnownToBeEqual) {
    options.takes_out = false;
    start();
    ASSERT_TRUE(open(alice, "v").ok());
    release();
    compare_all();
    refuse(kSilent);
    EXPECT_FALSE(open(bob, "v").ok()) << "it may hold a grant";
    let_pass(kBoundMs + 1'000);
    EXPECT_EQ(pending(), 0u);
    EXPECT_EQ(manager->list_volumes().at(0).writer, bob);
}

TEST_F(CloseTest, AClientThatOpensItsVolumeAgainKeepsItWhileItIsCompared) {
    ASSERT_TRUE(open(alice, "v").ok());
    array.drives[kSilent]->fault = [this](bool) {
        return array.flash[kSilent]->volumes.at(id).writer == 0 ? Fault::kRefuse : Fault::kNone;
    };
    expect_error(open(alice, "v"), Errc::kBusy, "slot 2");
    expect_error(open(bob, "v"), Errc::kBusy, "open for writing by 'alice'");
    heal();
    EXPECT_TRUE(open(alice, "v").ok());
}

TEST_F(CloseTest, AClientThatGivesUpItsSecondOpeningLeavesTheVolumeToOthers) {
    ASSERT_TRUE(open(alice, "v").ok());
    array.drives[kSilent]->fault = [this](bool) {
        return array.flash[kSilent]->volumes.at(id).writer == 0 ? Fault::kRefuse : Fault::kNone;
    };
    expect_error(open(alice, "v"), Errc::kBusy, "slot 2");
    heal();
    release();
    EXPECT_TRUE(open(bob, "v").ok());
}

TEST_F(CloseTest, ADaemonThatStartsComparesAgain) {
    ASSERT_TRUE(open(alice, "v").ok());
    release();
    start();
    EXPECT_FALSE(resolved());
    compare_all();
    EXPECT_TRUE(resolved());
}

TEST_F(CloseTest, FirmwareThatCannotBeComparedKeepsNoVolumeClosed) {
    array.drives[1]->knows_survey = false;
    for (auto& flash : array.flash)
        flash->was_out = true;  // what a model SSD demands is not possible with it
    lose_writer();
    EXPECT_TRUE(open(bob, "v").ok());
}

TEST_F(CloseTest, AVolumeOfOneReplicaHasNothingToCompare) {
    client::CreateVolume request{"single", 1 << 20};
    request.replicas = 1;
    ASSERT_TRUE(manager->create_volume(alice, request).ok());
    compare_all();
    const std::uint64_t before = surveys();
    ASSERT_TRUE(open(alice, "single").ok());
    ASSERT_TRUE(open(alice, "single").ok());
    EXPECT_EQ(surveys(), before);
}

TEST_F(CloseTest, ADeletionDoesNotWaitForTheComparison) {
    lose_writer();
    const std::uint64_t before = surveys();
    ASSERT_TRUE(manager->delete_volume(alice, "v", now).ok());
    compare_all();
    EXPECT_EQ(surveys(), before);
}

}  // namespace gnstor::daemon::test::close_test
