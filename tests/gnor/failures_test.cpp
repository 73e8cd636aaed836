// failures_test.cpp: what happens when drives refuse, are late, never answer, answer nonsense, or break the
// connection.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "gnor/rig.hpp"

namespace gnstor::test {
namespace {

using nvme::IoFields;
using nvme::IoOpcode;

bool is(const nvme::Command& c, IoOpcode opcode) {
    return c.opcode == static_cast<std::uint8_t>(opcode);
}

ModelDrive::Rule always(Decision d) {
    return [d](const nvme::Command&, const IoFields&) { return d; };
}

/// A block whose first replica is `slot`.
std::uint32_t block_first_on(const Rig& rig, std::uint32_t slot) {
    for (std::uint32_t block = 0;; block += 16)
        if (rig.replicas_of(block).slot[0] == slot) return block;
}

class Failures : public ::testing::Test {
  protected:
    Rig rig{};
    VolumeRef v = rig.volume();
    ChannelRef ch = rig.channel();
    std::vector<std::byte> data = std::vector<std::byte>(64 * 4096);
    void rule_everywhere(const ModelDrive::Rule& rule) {
        for (auto& d : rig.drives) d->set_rule(rule);
    }
    std::byte* pool(std::uint64_t bytes) { return static_cast<std::byte*>(ch.alloc(kMe, bytes)); }
};

TEST_F(Failures, WrongArgumentsAreRefusedBeforeACommandIsSent) {
    auto* buffer = pool(8192);
    ASSERT_NE(buffer, nullptr);
    EXPECT_EQ(v.read(kMe, ch, 0, 0, buffer, late()), Status::kBadArgument);
    EXPECT_EQ(v.read(kMe, ch, 1u << 20, 1, buffer, late()), Status::kLbaOutOfRange);
    EXPECT_EQ(v.read(kMe, ch, (1u << 20) - 1, 2, buffer, late()), Status::kLbaOutOfRange);
    EXPECT_EQ(v.write(kMe, ch, 0xFFFFFFFFu, 0xFFFFFFFFu, buffer, late()), Status::kLbaOutOfRange);
    EXPECT_EQ(v.read(kMe, ch, 0, 1, nullptr, late()), Status::kBadArgument);
    EXPECT_EQ(v.write(kMe, ch, 0, 1, nullptr, late()), Status::kBadArgument);
    EXPECT_EQ(v.read(kMe, ch, 0, 1, buffer + 2, late()), Status::kBadArgument);
    EXPECT_EQ(v.read_sectors(kMe, ch, 0, 8, 1, buffer, late()), Status::kBadArgument);
    EXPECT_EQ(v.read_sectors(kMe, ch, 0, 4, 5, buffer, late()), Status::kBadArgument);
    EXPECT_EQ(v.read_sectors(kMe, ch, 0, 0, 0, buffer, late()), Status::kBadArgument);
    EXPECT_EQ(v.trim(kMe, ch, 0, 0, late()), Status::kBadArgument);
    EXPECT_EQ(v.read_async(simt::Lane{}, ch, 0, 1, data.data(), late()).status, Status::kNotRegistered);
    const VolumeRef reader = rig.volume(VolumeMode::kRead);
    EXPECT_EQ(reader.write(kMe, ch, 0, 1, buffer, late()), Status::kNotWritable);
    EXPECT_EQ(reader.trim(kMe, ch, 0, 1, late()), Status::kNotWritable);
    EXPECT_EQ(reader.write_zeroes(kMe, ch, 0, 1, late()), Status::kNotWritable);
    EXPECT_EQ(reader.write_async(simt::Lane{}, ch, 0, 1, buffer, late()).status, Status::kNotWritable);
    EXPECT_EQ(ch.wait(kMe, Token{7, 9, Status::kSuccess}, late()), Status::kStaleToken);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kBadArgument);
    for (auto& d : rig.drives) EXPECT_EQ(d->served(), 0u);
    rig.expect_clean();
}

TEST_F(Failures, EveryStatusOfADriveIsReturnedByAWrite) {
    const Status all[] = {Status::kInvalidOpcode,    Status::kInvalidField,
                          Status::kInternalError,    Status::kLbaOutOfRange,
                          Status::kCapacityExceeded, Status::kNamespaceWriteProtected,
                          Status::kWriteFault,       Status::kUnrecoveredReadError,
                          Status::kAccessDenied,     Status::kStaleMap,
                          Status::kNotGranted,       Status::kStaleEpoch,
                          Status::kWrongSsd,         Status::kBusy};
    for (const Status s : all) {
        rule_everywhere(always({Decision::kRefuse, s, 0}));
        const auto expect = [&](auto call) {
            // One that is asked again until the deadline may have just been asked when that came.
            Status got = nvme::may_retry(s) ? sent_in(kShort, call) : call(late());
            for (int again = 0; again < 100 && nvme::may_retry(s) && got == Status::kTimedOut; ++again)
                got = sent_in(kShort, call);
            EXPECT_EQ(got, s);
        };
        expect([&](Deadline until) { return v.write(kMe, ch, 0, 40, data.data(), until); });
        expect([&](Deadline until) { return v.read(kMe, ch, 0, 40, data.data(), until); });
        expect([&](Deadline until) { return v.trim(kMe, ch, 0, 1, until); });
        expect([&](Deadline until) { return v.flush(kMe, ch, until); });
    }
    const auto first = rig.channels[0]->first_error().value();
    ASSERT_TRUE(first.has_value());
    EXPECT_EQ(static_cast<Status>(first->status), Status::kInvalidOpcode);
    rig.expect_clean();
}

TEST_F(Failures, TheWorstReplicaStatusDecidesAWriteWhicheverReplicaAnswersFirst) {
    const auto replicas = rig.replicas_of(0);
    for (std::uint32_t slow = 0; slow < 2; ++slow) {
        for (std::uint32_t r = 0; r < 2; ++r) {
            const Status s = r == 0 ? Status::kNotGranted : Status::kAccessDenied;
            rig.drives[replicas.slot[r]]->set_rule(always({Decision::kRefuse, s, r == slow ? 50u : 0u}));
        }
        EXPECT_EQ(v.write(kMe, ch, 0, 1, data.data(), late()), Status::kAccessDenied);
    }
    rig.expect_clean();
}

TEST_F(Failures, ReadsTryTheNextReplica) {
    for (const Status s :
         {Status::kNotGranted, Status::kBusy, Status::kStaleMap, Status::kUnrecoveredReadError}) {
        const auto replicas = rig.replicas_of(0);
        rig.drives[replicas.slot[1]]->set_block(0, pattern_block(0, 9));
        rig.drives[replicas.slot[0]]->set_rule(always({Decision::kRefuse, s, 0}));
        EXPECT_EQ(v.read(kMe, ch, 0, 1, data.data(), late()), Status::kSuccess);
        EXPECT_TRUE(std::equal(data.begin(), data.begin() + 4096, pattern_block(0, 9).begin()));
    }
    rig.expect_clean();
}

/// Answers as a drive in doubt about these blocks, which has a version of order `present` of them: it is for
/// those who ask for it, a block at a time.
ModelDrive::Rule in_doubt_of(std::set<std::uint32_t> blocks, std::atomic<std::uint32_t>& older,
                             std::uint64_t present = 0) {
    return [blocks, &older, present](const nvme::Command&, const IoFields& f) {
        const auto first = blocks.lower_bound(f.block);
        if (first == blocks.end() || *first >= f.block + f.blocks) return Decision{};
        if (!f.accept_older) {
            Decision d{Decision::kRefuse, Status::kDoubtful, 0};
            d.result = f.blocks == 1 ? present : 0;
            return d;
        }
        if (f.blocks != 1) return Decision{Decision::kRefuse, Status::kInvalidField, 0};
        ++older;
        return Decision{};
    };
}
ModelDrive::Rule in_doubt(std::atomic<std::uint32_t>& older, std::uint64_t present = 0) {
    return in_doubt_of({0}, older, present);
}
bool holds(const std::byte* at, const std::vector<std::byte>& block) {
    return std::equal(block.begin(), block.end(), at);
}

TEST_F(Failures, ABlockInDoubtIsReadFromTheReplicaThatIsNot) {
    const auto replicas = rig.replicas_of(0);
    std::atomic<std::uint32_t> older{0};
    for (std::uint32_t doubtful = 0; doubtful < 2; ++doubtful) {
        rule_everywhere({});
        rig.drives[replicas.slot[doubtful]]->set_block(0, pattern_block(0, 5));
        rig.drives[replicas.slot[1 - doubtful]]->set_block(0, pattern_block(0, 9));
        rig.drives[replicas.slot[doubtful]]->set_rule(in_doubt(older));
        EXPECT_EQ(v.read(kMe, ch, 0, 1, data.data(), late()), Status::kSuccess);
        EXPECT_TRUE(holds(data.data(), pattern_block(0, 9)));
    }
    EXPECT_EQ(older, 0u) << "no replica may be asked for the older version";
    rig.expect_clean();
}

TEST_F(Failures, ABlockDoubtfulOnEveryReplicaIsReadAsItsOlderVersionAndReportedSo) {
    const auto replicas = rig.replicas_of(0);
    std::atomic<std::uint32_t> older{0};
    for (auto& d : rig.drives) d->set_rule(in_doubt(older));
    for (std::uint32_t r = 0; r < 2; ++r) rig.drives[replicas.slot[r]]->set_block(0, pattern_block(0, 5));
    EXPECT_EQ(v.read(kMe, ch, 0, 1, data.data(), late()), Status::kOlderVersion);
    EXPECT_TRUE(holds(data.data(), pattern_block(0, 5)));
    EXPECT_EQ(older, 1u);
    EXPECT_EQ(v.read_sectors(kMe, ch, 0, 3, 2, data.data(), late()), Status::kOlderVersion);
    EXPECT_EQ(older, 2u);
    EXPECT_EQ(rig.channels[0]->counters().value().older_reads, 2u);
    EXPECT_EQ(v.read(kMe, ch, 1, 1, data.data(), late()), Status::kSuccess)
        << "the neighbouring block must be readable";
    rig.expect_clean();
}

/// Into the channel's pool, and through it.
TEST_F(Failures, ReplicasInDoubtAboutDifferentBlocksGiveEachWhatTheOtherLacks) {
    const auto replicas = rig.replicas_of(0);
    std::atomic<std::uint32_t> older{0};
    auto* const registered = pool(16 * 4096);
    for (std::uint32_t r = 0; r < 2; ++r) {
        ModelDrive& drive = *rig.drives[replicas.slot[r]];
        for (std::uint32_t b = 0; b < 16; ++b) drive.set_block(b, pattern_block(b, 9));
        drive.set_block(3 + 4 * r, pattern_block(3 + 4 * r, 5));
        drive.set_rule(in_doubt_of({3 + 4 * r}, older));
    }
    for (std::byte* const to : {registered, data.data()}) {
        EXPECT_EQ(v.read(kMe, ch, 0, 16, to, late()), Status::kSuccess);
        for (std::uint32_t b = 0; b < 16; ++b)
            EXPECT_TRUE(holds(to + std::size_t{b} * 4096, pattern_block(b, 9))) << b;
    }
    EXPECT_EQ(older, 0u);
    EXPECT_EQ(rig.channels[0]->counters().value().older_reads, 0u);
    EXPECT_EQ(ch.free(kMe, registered), Status::kSuccess);
    rig.expect_clean();
}

TEST_F(Failures, ReplicasThatCannotReadDifferentBlocksGiveEachWhatTheOtherLacks) {
    const auto replicas = rig.replicas_of(0);
    for (std::uint32_t r = 0; r < 2; ++r) {
        ModelDrive& drive = *rig.drives[replicas.slot[r]];
        for (std::uint32_t b = 0; b < 4; ++b) drive.set_block(b, pattern_block(b, 9));
        drive.set_rule([r](const nvme::Command&, const IoFields& f) {
            const bool bad = f.block <= 1 + r && f.block + f.blocks > 1 + r;
            return bad ? Decision{Decision::kRefuse, Status::kUnrecoveredReadError, 0} : Decision{};
        });
    }
    EXPECT_EQ(v.read(kMe, ch, 0, 4, data.data(), late()), Status::kSuccess);
    for (std::uint32_t b = 0; b < 4; ++b)
        EXPECT_TRUE(holds(data.data() + std::size_t{b} * 4096, pattern_block(b, 9))) << b;
    rig.expect_clean();
}

TEST_F(Failures, OfALargeReadTheBlocksInDoubtEverywhereAreOlderAndTheOthersAreNot) {
    const auto replicas = rig.replicas_of(0);
    std::atomic<std::uint32_t> older{0};
    for (std::uint32_t r = 0; r < 2; ++r) {
        ModelDrive& drive = *rig.drives[replicas.slot[r]];
        for (std::uint32_t b = 0; b < 16; ++b) drive.set_block(b, pattern_block(b, b == 15 ? 5 : 9));
        drive.set_block(4 + r, pattern_block(4 + r, 5));
        drive.set_rule(in_doubt_of({4 + r, 15}, older));
    }
    EXPECT_EQ(v.read(kMe, ch, 0, 16, data.data(), late()), Status::kOlderVersion);
    for (std::uint32_t b = 0; b < 16; ++b)
        EXPECT_TRUE(holds(data.data() + std::size_t{b} * 4096, pattern_block(b, b == 15 ? 5 : 9))) << b;
    EXPECT_EQ(older, 1u);
    EXPECT_EQ(rig.channels[0]->counters().value().older_reads, 1u);
    rig.expect_clean();
}

TEST_F(Failures, OfTheOlderVersionsTheNewestIsRead) {
    const auto replicas = rig.replicas_of(0);
    std::atomic<std::uint32_t> older{0};
    const std::uint64_t low = 7, high = std::uint64_t{1} << 40;  // both halves of the answer count
    for (std::uint32_t newest = 0; newest < 2; ++newest) {
        for (std::uint32_t r = 0; r < 2; ++r) {
            rig.drives[replicas.slot[r]]->set_block(0, pattern_block(0, r == newest ? 9 : 5));
            rig.drives[replicas.slot[r]]->set_rule(in_doubt(older, r == newest ? high : low));
        }
        EXPECT_EQ(v.read(kMe, ch, 0, 1, data.data(), late()), Status::kOlderVersion);
        EXPECT_TRUE(holds(data.data(), pattern_block(0, 9))) << "rank " << newest << " has it";
    }
    rig.expect_clean();
}

TEST_F(Failures, TheOlderVersionIsNotReturnedWhileAReplicaMayHaveANewerOne) {
    const auto replicas = rig.replicas_of(0);
    std::atomic<std::uint32_t> older{0};
    for (std::uint32_t doubtful = 0; doubtful < 2; ++doubtful) {
        rig.drives[replicas.slot[doubtful]]->set_rule(in_doubt(older));
        rig.drives[replicas.slot[1 - doubtful]]->set_rule(
            always({Decision::kRefuse, Status::kUnrecoveredReadError, 0}));
        EXPECT_EQ(v.read(kMe, ch, 0, 1, data.data(), late()), Status::kUnrecoveredReadError);
    }
    EXPECT_EQ(older, 0u);
    rig.expect_clean();
}

/// Its queue pair is in error when it is its turn, and mended when the other replica is asked once more.
TEST_F(Failures, AReplicaThatWasNotAskedHasNotAnsweredDoubtful) {
    const auto replicas = rig.replicas_of(0);
    std::atomic<std::uint32_t> older{0}, asked{0};
    std::uint32_t& broken = ch.state().queue(replicas.slot[1]).broken;
    rig.drives[replicas.slot[0]]->set_block(0, pattern_block(0, 5));
    rig.drives[replicas.slot[1]]->set_block(0, pattern_block(0, 9));
    const ModelDrive::Rule doubts = in_doubt(older);
    rig.drives[replicas.slot[0]]->set_rule([&](const nvme::Command& c, const IoFields& f) {
        if (++asked == 2) simt::store_relaxed<simt::Scope::kDevice>(&broken, 0u);
        return doubts(c, f);
    });
    simt::store_relaxed<simt::Scope::kDevice>(&broken, 1u);
    EXPECT_EQ(v.read(kMe, ch, 0, 1, data.data(), late()), Status::kSuccess);
    EXPECT_TRUE(holds(data.data(), pattern_block(0, 9)));
    EXPECT_EQ(older, 0u);
    // And while it is not mended, there is no answer.
    asked = 2;
    simt::store_relaxed<simt::Scope::kDevice>(&broken, 1u);
    EXPECT_EQ(v.read(kMe, ch, 0, 1, data.data(), late()), Status::kQueueError);
    EXPECT_EQ(older, 0u);
    simt::store_relaxed<simt::Scope::kDevice>(&broken, 0u);
    rig.expect_clean();
}

/// A doubt of before says nothing of the drives of a newer map.
TEST_F(Failures, DoubtfulAnswersUnderTwoMapsAreNotCombined) {
    const auto replicas = rig.replicas_of(0);
    std::atomic<std::uint32_t> older{0}, asked{0};
    rig.drives[replicas.slot[0]]->set_block(0, pattern_block(0, 9));
    rig.drives[replicas.slot[1]]->set_block(0, pattern_block(0, 5));
    const ModelDrive::Rule doubts = in_doubt(older);
    rig.drives[replicas.slot[0]]->set_rule([&](const nvme::Command& c, const IoFields& f) {
        return f.map_version == 1 ? doubts(c, f) : Decision{};
    });
    rig.drives[replicas.slot[1]]->set_rule([&](const nvme::Command& c, const IoFields& f) {
        if (++asked == 2) rig.set_map(2);  // one by one by now
        return doubts(c, f);
    });
    EXPECT_EQ(v.read(kMe, ch, 0, 1, data.data(), late()), Status::kSuccess);
    EXPECT_TRUE(holds(data.data(), pattern_block(0, 9)));
    EXPECT_EQ(older, 0u);
    rig.expect_clean();
}

TEST_F(Failures, ABusyDriveIsRetriedBeforeTheOlderVersionIsRead) {
    const auto replicas = rig.replicas_of(0);
    std::atomic<std::uint32_t> older{0}, asked{0};
    rig.drives[replicas.slot[0]]->set_rule(in_doubt(older));
    rig.drives[replicas.slot[1]]->set_block(0, pattern_block(0, 9));
    const ModelDrive::Rule doubts = in_doubt(older);
    rig.drives[replicas.slot[1]]->set_rule([&](const nvme::Command& c, const IoFields& f) {
        const std::uint32_t n = ++asked;
        if (n == 1) return doubts(c, f);
        return n < 5 ? Decision{Decision::kRefuse, Status::kBusy, 0} : Decision{};
    });
    EXPECT_EQ(v.read(kMe, ch, 0, 1, data.data(), late()), Status::kSuccess);
    EXPECT_TRUE(holds(data.data(), pattern_block(0, 9)));
    EXPECT_EQ(older, 0u);
    rig.expect_clean();
}

TEST_F(Failures, ReplicasSeeTheSameCommandIdAndSequenceAndSequencesRise) {
    for (std::uint32_t i = 0; i < 20; ++i)
        ASSERT_EQ(v.write(kMe, ch, i * 5, 1 + i, data.data(), late()), Status::kSuccess);
    std::vector<ModelDrive::Seen> all;
    for (auto& d : rig.drives)
        for (const auto& s : d->seen()) all.push_back(s);
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all.size() % 2, 0u);
    for (std::size_t i = 0; i < all.size(); i += 2) EXPECT_TRUE(all[i] == all[i + 1]);
    EXPECT_EQ(all.front().sequence, 1u);
    EXPECT_EQ(all.back().sequence, 20u);
    rig.expect_clean();
}

TEST_F(Failures, AStaleMapIsRetriedUnderTheNewOneWithTheSameSequence) {
    // Drives refuse version 1 until one of them has put version 2 in place.
    rule_everywhere([this](const nvme::Command&, const IoFields& f) {
        if (f.map_version == 2) return Decision{};
        if (rig.map.version == 1) rig.set_map(2);
        return Decision{Decision::kRefuse, Status::kStaleMap, 0};
    });
    EXPECT_EQ(v.write(kMe, ch, 3, 1, data.data(), late()), Status::kSuccess);
    for (auto& d : rig.drives)
        for (const auto& s : d->seen()) EXPECT_EQ(s.sequence, 1u);
    rig.expect_clean();
}

TEST_F(Failures, ADeadlineEndsTheWaitAndQuarantinesUntilTheAnswer) {
    rule_everywhere(always({Decision::kNever, {}, 0}));
    auto* buffer = pool(4096);
    const auto read = [&](Deadline until) { return v.read(kMe, ch, 0, 1, buffer, until); };
    const auto write = [&](Deadline until) { return v.write(kMe, ch, 0, 20, data.data(), until); };
    EXPECT_EQ(sent_in(kShort, read), Status::kTimedOut);
    EXPECT_EQ(sent_in(kShort, write), Status::kTimedOut);
    const auto counters = rig.channels[0]->counters().value();
    EXPECT_EQ(counters.quarantined, 3u);
    EXPECT_GE(counters.timeouts, 2u);
    EXPECT_EQ(rig.channels[0]->usage().value().slots_taken, 3u);
    EXPECT_FALSE(rig.channels[0]->quiesce(soon()).ok());
    rig.wait_kept(5);  // of the read, and two for each of two replicas
    rule_everywhere({});
    EXPECT_EQ(v.write(kMe, ch, 0, 20, data.data(), late()), Status::kSuccess);
    for (auto& d : rig.drives) d->answer_kept();
    ASSERT_TRUE(rig.channels[0]->quiesce(late()).ok());
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
}

TEST_F(Failures, AChannelWhoseSlotsAreAllInQuarantineIsUsableAgainAfterReclaim) {
    rule_everywhere(always({Decision::kNever, {}, 0}));
    auto* buffer = pool(64 * 4096);
    std::uint32_t not_sent = 0;
    for (std::uint32_t i = 0; i < 40; ++i) {
        const auto write = [&](Deadline until) { return v.write(kMe, ch, i * 64, 64, buffer, until); };
        const Status status = i == 0 ? sent_in(kShort, write) : write(soon());
        if (status == Status::kNotSent)
            ++not_sent;
        else
            EXPECT_EQ(status, Status::kTimedOut);
        EXPECT_TRUE(i != 0 || not_sent == 0);
    }
    EXPECT_GT(not_sent, 0u) << "once all credits are out";
    EXPECT_GE(rig.channels[0]->counters().value().quarantined, 32u);
    for (auto& d : rig.drives) d->set_rule({});
    for (std::uint32_t s = 0; s < 4; ++s) {
        rig.channels[0]->reclaim(s).value();
        rig.connect(0, s);
    }
    EXPECT_EQ(rig.channels[0]->usage().value().slots_taken, 0u);
    for (std::uint32_t i = 0; i < 200; ++i) {
        ASSERT_EQ(v.write(kMe, ch, i * 64, 64, data.data(), late()), Status::kSuccess);
        ASSERT_EQ(v.read(kMe, ch, i * 64, 64, data.data(), late()), Status::kSuccess);
    }
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
}

TEST_F(Failures, ABrokenQueuePairIsAnErrorUntilReclaimAndReadsGoToTheOtherReplica) {
    const std::uint32_t block = block_first_on(rig, 2);
    auto* buffer = pool(4096);
    rig.drives[2]->set_rule(always({Decision::kBreak, {}, 0}));
    EXPECT_EQ(v.read(kMe, ch, block, 1, buffer, late()), Status::kQueueError)
        << "the buffer may still be written";
    EXPECT_EQ(v.read(kMe, ch, block, 1, data.data(), late()), Status::kSuccess) << "the other replica";
    EXPECT_EQ(v.write(kMe, ch, block, 1, data.data(), late()), Status::kQueueError);
    const auto first = rig.channels[0]->first_error().value();
    ASSERT_TRUE(first.has_value());
    EXPECT_EQ(static_cast<Status>(first->status), Status::kQueueError);
    EXPECT_EQ(first->queue, 2u);
    rig.drives[2]->set_rule({});
    rig.channels[0]->reclaim(2).value();
    rig.connect(0, 2);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    EXPECT_EQ(v.write(kMe, ch, block, 1, data.data(), late()), Status::kSuccess);
    EXPECT_EQ(v.read(kMe, ch, block, 1, data.data(), late()), Status::kSuccess);
    rig.expect_clean();
}

TEST_F(Failures, AReadThroughThePoolSurvivesAQueuePairThatBreaksUnderIt) {
    const std::uint32_t block = block_first_on(rig, 1);
    rig.drives[1]->set_rule(always({Decision::kBreak, {}, 0}));
    EXPECT_EQ(v.read(kMe, ch, block, 1, data.data(), late()), Status::kSuccess);
    rig.drives[1]->set_rule({});
    rig.channels[0]->reclaim(1).value();
    rig.connect(0, 1);
    rig.expect_clean();
}

TEST_F(Failures, AnswersToNoCommandAreCountedAndDropped) {
    rule_everywhere([](const nvme::Command& c, const IoFields&) {
        return Decision{is(c, IoOpcode::kRead) ? Decision::kStaleFirst : Decision::kServe, {}, 0};
    });
    for (std::uint32_t i = 0; i < 10; ++i)
        ASSERT_EQ(v.read(kMe, ch, i, 1, data.data(), late()), Status::kSuccess);
    rig.channels[0]->quiesce(late()).value();
    EXPECT_EQ(rig.channels[0]->counters().value().stale, 10u);
    rig.expect_clean();
}

// A drive that answers what it was not asked: its own command is answered, the other drive's is not.
TEST_F(Failures, ACompletionFromAnotherDriveIsIgnored) {
    const std::uint32_t on_one = block_first_on(rig, 1), on_two = block_first_on(rig, 2);
    auto* const waiting = pool(4096);
    auto* const other = pool(4096);
    rig.drives[1]->set_rule(always({Decision::kNever, {}, 0}));
    const Token token = v.read_async(simt::Lane{}, ch, on_one, 1, waiting, late());
    ASSERT_TRUE(token.in_flight());
    const Deadline end = late();
    while (rig.drives[1]->kept() == 0 && !end.passed()) ch.poll(kMe);
    const std::uint16_t cid = rig.drives[1]->seen().at(0).cid;
    rig.drives[2]->set_rule([cid](const nvme::Command&, const IoFields&) {
        Decision d{Decision::kForeignFirst};
        d.cid = cid;
        return d;
    });
    EXPECT_EQ(v.read(kMe, ch, on_two, 1, other, late()), Status::kSuccess);
    EXPECT_EQ(rig.channels[0]->counters().value().stale, 1u);
    auto status = Status::kSuccess;
    EXPECT_FALSE(ch.poll(simt::Lane{}, token, status)) << "its drive has not answered";
    rig.drives[1]->set_block(on_one, pattern_block(on_one, 3));
    rig.drives[1]->set_rule({});
    rig.drives[1]->answer_kept();
    EXPECT_EQ(ch.wait(kMe, token, late()), Status::kSuccess);
    EXPECT_TRUE(std::equal(waiting, waiting + 4096, pattern_block(on_one, 3).begin()));
    EXPECT_EQ(ch.free(kMe, waiting), Status::kSuccess);
    EXPECT_EQ(ch.free(kMe, other), Status::kSuccess);
    rig.expect_clean();
}

TEST_F(Failures, AnExhaustedPoolIsReportedAndServesAgain) {
    std::vector<void*> held;
    while (void* p = pool(256 * 1024)) held.push_back(p);
    EXPECT_EQ(held.size(), 16u);
    EXPECT_EQ(v.read(kMe, ch, 0, 1, data.data(), soon()), Status::kNoBuffer);
    EXPECT_EQ(v.trim(kMe, ch, 0, 1, soon()), Status::kNoBuffer);
    EXPECT_EQ(v.read(kMe, ch, 0, 64, held[0], late()), Status::kSuccess)
        << "registered: no pool buffer needed";
    for (void* p : held) EXPECT_EQ(ch.free(kMe, p), Status::kSuccess);
    EXPECT_EQ(v.read(kMe, ch, 0, 1, data.data(), late()), Status::kSuccess);
    rig.expect_clean();
}

TEST_F(Failures, RegisteredMemoryIsUsedInPlaceAlsoWhenItGrewLater) {
    auto memory = simt::PinnedMemory::map(1 << 20, simt::LanesKind::kCpu).value();
    auto* at = reinterpret_cast<std::byte*>(memory.data());
    EXPECT_FALSE(ch.is_registered(at, 4096));
    for (std::uint32_t i = 0; i < 16; ++i) rig.channels[0]->register_buffer(at + i * 65536, 65536).value();
    EXPECT_FALSE(rig.channels[0]->register_buffer(data.data(), 4096).ok());
    EXPECT_TRUE(ch.is_registered(at + 15 * 65536, 65536));
    EXPECT_FALSE(ch.is_registered(at + 65536 - 1, 2)) << "one command names one region";
    const auto before = rig.channels[0]->counters().value().bounce_bytes;
    ASSERT_EQ(v.write(kMe, ch, 0, 16, at + 3 * 65536, late()), Status::kSuccess);
    ASSERT_EQ(v.read(kMe, ch, 0, 16, at + 9 * 65536, late()), Status::kSuccess);
    EXPECT_EQ(rig.channels[0]->counters().value().bounce_bytes, before);
    rig.channels[0]->unregister_buffer(at + 3 * 65536).value();
    EXPECT_FALSE(ch.is_registered(at + 3 * 65536, 4096));
    EXPECT_FALSE(rig.channels[0]->unregister_buffer(at + 3 * 65536).ok());
    rig.channels[0]->register_buffer(data.data(), data.size()).value();
    EXPECT_TRUE(ch.is_registered(data.data(), data.size()));
    rig.expect_clean();
}

TEST_F(Failures, AFullChannelRefusesTriesAndServesWaiters) {
    rule_everywhere(always({Decision::kNever, {}, 0}));
    auto* buffer = pool(4096);
    std::vector<Token> tokens;
    // A try may also fail for want of a send entry, which comes back by itself: only what lasts is the depth.
    const auto try_until = [&](std::size_t wanted, Deadline end) {
        while (tokens.size() < wanted && !end.passed()) {
            const Token t = v.try_read_async(simt::Lane{}, ch, 0, 1, buffer);
            if (t.in_flight()) {
                tokens.push_back(t);
            } else {
                ASSERT_EQ(t.status, Status::kTooManyPending);
                ch.poll(kMe);
            }
        }
    };
    try_until(32, late());
    try_until(33, soon());
    EXPECT_EQ(tokens.size(), 32u) << "the depth of one queue pair";
    EXPECT_EQ(v.read_async(simt::Lane{}, ch, 0, 1, buffer, soon()).status, Status::kNotSent);
    rule_everywhere({});
    for (auto& d : rig.drives) d->answer_kept();
    for (const Token& t : tokens) EXPECT_EQ(ch.wait(kMe, t, late()), Status::kSuccess);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
}

TEST_F(Failures, AnAsynchronousRequestThatCanNeverFitIsRefusedAtOnce) {
    auto memory = simt::PinnedMemory::map(129 * 65536, simt::LanesKind::kCpu).value();
    rig.channels[0]->register_buffer(memory.data(), memory.size()).value();
    // 4 drives x depth 32: 128 command slots, and a command a chunk of 64 KiB.
    EXPECT_EQ(v.read_async(simt::Lane{}, ch, 0, 129 * 16, memory.data(), late()).status,
              Status::kBadArgument);
    EXPECT_EQ(ch.wait(kMe, v.read_async(simt::Lane{}, ch, 0, 128 * 16, memory.data(), late()), late()),
              Status::kSuccess);
    EXPECT_EQ(v.read_async(simt::Lane{}, ch, 0, 0, memory.data(), late()).status, Status::kBadArgument);
    rig.expect_clean();
}

TEST_F(Failures, ADeadlineBeyondTheRangeOfTheClockHasNotPassed) {
    const Deadline forever = Deadline::in_ns(~0ull);
    EXPECT_FALSE(forever.passed());
    EXPECT_EQ(v.write(kMe, ch, 0, 1, data.data(), forever), Status::kSuccess);
    rig.expect_clean();
}

struct SendsAgain {
    VolumeRef volume;
    ChannelRef channel;
    void* buffer;
    std::uint64_t calls = 0;
    bool stop = false;
};
void send_again(void* argument, Status) {
    auto& again = *static_cast<SendsAgain*>(argument);
    ++again.calls;
    // A try that finds the channel full ends this chain of requests; the others go on.
    if (!again.stop)
        (void)again.volume.read_async(simt::Lane{}, again.channel, 0, 1, again.buffer, send_again, argument,
                                      Deadline{0});
}

TEST_F(Failures, QuiesceEndsAtItsDeadlineThoughCallbacksKeepTheChannelBusy) {
    SendsAgain again{v, ch, pool(4096)};
    for (std::uint32_t i = 0; i < 16; ++i)
        ASSERT_EQ(v.read_async(simt::Lane{}, ch, 0, 1, again.buffer, send_again, &again, late()),
                  Status::kSuccess);
    (void)rig.channels[0]->quiesce(soon()).ok();  // either way: it must come back
    again.stop = true;
    EXPECT_TRUE(rig.channels[0]->quiesce(late()).ok());
    EXPECT_GE(again.calls, 16u);
    EXPECT_EQ(ch.free(kMe, again.buffer), Status::kSuccess);
    rig.expect_clean();
}

TEST_F(Failures, FlushGoesToEverySlotOfTheMapAndOnlyThose) {
    rig.set_map(2, [](placement::ArrayMap& m) { m.slots[1].state = placement::SlotState::kDown; });
    EXPECT_EQ(v.flush(kMe, ch, late()), Status::kSuccess);
    for (std::uint32_t s = 0; s < 4; ++s) EXPECT_EQ(rig.drives[s]->served(), s == 1 ? 0u : 1u);
    rig.expect_clean();
}

TEST(HostCommand, ConnectTravelsInTheCapsuleAndItsAnswerComesBackWhole) {
    for (const bool scatter : {true, false}) {
        RigOptions o;
        o.scatter = scatter;
        Rig rig(o);
        nvme::Command connect{};
        connect.opcode = 0x7F;
        connect.flags = nvme::kFlagsSgl;
        const std::vector<std::byte> data(1024, std::byte{0x5A});
        for (std::uint32_t s = 0; s < 4; ++s) {
            const auto answer = rig.channels[0]->execute_from_host(s, connect, data, 60'000);
            ASSERT_TRUE(answer.ok()) << answer.error().message;
            EXPECT_EQ(answer->dw0, 0x1234u);
            EXPECT_EQ(answer->result(), nvme::Status::kSuccess);
        }
        rig.drives[0]->set_rule(always({Decision::kNever, {}, 0}));
        EXPECT_FALSE(rig.channels[0]->execute_from_host(0, connect, data, 20).ok());
        rig.wait_kept(1);
        rig.drives[0]->set_rule({});
        rig.drives[0]->answer_kept();
        rig.expect_clean();
    }
}

}  // namespace
}  // namespace gnstor::test
