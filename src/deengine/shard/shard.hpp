// shard.hpp: one service unit of a drive: the blocks of its keys, from a checked command to flash and to its
// answer.
//
// Owns a range of erase units and everything about the blocks in them: map, tombstones, units, journal,
// checkpoints, collection, durability groups. Knows nothing of clients and permissions: Engine has checked
// the command. Pure logic; one owner thread. Completions come through CompletionSink, during execute() or a
// later poll().
#pragma once

#include <gnstor/base/result.hpp>

#include "deengine/engine.hpp"
#include "deengine/flash.hpp"
#include "deengine/front/permission_table.hpp"

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

enum class ShardOp : std::uint8_t { kRead, kWrite, kZero, kTrim, kFlush };

/// A checked command, or the part of it that is this shard's. One cache line, for it goes from thread to
/// thread.
struct ShardCommand {
    ShardOp op;
    bool stable;  ///< FUA (reads, too) or FLUSH: answered when it survives power loss, whatever the mode
    nvme::VolumeId volume;
    nvme::BlockAddress first;
    std::uint32_t blocks;
    nvme::Epoch epoch;
    nvme::Epoch volume_epoch;   ///< of the volume's record when it was checked
    std::uint8_t first_sector;  ///< reads: of one block; sectors 0: whole blocks
    std::uint8_t sectors;
    bool accept_older;     ///< reads: of a doubtful block the older version is the answer
    std::uint8_t of_port;  ///< whatever the port that carries it (shard_port.hpp) wants to say
    std::uint64_t sequence;
    std::uint64_t floor;  ///< of the volume when it was checked
    std::byte* data;      ///< read: destination; write: source
    std::uint64_t tag;
    std::uint64_t room = ~0ull;  ///< blocks that the drive's promise still leaves to be mapped anew
};
static_assert(sizeof(ShardCommand) == 64, "a checked command is one cache line");

/// Whether and since when a volume exists: what recovery asks of the permission table.
class VolumeLives {
  public:
    virtual ~VolumeLives() = default;
    /// False: pages of this volume, epoch and block belong to nothing that exists.
    [[nodiscard]] virtual bool lives(nvme::VolumeId volume, nvme::Epoch epoch,
                                     nvme::BlockAddress block) const = 0;
    /// Whether the firmware's state tells what became of versions of this epoch: the volume exists and has
    /// seen that epoch, or it was deleted in that epoch or a later one. False: the state is older than they
    /// are.
    [[nodiscard]] virtual bool explains(nvme::VolumeId, nvme::Epoch) const { return true; }
    /// All volumes that exist, with their present epochs.
    [[nodiscard]] virtual std::vector<std::pair<nvme::VolumeId, nvme::Epoch>> living() const = 0;
};

class Shard {
  public:
    /// Recovers the shard from its units (recovery.cpp). `report` collects.
    static Result<std::unique_ptr<Shard>> mount(Flash& flash, const ShardRange& range,
                                                const EngineOptions& options, const VolumeLives& lives,
                                                CompletionSink& sink, RecoveryReport& report);
    ~Shard();

    void execute(const ShardCommand& command);
    /// Groups, answers, checkpoint slices, collection and scrub while there is time. Returns completions
    /// given.
    std::uint32_t poll(std::uint64_t now_ns);
    /// Answers everything that waits (syncs, bounded by the flash's own deadline): the barrier before a
    /// change of epoch, permission or map.
    void settle();
    /// Sequences of this volume's epoch up to `floor` are resolved.
    void set_floor(nvme::VolumeId volume, nvme::Epoch epoch, std::uint64_t floor);
    /// forget_volume() and record_purge() of a volume whose record the caller has removed durably.
    [[nodiscard]] bool purge(nvme::VolumeId volume);
    /// Writes the journal record that separates what is stored of this VID from a later volume of the same
    /// VID. False: it is not durable, because the journal has no page or the shard takes no change any more;
    /// the caller asks again before it adds that volume.
    [[nodiscard]] bool record_purge(nvme::VolumeId volume);
    /// Drops the volume's blocks, tombstones, doubts and floors from memory.
    void forget_volume(nvme::VolumeId volume);
    /// Brings the map entry (and record) of a block that will be read or written soon towards the cache.
    void prefetch(nvme::VolumeId volume, nvme::BlockAddress block) const;
    /// The second hint, when the first has had its time: brings the record of the block's page, and its data
    /// from `first_sector` on (kSectorsPerBlock: it will not be read).
    void prefetch_page(nvme::VolumeId volume, nvme::BlockAddress block, std::uint32_t first_sector) const;
    /// Writes a checkpoint and makes everything durable: the next mount reads that and nothing else.
    Result<void> close();

    [[nodiscard]] const EngineCounters& counters() const;
    [[nodiscard]] std::uint64_t mapped_blocks() const;
    /// The last few, oldest first.
    [[nodiscard]] const std::vector<BadPlace>& bad_places() const;
    /// Blocks that may be mapped at once: what the reserve, the journal and bad units leave.
    [[nodiscard]] std::uint64_t page_limit() const;
    /// What disagrees between map, units, tombstones and flash (audit.cpp); empty: nothing. Slow: for tests.
    [[nodiscard]] std::vector<std::string> audit() const;
    /// Every block that holds something, and its page; in no order.
    void for_each_block(
        const std::function<void(nvme::VolumeId, nvme::BlockAddress, PageNumber)>& call) const;

    struct Impl;

  private:
    explicit Shard(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::deengine
