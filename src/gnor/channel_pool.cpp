// channel_pool.cpp: the pool's memory: planned as a whole when the channel is created, registered step by
// step.
//
// The bitmaps of all steps lie in lane memory from the beginning, with all blocks free; lanes do not look at
// a step before the table's count includes it. So growing touches NIC-visible memory only, and works under a
// running kernel. One thread at a time grows the pool; the others read the count.
#include "gnor/channel.hpp"

namespace gnstor::gnor {

/// Adds the next step: memory, sharing with the node, region, keys in the table, count. A call after a
/// failure resumes where that one stopped: memory that was mapped or shared stays so.
Result<void> Channel::extend_pool() {
    PoolTable* const table = pool_table();
    const std::uint32_t step = table->count;
    const std::size_t first = std::size_t{plan_.steps[step].first} * kPoolBlockBytes;
    const std::size_t bytes = std::size_t{plan_.steps[step].blocks} * kPoolBlockBytes;
    if (pool_.size() == first) GN_TRY(pool_.extend(bytes));
    std::byte* const part = pool_.data() + first;
    if (pool_shared_bytes_ == first) {
        GN_TRY(nic_.share_memory(part, bytes, pool_.file(), first));
        pool_shared_bytes_ += bytes;
    }
    GN_ASSIGN(const rdma::MemoryKeys keys,
              nic_.register_memory(part, bytes, rdma::kLocalWrite | rdma::kRemoteRead | rdma::kRemoteWrite));
    table->keys[step] = PoolKeys{keys.lkey, keys.rkey};
    // Publishes memory and keys: pairs with refresh_pool.
    simt::store_release<simt::Scope::kSystem>(&table->count, step + 1);
    return {};
}

Result<bool> Channel::grow_pool_if_asked() {
    const auto* notes = reinterpret_cast<const HostMailbox*>(nic_memory_.data() + layout_.notes);
    // Only a hint: whatever it says, one step is added, and none beyond the plan.
    const std::uint32_t wanted = simt::load_relaxed<simt::Scope::kSystem>(&notes->pool_steps_wanted);
    const std::uint32_t count = pool_table()->count;
    if (wanted <= count || count >= plan_.steps_max) return false;
    GN_TRY(extend_pool());
    return true;
}

std::uint64_t Channel::pool_bytes() const {
    // Pairs with the release of extend_pool, which another thread may be in.
    const std::uint32_t steps = simt::load_acquire<simt::Scope::kSystem>(&pool_table()->count);
    const PoolStep& last = plan_.steps[steps - 1];
    return (std::uint64_t{last.first} + last.blocks) * kPoolBlockBytes;
}

void Channel::fill_pool_state(ChannelState& s) {
    const PoolTable& table = *pool_table();
    s.pool_steps_max = plan_.steps_max;
    s.pool_lkey = table.keys[0].lkey;
    s.pool_rkey = table.keys[0].rkey;
    s.pool_base = reinterpret_cast<std::uint64_t>(pool_.data());
    s.pool_bytes = options_.pool_bytes;
    s.pool_bytes_max = std::uint64_t{plan_.blocks} * kPoolBlockBytes;
    s.pool_blocks_most = plan_.blocks_most;
    s.pool_levels = plan_.levels;
    s.pool_table = &table;
    s.pool_steps_offset = static_cast<std::uint32_t>(layout_.pool_steps);
    s.pool_words_offset = static_cast<std::uint32_t>(layout_.pool_words);
    s.pool_length_offset = static_cast<std::uint32_t>(layout_.pool_length);
    s.pool_steps = s.pool_asked = 1;
    s.pool_keys[0] = table.keys[0];
    for (std::uint32_t i = 0; i < plan_.steps_max; ++i) {
        s.pool_step(i) = plan_.steps[i];
        pool_levels(s, i).give(0, plan_.steps[i].blocks);
    }
}

void Channel::deregister_pool() {
    const PoolTable& table = *pool_table();
    for (std::uint32_t i = 0; i < table.count; ++i)
        (void)nic_.deregister_memory({table.keys[i].lkey, table.keys[i].rkey});
    // Also steps that were shared but not registered.
    for (std::uint32_t i = 0; i < plan_.steps_max; ++i) {
        const std::size_t first = std::size_t{plan_.steps[i].first} * kPoolBlockBytes;
        if (first < pool_shared_bytes_) (void)nic_.unshare_memory(pool_.data() + first);
    }
}

std::uint32_t Channel::count_free_blocks(ChannelState& state) const {
    // Pairs with the release of extend_pool, which another thread may be in.
    const std::uint32_t steps = simt::load_acquire<simt::Scope::kSystem>(&pool_table()->count);
    std::uint32_t blocks = 0;
    for (std::uint32_t i = 0; i < steps; ++i) blocks += pool_levels(state, i).count_free();
    return blocks;
}

}  // namespace gnstor::gnor
