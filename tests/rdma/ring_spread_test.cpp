// ring_spread_test.cpp: rings of equal clients are spread evenly over the pollers, each use by itself.
#include "rdma/nic/ring_spread.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "support/count.hpp"

namespace gnstor::rdma {
namespace {

/// What opening clients does: admin queues to every SSD, rings for lanes, one for the host's own I/O.
struct Clients {
    RingSpread spread;
    std::size_t pollers;
    std::map<RingUse, std::vector<std::uint32_t>> rings;  // of each poller

    void open(RingUse use, std::uint32_t entries) {
        auto& of = rings[use];
        of.resize(pollers);
        ++of.at(spread.place(pollers, use, entries));
    }
    void open_client(std::uint32_t ssds, std::uint32_t channels) {
        for (std::uint32_t ssd = 0; ssd < ssds; ++ssd) open(RingUse::kAdmin, 32);
        const std::uint32_t entries = 1024;
        for (std::uint32_t channel = 0; channel < channels; ++channel) open(RingUse::kLanes, entries);
        open(RingUse::kHost, entries);
    }
    /// The most rings of a use on one poller, above the least.
    [[nodiscard]] std::uint32_t slope(RingUse use) const {
        const auto [least, most] = std::ranges::minmax_element(rings.at(use));
        return *most - *least;
    }
};

TEST(RingSpread, NoPollerHasMoreThanOneRingOfAUseAboveAnyOtherForEqualClients) {
    std::uint64_t cases = 0;
    for (std::size_t pollers = 1; pollers <= 8; ++pollers)
        for (std::uint32_t ssds = 1; ssds <= 5; ++ssds)
            for (std::uint32_t channels = 1; channels <= 5; ++channels) {
                Clients clients{{}, pollers, {}};
                for (std::uint32_t k = 0; k < 9; ++k, ++cases) {
                    clients.open_client(ssds, channels);
                    for (const auto& [use, rings] : clients.rings)
                        EXPECT_LE(clients.slope(use), 1u)
                            << "use " << static_cast<int>(use) << ", " << pollers << " pollers, " << k + 1
                            << " clients of " << channels << " channels, " << ssds << " SSDs";
                }
            }
    test::count("rdma_ring_spread_cases", cases);
}

TEST(RingSpread, EndedRingsMakeRoomForNewOnes) {
    RingSpread spread;
    EXPECT_EQ(spread.place(2, RingUse::kLanes, 64), 0u);
    EXPECT_EQ(spread.place(2, RingUse::kLanes, 64), 1u);
    EXPECT_EQ(spread.place(2, RingUse::kLanes, 64), 0u);
    spread.drop(0, RingUse::kLanes, 64);
    spread.drop(0, RingUse::kLanes, 64);
    EXPECT_EQ(spread.place(2, RingUse::kLanes, 128), 0u);
    EXPECT_EQ(spread.place(2, RingUse::kLanes, 64), 1u) << "a large ring weighs more";
    EXPECT_EQ(spread.place(1, RingUse::kLanes, 64), 0u) << "a NIC with fewer pollers must use only those";
}

TEST(RingSpread, AmongEqualPollersTheOneWithTheFewestRingsOfAllUsesIsChosen) {
    RingSpread spread;
    EXPECT_EQ(spread.place(3, RingUse::kLanes, 64), 0u);
    EXPECT_EQ(spread.place(3, RingUse::kHost, 64), 1u);
    EXPECT_EQ(spread.place(3, RingUse::kAdmin, 32), 2u);
}

}  // namespace
}  // namespace gnstor::rdma
