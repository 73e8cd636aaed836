// A drive with a timing: the same data, counts and refusals as one without; answers leave in the order of
// their times. How long anything takes is asserted nowhere.
#include "drive_rig.hpp"

#include <gnstor/base/hash.hpp>

#include <algorithm>
#include <cstdlib>
#include <map>

namespace gnstor::ssd::testing {
namespace {

std::uint64_t seed_or(std::uint64_t fallback) {
    const char* text = std::getenv("GN_SEED");
    return text != nullptr ? std::strtoull(text, nullptr, 0) : fallback;
}

DriveTiming timing_of(std::uint64_t read_ns, std::uint64_t write_ns) {
    DriveTiming t;
    t.read = {{4096, 1e6, read_ns}};
    t.write = {{4096, 1e6, write_ns}};
    t.firmware_ns = 276;
    t.channels = t.dies_per_channel = 8;
    t.read_die_ns = t.program_die_ns = 1000;
    t.channel_bytes_per_second = 1e10;
    return t;
}

DriveOptions options_with(const DriveTiming& timing, std::uint32_t units = 1) {
    DriveOptions o;
    o.capacity_bytes = 64u << 20;
    o.service_units = units;
    o.timing = timing;
    return o;
}

std::vector<std::byte> page_of(std::uint64_t seed) {
    std::vector<std::byte> page(nvme::kBlockBytes);
    SplitMix64 random(seed);
    for (std::byte& b : page) b = static_cast<std::byte>(random.next());
    return page;
}

constexpr std::uint64_t kLongNs = 50'000'000;

/// Submits a read of `block` and returns at once.
void begin_read(DriveRig& rig, nvme::BlockAddress block, std::span<std::byte> into, std::uint16_t id) {
    Command c = nvme::encode_io(IoOpcode::kRead, rig.fields(block, 1));
    c.data = sgl(into.data(), into.size());
    c.command_id = id;
    ASSERT_TRUE(rig.io->submit(c));
    rig.reactor->wake();
}

class TimedDrive : public ::testing::TestWithParam<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(ServiceUnits, TimedDrive, ::testing::Values(1, 3));

TEST_P(TimedDrive, HoldsWhatWasWrittenUnderManyCommandsInFlight) {
    const std::uint64_t seed = seed_or(5);
    DriveRig rig(options_with(timing_of(20'000, 5'000), GetParam()));
    rig.grant();
    rig.add_volume();
    SplitMix64 random(seed);
    constexpr std::uint32_t kBlocks = 512, kWindow = 48, kCommands = 20'000;
    std::vector<std::uint64_t> contents(kBlocks, 0);
    for (nvme::BlockAddress b = 0; b < kBlocks; ++b) {
        contents[b] = random.next();
        ASSERT_EQ(rig.write(b, page_of(contents[b])), Status::kSuccess);
    }
    struct Flight {
        std::vector<std::byte> page;
        std::uint32_t block;
        bool write;
    };
    std::map<std::uint16_t, Flight> flying;
    std::vector<bool> busy(kBlocks);
    std::uint64_t reads = 0, writes = 0;
    for (std::uint32_t done = 0, sent = 0; done < kCommands;) {
        while (sent < kCommands && flying.size() < kWindow) {
            const auto block = static_cast<std::uint32_t>(random.below(kBlocks));
            if (busy[block]) continue;
            busy[block] = true;
            const auto id = static_cast<std::uint16_t>(sent++);
            Flight& f = flying[id];
            f.block = block;
            f.write = random.below(3) == 0;
            if (f.write) contents[block] = random.next();
            f.page = f.write ? page_of(contents[block]) : std::vector<std::byte>(nvme::kBlockBytes);
            IoFields fields = rig.fields(block, 1);
            if (f.write) fields.sequence = ++rig.sequence;
            Command c = nvme::encode_io(f.write ? IoOpcode::kWrite : IoOpcode::kRead, fields);
            c.data = sgl(f.page.data(), f.page.size());
            c.command_id = id;
            ASSERT_TRUE(rig.io->submit(c));
        }
        Completion c{};
        ASSERT_TRUE(reap(*rig.io, *rig.reactor, c)) << "seed " << seed;
        ASSERT_EQ(c.result(), Status::kSuccess) << "seed " << seed;
        const auto it = flying.find(c.command_id);
        ASSERT_NE(it, flying.end()) << "answered twice, or never asked; seed " << seed;
        const Flight& f = it->second;
        if (!f.write) {
            ASSERT_EQ(f.page, page_of(contents[f.block])) << "seed " << seed;
        }
        ++(f.write ? writes : reads);
        busy[f.block] = false;
        flying.erase(it);
        ++done;
    }
    const deengine::EngineCounters counters = rig.drive->counters();
    EXPECT_EQ(counters.reads, reads);
    EXPECT_EQ(counters.writes, writes + kBlocks);
    std::printf("GN_COUNT timed_drive_commands=%llu\n", static_cast<unsigned long long>(reads + writes));
}

// A command that was checked in time and takes longer than the grant: who took the drive for silent may have
// gone on without it.
TEST(OneTimedDrive, NothingSucceedsAfterItsGrantHasEnded) {
    constexpr std::uint32_t kGrantMs = 100;
    DriveRig rig(options_with(timing_of(std::uint64_t{2 * kGrantMs} * 1'000'000, 1'000)));
    rig.grant();
    rig.add_volume();
    ASSERT_EQ(rig.write(9, page_of(9)), Status::kSuccess);
    std::vector<std::byte> into(nvme::kBlockBytes);
    ASSERT_EQ(rig.read(9, into), Status::kSuccess);
    nvme::MapSet set = rig.map();
    set.grant_ms = kGrantMs;
    EXPECT_EQ(rig.vendor(nvme::AdminOpcode::kMapSet, &set, sizeof set), Status::kNotGranted) << "unasked for";
    rig.grant(1, kGrantMs);
    EXPECT_EQ(rig.read(9, into), Status::kNotGranted);
    rig.grant();
    EXPECT_EQ(rig.read(9, into), Status::kSuccess);
    EXPECT_EQ(into, page_of(9));
}

TEST(OneTimedDrive, CompletionsDueLaterAreSentLater) {
    DriveRig rig(options_with(timing_of(kLongNs, 1'000)));
    rig.grant();
    rig.add_volume();
    std::vector<std::byte> into(nvme::kBlockBytes);
    const std::vector<std::byte> page = page_of(1);
    ASSERT_EQ(rig.write(9, page_of(9)), Status::kSuccess);
    // Submitted on the drive's own thread: fetched in one round, so that all arrive at one time.
    rig.reactor->run([&] {
        begin_read(rig, 9, into, 50);
        for (std::uint16_t id = 10; id < 30; ++id) {
            IoFields fields = rig.fields(100, 1);
            fields.sequence = ++rig.sequence;
            Command c = nvme::encode_io(IoOpcode::kWrite, fields);
            c.data = sgl(page.data(), page.size());
            c.command_id = id;
            ASSERT_TRUE(rig.io->submit(c));
        }
        begin_read(rig, 1u << 20, into, 9);  // refused, which does not wait at all
    });
    // Due later are the writes, in their order, and last the read that was sent first.
    std::vector<std::uint16_t> order;
    Completion c{};
    while (order.size() < 22 && reap(*rig.io, *rig.reactor, c)) order.push_back(c.command_id);
    ASSERT_EQ(order.size(), 22u);
    EXPECT_EQ(order.front(), 9);
    EXPECT_EQ(order.back(), 50);
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
    EXPECT_EQ(into, page_of(9));
}

TEST(OneTimedDrive, ADeletedQueueDoesNotWaitForDelayedCompletions) {
    DriveRig rig(options_with(timing_of(kLongNs, 1'000)));
    rig.grant();
    rig.add_volume();
    std::vector<std::byte> into(nvme::kBlockBytes), other(nvme::kBlockBytes);
    ASSERT_EQ(rig.write(1, page_of(1)), Status::kSuccess);
    NvmeQueue* const second = rig.drive->create_queue(2, 16, kWriter, Priority::kMedium, false).value();
    for (std::uint16_t i = 0; i < 10; ++i) {
        Command c = nvme::encode_io(IoOpcode::kRead, rig.fields(1, 1));
        c.data = sgl(into.data(), into.size());
        c.command_id = i;
        ASSERT_TRUE(second->submit(c));
    }
    begin_read(rig, 1, other, 7'000);
    EXPECT_TRUE(rig.drive->delete_queue(second).ok());
    // The other queue's answer is still given, once.
    Completion c{};
    ASSERT_TRUE(reap(*rig.io, *rig.reactor, c));
    EXPECT_EQ(c.command_id, 7'000);
    EXPECT_EQ(other, page_of(1));
    EXPECT_FALSE(rig.io->reap(c));
}

TEST(OneTimedDrive, IsNotOpenedWithATimingThatContradictsItself) {
    const auto reactor = Reactor::start("test").value();
    DriveTiming timing = timing_of(500, 500);  // less than its dies take
    const auto opened = Drive::open(options_with(timing), *reactor);
    ASSERT_FALSE(opened.ok());
    EXPECT_NE(opened.error().message.find("die and channel alone"), std::string::npos)
        << opened.error().message;
}

}  // namespace
}  // namespace gnstor::ssd::testing
