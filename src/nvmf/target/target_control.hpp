// target_control.hpp: the control path of a target: decides Connects, expires controllers, destroys
// connections.
//
// One thread decides Connect commands (making drive queues, which may block), authenticates hosts, watches
// keep-alives and time-outs, and destroys connections that are quiesced. Reactors only post to it.
// Invariants
//   * `mutex_` guards the lists below and is never held while the NIC, a drive or a reactor is called: those
//     may wait for a thread that is posting here;
//   * a TargetConnection is created by on_connect and destroyed by the control thread alone, after its shard
//     has forgotten it;
//   * a queue id is free for a new Connect when its old connection is destroyed; a Connect that arrives
//     earlier waits;
//   * a queue that must authenticate serves no command before it has; a host whose key is removed or replaced
//     loses all its queues, and HOST SET is answered when they have ended.
#pragma once

#include "nvmf/target/connection.hpp"
#include "nvmf/target/discovery_device.hpp"

#include <condition_variable>
#include <deque>
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
    void on_control_command(TargetConnection& connection) override;
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
    enum class EventKind : std::uint8_t {
        kAccepted,
        kConnect,
        kCommand,
        kDisabled,
        kShutdown,
        kDraining,
        kQuiesced
    };
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
    [[nodiscard]] bool is_stranger(const rdma::ConnectRequest& request) const;
    [[nodiscard]] bool reserve(const std::string& peer, std::uint32_t entries, bool stranger);
    void give_back(const std::string& peer, std::uint32_t entries, bool stranger);
    rdma::ConnectReply refuse(TargetListener& door, nvme::RdmaRejectStatus status);
    OffloadShard& shard_of(Reactor& reactor);
    void post(Event event);

    // The control thread.
    void run();
    void handle(const Event& event);
    /// Takes the connection whose peer was served longest ago, so that one peer's many do not delay another's
    /// few. Null: all of them must wait.
    [[nodiscard]] TargetConnection* take_next(std::deque<TargetConnection*>& waiting, bool connects);
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

    // target_auth.cpp
    [[nodiscard]] bool must_authenticate(const TargetConnection& connection,
                                         const Subsystem& subsystem) const;
    [[nodiscard]] nvme::Status may_begin(const TargetConnection& connection,
                                         const Subsystem& subsystem) const;
    void make_room(const TargetConnection& newcomer);
    void end_oldest_strangers(const TargetConnection& newcomer);
    void prove(TargetConnection& connection);  ///< its host has authenticated on it
    static void end_late(TargetConnection& connection);
    void log_refusal(const TargetConnection& connection, const std::string& why);
    void answer_commands();
    static void refuse_command(TargetConnection& connection, nvme::Status status);
    void authenticate(TargetConnection& connection);
    [[nodiscard]] bool begin_authentication(TargetConnection& connection);
    void judge_authentication(TargetConnection& connection, ControlCommand::Reply& reply);
    void set_hosts(TargetConnection& connection);
    void check_hosts();
    void end_unless_listed(TargetConnection& connection);
    void answer_host_sets();
    void end_host(TargetConnection& connection, const char* why);
    /// Logs a host that ends its connection without having authenticated.
    void note_stranger(const TargetConnection& connection);
    void expire_authentication(TargetConnection& connection, std::uint64_t now_ns);

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
    // Of records marked as strangers, those being accepted included.
    std::uint32_t strangers_ = 0;
    std::uint64_t stranger_entries_ = 0;
    std::map<std::string, std::uint32_t> proven_of_;  // connections on which a host authenticated, by peer
    bool stopping_ = false;                           // reject new connections
    bool stop_thread_ = false;
    bool check_now_ = false;

    // The control thread's own.
    std::deque<TargetConnection*> connects_;       // with a Connect to be decided
    std::deque<TargetConnection*> commands_;       // with a command to be answered (control_command.hpp)
    std::vector<TargetConnection*> host_sets_;     // with a HOST SET that waits until queues have ended
    std::map<std::string, std::uint64_t> served_;  // by peer: the turn in which take_next() last took one
    std::uint64_t turns_ = 0;
    std::uint64_t refusals_logged_ = 0, refusals_left_out_ = 0, refusals_counted_ns_ = 0;
    const std::uint64_t first_hosts_version_;  // of options_.hosts when this began: no list has come yet
    std::uint64_t hosts_version_;              // of options_.hosts when check_hosts() last looked
    std::thread thread_;
};

}  // namespace gnstor::nvmf
