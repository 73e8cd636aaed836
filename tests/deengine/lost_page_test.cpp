// lost_page_test.cpp: a lost page counts as the version that it stands for: neither an older version of its
// sequence shows in its place, nor do other contents that are sent for it, unless they are the newer ones.
#include "deengine/shard_rig.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace gnstor::deengine::test {
namespace {

constexpr nvme::BlockAddress kBlock = 63;
constexpr std::uint64_t kSequence = 1;

std::uint32_t crc_of(std::uint64_t content) {
    sim::Contents c;
    sim::Pattern(content).fill(c.bytes);
    c.seal();
    return content_crc(c.crcs);
}

/// Four contents, the oldest first, where one sequence brought them all.
std::array<std::uint64_t, 4> contents() {
    std::array<std::uint64_t, 4> all{1001, 1002, 1003, 1004};
    std::ranges::sort(all, {}, crc_of);
    return all;
}

class Lost : public ::testing::Test {
  protected:
    void SetUp() override {
        EngineOptions o;
        o.volatile_cache = false;
        o.mdts_blocks = 8;
        o.max_volumes = 16;
        o.max_tombstones = 64;
        MediumOptions m;
        m.geometry = {24, 8};
        Expectation e;
        e.lives.volumes[1] = {1, 64};
        e.sequence = kSequence;
        rig = std::make_unique<ShardRig>(std::make_unique<Medium>(m), std::move(e), o);
        ASSERT_TRUE(rig->mount().ok());
    }
    void send(std::uint64_t content) {
        std::vector<std::byte> bytes(nvme::kBlockBytes);
        sim::Pattern(content).fill(bytes.data());
        ShardCommand c{};
        c.op = ShardOp::kWrite;
        c.volume = 1;
        c.first = kBlock;
        c.blocks = 1;
        c.epoch = c.volume_epoch = 1;
        c.sequence = c.tag = kSequence;
        c.data = bytes.data();
        rig->shard->execute(c);
        rig->shard->settle();
        ASSERT_TRUE(ok(rig->last_status));
    }
    [[nodiscard]] bool shows(std::uint64_t content) {
        std::vector<std::byte> got;
        const nvme::Status status = rig->read(make_key(1, kBlock), got);
        if (content == 0) return status == nvme::Status::kUnrecoveredReadError;
        return ok(status) && sim::Pattern(content).matches(got.data(), 0, nvme::kSectorsPerBlock);
    }
    /// The newest page of this kind that is of the block.
    [[nodiscard]] PageNumber page_of_block(PageKind kind) {
        PageNumber newest = kNoPage;
        for (PageNumber p = 0; p < rig->medium->options().geometry.pages(); ++p) {
            const sim::MediumPage& page = rig->medium->page(p);
            if (!page.recorded || page.oob.kind != kind || page.oob.vba != kBlock || page.oob.vid != 1)
                continue;
            if (newest == kNoPage || page.oob.group >= rig->medium->page(newest).oob.group) newest = p;
        }
        return newest;
    }
    /// Its page cannot be read, and the collector has found that.
    void lose() {
        rig->medium->rot_data(page_of_block(PageKind::kData));
        for (std::uint32_t i = 0; page_of_block(PageKind::kLost) == kNoPage && i < 2000; ++i) {
            rig->write(1, static_cast<nvme::BlockAddress>(random.below(57)), false);
            rig->shard->settle();
        }
        ASSERT_NE(page_of_block(PageKind::kLost), kNoPage);
        ASSERT_TRUE(shows(0));
    }
    std::unique_ptr<ShardRig> rig;
    SplitMix64 random{5};
};

TEST_F(Lost, TheSameContentsRepairALostPage) {
    const auto all = contents();
    send(all[2]);
    lose();
    send(all[2]);
    EXPECT_TRUE(shows(all[2]));
}

TEST_F(Lost, OtherContentsOfTheSameSequenceDoNotReplaceALostPage) {
    const auto all = contents();
    send(all[2]);
    lose();
    send(all[1]);
    EXPECT_TRUE(shows(0))
        << "the acknowledged contents are lost, and other contents of the sequence must not replace them";
    rig->reboot();
    ASSERT_TRUE(rig->mount().ok());
    EXPECT_TRUE(shows(0));
    send(all[0]);
    EXPECT_TRUE(shows(0));
    send(all[3]);
    EXPECT_TRUE(shows(all[3]));
}

TEST_F(Lost, ALostPageStaysLostWhenItIsCopiedAgain) {
    const auto all = contents();
    send(all[2]);
    lose();
    const PageNumber first = page_of_block(PageKind::kLost);
    for (std::uint32_t i = 0; page_of_block(PageKind::kLost) == first && i < 4000; ++i) {
        rig->write(1, static_cast<nvme::BlockAddress>(random.below(57)), false);
        rig->shard->settle();
    }
    ASSERT_NE(page_of_block(PageKind::kLost), first);
    send(all[1]);
    EXPECT_TRUE(shows(0));
    send(all[2]);
    EXPECT_TRUE(shows(all[2]));
}

/// The older contents were stored first. Their page is still there when the newer one's is erased.
TEST_F(Lost, RecoveryDoesNotUseOtherContentsOfTheSequenceOfALostPage) {
    const auto all = contents();
    for (nvme::BlockAddress b = 57; b < 60; ++b) rig->write(1, b, false);
    send(all[0]);
    for (nvme::BlockAddress b = 60; b < 63; ++b) rig->write(1, b, false);
    for (nvme::BlockAddress b = 0; b < 8; ++b) rig->write(1, b, false);
    send(all[2]);
    std::uint32_t looked = 0;
    rig->medium->on_operation = [&](Medium& medium) {
        bool lost = false;
        bool older = false;
        bool newer = false;
        for (PageNumber p = 0; p < medium.options().geometry.pages(); ++p) {
            const sim::MediumPage& page = medium.page(p);
            if (!page.recorded || page.oob.vba != kBlock || page.oob.vid != 1) continue;
            lost = lost || page.oob.kind == PageKind::kLost;
            older = older || content_crc(page.oob.sector_crc) == crc_of(all[0]);
            newer = newer || content_crc(page.oob.sector_crc) == crc_of(all[2]);
        }
        if (!lost || !older || newer) return;
        ++looked;
        ShardRig cut(medium.image(CutMode::kKill, [](auto&&...) { return Fate::absent(); }), rig->expected,
                     rig->options);
        ASSERT_TRUE(cut.mount().ok());
        std::vector<std::byte> got;
        EXPECT_EQ(cut.read(make_key(1, kBlock), got), nvme::Status::kUnrecoveredReadError);
    };
    lose();
    for (std::uint32_t i = 0; looked < 20 && i < 1000; ++i)
        rig->write(1, static_cast<nvme::BlockAddress>(random.below(57)), false);
    rig->medium->on_operation = nullptr;
    EXPECT_GE(looked, 20u);
}

}  // namespace
}  // namespace gnstor::deengine::test
