// shares_test.cpp: which commands may take a gateway's places (SsdQuota), and which flushes are true
// (WriteLossTracker): pure logic.
#include "gateway/ssd_quota.hpp"
#include "gateway/write_loss_tracker.hpp"

#include <gtest/gtest.h>

namespace gnstor::gateway::shares_test {

placement::ArrayMap map_of(std::uint32_t version, std::uint32_t slots = 4) {
    placement::ArrayMap map{};
    map.version = version;
    map.slot_count = slots;
    for (std::uint32_t s = 0; s < slots; ++s) {
        map.slots[s].state = placement::SlotState::kIn;
        map.slots[s].weight = 1;
        map.slots[s].ssd_uuid[0] = static_cast<std::uint8_t>(s + 1);
    }
    return map;
}
placement::ArrayMap without(placement::ArrayMap map, std::uint32_t slot) {
    ++map.version;
    map.slots[slot].state = placement::SlotState::kDown;
    return map;
}
placement::ArrayMap replaced(placement::ArrayMap map, std::uint32_t slot) {
    ++map.version;
    map.slots[slot].ssd_uuid[1] = static_cast<std::uint8_t>(map.version);
    return map;
}

TEST(WriteLossTracker, AsManyLostSsdsAsReplicasFailFlushesAndFewerDoNot) {
    WriteLossTracker watch(2, map_of(1));
    watch.answered();
    const auto one = without(map_of(1), 0);
    EXPECT_FALSE(watch.look_at(one, false));
    EXPECT_FALSE(watch.lost()) << "each write has another replica";
    EXPECT_TRUE(watch.look_at(replaced(one, 3), false)) << "an empty SSD in its place is none of them";
    EXPECT_TRUE(watch.lost());
    watch.flush_ended(watch.flush_begins(false), false);
    EXPECT_TRUE(watch.lost()) << "for each host that flushes";
    EXPECT_FALSE(watch.look_at(without(replaced(one, 3), 1), false)) << "a loss must be reported once";
}

TEST(WriteLossTracker, TwoSsdsLostAtTheSameTimeFailFlushesToo) {
    WriteLossTracker watch(2, map_of(1));
    watch.answered();
    EXPECT_TRUE(watch.look_at(without(without(map_of(1), 1), 2), false));
}

TEST(WriteLossTracker, AFlushBetweenTwoLossesSettlesTheFirst) {
    WriteLossTracker watch(2, map_of(1));
    watch.answered();
    const auto one = without(map_of(1), 0);
    EXPECT_FALSE(watch.look_at(one, false));
    const auto flush = watch.flush_begins(false);
    watch.answered();  // under the new map: on the other SSDs
    watch.flush_ended(flush, false);
    EXPECT_FALSE(watch.look_at(without(one, 1), false));
    EXPECT_TRUE(watch.look_at(without(without(one, 1), 2), false)) << "two since that flush";
}

TEST(WriteLossTracker, AFlushThatBeganBesideAnOlderWriteDoesNotSettleTheLoss) {
    WriteLossTracker watch(2, map_of(1));
    watch.answered();
    const auto one = without(map_of(1), 0);
    EXPECT_FALSE(watch.look_at(one, true));
    const auto flush = watch.flush_begins(true);
    watch.answered();  // by both SSDs of the old map
    watch.flush_ended(flush, false);
    EXPECT_TRUE(watch.look_at(without(one, 1), false));
}

TEST(WriteLossTracker, ALossDuringAFlushIsSettledByItIfNothingWasAnsweredMeanwhile) {
    const auto one = without(map_of(1), 0);
    for (int meanwhile = 0; meanwhile < 3; ++meanwhile) {
        WriteLossTracker watch(2, map_of(1));
        watch.answered();
        const auto flush = watch.flush_begins(false);
        EXPECT_FALSE(watch.look_at(one, false));
        if (meanwhile == 1) watch.answered();
        watch.flush_ended(flush, meanwhile == 2);
        watch.answered();
        EXPECT_EQ(watch.look_at(without(one, 1), false), meanwhile != 0) << meanwhile;
    }
}

TEST(WriteLossTracker, ALossWithoutUnflushedWritesFailsNoFlush) {
    WriteLossTracker watch(1, map_of(1));
    EXPECT_FALSE(watch.look_at(without(map_of(1), 0), false)) << "no write is unflushed";
    watch.answered();
    watch.flush_ended(watch.flush_begins(false), false);
    EXPECT_FALSE(watch.look_at(without(without(map_of(1), 0), 1), false));
    EXPECT_TRUE(watch.look_at(without(without(without(map_of(1), 0), 1), 2), true)) << "a write is under way";
}

TEST(WriteLossTracker, ASuccessorIsToldOfAnsweredWritesUntilAFlushCoversThem) {
    WriteLossTracker watch(2, map_of(1));
    EXPECT_FALSE(watch.record(false).dirty);
    EXPECT_TRUE(watch.record(true).dirty) << "a write is in flight";
    watch.answered();
    EXPECT_TRUE(watch.record(false).dirty) << "none is in flight, but no flush has covered this one";
    const WriteLossTracker::Mark mark = watch.flush_begins(false);
    watch.answered();
    watch.flush_ended(mark, false);
    EXPECT_TRUE(watch.record(false).dirty) << "a write was answered during the flush";
    watch.flush_ended(watch.flush_begins(false), false);
    EXPECT_FALSE(watch.record(false).dirty);
}

TEST(WriteLossTracker, ADegradedMapHasFewerReplicas) {
    WriteLossTracker watch(3, map_of(1, 2));
    watch.answered();
    EXPECT_FALSE(watch.look_at(without(map_of(1, 2), 0), false));
    watch.answered();
    EXPECT_TRUE(watch.look_at(without(without(map_of(1, 2), 0), 1), false));
    EXPECT_FALSE(WriteLossTracker(2, map_of(1)).look_at(map_of(1, 2), true))
        << "the same version, the same bytes";
}

TEST(SsdQuota, OneSsdLeavesCommandEntriesToOthersAndEachOfManyHasItsShare) {
    SsdQuota shares(128, 4);
    std::uint32_t taken = 0;
    for (; shares.has_room(1, 0); ++taken) shares.take(1);
    EXPECT_EQ(taken, 32u);
    EXPECT_FALSE(shares.has_room(3, 0)) << "a write that the full one takes part in";
    EXPECT_TRUE(shares.has_room(2, 0));
    std::uint32_t many = 0;
    for (; shares.has_room(SsdQuota::kMany, 0); ++many) shares.take(SsdQuota::kMany);
    EXPECT_EQ(many, 16u);
    EXPECT_TRUE(shares.has_room(2, 0));
    shares.give(1);
    shares.give(SsdQuota::kMany);
    EXPECT_TRUE(shares.has_room(1, 0) && shares.has_room(SsdQuota::kMany, 0));
}

TEST(SsdQuota, ACommandThatWaitsForTwoSsdsIsNotOvertakenForever) {
    SsdQuota shares(128, 4);
    while (shares.has_room(1, 0)) shares.take(1);
    while (shares.has_room(2, 0)) shares.take(2);
    shares.give(1);
    EXPECT_FALSE(shares.has_room(3, 0));
    EXPECT_FALSE(shares.has_room(1, 3)) << "the place is kept for the one that waits for both";
    shares.give(2);
    EXPECT_TRUE(shares.has_room(3, 0));
    EXPECT_TRUE(shares.has_room(4, 3)) << "entries of other SSDs must not be reserved";
}

TEST(SsdQuota, AWaitingFlushReservesNoEntryAndHidesNoCommandThatDoes) {
    // In the order of their age: a flush without room, a write to two SSDs without room, reads of one of
    // them.
    const SsdQuota::Mask behind_flush = SsdQuota::keep_for(SsdQuota::kMany, 0);
    EXPECT_EQ(behind_flush, 0u);
    const SsdQuota::Mask behind_write = SsdQuota::keep_for(3, behind_flush);
    EXPECT_EQ(behind_write, 3u);
    EXPECT_EQ(SsdQuota::keep_for(4, behind_write), 3u)
        << "entries must be reserved only for the oldest command";
    SsdQuota shares(256, 8);
    while (shares.has_room(1, 0)) shares.take(1);
    shares.give(1);
    EXPECT_FALSE(shares.has_room(1, behind_write)) << "reads would overtake the write forever";
    EXPECT_TRUE(shares.has_room(3, 0));
}

TEST(SsdQuota, ACommandSlotIsAlwaysAvailable) {
    for (const std::uint32_t places : {1u, 2u, 16u, 128u, 1024u})
        for (const std::uint32_t ssds : {1u, 2u, 3u, 64u}) {
            const SsdQuota shares(places, ssds);
            EXPECT_TRUE(shares.has_room(1, 0) && shares.has_room(SsdQuota::kMany, 0));
            EXPECT_LE(shares.of_one(), places);
            if (ssds > 1 && places > 1) {
                EXPECT_LE(shares.of_one(), places / 2);
            }
        }
}

}  // namespace gnstor::gateway::shares_test
