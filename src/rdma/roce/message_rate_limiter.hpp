// message_rate_limiter.hpp: which connection-management messages are processed, since any machine can send
// them.
//
// A message costs some microseconds, so the number per second is limited, in all (the common budget) and
// per source. A source that has sent many messages lately must leave half of the common budget, an
// unknown one a quarter, one that repeats its request an eighth; a proven one may use all (peer_trust.hpp).
// So a flood, from however few addresses, does not block others; and a flood from forged addresses, with
// few messages each, blocks neither repeated requests nor proven peers. Peers to which we have
// connections, or are connecting, do not use the common budget; their messages about a connection
// (ConnectionManager::expects), which nobody can forge, have a budget of their own: a flood in a peer's name
// does not block them.
//
// One message has too little that must be guessed: the RTU that would complete a connection which the guesser
// himself began in another's name, as he chose its transaction and one of the ids; our id, of 32 bits, is
// left. So few RTUs of a source are believed (take_ready). A real peer loses nothing: its first packet on
// the queue pair stands for the RTU, and that has a queue pair number and a PSN to guess.
//
// Only messages with a good ICRC are
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

/// What is known of a message before it is processed.
enum class MessageOf : std::uint8_t {
    kStranger,
    kPeer,        ///< sent under the address of one to which we are connected or connecting
    kConnection,  ///< has what only the peer of a connection knows
};

struct MessageBudgetOptions {
    std::uint32_t at_once = 2048, a_second = 10'000;  ///< all sources
    /// One source, and once more its messages about connections.
    std::uint32_t of_source_at_once = 1024, of_source_a_second = 5'000;
    std::uint32_t light_at_once = 128,
                  light_a_second = 100;  ///< a source within this rate is "light", processed or not
    std::uint32_t ready_at_once = 1024, ready_a_second = 32;  ///< RTUs of one source, right or wrong
    std::uint64_t seed = 1;                                   ///< of the hash, so that it cannot be guessed
};

class MessageRateLimiter {
  public:
    explicit MessageRateLimiter(const MessageBudgetOptions& options);
    /// Whether to process the message; if so, it is charged.
    bool take(TimeNs now, const Gid& source, MessageOf of, PeerTrust standing = PeerTrust::kNew) noexcept;

    /// Whether to believe an RTU of this source; if so, it is charged.
    bool take_ready(TimeNs now, const Gid& source) noexcept;

  private:
    static constexpr std::size_t kSources = 1024;

    /// A token bucket that time fills: its level is in nanoseconds.
    struct Bucket {
        TimeNs level = 0, at = 0;
        void fill(TimeNs now, TimeNs most) noexcept;
    };
    struct Source {
        Bucket heard, connections, light, ready;
    };
    [[nodiscard]] Source& at(const Gid& source) noexcept;
    const TimeNs price_, most_, source_price_, source_most_, light_price_, light_most_, ready_price_,
        ready_most_;
    const std::uint64_t seed_;
    Bucket common_;
    std::array<Source, kSources> sources_;
};

}  // namespace gnstor::rdma::roce
