// pool_bench.hpp: a rig whose pool is what is tested, and the memory that pool_cases.hpp takes notes in.
#pragma once

#include <algorithm>

#include "gnor/bench.hpp"
#include "gnor/pool_cases.hpp"

namespace gnstor::test {

inline RigOptions pool_options(std::uint64_t bytes = 4u << 20, std::uint64_t bytes_max = 0) {
    RigOptions o = options_of(1);
    o.pool_bytes = bytes;
    o.pool_bytes_max = bytes_max;
    return o;
}

class PoolBench : public Bench {
  public:
    explicit PoolBench(const RigOptions& options)
        : Bench(options, 1, 64),
          owners_(simt::DeviceMemory::allocate(
                      std::max(options.pool_bytes, options.pool_bytes_max) / 1024 + 64, options.lanes)
                      .value()) {}
    std::uint32_t* owners() const { return owners_.lane_as<std::uint32_t>(); }
    std::uint32_t* counter() const { return owners(); }

    /// All went well, nothing is lost, and the pool gives all that it has as the largest runs there are.
    void expect_whole(std::uint64_t floor, bool notes = true) {
        expect_good(floor);
        rig.expect_clean();
        if (notes) {
            std::vector<std::uint32_t> words(owners_.size() / 4);
            owners_.download(0, words.data(), words.size() * 4).value();
            EXPECT_EQ(std::count(words.begin(), words.end(), 0u), static_cast<std::ptrdiff_t>(words.size()));
        }
        if (rig.options.lanes != simt::LanesKind::kCpu) return;
        EXPECT_EQ(wrong_summary_bits(), 0u);
        const auto me = simt::self(simt::Lane{});
        const ChannelRef channel = rig.channel();
        const std::uint64_t most = std::uint64_t{channel.state().pool_blocks_most} * 4096;
        std::uint64_t taken = 0, fits = 0;
        std::vector<void*> runs;
        while (void* at = channel.alloc(me, most)) runs.push_back(at);
        taken = runs.size();
        for (std::uint32_t i = 0; i < gnor::known_pool_steps(channel.state()); ++i)
            fits += channel.state().pool_step(i).blocks * 4096ull / most;
        EXPECT_EQ(taken, fits) << "runs of " << most << " bytes";
        for (void* at : runs) EXPECT_EQ(channel.free(me, at), Status::kSuccess);
    }

  private:
    /// Bits of summaries that do not say whether their word is empty. While nobody takes or gives.
    std::uint32_t wrong_summary_bits() {
        gnor::ChannelState& c = rig.channel().state();
        std::uint32_t wrong = 0;
        for (std::uint32_t i = 0; i < gnor::known_pool_steps(c); ++i) {
            const gnor::PoolStep& s = c.pool_step(i);
            for (std::uint32_t l = 0; l < c.pool_levels.count; ++l)
                for (std::uint32_t w = 0; w < s.words[l]; ++w) {
                    const bool said = ((c.pool_words()[s.summary_at[l] + w / 64] >> (w % 64)) & 1u) != 0;
                    wrong += said != (c.pool_words()[s.word_at[l] + w] != 0) ? 1 : 0;
                }
        }
        return wrong;
    }

    simt::DeviceMemory owners_;
};

}  // namespace gnstor::test
