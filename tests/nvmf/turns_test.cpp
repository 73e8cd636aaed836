// turns_test.cpp: clients that share a target: staging memory is bounded, what finds none waits and is not
// failed, and a client with many queue pairs leaves a modest one its turns. Over windows that are the NIC's
// own memory, as on wires that move packets.
#include "loop_rig.hpp"
#include "nvmf/target/shared_budget.hpp"
#include "support/count.hpp"

#include <thread>

namespace gnstor::nvmf {
namespace {

using nvme::IoOpcode;
using nvme::Status;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint32_t kLargest = 256u << 10;
#else
constexpr std::uint32_t kLargest = 1u << 20;
#endif
constexpr std::uint32_t kBlocksALargest = kLargest / 4096;
constexpr nvme::ClientId kModest = 77;
constexpr nvme::VolumeId kModestVolume = 8;

nvme::IoFields modest_fields(std::uint32_t block, std::uint64_t sequence) {
    nvme::IoFields f = fields(block, 1, sequence);
    f.volume = kModestVolume;
    f.client = kModest;
    return f;
}

/// A host that sends no keep-alives, and is not expected to, however long a test takes.
HostOptions patient(HostOptions options) {
    options.keep_alive_ms = 0;
    options.timeout_ms = 100'000;
    return options;
}

/// A host with many queues, each kept full of commands of one kind.
class Greedy {
  public:
    Greedy(LoopRig& rig, std::uint16_t queues, std::uint32_t depth, IoOpcode opcode, std::uint32_t blocks)
        : memory_(rig.host_nic(), kLargest), depth_(depth), opcode_(opcode), blocks_(blocks) {
        host_ = rig.connect(patient(rig.host())).value();
        for (std::uint16_t q = 1; q <= queues; ++q) queues_.push_back(host_->open_io_queue(q, depth).value());
        under_way_.resize(queues);
        memory_.fill(3);
    }
    /// Takes what was answered, and asks anew.
    void go_on() {
        nvme::Completion response;
        for (std::size_t q = 0; q < queues_.size(); ++q) {
            while (queues_[q]->poll(response)) {
                --under_way_[q];
                ++answered;
                EXPECT_EQ(response.result(), Status::kSuccess);
            }
            while (under_way_[q] < depth_ && post(q)) ++under_way_[q];
        }
    }
    /// Until all are answered.
    bool drain() {
        return eventually(
            [&] {
                nvme::Completion response;
                std::uint32_t left = 0;
                for (std::size_t q = 0; q < queues_.size(); ++q) {
                    while (queues_[q]->poll(response)) {
                        --under_way_[q];
                        EXPECT_EQ(response.result(), Status::kSuccess);
                    }
                    left += under_way_[q];
                }
                return left == 0;
            },
            100);
    }
    std::uint64_t answered = 0;

  private:
    bool post(std::size_t q) {
        nvme::Command c = io(opcode_, fields(0, blocks_, opcode_ == IoOpcode::kWrite ? ++sequence_ : 0),
                             memory_.sgl(0, blocks_ * 4096));
        c.command_id = next_id_++;
        return queues_[q]->post(c) == HostQueue::Posted::kYes;
    }
    std::unique_ptr<HostController> host_;
    std::vector<std::unique_ptr<HostQueue>> queues_;
    std::vector<std::uint32_t> under_way_;
    Buffer memory_;
    const std::uint32_t depth_;
    const IoOpcode opcode_;
    const std::uint32_t blocks_;
    std::uint64_t sequence_ = 0;
    std::uint16_t next_id_ = 0;
};

struct Case {
    const char* name;
    bool udp;
    IoOpcode opcode;
};
class FairTurns : public ::testing::TestWithParam<Case> {
  protected:
    static RigOptions small_target(bool udp) {
        RigOptions options{.strict = false, .late_windows = udp ? 0u : 3u, .udp = udp, .target = {}};
        options.target.connect_timeout_ms = 100'000;
        options.target.turns = {
            .staging_bytes = kStagingBytesMin, .staging_assured_bytes = 8192, .places = 4};
        return options;
    }
};
INSTANTIATE_TEST_SUITE_P(Wires, FairTurns,
                         ::testing::Values(Case{"LateReads", false, IoOpcode::kRead},
                                           Case{"LateWrites", false, IoOpcode::kWrite},
                                           Case{"UdpReads", true, IoOpcode::kRead},
                                           Case{"UdpWrites", true, IoOpcode::kWrite}),
                         [](const auto& p) { return std::string(p.param.name); });

TEST_P(FairTurns, AGreedyClientWithManyQueuePairsLeavesAModestClientItsShare) {
    LoopRig rig(small_target(GetParam().udp));
    rig.make_volume();
    rig.make_volume(sample_record(kModestVolume, "modest", kModest));
    auto modest_host = rig.connect(patient(rig.host(client_host_nqn(kModest)))).value();
    IoClient modest(rig.host_nic(), *modest_host, 1);
    Greedy greedy(rig, 8, 8, GetParam().opcode, kBlocksALargest);
    // 64 commands want several times the memory that there is.
    static_assert(64 * std::uint64_t{kLargest} >= 4 * kStagingBytesMin);
    ASSERT_TRUE(eventually(
        [&] {
            greedy.go_on();
            return rig.counters().waits_for_memory > 0;
        },
        100));
    constexpr std::uint32_t kCommands = 16;
    for (std::uint32_t i = 0; i < kCommands; ++i) {
        modest.buffer.fill(static_cast<std::uint8_t>(i));
        nvme::Command c = io(IoOpcode::kWrite, modest_fields(i, i + 1), modest.buffer.sgl(0, 4096));
        c.command_id = static_cast<std::uint16_t>(i);
        ASSERT_EQ(modest.queue().post(c), HostQueue::Posted::kYes);
        nvme::Completion response;
        const std::uint64_t before = greedy.answered;
        ASSERT_TRUE(eventually(
            [&] {
                greedy.go_on();
                return modest.queue().poll(response);
            },
            100))
            << greedy.answered - before << " commands of the greedy client were executed meanwhile";
        EXPECT_EQ(response.result(), Status::kSuccess);
    }
    ASSERT_TRUE(greedy.drain());
    test::count("nvmf_commands_that_waited_for_memory", rig.counters().waits_for_memory);
    // What waited has lost nothing.
    modest.buffer.fill(kCommands - 1);
    ASSERT_EQ(
        modest.status(io(IoOpcode::kRead, modest_fields(kCommands - 1, 0), modest.buffer.sgl(8192, 4096))),
        Status::kSuccess);
    EXPECT_EQ(std::memcmp(modest.buffer.data(), modest.buffer.data() + 8192, 4096), 0);
}

TEST_P(FairTurns, AConnectionThatEndsWhileItsCommandsWaitLeavesNoResourcesAllocated) {
    LoopRig rig(small_target(GetParam().udp));
    rig.make_volume();
    for (int round = 0; round < 10; ++round) {
        auto greedy = std::make_unique<Greedy>(rig, 4, 8, GetParam().opcode, kBlocksALargest);
        const std::uint64_t before = rig.counters().waits_for_memory;
        ASSERT_TRUE(eventually(
            [&] {
                greedy->go_on();
                return rig.counters().waits_for_memory > before;
            },
            100));
        greedy.reset();
        ASSERT_TRUE(eventually([&] { return rig.target().connections_open() == 0; }, 100));
    }
    // All of it is there again: as much as one client may have is taken at once.
    Greedy last(rig, 1, kStagingBytesMin / 2 / kLargest + 1, GetParam().opcode, kBlocksALargest);
    last.go_on();
    ASSERT_TRUE(last.drain());
}

}  // namespace
}  // namespace gnstor::nvmf
