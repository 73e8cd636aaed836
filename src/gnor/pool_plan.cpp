#include "gnor/pool_plan.hpp"

#include <gnstor/base/units.hpp>

#include <algorithm>
#include <bit>

namespace gnstor::gnor {
namespace {

constexpr std::uint64_t kGrain = 64 * kPoolBlockBytes;
constexpr std::uint32_t kLevelBytesMost = 16u << 20;
constexpr std::uint32_t kRatioMost = 64;  // the blocks of a group lie in one bitmap word

Result<void> check_levels(const PoolOptions& o) {
    if (o.levels[0] != kPoolBlockBytes)
        return error(Errc::kInvalidArgument, "the smallest level of a pool is {} bytes, not {}",
                     kPoolBlockBytes, o.levels[0]);
    bool ended = false;
    for (std::uint32_t l = 1; l < kMaxPoolLevels; ++l) {
        const std::uint32_t size = o.levels[l], below = o.levels[l - 1];
        ended = ended || size == 0;
        if (ended && size != 0)
            return error(
                Errc::kInvalidArgument,
                "level {} of a pool has {} bytes, but a level of 0 bytes before it ends the list of levels",
                l, size);
        if (ended) continue;
        if (!std::has_single_bit(size) || size <= below || size / below > kRatioMost ||
            size > kLevelBytesMost)
            return error(Errc::kInvalidArgument,
                         "level {} of a pool, {} bytes, does not follow a level of {} bytes: give a power of "
                         "two that is 2 to {} times as large, at most {}",
                         l, size, below, kRatioMost, kLevelBytesMost);
    }
    return {};
}

}  // namespace

Result<void> check_pool(const PoolOptions& o) {
    if (o.bytes == 0 || o.bytes % kGrain != 0 || o.bytes > kPoolBytesMost)
        return error(Errc::kInvalidArgument,
                     "channel pool of {} bytes: give a multiple of 256 KiB (a multiple of {}), at most {}",
                     o.bytes, kGrain, format_bytes(kPoolBytesMost));
    if (o.bytes_max != 0 &&
        (o.bytes_max < o.bytes || o.bytes_max % kGrain != 0 || o.bytes_max > kPoolBytesMost))
        return error(Errc::kInvalidArgument,
                     "channel pool that grows to {} bytes: give a multiple of {} from its initial size of {} "
                     "to {}, or 0 for a pool that does not grow",
                     o.bytes_max, kGrain, o.bytes, format_bytes(kPoolBytesMost));
    if (o.bytes_max > o.bytes << (kMaxPoolSteps - 1))
        return error(Errc::kInvalidArgument,
                     "channel pool that grows from {} to {} bytes: it can double at most {} times; give a "
                     "larger initial size",
                     o.bytes, o.bytes_max, kMaxPoolSteps - 1);
    return check_levels(o);
}

PoolPlan PoolPlan::of(const PoolOptions& o) {
    PoolPlan plan;
    for (const std::uint32_t size : o.levels) {
        if (size == 0) break;
        plan.levels.shift[plan.levels.count++] =
            static_cast<std::uint32_t>(std::countr_zero(size / kPoolBlockBytes));
    }
    const auto most = static_cast<std::uint32_t>(std::max(o.bytes, o.bytes_max) / kPoolBlockBytes);
    plan.add_step(static_cast<std::uint32_t>(o.bytes / kPoolBlockBytes));
    // Each step doubles the pool; the last one ends at the limit.
    while (plan.blocks < most) plan.add_step(std::min(plan.blocks, most - plan.blocks));
    return plan;
}

void PoolPlan::add_step(std::uint32_t blocks_of_step) {
    PoolStep& s = steps[steps_max++];
    s.first = blocks;
    s.blocks = blocks_of_step;
    blocks += blocks_of_step;
    const auto take = [this](std::uint32_t count) {
        const std::uint32_t at = words;
        words += count;
        return at;
    };
    for (std::uint32_t l = 0; l < levels.count; ++l) {
        s.words[l] = ((s.blocks >> levels.shift[l]) + 63) / 64;
        s.word_at[l] = take(s.words[l]);
        s.summary_at[l] = take((s.words[l] + 63) / 64);
    }
    s.moves_at = take(1);
    // The longest run lies in the largest level of which the step has whole blocks: one block of the topmost
    // level, or all blocks of a lower one (they lie in one word).
    std::uint32_t l = levels.count - 1;
    while ((s.blocks >> levels.shift[l]) == 0) --l;
    const std::uint32_t units = l + 1 == levels.count ? 1 : s.blocks >> levels.shift[l];
    blocks_most = std::max(blocks_most, units << levels.shift[l]);
}

}  // namespace gnstor::gnor
