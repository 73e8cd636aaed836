// command_path.hpp: fetches a drive's commands from its queues, checks them, submits them to deEngine, and
// posts the completions.
//
// Invariants
//   * a fetched command holds one Pending of its queue until its completion is in the ring: at most depth - 1
//     of them;
//   * a completion carries deEngine's result, which waits until it is durable (one sync for a batch of
//     writes); no I/O command succeeds after the grant has ended under which it was checked;
//   * a poll does a bounded amount of work; it allocates and locks nothing, except when queues are added or
//     removed.
// Arbitration: admin queues, then arbiter.hpp.
// With a timing (timing_model.hpp) the completion of a read or write waits until it is due; without one there
// is no timer at all. One owner thread: the reactor's.
#pragma once

#include <gnstor/base/reactor.hpp>

#include "deengine/front/engine.hpp"
#include "ssd/drive/admin_commands.hpp"
#include "ssd/drive/completion_timer.hpp"
#include "ssd/drive/served_queue.hpp"
#include "ssd/queues/arbiter.hpp"

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace gnstor::ssd {

class CommandPath final : public Poller, public deengine::CompletionSink {
  public:
    /// Call before the first poll. `timing` passed check().
    void serve(deengine::Engine& engine, DriveFacts facts, const DriveTiming& timing = {});

    std::uint32_t poll() override;
    void on_complete(std::uint64_t tag, nvme::Status status, std::uint64_t result) override;

    /// Flushes every completed write; a later poll calls `done`.
    void flush(std::function<void(bool)> done);
    NvmeQueue* add(std::unique_ptr<ServedQueue> queue);
    /// Stops fetching from the queue and completes its event requests; false: not a queue of this drive.
    bool close(const NvmeQueue* queue);
    /// Whether all fetched commands have completed.
    [[nodiscard]] bool idle(const NvmeQueue* queue) const;
    void remove(const NvmeQueue* queue);
    [[nodiscard]] std::size_t queues() const;

  private:
    /// Fetched in this poll, not yet given to deEngine.
    struct Fetched {
        ServedQueue* queue;
        std::uint32_t slot;  ///< of its `pending`
    };
    /// Polling state of one queue of `queues_`, contiguous with that of the others; unused for admin queues.
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
    /// Marks the tags of flushes that no queue requested; other tags have a queue's index above bit 32.
    static constexpr std::uint64_t kOwnTag = 1ull << 62;

    deengine::Engine* engine_ = nullptr;
    bool moves_data_ = false;  // this thread copies data, not those of service units
    std::unique_ptr<AdminCommands> admin_;
    std::vector<std::unique_ptr<ServedQueue>> queues_;  // by index; null: free
    std::vector<Look> looks_;                           // by index, as queues_
    std::vector<ServedQueue*> admin_queues_;
    Arbiter arbiter_;  // of all I/O queues, whatever their controller
    std::vector<Fetched> batch_;
    bool write_protected_ = false;            // refuses commands that change data or volumes
    std::vector<Done> done_;                  // reserved for everything outstanding
    std::unique_ptr<CompletionTimer> timer_;  // null: completions are not delayed
    std::map<std::uint64_t, std::function<void(bool)>> flushes_;  // that no queue requested, by tag
    std::uint64_t last_flush_ = 0;
    std::uint64_t now_ns_ = 0;
};

}  // namespace gnstor::ssd
