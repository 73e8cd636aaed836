// channel_queues.hpp: a channel's queue pairs, one for each slot of the array, and their completion queues.
//
// Owns them; their rings, records and bells lie in ChannelMemory, and what lanes know of them in
// ChannelState. One receive completion queue serves all queue pairs; each has its own collapsed send
// completion queue (one entry). The connection manager connects them.
// Invariant: between create() and destroy() a queue pair has a receive posted for each credit, except between
// the NIC's reset of it and begin_again().
// One host thread.
#pragma once

#include "gnor/channel_memory.hpp"

#include <vector>

namespace gnstor::gnor {

class ChannelQueues {
  public:
    /// `memory` outlives this object.
    ChannelQueues(rdma::Nic& nic, const ChannelMemory& memory) : nic_(nic), memory_(memory) {}

    /// Creates all of them, not connected, with all receives posted. Those of absent drives count as broken.
    Result<void> create(ChannelState& state, const ChannelOptions& options);
    /// Destroys them. False (logged): a drive holds commands of one for longer than the NIC waits, so that
    /// the NIC and the drive may still use the channel's memory.
    [[nodiscard]] bool destroy();

    [[nodiscard]] rdma::QpNumber queue_pair(std::uint32_t slot) const { return queue_pairs_[slot]; }
    /// Resets a queue pair: afterwards the NIC touches neither its queues nor the buffers of its commands.
    Result<void> reset(std::uint32_t slot) { return nic_.reset_queue_pair(queue_pairs_[slot]); }
    /// After reset(), when its completions are consumed and its commands ended: all is as after create(), and
    /// the queue pair may be connected again. Quiet (channel.hpp).
    void begin_again(std::uint32_t slot, ChannelState& state) const;

  private:
    Result<void> create_pair(std::uint32_t slot, ChannelState& state, bool scatter_to_cqe);

    rdma::Nic& nic_;
    const ChannelMemory& memory_;
    std::vector<rdma::CqNumber> completion_queues_;  ///< the first one: of the receives
    std::vector<rdma::QpNumber> queue_pairs_;        ///< by slot of the array
};

}  // namespace gnstor::gnor
