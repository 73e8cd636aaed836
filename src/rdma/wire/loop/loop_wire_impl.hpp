// loop_wire_impl.hpp: what the loop wire and the NICs on it share. Internal to rdma/. Everything under
// `mutex`.
#pragma once

#include "rdma/nic/engine.hpp"
#include "rdma/nic/ring_spread.hpp"
#include "rdma/wire/loop/loop_wire.hpp"
#include "rdma/wire/loop/soft_nic.hpp"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace gnstor::rdma {

/// One connection request on its way.
struct PendingConnect {
    std::string peer;
    std::vector<std::byte> private_data;
    std::uint32_t affinity = 0;
    PeerKind kind = PeerKind::kSameUser;
    Listener* listener = nullptr;
    SoftNic* target = nullptr;
    ConnectReply reply;
    bool answered = false;
    bool abandoned = false;  ///< nobody waits any more
    bool withdrawn = false;  ///< the listener went away before it was asked
};

struct LoopWire::Impl {
    using Lock = std::unique_lock<std::mutex>;
    using Service = std::pair<std::string, std::string>;  ///< address, service

    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::string, SoftNic*> nics;
    std::map<Service, Listener*> listeners;

    struct SharedEngine {
        std::unique_ptr<NicEngine> engine;
        std::uint32_t users = 0;
    };
    std::map<Reactor*, SharedEngine> engines;
    NicEngine& acquire_engine(Reactor& reactor);
    void release_engine(Reactor& reactor);
    Result<void> establish(QueuePair& from, QueuePair& to);
    void send_home(QueuePair& qp);

    /// Of the completion rings of all NICs, so that the channels of many clients spread as those of one do.
    RingSpread rings;

    std::deque<std::shared_ptr<PendingConnect>> requests;
    std::shared_ptr<PendingConnect> asking;  ///< whose listener is being called now
    bool closing = false;
    std::thread answerer;
    void answer_requests();
    /// Waits until no request for `listener` is queued or being asked.
    void withdraw(Lock& lock, Listener* listener);
};

}  // namespace gnstor::rdma
