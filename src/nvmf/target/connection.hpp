// connection.hpp: one queue pair of the target: from capsules to a drive queue and back.
//
// States: awaiting Connect -> connecting (the control thread makes the drive queue) -> ready -> draining ->
// quiesced. Any error of the queue pair begins the draining: the connection sends nothing more, waits for the
// commands that the drive holds, and releases their windows and messages as the drive answers. Only a
// quiesced connection is destroyed, by the control thread.
//
// Invariants
//   * at most `entries` commands are outstanding, each with its own id: one more fails the connection;
//   * a command takes a slot from the free list before it waits or goes to the drive, and returns it before
//     its response is sent;
//   * a message is held only while the drive reads payload from it in place, or while its command waits for
//     staging memory; a window only while the drive may access it, or while the NIC fills it: a command whose
//     payload must be fetched waits in its slot until on_window_ready(), and draining waits for that too;
//   * a window for writing is closed as filled only if its command succeeded.
//
// The reactor's connections share two budgets (shared_budget.hpp): staging memory, that is pages for copied
// payload and, on some wires, the NIC's memory for windows; and places, the number of commands at the drive.
// A command that finds too little waits in its slot (connection_budgets.cpp). Invariants
//   * a slot's flags say what it holds or waits for; a page is returned with the slot, a window's memory when
//     the NIC reports it free, a place when the drive has answered;
//   * payload in a capsule for which there is no page is read in place.
//
// A held message delays the send completions of the host's later entries, and with them room for new ones. So
// payload is read in place only while the drive completes writes nearly in order: once later commands
// overtake a write by far, payload is copied to staging pages until many writes in a row were not overtaken
// like that.
//
// Thread: everything runs on the reactor that owns the queue pair (the NIC's poller delivers, the shard
// polls), except the calls under "Control". No lock, no allocation for I/O commands; admin and fabrics
// commands take the subsystem's mutex.
#pragma once

#include "nvmf/protocol/capsule.hpp"
#include "nvmf/protocol/id_set.hpp"
#include "nvmf/target/offload_shard.hpp"
#include "nvmf/target/subsystem.hpp"
#include "rdma/wire/loop/soft_nic.hpp"

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

class TargetConnection;

/// Requests of a connection to the control thread. Called on the reactor's thread; must not block.
class ConnectionOwner {
  public:
    virtual ~ConnectionOwner() = default;
    /// A Connect command arrived: decide (TargetConnection::connect_request), then answer_connect().
    virtual void on_connect_command(TargetConnection& connection) = 0;
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
    [[nodiscard]] const ConnectRequest& connect_request() const { return connect_request_; }
    [[nodiscard]] const TransportRequest& transport() const { return transport_; }
    /// Ends "connecting". `subsystem` and `queue` are null unless the outcome is success.
    void answer_connect(const ConnectOutcome& outcome, Subsystem* subsystem, ssd::NvmeQueue* queue);
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
        std::string peer;      ///< the host's address
        bool closing = false;  ///< it was asked to fail
        bool failed = false;   ///< the same, because of a time limit
        bool quiesced = false;
        std::uint32_t refusals = 0;       ///< failed attempts to destroy its queue pair
        ssd::NvmeQueue* queue = nullptr;  ///< the drive queue, which destroy() deletes
    };
    Record record;

  private:
    friend class OffloadShard;

    /// Writes in a row that were not overtaken, before payload is read in place.
    static constexpr std::uint32_t kInTurnProven = 256;

    enum class State : std::uint8_t { kAwaitingConnect, kConnecting, kReady, kDraining, kQuiesced };

    struct Slot {
        rdma::Window window{};
        std::unique_ptr<std::byte[]> page;
        std::uint64_t token = 0;
        std::uint32_t invalidate_key = 0;
        std::uint32_t bytes = 0;  ///< of data; some admin answers are copied from the page to the window
        std::uint64_t turn = 0;   ///< value of ended_ at its completion if the drive completes in order
        std::uint16_t command_id = 0;
        std::uint8_t opcode = 0;
        bool carries_blocks = false;  ///< a write with its payload in the capsule
        bool busy = false;
        bool in_place = false;  ///< the drive reads its payload from the message
        bool has_page = false;  ///< the budget counts a page for it; `page` is taken on first use
        bool has_place = false;
        bool holds_message = false;
        bool holds_window = false;
        bool fills_window = false;
        bool completes_identify = false;
        bool completes_counters = false;
        bool event_request = false;  ///< ends only with the queue or a reset: draining does not wait for it
        bool unanswered = false;     ///< the controller was reset: no response is sent
    };
    /// A command that waits for staging memory, for its payload, or for a place at the drive.
    struct Parked {
        Capsule capsule;
        rdma::InboundMessage message;  ///< valid while the slot holds it
        std::byte* data;               ///< address that the drive will read or write
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

    // connection_budgets.cpp
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
    std::uint32_t overtaken_most_ = 0;  // commands that may overtake a write that counts as in order
    std::uint32_t ring_;  // entries of the host's submission queue, as Connect says; for the SQ head
    std::vector<Slot> slots_;
    std::vector<std::uint32_t> free_;
    std::vector<std::uint32_t> awaited_;  // slots whose window is not ready, in the order of opening
    std::deque<std::uint32_t> unstaged_;  // slots that wait for staging memory
    std::deque<std::uint32_t> unplaced_;  // slots that wait for a place at the drive
    std::vector<Parked> parked_;          // by slot; empty until a command first waits
    FairBudget::Member staging_member_ = 0, place_member_ = 0;
    SharedBudget* places_ = nullptr;  // budget of places at the drive; I/O queues only, set by Connect
    SharedBudget* staging_ =
        nullptr;  // budget of staging memory; the subsystem's after Connect; null: not joined
    bool stages_windows_ = false;       // windows take NIC memory, which staging_ counts
    IdSet ids_;                         // ids of outstanding commands
    std::uint32_t under_way_ = 0;       // commands that have not been answered
    std::uint32_t at_drive_ = 0;        // of those: at the drive
    std::uint32_t event_requests_ = 0;  // of those: asynchronous event requests, which end with the queue
    std::uint32_t received_ = 0;        // commands received so far: SQ head
    std::uint64_t ended_ = 0;           // commands that the drive has completed so far
    std::uint32_t writes_in_turn_ = 0;  // in-capsule writes in a row that completed in order

    // The Connect in progress.
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

    // Owned by the shard.
    TargetConnection* next_active_ = nullptr;
    bool active_ = false;
};

}  // namespace gnstor::nvmf
