// io_test.cpp: I/O commands through a target: data in capsules and under keys, refusals, invalidation, queue
// limits.
#include "loop_rig.hpp"

namespace gnstor::nvmf {
namespace {

using nvme::IoOpcode;
using nvme::Status;

enum class Shape : std::uint8_t { kOneReactor, kThreeReactors, kLateWindows, kUdp, kShm };

class Io : public ::testing::TestWithParam<Shape> {
  protected:
    static constexpr std::uint16_t kHeldQueue = 3;
    void SetUp() override {
        rig_ =
            std::make_unique<LoopRig>(RigOptions{.one_reactor = GetParam() == Shape::kOneReactor,
                                                 .late_windows = GetParam() == Shape::kLateWindows ? 12u : 0u,
                                                 .udp = GetParam() == Shape::kUdp,
                                                 .shm = GetParam() == Shape::kShm,
                                                 .held_queue = kHeldQueue,
                                                 .target = {}});
        rig_->make_volume();
        host_ = rig_->connect(rig_->host()).value();
        io_ = std::make_unique<IoClient>(rig_->host_nic(), *host_, 1);
    }
    void TearDown() override {
        io_.reset();
        host_.reset();
        rig_.reset();
    }
    Status keyed(IoOpcode opcode, const nvme::IoFields& f, std::size_t offset, std::uint32_t bytes) {
        return io_->status(io(opcode, f, io_->buffer.sgl(offset, bytes)));
    }
    /// Memory that the peer's keys forbid is an error of the connection, not of the command.
    [[nodiscard]] static bool ends_the_connection() {
        return GetParam() == Shape::kLateWindows || GetParam() == Shape::kUdp;
    }
    std::unique_ptr<LoopRig> rig_;
    std::unique_ptr<HostController> host_;
    std::unique_ptr<IoClient> io_;
};
std::string shape_name(const ::testing::TestParamInfo<Shape>& shape) {
    constexpr const char* kNames[] = {"OneReactor", "ThreeReactors", "LateWindows", "Udp", "Shm"};
    return kNames[static_cast<int>(shape.param)];
}
INSTANTIATE_TEST_SUITE_P(Shapes, Io,
                         ::testing::Values(Shape::kOneReactor, Shape::kThreeReactors, Shape::kLateWindows,
                                           Shape::kUdp, Shape::kShm),
                         shape_name);

TEST_P(Io, ABlockWrittenInItsCapsuleIsReadBackUnderAKey) {
    io_->buffer.fill(1);
    const std::span block(io_->buffer.data(), 4096);
    const auto in_capsule = nvme::SglDescriptor::unkeyed(nvme::kSglDataBlockOffset, 0, 4096);
    ASSERT_EQ(io_->status(io(IoOpcode::kWrite, fields(5, 1, 1), in_capsule), block), Status::kSuccess);
    ASSERT_EQ(keyed(IoOpcode::kRead, fields(5, 1), 65536, 4096), Status::kSuccess);
    EXPECT_EQ(std::memcmp(io_->buffer.data(), io_->buffer.data() + 65536, 4096), 0);
}

TEST_P(Io, ALargeWriteAndItsReadsMoveTheSameBytes) {
    io_->buffer.fill(2);
    ASSERT_EQ(keyed(IoOpcode::kWrite, fields(16, 16, 1), 0, 65536), Status::kSuccess);
    ASSERT_EQ(keyed(IoOpcode::kRead, fields(16, 16), 1 << 19, 65536), Status::kSuccess);
    EXPECT_EQ(std::memcmp(io_->buffer.data(), io_->buffer.data() + (1 << 19), 65536), 0);
    for (std::uint8_t first = 0; first < 8; ++first) {
        nvme::IoFields f = fields(18, 1);
        f.first_sector = first;
        f.sectors = static_cast<std::uint8_t>(8 - first);
        const std::uint32_t bytes = f.sectors * 512u;
        std::memset(io_->buffer.data() + (1 << 19), 0xEE, 8192);
        ASSERT_EQ(keyed(IoOpcode::kRead, f, 1 << 19, bytes), Status::kSuccess);
        EXPECT_EQ(
            std::memcmp(io_->buffer.data() + 2 * 4096 + first * 512, io_->buffer.data() + (1 << 19), bytes),
            0);
        EXPECT_EQ(io_->buffer.data()[(1 << 19) + bytes], std::byte{0xEE})
            << "no byte beyond the command's data may change";
    }
}

TEST_P(Io, OneMebibyteIsTheLargestTransfer) {
    io_->buffer.fill(3);
    // 256 blocks, and the volume's chunks all live on this one SSD.
    EXPECT_EQ(keyed(IoOpcode::kWrite, fields(0, 256, 1), 0, 1u << 20), Status::kSuccess);
    EXPECT_EQ(keyed(IoOpcode::kRead, fields(0, 257), 0, 257 * 4096), Status::kInvalidField);
}

TEST_P(Io, TrimZeroesAndFlushReachTheDrive) {
    io_->buffer.fill(4);
    ASSERT_EQ(keyed(IoOpcode::kWrite, fields(32, 4, 1), 0, 16384), Status::kSuccess);
    nvme::DsmRange ranges[2] = {{0, 1, 32}, {0, 1, 34}};
    std::memcpy(io_->buffer.data() + 65536, ranges, sizeof ranges);
    nvme::Command trim = nvme::encode_trim(fields(0, 1, 2), 2);
    trim.data = io_->buffer.sgl(65536, sizeof ranges);
    ASSERT_EQ(io_->status(trim), Status::kSuccess);
    nvme::Command zeroes = io(IoOpcode::kWriteZeroes, fields(33, 1, 3), {});
    ASSERT_EQ(io_->status(zeroes), Status::kSuccess);
    nvme::IoFields f = fields(0, 1);
    ASSERT_EQ(io_->status(io(IoOpcode::kFlush, f, {})), Status::kSuccess);
    ASSERT_EQ(keyed(IoOpcode::kRead, fields(32, 4), 1 << 19, 16384), Status::kSuccess);
    const std::byte* got = io_->buffer.data() + (1 << 19);
    for (int i = 0; i < 3 * 4096; ++i) ASSERT_EQ(got[i], std::byte{0}) << i;
    EXPECT_EQ(std::memcmp(got + 3 * 4096, io_->buffer.data() + 3 * 4096, 4096), 0);
    // Ranges in the capsule, too.
    trim.data = nvme::SglDescriptor::unkeyed(nvme::kSglDataBlockOffset, 0, sizeof ranges);
    trim.cdw14 = 4;
    EXPECT_EQ(io_->status(trim, std::as_bytes(std::span(ranges))), Status::kSuccess);
}

TEST_P(Io, InCapsuleDataMayLieInSeveralPieces) {
    io_->buffer.fill(5);
    nvme::Command c = io(IoOpcode::kWrite, fields(40, 1, 1),
                         nvme::SglDescriptor::unkeyed(nvme::kSglDataBlockOffset, 0, 4096));
    std::vector<std::byte> capsule(64 + 4096);
    for (std::uint32_t cut : {1u, 63u, 64u, 65u, 2000u}) {
        c.command_id = static_cast<std::uint16_t>(cut);
        c.cdw14 = cut;
        std::memcpy(capsule.data(), &c, 64);
        io_->buffer.fill(static_cast<std::uint8_t>(cut));
        std::memcpy(capsule.data() + 64, io_->buffer.data(), 4096);
        ASSERT_EQ(io_->queue().post_bytes(capsule, cut, 3000), HostQueue::Posted::kYes);
        ASSERT_EQ(await_response(io_->queue(), simt::now_ns() + 100 * kSecond).value().result(),
                  Status::kSuccess);
        ASSERT_EQ(keyed(IoOpcode::kRead, fields(40, 1), 65536, 4096), Status::kSuccess);
        EXPECT_EQ(std::memcmp(io_->buffer.data(), io_->buffer.data() + 65536, 4096), 0) << cut;
    }
}

TEST_P(Io, AnotherClientsIdIsDenied) {
    io_->buffer.fill(6);
    nvme::IoFields f = fields(1, 1, 1);
    f.client = kWriter + 1;
    EXPECT_EQ(keyed(IoOpcode::kWrite, f, 0, 4096), Status::kAccessDenied);
    EXPECT_EQ(keyed(IoOpcode::kRead, f, 0, 4096), Status::kAccessDenied);
    auto stranger_options = rig_->host(client_host_nqn(kWriter + 1));
    stranger_options.host_id = {7};
    auto stranger = rig_->connect(stranger_options).value();
    IoClient other(rig_->host_nic(), *stranger, 1);
    EXPECT_EQ(other.status(io(IoOpcode::kRead, fields(1, 1), other.buffer.sgl(0, 4096))),
              Status::kAccessDenied);
    EXPECT_EQ(other.status(io(IoOpcode::kRead, f, other.buffer.sgl(0, 4096))), Status::kAccessDenied)
        << "not a reader";
}

TEST_P(Io, AMemoryAccessViolationFailsOnlyItsOwnCommand) {
    if (ends_the_connection()) GTEST_SKIP() << "late_windows_test.cpp: the connection ends there";
    Buffer read_only(rig_->host_nic(), 8192, rdma::kRemoteRead);
    Buffer write_only(rig_->host_nic(), 8192, rdma::kLocalWrite | rdma::kRemoteWrite);
    const auto read = [&](nvme::SglDescriptor d) {
        return io_->status(io(IoOpcode::kRead, fields(1, 1), d));
    };
    const auto write = [&](nvme::SglDescriptor d) {
        return io_->status(io(IoOpcode::kWrite, fields(1, 1, 1), d));
    };
    EXPECT_EQ(read(read_only.sgl(0, 4096)), Status::kDataTransferError);
    EXPECT_EQ(write(write_only.sgl(0, 4096)), Status::kDataTransferError);
    EXPECT_EQ(read(write_only.sgl(4097, 4096)), Status::kDataTransferError) << "out of bounds";
    EXPECT_EQ(read(nvme::SglDescriptor::keyed(0x1000, 4096, 0xDEAD)), Status::kDataTransferError);
    EXPECT_EQ(write(read_only.sgl(0, 4096)), Status::kSuccess);
    EXPECT_EQ(read(write_only.sgl(4096, 4096)), Status::kSuccess);
}

TEST_P(Io, TheKeyIsInvalidatedWhenTheSglAsksForIt) {
    const auto memory = rdma::NicMemory::map(rig_->host_nic(), 4096).value();
    const auto keys =
        rig_->host_nic()
            .register_memory(memory.data(), memory.size(), rdma::kLocalWrite | rdma::kRemoteWrite)
            .value();
    auto sgl = nvme::SglDescriptor::keyed(reinterpret_cast<std::uintptr_t>(memory.data()), 4096, keys.rkey);
    sgl.type = nvme::kSglKeyedInvalidate;
    EXPECT_EQ(io_->status(io(IoOpcode::kRead, fields(1, 1), sgl)), Status::kSuccess);
    EXPECT_EQ(io_->queue().last_invalidated_key(), keys.rkey);
    sgl.type = nvme::kSglKeyedAddress;
    if (!ends_the_connection()) {
        EXPECT_EQ(io_->status(io(IoOpcode::kRead, fields(1, 1), sgl)), Status::kDataTransferError)
            << "the key must be invalid";
    }
    EXPECT_TRUE(rig_->host_nic().deregister_memory(keys).ok());
}

TEST_P(Io, TheSameCommandIdInFlightTwiceIsAConflict) {
    // Many reads at once under one id: all but those that find the id free are refused, none is lost.
    std::uint32_t conflicts = 0;
    for (int round = 0; round < 50; ++round) {
        nvme::Command c = io(IoOpcode::kRead, fields(1, 16), io_->buffer.sgl(0, 65536));
        c.command_id = 42;
        for (int i = 0; i < 8; ++i) {
            // An answer may come before the send completion of its capsule: the ring may have no room yet.
            const std::uint64_t until = simt::now_ns() + 100 * kSecond;
            auto posted = io_->queue().post(c);
            while (posted == HostQueue::Posted::kFull && simt::now_ns() < until)
                posted = io_->queue().post(c);
            ASSERT_EQ(posted, HostQueue::Posted::kYes);
        }
        for (int i = 0; i < 8; ++i) {
            const auto r = await_response(io_->queue(), simt::now_ns() + 100 * kSecond).value();
            EXPECT_EQ(r.command_id, 42);
            if (r.result() == Status::kCommandIdConflict)
                ++conflicts;
            else
                EXPECT_EQ(r.result(), Status::kSuccess);
        }
    }
    EXPECT_EQ(io_->status(io(IoOpcode::kRead, fields(1, 1), io_->buffer.sgl(0, 4096))), Status::kSuccess);
    std::printf("GN_COUNT nvmf_id_conflicts=%u\n", conflicts);
}

TEST_P(Io, ManyCommandsInFlightAllCompleteWithTheirOwnData) {
    auto queue = host_->open_io_queue(2, 64).value();
    constexpr std::uint32_t kOperations = 4000;
    io_->buffer.fill(9);
    for (std::uint32_t i = 0; i < 64; ++i)
        ASSERT_EQ(keyed(IoOpcode::kWrite, fields(1000 + i, 1, i + 1), i * 4096, 4096), Status::kSuccess);
    Buffer to(rig_->host_nic(), 64 * 4096);
    std::uint32_t posted = 0;
    std::uint32_t done = 0;
    std::vector<std::uint32_t> block_of(64);
    std::vector<std::uint16_t> idle;
    for (std::uint16_t i = 0; i < 64; ++i) idle.push_back(i);
    const std::uint64_t until = simt::now_ns() + 100 * kSecond;
    while (done < kOperations) {
        ASSERT_LT(simt::now_ns(), until);
        if (!idle.empty() && posted < kOperations) {
            const std::uint16_t slot = idle.back();
            block_of[slot] = (posted * 37) % 64;
            nvme::Command c =
                io(IoOpcode::kRead, fields(1000 + block_of[slot], 1), to.sgl(slot * 4096u, 4096));
            c.command_id = static_cast<std::uint16_t>(slot + 500);
            const auto outcome = queue->post(c);
            ASSERT_NE(outcome, HostQueue::Posted::kBroken);
            if (outcome == HostQueue::Posted::kYes) {
                idle.pop_back();
                ++posted;
            }
        }
        nvme::Completion r;
        while (queue->poll(r)) {
            ASSERT_EQ(r.result(), Status::kSuccess);
            const auto slot = static_cast<std::uint16_t>(r.command_id - 500);
            ASSERT_EQ(std::memcmp(to.data() + slot * 4096, io_->buffer.data() + block_of[slot] * 4096, 4096),
                      0);
            idle.push_back(slot);
            ++done;
        }
    }
    const auto counters = rig_->counters();
    EXPECT_EQ(counters.reads, kOperations);
    EXPECT_EQ(counters.writes, 64u);
    EXPECT_EQ(counters.bytes_to_drive, 64u * 4096);
    EXPECT_EQ(counters.refused, 0u);
    std::printf("GN_COUNT nvmf_reads_compared=%u\n", done);
}

TEST_P(Io, MoreCommandsThanTheQueueHoldsFailsTheConnection) {
    // The queue pair has room for 64, but Connect... says 16: the seventeenth under way breaks the rule.
    constexpr std::uint16_t kHolds = 16;
    const IoQueueConnect connect = host_->io_queue(kHeldQueue, kHolds);
    auto queue = HostQueue::create(rig_->host_nic(), 64).value();
    ASSERT_TRUE(host_->connect_transport(queue->qp(), connect).ok());
    ASSERT_TRUE(connect_queue(*queue, connect, simt::now_ns() + 100 * kSecond).ok());
    const auto read = [&](std::uint16_t id) {
        nvme::Command c = io(IoOpcode::kRead, fields(0, 1), io_->buffer.sgl(65536, 4096));
        c.command_id = id;
        return queue->post(c);
    };
    for (std::uint16_t i = 0; i < kHolds; ++i) ASSERT_EQ(read(i), HostQueue::Posted::kYes);
    // The drive answers none of them, so all that the queue holds are under way: which is no offence.
    ASSERT_TRUE(eventually([&] { return rig_->held().hold() == kHolds; }));
    ASSERT_FALSE(queue->broken());
    EXPECT_EQ(rig_->counters().malformed, 0u);
    ASSERT_EQ(read(kHolds), HostQueue::Posted::kYes);
    EXPECT_TRUE(eventually([&] {
        nvme::Completion r;
        EXPECT_FALSE(queue->poll(r)) << "an answer to " << r.command_id;
        return queue->broken();
    }));
    EXPECT_EQ(rig_->held().hold(), kHolds) << "it must not reach the drive";
    EXPECT_EQ(io_->status(io(IoOpcode::kRead, fields(1, 1), io_->buffer.sgl(0, 4096))), Status::kSuccess)
        << "other connections must continue to work";
    rig_->held().let_go();
    EXPECT_TRUE(eventually([&] { return rig_->counters().connections_failed == 1; }));
    EXPECT_EQ(rig_->counters().malformed, 1u);
    queue.reset();
}

TEST_P(Io, PropertyCommandsAndUnknownOpcodesAreRefusedOnIoQueues) {
    nvme::Command c{};
    c.opcode = 0x7F;
    c.flags = nvme::kFlagsSgl;
    c.namespace_id = static_cast<std::uint32_t>(nvme::FabricsType::kPropertyGet);
    EXPECT_EQ(io_->status(c), Status::kInvalidOpcode);
    c.opcode = 0x85;
    EXPECT_EQ(io_->status(c), Status::kInvalidOpcode);
    c.opcode = 0x06;  // Identify is an admin command
    c.data = io_->buffer.sgl(0, 4096);
    EXPECT_EQ(io_->status(c), Status::kInvalidOpcode);
    EXPECT_EQ(io_->status(io(IoOpcode::kRead, fields(kCapacityBlocks, 1), io_->buffer.sgl(0, 4096))),
              Status::kLbaOutOfRange);
}

}  // namespace
}  // namespace gnstor::nvmf
