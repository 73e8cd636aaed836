// half_open_test.cpp: connections that their peers leave half made, and queue pairs that the NIC is not done
// with: the target's one control thread waits for neither, and nothing of them is left.
#include "loop_rig.hpp"
#include "rdma/udp/raw_peer.hpp"
#include "stock_host.hpp"

namespace gnstor::nvmf {
namespace {

using rdma::udp::rig::RawPeer;

constexpr std::uint16_t kRocePort = 47912;
/// Longer than any wait of this test: what waits for a queue pair so long has failed.
constexpr std::uint32_t kForEverMs = 200'000;

struct Sink final : rdma::MessageSink {
    void on_message(const rdma::InboundMessage&) override {}
    void on_error(rdma::QpNumber) override {}
};

/// How many more queue pairs the NIC has room for. (Which number comes next is random on the udp wire.)
std::size_t free_places(rdma::SoftNic& nic) {
    Sink sink;
    std::vector<rdma::QpNumber> all;
    for (auto qp = nic.create_offload_queue_pair(sink); qp.ok(); qp = nic.create_offload_queue_pair(sink))
        all.push_back(*qp);
    for (const rdma::QpNumber qp : all) EXPECT_TRUE(nic.destroy_queue_pair(qp).ok());
    return all.size();
}

/// A drive behind a target on a NIC.
struct Node {
    explicit Node(rdma::SoftNic& nic, Reactor& reactor, const std::string& service) {
        ssd::DriveOptions options;
        options.capacity_bytes = 64u << 20;
        drive = ssd::Drive::open(options, reactor).value();
        const SubsystemConfig subsystems[] = {
            {.device = drive.get(), .nqn = "", .service = service, .drive_reactor = &reactor}};
        TargetOptions t;
        t.now_ns = [this] { return clock_ns.load(); };
        target = Target::open(nic, subsystems, t).value();
    }
    /// The time in which a connection must have shown its Connect is over.
    void let_connect_time_pass() {
        clock_ns += 6 * kSecond;
        target->check_time();
    }
    [[nodiscard]] HostOptions host(const std::string& address, const std::string& service) const {
        HostOptions o;
        o.peer_address = address;
        o.service = service;
        o.subsystem_nqn = target->subsystem_nqn(0);
        o.host_nqn = client_host_nqn(kWriter);
        o.host_id = {1, 2, 3, 4};
        o.keep_alive_ms = 0;
        o.timeout_ms = 30'000;  // less than a MRA was good for, 60 s
        return o;
    }
    std::atomic<std::uint64_t> clock_ns{1};
    std::unique_ptr<ssd::Drive> drive;
    std::unique_ptr<Target> target;
};

// The peer answers the REP with "wait" for as long as it is asked for: its place, its queue pair and the
// control thread's time are not its own.
TEST(HalfOpen, APeerThatKeepsAskingForMoreTimeHoldsNeitherTheControlThreadNorAQueuePair) {
    const auto reactor = Reactor::start("node").value();
    const auto host_reactor = Reactor::start("host").value();
    const std::string here = gnstor::test::loopback_address(3), there = gnstor::test::loopback_address(2);
    const auto wire = rdma::UdpWire::open({.address = here, .port = kRocePort}, *reactor).value();
    const auto host_wire = rdma::UdpWire::open({.address = there, .port = kRocePort}, *host_reactor).value();
    const auto nic = rdma::open_udp_nic(*wire, {.strict = true, .quiesce_timeout_ms = kForEverMs}).value();
    const auto host_nic = rdma::open_udp_nic(*host_wire, {.strict = true}).value();
    const std::size_t free = free_places(*nic);
    {
        Node node(*nic, *reactor, "4420");
        RawPeer peer(gnstor::test::loopback_address(66), kRocePort, here, kRocePort);
        peer.send(RawPeer::request(77, 9, transport_request_data(0, 32, 0)));
        const auto reply = peer.await(rdma::roce::CmKind::kReply);
        ASSERT_TRUE(reply) << "the target accepts it";
        peer.send(RawPeer::patience(*reply));
        // On a machine that stood still for 4.5 s it has been given up, and then the peer is told.
        ASSERT_TRUE(node.target->connections_open() == 1 || peer.await(rdma::roce::CmKind::kReject));
        node.let_connect_time_pass();
        // Others are served meanwhile, and what was left half made goes without its peer's leave.
        const auto honest = HostController::connect(*host_nic, node.host(here, "4420"));
        EXPECT_TRUE(honest.ok()) << honest.error().message;
        EXPECT_TRUE(eventually([&] { return node.target->connections_open() == (honest.ok() ? 1u : 0u); }));
    }
    EXPECT_EQ(free_places(*nic), free) << "the ended connections must leave no queue pair allocated";
}

// A message is on a slow link when its connection fails, so the NIC says "busy" at once: the connection stays
// until the queue pair, whose sink it is, can go.
TEST(HalfOpen, ABusyQueuePairIsRetriedAndItsConnectionIsKeptUntilItEnds) {
    const auto reactor = Reactor::start("node").value();
    Reactor* const reactors[] = {reactor.get()};
    rdma::LoopWire wire;
    const auto nic =
        rdma::SoftNic::open(wire, "node",
                            {.strict = true,
                             .quiesce_timeout_ms = 1,
                             .link = {.to_node = {.bytes_per_second = 1e9, .latency_ns = kSecond},
                                      .from_node = {.bytes_per_second = 1e9, .latency_ns = 0}}},
                            reactors)
            .value();
    const auto host_nic = rdma::SoftNic::open(wire, "host", {.strict = true}, reactors).value();
    const std::size_t free = free_places(*nic);
    Node node(*nic, *reactor, "4420");
    {
        StockQueue queue(*host_nic, kStockAdminEntries);
        ASSERT_TRUE(queue.queue()
                        .connect("node", "4420", transport_request_data(0, kStockAdminEntries, 0), 100'000)
                        .ok());
        nvme::Command command = stock_command(0x18);
        queue.post(command);
        ASSERT_TRUE(eventually([&] { return host_nic->counters().sends == 1; }));
        node.let_connect_time_pass();
        EXPECT_TRUE(eventually([&] { return node.target->connections_open() == 0; }));
        EXPECT_EQ(free_places(*nic), free) << "a queue pair is still allocated without its connection";
    }
}

}  // namespace
}  // namespace gnstor::nvmf
