// bench.hpp: a whole array, a client with channels, an opened volume and memory for the cases; and ways to
// run them: CPU lanes, GPU lanes, test warps.
#pragma once

#include "embedded/replicas.hpp"
#include "support/count.hpp"
#if !defined(__CUDACC__)
#include "simt/test_warp.hpp"
#endif

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

class ArrayBench {
  public:
    ArrayBench(const BenchOptions& o, std::uint64_t warps, std::uint64_t stride)
        : options(o),
          rig(rig_options(o.engine_threads)),
          client(rig.connect("writer", o.channels, o.depth, o.lanes)),
          reader(rig.connect("reader", 1)),
          volume(rig.volume(*client, "v", o.blocks, o.replicas, o.chunk_bytes)),
          memory_(simt::DeviceMemory::allocate(warps * stride, o.lanes).value()),
          report_(simt::DeviceMemory::allocate(4096, o.lanes).value()),
          tags_(simt::DeviceMemory::allocate(o.blocks * 8, o.lanes).value()) {
        common.volume = volume->ref();
        common.channels = client->channels();
        common.report = report_.lane_as<Report>();
        common.memory = memory_.lane_as<std::byte>();
        common.stride = stride;
        common.seed = run_seed();
        common.timeout_ns = kLongNs;
        const std::vector<std::byte> zeroes(4096);
        report_.upload(0, zeroes.data(), zeroes.size()).value();
        const std::vector<std::uint64_t> none(o.blocks);
        tags_.upload(0, none.data(), none.size() * 8).value();
    }
    [[nodiscard]] std::uint64_t* tags() const { return tags_.lane_as<std::uint64_t>(); }
    [[nodiscard]] RandomMix mix(std::uint32_t blocks_each, std::uint32_t rounds, std::uint32_t first = 0,
                                bool leave_early = false) const {
        return RandomMix{common, tags(), blocks_each, rounds, first, leave_early};
    }

    template <class Kernel>
    void launch(std::uint32_t blocks, std::uint32_t threads, Kernel kernel, std::uint32_t workers = 0) {
        simt::LaunchOptions o;
        o.cpu_workers = workers;
        const auto done = simt::launch(options.lanes, blocks, threads, kernel, o);
        ASSERT_TRUE(done.ok()) << done.error().message;
    }
#if !defined(__CUDACC__)
    template <class Kernel>
    void test_warps(std::uint32_t warps, std::uint32_t lanes, Kernel kernel,
                    std::uint32_t warps_per_block = 1) {
        simt::TestWarpOptions o;
        o.warps = warps;
        o.lanes = lanes;
        o.seed = common.seed;
        o.warps_per_block = warps_per_block;
        const auto done = simt::run_test_warps(o, [kernel](simt::Lane lane) { kernel(lane); });
        ASSERT_TRUE(done.ok()) << done.error().message;
    }
#endif
    Report report() {
        Report r{};
        report_.download(0, &r, sizeof(r)).value();
        return r;
    }
    void expect_good(std::uint64_t floor) {
        const Report r = report();
        EXPECT_EQ(r.failures, 0u) << "last status " << std::hex << r.last_status << std::dec
                                  << ", GN_SEED=" << run_seed();
        EXPECT_EQ(r.mismatches, 0u) << "GN_SEED=" << run_seed();
        EXPECT_GE(r.operations, floor);
        count("array_lane_operations", r.operations);
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
    Common common{};

  private:
    simt::DeviceMemory memory_, report_, tags_;
};

}  // namespace gnstor::test
