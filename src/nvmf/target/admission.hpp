// admission.hpp: a connection's part of the budgets of its reactor, and its commands that wait for it.
//
// The reactor's connections share two budgets (shared_budget.hpp): staging memory, that is pages for copied
// payload and, on some wires, the NIC's memory for windows; and places, the number of commands at the drive.
// A command that finds too little waits here, with its capsule, until the shard says that it was granted.
// Before Connect the peer's address is the budgets' client, afterwards the host NQN.
//
// Invariants
//   * a waiting command has an entry (command_table.hpp), and its capsule is kept under that entry's index;
//   * what is taken is returned: a page with the entry, a window's memory when the NIC reports it free, a
//     place when the drive has answered;
//   * what was taken before a move to another budget is returned to the one that it was taken from;
//   * commands of one connection are granted in the order in which they asked.
// The reactor's thread only. Allocates when a command first waits.
#pragma once

#include "nvmf/protocol/capsule.hpp"
#include "nvmf/target/shared_budget.hpp"
#include "rdma/nic/nic.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace gnstor::nvmf {

class OffloadShard;
class TargetConnection;
struct Subsystem;

/// A command that waits for staging memory, for its payload, or for a place at the drive.
struct WaitingCommand {
    Capsule capsule;
    rdma::InboundMessage message;  ///< valid while its entry holds it
    std::byte* data;               ///< address that the drive will read or write
};

class Admission {
  public:
    /// `entries`: of the connection's command table.
    explicit Admission(std::uint32_t entries) : entries_(entries) {}

    /// Before the queue pair is connected.
    void attach(OffloadShard& shard) { shard_ = &shard; }

    /// Before Connect, when the host is unknown. `windows`: windows take NIC memory, which the budget counts.
    void join_as_peer(TargetConnection& connection, const std::string& peer, bool windows);
    /// After Connect, or authentication. No command may wait.
    void join_as_host(TargetConnection& connection, Subsystem& subsystem, const std::string& host_nqn,
                      QueueKind kind);
    /// Returns nothing: the connection has given back what it took.
    void leave();

    [[nodiscard]] bool counts_windows() const { return counts_windows_; }
    /// True: granted. False: `index` waits, and TargetConnection::on_staging_granted() will follow.
    [[nodiscard]] bool take_staging(std::uint32_t bytes) {
        return staging_->budget.take(staging_member_, bytes);
    }
    /// The same, but on false nothing waits.
    [[nodiscard]] bool take_staging_now(std::uint32_t bytes) {
        return staging_->budget.take_now(staging_member_, bytes);
    }
    void give_staging(std::uint64_t bytes);
    /// The NIC has freed `room` bytes of a window's memory.
    void window_freed(std::uint32_t room);

    /// Of an I/O queue, after Connect: the commands of other queues need no place.
    [[nodiscard]] bool counts_places() const { return places_ != nullptr; }
    [[nodiscard]] bool take_place() { return places_->budget.take(place_member_, 1); }
    void give_place();

    /// Keeps what the command of entry `index` needs when its wait ends.
    WaitingCommand& keep(std::uint32_t index, const Capsule& capsule);
    [[nodiscard]] const WaitingCommand& kept(std::uint32_t index) const { return kept_[index]; }
    WaitingCommand& wait_for_staging(std::uint32_t index, const Capsule& capsule) {
        unstaged_.push_back(index);
        return keep(index, capsule);
    }
    void wait_for_place(std::uint32_t index, const Capsule& capsule, std::byte* data) {
        unplaced_.push_back(index);
        keep(index, capsule).data = data;
    }
    /// The entry of the command that was granted.
    [[nodiscard]] std::uint32_t next_unstaged();
    [[nodiscard]] std::uint32_t next_unplaced();

    /// Cancels the waiting requests: nothing is granted from now on. The commands stay until drop_*().
    void forget_waiting();
    [[nodiscard]] std::deque<std::uint32_t> drop_unstaged();
    [[nodiscard]] std::deque<std::uint32_t> drop_unplaced();

  private:
    void move_staging();
    void leave_staging();
    void leave_former();

    const std::uint32_t entries_;
    OffloadShard* shard_ = nullptr;
    std::string client_;               // of the budgets, for messages
    SharedBudget* staging_ = nullptr;  // the shard's, after Connect the subsystem's; null: not joined
    SharedBudget* places_ = nullptr;   // I/O queues only, after Connect
    FairBudget::Member staging_member_ = 0, place_member_ = 0;
    SharedBudget* former_ = nullptr;  // left but for windows that the NIC has yet to free; mostly null
    FairBudget::Member former_member_ = 0;
    bool counts_windows_ = false;
    std::deque<std::uint32_t> unstaged_, unplaced_;  // entries that wait, the oldest first
    std::vector<WaitingCommand> kept_;               // by entry; empty until a command first waits
};

}  // namespace gnstor::nvmf
