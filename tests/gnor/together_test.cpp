// together_test.cpp: the fast path of a batch: what goes by it and what does not, with the same results;
// and that what it takes for some and not for all is given back.
#include <gtest/gtest.h>

#include <cstring>

#include "gnor/bench.hpp"

namespace gnstor::test {
namespace {

using gnor::Counters;
using nvme::IoOpcode;

/// One lane with a batch, and what is left when it is done.
class Together : public ::testing::Test {
  protected:
    explicit Together(const RigOptions& o = {}) : rig(o) { batch.init(kMe, simt::Lane{}); }
    ~Together() override {
        EXPECT_EQ(ch.free(kMe, buffer), Status::kSuccess);
        rig.expect_clean();
    }
    Status send(IoOpcode opcode, const IoRequest& request) {
        const Status sent = batch.submit(kMe, simt::Lane{}, v, ch, opcode, &request);
        if (!nvme::ok(sent)) return sent;
        batch.commit(kMe, simt::Lane{}, ch);
        const Deadline end = late();
        BatchResult result;
        while (!(result = batch.dispatch(kMe, simt::Lane{}, ch)).finished && !end.passed())
            batch.poll(kMe, ch);
        return result.finished ? result.status : Status::kTimedOut;
    }
    /// Writes blocks and reads them; how many of the commands took the fast path.
    std::uint64_t fast_path_of(std::uint32_t block, std::uint32_t blocks, std::byte* memory) {
        const std::uint64_t before = counters().fast_path;
        for (std::uint32_t b = 0; b < blocks; ++b)
            std::memcpy(memory + b * 4096, pattern_block(block + b, ++version).data(), nvme::kBlockBytes);
        const std::vector<std::byte> written(memory, memory + blocks * 4096);
        EXPECT_EQ(send(IoOpcode::kWrite, IoRequest{block, blocks, memory, 0, 0}), Status::kSuccess);
        std::memset(memory, 0, blocks * 4096);
        EXPECT_EQ(send(IoOpcode::kRead, IoRequest{block, blocks, memory, 0, 0}), Status::kSuccess);
        EXPECT_EQ(std::memcmp(memory, written.data(), written.size()), 0);
        return counters().fast_path - before;
    }
    Counters counters() { return rig.channels[0]->counters().value(); }

    Rig rig;
    VolumeRef v = rig.volume();
    ChannelRef ch = rig.channel();
    std::byte* buffer = static_cast<std::byte*>(ch.alloc(kMe, 64 * 1024));
    Batch<32> batch{};
    std::uint32_t version = 0;
};

TEST_F(Together, ASingleCommandTakesTheFastPathToAllItsDrives) {
    EXPECT_EQ(fast_path_of(3, 1, buffer), 3u) << "a write of two replicas, and a read";
    EXPECT_EQ(fast_path_of(16, 16, buffer), 3u) << "a whole chunk is one command";
    for (std::uint8_t s = 0; s < 8; ++s) {
        const std::uint64_t before = counters().fast_path;
        ASSERT_EQ(send(IoOpcode::kRead, IoRequest{5 + 16, 1, buffer, s, 1}), Status::kSuccess);
        EXPECT_EQ(std::memcmp(buffer, pattern_block(21, 7).data() + s * 512, 512), 0) << int{s};
        EXPECT_EQ(counters().fast_path, before + 1);
    }
    const Counters n = counters();
    EXPECT_EQ(n.fast_path, n.reads + n.writes);
    EXPECT_EQ(n.doorbells, n.fast_path);
    EXPECT_EQ(n.completions, n.fast_path);
    EXPECT_EQ(n.stale + n.refusals + n.timeouts, 0u);
}

TEST_F(Together, UserMemoryTakesTheFastPathWithItsOwnKeys) {
    std::vector<std::byte> own(4 * 4096 + 64);
    std::byte* const mine = own.data() + (64 - reinterpret_cast<std::uintptr_t>(own.data()) % 64) % 64;
    ASSERT_TRUE(rig.channels[0]->register_buffer(mine, 4 * 4096).ok());
    EXPECT_EQ(fast_path_of(8, 4, mine), 3u);
}

TEST_F(Together, RequestsOfSeveralCommandsTakeTheGeneralPath) {
    EXPECT_EQ(fast_path_of(15, 2, buffer), 0u) << "on both sides of a chunk's end";
    std::vector<std::byte> plain(4096);
    const auto end = static_cast<std::uint32_t>(rig.options.capacity_blocks);
    EXPECT_EQ(send(IoOpcode::kRead, IoRequest{0, 1, plain.data(), 0, 0}), Status::kNotRegistered);
    EXPECT_EQ(send(IoOpcode::kRead, IoRequest{0, 1, nullptr, 0, 0}), Status::kBadArgument);
    EXPECT_EQ(send(IoOpcode::kRead, IoRequest{0, 1, buffer + 2, 0, 0}), Status::kBadArgument);
    EXPECT_EQ(send(IoOpcode::kRead, IoRequest{0, 0, buffer, 0, 0}), Status::kBadArgument);
    EXPECT_EQ(send(IoOpcode::kRead, IoRequest{0, 1, buffer, 7, 2}), Status::kBadArgument);
    EXPECT_EQ(send(IoOpcode::kWrite, IoRequest{0, 1, buffer, 0, 1}), Status::kBadArgument);
    EXPECT_EQ(send(IoOpcode::kRead, IoRequest{end - 1, 2, buffer, 0, 0}), Status::kLbaOutOfRange);
    EXPECT_EQ(counters().fast_path, 0u);
}

TEST_F(Together, MapsWithSharedDomainsOrRebuildingSlotsTakeTheGeneralPath) {
    rig.set_map(2, [](placement::ArrayMap& map) { map.slots[1].domain = map.slots[0].domain; });
    EXPECT_EQ(fast_path_of(3, 1, buffer), 0u);
    rig.set_map(3);
    EXPECT_EQ(fast_path_of(3, 1, buffer), 3u) << "each submit has the newest map";
    // Rebuilding: writes go there, reads do not.
    const auto replicas = rig.replicas_of(3);
    rig.set_map(4, [&](placement::ArrayMap& map) {
        map.slots[replicas.slot[0]].state = placement::SlotState::kRebuilding;
    });
    const std::uint64_t before = rig.drives[replicas.slot[0]]->served();
    EXPECT_EQ(fast_path_of(3, 1, buffer), 3u);
    EXPECT_EQ(rig.drives[replicas.slot[0]]->served(), before + 1) << "the write alone";
}

TEST_F(Together, ARefusalIsTheRequestsResultAndItsCommandSlotIsFreed) {
    for (auto& drive : rig.drives)
        drive->set_rule([](const auto&, const nvme::IoFields& f) {
            return f.block == 9 ? Decision{Decision::kRefuse, Status::kAccessDenied} : Decision{};
        });
    EXPECT_EQ(send(IoOpcode::kRead, IoRequest{9, 1, buffer, 0, 0}), Status::kAccessDenied);
    EXPECT_EQ(send(IoOpcode::kWrite, IoRequest{9, 1, buffer, 0, 0}), Status::kAccessDenied);
    EXPECT_EQ(counters().fast_path, 3u);
    EXPECT_EQ(counters().refusals, 3u);
}

TEST_F(Together, AReusedCommandSlotHasANewCommandId) {
    std::vector<std::uint16_t> ids;
    for (auto& drive : rig.drives)
        drive->set_rule([&ids](const nvme::Command& command, const auto&) {
            ids.push_back(command.command_id);
            return Decision{};
        });
    for (std::uint32_t i = 0; i < 10; ++i)
        ASSERT_EQ(send(IoOpcode::kRead, IoRequest{i, 1, buffer, 0, 0}), Status::kSuccess);
    for (auto& drive : rig.drives) drive->set_rule({});
    ASSERT_EQ(ids.size(), 10u);
    for (std::size_t i = 1; i < ids.size(); ++i) EXPECT_NE(ids[i], ids[i - 1]) << i;
}

// Another lane has all entries of one drive's ring and has not filled them yet.
TEST_F(Together, CreditsOfOneDriveAreReturnedIfTheOtherDriveHasNone) {
    const auto replicas = rig.replicas_of(3);
    for (const std::uint32_t full : {0u, 1u}) {
        const std::uint32_t queue = replicas.slot[full];
        const auto send_queue = ch.state().send_queue(queue);
        rdma::SendRun all;
        for (const Deadline end = late();
             all.count == 0 && !end.passed();)  // of those before, some are not done
            all = send_queue.try_reserve_run(send_queue.entries(), true);
        ASSERT_EQ(all.count, send_queue.entries());
        for (std::uint32_t i = 0; i < 3; ++i)
            EXPECT_EQ(send(IoOpcode::kWrite, IoRequest{3, 1, buffer, 0, 0}), Status::kTooManyPending);
        gnor::drop_entries(ch.state(), queue, all.first, all.count);
        // Lap after lap; the NIC may say late that an entry is done.
        const Deadline end = late();
        for (std::uint32_t done = 0; done < 100 && !end.passed();) {
            const Status sent = send(IoOpcode::kWrite, IoRequest{3, 1, buffer, 0, 0});
            ASSERT_TRUE(sent == Status::kSuccess || sent == Status::kTooManyPending);
            done += sent == Status::kSuccess ? 1 : 0;
        }
        ASSERT_FALSE(end.passed());
    }
}

TEST_F(Together, AnAbandonedRequestStaysInQuarantineUntilItsAnswerComes) {
    for (auto& drive : rig.drives)
        drive->set_rule([](const auto&, const auto&) { return Decision{Decision::kNever}; });
    const IoRequest request{3, 1, buffer, 0, 0};
    ASSERT_EQ(batch.submit(kMe, simt::Lane{}, v, ch, IoOpcode::kWrite, &request), Status::kSuccess);
    batch.abandon(kMe, simt::Lane{}, ch);
    EXPECT_EQ(counters().fast_path, 2u);
    EXPECT_EQ(counters().quarantined, 1u);
    EXPECT_EQ(ch.free(kMe, buffer), Status::kBufferInUse);
    const auto kept = [&] {
        std::size_t n = 0;
        for (auto& drive : rig.drives) n += drive->kept();
        return n;
    };
    for (const Deadline end = late(); kept() != 2 && !end.passed();) (void)ch.poll(kMe);
    for (auto& drive : rig.drives) {
        drive->set_rule({});
        drive->answer_kept();
    }
    rig.channels[0]->quiesce(late()).value();
}

class TogetherWithThree : public Together {
  protected:
    static RigOptions three() {
        RigOptions o;
        o.replicas = 3;
        return o;
    }
    TogetherWithThree() : Together(three()) {}
};
TEST_F(TogetherWithThree, WritesOfMoreReplicasTakeTheGeneralPath) {
    EXPECT_EQ(fast_path_of(3, 1, buffer), 1u) << "the read";
}

class TogetherChecked : public Together {
  protected:
    static RigOptions checked() {
        RigOptions o;
        o.check_buffers = true;
        return o;
    }
    TogetherChecked() : Together(checked()) {}
};
TEST_F(TogetherChecked, CheckedBuffersTakeTheGeneralPath) {
    EXPECT_EQ(fast_path_of(3, 1, buffer), 0u);
}

/// Warps that write and read, each member a block of its own: how many commands took the fast path.
struct Stress {
    std::uint32_t warps, lanes, depth, ssds, replicas;
    std::uint64_t seed;
};
std::uint64_t fast_path_under(const Stress& s) {
    RigOptions o = options_of(1, s.depth);
    o.ssds = s.ssds;
    o.replicas = s.replicas;
    o.chunk_shift = 0;
    o.seed = seed_from_environment(s.seed);
    Bench b(o, 1, 64);
    auto batches =
        simt::DeviceMemory::allocate(s.warps * sizeof(Batch<32, CountHandler>), simt::LanesKind::kCpu)
            .value();
    b.test_warps(s.warps, s.lanes, WarpsBatch<32>{b.common, batches.lane_as<Batch<32, CountHandler>>(), 4});
    b.expect_good(s.warps * s.lanes * 8);
    b.rig.expect_clean();
    return b.rig.channels[0]->counters().value().fast_path;
}

TEST(TogetherInWarps, AWarpWithCreditsForAllLanesTakesTheFastPath) {
    // 8 lanes, 4 rounds of a write of two replicas and a read.
    EXPECT_EQ(fast_path_under({1, 8, 32, 4, 2, 1}), 8u * 4 * 3);
}

// Fewer credits, slots and send entries than the warps want at a time: what the fast path takes for some
// of them and not for all is given back, or nothing would be left in the end. Many seeds: who is in whose
// way, and when, is theirs.
TEST(TogetherInWarps, ResourcesTakenForOnlySomeLanesAreReturned) {
    std::uint64_t fast_path = 0, runs = 0;
    for (std::uint64_t seed = 1; seed <= 24; ++seed)
        for (const Stress& s :
             {Stress{3, 3, 4, 2, 2, seed}, Stress{4, 2, 4, 1, 1, seed}, Stress{2, 4, 8, 3, 2, seed}}) {
            fast_path += fast_path_under(s);
            ++runs;
        }
    EXPECT_GT(fast_path, runs) << "no request took the fast path, so the test covers nothing";
}

}  // namespace
}  // namespace gnstor::test
