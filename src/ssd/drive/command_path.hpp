// command_path.hpp: what a drive does with commands: fetches them from its queues, checks them, has them
// executed, answers.
//
// Invariants
//   * a fetched command holds one Pending of its queue until its completion is in the ring: at most depth - 1
//   of them;
//   * a completion says what deEngine said, which waits for the durability of it (one sync a batch of
//   writes); no I/O command succeeds once the grant has ended under which it was checked;
//   * a poll does a bounded amount of work; nothing is allocated or locked but when queues come and go.
// Arbitration: admin queues, then arbiter.hpp.
// With a timing (timing_model.hpp) an answer of a read or write waits until its time has come; without one
// there is no timer, and nothing of it is touched. One owner thread: the reactor's.
#pragma once

#include <gnstor/base/reactor.hpp>

#include "deengine/engine.hpp"
#include "ssd/drive/admin_commands.hpp"
#include "ssd/drive/completion_timer.hpp"
#include "ssd/queues/arbiter.hpp"
#include "ssd/queues/served_queue.hpp"

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace gnstor::ssd {

class CommandPath final : public Poller, public deengine::CompletionSink {
  public:
    /// Before the first poll. `timing` passed check().
    void serve(deengine::Engine& engine, DriveFacts facts, const DriveTiming& timing = {});

    std::uint32_t poll() override;
    void on_complete(std::uint64_t tag, nvme::Status status, std::uint64_t result) override;

    /// Of everything that was answered; `done` is called by a later poll.
    void flush(std::function<void(bool)> done);
    NvmeQueue* add(std::unique_ptr<ServedQueue> queue);
    /// Nothing is fetched from it any more and event requests are given back; false: not a queue of this
    /// drive.
    bool close(const NvmeQueue* queue);
    /// Whether all that was fetched has been answered.
    [[nodiscard]] bool idle(const NvmeQueue* queue) const;
    void remove(const NvmeQueue* queue);
    [[nodiscard]] std::size_t queues() const;

  private:
    /// Fetched in this poll, not yet given to deEngine.
    struct Fetched {
        ServedQueue* queue;
        std::uint32_t slot;  ///< of its `pending`
    };
    /// Of one queue of `queues_`, side by side with those of the others; admin queues have none.
    struct Look {
        const std::atomic<std::uint32_t>* tail = nullptr;
        std::uint32_t fetched = 0;
        bool has_work = false;  ///< when this poll began
    };
    static constexpr std::size_t kBatch = 32;
    using Done = CompletionTimer::Answer;
    ServedQueue* find(const NvmeQueue* queue) const;
    void look_at_clocks();
    void look_at_tails();
    std::uint32_t poll_admin();
    std::uint32_t fetch_from(ServedQueue& q, std::uint32_t limit);
    void dispatch_batch();
    void time_batch();
    void dispatch_io(ServedQueue& q, const nvme::Command& command, std::uint64_t tag);
    void dispatch_admin(ServedQueue& q, std::uint32_t slot, std::uint64_t tag);
    void dispatch_vendor(ServedQueue& q, const nvme::Command& command, std::uint64_t tag);
    void administer(ServedQueue& q, std::uint32_t slot);
    std::uint32_t deliver();
    std::uint32_t deliver_in_time();
    void answer(const Done& done);
    void answer_flush(const Done& done);
    /// In the tags of flushes that no queue asked for; others have the number of a queue above bit 32.
    static constexpr std::uint64_t kOwnTag = 1ull << 62;

    deengine::Engine* engine_ = nullptr;
    bool moves_data_ = false;  // on this thread, not on those of service units
    std::unique_ptr<AdminCommands> admin_;
    std::vector<std::unique_ptr<ServedQueue>> queues_;  // by index; null: free
    std::vector<Look> looks_;                           // by index, as queues_
    std::vector<ServedQueue*> admin_queues_;
    Arbiter arbiter_;  // of all other queues, whoever's they are
    std::vector<Fetched> batch_;
    bool write_protected_ = false;                                // nothing that is written lasts
    std::vector<Done> done_;                                      // room for everything outstanding
    std::unique_ptr<CompletionTimer> timer_;                      // null: answers do not wait
    std::map<std::uint64_t, std::function<void(bool)>> flushes_;  // of its own, by tag
    std::uint64_t last_flush_ = 0;
    std::uint64_t now_ns_ = 0;
};

}  // namespace gnstor::ssd
