// channel_memory.hpp: a channel's two blocks of memory, NIC-visible memory and lane memory (channel_state.hpp
// says what lies in which), and the host's access to lane memory.
//
// Owns both blocks, the NIC's registration of the first, and with GPU lanes a host copy of the second.
// Invariants
//   * places in both blocks are those of one ChannelLayout, and neither block moves while the object lives;
//   * lane memory is relocatable, except that each ReceiveQueueRef has the address of its state: LaneAccess
//     makes these addresses fit the block that the host works on, and turns them back.
// One host thread, unless a function says otherwise.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/gnor/detail/resources/channel_state.hpp>
#include <gnstor/simt/device_memory.hpp>
#include <gnstor/simt/pinned_memory.hpp>

#include "gnor/channel_layout.hpp"
#include "gnor/channel_options.hpp"
#include "rdma/nic/nic.hpp"

#include <cstddef>
#include <cstdint>

namespace gnstor::gnor {

class ChannelMemory {
  public:
    ChannelMemory(rdma::Nic& nic, simt::LanesKind lanes, const ChannelLayout& layout)
        : nic_(nic), lanes_(lanes), layout_(layout) {}

    /// Maps both blocks, shares the first with the NIC's node where it asks for that, and registers it.
    Result<void> set_up();
    /// Ends registration and sharing, also after a set_up() that failed. The NIC must not use it any more.
    void deregister();
    /// Leaves NIC-visible memory mapped and registered: the NIC's or a drive's threads may still use it.
    void leave_mapped() { nic_memory_.leave_mapped(); }

    /// Writes sizes, addresses and offsets of this memory into a new channel's state; all command slots are
    /// free. The queues and the pool add theirs.
    void fill(ChannelState& state, const ChannelOptions& options) const;

    [[nodiscard]] const ChannelLayout& layout() const { return layout_; }
    [[nodiscard]] simt::LanesKind lanes() const { return lanes_; }
    /// Of NIC-visible memory.
    [[nodiscard]] const rdma::MemoryKeys& keys() const { return keys_; }
    /// NIC-visible memory of the queue pair of a slot of the array; inside it offsets of the layout.
    [[nodiscard]] std::byte* queue_memory(std::uint32_t slot) const {
        return nic_memory_.data() + slot * layout_.queue_stride;
    }
    /// The tables and the mailbox in NIC-visible memory; null before set_up().
    [[nodiscard]] RegionTable* regions() const { return nic_visible<RegionTable>(layout_.regions); }
    [[nodiscard]] PoolTable* pool_table() const { return nic_visible<PoolTable>(layout_.pool_table); }
    [[nodiscard]] HostMailbox* mailbox() const { return nic_visible<HostMailbox>(layout_.notes); }

    /// Lane memory in place. With GPU lanes the host uses upload() and download() of it, or a LaneAccess.
    [[nodiscard]] simt::DeviceMemory& lane_memory() { return lane_memory_; }
    [[nodiscard]] const simt::DeviceMemory& lane_memory() const { return lane_memory_; }
    /// With CPU lanes only.
    [[nodiscard]] ChannelState& cpu_state() const { return *lane_memory_.lane_as<ChannelState>(); }

  private:
    friend class LaneAccess;
    template <class T>
    T* nic_visible(std::size_t offset) const {
        return nic_memory_.data() == nullptr ? nullptr : reinterpret_cast<T*>(nic_memory_.data() + offset);
    }
    void point_receives_at(ChannelState& image, std::byte* base) const;

    rdma::Nic& nic_;
    simt::LanesKind lanes_;
    ChannelLayout layout_;
    simt::PinnedMemory nic_memory_;
    simt::DeviceMemory lane_memory_;
    simt::DeviceMemory copy_;  ///< GPU lanes: of lane memory, on the host
    rdma::MemoryKeys keys_{};
    bool registered_ = false;
};

/// The host's access to lane memory while no lane is in a call on the channel: to lane memory itself with CPU
/// lanes, with GPU lanes to the host's copy, which commit() writes back as a whole. One at a time.
class LaneAccess {
  public:
    static Result<LaneAccess> begin(ChannelMemory& memory);
    Result<void> commit();
    ChannelState* operator->() const { return state_; }
    ChannelState& operator*() const { return *state_; }

  private:
    LaneAccess(ChannelMemory& memory, ChannelState* state) : memory_(&memory), state_(state) {}
    ChannelMemory* memory_;
    ChannelState* state_;
};

}  // namespace gnstor::gnor
