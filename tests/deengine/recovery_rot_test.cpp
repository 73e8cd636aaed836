// recovery_rot_test.cpp: torn against rotted, by place: what a cut explains is as if never written, what it
// does not explain is a fall-back, an error of one block, or a refusal with a sentence.
#include "deengine/shard_rig.hpp"

#include <algorithm>
#include <set>

namespace gnstor::deengine::test::recovery_rot_test {

EngineOptions rot_options() {
    EngineOptions o;
    o.volatile_cache = false;
    o.mdts_blocks = 8;
    o.max_volumes = 16;
    o.max_tombstones = 64;
    return o;
}

MediumOptions rot_medium(FlashGeometry geometry = {24, 8}) {
    MediumOptions m;
    m.geometry = geometry;
    return m;
}

Expectation one_volume() {
    Expectation e;
    e.lives.volumes[1] = {1, 64};
    return e;
}

std::unique_ptr<ShardRig> mounted(FlashGeometry geometry = {24, 8}) {
    auto rig = std::make_unique<ShardRig>(std::make_unique<Medium>(rot_medium(geometry)), one_volume(),
                                          rot_options());
    EXPECT_TRUE(rig->mount().ok());
    return rig;
}

/// One group a write.
void write_durably(ShardRig& rig, nvme::BlockAddress block, bool trim = false) {
    rig.write(1, block, trim);
    rig.shard->settle();
}

struct Found {
    PageNumber page;
    PageOob oob;
};
/// Pages whose records f accepts, in order of groups, then of pages.
template <class F>
std::vector<Found> pages_where(ShardRig& rig, F&& f) {
    std::vector<Found> out;
    Flash& flash = rig.medium->view(0);
    for (PageNumber p = 0; p < flash.geometry().pages(); ++p) {
        PageOob oob{};
        if (flash.read_oob(p, oob) == FlashStatus::kOk && oob.kind != PageKind::kErased && f(oob))
            out.push_back({p, oob});
    }
    std::ranges::stable_sort(out, {}, [](const Found& x) { return x.oob.group; });
    return out;
}
bool is_data(const PageOob& oob) {
    return oob.kind == PageKind::kData;
}
bool is_part(const PageOob& oob, JournalPage type) {
    return oob.kind == PageKind::kSystem && oob.epoch == static_cast<std::uint32_t>(type);
}

TEST(Rot, AMountAfterACleanCloseWritesNothingAndFindsAllBlocks) {
    auto rig = mounted();
    for (nvme::BlockAddress b = 0; b < 60; ++b) write_durably(*rig, b % 40, b % 9 == 0);
    ASSERT_TRUE(rig->shard->close().ok());
    rig->reboot();
    ASSERT_TRUE(rig->mount().ok());
    EXPECT_EQ(rig->medium->counters().programs, 0u);
    EXPECT_EQ(rig->medium->counters().erases, 0u);
    EXPECT_EQ(rig->report.units_young, 0u);
    EXPECT_TRUE(rig->report.findings.empty()) << rig->report.findings.front();
    EXPECT_EQ(rig->check(), "");
}

TEST(Rot, AnyDamagedPartOfTheNewestCheckpointMakesRecoveryStartFromThePreviousOne) {
    std::uint32_t damaged = 0;
    for (std::size_t i = 0;; ++i) {
        auto rig = mounted();
        for (int round = 0; round < 2; ++round) {
            for (nvme::BlockAddress b = 0; b < 30; ++b) write_durably(*rig, b, b % 7 == 6);
            ASSERT_TRUE(rig->shard->close().ok());
            rig->reboot();
            ASSERT_TRUE(rig->mount().ok());
        }
        for (nvme::BlockAddress b = 0; b < 6; ++b) write_durably(*rig, b, b % 3 == 2);
        const std::uint64_t newest = rig->report.checkpoint;
        rig->reboot();
        // Parts of the newest: from the last BEGIN on.
        auto parts = pages_where(*rig, [](const PageOob& oob) {
            return oob.kind == PageKind::kSystem && !is_part(oob, JournalPage::kLog);
        });
        std::ranges::sort(parts, {}, [](const Found& f) { return f.oob.sequence; });
        while (!is_part(parts.back().oob, JournalPage::kCheckpointEnd)) parts.pop_back();
        const auto begin = std::find_if(parts.rbegin(), parts.rend(), [](const Found& f) {
            return is_part(f.oob, JournalPage::kCheckpointBegin);
        });
        parts.erase(parts.begin(), begin.base() - 1);
        if (i == 2 * parts.size()) break;
        ++damaged;
        const bool record = i % 2 == 1;
        if (record) rig->medium->rot_record(parts[i / 2].page);
        if (!record) rig->medium->rot_data(parts[i / 2].page);
        const Result<void> result = rig->mount();
        ASSERT_TRUE(result.ok()) << "part " << i / 2 << (record ? " record: " : " data: ")
                                 << result.error().message;
        EXPECT_LT(rig->report.checkpoint, newest);
        EXPECT_EQ(rig->report.blocks_lost, 0u);
        EXPECT_EQ(rig->check(), "") << "part " << i / 2;
        EXPECT_TRUE(rig->shard->audit().empty());
        // And once more from what that recovery wrote.
        rig->reboot();
        ASSERT_TRUE(rig->mount().ok());
        EXPECT_GT(rig->report.checkpoint, newest);
        EXPECT_EQ(rig->check(), "");
    }
    std::printf("GN_COUNT deengine_rot_parts_damaged=%u\n", damaged);
}

TEST(Rot, ABadRecordOfTheLastGroupsIsTornAndThePreviousVersionIsKept) {
    auto rig = mounted();
    write_durably(*rig, 5);
    for (nvme::BlockAddress b = 10; b < 14; ++b) write_durably(*rig, b);
    const std::uint64_t before = rig->expected.sequence;
    rig->write(1, 5, false);
    rig->shard->settle();
    rig->reboot();
    const auto data = pages_where(*rig, is_data);
    ASSERT_EQ(data.back().oob.vba, 5u);
    rig->medium->rot_record(data.back().page);
    rig->expected.blocks[make_key(1, 5)].acknowledged =
        1;  // a medium that forgets what it synced: no promise
    ASSERT_TRUE(rig->mount().ok());
    EXPECT_EQ(rig->check(), "");
    EXPECT_EQ(rig->expected.blocks[make_key(1, 5)].acknowledged, 1u)
        << "the version before sequence " << before;
    EXPECT_EQ(rig->report.pages_torn, 1u);
}

TEST(Rot, ABadRecordOfAnOlderGroupRefusesTheMountUnlessLossIsAccepted) {
    auto rig = mounted();
    for (nvme::BlockAddress b = 0; b < 7; ++b) write_durably(*rig, b);
    rig->reboot();
    const auto data = pages_where(*rig, is_data);
    ASSERT_EQ(data.size(), 7u);
    rig->medium->rot_record(data[2].page);
    const std::uint64_t programs = rig->medium->counters().programs;
    const Result<void> refused = rig->mount();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Errc::kCorrupt);
    EXPECT_NE(refused.error().message.find("it is not known which block it held"), std::string::npos)
        << refused.error().message;
    EXPECT_NE(refused.error().message.find("--accept-loss"), std::string::npos);
    EXPECT_EQ(rig->medium->counters().programs, programs) << "a refused mount changes nothing";
    rig->options.accept_loss = true;
    ASSERT_TRUE(rig->mount().ok());
    rig->expected.blocks.erase(make_key(1, data[2].oob.vba));
    EXPECT_EQ(rig->check(), "");
    // What was accepted once is not asked again.
    rig->reboot();
    rig->options.accept_loss = false;
    ASSERT_TRUE(rig->mount().ok());
    EXPECT_EQ(rig->check(), "");
}

/// Between pages of groups g and g + 2 may lie one of group g + 1 that a cut tore and nobody was promised: it
/// is byte for byte what is left of one of group g whose record rots. So nothing may be refused there, and
/// from the next two groups on everything must.
TEST(Rot, ABadRecordFollowedByAPageOfAnOlderGroupIsNotTakenForATornOne) {
    for (std::uint32_t later = 0; later < 5; ++later) {
        auto rig = mounted();
        write_durably(*rig, 5);
        write_durably(*rig, 5);
        write_durably(*rig, 20, true);
        for (std::uint32_t i = 0; i <= later; ++i) write_durably(*rig, 10 + i);
        rig->reboot();
        const auto data = pages_where(*rig, is_data);
        ASSERT_EQ(data[1].oob.vba, 5u);
        ASSERT_EQ(data[2].page, data[1].page + 1);
        ASSERT_EQ(data[2].oob.group, data[1].oob.group + 2);
        rig->medium->rot_record(data[1].page);
        const Result<void> result = rig->mount();
        EXPECT_EQ(result.ok(), later < 2) << later << " groups behind the page behind it";
        if (!result.ok()) continue;
        EXPECT_EQ(rig->report.pages_torn, 1u);
        rig->expected.blocks[make_key(1, 5)].acknowledged = 1;
        EXPECT_EQ(rig->check(), "");
        EXPECT_EQ(rig->expected.blocks[make_key(1, 5)].acknowledged, 1u) << "the version before";
    }
}

TEST(Rot, BadDataOfAnOlderGroupStaysMappedAndFailsItsOwnReadsAlone) {
    auto rig = mounted();
    for (nvme::BlockAddress b = 0; b < 7; ++b) write_durably(*rig, b);
    rig->reboot();
    const auto data = pages_where(*rig, is_data);
    rig->medium->rot_data(data[2].page);
    ASSERT_TRUE(rig->mount().ok());
    std::vector<std::byte> got;
    EXPECT_EQ(rig->read(make_key(1, data[2].oob.vba), got), nvme::Status::kUnrecoveredReadError);
    rig->expected.blocks.erase(make_key(1, data[2].oob.vba));
    EXPECT_EQ(rig->check(), "");
}

/// The collector moves a damaged page as it is. In the last two groups that copy looks torn, so what it was
/// made from must still be there. Groups are long here: what one empties the next opens again.
TEST(Rot, ADamagedPageThatIsMovedStaysAnErrorWhateverIsCut) {
    auto rig = mounted();
    constexpr nvme::BlockAddress kDamaged = 63;
    write_durably(*rig, kDamaged);
    for (nvme::BlockAddress b = 0; b < 20; ++b) write_durably(*rig, b);
    const Found damaged = pages_where(*rig, is_data).front();
    ASSERT_EQ(damaged.oob.vba, kDamaged);
    rig->medium->flip_byte(damaged.page, 700);
    std::uint32_t looked = 0;
    rig->medium->on_operation = [&](Medium& medium) {
        const sim::MediumPage& page = medium.page(damaged.page);
        if (page.recorded && page.oob.unit_serial == damaged.oob.unit_serial) return;
        ++looked;
        ShardRig cut(medium.image(CutMode::kKill, [](auto&&...) { return Fate::absent(); }), rig->expected,
                     rot_options());
        ASSERT_TRUE(cut.mount().ok());
        std::vector<std::byte> got;
        EXPECT_EQ(cut.read(make_key(1, kDamaged), got), nvme::Status::kUnrecoveredReadError);
    };
    SplitMix64 random(7);
    for (int i = 0; i < 400; ++i) {
        rig->write(1, static_cast<nvme::BlockAddress>(random.below(57)), false);
        if (i % 100 == 99) rig->shard->settle();
    }
    rig->medium->on_operation = nullptr;
    EXPECT_GT(looked, 100u) << "its unit was erased";
}

TEST(Rot, ALostLogPageRefusesTheMountUnlessLossIsAccepted) {
    auto rig = mounted();
    for (nvme::BlockAddress b = 0; b < 3; ++b) write_durably(*rig, b);
    for (nvme::BlockAddress b = 0; b < 3; ++b) write_durably(*rig, b, true);
    for (nvme::BlockAddress b = 3; b < 8; ++b) write_durably(*rig, b);
    rig->reboot();
    const auto logs = pages_where(*rig, [](const PageOob& oob) { return is_part(oob, JournalPage::kLog); });
    ASSERT_GE(logs.size(), 3u);
    rig->medium->rot_record(logs[logs.size() - 3].page);
    const Result<void> refused = rig->mount();
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("of its journal was durable"), std::string::npos)
        << refused.error().message;
    rig->options.accept_loss = true;
    EXPECT_TRUE(rig->mount().ok());
}

/// A checkpoint under way at a cut leaves its later parts and not its first: they explain their own absence,
/// not that of a page of the log from long before.
TEST(Rot, ALostLogPageIsNotTakenForAPartOfACheckpointLostInACut) {
    for (const bool record : {false, true}) {
        MediumOptions options = rot_medium();
        options.power_cuts = true;
        ShardRig rig(std::make_unique<Medium>(options), one_volume(), rot_options());
        ASSERT_TRUE(rig.mount().ok());
        for (nvme::BlockAddress b = 0; b < 3; ++b) write_durably(rig, b);
        for (nvme::BlockAddress b = 0; b < 3; ++b) write_durably(rig, b, true);
        for (nvme::BlockAddress b = 3; b < 8; ++b) write_durably(rig, b);
        std::unique_ptr<Medium> cut;
        rig.medium->on_operation = [&](Medium& medium) {
            const sim::Operation* op = medium.pending();
            if (cut || op == nullptr || !is_part(op->after.oob, JournalPage::kCheckpointFloors)) return;
            cut = medium.image(CutMode::kPower, [](std::size_t, std::size_t, const sim::Operation& o, bool) {
                return is_part(o.after.oob, JournalPage::kCheckpointBegin) ? Fate::absent() : Fate::whole();
            });
        };
        ASSERT_TRUE(rig.shard->close().ok());
        ASSERT_NE(cut, nullptr);
        rig.shard.reset();
        rig.medium = std::move(cut);
        const auto logs =
            pages_where(rig, [](const PageOob& oob) { return is_part(oob, JournalPage::kLog); });
        ASSERT_GE(logs.size(), 3u);
        if (record) rig.medium->rot_record(logs[logs.size() - 3].page);
        if (!record) rig.medium->rot_data(logs[logs.size() - 3].page);
        const Result<void> refused = rig.mount();
        ASSERT_FALSE(refused.ok()) << (record ? "its record" : "its contents");
        EXPECT_NE(refused.error().message.find("of its journal was durable"), std::string::npos)
            << refused.error().message;
    }
}

TEST(Rot, WithoutAnIntactCheckpointTheMountIsRefused) {
    auto rig = mounted();
    for (int round = 0; round < 12; ++round) {
        for (nvme::BlockAddress b = 0; b < 20; ++b) write_durably(*rig, b);
        ASSERT_TRUE(rig->shard->close().ok());
    }
    rig->reboot();
    for (const Found& f :
         pages_where(*rig, [](const PageOob& oob) { return is_part(oob, JournalPage::kCheckpointMap); }))
        rig->medium->rot_data(f.page);
    const Result<void> refused = rig->mount();
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("no whole checkpoint"), std::string::npos)
        << refused.error().message;
}

TEST(Rot, AFirstCheckpointIsNotNeededWhileTheJournalReachesBackToItsBeginning) {
    auto rig = mounted();
    for (nvme::BlockAddress b = 0; b < 12; ++b) write_durably(*rig, b, b % 5 == 4);
    rig->reboot();
    for (const Found& f :
         pages_where(*rig, [](const PageOob& oob) { return is_part(oob, JournalPage::kCheckpointMap); }))
        rig->medium->rot_data(f.page);
    ASSERT_TRUE(rig->mount().ok());
    EXPECT_EQ(rig->report.checkpoint, 0u);
    EXPECT_EQ(rig->check(), "");
}

TEST(Rot, AMappedPageOfALostUnitIsAReadErrorNeverZeroes) {
    auto rig = mounted();
    for (nvme::BlockAddress b = 0; b < 30; ++b) write_durably(*rig, b);
    ASSERT_TRUE(rig->shard->close().ok());
    rig->reboot();
    const auto data = pages_where(*rig, is_data);
    const std::uint32_t gone = data.front().page / 8;
    std::set<nvme::BlockAddress> blocks;
    for (const Found& f : data)
        if (f.page / 8 == gone) blocks.insert(f.oob.vba);
    ASSERT_EQ(rig->medium->view(0).erase(gone), FlashStatus::kOk);
    ASSERT_TRUE(rig->mount().ok());
    EXPECT_EQ(rig->report.blocks_lost, blocks.size());
    std::vector<std::byte> got;
    for (const nvme::BlockAddress b : blocks) {
        EXPECT_EQ(rig->read(make_key(1, b), got), nvme::Status::kUnrecoveredReadError);
        rig->expected.blocks.erase(make_key(1, b));
    }
    EXPECT_EQ(rig->check(), "");
    rig->reboot();
    ASSERT_TRUE(rig->mount().ok());
    for (const nvme::BlockAddress b : blocks)
        EXPECT_EQ(rig->read(make_key(1, b), got), nvme::Status::kUnrecoveredReadError);
}

/// Writes groups far ahead of what the shard says, so that a few mounts bring them round.
class AheadOfGroups : public Flash {
  public:
    AheadOfGroups(Flash& inner, std::uint32_t ahead) : inner_(inner), ahead_(ahead) {}
    [[nodiscard]] FlashGeometry geometry() const override { return inner_.geometry(); }
    FlashStatus program(PageNumber page, const std::byte* data, PageOob& oob) override {
        oob.group += ahead_;
        return inner_.program(page, data, oob);
    }
    FlashStatus read(PageNumber page, std::uint32_t first, std::uint32_t count, std::byte* to,
                     std::uint32_t* crcs) override {
        return inner_.read(page, first, count, to, crcs);
    }
    FlashStatus read_oob(PageNumber page, PageOob& oob) override { return inner_.read_oob(page, oob); }
    FlashStatus copy_back(PageNumber from, PageNumber to, PageOob& oob, std::uint32_t* crcs) override {
        oob.group += ahead_;
        return inner_.copy_back(from, to, oob, crcs);
    }
    FlashStatus erase(std::uint32_t unit) override { return inner_.erase(unit); }
    using Flash::sync;
    FlashStatus sync(SyncLevel level) override { return inner_.sync(level); }

  private:
    Flash& inner_;
    std::uint32_t ahead_;
};

TEST(Rot, GroupNumbersWrapAroundWithoutConfusion) {
    auto rig = mounted();
    std::uint32_t highest = 0;
    bool came_round = false;
    for (int boot = 0; boot < 24; ++boot) {
        for (nvme::BlockAddress b = 0; b < 10; ++b) write_durably(*rig, (b * 7 + boot) % 40, b % 6 == 5);
        ASSERT_TRUE(rig->shard->close().ok());
        rig->reboot();
        rig->through = nullptr;
        ASSERT_TRUE(rig->mount().ok());
        ASSERT_EQ(rig->check(), "");
        for (nvme::BlockAddress b = 0; b < 3; ++b) write_durably(*rig, b, b == 1);
        rig->reboot();
        AheadOfGroups ahead(rig->medium->view(0), (1u << 29) - 1000);
        rig->through = &ahead;
        ASSERT_TRUE(rig->mount().ok());
        ASSERT_EQ(rig->check(), "");
        ASSERT_TRUE(rig->shard->close().ok());
        rig->reboot();
        rig->through = nullptr;
        const std::uint32_t group =
            pages_where(*rig, [](const PageOob& oob) { return is_part(oob, JournalPage::kCheckpointEnd); })
                .back()
                .oob.group;
        came_round = came_round || group < highest;
        highest = std::max(highest, group);
        ASSERT_TRUE(rig->mount().ok());
        ASSERT_EQ(rig->check(), "");
    }
    EXPECT_GT(highest, 0xE0000000u);
}

}  // namespace gnstor::deengine::test::recovery_rot_test
