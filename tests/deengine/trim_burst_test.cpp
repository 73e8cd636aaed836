// Trims and floors faster than checkpoints are written: the log may not take the room that the checkpoint
// needs by which the log is given back. A drive that let it would refuse everything for ever, and its next
// mount too.
#include "deengine/full_drive.hpp"

namespace gnstor::deengine::test {
namespace {

/// Trims of `ranges` single blocks each, `commands` of them between two polls; some are told to come again.
void burst(FullDrive& drive, std::uint32_t commands, std::uint32_t ranges) {
    for (std::uint32_t i = 0; i < commands; ++i) {
        IoFields f = drive.at(0);
        f.sequence = ++drive.sequence;
        std::vector<nvme::DsmRange> parts;
        for (std::uint32_t r = 0; r < ranges; ++r) parts.push_back({0, 1, 2 * (r % 8)});
        drive.rig.engine->submit(nvme::encode_trim(f, ranges), Requester{f.client, false},
                                 std::as_writable_bytes(std::span(parts)), ++drive.rig.tag, drive.rig.now_ns);
    }
    drive.rig.engine->poll(++drive.rig.now_ns);
}

struct Shape {
    std::uint32_t units, pages, commands, ranges;
};

class TrimBurstTest : public ::testing::TestWithParam<Shape> {};

TEST_P(TrimBurstTest, LeavesAFullDriveThatContinuesToServeAndCanBeMounted) {
    const Shape shape = GetParam();
    FullDrive drive(shape.units, shape.pages, default_options(), 1);
    for (std::uint32_t round = 0; round < 4 && !::testing::Test::HasFatalFailure(); ++round) {
        for (std::uint32_t i = 0; i < 40; ++i) {
            burst(drive, shape.commands, shape.ranges);
            // Every second one is killed in the middle of what follows the burst.
            if (i % 10 == 9 && round % 2 == 0) {
                drive.rig.mount();
                ASSERT_EQ(drive.rig.set_map(make_map(1)), Status::kSuccess);
            }
        }
        for (std::uint32_t b = 0; b < 16; ++b) drive.write_when_not_busy(b);
        drive.overwrite(200);
        drive.check();
    }
    drive.rig.mount();
    ASSERT_EQ(drive.rig.set_map(make_map(1)), Status::kSuccess);
    drive.check();
    EXPECT_EQ(drive.rig.flash.violations, 0u);
}

INSTANTIATE_TEST_SUITE_P(Shapes, TrimBurstTest,
                         ::testing::Values(Shape{64, 16, 256, 256}, Shape{64, 64, 256, 256},
                                           Shape{96, 16, 32, 64}, Shape{128, 32, 256, 1}));

TEST(TrimBurstTest, ADriveThatBadUnitsMadeTooSmallIsTrimmedAndWrittenAgain) {
    FullDrive drive(64, 64, default_options(), 12);
    const std::uint64_t now = drive.rig.flash.programs;
    for (std::uint64_t i = 1; i <= 4; ++i)
        drive.rig.flash.program_faults[now + 200 * i] = RamFlash::Fault::kBadData;
    for (std::uint32_t i = 0; i < 2000; ++i) {  // it may refuse, for want of room
        const auto block = static_cast<std::uint32_t>(drive.random.below(drive.blocks));
        const std::uint64_t sequence = ++drive.sequence;
        if (ok(drive.rig.write(drive.at(block), sequence, pattern(sequence)).status))
            drive.held[block] = sequence;
        if (i % 4 == 0) drive.rig.engine->poll(++drive.rig.now_ns);
    }
    for (std::uint32_t b = 0; b < drive.blocks / 3; ++b) {
        const std::uint64_t sequence = ++drive.sequence;
        Status status = Status::kBusy;
        for (int attempt = 0; attempt < 500 && status == Status::kBusy; ++attempt) {
            drive.raise_floor(sequence - 1);
            status = drive.rig.trim(drive.at(b), sequence, {{0, 1, b}}).status;
            drive.rig.engine->poll(++drive.rig.now_ns);
        }
        ASSERT_EQ(status, Status::kSuccess) << "block " << b;
        drive.held[b] = 0;
    }
    for (int i = 0; i < 500; ++i) drive.rig.engine->poll(drive.rig.now_ns += 1'000'000);
    for (std::uint32_t b = drive.blocks / 2; b < drive.blocks; ++b) drive.write(b);
    drive.check();
    drive.rig.mount();
    ASSERT_EQ(drive.rig.set_map(make_map(1)), Status::kSuccess);
    drive.check();
}

TEST(TrimBurstTest, LogEntriesOfFloorsTakeNoPageThatACheckpointNeeds) {
    FullDrive drive(64, 16, default_options(), 2);
    for (std::uint32_t poll = 0; poll < 100; ++poll) {
        for (std::uint32_t i = 0; i < 1000; ++i) drive.raise_floor(++drive.sequence);
        drive.rig.engine->poll(++drive.rig.now_ns);
    }
    drive.overwrite(200);
    drive.rig.mount();
    ASSERT_EQ(drive.rig.set_map(make_map(1)), Status::kSuccess);
    drive.check();
}

TEST(TrimBurstTest, ATrimThatIsRepeatedIsNotLoggedAgain) {
    Rig rig;
    ASSERT_EQ(rig.add(make_record(3, 7, 1, 1000)), Status::kSuccess);
    ASSERT_EQ(rig.set_map(make_map(1)), Status::kSuccess);
    const IoFields at = rig.fields(3, 7, 0);
    ASSERT_EQ(rig.trim(at, 5, {{0, 8, 4}}).status, Status::kSuccess);
    const EngineCounters before = rig.engine->counters();
    for (int i = 0; i < 300; ++i) ASSERT_EQ(rig.trim(at, 5, {{0, 4, 6}}).status, Status::kSuccess);
    EXPECT_EQ(rig.engine->counters().system_pages, before.system_pages);
    EXPECT_GT(rig.engine->counters().superseded, before.superseded);
}

}  // namespace
}  // namespace gnstor::deengine::test
