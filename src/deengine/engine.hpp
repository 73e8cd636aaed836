// engine.hpp: deEngine, the firmware of one drive: permission table, block map, flash translation.
//
// Pure logic: no threads, clocks, sockets or files; time and bytes come as arguments, flash through
// flash.hpp. One owner thread. A command's completion comes through CompletionSink, during submit() or a
// later poll(): answers wait for the durability of what they say. Rules: DESIGN.md "The command", "deEngine";
// ARRAY.md 4 to 8.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/nvme/command.hpp>
#include <gnstor/nvme/vendor.hpp>

#include "deengine/flash.hpp"
#include "deengine/front/grant.hpp"
#include "deengine/mutation.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gnstor::deengine {

/// A page that the scrub found not to hold what its record says.
struct BadPlace {
    PageNumber page;
    std::uint64_t key;  ///< [VID:16 | VBA:32]
    bool known;         ///< its record could be read: only contents are bad
};

struct EngineOptions {
    std::uint8_t ssd_uuid[16] = {};  ///< this drive (store incarnation)
    std::uint32_t max_volumes = 1024;
    std::uint32_t over_provisioning_percent = 7;
    std::uint32_t mdts_blocks = 256;  ///< largest command, in blocks (1 MiB)
    /// `durability = process`: writes are answered once programmed, FLUSH and FUA make them stable. False
    /// (`power`): every answer to a write waits for the Flash::sync() that the next poll() does for all of
    /// them.
    bool volatile_cache = true;
    std::uint32_t max_tombstones = 65536;      ///< intervals remembered (per shard); full: busy, retry
    std::uint32_t scrub_pages_per_second = 0;  ///< background reading that checks data at rest; 0: none
    /// Called for each page that the scrub finds bad, on the shard's thread; may be empty.
    std::function<void(const BadPlace&)> on_bad_page;
    /// Called on the front's thread, once, when Engine::unsettled() is about to end: every shard has its
    /// checkpoint. No write is acknowledged before it has returned true, nor ever if it returns false. May be
    /// empty.
    std::function<bool()> on_settled;
    bool accept_loss = false;  ///< mount although acknowledged blocks are lost beyond naming
    /// The flash was last served in this boot of the host, by a process that was killed, in a way that
    /// survives that (Flash::survives_kill(), as it was then): what it programmed is all there, but for the
    /// operation under way. So what is bad has rotted.
    bool same_boot = false;
    std::uint64_t block_limit = 0;  ///< promise to users, in blocks; 0: pages / (1 + OP)
    // Simulation only. Smaller slices, parts and tables make a drive of a few hundred pages meet what a large
    // one does.
    std::uint32_t checkpoint_pages_per_poll = 8;  ///< at least
    std::uint32_t buckets_per_part = ~0u;         ///< of the map in a page of a checkpoint, at most
    std::uint32_t map_keys_percent = 100;         ///< the map has buckets for so much of the shard's pages
    Mutation mutation = Mutation::kNone;
};

/// Which fabric connection a command came by.
struct Requester {
    nvme::ClientId client = 0;
    bool privileged = false;  ///< may issue vendor admin commands
};

class CompletionSink {
  public:
    virtual ~CompletionSink() = default;
    /// `result`: DW0 of the completion, and DW1 in the upper half.
    virtual void on_complete(std::uint64_t tag, nvme::Status status, std::uint64_t result) = 0;
};

struct EngineCounters {
    std::uint64_t reads, writes, trims, zeroes, flushes, refused, media_errors, superseded;
    std::uint64_t blocks_read, blocks_written, pages_programmed, units_erased, mapped_blocks, free_pages;
    std::uint64_t gc_pages_copied, system_pages, checkpoints, syncs;
    std::uint64_t stalls;  ///< times a write waited for a sync so that a unit could be erased
    std::uint64_t busy;    ///< changes refused for want of room for tombstones
    std::uint64_t corrected, lost_blocks, units_bad, tombstones;
    std::uint64_t scrubbed, scrub_bad;
    std::uint64_t displaced;            ///< entries that an insertion moved to their other bucket
    std::uint64_t displaced_in_slices;  ///< of them, from a part of the map that an open checkpoint had
                                        ///< written to one that it had not, or back
    std::uint64_t groups_aged;          ///< groups that ended because they were old: nobody asked
    std::uint64_t tombstones_full;      ///< changes refused because the table of tombstones was full
    std::uint64_t forced;               ///< commands with FUA
    std::uint64_t doubtful;             ///< blocks in doubt that are known by name (a gauge)
    std::uint64_t doubtful_volumes;     ///< of which records are lost, of each shard (a gauge)
    std::uint64_t unstamped;  ///< shards with pages that a power cut could still make doubtful (a gauge)
    std::uint64_t unsettled;  ///< shards that wait for room for the checkpoint of their recovery (a gauge)
    std::uint64_t doubts_refused,
        older_read;  ///< blocks read: answered Doubtful; answered with the older version
    std::uint64_t data_pages, data_pages_new;  ///< that may hold blocks at once; the same with no bad unit
};

struct RecoveryReport {
    std::uint64_t pages_scanned, pages_mapped, pages_torn, pages_outdated, tombstones, volumes;
    std::uint64_t checkpoint;  ///< id of the one loaded; 0: none (summed over shards: the highest)
    bool spare_checkpoint;     ///< the newest was damaged: the one before it was loaded
    std::uint64_t journal_pages, log_records, units_young, units_half_erased, units_bad;
    std::uint64_t pages_unreadable;  ///< acknowledged, but damaged: their reads fail
    std::uint64_t blocks_lost;       ///< acknowledged, but their pages are gone: their reads fail
    std::uint64_t blocks_doubtful;   ///< their newest version is torn or rotten: another replica tells
    std::uint64_t records_lost;      ///< of which block is not known: all that is as old is in doubt
    /// Records are lost of these volumes, found now or by earlier mounts: each block whose present version is
    /// not of a later epoch than this one is in doubt.
    std::map<nvme::VolumeId, nvme::Epoch> volumes_in_doubt;
    std::uint64_t memory_bytes;  ///< of map, unit table, tombstones
    /// A line for each thing that was dropped or repaired, and why; at most kMaxFindings, then counted only.
    std::vector<std::string> findings;
    std::uint64_t findings_left_out;
    static constexpr std::size_t kMaxFindings = 1000;
};

/// Adds what one shard found to what others did.
void add_report(RecoveryReport& sum, RecoveryReport&& more);

class ShardPort;
class VolumeLives;

class Engine {
  public:
    /// Recovers from what the flash and the metadata hold; an empty flash is a new drive. `report` may be
    /// null.
    static Result<std::unique_ptr<Engine>> mount(Flash& flash, MetadataStore& metadata,
                                                 const EngineOptions& options, CompletionSink& sink,
                                                 RecoveryReport* report = nullptr);
    /// With a shard for each of `flashes`: views of one store, all of the whole geometry, each with its own
    /// state of sync. How many must not change between mounts.
    static Result<std::unique_ptr<Engine>> mount(std::span<Flash* const> flashes, MetadataStore& metadata,
                                                 const EngineOptions& options, CompletionSink& sink,
                                                 RecoveryReport* report = nullptr);
    /// With shards that somebody else mounts and runs: `shards` is called once, with what their mount needs.
    using MountShards = std::function<Result<std::unique_ptr<ShardPort>>(
        const EngineOptions&, const VolumeLives&, CompletionSink&, RecoveryReport&)>;
    static Result<std::unique_ptr<Engine>> mount(std::span<Flash* const> flashes, const MountShards& shards,
                                                 MetadataStore& metadata, const EngineOptions& options,
                                                 CompletionSink& sink, RecoveryReport* report = nullptr);
    /// Without close(): what a kill leaves.
    ~Engine();

    /// An I/O command whose data is `data` (local memory, valid until the completion; read: destination,
    /// write: source, dataset management: ranges). `tag` comes back with the completion; it is below 2^63.
    void submit(const nvme::Command& command, Requester from, std::span<std::byte> data, std::uint64_t tag,
                std::uint64_t now_ns);
    /// A hint: this read or write is submitted soon (brings its map entry towards the cache).
    void prefetch(const nvme::Command& command) const;
    /// A second one, when the first has been given for the whole batch: looks the block up and brings its
    /// page's record, and for a read the first of its data.
    void prefetch_page(const nvme::Command& command) const;
    /// Whether this thread is the one that will move the data of what it submits.
    [[nodiscard]] bool moves_data_itself() const;
    /// FLUSH of everything, whoever's it is: for a controller that is shut down.
    void flush(std::uint64_t tag);
    /// What the clocks say, before commands are given at this moment: a grant ends by either (grant.hpp).
    /// Whoever never calls it has a wall clock that stands still.
    void observe(const GrantTime& now);
    /// Whether it may serve data commands now, as far as its grant is concerned.
    [[nodiscard]] bool granted(std::uint64_t now_ns) const;
    /// A vendor admin command (nvme/vendor.hpp, nvme/fencing.hpp).
    void submit_admin(const nvme::Command& command, Requester from, std::span<std::byte> data,
                      std::uint64_t tag, std::uint64_t now_ns);
    /// Finishes what waited for time or durability; returns how many completions it gave.
    std::uint32_t poll(std::uint64_t now_ns);

    /// A clean shutdown: answers what waits, makes everything durable and writes a checkpoint, so that the
    /// next mount reads that and nothing else. No command may follow.
    Result<void> close();

    /// What disagrees between the tables of the shards and flash; empty: nothing. Slow: for simulation and
    /// tests.
    [[nodiscard]] std::vector<std::string> audit() const;
    /// What lies below the flash had no room for the checkpoint that ends a mount: blocks can be read, writes
    /// are refused as on a full drive, volumes can be deleted. poll() tries again once a second
    /// (recovery_settle.cpp).
    [[nodiscard]] bool unsettled() const;
    [[nodiscard]] const EngineCounters& counters() const;
    [[nodiscard]] std::uint64_t capacity_blocks() const;  ///< what users may fill, over-provisioning aside
    [[nodiscard]] std::uint32_t map_version() const;      ///< 0: none since boot
    /// The state that must survive, as it would be stored now; for simulation and tests.
    [[nodiscard]] std::vector<std::byte> firmware_state() const;

  private:
    struct Impl;
    explicit Engine(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::deengine
