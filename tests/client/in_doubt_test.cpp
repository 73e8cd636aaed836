// in_doubt_test.cpp: what holds the floor and what does not: a change that one replica may have made and
// another not holds it, in whatever way it was sent; all else is resolved when it ends.
#include "client/floor_tracker.hpp"

#include <gnstor/gnor/batch.hpp>

#include "gnor/rig.hpp"

namespace gnstor::test::in_doubt_test {

using nvme::IoFields;

const auto kMe = simt::self(simt::Lane{});
Deadline late() {
    return Deadline::in_ns(kLong);
}

template <Sharing kMode>
class FloorOf : public ::testing::Test {
  protected:
    static RigOptions options() {
        RigOptions o;
        o.sharing = kMode;
        return o;
    }
    FloorOf() { begin(); }
    /// Another opening.
    void begin() {
        words.assign(gnor::kResolvedWords + 1, 0);
        words[0] = gnor::kFirstResolvedWord;
        tracker = {};
        *v.last_sequence = 0;
        v.resolved = words.data();
    }
    std::uint64_t floor() {
        return tracker
            .advance(
                [&](std::uint64_t& taken) -> Result<void> {
                    taken = *v.last_sequence;
                    return {};
                },
                [&](std::uint64_t first, std::span<std::uint64_t> to) -> Result<void> {
                    std::copy_n(words.begin() + static_cast<long>(first), to.size(), to.begin());
                    return {};
                })
            .value();
    }
    ModelDrive& replica(std::uint32_t block, std::uint32_t rank) {
        return *rig.drives[rig.replicas_of(block).slot[rank]];
    }
    static ModelDrive::Rule always(Status status) {
        return [status](const nvme::Command&, const IoFields&) {
            return Decision{Decision::kRefuse, status, 0};
        };
    }
    /// A call, in an opening of its own, that ends with `wanted`: not with an attempt that its deadline found
    /// under way.
    template <class Call>
    void ends_with(Status wanted, const Call& call) {
        auto status = Status::kTimedOut;
        for (int i = 0; i < 50 && status == Status::kTimedOut; ++i) {
            begin();
            status = call(Deadline::in_ns(kShort));
            EXPECT_TRUE(rig.channels[0]->quiesce(late()).ok());
        }
        EXPECT_EQ(status, wanted);
    }
    void serve() {
        for (auto& drive : rig.drives) drive->set_rule({});
    }

    Rig rig{options()};
    VolumeRef v = rig.volume();
    BasicChannelRef<kMode> ch = rig.channel().template as<kMode>();
    std::byte* buffer = static_cast<std::byte*>(ch.alloc(kMe, 64 * 1024));
    std::vector<std::uint64_t> words;
    client::FloorTracker tracker;
};
using FloorOfCalls = FloorOf<Sharing::kGrid>;
using FloorOfSingleLanes = FloorOf<Sharing::kLane>;

constexpr Status kHalf[] = {Status::kBusy, Status::kNotGranted, Status::kCapacityExceeded,
                            Status::kWriteFault, Status::kInternalError};

TEST_F(FloorOfCalls, AChangeThatOneReplicaMadeAndTheOtherRefusedHoldsIt) {
    for (const Status s : kHalf)
        for (const std::uint32_t rank : {0u, 1u}) {
            replica(0, rank).set_rule(always(s));
            ends_with(s, [&](Deadline end) { return v.trim(kMe, ch, 0, 1, end); });
            serve();
            ASSERT_EQ(v.write(kMe, ch, 1, 1, buffer, late()), Status::kSuccess);
            EXPECT_EQ(floor(), 0u) << nvme::status_name(s) << " by replica " << rank;
            EXPECT_EQ(words[gnor::kResolvedWords], 1u) << "the refusal is final and must be counted";
        }
}

TEST_F(FloorOfCalls, AChangeThatAllRefusedBeforeTheyBeganDoesNot) {
    for (const Status s : {Status::kStaleEpoch, Status::kAccessDenied, Status::kWrongSsd,
                           Status::kNamespaceWriteProtected, Status::kBusy, Status::kCapacityExceeded}) {
        for (const std::uint32_t rank : {0u, 1u}) replica(0, rank).set_rule(always(s));
        ends_with(s, [&](Deadline end) { return v.write(kMe, ch, 0, 1, buffer, end); });
        serve();
        EXPECT_EQ(floor(), 1u) << nvme::status_name(s);
    }
}

TEST_F(FloorOfCalls, SeveralBlocksMayHaveBeenBegunWhereADriveIsFull) {
    for (const std::uint32_t rank : {0u, 1u}) replica(0, rank).set_rule(always(Status::kCapacityExceeded));
    EXPECT_EQ(v.write(kMe, ch, 0, 2, buffer, late()), Status::kCapacityExceeded);
    EXPECT_EQ(floor(), 0u);
}

TEST_F(FloorOfCalls, ASuccessfulRetryResolvesTheWriteDespiteEarlierFailures) {
    replica(0, 1).set_rule([n = 0](const nvme::Command&, const IoFields&) mutable {
        return n++ < 3 ? Decision{Decision::kRefuse, Status::kBusy, 0} : Decision{};
    });
    EXPECT_EQ(v.trim(kMe, ch, 0, 1, late()), Status::kSuccess);
    EXPECT_EQ(floor(), 1u);
}

TEST_F(FloorOfCalls, AnEarlierAttemptThatMayHaveWrittenKeepsTheWriteUnresolved) {
    replica(0, 1).set_rule(always(Status::kBusy));
    ends_with(Status::kBusy, [&](Deadline end) {
        replica(0, 0).set_rule([n = 0](const nvme::Command&, const IoFields&) mutable {
            return n++ == 0 ? Decision{} : Decision{Decision::kRefuse, Status::kBusy, 0};
        });
        return v.write(kMe, ch, 0, 1, buffer, end);
    });
    EXPECT_EQ(floor(), 0u);
}

TEST_F(FloorOfCalls, ManyRequestsOfOneCallAreHeldByOneOfThem) {
    std::vector<IoRequest> requests{{0, 1, buffer, 0, 0}, {100, 1, buffer, 0, 0}};
    EXPECT_EQ(v.write_many(kMe, ch, requests.data(), 2, nullptr, late()), Status::kSuccess);
    EXPECT_EQ(floor(), 2u);
    replica(100, 0).set_rule(always(Status::kWriteFault));
    EXPECT_EQ(v.write_many(kMe, ch, requests.data(), 2, nullptr, late()), Status::kWriteFault);
    EXPECT_EQ(floor(), 2u);
}

TEST_F(FloorOfSingleLanes, TheSameHoldsForTheFastPath) {
    for (std::uint32_t i = 0; i < 50; ++i)
        ASSERT_EQ(v.write(kMe, ch, i, 1, buffer, late()), Status::kSuccess);
    EXPECT_EQ(floor(), 50u);
    for (const std::uint32_t rank : {0u, 1u}) replica(0, rank).set_rule(always(Status::kAccessDenied));
    EXPECT_EQ(v.write(kMe, ch, 0, 1, buffer, late()), Status::kAccessDenied);
    EXPECT_EQ(floor(), 51u);
    replica(0, 1).set_rule({});
    EXPECT_EQ(v.write(kMe, ch, 0, 1, buffer, late()), Status::kAccessDenied);
    serve();
    ASSERT_EQ(v.write(kMe, ch, 1, 1, buffer, late()), Status::kSuccess);
    EXPECT_EQ(floor(), 51u);
}

/// Every way to send one write and not wait for it in the call.
class FloorOfLaterEnds : public FloorOfCalls {
  protected:
    struct Ended {
        Status* status;
        GN_HD void operator()(Status s) const { *status = s; }
    };
    static constexpr int kWays = 5;
    Status send(int way, std::uint32_t block, std::uint32_t blocks) {
        const simt::Lane lane{};
        auto status = Status::kTimedOut;
        switch (way) {
            case 0:
                return ch.wait(kMe, v.write_async(lane, ch, block, blocks, buffer, late()), late());
            case 1: {
                const Token token = v.try_write_async(lane, ch, block, blocks, buffer);
                while (!ch.poll(lane, token, status)) {
                }
                return status;
            }
            case 2: {
                const Status sent = v.write_async(lane, ch, block, blocks, buffer, Ended{&status}, late());
                while (nvme::ok(sent) && status == Status::kTimedOut) ch.poll(kMe);
                return nvme::ok(sent) ? status : sent;
            }
            default: {  // a batch sends one command by its fast path, and more by the other one
                Batch<32> batch{};
                batch.init(kMe, lane);
                const IoRequest request{block, blocks, buffer, 0, 0};
                const Status sent = batch.submit(kMe, lane, v, ch, nvme::IoOpcode::kWrite, &request);
                if (!nvme::ok(sent)) return sent;
                batch.commit(kMe, lane, ch);
                BatchResult result;
                while (!(result = batch.dispatch(kMe, lane, ch)).finished) batch.poll(kMe, ch);
                return result.status;
            }
        }
    }
};

TEST_F(FloorOfLaterEnds, TokensCallbacksAndBatchesAreResolvedWhenTheyEnd) {
    std::uint64_t sent = 0;
    for (int way = 0; way < kWays; ++way)
        for (const std::uint32_t blocks : {1u, 16u}) {
            ASSERT_EQ(send(way, 8, way == 4 ? 16 : blocks), Status::kSuccess);
            EXPECT_EQ(floor(), ++sent) << "way " << way << ", " << blocks << " blocks";
        }
    rig.expect_clean(16);
}

TEST_F(FloorOfLaterEnds, RequestsWhoseReplicasMayDifferStayInDoubt) {
    for (int way = 0; way < kWays; ++way) {
        begin();
        for (const std::uint32_t rank : {0u, 1u}) replica(0, rank).set_rule(always(Status::kStaleMap));
        EXPECT_EQ(send(way, 0, 1), Status::kStaleMap);
        EXPECT_EQ(floor(), 1u) << "no drive has executed the write; kind of call " << way;
        replica(0, 0).set_rule({});
        EXPECT_EQ(send(way, 0, 1), Status::kStaleMap);
        serve();
        EXPECT_EQ(send(way, 0, 1), Status::kSuccess);
        EXPECT_EQ(floor(), 1u) << "one drive has executed the write; kind of call " << way;
        EXPECT_EQ(words[gnor::kResolvedWords], 1u);
    }
}

TEST_F(FloorOfLaterEnds, UnsentRequestsAreResolvedAndDroppedOnesStayInDoubt) {
    const simt::Lane lane{};
    int local = 0;
    EXPECT_EQ(v.try_write_async(lane, ch, 0, 1, &local).status, Status::kNotRegistered);
    EXPECT_EQ(v.write_async(lane, ch, 0, 1, &local, late()).status, Status::kNotRegistered);
    Batch<32> batch{};
    batch.init(kMe, lane);
    const IoRequest wrong{0, 1, &local, 0, 0};
    EXPECT_EQ(batch.submit(kMe, lane, v, ch, nvme::IoOpcode::kWrite, &wrong), Status::kNotRegistered);
    EXPECT_EQ(floor(), *v.last_sequence);
    const std::uint64_t before = floor();
    EXPECT_EQ(ch.drop(v.write_async(lane, ch, 0, 1, buffer, late())), Status::kSuccess);
    EXPECT_EQ(words[gnor::kResolvedWords], 1u);
    EXPECT_EQ(floor(), before);
}

}  // namespace gnstor::test::in_doubt_test
