// host_command.hpp: one raw command that the host sends through a channel (Fabrics Connect, authentication),
// and its answer.
//
// Owns what the command takes from the channel: a command slot, a credit, a send entry and, with data, a pool
// block; all of it in lane memory that the host has access to (LaneAccess). Once, then thrown away. A command
// that was not answered in time goes into quarantine with its block, as a lane's does.
// One host thread; quiet (channel.hpp).
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/gnor/detail/queues/polling.hpp>
#include <gnstor/gnor/detail/queues/posting.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace gnstor::gnor {

class HostCommand {
  public:
    /// For the queue pair of this slot of the array.
    HostCommand(ChannelState& channel, std::uint32_t target) : channel_(channel), target_(target) {}

    /// Sends the command with `data`, at most kInCapsuleBytes, in the capsule, or, where `returned` is not
    /// empty, with a key for so many bytes, which are copied there; waits for its response. The command id
    /// and, where there is data, the data pointer are filled in here.
    Result<nvme::Completion> execute(nvme::Command command, std::span<const std::byte> data,
                                     std::uint32_t timeout_ms, std::span<std::byte> returned = {});

  private:
    Result<void> take(std::size_t data_bytes);
    void send(nvme::Command& command, std::span<const std::byte> data, std::size_t returned_bytes);
    bool wait(const nvme::Command& command, nvme::Completion& response, std::uint32_t timeout_ms);

    ChannelState& channel_;
    std::uint32_t target_;
    std::uint32_t index_ = kNone;  ///< of the command slot
    std::uint32_t block_ = kNone;  ///< of the pool
    rdma::SendTicket ticket_;
};

}  // namespace gnstor::gnor
