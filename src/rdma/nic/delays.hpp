// delays.hpp: messages that a modelled link has not delivered yet. Internal to rdma/; of one engine, its
// thread only.
//
// A message to an offload keeps its sender's memory and entry held meanwhile, as it does while the sink has
// it.
#pragma once

#include <gnstor/base/timing_wheel.hpp>

#include "rdma/nic/queue_pair.hpp"

namespace gnstor::rdma {

inline constexpr std::uint32_t kOffloadSendBytes = 64;  ///< the largest message of an offload

struct DelayedMessage {
    QueuePair* sender;
    std::uint64_t index;  ///< of its entry
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
