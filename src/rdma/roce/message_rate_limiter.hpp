// message_rate_limiter.hpp: which connection-management messages are processed, since any machine can send
// them.
//
// A message costs some microseconds, so the number per second is limited, in all (the common budget) and
// per source. A source that has sent many messages lately must leave half of the common budget, an
// unknown one a quarter, one that repeats its request an eighth; a proven one may use all (peer_trust.hpp).
// So a flood, from however few addresses, does not block others; and a flood from forged addresses, with
// few messages each, blocks neither repeated requests nor proven peers. Peers to which we have
// connections, or are connecting, do not use the common budget. Only messages with a good ICRC are
// charged, so a source does not pay for packets that others damaged.
//
// Sources are identified by a keyed hash of their address, so memory is constant; sources with the same
// hash share a budget. Pure; one thread at a time.
#pragma once

#include "rdma/roce/cm_messages.hpp"
#include "rdma/roce/peer_trust.hpp"
#include "rdma/roce/transport.hpp"

#include <array>
#include <cstdint>

namespace gnstor::rdma::roce {

struct MessageBudgetOptions {
    std::uint32_t at_once = 2048, a_second = 10'000;                     ///< all sources
    std::uint32_t of_source_at_once = 1024, of_source_a_second = 5'000;  ///< one source
    std::uint32_t light_at_once = 128,
                  light_a_second = 100;  ///< a source within this rate is "light", processed or not
    std::uint64_t seed = 1;              ///< of the hash, so that it cannot be guessed
};

class MessageRateLimiter {
  public:
    explicit MessageRateLimiter(const MessageBudgetOptions& options);
    /// Whether to process the message; if so, it is charged. `known`: we are connected to its sender, or
    /// connecting.
    bool take(TimeNs now, const Gid& source, bool known, PeerTrust standing = PeerTrust::kNew) noexcept;

  private:
    static constexpr std::size_t kSources = 1024;

    /// A token bucket that time fills: its level is in nanoseconds.
    struct Bucket {
        TimeNs level = 0, at = 0;
        void fill(TimeNs now, TimeNs most) noexcept;
    };
    struct Source {
        Bucket heard, light;
    };
    const TimeNs price_, most_, source_price_, source_most_, light_price_, light_most_;
    const std::uint64_t seed_;
    Bucket common_;
    std::array<Source, kSources> sources_;
};

}  // namespace gnstor::rdma::roce
