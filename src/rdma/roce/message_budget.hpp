// message_budget.hpp: which messages of connection management are looked at, where anybody may send them.
//
// Each costs some microseconds, so there are so many a second for all. Nobody gets more than a part of them,
// and the lower half of what is there is kept for those who have asked for little lately: one who floods,
// from however few addresses, is in nobody's way. A quarter is left by those of whom nothing is known, half
// of that by those who ask again (standing.hpp): a flood from forged addresses, each of which asks for
// little, takes neither. Peers that we have to do with already need nothing of the common part. Only messages
// that arrived whole are charged (a good ICRC): nobody pays for what others damaged.
//
// Sources are told apart by a keyed hash of their address, so memory is constant; those that meet there share
// one part. Pure; one thread at a time.
#pragma once

#include "rdma/roce/cm_messages.hpp"
#include "rdma/roce/standing.hpp"
#include "rdma/roce/transport.hpp"

#include <array>
#include <cstdint>

namespace gnstor::rdma::roce {

struct MessageBudgetOptions {
    std::uint32_t at_once = 2048, a_second = 10'000;                     ///< of all together
    std::uint32_t of_source_at_once = 1024, of_source_a_second = 5'000;  ///< of one source
    std::uint32_t light_at_once = 128, light_a_second = 100;  ///< who sends no more, heard or not, is light
    std::uint64_t seed = 1;                                   ///< of the hash: not to be guessed
};

class MessageBudget {
  public:
    explicit MessageBudget(const MessageBudgetOptions& options);
    /// Whether the message is looked at; then it is charged. `known`: its sender is somebody that we are
    /// connected with, or connect to.
    bool take(TimeNs now, const Gid& source, bool known, Standing standing = Standing::kNew) noexcept;

  private:
    static constexpr std::size_t kSources = 1024;

    /// Filled by time, so what is in it are nanoseconds.
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
