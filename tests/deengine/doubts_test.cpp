// doubts_test.cpp: a young page that was torn, or has rotted: never zeroes or older data in silence, and
// never an error where the older version is the answer. docs/array.md, rule 18.
#include "deengine/volume_rig.hpp"

namespace gnstor::deengine::test {
namespace {

EngineOptions power_options(Mutation mutation = Mutation::kNone) {
    EngineOptions o = default_options();
    o.volatile_cache = false;
    o.mutation = mutation;
    return o;
}

/// All that is written between two flushes is of one group.
EngineOptions cached_options() {
    EngineOptions o = power_options();
    o.volatile_cache = true;
    return o;
}

class DoubtRig : public VolumeRig {
  public:
    explicit DoubtRig(EngineOptions o = power_options()) : VolumeRig(o) {}
    Answer read_older(nvme::BlockAddress block) {
        Block got;
        return read(at(block, true), got);
    }
    /// One bit of the newest version of a block.
    void rot(nvme::BlockAddress block) { flash.flip_data(flash.find_last(kVolume, block), 1234); }
    [[nodiscard]] const EngineCounters& counters() const { return engine->counters(); }
};

TEST(Doubts, ACorruptRecentBlockIsDoubtfulAfterAPowerCutAndItsOlderVersionIsKept) {
    DoubtRig rig;
    rig.put(5, 1);
    rig.put(5, 2);
    rig.rot(5);
    rig.boot();
    EXPECT_EQ(rig.report.blocks_doubtful, 1u);
    EXPECT_EQ(rig.counters().doubtful, 1u);
    EXPECT_EQ(rig.status_of(5), Status::kDoubtful);
    EXPECT_TRUE(rig.holds(rig.at(5, true), 1));
    EXPECT_EQ(rig.counters().doubts_refused, 1u);
    EXPECT_EQ(rig.counters().older_read, 1u);
}

TEST(Doubts, ABlockWhoseFirstVersionIsCorruptDoesNotSilentlyReadAsZeroes) {
    DoubtRig rig;
    rig.put(5, 1);
    rig.rot(5);
    rig.boot();
    EXPECT_EQ(rig.status_of(5), Status::kDoubtful);
    EXPECT_TRUE(rig.holds(rig.at(5, true), 0))
        << "if every replica was asked and none has it, the write was never acknowledged";
    EXPECT_TRUE(rig.holds(rig.at(6), 0))
        << "the neighbouring block was never written and must read as zeroes";
}

TEST(Doubts, APartOfADoubtfulBlockAndARangeOverItAreDoubtfulToo) {
    DoubtRig rig;
    for (nvme::BlockAddress b = 0; b < 4; ++b) rig.put(b, b + 1);
    rig.rot(2);
    rig.boot();
    Block got;
    IoFields part = rig.at(2);
    part.first_sector = 7;
    part.sectors = 1;
    EXPECT_EQ(rig.read(part, got).status, Status::kDoubtful);
    part.accept_older = true;
    EXPECT_EQ(rig.read(part, got).status, Status::kSuccess);
    EXPECT_EQ(rig.read(rig.fields(kVolume, kClient, 0, 4), got).status, Status::kDoubtful);
    EXPECT_EQ(rig.read(rig.fields(kVolume, kClient, 0, 2), got).status, Status::kSuccess);
}

TEST(Doubts, AKillInTheSameBootTearsNothingButTheOperationUnderWay) {
    DoubtRig rig;
    rig.put(5, 1);
    rig.put(5, 2);
    rig.put(6, 3);
    rig.rot(5);
    rig.boot(true);
    EXPECT_EQ(rig.report.blocks_doubtful, 0u);
    EXPECT_EQ(rig.report.pages_unreadable, 1u) << "the mount must report one unreadable page";
    EXPECT_EQ(rig.status_of(5), Status::kUnrecoveredReadError)
        << "a corrupt block must be a read error, so that the other replica is read";
    EXPECT_TRUE(rig.holds(rig.at(6), 3));
}

TEST(Doubts, TheLastPageOfAUnitIsNoMoreInDoubtAfterAKillThanTheOthers) {
    DoubtRig rig;
    rig.put(5, 1);
    rig.rot(5);
    rig.boot(true);
    EXPECT_EQ(rig.report.blocks_doubtful, 0u);
    EXPECT_EQ(rig.report.pages_unreadable, 1u) << "the mount must report one unreadable page";
    EXPECT_EQ(rig.status_of(5), Status::kUnrecoveredReadError) << "its record was stored behind its contents";
    EXPECT_EQ(rig.read_older(5).status, Status::kUnrecoveredReadError)
        << "a read that accepts older versions must fail too";
}

TEST(Doubts, ADoubtfulAnswerStatesTheOrderOfTheOlderVersion) {
    DoubtRig rig(cached_options());
    rig.put(5, 7);
    rig.put(5, 9);
    rig.put(6, 10);
    rig.put(7, 11);
    ASSERT_EQ(rig.trim(rig.at(7), 12, {{0, 1, 7}}).status, Status::kSuccess);
    rig.put(7, 13);
    for (const nvme::BlockAddress b : {5, 6, 7}) rig.rot(b);
    rig.boot();
    Block got;
    const auto told = [&](nvme::BlockAddress block) {
        const Answer a = rig.read(rig.at(block), got);
        EXPECT_EQ(a.status, Status::kDoubtful);
        return a.result;
    };
    EXPECT_EQ(told(5), nvme::present_order(1, 7));
    EXPECT_EQ(told(6), 0u) << "never written before";
    EXPECT_EQ(told(7), nvme::present_order(1, 12)) << "a trim";
    EXPECT_EQ(rig.read(rig.fields(kVolume, kClient, 5, 2), got).result, 0u)
        << "an answer for several blocks has no order";
}

TEST(Doubts, OrdersOfPresentVersionsCompareAsEpochsAndSequencesDo) {
    const std::pair<nvme::Epoch, std::uint64_t> rising[] = {
        {0, 0},         {0, 1},       {1, 0},          {1, 1},          {1, 1ull << 40},
        {2, 5},         {3, 1},       {3, 2},          {0xFFFF, 1},     {0xFFFF, 1ull << 42},
        {0x10000, 0},   {0x10001, 9}, {0x80000000, 0}, {0x80000000, 1}, {0xFFFFFFFE, 1ull << 26},
        {0xFFFFFFFF, 0}};
    for (std::size_t i = 1; i < std::size(rising); ++i)
        EXPECT_LT(nvme::present_order(rising[i - 1].first, rising[i - 1].second),
                  nvme::present_order(rising[i].first, rising[i].second))
            << i;
    EXPECT_EQ(nvme::present_order(0, 0), 0u);
    EXPECT_LT(nvme::present_order(7, ~0ull), nvme::present_order(8, 0))
        << "a sequence that is too large must not change the order of epochs";
}

TEST(Doubts, OlderVersionsAreReadOneBlockAtATime) {
    DoubtRig rig;
    rig.put(5, 1);
    rig.put(6, 2);
    rig.rot(5);
    rig.boot();
    Block got;
    IoFields two = rig.fields(kVolume, kClient, 5, 2);
    two.accept_older = true;
    EXPECT_EQ(rig.read(two, got).status, Status::kInvalidField);
    EXPECT_EQ(rig.counters().older_read, 0u);
}

/// More blocks in doubt than there is room to remember: 144 of three volumes, where it is 126.
class ManyDoubts {
  public:
    ManyDoubts() : rig(cached_options()) {
        for (nvme::VolumeId v : {2, 3}) EXPECT_EQ(rig.add(make_record(v, kClient)), Status::kSuccess);
        put(1);
        EXPECT_EQ(rig.io(nvme::encode_io(IoOpcode::kFlush, rig.fields(1, kClient, 0)), kClient, {}).status,
                  Status::kSuccess);
        put(2);
        for (nvme::VolumeId v : {1, 2, 3})
            for (nvme::BlockAddress b = 0; b < 48; ++b) rig.flash.flip_data(rig.flash.find_last(v, b), 99);
    }
    DoubtRig rig;

  private:
    void put(std::uint64_t sequence) {
        for (nvme::VolumeId v : {1, 2, 3})
            for (nvme::BlockAddress b = 0; b < 48; ++b)
                EXPECT_EQ(rig.write(rig.fields(v, kClient, b), sequence, pattern(sequence)).status,
                          Status::kSuccess);
    }
};

TEST(Doubts, TooManyDoubtfulBlocksRefuseTheMountAndNothingIsLost) {
    ManyDoubts many;
    DoubtRig& rig = many.rig;
    const RamFlash before = rig.flash.image();
    for (int i = 0; i < 2; ++i) {
        RecoveryReport report;
        Answers answers;
        const auto mounted = Engine::mount(rig.flash, rig.metadata, rig.options, answers, &report);
        ASSERT_FALSE(mounted.ok());
        EXPECT_NE(mounted.error().message.find("144 blocks are in doubt"), std::string::npos)
            << mounted.error().message;
        EXPECT_NE(mounted.error().message.find("--accept-loss"), std::string::npos)
            << "the error must name --accept-loss";
    }
    EXPECT_EQ(rig.flash.programs, before.programs) << "nothing was changed";
    EXPECT_EQ(rig.flash.erases, before.erases);
}

TEST(Doubts, TooManyDoubtfulBlocksAreReadErrorsIfTheLossIsAccepted) {
    ManyDoubts many;
    DoubtRig& rig = many.rig;
    rig.options.accept_loss = true;
    rig.boot();
    rig.options.accept_loss = false;
    for (int boots = 0; boots < 2; ++boots) {
        EXPECT_EQ(rig.counters().doubtful, 126u);
        std::uint32_t errors = 0, doubts = 0;
        for (nvme::VolumeId v : {1, 2, 3})
            for (nvme::BlockAddress b = 0; b < 48; ++b) {
                Block got;
                IoFields f = rig.fields(v, kClient, b);
                const Status status = rig.read(f, got).status;
                doubts += status == Status::kDoubtful ? 1 : 0;
                errors += status == Status::kUnrecoveredReadError ? 1 : 0;
                f.accept_older = true;
                if (status == Status::kDoubtful) {
                    EXPECT_TRUE(rig.holds(f, 1));
                }
            }
        EXPECT_EQ(doubts, 126u);
        EXPECT_EQ(errors, 18u) << "blocks must be read errors, never silently older data";
        EXPECT_TRUE(rig.engine->audit().empty());
        rig.boot();
    }
}

TEST(Doubts, AnIdleDriveLeavesNoPageThatCouldLookTorn) {
    DoubtRig rig;
    rig.put(5, 1);
    rig.put(5, 2);
    const std::uint64_t before = rig.flash.programs;
    rig.idle();
    EXPECT_EQ(rig.flash.programs, before + 1) << "one page shows that the groups before it are durable";
    rig.idle();
    EXPECT_EQ(rig.flash.programs, before + 1) << "no further page may be programmed";
    rig.rot(5);
    rig.boot();
    EXPECT_EQ(rig.report.blocks_doubtful, 0u);
    EXPECT_EQ(rig.status_of(5), Status::kUnrecoveredReadError);
}

TEST(Doubts, AnIdleDriveOfAVolatileCacheClosesItsGroupsToo) {
    EngineOptions o = power_options();
    o.volatile_cache = true;
    DoubtRig rig(o);
    rig.put(5, 1);
    rig.idle();
    rig.rot(5);
    rig.boot();
    EXPECT_EQ(rig.status_of(5), Status::kUnrecoveredReadError);
}

TEST(Doubts, ADoubtfulBlockStaysDoubtfulAcrossMountsAndCheckpoints) {
    DoubtRig rig;
    rig.put(5, 1);
    rig.put(5, 2);
    rig.rot(5);
    rig.boot();
    ASSERT_TRUE(rig.engine->close().ok());
    for (int i = 0; i < 3; ++i) {
        rig.boot();
        EXPECT_EQ(rig.status_of(5), Status::kDoubtful) << i;
        EXPECT_TRUE(rig.holds(rig.at(5, true), 1)) << i;
        for (std::uint64_t s = 0; s < 200; ++s) rig.put(20 + s % 30, 100 + 200 * i + s);  // and collection
        if (i == 1) {
            ASSERT_TRUE(rig.engine->close().ok());
        }
    }
    EXPECT_TRUE(rig.engine->audit().empty());
}

TEST(Doubts, ANewerWriteResolvesADoubtfulBlockAndAnOlderOneDoesNot) {
    DoubtRig rig;
    rig.put(5, 10);
    rig.put(5, 20);
    rig.rot(5);
    rig.boot();
    rig.put(5, 15);
    EXPECT_EQ(rig.status_of(5), Status::kDoubtful) << "20 may have been acknowledged";
    EXPECT_TRUE(rig.holds(rig.at(5, true), 15));
    rig.put(5, 21);
    EXPECT_TRUE(rig.holds(rig.at(5), 21));
    EXPECT_EQ(rig.counters().doubtful, 0u);
    rig.boot();
    EXPECT_TRUE(rig.holds(rig.at(5), 21));
    EXPECT_EQ(rig.report.blocks_doubtful, 0u);
}

TEST(Doubts, RepeatingTheDoubtfulWriteRepairsItsBlock) {
    DoubtRig rig;
    rig.put(5, 10);
    rig.put(5, 20);
    rig.rot(5);
    rig.boot();
    rig.put(5, 20);
    EXPECT_TRUE(rig.holds(rig.at(5), 20));
    EXPECT_TRUE(rig.engine->audit().empty());
}

TEST(Doubts, ANewerTrimResolvesADoubtfulBlock) {
    DoubtRig rig;
    rig.put(5, 10);
    rig.put(5, 20);
    rig.rot(5);
    rig.boot();
    ASSERT_EQ(rig.trim(rig.at(5), 21, {{0, 1, 5}}).status, Status::kSuccess);
    EXPECT_TRUE(rig.holds(rig.at(5), 0));
    rig.boot();
    EXPECT_TRUE(rig.holds(rig.at(5), 0)) << "the block must stay resolved";
    EXPECT_TRUE(rig.engine->audit().empty());
}

TEST(Doubts, DeletingAVolumeRemovesItsDoubtfulBlocks) {
    DoubtRig rig;
    rig.put(5, 1);
    rig.rot(5);
    rig.boot();
    ASSERT_EQ(rig.remove(kVolume), Status::kSuccess);
    ASSERT_EQ(rig.add(make_record(kVolume, kClient, 2)), Status::kSuccess);
    rig.epoch = 2;
    EXPECT_TRUE(rig.holds(rig.at(5), 0));
    rig.boot();
    EXPECT_TRUE(rig.holds(rig.at(5), 0));
}

TEST(Doubts, ABlockWithAnotherIntactCopyIsNotDoubtful) {
    // A program fails and leaves a good record over bad contents; its repetition in another unit is whole.
    DoubtRig rig;
    rig.put(5, 1);
    rig.flash.program_faults[rig.flash.programs + 1] = RamFlash::Fault::kBadData;
    rig.put(5, 2);
    rig.boot();
    EXPECT_EQ(rig.report.blocks_doubtful, 0u);
    EXPECT_TRUE(rig.holds(rig.at(5), 2));
}

TEST(Doubts, TheTestDetectsADoubtfulBlockThatIsForgotten) {
    DoubtRig rig(power_options(Mutation::kForgetDoubt));
    rig.put(5, 1);
    rig.put(5, 2);
    rig.rot(5);
    rig.boot();
    EXPECT_TRUE(rig.holds(rig.at(5), 1)) << "this is what the broken rule did";
}

}  // namespace
}  // namespace gnstor::deengine::test
