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

#include "nvmf/target/target.hpp"
#include "nvmf/target/turns.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace gnstor::nvmf {

class Connection;
struct Subsystem;

class OffloadShard final : public Poller {
  public:
    /// `options.staging_bytes` are of each subsystem here.
    explicit OffloadShard(Reactor& reactor, const TurnOptions& options = {});
    ~OffloadShard() override { stop(); }
    /// Not polled any more; connections may still give back to it what they have.
    void stop();
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

    // Reactor's thread: what its connections share.
    /// Of those that are no subsystem's yet, and of discovery: nothing that they have under way waits for a
    /// drive.
    [[nodiscard]] Turns& staging() { return staging_; }
    /// A drive's own: one that hangs keeps what its commands have, and no other drive's wait for that.
    [[nodiscard]] Turns& staging(const Subsystem& subsystem);
    [[nodiscard]] Turns& places(const Subsystem& subsystem);
    [[nodiscard]] StagingPages& pages() { return pages_; }
    /// Something came back: who waits is looked at in the next round.
    void look_at_turns() { turns_due_ = true; }

  private:
    void attend();
    std::uint32_t take_turns();

    Reactor& reactor_;
    const TurnOptions options_;
    std::atomic<bool> attention_{false};
    std::mutex mutex_;
    std::vector<Connection*> all_;  // under mutex_
    Connection* first_active_ = nullptr;
    std::vector<Reactor*> to_wake_;
    bool stopped_ = false;
    bool turns_due_ = false;
    Turns staging_;                               // bytes of memory
    std::map<const Subsystem*, Turns> stagings_;  // and of each drive's
    std::map<const Subsystem*, Turns> places_;    // of commands at each drive
    StagingPages pages_;
};

}  // namespace gnstor::nvmf
