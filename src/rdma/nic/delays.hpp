// delays.hpp: messages that a modelled link has not delivered yet. Internal to rdma/; belongs to one
// engine, its thread only.
//
// A message to an offload end keeps the sender's memory pinned and its entry outstanding while it is
// delayed, as while the sink has it.
#pragma once

#include <gnstor/base/timing_wheel.hpp>

#include "rdma/nic/queue_pair.hpp"

namespace gnstor::rdma {

inline constexpr std::uint32_t kOffloadSendBytes = 64;  ///< the largest message that an offload end sends

struct DelayedMessage {
    QueuePair* sender;
    std::uint64_t index;  ///< of the sender's entry
    InboundMessage message;
};

struct DelayedSend {
    QueuePair* from;
    std::uint32_t bytes;
    std::uint32_t invalidate_rkey;
    std::byte data[kOffloadSendBytes];
};

struct Delays {
    TimingWheel<DelayedMessage> messages;
    TimingWheel<DelayedSend> sends;
};

}  // namespace gnstor::rdma
