// shard_parts_test.cpp: parts of a shard, each by itself on a RamFlash: no engine, and no recovery.
#include <gtest/gtest.h>

#include "deengine/map/order.hpp"
#include "deengine/rig.hpp"
#include "deengine/shard/answer_queue.hpp"
#include "deengine/shard/audit.hpp"
#include "deengine/shard/changes.hpp"
#include "deengine/shard/durability.hpp"
#include "deengine/shard/erase_hold.hpp"
#include "deengine/shard/scrubber.hpp"

#include <functional>
#include <utility>
#include <vector>

namespace gnstor::deengine::test::shard_parts_test {

using Given = std::vector<std::pair<std::uint64_t, Status>>;

class Collected : public CompletionSink {
  public:
    void on_complete(std::uint64_t tag, Status status, std::uint64_t) override {
        given.emplace_back(tag, status);
        if (on_answer) on_answer();
    }
    Given take() { return std::exchange(given, {}); }
    Given given;
    std::function<void()> on_answer;
};

TEST(AnswerQueue, GivesTheAnswersOfDurableGroupsInOrderAndNoOthers) {
    Collected sink;
    AnswerQueue queue(sink);
    queue.wait_for_group(1, 0xFFFFFFFFu);
    queue.wait_for_group(2, 0);
    queue.wait_for_group(3, 1);
    EXPECT_EQ(queue.give_ready(), 0u);
    queue.release_group(0);  // group numbers wrap
    EXPECT_EQ(queue.give_ready(), 2u);
    EXPECT_EQ(sink.take(), (Given{{1, Status::kSuccess}, {2, Status::kSuccess}}));
    EXPECT_TRUE(queue.waits_for_group());
    queue.release_later(Status::kWriteFault);
    EXPECT_EQ(queue.give_ready(), 1u);
    EXPECT_EQ(sink.take(), (Given{{3, Status::kWriteFault}}));
    EXPECT_FALSE(queue.waits_for_group());
}

TEST(AnswerQueue, ASyncAnswersWhatWaitedWhenItBegan) {
    Collected sink;
    AnswerQueue queue(sink);
    queue.wait_for_next_sync(1);
    queue.note_sync();
    queue.wait_for_next_sync(2);
    queue.wait_for_sync(3);
    queue.release_sync(Status::kSuccess);
    EXPECT_EQ(queue.give_ready(), 2u);
    EXPECT_EQ(sink.take(), (Given{{1, Status::kSuccess}, {3, Status::kSuccess}}));
    EXPECT_TRUE(queue.waits_for_next_sync());
}

TEST(AnswerQueue, WhatBecomesReadyWhileAnswersAreGivenIsGivenNextTime) {
    Collected sink;
    AnswerQueue queue(sink);
    sink.on_answer = [&] {
        sink.on_answer = nullptr;
        queue.wait_for_group(9, 2);
        queue.release_group(2);
    };
    queue.wait_for_group(1, 1);
    queue.release_group(1);
    EXPECT_EQ(queue.give_ready(), 1u);
    EXPECT_EQ(queue.give_ready(), 1u);
    EXPECT_EQ(sink.take(), (Given{{1, Status::kSuccess}, {9, Status::kSuccess}}));
}

TEST(EraseHold, LastsUntilTwoGroupsWithPagesAreDurable) {
    EraseHold hold;
    PageOob damaged{};
    damaged.vid = 3;
    damaged.epoch = 5;
    hold.begin(10, damaged);
    EXPECT_EQ(hold.filler().type, LogType::kFloor);
    EXPECT_EQ(hold.filler().volume, 3u);
    EXPECT_EQ(hold.erasable(10), 9u);
    hold.note_empty_group();
    EXPECT_EQ(hold.erasable(12), 9u) << "an empty group shows nothing";
    EXPECT_TRUE(hold.active());
    EXPECT_EQ(hold.erasable(13), 13u);
    EXPECT_FALSE(hold.active());
    hold.begin(20, damaged);
    hold.begin(21, damaged);
    EXPECT_EQ(hold.erasable(22), 19u) << "the first copy says from when, the last one until when";
    EXPECT_EQ(hold.erasable(23), 23u);
}

TEST(WriteOrderTest, ContentsDecideOnlyBetweenEqualNumbers) {
    const WriteOrder mine{2, 7, 100};
    EXPECT_LT(mine, (WriteOrder{3, 1, 0}));
    EXPECT_LT(mine, (WriteOrder{2, 8, 0}));
    EXPECT_GT(mine, (WriteOrder{2, 6, ~0u}));
    EXPECT_LT(mine, (WriteOrder{2, 7, 101}));
    EXPECT_EQ(mine.number(), (WriteNumber{2, 7}));
    EXPECT_GT((WriteNumber{3, 1}), (WriteNumber{2, 9}));
}

/// The parts of an empty shard that change it.
struct Parts {
    static constexpr std::uint32_t kUnits = 32, kPages = 8;
    static constexpr nvme::VolumeId kVolume = 3;

    explicit Parts(const EngineOptions& options)
        : flash(kUnits, kPages),
          state(flash, {0, 1, 0, kUnits}, options),
          log(state),
          durability(state, log, sink),
          collector(state, log, durability),
          pruner(state, log),
          schedule(state, log, durability, collector, pruner),
          scrubber(state, collector),
          changes(state, log, durability, collector, pruner, schedule) {
        state.pool.start(1);
        state.groups.restore(1, 0);
        state.reserve_for_journal();
    }
    ShardCommand command(ShardOp op, nvme::BlockAddress block, std::uint64_t sequence) {
        ShardCommand c{};
        c.op = op;
        c.volume = kVolume;
        c.first = block;
        c.blocks = 1;
        c.epoch = c.volume_epoch = 1;
        c.sequence = sequence;
        return c;
    }
    Status write(nvme::BlockAddress block, std::uint64_t sequence) {
        Block data = pattern(sequence);
        ShardCommand c = command(ShardOp::kWrite, block, sequence);
        c.data = data.data();
        return changes.write(c);
    }
    [[nodiscard]] PageNumber page_of(nvme::BlockAddress block) const {
        const auto entry = state.map.find(make_key(kVolume, block));
        return entry ? entry->page : kNoPage;
    }

    RamFlash flash;
    Collected sink;
    ShardState state;
    ShardLog log;
    Durability durability;
    Collector collector;
    TombstonePruner pruner;
    CheckpointSchedule schedule;
    Scrubber scrubber;
    Changes changes;
};

EngineOptions power_mode() {
    EngineOptions o = default_options();
    o.volatile_cache = false;
    return o;
}

TEST(Durability, InPowerModeAChangeIsAnsweredWhenItsGroupIsDurable) {
    Parts parts(power_mode());
    ASSERT_EQ(parts.write(5, 1), Status::kSuccess);
    const std::uint32_t group = parts.state.groups.current();
    parts.durability.answer_when(Durability::Wait::kMode, 1);
    EXPECT_EQ(parts.durability.give_answers(), 0u);
    ASSERT_TRUE(parts.durability.needs_sync());
    parts.durability.begin_sync();
    EXPECT_EQ(parts.state.groups.current(), group + 1);
    EXPECT_FALSE(parts.state.groups.clock().is_durable(group));
    parts.durability.finish_sync();
    EXPECT_TRUE(parts.state.groups.clock().is_durable(group));
    EXPECT_EQ(parts.durability.give_answers(), 1u);
    EXPECT_EQ(parts.sink.take(), (Given{{1, Status::kSuccess}}));
}

TEST(Durability, InProcessModeAChangeDoesNotWaitAndEndsNoGroup) {
    Parts parts(default_options());
    ASSERT_EQ(parts.write(5, 1), Status::kSuccess);
    const std::uint32_t group = parts.state.groups.current();
    parts.durability.answer_when(Durability::Wait::kMode, 1);
    EXPECT_EQ(parts.sink.take(), (Given{{1, Status::kSuccess}}));
    EXPECT_FALSE(parts.durability.needs_sync());
    // A trim waits for its record.
    ASSERT_EQ(parts.changes.trim(parts.command(ShardOp::kTrim, 5, 2)), Status::kSuccess);
    parts.durability.answer_when(Durability::Wait::kMode, 2);
    EXPECT_TRUE(parts.sink.given.empty());
    parts.durability.begin_sync();
    EXPECT_EQ(parts.durability.give_answers(), 1u);
    EXPECT_EQ(parts.sink.take(), (Given{{2, Status::kSuccess}}));
    EXPECT_EQ(parts.state.groups.current(), group);
}

TEST(Durability, AFailedSyncFailsWhatWaitsAndAllLaterChanges) {
    Parts parts(power_mode());
    ASSERT_EQ(parts.write(5, 1), Status::kSuccess);
    parts.durability.answer_when(Durability::Wait::kMode, 1);
    parts.flash.fail_sync = true;
    parts.durability.begin_sync();
    parts.durability.finish_sync();
    EXPECT_TRUE(parts.durability.broken());
    EXPECT_EQ(parts.durability.give_answers(), 1u);
    EXPECT_EQ(parts.sink.take(), (Given{{1, Status::kWriteFault}}));
    EXPECT_EQ(parts.write(6, 2), Status::kWriteFault);
    EXPECT_FALSE(parts.durability.sync_now());
}

TEST(CollectorPart, MovesWhatIsValidAndGivesTheUnitBackWhenItsGroupIsDurable) {
    Parts parts(default_options());
    std::uint64_t sequence = 0;
    // One unit of blocks, all but one of which are written again.
    for (nvme::BlockAddress b = 0; b < Parts::kPages; ++b)
        ASSERT_EQ(parts.write(b, ++sequence), Status::kSuccess);
    const std::uint32_t unit = parts.state.pool.unit_of(parts.page_of(0));
    for (nvme::BlockAddress b = 1; b < Parts::kPages; ++b)
        ASSERT_EQ(parts.write(b, ++sequence), Status::kSuccess);
    ASSERT_EQ(parts.write(100, ++sequence), Status::kSuccess);
    ASSERT_EQ(parts.state.pool.info(unit).valid, 1u);
    // Nothing to do while units are plenty, unless reads of the unit need correction.
    parts.collector.collect_idle(8);
    EXPECT_EQ(parts.state.counters.gc_pages_copied, 0u);
    for (int i = 0; i < 8; ++i) parts.collector.note_corrected(parts.page_of(0));
    parts.collector.collect_idle(1);
    EXPECT_EQ(parts.state.counters.gc_pages_copied, 1u);
    EXPECT_NE(parts.state.pool.unit_of(parts.page_of(0)), unit);
    EXPECT_EQ(parts.state.pool.valid_pages(), parts.state.map.size());
    EXPECT_EQ(parts.state.pool.info(unit).state, UnitState::kEmptied);
    const std::uint32_t free = parts.state.pool.free_units();
    ASSERT_TRUE(parts.durability.sync_now());
    EXPECT_GT(parts.state.pool.free_units(), free);
    EXPECT_EQ(audit(parts.state), std::vector<std::string>{});
    EXPECT_EQ(parts.flash.violations, 0u);
}

TEST(CollectorPart, ADamagedPageIsNotErasedBeforeItsCopyCounts) {
    Parts parts(default_options());
    std::uint64_t sequence = 0;
    for (nvme::BlockAddress b = 0; b < Parts::kPages; ++b)
        ASSERT_EQ(parts.write(b, ++sequence), Status::kSuccess);
    const PageNumber damaged = parts.page_of(0);
    const std::uint32_t unit = parts.state.pool.unit_of(damaged);
    for (nvme::BlockAddress b = 1; b <= Parts::kPages; ++b)
        ASSERT_EQ(parts.write(b, ++sequence), Status::kSuccess);
    parts.flash.flip_data(damaged, 77);
    for (int i = 0; i < 8; ++i) parts.collector.note_corrected(damaged);
    parts.collector.collect_idle(1);
    ASSERT_NE(parts.page_of(0), damaged);
    ASSERT_TRUE(parts.durability.sync_now());
    ASSERT_TRUE(parts.durability.sync_now());
    EXPECT_EQ(parts.state.pool.info(unit).state, UnitState::kEmptied);
    ASSERT_TRUE(parts.durability.sync_now());
    EXPECT_EQ(parts.state.pool.info(unit).state, UnitState::kFree);
}

TEST(ScrubberPart, ReadsAtItsRateAndTellsTheBadPages) {
    EngineOptions o = default_options();
    o.scrub_pages_per_second = 2;
    std::vector<PageNumber> told;
    o.on_scrub_error = [&](const ScrubError& bad) { told.push_back(bad.page); };
    Parts parts(o);
    for (nvme::BlockAddress b = 0; b < 4; ++b) ASSERT_EQ(parts.write(b, b + 1), Status::kSuccess);
    parts.flash.flip_data(parts.page_of(2), 5);
    constexpr std::uint64_t kSecond = 1'000'000'000;
    parts.scrubber.poll(kSecond);
    EXPECT_EQ(parts.state.counters.scrubbed, 0u);
    parts.scrubber.poll(2 * kSecond);
    EXPECT_EQ(parts.state.counters.scrubbed, 2u);
    EXPECT_TRUE(parts.scrubber.bad_places().empty());
    parts.scrubber.poll(3 * kSecond);
    ASSERT_EQ(parts.scrubber.bad_places().size(), 1u);
    EXPECT_EQ(parts.scrubber.bad_places()[0].key, make_key(Parts::kVolume, 2));
    EXPECT_EQ(told, std::vector<PageNumber>{parts.page_of(2)});
}

TEST(TombstonePrunerPart, DropsATombstoneOnlyForAFloorThatTheJournalHolds) {
    Parts parts(default_options());
    ASSERT_EQ(parts.write(5, 1), Status::kSuccess);
    ASSERT_EQ(parts.changes.trim(parts.command(ShardOp::kTrim, 5, 2)), Status::kSuccess);
    EXPECT_FALSE(parts.pruner.is_next(parts.command(ShardOp::kTrim, 5, 4)));
    parts.pruner.set_floor(Parts::kVolume, 1, 1);
    EXPECT_EQ(parts.state.tombstones.size(), 1u);
    parts.pruner.set_floor(Parts::kVolume, 1, 3);
    EXPECT_EQ(parts.state.tombstones.size(), 0u);
    EXPECT_EQ(parts.state.floors.find(Parts::kVolume)->logged, 3u);
    EXPECT_TRUE(parts.state.journal.waits(LogType::kFloor));
    EXPECT_TRUE(parts.pruner.is_next(parts.command(ShardOp::kTrim, 5, 4)));
    EXPECT_EQ(parts.write(5, 3), Status::kCommandSequenceError) << "what the floor covers is refused";
}

TEST(CheckpointSchedulePart, WritesACheckpointWhenOneIsAskedFor) {
    Parts parts(default_options());
    ASSERT_EQ(parts.write(5, 1), Status::kSuccess);
    parts.schedule.advance();
    EXPECT_FALSE(parts.state.checkpoint.active());
    parts.schedule.ask();
    for (int i = 0; i < 100 && parts.state.checkpoint.completed() == 0; ++i) {
        parts.schedule.advance();
        if (parts.state.checkpoint.wants_sync()) {
            ASSERT_TRUE(parts.durability.sync_now());
        }
    }
    EXPECT_EQ(parts.state.checkpoint.completed(), 1u);
    EXPECT_EQ(parts.state.counters.checkpoints, 1u);
    parts.schedule.advance();
    EXPECT_FALSE(parts.state.checkpoint.active()) << "asked for once, written once";
}

}  // namespace gnstor::deengine::test::shard_parts_test
