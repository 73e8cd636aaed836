// offload_shard.hpp: the connections of one reactor, and the poller that reaps their drive queues.
//
// The NIC's poller of that reactor delivers messages; this one, on the same thread, takes completions back.
// Invariants
//   * a connection is in the active list exactly while it has something to be polled for, so an idle array
//   costs one load here;
//   * the active list belongs to the reactor's thread; `all_` is shared with the control thread under a mutex
//   that the
//     reactor takes only when it was asked to attend.
#pragma once

#include <gnstor/base/reactor.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace gnstor::nvmf {

class Connection;

class OffloadShard final : public Poller {
  public:
    explicit OffloadShard(Reactor& reactor) : reactor_(reactor) { reactor_.add(*this); }
    ~OffloadShard() override { reactor_.remove(*this); }
    OffloadShard(const OffloadShard&) = delete;
    OffloadShard& operator=(const OffloadShard&) = delete;

    std::uint32_t poll() override;

    /// Any thread: a connection that this shard polls from now on.
    void add(Connection& connection);
    /// Control thread, once the connection is quiesced. On return the reactor's thread holds no pointer to
    /// it.
    void remove(Connection& connection);
    /// Any thread: the shard shall look at the flags of its connections.
    void request_attention();
    /// Reactor's thread: a drive has got a command; its thread is woken at the end of the round, once for all
    /// commands of the round.
    void wake_soon(Reactor& drive);
    /// Reactor's thread: polls the connection until it says that it is idle.
    void activate(Connection& connection);

    [[nodiscard]] Reactor& reactor() const { return reactor_; }

  private:
    void attend();

    Reactor& reactor_;
    std::atomic<bool> attention_{false};
    std::mutex mutex_;
    std::vector<Connection*> all_;  // under mutex_
    Connection* first_active_ = nullptr;
    std::vector<Reactor*> to_wake_;
};

}  // namespace gnstor::nvmf
