#include "gnor/registered_regions.hpp"

#include <gnstor/simt/atomic.hpp>

namespace gnstor::gnor {

Result<void> RegisteredRegions::add(void* base, std::size_t bytes) {
    if (base == nullptr || bytes == 0)
        return error(Errc::kInvalidArgument,
                     "cannot register {} bytes at {}: give an address that is not null, and at least 1 byte",
                     bytes, base);
    GN_TRY(simt::check_shared_memory(base, bytes, memory_.lanes()));
    RegionTable* const table = memory_.regions();
    if (table->count == kMaxRegions && free_entries_.empty())
        return error(
            Errc::kNoSpace,
            "cannot register a region: {} regions are registered with this channel already; unregister one",
            kMaxRegions);
    GN_ASSIGN(const rdma::MemoryKeys keys,
              nic_.register_memory(base, bytes, rdma::kLocalWrite | rdma::kRemoteRead | rdma::kRemoteWrite));
    const Region region{reinterpret_cast<std::uint64_t>(base), bytes, keys.lkey, keys.rkey};
    if (table->count < kMaxRegions) {
        table->entries[table->count] = region;
        // Publishes the entry: pairs with refresh_regions.
        simt::store_release<simt::Scope::kSystem>(&table->count, table->count + 1);
        return {};
    }
    const std::uint32_t entry = free_entries_.back();
    free_entries_.pop_back();
    table->entries[entry] = region;
    return write_copy(entry, region);
}

Result<std::uint32_t> RegisteredRegions::find(const void* base) const {
    const RegionTable* const table = memory_.regions();
    for (std::uint32_t i = 0; i < table->count; ++i) {
        const Region& entry = table->entries[i];
        if (entry.bytes != 0 && entry.base == reinterpret_cast<std::uint64_t>(base)) return i;
    }
    return error(Errc::kNotFound,
                 "cannot unregister memory at {}: no region registered with this channel begins there", base);
}

Result<void> RegisteredRegions::remove(std::uint32_t entry) {
    Region& region = memory_.regions()->entries[entry];
    GN_TRY(nic_.deregister_memory({region.lkey, region.rkey}));
    region = Region{};
    free_entries_.push_back(entry);
    return write_copy(entry, Region{});
}

void RegisteredRegions::deregister() {
    const RegionTable* const table = memory_.regions();
    if (table == nullptr) return;
    for (std::uint32_t i = 0; i < table->count; ++i)
        if (table->entries[i].bytes != 0)
            (void)nic_.deregister_memory({table->entries[i].lkey, table->entries[i].rkey});
}

/// Writes this entry alone: downloading and uploading all lane memory would undo what lanes changed
/// meanwhile.
Result<void> RegisteredRegions::write_copy(std::uint32_t entry, const Region& region) {
    if (memory_.lanes() == simt::LanesKind::kGpu)
        return memory_.lane_memory().upload(offsetof(ChannelState, cache) + entry * sizeof(Region), &region,
                                            sizeof(Region));
    Region& to = memory_.cpu_state().cache[entry];
    simt::store_relaxed<simt::Scope::kDevice>(&to.lkey, region.lkey);
    simt::store_relaxed<simt::Scope::kDevice>(&to.rkey, region.rkey);
    simt::store_relaxed<simt::Scope::kDevice>(&to.base, region.base);
    simt::store_relaxed<simt::Scope::kDevice>(&to.bytes, region.bytes);
    return {};
}

}  // namespace gnstor::gnor
