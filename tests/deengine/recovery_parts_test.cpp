// recovery_parts_test.cpp: what a recovery concludes from groups, gaps of the journal and open units, each by
// itself: no flash is read.
#include <gtest/gtest.h>

#include "deengine/ram_flash.hpp"
#include "deengine/recovery/group_ages.hpp"
#include "deengine/recovery/journal_gaps.hpp"
#include "deengine/recovery/open_units.hpp"

namespace gnstor::deengine::test::recovery_parts_test {

TEST(GroupAges, TheLastTwoGroupsMayBeTornAndNumbersWrap) {
    GroupAges ages(false);
    ages.set_begin(0xFFFFFFFEu);
    ages.saw(0xFFFFFFFFu);
    ages.saw(2);
    ages.saw(0);  // newest never falls
    EXPECT_EQ(ages.newest(), 2u);
    EXPECT_TRUE(ages.is_old(0));
    EXPECT_TRUE(ages.is_old(0xFFFFFFFDu));
    EXPECT_FALSE(ages.is_old(1));
    EXPECT_FALSE(ages.is_whole(1));
    ages.saw(0x70000000u);  // farther than any shard goes between two checkpoints
    EXPECT_EQ(ages.newest(), 2u);
}

TEST(GroupAges, AKilledProcessMissesNothingOfTheGroupBefore) {
    GroupAges ages(true);
    ages.set_begin(1);
    ages.saw(5);
    EXPECT_FALSE(ages.is_old(4));
    EXPECT_TRUE(ages.is_whole(4));
    EXPECT_FALSE(ages.is_whole(5));
}

struct Gaps {
    explicit Gaps(bool only_killed = false) : ages(only_killed), gaps(only_killed) {
        ages.set_begin(1);
        ages.saw(10);
    }
    JournalGaps::Loss judge() { return gaps.judge(journal, 0, ages, findings); }
    /// A page of checkpoint `id`; the loaded one begins at number 1.
    void part(JournalPage type, std::uint64_t number, std::uint64_t id, std::uint32_t part_of) {
        JournalHeader header{};
        header.type = type;
        header.number = number;
        header.checkpoint = id;
        header.part = part_of;
        gaps.note_part(header, 1);
    }
    RamFlash flash{4, 4};
    JournalIndex journal{flash};
    RecoveryReport report{};
    RecoveryFindings findings{report, 0};
    GroupAges ages;
    JournalGaps gaps;
};

TEST(JournalGaps, AGapOfADurableGroupThatNothingExplainsIsALoss) {
    Gaps g;
    g.gaps.add({20, 3, 8});
    g.gaps.add({40, 1, 8});
    const JournalGaps::Loss loss = g.judge();
    EXPECT_EQ(loss.pages, 4u);
    EXPECT_EQ(loss.first, 20u);
}

TEST(JournalGaps, AGapOfTheLastTwoGroupsWasNeverWritten) {
    Gaps g;
    g.gaps.add({20, 3, 9});
    EXPECT_EQ(g.judge().pages, 0u);
    EXPECT_EQ(g.report.findings.size(), 1u);
}

TEST(JournalGaps, WhatAnEarlierRecoveryGaveUpIsNoLoss) {
    Gaps g;
    g.gaps.add_known(18, 6);
    g.gaps.add({20, 3, 8});
    EXPECT_EQ(g.judge().pages, 0u);
    EXPECT_TRUE(g.gaps.is_known(18, 6));
    EXPECT_FALSE(g.gaps.is_known(18, 7));
}

TEST(JournalGaps, MissingPartsOfAnotherCheckpointExplainAsManyPages) {
    for (const std::uint64_t missing : {2u, 3u}) {
        Gaps g;
        // Parts 0 and 3 are present: two are missing between them.
        g.part(JournalPage::kCheckpointBegin, 20, 7, 0);
        g.gaps.add({21, missing, 8});
        g.part(JournalPage::kCheckpointFloors, 21 + missing, 7, 3);
        EXPECT_EQ(g.judge().pages, missing - 2);
    }
}

TEST(JournalGaps, TheEndOfACompleteCheckpointExplainsOnePageBehindItsParts) {
    for (const bool completed : {true, false}) {
        Gaps g;
        g.part(JournalPage::kCheckpointBegin, 20, 7, 0);
        g.part(JournalPage::kCheckpointFloors, 21, 7, 1);
        g.gaps.add({22, 1, 8});
        if (completed) g.gaps.note_completed(7);
        EXPECT_EQ(g.judge().pages, completed ? 0u : 1u);
    }
}

TEST(JournalGaps, ADamagedLogPageIsNeverAPart) {
    Gaps g;
    g.part(JournalPage::kCheckpointBegin, 20, 7, 0);
    g.gaps.add({21, 1, 8, true});
    g.part(JournalPage::kCheckpointFloors, 22, 7, 2);
    EXPECT_EQ(g.judge().pages, 1u);
}

JournalHeader header_of(std::uint32_t user, std::uint16_t user_pages, std::uint32_t collector,
                        std::uint16_t collector_pages, std::uint32_t next_serial) {
    JournalHeader header{};
    header.open_user = user;
    header.user_pages = user_pages;
    header.open_collector = collector;
    header.collector_pages = collector_pages;
    header.next_serial = next_serial;
    return header;
}

TEST(OpenUnits, AUnitThatIsNotOpenAnyMoreWasFull) {
    OpenUnits open;
    const JournalHeader older = header_of(4, 3, 5, 1, 6);
    const JournalHeader newer = header_of(6, 2, 5, 4, 8);
    open.note_page(older, 2);
    open.note_counts(older, 100, true);
    open.note_page(newer, 9);
    open.note_counts(newer, 101, false);
    EXPECT_EQ(open.last_page(), 101u);
    EXPECT_EQ(open.next_serial(), 8u);
    EXPECT_FALSE(open.may_be_open(4));
    EXPECT_TRUE(open.may_be_open(5));
    EXPECT_TRUE(open.may_be_open(8)) << "opened since";
    EXPECT_TRUE(open.was_collectors(5));
    EXPECT_FALSE(open.was_collectors(6));
    GroupAges ages(false);
    ages.set_begin(1);
    ages.saw(10);
    open.choose_last_old(ages);
    EXPECT_TRUE(open.was_full_before(3));
    EXPECT_FALSE(open.was_full_before(4)) << "the newer page is of the last two groups";
    EXPECT_EQ(open.pages_told(5, false), 4u);
    EXPECT_EQ(open.pages_told(5, true), 1u) << "only a stamp shows that pages were durable";
    EXPECT_EQ(open.pages_told(6, true), 0u);
    EXPECT_EQ(open.pages_told(99, false), 0u);
}

}  // namespace gnstor::deengine::test::recovery_parts_test
