#include "gnor/channel_pool.hpp"

#include <gnstor/gnor/detail/resources/pool.hpp>

namespace gnstor::gnor {

Result<void> ChannelPool::set_up(bool huge_pages) {
    GN_ASSIGN(range_, simt::PinnedRange::reserve(
                          std::uint64_t{plan_.blocks} * kPoolBlockBytes, memory_.lanes(),
                          {.huge_pages = huge_pages, .shareable = nic_.wants_shared_memory()}));
    return extend();
}

/// Adds the next step: memory, sharing with the node, region, keys in the table, count. A call after a
/// failure resumes where that one stopped: memory that was mapped or shared stays so.
Result<void> ChannelPool::extend() {
    PoolTable* const table = memory_.pool_table();
    const std::uint32_t step = table->count;
    const std::size_t first = std::size_t{plan_.steps[step].first} * kPoolBlockBytes;
    const std::size_t bytes = std::size_t{plan_.steps[step].blocks} * kPoolBlockBytes;
    if (range_.size() == first) GN_TRY(range_.extend(bytes));
    std::byte* const part = range_.data() + first;
    if (shared_bytes_ == first) {
        GN_TRY(nic_.share_memory(part, bytes, range_.file(), first));
        shared_bytes_ += bytes;
    }
    GN_ASSIGN(const rdma::MemoryKeys keys,
              nic_.register_memory(part, bytes, rdma::kLocalWrite | rdma::kRemoteRead | rdma::kRemoteWrite));
    table->keys[step] = PoolKeys{keys.lkey, keys.rkey};
    // Publishes memory and keys: pairs with refresh_pool.
    simt::store_release<simt::Scope::kSystem>(&table->count, step + 1);
    return {};
}

void ChannelPool::deregister() {
    const PoolTable* const table = memory_.pool_table();
    if (table == nullptr) return;
    for (std::uint32_t i = 0; i < table->count; ++i)
        (void)nic_.deregister_memory({table->keys[i].lkey, table->keys[i].rkey});
    // Also steps that were shared but not registered.
    for (std::uint32_t i = 0; i < plan_.steps_max; ++i) {
        const std::size_t first = std::size_t{plan_.steps[i].first} * kPoolBlockBytes;
        if (first < shared_bytes_) (void)nic_.unshare_memory(range_.data() + first);
    }
}

void ChannelPool::fill(ChannelState& s) const {
    const PoolTable& table = *memory_.pool_table();
    const ChannelLayout& layout = memory_.layout();
    s.pool_steps_max = plan_.steps_max;
    s.pool_lkey = table.keys[0].lkey;
    s.pool_rkey = table.keys[0].rkey;
    s.pool_base = reinterpret_cast<std::uint64_t>(range_.data());
    s.pool_bytes = std::uint64_t{plan_.steps[0].blocks} * kPoolBlockBytes;
    s.pool_bytes_max = std::uint64_t{plan_.blocks} * kPoolBlockBytes;
    s.pool_blocks_most = plan_.blocks_most;
    s.pool_levels = plan_.levels;
    s.pool_table = &table;
    s.pool_steps_offset = static_cast<std::uint32_t>(layout.pool_steps);
    s.pool_words_offset = static_cast<std::uint32_t>(layout.pool_words);
    s.pool_length_offset = static_cast<std::uint32_t>(layout.pool_length);
    s.pool_steps = s.pool_asked = 1;
    s.pool_keys[0] = table.keys[0];
    for (std::uint32_t i = 0; i < plan_.steps_max; ++i) {
        s.pool_step(i) = plan_.steps[i];
        pool_levels(s, i).give(0, plan_.steps[i].blocks);
    }
}

Result<bool> ChannelPool::grow_if_asked() {
    // Only a hint: whatever it says, one step is added, and none beyond the plan.
    const std::uint32_t wanted =
        simt::load_relaxed<simt::Scope::kSystem>(&memory_.mailbox()->pool_steps_wanted);
    const std::uint32_t count = memory_.pool_table()->count;
    if (wanted <= count || count >= plan_.steps_max) return false;
    GN_TRY(extend());
    return true;
}

std::uint32_t ChannelPool::steps() const {
    // Pairs with the release of extend(), which another thread may be in.
    return simt::load_acquire<simt::Scope::kSystem>(&memory_.pool_table()->count);
}

std::uint64_t ChannelPool::bytes() const {
    const PoolStep& last = plan_.steps[steps() - 1];
    return (std::uint64_t{last.first} + last.blocks) * kPoolBlockBytes;
}

std::uint32_t ChannelPool::count_free(ChannelState& state) const {
    std::uint32_t blocks = 0;
    for (std::uint32_t i = 0, n = steps(); i < n; ++i) blocks += pool_levels(state, i).count_free();
    return blocks;
}

}  // namespace gnstor::gnor
