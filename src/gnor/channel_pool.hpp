// channel_pool.hpp: the memory of a channel's pool: planned as a whole when the channel is created,
// registered step by step.
//
// Owns the range of addresses, and the sharing and registration of the steps so far.
// Invariants
//   * the bitmaps of all steps lie in lane memory from the beginning, with all blocks free; lanes do not look
//     at a step before the table's count includes it. So growing touches NIC-visible memory only, and works
//     under a running kernel;
//   * steps below the table's count are mapped, shared with the NIC's node and registered; the count never
//     shrinks. Memory of one more step may be mapped or shared: extend() failed half-way, and resumes there.
// One thread at a time grows the pool; the others read the count.
#pragma once

#include <gnstor/simt/pinned_range.hpp>

#include "gnor/channel_memory.hpp"

namespace gnstor::gnor {

class ChannelPool {
  public:
    /// The table lies in `memory`, which outlives this object.
    ChannelPool(rdma::Nic& nic, const ChannelMemory& memory, const PoolPlan& plan)
        : nic_(nic), memory_(memory), plan_(plan) {}

    /// Reserves addresses for all steps, and registers the first one.
    Result<void> set_up(bool huge_pages);
    /// Ends registration and sharing, also after a set_up() that failed. The NIC must not use it any more.
    void deregister();
    /// Leaves the pool mapped and registered: the NIC's or a drive's threads may still use it.
    void leave_mapped() { range_.leave_mapped(); }

    /// Writes the pool of one step into a new channel's state, with all blocks free.
    void fill(ChannelState& state) const;
    /// Registers the next step if lanes asked for it, and publishes it to them. Returns whether the pool
    /// grew.
    Result<bool> grow_if_asked();

    /// Bytes that are registered now. Any thread.
    [[nodiscard]] std::uint64_t bytes() const;
    /// Blocks of all steps, also those not registered yet.
    [[nodiscard]] std::uint32_t blocks_max() const { return plan_.blocks; }
    /// Free blocks of the registered steps, by the bitmaps of this state.
    [[nodiscard]] std::uint32_t count_free(ChannelState& state) const;

  private:
    Result<void> extend();
    [[nodiscard]] std::uint32_t steps() const;

    rdma::Nic& nic_;
    const ChannelMemory& memory_;
    PoolPlan plan_;
    simt::PinnedRange range_;
    std::size_t shared_bytes_ = 0;  ///< length of its first part, shared with the NIC's node
};

}  // namespace gnstor::gnor
