// node_threads_test.cpp: drives, their service units and the channels of clients are spread over a node's
// threads.
#include <gnstor/client/client.hpp>
#include <gnstor/embedded_array.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "embedded/node.hpp"
#include "gnor/channel.hpp"
#include "rdma/wire/loop/soft_nic.hpp"
#include "support/count.hpp"

namespace gnstor::embedded::node_threads_test {

TEST(NodeThreads, UnitsAndCommandFetchingAreSpreadOverAllThreads) {
    std::uint64_t cases = 0;
    for (std::size_t threads = 1; threads <= 16; ++threads)
        for (std::size_t units = 1; units <= 16; ++units)
            for (std::size_t drives = 1; drives <= 2 * threads; ++drives, ++cases) {
                std::vector<std::size_t> fronts(threads), shards(threads);
                for (std::size_t drive = 0; drive < drives; ++drive) {
                    const std::size_t first = first_drive_thread(drive, units, threads);
                    ++fronts[first];
                    for (std::size_t u = 0; u < units; ++u) ++shards[(first + u) % threads];
                }
                const auto most_fronts = *std::ranges::max_element(fronts);
                EXPECT_EQ(most_fronts, (drives + threads - 1) / threads)
                    << drives << " drives of " << units << " units, " << threads << " threads";
                const auto [least, most] = std::ranges::minmax_element(shards);
                EXPECT_LE(*most - *least, 1u)
                    << drives << " drives of " << units << " units, " << threads << " threads";
            }
    test::count("embedded_thread_cases", cases);
}

TEST(NodeThreads, TheChannelsOfManyClientsAreSpreadOverAllThreadsThatRunNics) {
    EmbeddedArrayOptions options;
    options.ssds = 2;
    options.ssd_capacity_bytes = 16u << 20;
    options.engine_threads = 5;
    options.nic_threads = 4;
    auto array = EmbeddedArray::open(options);
    ASSERT_TRUE(array.ok()) << array.error().message;
    auto& nic = dynamic_cast<rdma::SoftNic&>((*array)->host_nic());
    std::uint64_t cases = 0;
    for (const std::uint32_t channels : {1u, 2u, 3u}) {
        std::vector<std::unique_ptr<client::Client>> clients;
        std::map<const Reactor*, std::uint32_t> rings;
        for (std::uint32_t k = 1; k <= 4; ++k, ++cases) {
            client::ClientOptions of;
            of.channels = channels;
            of.pool_bytes = 256u << 10;
            auto client = (*array)->connect(of);
            ASSERT_TRUE(client.ok()) << client.error().message;
            for (std::uint32_t c = 0; c < channels; ++c)
                ++rings[&nic.owner((*client)->channel(c).queue_pair(0))];
            clients.push_back(std::move(*client));
            std::uint32_t least = rings.size() < options.nic_threads ? 0 : ~0u, most = 0;
            for (const auto& [thread, count] : rings) {
                least = std::min(least, count);
                most = std::max(most, count);
            }
            EXPECT_LE(most - least, 1u) << k << " clients of " << channels << " channels";
        }
    }
    test::count("embedded_spread_clients", cases);
}

}  // namespace gnstor::embedded::node_threads_test
