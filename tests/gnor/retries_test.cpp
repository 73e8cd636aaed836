// retries_test.cpp: what drives refuse for now is asked again: until the deadline, with pauses, under the
// newest map, with the same sequence.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <thread>

#include "gnor/rig.hpp"
#include "support/count.hpp"

namespace gnstor::test {
namespace {

using nvme::IoFields;

class Retries : public ::testing::Test {
  protected:
    void rule_everywhere(const ModelDrive::Rule& rule) {
        for (auto& d : rig.drives) d->set_rule(rule);
    }
    /// Each drive refuses the first `times` commands it gets, then serves.
    void refuse_first(std::uint32_t times, Status status) {
        for (auto& d : rig.drives) {
            d->forget();
            d->set_rule([times, status, n = 0u](const nvme::Command&, const IoFields&) mutable {
                return n++ < times ? Decision{Decision::kRefuse, status, 0} : Decision{};
            });
        }
    }
    std::vector<ModelDrive::Seen> seen() {
        std::vector<ModelDrive::Seen> all;
        for (auto& d : rig.drives)
            for (const auto& s : d->seen()) all.push_back(s);
        return all;
    }
    ModelDrive& replica(std::uint32_t block, std::uint32_t rank) {
        return *rig.drives[rig.replicas_of(block).slot[rank]];
    }

    Rig rig{};
    VolumeRef v = rig.volume();
    ChannelRef ch = rig.channel();
    std::vector<std::byte> data = std::vector<std::byte>(64 * 4096);
};

TEST_F(Retries, CommandsRefusedAsBusyOrNotGrantedAreRetriedWithTheSameSequence) {
    std::uint64_t retried = 0;
    for (const Status s : {Status::kBusy, Status::kNotGranted}) {
        for (const std::uint32_t times : {1u, 3u, 12u}) {
            refuse_first(times, s);
            const std::uint64_t before = *v.last_sequence;
            ASSERT_EQ(v.write(kMe, ch, 0, 1, data.data(), late()), Status::kSuccess);
            EXPECT_EQ(*v.last_sequence, before + 1);
            for (const auto& seen : seen()) EXPECT_EQ(seen.sequence, before + 1);
            EXPECT_EQ(seen().size(), 2u * (times + 1)) << "all replicas, each time";
            refuse_first(times, s);
            ASSERT_EQ(v.read(kMe, ch, 0, 1, data.data(), late()), Status::kSuccess);
            EXPECT_EQ(seen().size(), 2 * times + 1)
                << "the other replica must be tried first, then both again";
            refuse_first(times, s);
            ASSERT_EQ(v.write(kMe, ch, 0, 64, data.data(), late()), Status::kSuccess);
            ASSERT_EQ(v.read(kMe, ch, 0, 64, data.data(), late()), Status::kSuccess);
            refuse_first(times, s);
            ASSERT_EQ(v.trim(kMe, ch, 0, 1, late()), Status::kSuccess);
            refuse_first(times, s);
            ASSERT_EQ(v.write_zeroes(kMe, ch, 0, 1, late()), Status::kSuccess);
            refuse_first(times, s);
            ASSERT_EQ(v.flush(kMe, ch, late()), Status::kSuccess);
            EXPECT_EQ(seen().size(), 4 * (times + 1));
            retried += 7 * times;
        }
    }
    count("gnor_refusals_retried", retried);
    rig.expect_clean();
}

TEST_F(Retries, RefusalsUntilTheDeadlineEndWithTheirStatusAndPausesGrow) {
    for (const Status s : {Status::kBusy, Status::kNotGranted}) {
        rule_everywhere([s](const nvme::Command&, const IoFields&) {
            return Decision{Decision::kRefuse, s, 0};
        });
        // The bound is of pauses alone, 4 us to 8 ms: 12 of them last 16 ms, and 100 ms have room for 11
        // more.
        for (const bool write : {true, false}) {
            // Where a thread stands still until the deadline, fewer are asked, or none: then once more.
            Status got = Status::kNotSent;
            for (int tries = 0; tries < 5 && (tries == 0 || seen().size() < 2); ++tries) {
                for (auto& d : rig.drives) d->forget();
                const Deadline until = Deadline::in_ns(100'000'000);
                got = write ? v.write(kMe, ch, 0, 1, data.data(), until)
                            : v.read(kMe, ch, 0, 1, data.data(), until);
                rig.channels[0]->quiesce(late()).value();
            }
            // Its deadline may come between a command and its answer.
            EXPECT_TRUE(got == s || got == Status::kTimedOut) << nvme::status_name(got);
            EXPECT_LE(seen().size(), 2u * 26);
            EXPECT_GE(seen().size(), 2u);
        }
    }
    rule_everywhere({});
    EXPECT_EQ(v.write(kMe, ch, 0, 1, data.data(), late()), Status::kSuccess);
    rig.expect_clean();
}

TEST_F(Retries, ACommandRefusedForAStaleMapIsRetriedOnceThereIsANewerMap) {
    rule_everywhere([](const nvme::Command&, const IoFields& f) {
        return f.map_version % 2 == 0 ? Decision{} : Decision{Decision::kRefuse, Status::kStaleMap, 0};
    });
    std::uint64_t waited = 0;
    for (std::uint32_t round = 0; round < 8; ++round) {
        const std::uint32_t stale = 2 * round + 1;
        rig.set_map(stale);
        for (auto& d : rig.drives) d->forget();
        // As the client does it: the map comes when the refusal was noted.
        std::thread publisher([&] {
            const Deadline give_up = late();
            while (rig.channels[0]->refused_map() != stale && !give_up.passed()) std::this_thread::yield();
            rig.channels[0]->clear_refused_map();
            while (rig.channels[0]->refused_map() != stale && !give_up.passed()) std::this_thread::yield();
            rig.set_map(stale + 1);
        });
        const bool write = round % 2 == 0;
        EXPECT_EQ(write ? v.write(kMe, ch, 0, 64, data.data(), late())
                        : v.read(kMe, ch, 0, 64, data.data(), late()),
                  Status::kSuccess);
        publisher.join();
        std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> asked;  // by block and map
        for (const auto& s : seen()) ++asked[{s.block, s.map_version}];
        std::uint32_t newer = 0, older = 0;
        for (const auto& [key, times] : asked) ++(key.second == stale ? older : newer);
        ASSERT_EQ(newer, 4u) << "every chunk, under the newer map";
        // The newer map comes after a refusal; on a busy machine that may be before the last chunk is sent.
        ASSERT_TRUE(older >= 1 && older <= 4) << older;
        for (const auto& [key, times] : asked) {
            // A read goes from replica to replica, by the newest map there is: the newer one may come between
            // the two that refuse.
            const bool either = !write && key.second == stale;
            EXPECT_LE(times, write || either ? 2u : 1u) << "block " << key.first << ", map " << key.second;
            EXPECT_GE(times, write ? 2u : 1u) << "block " << key.first << ", map " << key.second;
        }
        waited += 4;
    }
    count("gnor_stale_maps_waited_for", waited);
    rig.expect_clean();
}

TEST_F(Retries, WithoutANewerMapTheStatusComesAtTheDeadlineWithoutRetries) {
    rule_everywhere([](const nvme::Command&, const IoFields&) {
        return Decision{Decision::kRefuse, Status::kStaleMap, 0};
    });
    // The answers come before the deadline where it leaves the machine time for them.
    const auto refused = [&](auto ask) {
        Status status = Status::kTimedOut;
        for (std::uint64_t ns = kShort; status == Status::kTimedOut && ns < kLong; ns *= 4) {
            for (auto& d : rig.drives) d->forget();
            status = ask(Deadline::in_ns(ns));
        }
        return status;
    };
    EXPECT_EQ(refused([&](Deadline d) { return v.write(kMe, ch, 3, 1, data.data(), d); }), Status::kStaleMap);
    EXPECT_EQ(seen().size(), 2u);
    EXPECT_EQ(refused([&](Deadline d) { return v.read(kMe, ch, 3, 1, data.data(), d); }), Status::kStaleMap);
    EXPECT_EQ(seen().size(), 2u);
    EXPECT_EQ(rig.channels[0]->refused_map(), 1u);
    rig.expect_clean();
}

TEST_F(Retries, AReadRefusedForItsMapByOneReplicaWaitsForTheOtherBusyReplica) {
    rig.drives[0]->forget();
    replica(0, 0).set_rule([](const nvme::Command&, const IoFields&) {
        return Decision{Decision::kRefuse, Status::kStaleMap, 0};
    });
    replica(0, 1).set_rule([n = 0u](const nvme::Command&, const IoFields&) mutable {
        return n++ < 3 ? Decision{Decision::kRefuse, Status::kBusy, 0} : Decision{};
    });
    replica(0, 1).set_block(0, pattern_block(0, 4));
    EXPECT_EQ(v.read(kMe, ch, 0, 1, data.data(), late()), Status::kSuccess);
    EXPECT_TRUE(std::equal(data.begin(), data.begin() + 4096, pattern_block(0, 4).begin()));
    rig.expect_clean();
}

TEST_F(Retries, AnotherAttemptHasACommandIdOfItsOwn) {
    refuse_first(2, Status::kBusy);
    ASSERT_EQ(v.write(kMe, ch, 0, 1, data.data(), late()), Status::kSuccess);
    std::vector<std::uint16_t> ids;
    for (const auto& s : replica(0, 0).seen()) ids.push_back(s.cid);
    ASSERT_GE(ids.size(), 2u);
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end())
        << "a late answer to an earlier attempt would be taken for one to this";
    rig.expect_clean();
}

TEST_F(Retries, AFinalRefusalByAnyReplicaIsNotRetried) {
    replica(0, 0).set_rule([](const nvme::Command&, const IoFields&) {
        return Decision{Decision::kRefuse, Status::kBusy, 0};
    });
    replica(0, 1).set_rule([](const nvme::Command&, const IoFields&) {
        return Decision{Decision::kRefuse, Status::kStaleEpoch, 0};
    });
    EXPECT_EQ(v.write(kMe, ch, 0, 1, data.data(), late()), Status::kStaleEpoch);
    EXPECT_EQ(seen().size(), 2u);
    rig.expect_clean();
}

TEST_F(Retries, AnAsynchronousRequestIsSentOnceAndItsTokenBringsTheRefusal) {
    rule_everywhere([](const nvme::Command&, const IoFields&) {
        return Decision{Decision::kRefuse, Status::kBusy, 0};
    });
    auto* buffer = ch.alloc(kMe, 4096);
    EXPECT_EQ(ch.wait(kMe, v.read_async(simt::Lane{}, ch, 0, 1, buffer, late()), late()), Status::kBusy);
    EXPECT_EQ(ch.wait(kMe, v.write_async(simt::Lane{}, ch, 0, 1, buffer, late()), late()), Status::kBusy);
    EXPECT_EQ(seen().size(), 3u);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
    rig.expect_clean();
}

}  // namespace
}  // namespace gnstor::test
