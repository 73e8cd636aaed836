// command_engine.hpp: carries the commands of a gateway's queues out on a volume: many at once, on one
// thread.
//
// Each I/O command becomes a SteppedRequest (gnor/stepped.hpp) on the engine's channel: split at chunks, sent
// to replicas, retried and given up as any lane's call is. Data goes through the channel's pool, copied once.
// Invariants
//   * a fetched command is answered once: when its request has ended, at the latest at its deadline, also
//   while the channel is held;
//   * memory that a command names is touched by this thread alone, and not after the answer;
//   * a request is begun after its command was fetched and before that is answered, so that a write which was
//   fetched after another was answered is the newer one; what met a broken queue pair is begun again, before
//   it is answered. Commands have no order among each other, as in NVMe: one that waits for room, or is begun
//   again, is passed by others, though not for ever. Those for the same SSDs are begun, the first time, in
//   the order in which they were fetched;
//   * commands for a slow SSD leave places for the others (ssd_shares.hpp);
//   * a flush that was answered with success is true (loss_watch.hpp), also after a restart: a change is
//   answered when a record of it is stable (loss_record.hpp), which whoever tends the engine writes. Where it
//   cannot be written, changes end with Internal Error;
//   * sequences of a change are noted as resolved (gnor/resolved.hpp) when all SSDs have answered it, or when
//   it was begun again, as a newer change of the same blocks, and has succeeded; never else;
//   * once a drive said that the epoch is stale, nothing is written any more: the namespace is write
//   protected from then on, and hosts are told.
// One thread, the reactor's, but for what is marked "any thread".
#pragma once

#include <gnstor/base/reactor.hpp>
#include <gnstor/gnor/stepped.hpp>
#include <gnstor/gnor/volume_ref.hpp>

#include "gateway/block_command.hpp"
#include "gateway/loss_watch.hpp"
#include "gateway/ssd_shares.hpp"
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

/// What the gateway did since it was opened; commands.
struct GatewayCounters {
    std::uint64_t reads, writes, flushes, trims, write_zeroes;
    std::uint64_t blocks_read, blocks_written;
    std::uint64_t refused;        ///< by the gateway itself
    std::uint64_t failed;         ///< on the volume
    std::uint64_t reclaims;       ///< how often connections to SSDs were made anew
    std::uint64_t record_writes;  ///< of loss records
    std::uint64_t share_waits;    ///< commands that met no room with their SSDs (ssd_shares.hpp)
    std::uint64_t older_reads;    ///< reads of blocks that are doubtful on every replica
};

/// How things stand now.
struct GatewayState {
    std::uint32_t under_way, waiting;  ///< commands that were begun; that were fetched and not begun
    std::uint32_t places, places_of_one_ssd, places_of_many;
    std::vector<std::uint32_t> ssds;  ///< places taken for the SSD of each slot
    std::uint32_t many;               ///< places taken by commands that go to many
    std::uint64_t unflushed;          ///< answered changes that no flush has settled (loss_watch.hpp)
    std::uint32_t slots_gone;
    bool flushes_fail;
};

struct EngineOptions {
    std::string volume;  ///< its name, for the log
    std::uint64_t timeout_ns = 0;
    bool serves_older = false;        ///< GatewayOptions::serves_older
    std::uint32_t under_way_max = 0;  ///< commands in the channel; others wait, until their deadlines
    /// Called when a record has to be written for an answer to be given; empty: none is kept.
    std::function<void()> record_wanted;
    bool has_predecessor = false;
    std::optional<LossRecord> predecessor;  ///< its record; nothing: it cannot be read
    std::array<std::uint8_t, 16> uuid{};    ///< of the volume, in records
};

class CommandEngine final : public Poller, public deengine::CompletionSink {
  public:
    CommandEngine(const VolumeRef& volume, ChannelRef channel, ssd::DriveFacts facts, EngineOptions options);

    std::uint32_t poll() override;
    void on_complete(std::uint64_t tag, nvme::Status status, std::uint64_t result) override;

    ssd::NvmeQueue* add(std::unique_ptr<ssd::ServedQueue> queue);
    /// What was fetched from it ends now, and the queue goes. False: not a queue of this engine.
    bool remove(const ssd::NvmeQueue* queue);
    [[nodiscard]] std::size_t queues() const;

    /// No request is begun any more until resume(); those under way go on. Commands that wait end at their
    /// deadline.
    void hold() { held_ = true; }
    void resume(bool reclaimed) {
        held_ = false;
        counters_.reclaims += reclaimed ? 1 : 0;
    }
    /// Whether a command waits for resume() that has met no broken queue pair.
    [[nodiscard]] bool holds_others_back() const;
    /// No change is begun, or it is again: the volume is between two epochs. Reads go on.
    void hold_changes(bool held) { changes_held_ = held; }
    /// The volume has another writer, or nobody knows: read only from now on.
    void fence();
    /// The same volume in its next epoch. While the channel is quiet.
    void renewed(const VolumeRef& volume);
    /// Changes under way are begun again later, when hold() has ended.
    void recall_changes();
    /// Whether nothing of this engine is going on in the channel.
    [[nodiscard]] bool channel_is_quiet() const { return begun_ == 0; }
    /// Whether a queue pair of the channel is in error, or a command was given up since the last question:
    /// the client's reclaim() may help.
    bool needs_reclaim();
    /// As a FLUSH of a host does; `done` says whether it succeeded, once, perhaps within this call.
    void flush(std::function<void(bool)> done);
    /// Everything ends, with Command Aborted, as does what comes from now on.
    void stop();

    /// The record to be written now, if any; asked for every 100 ms or so, and after record_wanted.
    std::optional<LossRecord> record_to_write();
    /// Whether that is stable.
    void record_written(const LossRecord& record, bool stable);

    [[nodiscard]] const GatewayCounters& counters() const { return counters_; }
    [[nodiscard]] GatewayState state() const;
    /// Any thread.
    [[nodiscard]] bool writable() const { return writable_.load(std::memory_order_relaxed); }

  private:
    using ChannelState = ChannelRef::State;
    /// One I/O command.
    struct Work {
        ssd::ServedQueue* queue = nullptr;  ///< null: the engine's own flush
        std::uint32_t slot = 0;
        std::function<void(bool)> done;  ///< of the engine's own
        BlockCommand command;
        std::vector<IoRequest> requests;
        gnor::SteppedRequest<ChannelState> request;
        std::uint64_t deadline_ns = 0;
        std::uint64_t retry_ns = 0;  ///< not begun before
        bool begun = false, ended = false;
        bool may_be_wide = false;          ///< many commands, none of which moves bytes
        bool met_no_room = false;          ///< with its SSDs
        bool in_doubt = false;             ///< an earlier attempt ended so (gnor/resolved.hpp)
        SsdShares::Mask ssds = 0;          ///< that it goes to
        nvme::MapVersion map_version = 0;  ///< as the loss watch knew it when this began
        struct Sequences {
            std::uint64_t first, count;
        };
        std::vector<Sequences> sequences;  ///< of a change: taken each time it was begun, and not resolved
        LossWatch::Mark mark;              ///< of a flush
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
    /// Whether a change may be answered as far as the record goes.
    [[nodiscard]] bool record_covers() const;
    bool wait_for_record(Work& work, std::uint64_t now_ns);
    [[nodiscard]] SsdShares::Mask ssds_of(const Work& work) const;
    bool put_off(Work& work, std::uint64_t now_ns);
    void end(Work& work, nvme::Status status);
    void give_up(Work& work);
    void collect();
    nvme::Status judge_older(const Work& work);
    void count(const Work& work);
    [[nodiscard]] deengine::EngineCounters health() const;

    VolumeRef volume_;
    const ChannelRef channel_;
    const EngineOptions options_;
    SsdShares shares_;
    LossWatch watch_;
    std::set<std::uint16_t> heard_;     // controllers that were told of an inherited loss
    std::optional<LossRecord> stable_;  // what the medium says for sure
    bool record_wanted_ = false, record_fails_ = false;
    std::uint32_t settled_looks_ = 0;  // of record_to_write(), at a watch with nothing unsettled
    ssd::AdminCommands admin_;
    std::vector<std::unique_ptr<ssd::ServedQueue>> queues_;  // by index; null: free
    std::size_t first_queue_ = 0;                            // of the next round
    std::vector<std::unique_ptr<Work>> free_;  // with those under way: one for each entry of an I/O queue
    std::vector<std::unique_ptr<Work>> under_way_;  // oldest first
    std::uint32_t begun_ = 0;                       // of under_way_
    const Work* wide_ = nullptr;                    // of them, who has the wide window
    std::uint32_t changing_ = 0;                    // of begun_: writes, trims and the like
    bool held_ = false, changes_held_ = false, stopped_ = false, gave_up_ = false;
    std::uint64_t progress_ns_ = 0;  // when there was any last
    std::uint32_t backoff_ = 0;
    GatewayCounters counters_{};
    std::atomic<bool> writable_;
};

}  // namespace gnstor::gateway
