// bench.hpp: a whole array, a client with channels and an opened volume under the cases.
#pragma once

#include "embedded/replicas.hpp"
#include "support/count.hpp"
#include "support/lane_bench.hpp"
#include "support/sent.hpp"

namespace gnstor::test {

struct BenchOptions {
    simt::LanesKind lanes = simt::LanesKind::kCpu;
    std::uint32_t channels = 2;
    std::uint32_t depth = 32;
    std::uint32_t engine_threads = 1;
    std::uint32_t replicas = 2;
    std::uint32_t chunk_bytes = 65536;
    std::uint64_t blocks = 4096;  ///< of the volume
};

class ArrayBench : public LaneBench {
  public:
    ArrayBench(const BenchOptions& o, std::uint64_t warps, std::uint64_t stride)
        : LaneBench(o.lanes, warps, stride, run_seed(), kLongNs),
          options(o),
          rig(rig_options(o.engine_threads)),
          client(rig.connect("writer", o.channels, o.depth, o.lanes)),
          reader(rig.connect("reader", 1)),
          volume(rig.volume(*client, "v", o.blocks, o.replicas, o.chunk_bytes)),
          tags_(simt::DeviceMemory::allocate(o.blocks * 8, o.lanes).value()) {
        common.volume = volume->ref();
        common.channels = client->channels();
        const std::vector<std::uint64_t> none(o.blocks);
        tags_.upload(0, none.data(), none.size() * 8).value();
    }
    [[nodiscard]] std::uint64_t* tags() const { return tags_.lane_as<std::uint64_t>(); }
    [[nodiscard]] RandomMix mix(std::uint32_t blocks_each, std::uint32_t rounds, std::uint32_t first = 0,
                                bool leave_early = false) const {
        return RandomMix{common, tags(), blocks_each, rounds, first, leave_early};
    }

    void expect_good(std::uint64_t floor) {
        count("array_lane_operations", expect_good_report(floor).operations);
    }
    /// All replicas hold what the warps say they must.
    void expect_tagged() {
        std::vector<std::uint64_t> tags(options.blocks);
        tags_.download(0, tags.data(), tags.size() * 8).value();
        const std::uint64_t visited =
            expect_tags(*reader, "v", common.seed, [&](std::uint32_t b) { return tags[b]; });
        EXPECT_EQ(visited, options.blocks * options.replicas);
        count("array_replicas_compared", visited);
    }
    /// All replicas are equal, whole, and one of the values that were written.
    void expect_contended(std::uint32_t writers, const ContendedWriters& k) {
        std::vector<std::uint64_t> first(k.blocks_shared, ~0ull);
        const std::uint64_t visited =
            for_each_replica(*reader, "v", [&](std::uint32_t b, std::uint32_t slot, const std::uint64_t* w) {
                if (b >= k.blocks_shared) return;
                EXPECT_TRUE(is_whole(w, common.seed, b)) << "slot " << slot << " block " << b;
                if (first[b] == ~0ull) first[b] = w[0];
                EXPECT_EQ(first[b], w[0]) << "replicas of block " << b << " differ, GN_SEED=" << run_seed();
            });
        count("array_replicas_compared", visited);
        for (std::uint32_t b = 0; b < k.blocks_shared; ++b) {
            const auto writer = static_cast<std::uint32_t>(first[b] >> 32) - 1;
            const auto round = static_cast<std::uint32_t>(first[b]) - 1;
            if (first[b] == 0) continue;  // nobody came by
            ASSERT_LT(writer, writers) << "block " << b;
            ASSERT_LT(round, k.rounds) << "block " << b;
            const auto r = ContendedWriters::range_of(common.seed, k.blocks_shared, writer, round);
            EXPECT_TRUE(b >= r.block && b < r.block + r.blocks) << "block " << b << " was not in that write";
        }
    }
    void expect_clean() {
        rig.expect_clean(*client);
        rig.expect_clean(*reader);
    }

    const BenchOptions options;
    ArrayRig rig;
    std::unique_ptr<client::Client> client, reader;
    std::unique_ptr<client::Volume> volume;

  private:
    simt::DeviceMemory tags_;
};

}  // namespace gnstor::test
