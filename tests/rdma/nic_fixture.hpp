// nic_fixture.hpp: two NICs on one wire, connected pairs of queue pairs, and a sink that keeps messages.
#pragma once

#include "rdma/rig.hpp"
#include "rdma/wire/shm/shm_nic.hpp"
#include "rdma/wire/shm/shm_server.hpp"
#include "rdma/wire/udp/udp_wire.hpp"
#include "support/loopback.hpp"

#include <unistd.h>

#include <filesystem>

#include <functional>
#include <thread>

namespace gnstor::rdma::test {

/// What lies between the two NICs of NicTest.
enum class TestWire : std::uint8_t {
    kLoop,
    kUdp,       ///< packets
    kShm,       ///< the first NIC is a client of the second one's process
    kShmNodes,  ///< the same, of a process that might be one of several
};
/// Of this program: each defines it in one of its sources.
extern const TestWire kTestWire;

constexpr std::uint16_t kTestRocePort = 47911;  // 4791 may belong to a kernel RoCE device

/// Keeps what it is told; lets go when asked to.
struct KeepingSink : MessageSink {
    void on_message(const InboundMessage& message) override {
        const std::lock_guard lock(mutex);
        messages.push_back(message);
        for (std::uint32_t i = 0; i < message.segment_count; ++i)
            bytes.insert(bytes.end(), message.segments[i].data,
                         message.segments[i].data + message.segments[i].bytes);
    }
    void on_error(QpNumber) override {
        const std::lock_guard lock(mutex);
        ++errors;
        if (let_go_on_error != nullptr)
            for (const InboundMessage& m : messages) let_go_on_error->release(m.qp, m.token);
    }
    std::size_t count() {
        const std::lock_guard lock(mutex);
        return messages.size();
    }
    std::mutex mutex;
    std::vector<InboundMessage> messages;
    std::vector<std::byte> bytes;
    std::uint32_t errors = 0;
    SoftNic* let_go_on_error = nullptr;
};

class NicTest : public ::testing::Test {
  protected:
    void SetUp() override {
        reactor_a = must(Reactor::start("a"));
        reactor_b = must(Reactor::start("b"));
        NicOptions options;
        options.strict = strict;
        options.seed = seed_from_environment(7);
        switch (kTestWire) {
            case TestWire::kLoop:
                open_on_loop(options);
                break;
            case TestWire::kUdp:
                open_on_udp(options);
                break;
            case TestWire::kShm:
            case TestWire::kShmNodes:
                open_on_shm(options);
                break;
        }
        cq_a = std::make_unique<ReceiveCq>(*a, 6);
        cq_b = std::make_unique<ReceiveCq>(*b, 6);
    }
    void open_on_loop(const NicOptions& options) {
        Reactor* const ra[] = {reactor_a.get()};
        Reactor* const rb[] = {reactor_b.get()};
        a = must(SoftNic::open(wire, "node-a", options, ra));
        b = must(SoftNic::open(wire, "node-b", options, rb));
    }
    void open_on_udp(const NicOptions& options) {
        udp_a = must(
            UdpWire::open({.address = gnstor::test::loopback_address(2), .port = kTestRocePort}, *reactor_a));
        udp_b = must(
            UdpWire::open({.address = gnstor::test::loopback_address(3), .port = kTestRocePort}, *reactor_b));
        a = must(open_udp_nic(*udp_a, options));
        b = must(open_udp_nic(*udp_b, options));
    }
    void open_on_shm(const NicOptions& options) {
        Reactor* const rb[] = {reactor_b.get()};
        b = must(SoftNic::open(wire, "node-b", options, rb));
        const auto path =
            std::filesystem::temp_directory_path() / ("gnstor-nic-" + std::to_string(::getpid()));
        server = must(ShmServer::start(wire, rb, {.path = path, .node = "node-b", .strict = strict}));
        if (kTestWire == TestWire::kShmNodes)
            a = must(open_shm_nic({{"node-b", [path] { return Result(ShmNode::Place{path}); }}}));
        else
            a = must(open_shm_nic(path));
    }
    void TearDown() override {
        ends.clear();
        cq_a.reset();
        cq_b.reset();
        a.reset();
        server.reset();
        b.reset();
    }
    std::pair<End*, End*> connected_pair(EndOptions oa = {}, EndOptions ob = {}) {
        End& x = *ends.emplace_back(std::make_unique<End>(*a, *cq_a, oa));
        End& y = *ends.emplace_back(std::make_unique<End>(*b, *cq_b, ob));
        join(*a, x.qpn, *b, y.qpn);
        return {&x, &y};
    }
    bool strict = true;
    std::unique_ptr<Reactor> reactor_a, reactor_b;
    LoopWire wire;
    std::unique_ptr<UdpWire> udp_a, udp_b;
    std::unique_ptr<ShmServer> server;
    std::unique_ptr<Nic> a;
    std::unique_ptr<SoftNic> b;
    std::unique_ptr<ReceiveCq> cq_a, cq_b;
    std::vector<std::unique_ptr<End>> ends;

    std::vector<Received> wait_arrivals(ReceiveCq& cq, const ReceiveSet& set, std::size_t wanted) {
        std::vector<Received> all;
        EXPECT_TRUE(eventually([&] {
            for (Received& r : reap(cq, set)) all.push_back(std::move(r));
            return all.size() >= wanted;
        }));
        return all;
    }
};

}  // namespace gnstor::rdma::test
