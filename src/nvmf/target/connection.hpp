// connection.hpp: one queue pair of the target: from capsules to a drive queue and back.
//
// States: awaiting Connect -> connecting (the control thread makes the drive queue) -> authenticating, where
// the target demands it -> ready -> draining -> quiesced. Any error of the queue pair begins the draining:
// the connection sends nothing more, waits for the commands that the drive holds, and releases their windows
// and messages as the drive answers. Only a quiesced connection is destroyed, by the control thread.
//
// Its parts, each with its own invariants: CommandTable (the outstanding commands), Admission (its part of
// the budgets, and the commands that wait for it), CommandData (where a command's data lies),
// ConnectHandshake (the Connect command, which the control thread decides) and ControlCommand (authentication
// and HOST SET, which it answers). What is left here is the order of their steps, the states above, and the
// commands that the target answers itself: Connect, properties, keep-alive, some features.
//
// Invariants
//   * at most `entries` commands are outstanding, each with its own id: one more fails the connection;
//   * a command whose payload must be fetched waits in its entry until on_window_ready(), and draining waits
//     for that too;
//   * while the queue is authenticating, it takes the commands of authentication, one at a time, and no
//     others; the budgets count it for its peer's address, not for the host NQN that it has not proven.
//
// Thread: everything runs on the reactor that owns the queue pair (the NIC's poller delivers, the shard
// polls), except the calls under "Control". No lock, no allocation for I/O commands; admin and fabrics
// commands take the subsystem's mutex.
#pragma once

#include "nvmf/auth/dhchap_controller.hpp"
#include "nvmf/protocol/capsule.hpp"
#include "nvmf/target/admission.hpp"
#include "nvmf/target/command_data.hpp"
#include "nvmf/target/command_table.hpp"
#include "nvmf/target/connect_handshake.hpp"
#include "nvmf/target/control_command.hpp"
#include "nvmf/target/offload_shard.hpp"
#include "nvmf/target/subsystem.hpp"
#include "rdma/wire/loop/soft_nic.hpp"

#include <gnstor/nvme/counters_log.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace gnstor::nvmf {

class TargetConnection;

/// Requests of a connection to the control thread. Called on the reactor's thread; must not block.
class ConnectionOwner {
  public:
    virtual ~ConnectionOwner() = default;
    /// A Connect command arrived: decide (TargetConnection::connect_request), then answer_connect().
    virtual void on_connect_command(TargetConnection& connection) = 0;
    /// A command arrived that the control thread answers (TargetConnection::control_request).
    virtual void on_control_command(TargetConnection& connection) = 0;
    /// The controller was disabled or shut down: its I/O connections must be closed.
    virtual void on_controller_disabled(Subsystem& subsystem, std::uint16_t controller_id) = 0;
    /// The host shuts the controller down: the subsystem's device must be flushed, and then
    /// Controllers::shutdown_ended() called.
    virtual void on_shutdown(Subsystem& subsystem, std::uint16_t controller_id, std::uint32_t shutdown) = 0;
    /// The connection is in error and takes no new commands; if it is an admin queue, its controller ends.
    virtual void on_draining(TargetConnection& connection) = 0;
    /// Fills in the target's fields of a counters log page.
    virtual void add_counters(const Subsystem& subsystem, nvme::SsdCountersLog& log) = 0;
    /// The connection may be destroyed: its reactor does not access it after this call.
    virtual void on_quiesced(TargetConnection& connection) = 0;
};

class TargetConnection final : public rdma::MessageSink {
  public:
    /// `subsystem`: null if Connect will name it (answer_connect).
    TargetConnection(rdma::SoftNic& nic, Subsystem* subsystem, ConnectionOwner& owner,
                     const TransportRequest& transport, std::function<std::uint64_t()> now_ns);
    ~TargetConnection() override = default;

    // From the NIC's poller.
    void on_message(const rdma::InboundMessage& message) override;
    void on_window_ready(rdma::QpNumber qp, std::uint64_t cookie, bool good) override;
    void on_window_freed(rdma::QpNumber qp, std::uint32_t room) override;
    void on_error(rdma::QpNumber qp) override;
    [[nodiscard]] std::uint32_t fetch_bytes(const rdma::InboundMessage& message) const override;

    // From the shard.
    /// A hint: poll() is called soon.
    void prefetch() const {
        if (queue_ != nullptr) queue_->prefetch_completion();
    }
    /// A further hint, once prefetch() has loaded that line: loads what answering the next completion needs.
    void prefetch_answer() const;
    std::uint32_t poll();
    void attend();
    /// The budget has granted the oldest waiting command its staging memory, or its place at the drive.
    void on_staging_granted();
    void on_place_granted();
    [[nodiscard]] bool wants_polling() const { return busy() && state_ != State::kQuiesced; }
    void announce_if_quiesced();

    // Control.
    /// Before the queue pair is connected.
    void attach(rdma::QpNumber qp, OffloadShard& shard);
    [[nodiscard]] const ConnectRequest& connect_request() const { return handshake_.request(); }
    [[nodiscard]] const TransportRequest& transport() const { return transport_; }
    /// Ends "connecting". `subsystem` and `queue` are null unless the outcome is success.
    void answer_connect(const ConnectOutcome& outcome, Subsystem* subsystem, ssd::NvmeQueue* queue);
    [[nodiscard]] const ControlCommand::Request& control_request() const { return control_.request(); }
    void answer_control_command(ControlCommand::Reply reply);
    /// Asks the reactor to fail the connection.
    void request_fail();
    /// Whether it was failed because its host broke the protocol. Valid once it is quiesced.
    [[nodiscard]] bool broke_rules() const { return broke_rules_; }
    [[nodiscard]] bool is_draining() const { return draining_.load(std::memory_order_acquire); }
    [[nodiscard]] rdma::QpNumber qp() const { return qp_; }
    [[nodiscard]] OffloadShard& shard() const { return *shard_; }
    [[nodiscard]] const ConnectionCounters& counters() const { return counters_; }

    // The control thread's data about this connection.
    struct Record {
        std::uint64_t accepted_ns = 0;
        Subsystem* subsystem = nullptr;  ///< null: accepted by a port, and not named by a Connect yet
        std::size_t door = 0;            ///< index of the listener that accepted it
        QueueBinding binding;            ///< of a successful Connect
        bool bound = false;
        std::string peer;  ///< the host's address
        rdma::PeerKind kind = rdma::PeerKind::kNetwork;
        bool stranger = false;  ///< no key was proven at its address when it was accepted, nor on it since
        bool must_authenticate = false;
        bool authenticated = false;
        bool auth_failed = false;         ///< it gets no second try
        bool evicted = false;             ///< its host is not let in any more
        std::uint64_t auth_until_ns = 0;  ///< it is ended if it has not authenticated by then
        std::uint64_t host_stamp = 0;     ///< of the key that it has proven (HostRegistry::Host)
        std::uint64_t offered_stamp = 0;  ///< of the key of the transaction under way
        std::uint64_t host_set_ns = 0;    ///< when its HOST SET began to wait
        std::unique_ptr<auth::DhchapController>
            authentication;    ///< the transaction under way, or the last one
        bool closing = false;  ///< it was asked to fail
        bool failed = false;   ///< the same, because of a time limit
        bool quiesced = false;
        std::uint32_t refusals = 0;       ///< failed attempts to destroy its queue pair
        ssd::NvmeQueue* queue = nullptr;  ///< the drive queue, which destroy() deletes
    };
    Record record;

  private:
    friend class OffloadShard;

    enum class State : std::uint8_t {
        kAwaitingConnect,
        kConnecting,
        kAuthenticating,
        kReady,
        kDraining,
        kQuiesced
    };

    struct Answer {
        nvme::Status status = nvme::Status::kSuccess;
        std::uint32_t dw0 = 0;
        std::uint32_t dw1 = 0;
        std::uint32_t invalidate_key = 0;
        bool no_sq_flow = false;  ///< of Connect: the host's request for no SQ flow control is granted
    };

    [[nodiscard]] QueueKind kind() const {
        return transport_.queue_id == 0 ? QueueKind::kAdmin : QueueKind::kIo;
    }
    /// SQHD of a response: 0 without SQ flow control (Base 2.0, 3.3.2.1), else an index into the host's ring.
    [[nodiscard]] std::uint16_t sq_head() const {
        return binding_.sq_flow ? static_cast<std::uint16_t>(received_ % ring_) : std::uint16_t{0};
    }
    [[nodiscard]] bool busy() const { return commands_.any_at_drive() || state_ == State::kDraining; }

    void serve(Subsystem* subsystem);

    // A command's steps, in their order.
    void take(const ParsedCapsule& parsed, const MessageBytes& bytes, const rdma::InboundMessage& message);
    void take_command(const Capsule& capsule, const MessageBytes& bytes, const rdma::InboundMessage& message);
    void submit(const Capsule& capsule, const MessageBytes& bytes, const rdma::InboundMessage& message);
    void begin(std::uint32_t index, const Capsule& capsule, const MessageBytes& bytes);
    void hand_over(std::uint32_t index, const Capsule& capsule, std::byte* data);
    void to_drive(std::uint32_t index, const Capsule& capsule, std::byte* data);
    void finish(const nvme::Completion& completion);
    void complete_data(CommandEntry& entry);
    void free_entry(std::uint32_t index);

    // Its end without the drive.
    void give_back(std::uint32_t index, const Capsule& capsule, nvme::Status status);
    void refuse(const Capsule& capsule, nvme::Status status);
    void answer(std::uint16_t command_id, const Answer& answer);
    void count(const Capsule& capsule);

    // The connection's end.
    void fail();
    void begin_drain();
    void drop_waiting();

    // Commands that the target answers.
    void take_fabrics(const Capsule& capsule, const MessageBytes& bytes, const rdma::InboundMessage& message);
    void judge_connect(std::uint32_t index, const Capsule& capsule, const std::byte* data);
    void finish_connect(const ConnectHandshake::Answer& decided);
    void to_control(std::uint32_t index, const Capsule& capsule, std::byte* data);
    void finish_control_command(const ControlCommand::Reply& reply);
    void become_ready();
    void reset(const Capsule& capsule);
    bool take_admin(Capsule& capsule);
    bool take_abort(Capsule& capsule);

    rdma::SoftNic& nic_;
    Subsystem* subsystem_ = nullptr;  // not null once a Connect has succeeded
    ConnectionOwner& owner_;
    const TransportRequest transport_;
    const std::function<std::uint64_t()> now_ns_;
    ssd::Dialect dialect_ = ssd::Dialect::kArray;
    rdma::QpNumber qp_ = 0;
    OffloadShard* shard_ = nullptr;

    State state_ = State::kAwaitingConnect;
    QueueBinding binding_;
    ssd::NvmeQueue* queue_ = nullptr;
    Reactor* drive_reactor_ = nullptr;
    std::uint32_t ring_;          // entries of the host's submission queue, as Connect says; for the SQ head
    std::uint32_t received_ = 0;  // commands received so far: SQ head
    bool broke_rules_ = false;
    CommandTable commands_;
    Admission admission_;
    CommandData data_;
    ConnectHandshake handshake_;
    ControlCommand control_;
    bool authenticates_ = false;             // commands of authentication are offered
    bool authentication_under_way_ = false;  // one of them has arrived and is not answered

    std::atomic<bool> fail_requested_{false};  // control -> reactor
    std::atomic<bool> draining_{false};        // reactor -> control

    ConnectionCounters counters_;

    // Owned by the shard.
    TargetConnection* next_active_ = nullptr;
    bool active_ = false;
};

}  // namespace gnstor::nvmf
