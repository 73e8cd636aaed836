// overrun_test.cpp: a completion queue that has just as many entries as there are receives, under a NIC that
// uses up each receive the moment it is posted (as one does that flushes a queue pair in error).
#include <gtest/gtest.h>
#include <gnstor/rdma/poller.hpp>
#include <gnstor/simt/time.hpp>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "rdma/nic/completion_queue.hpp"
#include "support/count.hpp"
#include "support/test_warp.hpp"

namespace gnstor::rdma {
namespace {

constexpr QpNumber kQpn = 0x77;
constexpr std::uint32_t kEntriesLog2 = 5;
constexpr std::uint32_t kEntries = 1u << kEntriesLog2;
constexpr std::uint64_t kCompletions = 200'000;

/// One receive queue, its completion queue, and a thread that is the NIC: it refuses to go on where receives
/// are posted for which there would be no completion.
class GreedyNic {
  public:
    GreedyNic() {
        prepare_completions(cq);
        post_all_receives(receive);
        thread_ = std::thread([this] { run(); });
    }
    ~GreedyNic() {
        stop_.store(true);
        thread_.join();
    }
    [[nodiscard]] std::uint64_t refused() const { return refused_.load(); }

    CompletionQueueRef cq{ring_, &consumer_record_, &completion_state_, kEntriesLog2};
    ReceiveQueueRef receive{receives_, record_, buffers_, &receive_state_, 16, 0, kEntriesLog2, kQpn};

  private:
    void run() {
        std::uint64_t used = 0;
        for (std::uint32_t vain = 0; !stop_.load(std::memory_order_relaxed);) {
            const std::uint32_t record =
                be32(simt::load_acquire<simt::Scope::kSystem>(record_ + mlx5::kReceiveRecord));
            // At once, while the lanes are between the two stores.
            const std::uint32_t consumed = be32(simt::load_acquire<simt::Scope::kSystem>(&consumer_record_));
            if (((record - consumed) & mlx5::kIndexMask) > kEntries) {
                refused_.fetch_add(1);
                return;
            }
            if (((record - static_cast<std::uint32_t>(used)) & mlx5::kIndexMask) == 0) {
                if (++vain % 4096 == 0) std::this_thread::yield();
                continue;
            }
            CompletionFields fields;
            fields.qpn = kQpn;
            fields.wqe_counter = static_cast<std::uint16_t>(used++);
            fields.opcode = mlx5::kCqeSend;
            fields.bytes = 16;
            if (nic_.write(fields)) continue;
            refused_.fetch_add(1);  // an overrun stays one
            return;
        }
    }

    alignas(64) mlx5::Cqe64 ring_[kEntries] = {};
    mlx5::DataSegment receives_[kEntries] = {};
    alignas(64) std::byte buffers_[kEntries * 16] = {};
    CompletionQueueState completion_state_{};
    ReceiveQueueState receive_state_{};
    alignas(64) std::uint32_t consumer_record_ = 0;
    alignas(64) std::uint32_t record_[2] = {};
    CompletionQueue nic_{{ring_, kEntries, &consumer_record_}};
    std::atomic<bool> stop_{false};
    std::atomic<std::uint64_t> refused_{0};
    std::thread thread_;
};

TEST(Overrun, ASingleLaneFreesCompletionsBeforeItRepostsTheirReceives) {
    GreedyNic nic;
    std::uint64_t seen = 0;
    const std::uint64_t until = simt::now_ns() + 60'000'000'000ull;
    while (seen < kCompletions && nic.refused() == 0 && simt::now_ns() < until)
        if (poll(simt::self(simt::Lane{}), nic.cq, ReceiveSet{&nic.receive, 1}, [&](const Arrival&) {
                ++seen;
            }).arrived == 0)
            std::this_thread::yield();
    EXPECT_EQ(nic.refused(), 0u) << "overrun after " << seen << " completions";
    EXPECT_GE(seen, kCompletions);
    gnstor::test::count("rdma_greedy_completions", seen);
}

TEST(Overrun, AWarpFreesCompletionsBeforeItRepostsTheirReceives) {
    GreedyNic nic;
    std::uint64_t seen = 0;  // atomic
    simt::TestWarpOptions o;
    o.warps = 1;
    o.lanes = 8;
    o.seed = 5;
    const auto done = simt::run_test_warps(o, [&](simt::Lane lane) {
        const auto group = simt::warp(lane);
        const std::uint64_t until = simt::now_ns() + 60'000'000'000ull;
        for (bool more = true; more;) {
            const auto trip = poll(group, nic.cq, ReceiveSet{&nic.receive, 1}, [&](const Arrival&) {
                simt::fetch_add<simt::Scope::kDevice>(&seen, std::uint64_t{1});
            });
            if (trip.arrived == 0) std::this_thread::yield();
            const bool wanted = simt::load_relaxed<simt::Scope::kDevice>(&seen) < kCompletions / 10 &&
                                nic.refused() == 0 && simt::now_ns() < until;
            more = group.shfl(wanted, group.leader());
        }
    });
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(nic.refused(), 0u) << "overrun after " << seen << " completions";
    EXPECT_GE(seen, kCompletions / 10);
    gnstor::test::count("rdma_greedy_completions", seen);
}

}  // namespace
}  // namespace gnstor::rdma
