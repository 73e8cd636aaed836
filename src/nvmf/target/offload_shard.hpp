// offload_shard.hpp: the connections of one reactor, and the poller that reaps their drive queues.
//
// The NIC's poller of that reactor delivers messages; this one, on the same thread, takes completions from
// the drive queues.
// Invariants
//   * a connection is in the active list exactly while it needs polling, so an idle array costs one load
//     here;
//   * the active list belongs to the reactor's thread; `all_` is shared with the control thread under a mutex
//     that the reactor takes only after request_attention().
#pragma once

#include <gnstor/base/reactor.hpp>

#include "nvmf/target/shared_budget.hpp"
#include "nvmf/target/target.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace gnstor::nvmf {

class TargetConnection;
struct Subsystem;

class OffloadShard final : public Poller {
  public:
    /// `options.staging_bytes` are those of each subsystem, not of all.
    explicit OffloadShard(Reactor& reactor, const SharedBudgetOptions& options = {});
    ~OffloadShard() override { stop(); }
    /// Ends the polling; connections may still return pages and budget.
    void stop();
    OffloadShard(const OffloadShard&) = delete;
    OffloadShard& operator=(const OffloadShard&) = delete;

    std::uint32_t poll() override;

    /// Any thread: a connection that this shard polls from now on.
    void add(TargetConnection& connection);
    /// Control thread, once the connection is quiesced. On return the reactor's thread holds no pointer to
    /// it.
    void remove(TargetConnection& connection);
    /// Any thread: asks the shard to check the flags of its connections (TargetConnection::attend).
    void request_attention();
    /// Reactor's thread: wakes the drive's thread at the end of the round, once for all commands submitted in
    /// it.
    void wake_soon(Reactor& drive);
    /// Reactor's thread: polls the connection until it says that it is idle.
    void activate(TargetConnection& connection);

    [[nodiscard]] Reactor& reactor() const { return reactor_; }

    // Reactor's thread: what its connections share.
    /// Staging memory of connections before Connect and of discovery: none of their commands waits for a
    /// drive.
    [[nodiscard]] SharedBudget& staging() { return staging_; }
    /// One budget for each drive: the commands of a drive that hangs keep theirs, and other drives' do not
    /// wait for it.
    [[nodiscard]] SharedBudget& staging(const Subsystem& subsystem);
    [[nodiscard]] SharedBudget& places(const Subsystem& subsystem);
    [[nodiscard]] StagingPages& pages() { return pages_; }
    /// Budget was returned: the next round grants waiting requests.
    void request_grants() { grants_due_ = true; }

  private:
    void attend();
    std::uint32_t grant_waiting();

    Reactor& reactor_;
    const SharedBudgetOptions options_;
    std::atomic<bool> attention_{false};
    std::mutex mutex_;
    std::vector<TargetConnection*> all_;  // under mutex_
    TargetConnection* first_active_ = nullptr;
    std::vector<Reactor*> to_wake_;
    bool stopped_ = false;
    bool grants_due_ = false;
    SharedBudget staging_;                               // bytes; before Connect, and discovery
    std::map<const Subsystem*, SharedBudget> stagings_;  // bytes, of each drive
    std::map<const Subsystem*, SharedBudget> places_;    // commands at each drive
    StagingPages pages_;
};

}  // namespace gnstor::nvmf
