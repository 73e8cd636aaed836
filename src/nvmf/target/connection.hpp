// connection.hpp: one queue pair of the target: from capsules to a drive queue and back.
//
// Life: awaiting Connect -> connecting (the control thread makes the drive queue) -> ready -> draining ->
// quiesced. Draining begins with any error of the queue pair; what the drive holds is waited for, its windows
// and messages are let go as it answers, nothing is sent any more. Only a quiesced connection is destroyed,
// by the control thread.
//
// Invariants
//   * at most `entries` commands are under way, each with its own id: one more, and the connection is failed;
//   * a slot is taken from the free list when the drive gets its command, and is back before the answer is
//   sent;
//   * a message is held only while the drive reads payload from it in place; a window only while the drive
//   may touch it, or while the NIC fills it: where payload has to be fetched, the command waits in its slot
//   until on_window_ready(), and a connection that drains waits for that too;
//   * a window for writing is closed as filled only with a command that has succeeded.
//
// Two budgets are shared with the reactor's other connections (turns.hpp): staging memory, that is pages for
// what is copied and windows where those are the NIC's own memory; and places at the drive. A command that
// finds too little waits in its slot (connection_turns.cpp). Invariants
//   * what a slot waits for, or has, is in its flags; a page is back with the slot, a window's memory when
//   the NIC says so, a place when the drive has answered;
//   * payload in a capsule that finds no page is read in place.
//
// A message that is held keeps back the host's send entries behind it, and with them the room for new ones.
// So payload is read in place only where the drive takes writes in turn: from the first write that others
// overtook by far, payload is copied to the staging page, until many in a row were not so overtaken.
//
// Thread: everything runs on the reactor that owns the queue pair (the NIC's poller delivers, the shard
// polls), but for the calls marked "control". No lock, no allocation for I/O commands; admin and fabrics
// commands take the subsystem's mutex.
#pragma once

#include "nvmf/protocol/capsule.hpp"
#include "nvmf/protocol/id_set.hpp"
#include "nvmf/target/offload_shard.hpp"
#include "nvmf/target/subsystem.hpp"
#include "rdma/nic/nic.hpp"

#include <gnstor/nvme/counters_log.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gnstor::nvmf {

class Connection;

/// What a connection asks of the control thread. Called on the reactor's thread; must not block.
class ConnectionOwner {
  public:
    virtual ~ConnectionOwner() = default;
    /// A Connect command arrived: decide (Connection::connect_request), then answer_connect().
    virtual void on_connect_command(Connection& connection) = 0;
    /// The controller was disabled or shut down: its I/O connections must go.
    virtual void on_controller_disabled(Subsystem& subsystem, std::uint16_t controller_id) = 0;
    /// The controller is told to shut down: the subsystem's device must make stable what it has answered, and
    /// then Controllers::shutdown_ended().
    virtual void on_shutdown(Subsystem& subsystem, std::uint16_t controller_id, std::uint32_t shutdown) = 0;
    /// The connection is in error: nothing new comes from it; with an admin queue its controller is gone.
    virtual void on_draining(Connection& connection) = 0;
    /// Puts in what of a counters log is the target's.
    virtual void add_counters(const Subsystem& subsystem, nvme::SsdCountersLog& log) = 0;
    /// It may be destroyed. The connection is not touched after this call.
    virtual void on_quiesced(Connection& connection) = 0;
};

class Connection final : public rdma::MessageSink {
  public:
    /// `subsystem`: null where Connect says which (answer_connect).
    Connection(rdma::SoftNic& nic, Subsystem* subsystem, ConnectionOwner& owner,
               const TransportRequest& transport, std::function<std::uint64_t()> now_ns);
    ~Connection() override = default;

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
    /// The same, once that line is there: what the answer to the next completion will touch.
    void prefetch_answer() const;
    std::uint32_t poll();
    void attend();
    /// The oldest command that waits for staging memory, or for a place at the drive, has it.
    void on_staging_granted();
    void on_place_granted();
    [[nodiscard]] bool wants_polling() const { return busy() && state_ != State::kQuiesced; }
    void announce_if_quiesced();

    // Control.
    /// Before the queue pair is connected.
    void attach(rdma::QpNumber qp, OffloadShard& shard);
    [[nodiscard]] const ConnectRequest& connect_request() const { return connect_request_; }
    [[nodiscard]] const TransportRequest& transport() const { return transport_; }
    /// Ends "connecting". `subsystem` and `queue` are null unless the outcome is success.
    void answer_connect(const ConnectOutcome& outcome, Subsystem* subsystem, ssd::NvmeQueue* queue);
    /// The connection shall be failed soon.
    void request_fail();
    /// Whether it was ended for what its host sent. Once it is quiesced.
    [[nodiscard]] bool broke_rules() const { return broke_rules_; }
    [[nodiscard]] bool is_draining() const { return draining_.load(std::memory_order_acquire); }
    [[nodiscard]] rdma::QpNumber qp() const { return qp_; }
    [[nodiscard]] OffloadShard& shard() const { return *shard_; }
    [[nodiscard]] const ConnectionCounters& counters() const { return counters_; }

    // The control thread's own notes on this connection.
    struct Record {
        std::uint64_t accepted_ns = 0;
        Subsystem* subsystem = nullptr;  ///< null: its port leads to all, and Connect has not said which
        std::size_t door = 0;            ///< the listener that it came by
        QueueBinding binding;            ///< of a successful Connect
        bool bound = false;
        std::string peer;      ///< who asked for it
        bool closing = false;  ///< it was told to fail
        bool failed = false;   ///< and that because of a time limit
        bool quiesced = false;
        std::uint32_t refusals = 0;       ///< how often its queue pair was not to be destroyed yet
        ssd::NvmeQueue* queue = nullptr;  ///< to be deleted
    };
    Record record;

  private:
    friend class OffloadShard;

    /// Writes in a row that were not overtaken, before payload is read in place.
    static constexpr std::uint32_t kInTurnProven = 256;

    enum class State : std::uint8_t { kAwaitingConnect, kConnecting, kReady, kDraining, kQuiesced };

    struct Slot {
        rdma::SoftNic::Window window{};
        std::unique_ptr<std::byte[]> page;
        std::uint64_t token = 0;
        std::uint32_t invalidate_key = 0;
        std::uint32_t bytes = 0;  ///< to be copied to the window from the page, when the drive has answered
        std::uint64_t turn = 0;   ///< how many commands have ended when it ends, if all end in turn
        std::uint16_t command_id = 0;
        std::uint8_t opcode = 0;
        bool carries_blocks = false;  ///< a write with its payload in the capsule
        bool busy = false;
        bool in_place = false;  ///< the drive reads its payload in the message
        bool has_page = false;  ///< of the budget; `page` is taken when something is put there
        bool has_place = false;
        bool holds_message = false;
        bool holds_window = false;
        bool fills_window = false;
        bool completes_identify = false;
        bool completes_counters = false;
        bool event_request = false;  ///< ends only with the queue or a reset: not waited for
        bool unanswered = false;     ///< the controller was reset meanwhile
    };
    /// A command that waits: for memory, for its payload, for a place.
    struct Parked {
        Capsule capsule;
        rdma::InboundMessage message;  ///< while the slot holds it
        std::byte* data;               ///< where the drive will find or put it
    };
    struct Answer {
        nvme::Status status = nvme::Status::kSuccess;
        std::uint32_t dw0 = 0;
        std::uint32_t dw1 = 0;
        std::uint32_t invalidate_key = 0;
        bool no_sq_flow = false;  ///< of Connect: granted
    };

    [[nodiscard]] QueueKind kind() const {
        return transport_.queue_id == 0 ? QueueKind::kAdmin : QueueKind::kIo;
    }
    /// Of a response: 0 where flow control is off (Base 2.0, 3.3.2.1), else the entries are a ring.
    [[nodiscard]] std::uint16_t sq_head() const {
        return binding_.sq_flow ? static_cast<std::uint16_t>(received_ % ring_) : std::uint16_t{0};
    }
    [[nodiscard]] bool busy() const { return at_drive_ > 0 || state_ == State::kDraining; }

    void serve(Subsystem* subsystem);
    void take(const ParsedCapsule& parsed, const MessageBytes& bytes, const rdma::InboundMessage& message);
    void take_command(const Capsule& capsule, const MessageBytes& bytes, const rdma::InboundMessage& message);
    void submit(const Capsule& capsule, const MessageBytes& bytes, const rdma::InboundMessage& message);
    std::uint32_t take_slot(const Capsule& capsule);
    nvme::Status place(Slot& slot, const Capsule& capsule, const MessageBytes& bytes, std::byte*& data);
    std::byte* where_to_answer(Slot& slot, const Capsule& capsule);
    std::byte* take_fetched(Slot& slot, const Capsule& capsule);
    [[nodiscard]] std::uint32_t staging_need(Slot& slot, const Capsule& capsule, const MessageBytes& bytes);
    [[nodiscard]] bool too_long(const Capsule& capsule) const;
    void await_window(std::uint32_t index, const Capsule& capsule);
    void begin(std::uint32_t index, const Capsule& capsule, const MessageBytes& bytes);
    void hand_over(std::uint32_t index, const Capsule& capsule, std::byte* data);
    void to_drive(std::uint32_t index, const Capsule& capsule, std::byte* data);

    // connection_turns.cpp
    [[nodiscard]] std::byte* page(Slot& slot);
    void join_staging();
    void join_as_host();
    void forget_waiting();
    void drop_waiting();
    void leave_staging();
    void leave_budgets();
    void give_staging(std::uint64_t bytes);
    void give_place(Slot& slot);
    Parked& park(std::uint32_t index, const Capsule& capsule);
    void give_back(std::uint32_t index, const Capsule& capsule, nvme::Status status);
    void finish(const nvme::Completion& completion);
    void judge_order(const Slot& slot);
    void let_go(Slot& slot, bool filled);
    void free_slot(std::uint32_t index);
    void end(std::uint16_t command_id);
    void answer(std::uint16_t command_id, const Answer& answer);
    void refuse(const Capsule& capsule, nvme::Status status);
    void fail();
    void begin_drain();
    void count(const Capsule& capsule);

    // connection_admin.cpp
    void take_fabrics(const Capsule& capsule, const MessageBytes& bytes, const rdma::InboundMessage& message);
    void judge_connect(std::uint32_t index, const Capsule& capsule, const std::byte* data);
    void reset(const Capsule& capsule);
    bool take_admin(Capsule& capsule);
    bool take_abort(Capsule& capsule);
    void finish_connect();

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
    std::uint32_t overtaken_most_ = 0;  // of a write that still counts as in turn
    std::uint32_t ring_;  // entries of the host's submission queue, as Connect says; for the SQ head
    std::vector<Slot> slots_;
    std::vector<std::uint32_t> free_;
    std::vector<std::uint32_t> awaited_;  // slots whose window is not ready, in the order of opening
    std::deque<std::uint32_t> unstaged_;  // slots that wait for staging memory
    std::deque<std::uint32_t> unplaced_;  // slots that wait for a place at the drive
    std::vector<Parked> parked_;          // of all those slots; empty until there is one
    FairBudget::Member staging_member_ = 0, place_member_ = 0;
    Turns* places_ = nullptr;           // at the drive; of I/O queues, from Connect on
    Turns* staging_ = nullptr;          // memory; the subsystem's, from Connect on; null: member of none
    bool stages_windows_ = false;       // they are the NIC's memory
    IdSet ids_;                         // command ids under way
    std::uint32_t under_way_ = 0;       // commands that have not been answered
    std::uint32_t at_drive_ = 0;        // of those: at the drive
    std::uint32_t event_requests_ = 0;  // of those: asynchronous event requests, which end with the queue
    std::uint32_t received_ = 0;        // commands ever: SQ head
    std::uint64_t ended_ = 0;           // commands ever that the drive has completed
    std::uint32_t writes_in_turn_ = 0;  // in a row, with payload in the capsule

    // Connect under way.
    ConnectRequest connect_request_;
    std::uint16_t connect_id_ = 0;
    std::uint32_t connect_key_ = 0;
    bool connecting_ = false;
    bool broke_rules_ = false;
    ConnectOutcome connect_outcome_;
    Subsystem* connect_subsystem_ = nullptr;
    ssd::NvmeQueue* connect_queue_ = nullptr;
    std::atomic<bool> connect_answered_{false};  // control -> reactor, releases the three above

    std::atomic<bool> fail_requested_{false};  // control -> reactor
    std::atomic<bool> draining_{false};        // reactor -> control

    ConnectionCounters counters_;

    // The shard's.
    Connection* next_active_ = nullptr;
    bool active_ = false;
};

}  // namespace gnstor::nvmf
