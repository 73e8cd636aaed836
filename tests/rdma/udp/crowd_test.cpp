// crowd_test.cpp: one peer takes all the connections that it gets of a wire; another still gets one, and the
// wire's own program still reaches others.
#include "rdma/udp/rig.hpp"
#include "rdma/wire/udp/driver_impl.hpp"
#include "support/count.hpp"

namespace gnstor::rdma::udp {
namespace {

/// While it leaves as many.
constexpr std::uint32_t kOfOnePeer = (kConnectionsMax - kOwnPlaces) / 2;

using rig::FakeAcceptor;
using rig::FakeEndpoint;
using rig::Pair;

TEST(Crowd, APeerWithAllAllowedConnectionsLeavesRoomForAnotherPeerAndOurOwn) {
    Pair pair;
    FakeAcceptor acceptor(*pair.right.reactor);
    acceptor.memory_bytes = 64;
    ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
    std::vector<std::unique_ptr<FakeEndpoint>> taken;
    std::optional<Error> refused;
    while (!refused && taken.size() <= kOfOnePeer) {
        taken.push_back(std::make_unique<FakeEndpoint>(*pair.left.reactor, 64));
        const auto connected = pair.connect(*taken.back(), static_cast<QpNumber>(100 + taken.size()));
        if (!connected.ok()) refused = connected.error();
        // One after the other, so that none of them is half open when the next comes.
        if (!refused) {
            ASSERT_NE(acceptor.await_link(taken.size() - 1), nullptr);
        }
    }
    ASSERT_TRUE(refused) << "it has " << taken.size() << " connections and was never refused";
    EXPECT_EQ(taken.size() - 1, kOfOnePeer);
    EXPECT_EQ(refused->code, Errc::kBusy) << refused->message;

    const auto reactor = Reactor::start("gn-test-third").value();
    UdpWireOptions options = pair.left_options;
    options.address = "127.0.0.4";
    auto third = Driver::open(options, *reactor).value();
    FakeEndpoint another(*reactor, 64);
    const auto connected =
        third->connect(7, another, pair.right_options.address, 4420, {}, LinkOptions{}, 30'000, another.link);
    EXPECT_TRUE(connected.ok()) << connected.error().message;

    FakeAcceptor there(*reactor);
    there.memory_bytes = 64;
    ASSERT_TRUE(third->listen(4421, there).ok());
    FakeEndpoint own(*pair.right.reactor, 64);
    const auto reached =
        pair.right.driver->connect(7, own, options.address, 4421, {}, LinkOptions{}, 30'000, own.link);
    EXPECT_TRUE(reached.ok()) << reached.error().message;
    own.close();
    another.close();
    third->unlisten(4421);
    for (const auto& one : taken) one->close();
    pair.right.driver->unlisten(4420);
    test::count("udp_crowd", taken.size());
}

}  // namespace
}  // namespace gnstor::rdma::udp
