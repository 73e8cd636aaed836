// node_threads_test.cpp: drives and their service units are spread over a node's threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "embedded/node.hpp"
#include "support/count.hpp"

namespace gnstor::embedded {
namespace {

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

}  // namespace
}  // namespace gnstor::embedded
