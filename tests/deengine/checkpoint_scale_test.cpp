// checkpoint_scale_test.cpp: the checkpoint of a full drive of 16 GiB loads; how long it takes is said.
#include "deengine/checkpoint_bench.hpp"

#include <chrono>

namespace gnstor::deengine {
namespace {

TEST(Scale, ACheckpointOfAFullDriveOf16GiBLoadsWholeAndReportsItsTime) {
    constexpr std::uint64_t kPages = 4ull << 20;
    CheckpointBench bench(kPages, {64, 256});
    for (std::uint64_t i = 0; i < kPages; ++i) {
        const auto ticket = bench.map.reserve(
            make_key(static_cast<nvme::VolumeId>(1 + i % 3), static_cast<nvme::BlockAddress>(i)));
        ASSERT_TRUE(ticket);
        bench.map.commit(*ticket, {static_cast<PageNumber>(i), false});
    }
    bench.write_whole();
    BlockMap loaded(kPages);
    Tombstones stones(10);
    JournalIndex found = bench.index();
    const auto begin = std::chrono::steady_clock::now();
    const auto result =
        load_checkpoint(found, found.places().back(), bench.dimensions(), kPages, loaded, stones);
    const auto taken = std::chrono::steady_clock::now() - begin;
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(loaded.size(), kPages);
    std::printf("GN_COUNT deengine_checkpoint_entries_loaded=%llu\n",
                static_cast<unsigned long long>(kPages));
    std::printf("loaded and checked in %lld ms, %zu pages\n",
                static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(taken).count()),
                found.places().size());
}

}  // namespace
}  // namespace gnstor::deengine
