// wrap_test.cpp: every index of the data path past its width, many times: 16-bit entry indices and doorbell
// records, 16-bit laps of ready marks, 24-bit consumer records. One lane, and completions written by hand.
#include <gtest/gtest.h>
#include <gnstor/rdma/poller.hpp>
#include <gnstor/rdma/poster.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

#include "rdma/nic/completion_queue.hpp"

namespace gnstor::rdma {
namespace {

const auto kMe = simt::self(simt::Lane{});
constexpr QpNumber kQpn = 0x4321;

/// A send queue without a NIC: the test executes nothing and completes what it likes.
struct SendMemory {
    static constexpr std::uint32_t kEntriesLog2 = 1;
    mlx5::SendEntry ring[1u << kEntriesLog2] = {};
    mlx5::Cqe64 completion{};
    SendQueueState state{};
    std::uint32_t ready[1u << kEntriesLog2] = {};
    alignas(64) std::uint32_t record[2] = {};
    std::uint64_t bell = 0;
    SendMemory() { completion.counter_own = mlx5::kInitialCounterOwn; }
    SendQueueRef ref() { return {ring, record, &bell, &completion, &state, ready, kEntriesLog2, kQpn}; }
    void complete(std::uint64_t index) {
        completion.counter_own =
            mlx5::make_counter_own(static_cast<std::uint16_t>(index), mlx5::kCqeRequest << 4);
    }
};

TEST(Wraps, EntryIndicesRecordsAndLapsOfASendQueue) {
    SendMemory memory;
    const SendQueueRef queue = memory.ref();
    const auto data = mlx5::make_data(0x1000, 64, 7);
    // Laps of two entries: 16 bits of laps wrap after 131072 entries, 16 bits of indices twice as often.
    constexpr std::uint64_t kEntries = 600'000;
    for (std::uint64_t index = 0; index < kEntries; ++index) {
        SendTicket ticket = queue.try_reserve();
        ASSERT_TRUE(ticket.granted()) << index;
        ASSERT_EQ(ticket.index, index);
        queue.fill_send(ticket, data);
        // Every third waits for the next one: published and rung together.
        const bool later = index % 3 == 1 && index + 1 < kEntries;
        if (later) {
            SendTicket second = queue.try_reserve();
            ASSERT_TRUE(second.granted());
            ASSERT_EQ(second.index, ++index);
            ASSERT_EQ(queue.try_reserve().outcome, SendOutcome::kFull);
            queue.fill_send(second, data);
            queue.publish(second);
            ASSERT_EQ(memory.state.published, index - 1) << "an entry overtook one that is not ready";
        }
        queue.publish(ticket);
        queue.ring_bell();
        ASSERT_EQ(memory.state.published, index + 1);
        ASSERT_EQ(be32(memory.record[mlx5::kSendRecord]), (index + 1) & 0xFFFF);
        ASSERT_EQ(mlx5::bell_index(memory.bell), index & 0xFFFF);
        ASSERT_EQ(mlx5::control_index(memory.ring[index % 2].control), index & 0xFFFF);
        memory.complete(index);
        ASSERT_EQ(queue.refresh_completed(), index + 1);
    }
    std::printf("  %llu entries through a send queue of two\n", static_cast<unsigned long long>(kEntries));
}

TEST(Wraps, ConsumerAndReceiveRecords) {
    constexpr std::uint32_t kEntriesLog2 = 4;
    constexpr std::uint32_t kEntries = 1u << kEntriesLog2;
    std::vector<mlx5::Cqe64> ring(kEntries);
    std::uint32_t consumer_record = 0;
    alignas(64) std::uint32_t receive_record[2] = {};
    CompletionQueueState state{};
    ReceiveQueueState posted{};
    std::vector<mlx5::DataSegment> receives(kEntries);
    alignas(16) std::byte buffers[kEntries * 16];
    CompletionQueue nic({.ring = ring.data(), .entries = kEntries, .consumer_record = &consumer_record});
    const CompletionQueueRef cq{ring.data(), &consumer_record, &state, kEntriesLog2};
    const ReceiveQueueRef queue{receives.data(), receive_record, buffers, &posted, 16, 1, kEntriesLog2, kQpn};
    prepare_completions(cq);
    post_all_receives(queue);
    constexpr std::uint64_t kCompletions = (1ull << 24) + (1ull << 18);
    std::uint64_t written = 0;
    std::uint64_t seen = 0;
    std::uint64_t wrong = 0;
    while (seen < kCompletions) {
        while (written < seen + kEntries - written % 3) {  // as full as it gets, and less
            const std::uint32_t message[4] = {0, 0, 0, static_cast<std::uint32_t>(written)};
            CompletionFields fields;
            fields.qpn = kQpn;
            fields.wqe_counter = static_cast<std::uint16_t>(written);
            fields.opcode = mlx5::kCqeSend;
            fields.bytes = sizeof(message);
            fields.inline_data = reinterpret_cast<const std::byte*>(message);
            ASSERT_TRUE(nic.write(fields)) << "overrun at " << written;
            ++written;
        }
        (void)poll(kMe, cq, ReceiveSet{&queue, 1}, [&](const Arrival& arrival) {
            wrong += arrival.dw3 != static_cast<std::uint32_t>(seen) || arrival.queue != 0 ? 1 : 0;
            ++seen;
        });
        ASSERT_EQ(wrong, 0u) << "by completion " << seen;
        ASSERT_EQ(be32(consumer_record), seen & 0xFFFFFF);
        ASSERT_EQ(be32(receive_record[mlx5::kReceiveRecord]), (seen + kEntries) & 0xFFFF);
    }
    while (written < seen + kEntries) {
        CompletionFields fields;
        ASSERT_TRUE(nic.write(fields));
        ++written;
    }
    EXPECT_FALSE(nic.write(CompletionFields{}))
        << "one more than the queue holds is an overrun, after the wrap too";
    std::printf("  %llu completions through a queue of %u\n", static_cast<unsigned long long>(seen),
                kEntries);
}

}  // namespace
}  // namespace gnstor::rdma
