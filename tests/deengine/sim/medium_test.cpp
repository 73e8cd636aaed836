// medium_test.cpp: the simulator's flash itself: NAND's rules, and that a cut takes what it may take and
// nothing else.
#include "deengine/sim/medium.hpp"

#include <gtest/gtest.h>

#include <array>

namespace gnstor::deengine::sim {
namespace {

using Block = std::array<std::byte, nvme::kBlockBytes>;

Block pattern(ContentId id) {
    Block b;
    Pattern(id).fill(b.data());
    return b;
}

PageOob record(std::uint32_t vba) {
    PageOob oob{};
    oob.vba = vba;
    oob.vid = 1;
    oob.kind = PageKind::kData;
    oob.version = kOobVersion;
    return oob;
}

MediumOptions power() {
    MediumOptions o;
    o.geometry = {4, 4};
    o.power_cuts = true;
    return o;
}

FlashStatus program(Medium& m, PageNumber page, ContentId id) {
    PageOob oob = record(page);
    return m.view(0).program(page, pattern(id).data(), oob);
}

bool holds(Medium& m, PageNumber page, ContentId id) {
    PageOob oob{};
    if (m.view(0).read_oob(page, oob) != FlashStatus::kOk || oob.kind != PageKind::kData) return false;
    Block got;
    std::uint32_t crcs[nvme::kSectorsPerBlock];
    return m.view(0).read(page, 0, nvme::kSectorsPerBlock, got.data(), crcs) == FlashStatus::kOk &&
           std::memcmp(crcs, oob.sector_crc, sizeof(crcs)) == 0 && Pattern(id).matches(got.data(), 0, 8);
}

Medium::Fates all(Fate fate) {
    return [fate](std::size_t, std::size_t, const Operation&, bool) { return fate; };
}

TEST(Medium, RefusesWhatNandRefuses) {
    Medium m(power());
    ASSERT_EQ(program(m, 0, 1), FlashStatus::kOk);
    EXPECT_EQ(program(m, 0, 1), FlashStatus::kRefused) << "twice";
    EXPECT_FALSE(m.violation().empty());
    Medium n(power());
    EXPECT_EQ(program(n, 2, 1), FlashStatus::kRefused) << "out of order";
    Medium o(power());
    Block b;
    std::uint32_t crcs[nvme::kSectorsPerBlock];
    EXPECT_EQ(o.view(0).read(0, 0, 8, b.data(), crcs), FlashStatus::kRefused) << "unprogrammed";
}

TEST(Medium, APowerCutLosesOnlyPagesThatNoSyncMadeStable) {
    Medium m(power());
    ASSERT_EQ(program(m, 0, 1), FlashStatus::kOk);
    ASSERT_EQ(m.view(0).sync(), FlashStatus::kOk);
    ASSERT_EQ(program(m, 1, 2), FlashStatus::kOk);
    ASSERT_EQ(program(m, 2, 3), FlashStatus::kOk);
    EXPECT_EQ(m.uncertain(CutMode::kPower), 2u);
    EXPECT_EQ(m.uncertain(CutMode::kKill), 0u);
    const auto lost = m.image(CutMode::kPower, all(Fate::absent()));
    EXPECT_TRUE(holds(*lost, 0, 1));
    EXPECT_FALSE(lost->page(1).recorded || lost->page(2).recorded);
    EXPECT_EQ(lost->programmed(0), 1u);
    const auto later = m.image(CutMode::kPower, [](std::size_t i, std::size_t, const Operation&, bool) {
        return i == 1 ? Fate::whole() : Fate::absent();
    });
    EXPECT_FALSE(later->page(1).recorded) << "a write cache reorders";
    EXPECT_TRUE(holds(*later, 2, 3));
    EXPECT_TRUE(holds(m, 2, 3)) << "an image leaves its medium alone";
}

TEST(Medium, ATornProgramIsNeverTakenForACompleteOne) {
    Medium m(power());
    ASSERT_EQ(program(m, 0, 1), FlashStatus::kOk);
    for (std::uint32_t bytes = 0; bytes < sizeof(PageOob); ++bytes) {
        const auto half = m.image(CutMode::kPower, all(Fate::torn(nvme::kBlockBytes, bytes)));
        EXPECT_FALSE(holds(*half, 0, 1)) << bytes << " bytes of the record";
    }
    const auto mixed = m.image(CutMode::kPower, all(Fate::torn(1300, sizeof(PageOob))));
    PageOob oob{};
    ASSERT_EQ(mixed->view(0).read_oob(0, oob), FlashStatus::kOk) << "the record is whole";
    EXPECT_FALSE(holds(*mixed, 0, 1)) << "and its data is not";
}

TEST(Medium, AnEraseThatIsLostLeavesTheOldPagesUnderTheNew) {
    Medium m(power());
    for (PageNumber p = 0; p < 3; ++p) ASSERT_EQ(program(m, p, p + 1), FlashStatus::kOk);
    ASSERT_EQ(m.view(0).sync(), FlashStatus::kOk);
    ASSERT_EQ(m.view(0).erase(0), FlashStatus::kOk);
    ASSERT_EQ(program(m, 0, 9), FlashStatus::kOk);
    const auto image = m.image(CutMode::kPower, [](std::size_t, std::size_t, const Operation& op, bool) {
        return op.kind == Operation::Kind::kErase ? Fate::absent() : Fate::whole();
    });
    EXPECT_TRUE(holds(*image, 0, 9));
    EXPECT_TRUE(holds(*image, 1, 2));
    EXPECT_TRUE(holds(*image, 2, 3));
    EXPECT_EQ(image->programmed(0), 3u);
}

TEST(Medium, ASyncUnderWayCoversWhatWasProgrammedBeforeItBegan) {
    MediumOptions o = power();
    o.asynchronous = true;
    Medium m(o);
    m.reseed(7);
    ASSERT_EQ(program(m, 0, 1), FlashStatus::kOk);
    ASSERT_EQ(m.view(0).sync_begin(SyncLevel::kPower), FlashStatus::kOk);
    ASSERT_EQ(program(m, 1, 2), FlashStatus::kOk);
    EXPECT_EQ(m.uncertain(CutMode::kPower), 2u);
    SyncState state = SyncState::kBusy;
    for (int i = 0; i < 10 && state == SyncState::kBusy; ++i) state = m.view(0).sync_poll();
    ASSERT_EQ(state, SyncState::kDone);
    EXPECT_EQ(m.view(0).sync_poll(), SyncState::kIdle);
    EXPECT_EQ(m.uncertain(CutMode::kPower), 1u);
}

TEST(Medium, AfterAFailedSyncNoneSucceeds) {
    Medium m(power());
    ASSERT_EQ(program(m, 0, 1), FlashStatus::kOk);
    m.fail_syncs(true);
    EXPECT_NE(m.view(0).sync(), FlashStatus::kOk);
    m.fail_syncs(false);
    EXPECT_NE(m.view(0).sync(), FlashStatus::kOk);
    EXPECT_EQ(m.uncertain(CutMode::kPower), 1u);
}

TEST(Medium, AKillLeavesEverythingButTheEndOfTheOperationUnderWay) {
    MediumOptions o;
    o.geometry = {4, 4};
    Medium m(o);
    ASSERT_EQ(program(m, 0, 1), FlashStatus::kOk);
    std::size_t uncertain = 0;
    std::unique_ptr<Medium> image;
    m.on_operation = [&](Medium& now) {
        uncertain = now.uncertain(CutMode::kKill);
        image = now.image(CutMode::kKill, all(Fate::torn(nvme::kBlockBytes, 30)));
    };
    ASSERT_EQ(program(m, 1, 2), FlashStatus::kOk);
    EXPECT_EQ(uncertain, 1u);
    EXPECT_TRUE(holds(*image, 0, 1));
    PageOob oob{};
    EXPECT_EQ(image->view(0).read_oob(1, oob), FlashStatus::kUncorrectable);
}

}  // namespace
}  // namespace gnstor::deengine::sim
