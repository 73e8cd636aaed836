// engine_types.hpp: what an engine is made of, what it counts and reports, and who gets its completions.
// Plain values and one interface, of the front and of every shard.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/nvme/command.hpp>
#include <gnstor/nvme/vendor.hpp>

#include "deengine/flash.hpp"
#include "deengine/mutation.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace gnstor::deengine {

/// A page that failed the scrub: its data does not match its out-of-band record, or that cannot be read.
struct ScrubError {
    PageNumber page;
    std::uint64_t key;  ///< [VID:16 | VBA:32]
    bool known;         ///< the record can be read: only the contents are bad
};

struct EngineOptions {
    std::uint8_t ssd_uuid[16] = {};  ///< this drive (store incarnation)
    std::uint32_t max_volumes = 1024;
    std::uint32_t over_provisioning_percent = 7;
    std::uint32_t mdts_blocks = 256;  ///< largest command, in blocks (1 MiB)
    /// `durability = process`: writes are answered once programmed, FLUSH and FUA make them stable. False
    /// (`power`): every answer to a write waits for a Flash::sync(); one sync per poll() serves all of them.
    bool volatile_cache = true;
    std::uint32_t max_tombstones = 65536;  ///< trimmed or zeroed intervals kept per shard; full: Busy, retry
    std::uint32_t scrub_pages_per_second = 0;  ///< background reads that check data at rest; 0: none
    /// Called for each page that the scrub finds bad, on the shard's thread; may be empty.
    std::function<void(const ScrubError&)> on_scrub_error;
    /// Called once, on the front's thread, when every shard of an unsettled drive has its checkpoint, before
    /// Engine::unsettled() becomes false. Writes are accepted only if it returns true. May be empty.
    std::function<bool()> on_settled;
    bool accept_loss = false;  ///< mount although acknowledged data is lost and it is not known which
    /// The flash was last used in this boot of the host, by a process that was killed, and
    /// Flash::survives_kill() was true: everything programmed is present, except the operation in progress.
    /// Other bad pages have therefore rotted.
    bool same_boot = false;
    std::uint64_t block_limit = 0;  ///< capacity offered to users, in blocks; 0: pages / (1 + OP)
    // Simulation only. Smaller slices, parts and tables let a drive of a few hundred pages reach the states
    // of a large one.
    std::uint32_t checkpoint_pages_per_poll = 8;  ///< minimum; grows with the pages programmed meanwhile
    std::uint32_t buckets_per_part = ~0u;         ///< most map buckets in one checkpoint page
    std::uint32_t map_keys_percent = 100;         ///< size of the block map, in percent of the shard's pages
    Mutation mutation = Mutation::kNone;
};

/// The fabric connection that a command came from.
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
    std::uint64_t busy;    ///< changes refused with Busy: no room for tombstones or log
    std::uint64_t corrected, lost_blocks, units_bad, tombstones;
    std::uint64_t scrubbed, scrub_bad;
    std::uint64_t displaced;            ///< map entries that an insertion moved to their other bucket
    std::uint64_t displaced_in_slices;  ///< of them, moved between a part of the map that an open checkpoint
                                        ///< had written and one that it had not
    std::uint64_t groups_aged;          ///< groups ended because of their age, with no answer waiting
    std::uint64_t tombstones_full;      ///< changes refused because the table of tombstones was full
    std::uint64_t forced;               ///< commands with FUA
    std::uint64_t doubtful;             ///< blocks listed as in doubt (a gauge)
    std::uint64_t doubtful_volumes;     ///< volumes with lost records, per shard (a gauge)
    std::uint64_t unstamped;  ///< shards with pages that a power cut could still make doubtful (a gauge)
    std::uint64_t unsettled;  ///< shards that wait for room for the checkpoint of their recovery (a gauge)
    std::uint64_t doubts_refused,
        older_read;  ///< blocks read: answered Doubtful; answered with the older version
    std::uint64_t data_pages, data_pages_new;  ///< pages usable for blocks now; the same with no bad unit
};

struct RecoveryReport {
    std::uint64_t pages_scanned, pages_mapped, pages_torn, pages_outdated, tombstones, volumes;
    std::uint64_t checkpoint;  ///< id of the loaded one; 0: none (the highest of all shards)
    bool spare_checkpoint;     ///< the newest was damaged: the one before it was loaded
    std::uint64_t journal_pages, log_records, units_young, units_half_erased, units_bad;
    std::uint64_t pages_unreadable;  ///< acknowledged, but damaged: their reads fail
    std::uint64_t blocks_lost;       ///< acknowledged, but their pages are gone: their reads fail
    std::uint64_t blocks_doubtful;   ///< newest version torn or rotten: read another replica
    std::uint64_t records_lost;      ///< lost, their blocks unknown: every block as old is in doubt
    /// Volumes with lost records, found by this or an earlier mount: a block is in doubt if its present
    /// version is of this epoch or an earlier one.
    std::map<nvme::VolumeId, nvme::Epoch> volumes_in_doubt;
    std::uint64_t memory_bytes;  ///< of map, unit table, tombstones
    /// One line for each item dropped or repaired, with the reason; beyond kMaxFindings only counted.
    std::vector<std::string> findings;
    std::uint64_t findings_left_out;
    static constexpr std::size_t kMaxFindings = 1000;
};

/// Adds one shard's report to the sum.
void add_report(RecoveryReport& sum, RecoveryReport&& more);

}  // namespace gnstor::deengine
