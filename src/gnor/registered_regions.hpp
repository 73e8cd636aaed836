// registered_regions.hpp: memory that users register with a channel: the table in NIC-visible memory, and its
// copy in lane memory.
//
// Owns the registrations and the list of entries that may be reused; both tables lie in ChannelMemory.
// Invariants
//   * the table's count publishes entries (a release) and never shrinks; lanes copy new entries into lane
//     memory. An entry below the count with 0 bytes is unregistered, and is in the list;
//   * when an entry is reused or cleared, the host writes it into both tables, that entry alone.
// One host thread.
#pragma once

#include "gnor/channel_memory.hpp"

#include <vector>

namespace gnstor::gnor {

class RegisteredRegions {
  public:
    /// `memory` outlives this object.
    RegisteredRegions(rdma::Nic& nic, ChannelMemory& memory) : nic_(nic), memory_(memory) {}

    /// Registers memory and publishes it to lanes. kNoSpace: all entries are taken. Allowed under a running
    /// kernel, except where it reuses an entry (Channel::register_buffer).
    Result<void> add(void* base, std::size_t bytes);
    /// The entry of the region that begins at `base`, for remove(); kNotFound.
    [[nodiscard]] Result<std::uint32_t> find(const void* base) const;
    [[nodiscard]] const Region& operator[](std::uint32_t entry) const {
        return memory_.regions()->entries[entry];
    }
    /// Ends the registration: no command may name the region any more. Quiet (channel.hpp).
    Result<void> remove(std::uint32_t entry);
    /// Ends all of them, when the channel is destroyed.
    void deregister();

  private:
    Result<void> write_copy(std::uint32_t entry, const Region& region);

    rdma::Nic& nic_;
    ChannelMemory& memory_;
    std::vector<std::uint32_t> free_entries_;
};

}  // namespace gnstor::gnor
