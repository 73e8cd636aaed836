// rings_test.cpp: what lanes tell the NIC and take from it, entry by entry: send queues and completions whose
// NIC is the test. What two lanes, or a lane and the NIC, do to each other at every place where they can meet
// (turns.hpp) is tested where atomics yield (GN_TEST_WARPS).
#include <gtest/gtest.h>
#include <gnstor/rdma/poller.hpp>
#include <gnstor/rdma/poster.hpp>

#include <memory>
#include <vector>

#include "gnor/rig.hpp"
#include "gnor/turns.hpp"
#include "rdma/nic/completion_queue.hpp"

namespace gnstor::test {
namespace {

namespace mlx5 = rdma::mlx5;

/// A send queue of four entries without a NIC: the test looks at it as one would.
struct SendMemory {
    static constexpr std::uint32_t kEntriesLog2 = 2;
    mlx5::SendEntry ring[1u << kEntriesLog2] = {};
    mlx5::Cqe64 completion{};
    rdma::SendQueueState state{};
    std::uint32_t ready[1u << kEntriesLog2] = {};
    alignas(64) std::uint32_t records[2] = {};
    std::uint64_t bell = 0;

    SendMemory() { completion.counter_own = mlx5::kInitialCounterOwn; }
    rdma::SendQueueRef ref() {
        return {ring, records, &bell, &completion, &state, ready, kEntriesLog2, kQpn};
    }
    std::uint32_t record() const { return be32(records[mlx5::kSendRecord]); }
    rdma::SendTicket filled() {
        rdma::SendTicket ticket = ref().try_reserve();
        EXPECT_TRUE(ticket.granted());
        ref().fill_send(ticket, mlx5::make_data(0x1000 + ticket.index, 64, 7));
        return ticket;
    }
    void publish_and_ring(const rdma::SendTicket& ticket) {
        ref().publish(ticket);
        ref().ring_bell();
    }
    /// What a NIC that reads entries the moment it is told of them must find.
    void look() const {
        for (std::uint32_t i = 0; i < record(); ++i) {
            EXPECT_EQ(mlx5::control_opcode(ring[i].control), mlx5::kSend)
                << "entry " << i << " is not filled";
            EXPECT_EQ(mlx5::control_index(ring[i].control), i);
            EXPECT_EQ(be64(ring[i].segment[0].data.address), 0x1000u + i);
        }
        if (bell != 0) {
            EXPECT_LT(mlx5::bell_index(bell), record()) << "a bell that the record does not cover";
        }
    }
    void expect_rung(std::uint32_t entries) const {
        EXPECT_EQ(state.reserved, entries);
        EXPECT_EQ(state.published, entries) << "an entry that is ready was not published";
        EXPECT_EQ(state.rung, entries);
        EXPECT_EQ(record(), entries) << "a published entry was not rung for";
        EXPECT_EQ(mlx5::bell_index(bell), entries - 1);
        EXPECT_EQ(state.ringing, 0u);
        look();
    }
    static constexpr std::uint32_t kQpn = 0x4321;
};

TEST(Posting, AnEntryBehindAnUnreadyOneIsPublishedTogetherWithIt) {
    SendMemory memory;
    const rdma::SendTicket first = memory.filled(), second = memory.filled();
    memory.publish_and_ring(second);
    EXPECT_EQ(memory.state.published, 0u);
    EXPECT_EQ(memory.record(), 0u) << "the NIC is told of an entry that is not ready";
    EXPECT_EQ(memory.bell, 0u);
    memory.publish_and_ring(first);
    memory.expect_rung(2);
}

TEST(Posting, AGroupRingsTheDoorbellForItsPublishedEntries) {
    SendMemory memory;
    rdma::publish_and_ring(kMe, memory.ref(), memory.filled());
    memory.expect_rung(1);
    rdma::publish_and_ring(kMe, memory.ref(), memory.filled(), false);
    EXPECT_EQ(memory.state.published, 2u);
    EXPECT_EQ(memory.record(), 1u) << "no doorbell may be rung unless it is requested";
    memory.ref().ring_bell();
    memory.expect_rung(2);
}

/// Completions that the test writes as the NIC does, and one receive queue.
struct CompletionMemory {
    static constexpr std::uint32_t kEntriesLog2 = 3, kEntries = 1u << kEntriesLog2;
    mlx5::Cqe64 ring[kEntries] = {};
    alignas(64) std::uint32_t consumer_record = 0;
    alignas(64) std::uint32_t records[2] = {};
    rdma::CompletionQueueState state{};
    rdma::ReceiveQueueState posted{};
    mlx5::DataSegment receives[kEntries] = {};
    alignas(16) std::byte buffers[kEntries * 16] = {};
    rdma::CompletionQueue nic{{.ring = ring, .entries = kEntries, .consumer_record = &consumer_record}};
    const rdma::CompletionQueueRef cq{ring, &consumer_record, &state, kEntriesLog2};
    const rdma::ReceiveQueueRef queue{receives, records, buffers, &posted, 16, 1, kEntriesLog2, 0x4321};
    std::uint32_t written = 0;

    CompletionMemory() {
        rdma::prepare_completions(cq);
        rdma::post_all_receives(queue);
    }
    void write(std::uint32_t completions) {
        for (; completions != 0; --completions, ++written) {
            const std::uint32_t message[4] = {0, 0, 0, written};
            rdma::CompletionFields fields;
            fields.qpn = queue.qpn;
            fields.wqe_counter = static_cast<std::uint16_t>(written);
            fields.opcode = mlx5::kCqeSend;
            fields.bytes = sizeof(message);
            fields.inline_data = reinterpret_cast<const std::byte*>(message);
            EXPECT_TRUE(nic.write(fields)) << "overrun at " << written;
        }
    }
    /// Everything that was written, in order, and nothing else.
    void expect_all() {
        std::vector<std::uint32_t> seen;
        while (seen.size() <= kEntries &&
               rdma::poll(kMe, cq, rdma::ReceiveSet{&queue, 1}, [&seen](const rdma::Arrival& arrival) {
                   seen.push_back(arrival.dw3);
               }).arrived != 0) {
        }
        ASSERT_EQ(taken + seen.size(), written) << "completions of an earlier lap, or not all of this one";
        for (const std::uint32_t message : seen) EXPECT_EQ(message, taken++);
        EXPECT_EQ(be32(consumer_record), written) << "the NIC is not told what it may use again";
        EXPECT_EQ(be32(records[mlx5::kReceiveRecord]), written + kEntries);
    }
    std::uint32_t taken = 0;
};

TEST(Polling, TakesTheCompletionsOfThisLapAndNoneOfThePreviousOne) {
    CompletionMemory memory;
    memory.expect_all();  // none yet
    for (const std::uint32_t completions : {3u, 5u, 0u, 2u, 1u, 8u, 0u, 7u, 4u, 6u}) {
        memory.write(completions);
        memory.expect_all();
        ASSERT_FALSE(HasFailure());
    }
}

#if defined(GN_TEST_WARPS)
TEST(Turns, OfTwoPostingLanesLeaveNoEntryUnpublishedOrWithoutADoorbell) {
    std::unique_ptr<SendMemory> memory;
    rdma::SendTicket first, second;
    const auto fresh = [&] { memory = std::make_unique<SendMemory>(); };
    const auto post = [&] { memory->publish_and_ring(memory->filled()); };
    at_every_atomic(fresh, post, post, [&] { memory->expect_rung(2); });
    const auto both = [&] {
        fresh();
        first = memory->filled();
        second = memory->filled();
    };
    const auto post_first = [&] { memory->publish_and_ring(first); };
    const auto post_second = [&] { memory->publish_and_ring(second); };
    at_every_atomic(both, post_first, post_second, [&] { memory->expect_rung(2); });
    at_every_atomic(both, post_second, post_first, [&] { memory->expect_rung(2); });
    // The one between them is not ready yet: nothing behind it goes out.
    rdma::SendTicket third;
    const auto three = [&] {
        both();
        third = memory->filled();
    };
    const auto post_third = [&] { memory->publish_and_ring(third); };
    const auto all = [&] {
        EXPECT_EQ(memory->state.published, 1u);
        EXPECT_EQ(memory->record(), 1u) << "the NIC is told of an entry that is not ready";
        post_second();
        memory->expect_rung(3);
    };
    at_every_atomic(three, post_first, post_third, all);
    at_every_atomic(three, post_third, post_first, all);
}

TEST(Turns, OfTheNicFindCompleteEntriesAndNoDoorbellBeforeItsRecord) {
    std::unique_ptr<SendMemory> memory;
    const auto fresh = [&] { memory = std::make_unique<SendMemory>(); };
    const auto look = [&] { memory->look(); };
    at_every_atomic(
        fresh,
        [&] {
            memory->publish_and_ring(memory->filled());
            memory->publish_and_ring(memory->filled());
        },
        look, [&] { memory->expect_rung(2); });
}
#endif

}  // namespace
}  // namespace gnstor::test
