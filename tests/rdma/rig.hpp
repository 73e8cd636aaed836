// rig.hpp: queue memory, lanes and sinks for the tests of rdma/. Test code.
#pragma once

#include "rdma/nic/nic_memory.hpp"
#include "rdma/wire/loop/loop_wire.hpp"
#include "rdma/wire/loop/soft_nic.hpp"

#include <gnstor/rdma/poller.hpp>
#include <gnstor/rdma/poster.hpp>
#include <gnstor/simt/time.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace gnstor::rdma::test {

inline std::uint64_t seed_from_environment(std::uint64_t otherwise) {
    const char* text = std::getenv("GN_SEED");
    return text != nullptr ? std::strtoull(text, nullptr, 0) : otherwise;
}

inline simt::Lane single_lane() {
    return simt::Lane{};
}

/// Waits for a condition, with a deadline far above what any machine needs.
template <class Condition>
[[nodiscard]] bool eventually(Condition condition, std::uint64_t seconds = 60) {
    const auto deadline = simt::Deadline::in_ns(seconds * 1'000'000'000u);
    std::uint32_t backoff = 0;
    while (!condition()) {
        if (deadline.passed()) return false;
        simt::pause(backoff);
    }
    return true;
}

template <class T>
T must(Result<T> result) {
    EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
    return std::move(result).value();
}
inline void must(const Result<void>& result) {
    EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
}

/// What a NIC is told of, in one block; each part begins at a line of its own.
class Block {
  public:
    Block(Nic& nic, std::size_t bytes) : memory_(must(NicMemory::map(nic, bytes))) {}
    template <class T>
    T* take(std::size_t count) {
        T* const at = reinterpret_cast<T*>(memory_.data() + used_);
        used_ += (count * sizeof(T) + 63) / 64 * 64;
        EXPECT_LE(used_, memory_.size());
        return at;
    }

  private:
    NicMemory memory_;
    std::size_t used_ = 0;
};

/// A receive completion queue that several ends share.
struct ReceiveCq {
    ReceiveCq(Nic& owner, std::uint32_t entries_log2)
        : nic(owner), block(owner, (std::size_t{64} << entries_log2) + 64) {
        const std::uint32_t entries = 1u << entries_log2;
        ring = block.take<mlx5::Cqe64>(entries);
        record = block.take<std::uint32_t>(4);
        state = std::make_unique<CompletionQueueState>();
        number = must(nic.create_completion_queue({ring, entries, record, false}));
        ref = {ring, record, state.get(), entries_log2};
        prepare_completions(ref);
    }
    ~ReceiveCq() { must(nic.destroy_completion_queue(number)); }
    Nic& nic;
    Block block;
    mlx5::Cqe64* ring = nullptr;
    std::uint32_t* record = nullptr;
    std::unique_ptr<CompletionQueueState> state;
    CqNumber number;
    CompletionQueueRef ref{};
};

struct EndOptions {
    std::uint32_t send_log2 = 4;
    std::uint32_t receive_log2 = 4;
    std::uint32_t buffer_bytes = 64;
    bool scatter = true;
    bool post = true;
};

/// A plain queue pair with all of its memory, one registered region for receive buffers and another for
/// payload.
struct End {
    End(Nic& owner, ReceiveCq& receives, EndOptions o = {}, std::size_t payload_bytes = 1 << 16,
        std::uint32_t access = kLocalWrite | kRemoteRead | kRemoteWrite)
        : nic(owner),
          options(o),
          block(owner, (std::size_t{64} << o.send_log2) +
                           (std::size_t{16 + o.buffer_bytes} << o.receive_log2) + payload_bytes + 512) {
        const std::uint32_t sends = 1u << o.send_log2;
        const std::uint32_t count = 1u << o.receive_log2;
        send_ring = block.take<mlx5::SendEntry>(sends);
        send_completion = block.take<mlx5::Cqe64>(1);
        receive_ring = block.take<mlx5::DataSegment>(count);
        words = block.take<std::uint64_t>(2);
        buffers = {block.take<std::byte>(std::size_t{count} * o.buffer_bytes),
                   std::size_t{count} * o.buffer_bytes};
        payload = {block.take<std::byte>(payload_bytes), payload_bytes};
        ready = std::make_unique<std::uint32_t[]>(sends);
        send_state = std::make_unique<SendQueueState>();
        receive_state = std::make_unique<ReceiveQueueState>();
        buffer_keys = must(nic.register_memory(buffers.data(), buffers.size(), kLocalWrite));
        keys = must(nic.register_memory(payload.data(), payload.size(), access));
        send_cq = must(nic.create_completion_queue({send_completion, 1, nullptr, true}));
        auto* const record = reinterpret_cast<std::uint32_t*>(&words[1]);
        QueuePairConfig config{};
        config.send_ring = send_ring;
        config.send_entries = sends;
        config.receive_ring = receive_ring;
        config.receive_entries = count;
        config.doorbell_record = record;
        config.bell = &words[0];
        config.send_cq = send_cq;
        config.receive_cq = receives.number;
        config.scatter_to_cqe = o.scatter;
        qpn = must(nic.create_queue_pair(config));
        send = {send_ring,        record,      &words[0],   send_completion,
                send_state.get(), ready.get(), o.send_log2, qpn};
        receive = {receive_ring,   record,           buffers.data(), receive_state.get(),
                   o.buffer_bytes, buffer_keys.lkey, o.receive_log2, qpn};
        if (o.post) post_all_receives(receive);
    }
    ~End() {
        must(nic.destroy_queue_pair(qpn));
        must(nic.destroy_completion_queue(send_cq));
        must(nic.deregister_memory(keys));
        must(nic.deregister_memory(buffer_keys));
    }
    End(const End&) = delete;
    End& operator=(const End&) = delete;

    /// The lanes' side of reset_queue_pair.
    void restart() {
        *send_state = SendQueueState{};
        *receive_state = ReceiveQueueState{};
        std::fill_n(ready.get(), send.entries(), 0u);
        post_all_receives(receive);
    }
    [[nodiscard]] mlx5::DataSegment data(std::size_t offset, std::uint32_t bytes) const {
        return mlx5::make_data(reinterpret_cast<std::uint64_t>(payload.data() + offset), bytes, keys.lkey);
    }
    /// Fills, publishes, rings one entry and waits for its completion (or error). Returns the syndrome.
    template <class Fill>
    mlx5::Syndrome post_and_wait(Fill fill) {
        SendTicket ticket;
        EXPECT_TRUE(eventually([&] {
            ticket = send.try_reserve();
            return ticket.granted();
        }));
        fill(ticket);
        send.publish(ticket);
        send.ring_bell();
        EXPECT_TRUE(eventually([&] { return send.refresh_completed() > ticket.index || send.broken(); }));
        return send.broken() ? send.syndrome() : mlx5::kSyndromeNone;
    }

    Nic& nic;
    EndOptions options;
    Block block;
    mlx5::SendEntry* send_ring = nullptr;
    mlx5::Cqe64* send_completion = nullptr;
    mlx5::DataSegment* receive_ring = nullptr;
    std::uint64_t* words = nullptr;  ///< bell, doorbell record
    std::span<std::byte> buffers;
    std::span<std::byte> payload;
    std::unique_ptr<std::uint32_t[]> ready;
    std::unique_ptr<SendQueueState> send_state;
    std::unique_ptr<ReceiveQueueState> receive_state;
    MemoryKeys buffer_keys{};
    MemoryKeys keys{};
    CqNumber send_cq = 0;
    QpNumber qpn = 0;
    SendQueueRef send{};
    ReceiveQueueRef receive{};
};

/// Accepts every connection with a queue pair that the test gives.
struct Acceptor : Listener {
    std::function<ConnectReply(const ConnectRequest&)> answer;
    ConnectReply on_connect(const ConnectRequest& request) override { return answer(request); }
};

/// Connects two fresh queue pairs.
constexpr char kService[] = "4420";
inline void join(Nic& from_nic, QpNumber from, SoftNic& to_nic, QpNumber to) {
    Acceptor acceptor;
    acceptor.answer = [to](const ConnectRequest&) {
        ConnectReply reply;
        reply.accept = true;
        reply.qp = to;
        reply.messages = 16;
        reply.message_bytes = 8192;
        return reply;
    };
    must(to_nic.listen(kService, acceptor));
    (void)must(from_nic.connect(from, to_nic.address(), kService, {}, 10'000));
    // On the udp wire the end that accepts hears of it a packet later.
    EXPECT_TRUE(eventually([&] { return to_nic.state(to) != QpState::kReset; }));
    to_nic.unlisten(kService);
}

/// What arrived, copied out of the visitor.
struct Received {
    std::uint32_t queue;
    std::uint8_t opcode;
    std::uint8_t syndrome;
    std::uint32_t bytes;
    std::uint32_t dw3;
    std::uint32_t invalidated;
    bool inline_data;
    std::vector<std::byte> message;
};
inline std::vector<Received> reap(const ReceiveCq& cq, const ReceiveSet& set) {
    std::vector<Received> out;
    const PollResult result = poll(simt::self(single_lane()), cq.ref, set, [&](const Arrival& a) {
        Received r{a.queue, a.opcode, a.syndrome, 0, a.dw3, 0, false, {}};
        if (!a.is_error()) {
            r.bytes = a.bytes();
            r.invalidated = a.invalidated_rkey();
            r.inline_data = a.is_inline();
            r.message.resize(r.bytes);
            std::memcpy(r.message.data(), a.message, r.bytes);
        }
        out.push_back(std::move(r));
    });
    EXPECT_TRUE(result.taken);
    EXPECT_EQ(result.arrived, out.size());
    return out;
}

}  // namespace gnstor::rdma::test
