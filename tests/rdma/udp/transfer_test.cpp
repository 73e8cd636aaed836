// What goes over a connection arrives: every kind of request, every size around the MTU, both ways, at
// random.
#include <algorithm>

#include "rdma/udp/rig.hpp"
#include "support/count.hpp"

namespace gnstor::rdma::udp {
namespace {

using rig::FakeAcceptor;
using rig::FakeEndpoint;
using rig::Pair;
using roce::RequestKind;

/// Sizes around the boundaries of packets.
std::vector<std::uint32_t> sizes_around(std::uint32_t mtu) {
    std::vector<std::uint32_t> sizes{0, 1, 2, 3, 4, 5, 63, 64, 65, 511, 512, 513};
    for (const std::uint32_t packets : {1u, 2u, 3u, 16u, 17u}) {
        for (int by = -5; by <= 5; ++by) sizes.push_back(packets * mtu + static_cast<std::uint32_t>(by));
    }
    return sizes;
}

/// One end of a connection, to be driven against the other.
struct End {
    FakeEndpoint* own;
    FakeEndpoint* other;
    std::uint64_t id = 0;
    std::uint64_t awaited = 0;

    void run(const roce::Request& request) {
        const auto posted = own->post(request);
        ASSERT_TRUE(posted.ok()) << posted.error().message;
        ASSERT_TRUE(own->await_completions(++awaited)) << "request " << request.id << " did not complete";
        const std::lock_guard lock(own->mutex);
        ASSERT_TRUE(own->bad.empty()) << "status " << static_cast<int>(own->bad.front().status);
    }
};

void check_all_sizes(End end, std::uint32_t mtu) {
    std::vector<std::byte> bytes(18 * mtu), memory(end.other->memory.size());
    std::uint64_t seed = 100;
    std::uint64_t messages = 0;
    std::vector<std::byte> message;
    end.other->reactor.run([&] {
        end.other->on_message = [&](std::span<const std::byte> what) {
            message.assign(what.begin(), what.end());
        };
    });
    for (const std::uint32_t size : sizes_around(mtu)) {
        SCOPED_TRACE(fmt::format("{} bytes, MTU {}", size, mtu));
        const auto part = std::span(bytes).first(size);
        rig::fill(part, ++seed);
        end.run(rig::request(RequestKind::kWrite, ++end.id, part, 4096 + size));
        bool written = false;
        end.other->reactor.run(
            [&] { written = rig::holds(std::span(end.other->memory).subspan(4096 + size, size), seed); });
        EXPECT_TRUE(written);
        std::fill(part.begin(), part.end(), std::byte{0});
        end.run(rig::request(RequestKind::kRead, ++end.id, part, 4096 + size));
        EXPECT_TRUE(rig::holds(part, seed));
        end.run(rig::request(RequestKind::kSend, ++end.id, part));
        ++messages;
        ASSERT_TRUE(end.other->await([&] { return end.other->messages == messages; }));
        bool same = false;
        end.other->reactor.run(
            [&] { same = std::equal(message.begin(), message.end(), part.begin(), part.end()); });
        EXPECT_TRUE(same);
    }
    end.other->reactor.run([&] { end.other->on_message = nullptr; });
}

class Transfer : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(Transfer, EveryKindAndSizeArrivesBothWays) {
    const std::uint32_t mtu = GetParam();
    Pair pair(mtu, mtu);
    FakeAcceptor acceptor(*pair.right.reactor);
    acceptor.receives = 32;
    acceptor.receive_bytes = 20 * mtu;
    ASSERT_TRUE(pair.right.driver->listen(4420, acceptor).ok());
    FakeEndpoint left(*pair.left.reactor);
    left.post_receives(32, 20 * mtu);
    const auto connected = pair.connect(left, 0x11);
    ASSERT_TRUE(connected.ok()) << connected.error().message;
    EXPECT_EQ(connected->front(), std::byte{'o'});
    FakeEndpoint* const right = acceptor.await_link(0);
    ASSERT_NE(right, nullptr);
    check_all_sizes({&left, right}, mtu);
    check_all_sizes({right, &left}, mtu);
    left.close();
    EXPECT_TRUE(right->await([&] { return right->failed.has_value(); }))
        << "the peer was not told of the end";
    pair.right.driver->unlisten(4420);
    const UdpWireCounters counters = pair.right.driver->counters();
    EXPECT_EQ(counters.bad_icrc + counters.malformed + counters.wrong_peer, 0u);
    EXPECT_EQ(counters.receive_overruns, 0u);
}
INSTANTIATE_TEST_SUITE_P(Mtu, Transfer, ::testing::Values(1024u, 2048u, 4096u));

}  // namespace
}  // namespace gnstor::rdma::udp
