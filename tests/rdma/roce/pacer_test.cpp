// pacer_test.cpp: peers that ask for many megabytes at once, behind a queue that holds a thousand packets.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "rdma/roce/connection.hpp"
#include "rdma/roce/pacer.hpp"
#include "support/count.hpp"

using namespace gnstor;
using namespace gnstor::rdma::roce;

namespace {

constexpr std::uint32_t kMtu = 4096, kKey = 7, kReadBytes = 256 * 1024;
constexpr std::size_t kQueuePackets = 1000;
constexpr TimeNs kTick = 10'000, kPatience = 60'000'000'000;
constexpr std::uint32_t kPacketsATick = 10;  // the sender's own speed: 4 GB/s

struct Memory final : MemoryPort {
    std::vector<std::byte> bytes = std::vector<std::byte>(kReadBytes);
    std::byte* reach(std::uint32_t rkey, std::uint64_t address, std::uint32_t size, Right) override {
        return rkey == kKey && address + size <= bytes.size() ? bytes.data() + address : nullptr;
    }
    bool invalidate(std::uint32_t) override { return true; }
    bool take_receive(ReceiveBuffer& receive) override {
        receive = {0, {std::span(bytes)}, 1};
        return true;
    }
    void received(const Received&) override {}
};

/// A peer that reads `reads` times 256 KiB, as many at once as its window has room for.
struct Reader {
    Reader(std::uint32_t window_packets, std::uint32_t reads_at_once, std::uint32_t count, Pacer* pacer)
        : left(count) {
        RequesterOptions out;
        out.mtu = kMtu;
        out.depth = out.reads_max = reads_at_once;
        out.window_packets = window_packets;
        out.ack_timeout_ns = 500'000'000;
        requester = std::make_unique<Requester>(out);
        ResponderOptions in;
        in.mtu = kMtu;
        in.reads_max = reads_at_once;
        in.pacer = pacer;
        responder = std::make_unique<Responder>(in, memory);
    }
    /// Requests travel at once.
    void ask(TimeNs now) {
        for (Completion completion; requester->next_completion(completion);) {
            EXPECT_EQ(completion.status, rdma::mlx5::kSyndromeNone);
            ++done;
        }
        for (; left > 0 && !requester->full(); --left) {
            Request read;
            read.kind = RequestKind::kRead;
            read.pieces[0] = std::span(into);
            read.count = 1;
            read.rkey = kKey;
            EXPECT_TRUE(requester->post(read).ok());
        }
        requester->on_time(now);
        for (Packet packet; requester->next_packet(now, packet);) responder->on_request(now, packet);
    }
    Memory memory;
    std::vector<std::byte> into = std::vector<std::byte>(kReadBytes);
    std::unique_ptr<Requester> requester;
    std::unique_ptr<Responder> responder;
    std::uint32_t left, done = 0;
};

struct Outcome {
    TimeNs took = 0;
    std::uint64_t sent = 0, dropped = 0;
    [[nodiscard]] double seconds() const { return static_cast<double>(took) / 1e9; }
};

struct Load {
    std::uint32_t readers = 4, window_packets = 4096, at_once = 16, reads = 16;
    std::uint64_t bytes_a_second = 100'000'000;  ///< of the slowest part of the way
    bool paced = true;
    [[nodiscard]] double ideal() const {
        return static_cast<double>(readers) * reads * kReadBytes / static_cast<double>(bytes_a_second);
    }
};

Outcome run(const Load& load, Pacer& pacer) {
    std::vector<std::unique_ptr<Reader>> readers;
    for (std::uint32_t i = 0; i < load.readers; ++i)
        readers.push_back(std::make_unique<Reader>(load.window_packets, load.at_once, load.reads,
                                                   load.paced ? &pacer : nullptr));
    std::deque<std::pair<Reader*, Packet>> queue;
    Outcome out;
    std::uint64_t may_leave = 0;  // bytes
    for (TimeNs now = 1; now < kPatience; now += kTick) {
        bool all = true;
        for (const auto& reader : readers) {
            reader->ask(now);
            all = all && reader->done == load.reads;
        }
        if (all) {
            out.took = now;
            return out;
        }
        bool more = true;
        for (std::uint32_t sent = 0; more && sent < kPacketsATick;) {
            more = false;
            for (const auto& reader : readers) {
                Packet packet;
                if (!reader->responder->next_packet(now, packet)) continue;
                more = true;
                ++sent;
                ++out.sent;
                if (queue.size() < kQueuePackets)
                    queue.emplace_back(reader.get(), packet);
                else
                    ++out.dropped;
            }
        }
        may_leave = queue.empty() ? 0 : may_leave + load.bytes_a_second / (1'000'000'000 / kTick);
        for (; !queue.empty() && may_leave >= kMtu; may_leave -= kMtu) {
            queue.front().first->requester->on_response(now, queue.front().second);
            queue.pop_front();
        }
    }
    ADD_FAILURE() << "the transfer does not end";
    return out;
}

void say(const char* what, const Load& load, const Outcome& out) {
    std::printf("%s, %llu MB/s: %.0f ms (at best %.0f), %llu of %llu packets dropped\n", what,
                static_cast<unsigned long long>(load.bytes_a_second / 1'000'000), out.seconds() * 1e3,
                load.ideal() * 1e3, static_cast<unsigned long long>(out.dropped),
                static_cast<unsigned long long>(out.sent));
}

TEST(RocePacer, ConcurrentReadsOfMegabytesOverrunNoQueueInTheNetwork) {
    for (const std::uint64_t speed : {80'000'000u, 100'000'000u, 400'000'000u}) {
        Load load;
        load.bytes_a_second = speed;
        Pacer pacer, unused;
        const Outcome paced = run(load, pacer);
        say("paced", load, paced);
        EXPECT_EQ(paced.dropped, 0u);
        EXPECT_LT(paced.seconds(), 0.3) << "16 MiB, at the first rate";
        load.paced = false;
        const Outcome burst = run(load, unused);
        say("unpaced", load, burst);
        EXPECT_GT(burst.dropped, 1000u) << "the unpaced load overran no queue, so the test covers nothing";
        gnstor::test::count("roce_paced_packets", paced.sent);
    }
}

TEST(RocePacer, TheBandwidthOfThePathIsFoundAndKept) {
    for (const std::uint64_t speed : {20'000'000u, 100'000'000u, 300'000'000u, 1'000'000'000u}) {
        Load load;
        load.bytes_a_second = speed;
        load.reads = speed < 50'000'000 ? 60 : 400;
        Pacer pacer;
        const Outcome out = run(load, pacer);
        say("found", load, out);
        EXPECT_LT(out.dropped * 25, out.sent) << "more than 4 %";
        EXPECT_LT(out.seconds(), load.ideal() * 2 + 0.2);
        gnstor::test::count("roce_paced_packets", out.sent);
    }
}

TEST(RocePacer, TheFullBandwidthOfThePathIsEventuallyUsed) {
    Load load;
    load.reads = 400;
    load.bytes_a_second = 2'000'000'000;
    Pacer pacer;
    const Outcome out = run(load, pacer);
    EXPECT_LT(out.seconds(), load.ideal() * 1.5 + 0.1);
    EXPECT_GE(pacer.rate(), 1'000'000'000u);
}

TEST(RocePacer, ARequesterThatReadsOnlyWhatItCanBufferIsNotSlowedDown) {
    Load load;
    load.window_packets = 64 * 1024 / kMtu;
    load.reads = 100;
    load.bytes_a_second = 2'000'000'000;
    Pacer pacer, unused;
    const Outcome paced = run(load, pacer);
    load.paced = false;
    EXPECT_EQ(paced.took, run(load, unused).took);
    EXPECT_EQ(paced.dropped, 0u);
}

TEST(RocePacer, ResponsesBehindAPacedReadWaitForItAndAreThenSent) {
    Pacer pacer;
    Reader reader(4096, 4, 2, &pacer);
    Request send;
    reader.ask(1);
    std::vector<std::byte> word(64);
    send.pieces[0] = std::span(word);
    send.count = 1;
    ASSERT_TRUE(reader.requester->post(send).ok());
    reader.ask(1);
    TimeNs now = 1;
    Packet packet;
    std::uint32_t responses = 0, held_back = 0;
    for (bool acknowledged = false; !acknowledged;) {
        ASSERT_LT(now, kPatience);
        if (!reader.responder->next_packet(now, packet)) {
            ++held_back;
            ASSERT_GT(reader.responder->next_deadline(), now)
                << "the responder has no deadline at which it would send the rest";
            ASSERT_NE(reader.responder->next_deadline(), kNever);
            now = reader.responder->next_deadline();
            continue;
        }
        acknowledged = packet.opcode == Opcode::kAcknowledge;
        responses += acknowledged ? 0 : 1;
    }
    EXPECT_EQ(responses, 2 * kReadBytes / kMtu);
    EXPECT_GT(held_back, 10u);
    const double rate = 2.0 * kReadBytes / (static_cast<double>(now) / 1e9);
    EXPECT_LT(rate, 2.0 * static_cast<double>(PacerOptions{}.rate_first));
}

}  // namespace
