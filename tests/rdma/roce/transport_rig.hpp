// transport_rig.hpp: a requester and a responder with one region of memory, whose packets the test carries.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "rdma/roce/connection.hpp"

namespace gnstor::rdma::roce::samples {

constexpr std::uint32_t kMtu = 1024, kKey = 7;
constexpr std::uint64_t kBase = 0x10000;

/// One region of 64 KiB under one key, and receives of 4 KiB.
struct Node : MemoryPort {
    std::vector<std::byte> memory = std::vector<std::byte>(65536);
    std::vector<std::vector<std::byte>> receives;
    std::size_t posted = 0, taken = 0;
    std::vector<Received> done;
    bool revoked = false;

    std::byte* reach(std::uint32_t rkey, std::uint64_t address, std::uint32_t bytes, Right) override {
        if (revoked || rkey != kKey || address < kBase || address - kBase > memory.size() ||
            bytes > memory.size() - (address - kBase)) {
            return nullptr;
        }
        return memory.data() + (address - kBase);
    }
    bool invalidate(std::uint32_t rkey) override { return rkey == kKey; }
    bool take_receive(ReceiveBuffer& receive) override {
        if (taken == posted) return false;
        receives.emplace_back(4096);
        receive = {taken++, {std::span(receives.back())}, 1};
        return true;
    }
    void received(const Received& one) override { done.push_back(one); }
};

struct Rig : testing::Test {
    static RequesterOptions out(std::uint32_t psn) {
        RequesterOptions options;
        options.peer_queue_pair = 2;
        options.mtu = kMtu;
        options.start_psn = psn;
        options.depth = 8;
        options.reads_max = 2;
        return options;
    }
    static ResponderOptions in(std::uint32_t psn) {
        ResponderOptions options;
        options.peer_queue_pair = 1;
        options.mtu = kMtu;
        options.start_psn = psn;
        options.reads_max = 2;
        return options;
    }
    void start(std::uint32_t psn) {
        requester = std::make_unique<Requester>(out(psn));
        responder = std::make_unique<Responder>(in(psn), node);
    }
    void SetUp() override { start(0xFFFFFE); }

    void post(RequestKind kind, std::uint32_t bytes, std::uint64_t address = kBase,
              std::uint32_t key = kKey) {
        buffers.emplace_back(bytes, std::byte{0x5A});
        Request request;
        request.kind = kind;
        request.id = buffers.size() - 1;
        request.pieces[0] = buffers.back();
        request.count = 1;
        request.address = address;
        request.rkey = key;
        request.invalidate_rkey = key;
        ASSERT_TRUE(requester->post(request).ok());
    }
    /// By a new connection.
    void send_where_no_receive_is(std::uint32_t retries) {
        RequesterOptions options = out(0xFFFFFE);
        options.rnr_retries = retries;
        requester = std::make_unique<Requester>(options);
        responder = std::make_unique<Responder>(in(0xFFFFFE), node);
        post(RequestKind::kSend, 10);
    }
    std::vector<Packet> requests(TimeNs now) {
        std::vector<Packet> all;
        for (Packet packet; requester->next_packet(now, packet);) all.push_back(packet);
        return all;
    }
    std::vector<Packet> answers(TimeNs now) {
        std::vector<Packet> all;
        for (Packet packet; responder->next_packet(now, packet);) all.push_back(packet);
        return all;
    }
    std::vector<mlx5::Syndrome> completions() {
        std::vector<mlx5::Syndrome> all;
        for (Completion completion; requester->next_completion(completion);) all.push_back(completion.status);
        return all;
    }
    void to_responder(TimeNs now, const std::vector<Packet>& packets) {
        for (const Packet& packet : packets) responder->on_request(now, packet);
    }
    void to_requester(TimeNs now, const std::vector<Packet>& packets) {
        for (const Packet& packet : packets) requester->on_response(now, packet);
    }
    static Packet acknowledge(std::uint32_t psn, std::uint8_t syndrome, std::uint32_t number = 0) {
        Packet packet;
        packet.opcode = Opcode::kAcknowledge;
        packet.psn = psn;
        packet.syndrome = syndrome;
        packet.message_number = number;
        return packet;
    }

    Node node;
    std::unique_ptr<Requester> requester;
    std::unique_ptr<Responder> responder;
    std::deque<std::vector<std::byte>> buffers;
    using Statuses = std::vector<mlx5::Syndrome>;
};

}  // namespace gnstor::rdma::roce::samples
