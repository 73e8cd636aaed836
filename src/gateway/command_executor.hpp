// command_executor.hpp: carries out the commands of a gateway's queues on a volume, many at once, on one
// thread.
//
// Each I/O command becomes a SteppedRequest (gnor/stepped.hpp) on the executor's channel: split at chunks,
// sent to replicas, retried and given up like any lane's call. Data is copied once, through the channel's
// pool.
// Invariants
//   * a fetched command is answered exactly once: when its request has ended, at the latest at its deadline,
//     even while the channel is held;
//   * only this thread accesses memory that a command names, and never after the answer;
//   * a request begins after its command was fetched and before that is answered, so a write that was fetched
//     after another one was answered is the newer one. A request that met a broken queue pair is begun again
//     before its command is answered. Commands are unordered among each other, as in NVMe: others may pass
//     one that waits for room, or is begun again, but not for ever. Commands for the same SSDs begin, the
//     first time, in the order in which they were fetched;
//   * commands for a slow SSD leave places for the others (ssd_quota.hpp);
//   * a flush answered with success is true (write_loss_tracker.hpp), even after a restart: a change is
//     answered only after a record of it is stable (loss_record.hpp). The executor's owner writes the
//     record; if that fails, changes end with Internal Error;
//   * sequences of a change are marked resolved (gnor/detail/resources/resolved.hpp) only when all SSDs have
//     answered it, or when it was begun again, as a newer change of the same blocks, and has succeeded;
//   * after a drive has reported a stale epoch, nothing is written any more: the namespace is write protected
//     from then on, and hosts are notified.
// One thread, the reactor's, except for functions marked "any thread".
#pragma once

#include <gnstor/base/reactor.hpp>
#include <gnstor/gnor/stepped.hpp>
#include <gnstor/gnor/volume_ref.hpp>

#include "gateway/block_command.hpp"
#include "gateway/ssd_quota.hpp"
#include "gateway/write_loss_tracker.hpp"
#include "ssd/drive/admin_commands.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace gnstor::gateway {

/// What the gateway has done since it was opened; counts commands unless the name says otherwise.
struct GatewayCounters {
    std::uint64_t reads, writes, flushes, trims, write_zeroes;
    std::uint64_t blocks_read, blocks_written;
    std::uint64_t refused;        ///< refused by the gateway itself
    std::uint64_t failed;         ///< failed on the volume
    std::uint64_t reclaims;       ///< how often connections to SSDs were re-established
    std::uint64_t record_writes;  ///< writes of loss records
    std::uint64_t share_waits;    ///< commands that waited for room with their SSDs (ssd_quota.hpp)
    std::uint64_t older_reads;    ///< reads of blocks that are doubtful on every replica
};

/// Present state.
struct GatewayState {
    std::uint32_t under_way, waiting;  ///< commands begun; commands fetched but not begun
    std::uint32_t places, places_of_one_ssd, places_of_many;
    std::vector<std::uint32_t> ssds;  ///< places in use for the SSD of each slot
    std::uint32_t many;               ///< places in use by commands that go to many SSDs
    std::uint64_t unflushed;          ///< answered changes that no flush has covered (write_loss_tracker.hpp)
    std::uint32_t slots_gone;
    bool flushes_fail;
};

struct ExecutorOptions {
    std::string volume;  ///< its name, for the log
    std::uint64_t timeout_ns = 0;
    bool serves_older = false;        ///< GatewayOptions::serves_older
    std::uint32_t under_way_max = 0;  ///< commands in the channel; further ones wait, until their deadlines
    /// Called when an answer waits for a record to be written; empty: no records are kept.
    std::function<void()> record_wanted;
    bool has_predecessor = false;
    std::optional<LossRecord> predecessor;  ///< the predecessor's record; none: unreadable
    std::array<std::uint8_t, 16> uuid{};    ///< of the volume, stored in records
};

class CommandExecutor final : public Poller, public deengine::CompletionSink {
  public:
    CommandExecutor(const VolumeRef& volume, ChannelRef channel, ssd::DriveFacts facts,
                    ExecutorOptions options);

    std::uint32_t poll() override;
    void on_complete(std::uint64_t tag, nvme::Status status, std::uint64_t result) override;

    ssd::NvmeQueue* add(std::unique_ptr<ssd::ServedQueue> queue);
    /// Ends all commands fetched from the queue, and removes it. False: not a queue of this executor.
    bool remove(const ssd::NvmeQueue* queue);
    [[nodiscard]] std::size_t queues() const;

    /// Begins no more requests until resume(); those in flight continue. Waiting commands end at their
    /// deadline.
    void hold() { held_ = true; }
    void resume(bool reclaimed) {
        held_ = false;
        counters_.reclaims += reclaimed ? 1 : 0;
    }
    /// Whether a command that has met no broken queue pair waits for resume().
    [[nodiscard]] bool holds_others_back() const;
    /// True: begins no more changes, because the volume is between two epochs; reads continue. False: begins
    /// them again.
    void hold_changes(bool held) { changes_held_ = held; }
    /// The volume has, or may have, another writer: read only from now on.
    void fence();
    /// Switches to the next epoch of the same volume. Call while the channel is quiet.
    void renewed(const VolumeRef& volume);
    /// Gives up the changes in flight; they begin again after resume().
    void recall_changes();
    /// Whether the channel has no request of this executor.
    [[nodiscard]] bool channel_is_quiet() const { return begun_ == 0; }
    /// Whether a queue pair of the channel is in error, or a command was given up since the last call: then
    /// the client's reclaim() may help.
    bool needs_reclaim();
    /// As a host's FLUSH; calls `done` once with its success, perhaps before it returns.
    void flush(std::function<void(bool)> done);
    /// Ends all commands, and every later one, with Command Aborted.
    void stop();

    /// The record to be written now, if any. Called about every 100 ms, and after record_wanted.
    std::optional<LossRecord> record_to_write();
    /// Reports whether that record is stable.
    void record_written(const LossRecord& record, bool stable);

    [[nodiscard]] const GatewayCounters& counters() const { return counters_; }
    [[nodiscard]] GatewayState state() const;
    /// Any thread.
    [[nodiscard]] bool writable() const { return writable_.load(std::memory_order_relaxed); }

  private:
    using ChannelState = ChannelRef::State;
    /// One I/O command.
    struct Work {
        ssd::ServedQueue* queue = nullptr;  ///< null: the executor's own flush
        std::uint32_t slot = 0;
        std::function<void(bool)> done;  ///< for the executor's own flush
        BlockCommand command;
        std::vector<IoRequest> requests;
        gnor::SteppedRequest<ChannelState> request;
        std::uint64_t deadline_ns = 0;
        std::uint64_t retry_ns = 0;  ///< does not begin earlier
        bool begun = false, ended = false;
        bool may_be_wide = false;  ///< trim or write zeroes of many chunks: may use kWideWindow
        bool met_no_room = false;  ///< has waited for room with its SSDs
        bool in_doubt = false;     ///< an earlier attempt ended in doubt (gnor/detail/resources/resolved.hpp)
        SsdQuota::Mask ssds = 0;   ///< the SSDs that it goes to
        nvme::MapVersion map_version = 0;  ///< the watch's map version when this began
        struct Sequences {
            std::uint64_t first, count;
        };
        std::vector<Sequences> sequences;  ///< of a change: one entry per attempt, not yet resolved
        WriteLossTracker::Mark mark;       ///< for a flush
    };

    std::uint32_t fetch(std::uint64_t now_ns);
    std::uint32_t fetch_from(ssd::ServedQueue& q, std::uint32_t limit, std::uint64_t now_ns);
    void take_admin(ssd::ServedQueue& q, std::uint32_t slot);
    void take_io(ssd::ServedQueue& q, std::uint32_t slot, std::uint64_t now_ns);
    std::uint32_t advance(std::uint64_t now_ns);
    std::uint32_t linger(std::uint64_t now_ns);
    [[nodiscard]] bool moves_no_bytes_in_many_chunks(const Work& work) const;
    void begin(Work& work);
    void leave_attempt(Work& work);
    void leave_channel(Work& work);
    void resolve(Work& work);
    bool step(Work& work, std::uint64_t now_ns);
    void give_window_up(const Work& work);
    void see_map();
    [[nodiscard]] bool has_old_changes() const;
    nvme::Status judge_flush(const Work& work);
    /// Whether the stable record permits a change to be answered.
    [[nodiscard]] bool record_covers() const;
    bool wait_for_record(Work& work, std::uint64_t now_ns);
    [[nodiscard]] SsdQuota::Mask ssds_of(const Work& work) const;
    bool put_off(Work& work, std::uint64_t now_ns);
    void end(Work& work, nvme::Status status);
    void give_up(Work& work);
    void collect();
    nvme::Status judge_older(const Work& work);
    void count(const Work& work);
    [[nodiscard]] deengine::EngineCounters health() const;

    VolumeRef volume_;
    const ChannelRef channel_;
    const ExecutorOptions options_;
    SsdQuota shares_;
    WriteLossTracker watch_;
    std::set<std::uint16_t> heard_;     // controllers that were told of an inherited loss
    std::optional<LossRecord> stable_;  // the record known to be on the medium
    bool record_wanted_ = false, record_fails_ = false;
    std::uint32_t settled_looks_ = 0;  // consecutive calls of record_to_write() with nothing unsettled
    ssd::AdminCommands admin_;
    std::vector<std::unique_ptr<ssd::ServedQueue>> queues_;  // by index; null: free
    std::size_t first_queue_ = 0;                            // where the next round of fetching starts
    // free_ and under_way_ together have one for each entry of an I/O queue.
    std::vector<std::unique_ptr<Work>> free_;
    std::vector<std::unique_ptr<Work>> under_way_;  // oldest first
    std::uint32_t begun_ = 0;                       // how many of under_way_ have begun
    const Work* wide_ = nullptr;                    // the one of under_way_ that has the wide window
    std::uint32_t changing_ = 0;                    // how many of begun_ are changes
    bool held_ = false, changes_held_ = false, stopped_ = false, gave_up_ = false;
    std::uint64_t progress_ns_ = 0;  // time of the last progress
    std::uint32_t backoff_ = 0;
    GatewayCounters counters_{};
    std::atomic<bool> writable_;
};

}  // namespace gnstor::gateway
