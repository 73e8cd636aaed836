// registered_regions.cpp: memory that users register with a channel: the table in NIC-visible memory, and its
// copy in lane memory.
//
// The table's count publishes entries (a release); lanes copy new entries into lane memory. When an entry is
// reused, the host writes it into both, that entry alone. One host thread.
#include "gnor/channel.hpp"

namespace gnstor::gnor {

Result<void> Channel::register_buffer(void* base, std::size_t bytes) {
    if (base == nullptr || bytes == 0)
        return error(Errc::kInvalidArgument, "registering {} bytes at {}: there is nothing to register",
                     bytes, base);
    GN_TRY(simt::check_shared_memory(base, bytes, options_.lanes));
    auto* table = reinterpret_cast<RegionTable*>(nic_memory_.data() + layout_.regions);
    if (table->count == kMaxRegions && free_regions_.empty())
        return error(Errc::kNoSpace, "{} regions are registered with this channel already; unregister one",
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
    const std::uint32_t place = free_regions_.back();
    free_regions_.pop_back();
    table->entries[place] = region;
    return write_cached_region(place, region);
}

/// Writes this entry alone: downloading and uploading all lane memory would undo what lanes changed
/// meanwhile.
Result<void> Channel::write_cached_region(std::uint32_t place, const Region& region) {
    if (options_.lanes == simt::LanesKind::kGpu)
        return lane_memory_.upload(offsetof(ChannelState, cache) + place * sizeof(Region), &region,
                                   sizeof(Region));
    Region& to = lane_memory_.lane_as<ChannelState>()->cache[place];
    simt::store_relaxed<simt::Scope::kDevice>(&to.lkey, region.lkey);
    simt::store_relaxed<simt::Scope::kDevice>(&to.rkey, region.rkey);
    simt::store_relaxed<simt::Scope::kDevice>(&to.base, region.base);
    simt::store_relaxed<simt::Scope::kDevice>(&to.bytes, region.bytes);
    return {};
}

Result<void> Channel::unregister_buffer(void* base) {
    auto* table = reinterpret_cast<RegionTable*>(nic_memory_.data() + layout_.regions);
    for (std::uint32_t i = 0; i < table->count; ++i) {
        Region& entry = table->entries[i];
        if (entry.bytes == 0 || entry.base != reinterpret_cast<std::uint64_t>(base)) continue;
        GN_ASSIGN(const std::uint32_t commands, count_commands_in(entry));
        if (commands != 0)
            return error(
                Errc::kBusy,
                "{} commands under way name the region at {}: a drive may still write there; wait for "
                "them (quiesce), or end them (reclaim)",
                commands, base);
        GN_TRY(nic_.deregister_memory({entry.lkey, entry.rkey}));
        entry = Region{};
        free_regions_.push_back(i);
        return write_cached_region(i, Region{});
    }
    return error(Errc::kNotFound, "no region registered with this channel begins at {}", base);
}

}  // namespace gnstor::gnor
