// single_lane_test.cpp: the fast path of a lane that has its channel to itself: the same results as by run(),
// whatever the drives answer; nothing owed is forgotten; ids and rings come round.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "gnor/single_lane_rig.hpp"

namespace gnstor::test {
namespace {

using nvme::IoFields;
using nvme::IoOpcode;

TEST(SingleLane, ReadsAndWritesTakeTheFastPathAndRingsWrapAround) {
    SingleLaneRig t(single_lane(4));  // send rings of 4: a hundred laps and more
    for (std::uint32_t i = 0; i < 600; ++i) {
        ASSERT_EQ(t.write(i % 50, i), Status::kSuccess) << i;
        ASSERT_TRUE(t.reads(i % 50, i)) << i;
    }
    const auto n = t.counters();
    EXPECT_EQ(n.writes, 1200u);
    EXPECT_EQ(n.reads, 600u);
    EXPECT_EQ(n.completions, 1800u);
    EXPECT_EQ(n.doorbells, 1800u);
    EXPECT_EQ(n.stale + n.refusals + n.timeouts, 0u);
    EXPECT_TRUE(t.try_fast_path([&] { EXPECT_EQ(t.write(7, 601), Status::kSuccess); }));
    EXPECT_TRUE(t.try_fast_path([&] { EXPECT_TRUE(t.reads(7, 601)); }));
    t.end();
}

TEST(SingleLane, SectorsLargeRequestsAndUserMemoryTakeTheFastPathToo) {
    SingleLaneRig t;
    std::vector<std::byte> own(16 * 4096 + 64);
    std::byte* const mine = own.data() + (64 - reinterpret_cast<std::uintptr_t>(own.data()) % 64) % 64;
    ASSERT_TRUE(t.rig.channels[0]->register_buffer(mine, 16 * 4096).ok());
    for (std::uint32_t b = 0; b < 16; ++b)
        std::memcpy(mine + b * 4096, pattern_block(b, 9).data(), nvme::kBlockBytes);
    ASSERT_EQ(t.v.write(kMe, t.ch, 0, 16, mine, late()), Status::kSuccess);
    ASSERT_EQ(t.v.read(kMe, t.ch, 0, 16, t.buffer, late()), Status::kSuccess);
    EXPECT_EQ(std::memcmp(mine, t.buffer, 16 * 4096), 0);
    for (std::uint32_t s = 0; s < 8; ++s) {
        ASSERT_EQ(t.v.read_sectors(kMe, t.ch, 3, s, 1, t.buffer, late()), Status::kSuccess);
        EXPECT_EQ(std::memcmp(mine + 3 * 4096 + s * 512, t.buffer, 512), 0) << s;
    }
    const auto whole = [&] { EXPECT_EQ(t.v.read(kMe, t.ch, 0, 16, mine, late()), Status::kSuccess); };
    const auto sector = [&] {
        EXPECT_EQ(t.v.read_sectors(kMe, t.ch, 3, 1, 1, t.buffer, late()), Status::kSuccess);
    };
    EXPECT_TRUE(t.try_fast_path(whole)) << "a chunk, into the user's own memory";
    EXPECT_TRUE(t.try_fast_path(sector));
    t.end();
}

TEST(SingleLane, InvalidRequestsGetTheSameStatusAsOnTheGeneralPath) {
    SingleLaneRig t;
    const auto end = static_cast<std::uint32_t>(t.rig.options.capacity_blocks);
    EXPECT_EQ(t.v.read(kMe, t.ch, end, 1, t.buffer, late()), Status::kLbaOutOfRange);
    EXPECT_EQ(t.v.read(kMe, t.ch, end - 1, 2, t.buffer, late()), Status::kLbaOutOfRange);
    EXPECT_EQ(t.v.read(kMe, t.ch, 0, 0, t.buffer, late()), Status::kBadArgument);
    EXPECT_EQ(t.v.read(kMe, t.ch, 0, 1, nullptr, late()), Status::kBadArgument);
    EXPECT_EQ(t.v.read(kMe, t.ch, 0, 1, t.buffer + 2, late()), Status::kBadArgument);
    EXPECT_EQ(t.v.read_sectors(kMe, t.ch, 0, 7, 2, t.buffer, late()), Status::kBadArgument);
    EXPECT_EQ(t.v.read(kMe, t.ch, 0, 1, t.buffer, Deadline{0}), Status::kNotSent);
    EXPECT_EQ(t.rig.volume(VolumeMode::kRead).write(kMe, t.ch, 0, 1, t.buffer, late()), Status::kNotWritable);
    // Blocks on both sides of a chunk's end, and memory that is not registered, are run()'s.
    std::vector<std::byte> plain(2 * 4096);
    EXPECT_EQ(t.v.write(kMe, t.ch, 15, 2, t.buffer, late()), Status::kSuccess);
    EXPECT_EQ(t.v.read(kMe, t.ch, 15, 2, plain.data(), late()), Status::kSuccess);
    EXPECT_EQ(std::memcmp(plain.data(), t.buffer, plain.size()), 0);
    EXPECT_EQ(t.counters().fast_path, 0u);
    t.end();
}

// Each kind of answer, on the fast path and by run() on a channel of the grid: the same results.
TEST(SingleLane, EveryStatusIsHandledAsOnTheGeneralPath) {
    using Kind = Decision::Kind;
    struct Case {
        Kind kind;
        Status status;
        std::uint32_t polls;
        Status ends;  ///< of a read with one replica
    };
    for (const Case& one : {
             Case{Kind::kServe, {}, 0, Status::kSuccess},
             Case{Kind::kServe, {}, 300, Status::kSuccess},  // late: the looks do not suffice
             Case{Kind::kTwice, {}, 0, Status::kSuccess},
             Case{Kind::kStaleFirst, {}, 0, Status::kSuccess},
             Case{Kind::kRefuse, Status::kLbaOutOfRange, 0, Status::kLbaOutOfRange},
             Case{Kind::kRefuse, Status::kBusy, 0, Status::kSuccess},  // asked again
             Case{Kind::kNever, {}, 0, Status::kTimedOut},
         }) {
        for (const bool fast_path : {true, false}) {
            RigOptions o = single_lane(8, 1);
            o.sharing = fast_path ? Sharing::kLane : Sharing::kGrid;
            Rig rig(o);
            const VolumeRef v = rig.volume();
            const auto read = [&](auto ch, void* buffer, Deadline deadline) {
                return v.read(kMe, ch, 5, 1, buffer, deadline);
            };
            void* const buffer = rig.channel().as<Sharing::kLane>().usable() == Status::kSuccess
                                     ? rig.channel().as<Sharing::kLane>().alloc(kMe, 4096)
                                     : rig.channel().alloc(kMe, 4096);
            const auto go = [&](Deadline deadline) {
                return fast_path ? read(rig.channel().as<Sharing::kLane>(), buffer, deadline)
                                 : read(rig.channel(), buffer, deadline);
            };
            ASSERT_EQ(go(late()), Status::kSuccess);
            std::atomic<int> times = 1;
            for (auto& d : rig.drives)
                d->set_rule([&](const nvme::Command&, const IoFields&) {
                    return times-- > 0 ? Decision{one.kind, one.status, one.polls} : Decision{};
                });
            const bool never = one.kind == Kind::kNever;
            EXPECT_EQ(never ? sent_in(kShort, go) : go(late()), one.ends)
                << "kind " << one.kind << (fast_path ? ", by the fast path" : ", by run()");
            if (never) rig.wait_kept(1);
            for (auto& d : rig.drives) d->set_rule({});
            for (auto& d : rig.drives) d->answer_kept();
            rig.channels[0]->quiesce(late()).value();
            for (int i = 0; i < 20; ++i)
                ASSERT_EQ(go(late()), Status::kSuccess) << "the channel must continue to work";
            const auto n = rig.channels[0]->counters().value();
            if (fast_path)
                EXPECT_TRUE(
                    try_fast_path(*rig.channels[0], [&] { EXPECT_EQ(go(late()), Status::kSuccess); }));
            else
                EXPECT_EQ(n.fast_path, 0u);
            EXPECT_EQ(n.stale, one.kind == Kind::kTwice || one.kind == Kind::kStaleFirst ? 1u : 0u);
            rig.expect_clean(1);
        }
    }
}

// A second answer comes when the next command is under way, to the same drive by the same slot.
TEST(SingleLane, ADuplicateCompletionIsNotTakenForThatOfTheNextCommand) {
    SingleLaneRig t(single_lane(8, 1));
    for (std::uint32_t b = 0; b < 2; ++b) ASSERT_EQ(t.write(b, b + 1), Status::kSuccess);
    t.rule_everywhere([](const nvme::Command&, const IoFields& f) {
        return f.block == 0 ? Decision{Decision::kTwice, {}, 0} : Decision{Decision::kServe, {}, 30};
    });
    for (int round = 0; round < 50; ++round) {
        ASSERT_TRUE(t.reads(0, 1));
        ASSERT_TRUE(t.reads(1, 2)) << round;
    }
    t.rule_everywhere({});
    t.rig.channels[0]->quiesce(late()).value();
    EXPECT_EQ(t.counters().stale, 50u);
    t.end();
}

// One of two replicas answers, the other refuses or is silent: the write says so, and the first answer, taken
// on the fast path, is not waited for again.
TEST(SingleLane, WritesOfWhichOneReplicaFailsAreNotSuccesses) {
    for (const auto& [kind, status] : {std::pair{Decision::kRefuse, Status::kInternalError},
                                       std::pair{Decision::kNever, Status::kTimedOut}}) {
        for (std::uint32_t which = 0; which < 2; ++which) {
            SingleLaneRig t;
            ASSERT_EQ(t.write(3, 1), Status::kSuccess);
            const auto bad = t.rig.replicas_of(3).slot[which];
            t.rig.drives[bad]->set_rule([decision = kind](const nvme::Command&, const IoFields&) {
                return Decision{decision, Status::kInternalError, 0};
            });
            const bool never = kind == Decision::kNever;
            const auto write = [&](Deadline until) { return t.write(3, 2, until); };
            EXPECT_EQ(never ? sent_in(kShort, write) : write(late()), status);
            if (never) t.rig.wait_kept(1);
            t.rule_everywhere({});
            for (auto& d : t.rig.drives) d->answer_kept();
            t.rig.channels[0]->quiesce(late()).value();
            ASSERT_EQ(t.write(3, 3), Status::kSuccess);
            ASSERT_TRUE(t.reads(3, 3));
            EXPECT_EQ(t.rig.drives[bad]->block(3), pattern_block(3, 3));
            t.end();
        }
    }
}

// Reads of the fast path leave receives owed; requests that take all the credits of a queue need all its
// receives.
TEST(SingleLane, OutstandingAnswersAreCollectedBeforeAllCreditsAreTaken) {
    for (const std::uint32_t depth : {2u, 4u}) {
        SingleLaneRig t(single_lane(depth, 1));
        ASSERT_EQ(t.write(3, 1), Status::kSuccess);
        for (int round = 0; round < 30; ++round) {
            ASSERT_TRUE(t.reads(3, 1));
            ASSERT_TRUE(t.reads(3, 1));
            std::vector<Token> tokens;
            // All at once to one drive, which answers late: so all receives are in use together.
            t.rule_everywhere([](const nvme::Command&, const IoFields&) {
                return Decision{Decision::kServe, {}, 20};
            });
            for (std::uint32_t i = 0; i < depth; ++i)
                tokens.push_back(t.v.read_async(simt::Lane{}, t.ch, 3, 1, t.buffer + i * 4096, late()));
            for (const Token& token : tokens) ASSERT_EQ(t.ch.wait(kMe, token, late()), Status::kSuccess);
            t.rule_everywhere({});
        }
        EXPECT_EQ(t.rig.nic->counters().rnr + t.rig.target_nic->counters().rnr, 0u);
        t.end();
    }
}

/// Looks, when the records are stored and the bell is not rung yet, at what each queue owes the NIC.
struct OwedProbe {
    gnor::ChannelState* c;
    std::uint32_t* most;
    void operator()(gnor::SingleLaneStep step) const {
        if (step != gnor::SingleLaneStep::kRecorded) return;
        for (std::uint32_t q = 0; q < c->queues; ++q) {
            const std::uint32_t record = be32(c->queue(q).doorbell_record[rdma::mlx5::kReceiveRecord]);
            const auto posted = static_cast<std::uint32_t>(c->queue(q).receive.posted);
            *most = std::max(*most, (posted - record) & rdma::mlx5::kIndexMask);
        }
    }
};
// A write leaves a receive owed on each of its queues, a read of the same chunk takes one of them.
TEST(SingleLane, NoQueueEverHasTwoReceivesToRepost) {
    SingleLaneRig t;
    std::uint32_t most = 0;
    const OwedProbe probe{t.ch.raw(), &most};
    SplitMix64 random(t.rig.options.seed);
    for (std::uint32_t i = 0; i < 2000; ++i) {
        const auto block = static_cast<std::uint32_t>(random.below(1000));
        const bool write = random.below(3) == 0;
        const gnor::OneCommand request{.opcode = write ? IoOpcode::kWrite : IoOpcode::kRead,
                                       .first_sector = 0,
                                       .sectors = 0,
                                       .block = block,
                                       .blocks = 1,
                                       .address = reinterpret_cast<std::uint64_t>(t.buffer),
                                       .sequence = write ? t.v.take_sequences(kMe, 1) : 0};
        gnor::Operation op = t.v.operation();
        std::uint32_t index = gnor::kNone;
        auto& c = t.ch.state();
        const auto end =
            write ? gnor::try_single_lane<gnor::kSingleLaneReplicas>(c, op, request, late(), index, probe)
                  : gnor::try_single_lane<1>(c, op, request, late(), index, probe);
        ASSERT_LE(most, 1u) << "after " << i << " calls";
        if (end == gnor::SingleLaneOutcome::kDone) continue;
        gnor::Cursor cursor = t.v.cursor_for(request.opcode, nullptr, 0);
        gnor::LaneWork work;
        work.exhausted = true;
        if (end == gnor::SingleLaneOutcome::kUnderWay) work.adopt(index);
        ASSERT_EQ(gnor::run_to_completion(kMe, c, op, cursor, work, 0, late()), Status::kSuccess);
    }
    EXPECT_EQ(most, 1u);
    t.end();
}

// One write, one sequence, whichever way it goes.
TEST(SingleLane, AWriteTakesOneSequenceOnEveryPath) {
    SingleLaneRig t;
    std::uint32_t version = 1;
    std::atomic<int> refusals = 0;
    t.rule_everywhere([&](const nvme::Command&, const IoFields&) {
        return refusals-- > 0 ? Decision{Decision::kRefuse, Status::kBusy, 0} : Decision{};
    });
    const auto expect_next = [&](std::uint64_t sequence, std::size_t replicas, const VolumeRef& v, int busy) {
        for (auto& d : t.rig.drives) d->forget();
        refusals = busy;
        ASSERT_EQ(v.write(kMe, t.ch, 3, 1, t.buffer, late()), Status::kSuccess);
        std::size_t seen = 0;
        for (auto& d : t.rig.drives)
            for (const auto& one : d->seen()) {
                EXPECT_EQ(one.sequence, sequence);
                ++seen;
            }
        EXPECT_GE(seen, replicas);
    };
    VolumeRef three = t.v;
    three.geometry.replicas = 3;
    std::uint64_t sequence = 0;
    for (int round = 0; round < 5; ++round) {
        expect_next(++sequence, 2, t.v, 0);
        expect_next(++sequence, 3, three, 0);  // more than paths: run()'s from the beginning
        expect_next(++sequence, 2, t.v, 1);    // left in the middle
        t.rig.set_map(++version, [](placement::ArrayMap& map) { map.slots[0].weight = 2; });
        expect_next(++sequence, 2, t.v, 0);  // not plain
        t.rig.set_map(++version);
    }
    refusals = 0;
    t.end();
}

TEST(SingleLane, StableCallsCarryFuaAndOthersDoNot) {
    SingleLaneRig t;
    std::atomic<int> with = 0, without = 0;
    t.rule_everywhere([&](const nvme::Command&, const IoFields& f) {
        ++(f.fua ? with : without);
        return Decision{};
    });
    const VolumeRef stable = t.v.stable();
    for (int i = 0; i < 20; ++i) {
        ASSERT_EQ(stable.write(kMe, t.ch, 3, 1, t.buffer, late()), Status::kSuccess);
        ASSERT_EQ(stable.read(kMe, t.ch, 3, 1, t.buffer, late()), Status::kSuccess);
        ASSERT_EQ(t.v.read(kMe, t.ch, 3, 1, t.buffer, late()), Status::kSuccess);
    }
    EXPECT_EQ(with, 60);
    EXPECT_EQ(without, 20);
    EXPECT_TRUE(
        t.try_fast_path([&] { EXPECT_TRUE(nvme::ok(stable.read(kMe, t.ch, 3, 1, t.buffer, late()))); }));
    t.end();
}

TEST(SingleLane, ViewsSharedByLanesAreRefusedAndTakeNoResource) {
    RigOptions o = single_lane();
    o.sharing = Sharing::kGrid;
    Rig rig(o);
    const VolumeRef v = rig.volume();
    std::byte buffer[nvme::kBlockBytes];
    const auto refused = [&](const VolumeRef& volume, SingleLaneChannel ch) {
        return volume.write(kMe, ch, 0, 1, buffer, late()) == Status::kWrongSharing &&
               volume.read(kMe, ch, 0, 1, buffer, late()) == Status::kWrongSharing;
    };
    VolumeRef nobodys = v;
    nobodys.current_map = nullptr;
    EXPECT_TRUE(refused(v, rig.channel().as<Sharing::kLane>()));
    EXPECT_TRUE(refused(v, SingleLaneChannel{}));
    EXPECT_TRUE(refused(nobodys, rig.channel().as<Sharing::kLane>()));
    EXPECT_EQ(v.take_sequences(kMe, 1), 1u) << "refused calls must take no sequence";
    EXPECT_EQ(rig.channels[0]->counters().value().writes, 0u);
}

TEST(SingleLane, CompletionsOfOtherCommandsAreRecorded) {
    SingleLaneRig t(single_lane(8, 1));
    for (std::uint32_t b = 0; b < 8; ++b) ASSERT_EQ(t.write(b * 16, b), Status::kSuccess);
    auto* const more = t.pool(64 * 1024);
    for (int round = 0; round < 50; ++round) {
        std::vector<Token> tokens;
        for (std::uint32_t i = 0; i < 4; ++i)
            tokens.push_back(t.v.read_async(simt::Lane{}, t.ch, i * 16, 1, more + i * 4096, late()));
        for (std::uint32_t i = 4; i < 8; ++i) ASSERT_TRUE(t.reads(i * 16, i));
        for (std::uint32_t i = 0; i < 4; ++i) {
            ASSERT_EQ(t.ch.wait(kMe, tokens[i], late()), Status::kSuccess);
            ASSERT_EQ(std::memcmp(more + i * 4096, pattern_block(i * 16, i).data(), 4096), 0);
        }
    }
    EXPECT_EQ(t.ch.free(kMe, more), Status::kSuccess);
    t.end();
}

TEST(SingleLane, AFailedQueuePairEndsTheCallAndIsSkippedAfterwards) {
    SingleLaneRig t;
    ASSERT_EQ(t.write(3, 1), Status::kSuccess);
    const auto first = t.rig.replicas_of(3).slot[0];
    t.rig.drives[first]->set_rule([](const nvme::Command&, const IoFields&) {
        return Decision{Decision::kBreak, {}, 0};
    });
    // Into the user's own memory a second drive is not asked while the first may still write there.
    EXPECT_EQ(t.v.read(kMe, t.ch, 3, 1, t.buffer, late()), Status::kQueueError);
    t.rig.drives[first]->set_rule({});
    for (int i = 0; i < 5; ++i)
        EXPECT_EQ(t.v.read(kMe, t.ch, 3, 1, t.buffer, late()), Status::kSuccess) << "of the other replica";
    EXPECT_EQ(t.write(3, 2), Status::kQueueError) << "a write with an unreachable replica must fail";
    t.rig.channels[0]->reclaim(first).value();
    t.rig.connect(0, first);
    ASSERT_EQ(t.write(3, 4), Status::kSuccess);
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(t.reads(3, 4));
    t.end();
}

TEST(SingleLane, WeightedMapsAndReplicasThatAreNotInAreRespected) {
    SingleLaneRig t;
    ASSERT_EQ(t.write(3, 1), Status::kSuccess);
    const auto replicas = t.rig.replicas_of(3);
    t.rig.set_map(2, [&](placement::ArrayMap& map) {
        map.slots[replicas.slot[0]].state = placement::SlotState::kRebuilding;
    });
    for (auto& d : t.rig.drives) d->forget();
    ASSERT_TRUE(t.reads(3, 1));
    EXPECT_TRUE(t.rig.drives[replicas.slot[0]]->seen().empty())
        << "a replica that is being rebuilt must not be read";
    EXPECT_EQ(t.rig.drives[replicas.slot[1]]->seen().size(), 1u);
    EXPECT_TRUE(t.try_fast_path([&] { EXPECT_TRUE(t.reads(3, 1)); }));
    t.rig.set_map(3, [](placement::ArrayMap& map) { map.slots[0].weight = 2; });
    const auto plain = t.counters().fast_path;
    const Status status = t.write(3, 5);
    ASSERT_EQ(status, Status::kSuccess);
    ASSERT_TRUE(t.reads(3, 5));
    EXPECT_EQ(t.counters().fast_path, plain) << "ranked by weights: run()'s";
    t.end();
}

TEST(SingleLane, BuffersAreCheckedIfRequested) {
    RigOptions o = single_lane();
    o.check_buffers = true;
    SingleLaneRig t(o);
    auto* const mine = t.pool(4096);
    ASSERT_EQ(t.v.read(kMe, t.ch, 0, 1, mine, late()), Status::kSuccess);
    ASSERT_EQ(t.ch.free(kMe, mine), Status::kSuccess);
    EXPECT_EQ(t.v.read(kMe, t.ch, 0, 1, mine, late()), Status::kNotAllocated);
    EXPECT_EQ(t.counters().fast_path, 0u);
    t.end();
}

TEST(SingleLane, ResponsesInReceiveBuffersAreReadByTheGeneralPath) {
    RigOptions o = single_lane();
    o.scatter = false;
    SingleLaneRig t(o);
    for (std::uint32_t i = 0; i < 50; ++i) {
        ASSERT_EQ(t.write(i, i), Status::kSuccess);
        ASSERT_TRUE(t.reads(i, i));
    }
    EXPECT_EQ(t.counters().fast_path, 0u);
    t.end();
}

}  // namespace
}  // namespace gnstor::test
