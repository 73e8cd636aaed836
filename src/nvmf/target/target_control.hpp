// target_control.hpp: the control path of a target: decides Connects, expires controllers, destroys
// connections.
//
// One thread decides Connect commands (making drive queues, which may block), watches keep-alives and connect
// time-outs, and destroys connections that are quiesced. Reactors only post to it.
// Invariants
//   * `mutex_` guards the lists below and is never held while the NIC, a drive or a reactor is called: those
//     may wait for a thread that is posting here;
//   * a TargetConnection is created by on_connect and destroyed by the control thread alone, after its shard
//     has forgotten it;
//   * a queue id is free for a new Connect when its old connection is destroyed; a Connect that arrives
//     earlier waits.
#pragma once

#include "nvmf/target/connection.hpp"
#include "nvmf/target/discovery_device.hpp"

#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace gnstor::nvmf {

class TargetControl final : public ConnectionOwner {
  public:
    static Result<std::unique_ptr<TargetControl>> open(rdma::SoftNic& nic,
                                                       std::span<const SubsystemConfig> subsystems,
                                                       TargetOptions options);
    ~TargetControl() override;

    void check_time();
    [[nodiscard]] Result<SubsystemCounters> counters(const std::string& name) const;
    [[nodiscard]] const std::vector<std::shared_ptr<Subsystem>>& subsystems() const { return subsystems_; }
    [[nodiscard]] std::size_t connections_open() const;

    // ConnectionOwner: reactors.
    void add_counters(const Subsystem& subsystem, nvme::SsdCountersLog& log) override;
    void on_connect_command(TargetConnection& connection) override;
    void on_controller_disabled(Subsystem& subsystem, std::uint16_t controller_id) override;
    void on_shutdown(Subsystem& subsystem, std::uint16_t controller_id, std::uint32_t shutdown) override;
    void on_draining(TargetConnection& connection) override;
    void on_quiesced(TargetConnection& connection) override;

  private:
    /// A listener: of one subsystem, or of a port, which serves all.
    class TargetListener final : public rdma::Listener {
      public:
        TargetListener(TargetControl& control, std::size_t index, std::string name, Subsystem* subsystem)
            : service(std::move(name)), only(subsystem), control_(control), index_(index) {}
        rdma::ConnectReply on_connect(const rdma::ConnectRequest& request) override {
            return control_.accept(index_, request);
        }
        const std::string service;
        Subsystem* const only;  // null: this is a port
        [[nodiscard]] SubsystemCounters& tally() { return only != nullptr ? only->closed : strayed; }
        SubsystemCounters strayed{};  // of connections by a port that reached no subsystem; under mutex_

      private:
        TargetControl& control_;
        const std::size_t index_;
    };
    enum class EventKind : std::uint8_t { kConnect, kDisabled, kShutdown, kDraining, kQuiesced };
    struct Event {
        EventKind kind;
        TargetConnection* connection;
        Subsystem* subsystem;
        std::uint16_t controller_id;
        std::uint32_t shutdown = 0;
    };

    TargetControl(rdma::SoftNic& nic, TargetOptions options);
    Result<void> make_subsystems(std::span<const SubsystemConfig> subsystems);
    Result<void> make_discovery();
    void add_listener(const std::string& service, Subsystem* only);
    Result<void> listen();
    rdma::ConnectReply accept(std::size_t door, const rdma::ConnectRequest& request);
    [[nodiscard]] bool reserve(const std::string& peer, std::uint32_t entries);
    void give_back(const std::string& peer, std::uint32_t entries);
    rdma::ConnectReply refuse(TargetListener& door, nvme::RdmaRejectStatus status);
    OffloadShard& shard_of(Reactor& reactor);
    void post(Event event);

    // The control thread.
    void run();
    void handle(const Event& event);
    void decide_connects();
    void decide(TargetConnection& connection);
    ConnectOutcome make_queue(TargetConnection& connection, Subsystem& subsystem);
    [[nodiscard]] Subsystem* subsystem_named(std::string_view nqn) const;
    [[nodiscard]] Subsystem* wanted(const TargetConnection& connection) const;
    [[nodiscard]] SubsystemCounters& tally_of(const TargetConnection& connection);
    [[nodiscard]] bool must_wait(const TargetConnection& connection) const;
    enum class Why : std::uint8_t { kOrdinary, kSilence };
    void close_queues(Subsystem& subsystem, std::uint16_t controller_id, bool admin_too,
                      Why why = Why::kOrdinary);
    void flush_for_shutdowns(Subsystem& subsystem);
    void expire();
    void destroy_quiesced(bool again);
    void destroy(TargetConnection& connection);
    [[nodiscard]] std::vector<TargetConnection*> snapshot() const;

    rdma::SoftNic& nic_;
    const TargetOptions options_;
    std::vector<std::shared_ptr<Subsystem>> subsystems_;
    std::unique_ptr<DiscoveryDevice> discovery_device_;  // null without ports
    std::shared_ptr<Subsystem> discovery_;
    std::vector<Subsystem*> all_;  // subsystems_, and discovery_
    std::vector<std::unique_ptr<TargetListener>> listeners_;
    std::size_t listening_ = 0;

    mutable std::mutex mutex_;
    std::condition_variable wake_;      // something is posted, or stop
    std::condition_variable progress_;  // a connection is gone
    std::vector<Event> events_;
    std::list<std::unique_ptr<TargetConnection>>
        connections_;  // added by accept, removed by the control thread
    std::map<Reactor*, std::unique_ptr<OffloadShard>> shards_;
    std::uint32_t accepting_ = 0;  // accept() calls under way
    std::uint64_t entries_ = 0;    // queue entries of all connections, those being accepted included
    std::map<std::string, std::uint64_t> entries_of_;  // the same by peer
    bool stopping_ = false;                            // reject new connections
    bool stop_thread_ = false;
    bool check_now_ = false;

    std::vector<TargetConnection*> connects_;  // control thread's own: Connect commands to be decided
    std::thread thread_;
};

}  // namespace gnstor::nvmf
