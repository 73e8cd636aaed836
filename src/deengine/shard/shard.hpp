// shard.hpp: one service unit of a drive: executes checked commands on the blocks of its keys, and answers
// them.
//
// Owns a range of erase units and everything about the blocks in them: map, tombstones, units, journal,
// checkpoints, collection, durability groups. Knows nothing of clients and permissions: Engine has checked
// the command. Pure logic; one owner thread. Completions come through CompletionSink, during execute() or a
// later poll().
#pragma once

#include <gnstor/base/result.hpp>

#include "deengine/access/permission_table.hpp"
#include "deengine/engine_types.hpp"
#include "deengine/flash.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace gnstor::deengine {

struct ShardRange {
    std::uint32_t index = 0;  ///< of `count` shards
    std::uint32_t count = 1;
    std::uint32_t first_unit = 0;
    std::uint32_t units = 0;
};

enum class ShardOp : std::uint8_t {
    kRead,
    kWrite,
    kZero,
    kTrim,
    kFlush,
    // gnstor/nvme/copy.hpp: `data` is records, then contents; kCopyWrite: `sequence` is the window's number, or
    // nvme::kCopyClosed, `epoch` the oldest epoch of the volume's life.
    kCopyOpen,
    kCopyRead,
    kCopyWrite,
    kCopyMend,   ///< kCopyWrite that changes only blocks that cannot be read here
    kCopySurvey  ///< `data` is a SurveyExtent for each extent from `first` on
};

/// A checked command, or this shard's part of it. One cache line, because threads pass it on.
struct ShardCommand {
    ShardOp op;
    bool stable;  ///< FUA (reads, too) or FLUSH: answered when it survives power loss, whatever the mode
    nvme::VolumeId volume;
    nvme::BlockAddress first;
    std::uint32_t blocks;
    nvme::Epoch epoch;
    nvme::Epoch volume_epoch;   ///< of the volume's record when the command was checked
    std::uint8_t first_sector;  ///< reads: of one block; sectors 0: whole blocks
    std::uint8_t sectors;
    bool accept_older;     ///< reads: answer a doubtful block with its older version
    std::uint8_t of_port;  ///< private to the port that carries the command (shard_port.hpp)
    std::uint64_t sequence;
    std::uint64_t floor;  ///< of the volume when it was checked; kCopyWrite: the donor's epoch
    std::byte* data;      ///< read: destination; write: source
    std::uint64_t tag;
    std::uint64_t room = ~0ull;  ///< blocks that may still be added to the drive's maps
};
static_assert(sizeof(ShardCommand) == 64, "a checked command is one cache line");

/// What recovery needs of the permission table: which volumes exist, and since which epoch.
class VolumeRegistry {
  public:
    virtual ~VolumeRegistry() = default;
    /// False: pages of this volume, epoch and block belong to no existing volume.
    [[nodiscard]] virtual bool lives(nvme::VolumeId volume, nvme::Epoch epoch,
                                     nvme::BlockAddress block) const = 0;
    /// Whether the firmware's state covers versions of this epoch: the volume exists and has reached that
    /// epoch, or it was deleted in that epoch or a later one. False: the state is older than these versions.
    [[nodiscard]] virtual bool explains(nvme::VolumeId, nvme::Epoch) const { return true; }
    /// All volumes that exist, with their present epochs.
    [[nodiscard]] virtual std::vector<std::pair<nvme::VolumeId, nvme::Epoch>> living() const = 0;
};

class Shard {
  public:
    /// Recovers the shard from its units (recovery.cpp); adds to `report`.
    static Result<std::unique_ptr<Shard>> mount(Flash& flash, const ShardRange& range,
                                                const EngineOptions& options, const VolumeRegistry& lives,
                                                CompletionSink& sink, RecoveryReport& report);
    ~Shard();

    void execute(const ShardCommand& command);
    /// Background work: durability groups, answers, checkpoint slices, collection, scrub. Returns the number
    /// of completions given.
    std::uint32_t poll(std::uint64_t now_ns);
    /// The barrier before a change of epoch, permission or map: answers everything that waits (syncs, bounded
    /// by the flash's own deadline).
    void settle();
    /// Sequences of this volume's epoch up to `floor` are resolved.
    void set_floor(nvme::VolumeId volume, nvme::Epoch epoch, std::uint64_t floor);
    /// forget_volume() and record_purge() of a volume whose record the caller has removed durably.
    [[nodiscard]] bool purge(nvme::VolumeId volume);
    /// Writes the journal record that separates what is stored of this VID from a later volume of the same
    /// VID. False: it is not durable, because the journal has no page or the shard accepts no changes any
    /// more; the caller must call again before it adds that volume.
    [[nodiscard]] bool record_purge(nvme::VolumeId volume);
    /// Drops the volume's blocks, tombstones, doubts and floors from memory.
    void forget_volume(nvme::VolumeId volume);
    /// Prefetches the map entry (and record) of a block that will be read or written soon.
    void prefetch(nvme::VolumeId volume, nvme::BlockAddress block) const;
    /// A second hint, once the first has taken effect: prefetches the record of the block's page, and its
    /// data from `first_sector` on (kSectorsPerBlock: no data).
    void prefetch_page(nvme::VolumeId volume, nvme::BlockAddress block, std::uint32_t first_sector) const;
    /// Writes a checkpoint and makes everything durable: the next mount replays nothing.
    Result<void> close();

    [[nodiscard]] const EngineCounters& counters() const;
    [[nodiscard]] std::uint64_t mapped_blocks() const;
    /// The latest few, oldest first.
    [[nodiscard]] const std::vector<ScrubError>& bad_places() const;
    /// Most blocks that may be mapped: all pages less reserve, journal and bad units.
    [[nodiscard]] std::uint64_t page_limit() const;
    /// Inconsistencies between map, units, tombstones and flash (audit.hpp); empty: none. Slow: for tests.
    [[nodiscard]] std::vector<std::string> audit() const;
    /// Every mapped block and its page; in no order.
    void for_each_block(
        const std::function<void(nvme::VolumeId, nvme::BlockAddress, PageNumber)>& call) const;

    struct Impl;

  private:
    explicit Shard(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::deengine
