// engine.hpp: deEngine, the firmware of one drive: permission table, block map, flash translation.
//
// Pure logic: no threads, clocks, sockets or files; time and bytes come as arguments, flash through
// flash.hpp. One owner thread. A command's completion comes through CompletionSink, during submit() or a
// later poll(): an answer waits until what it reports is durable. Rules: docs/design.md, "The command",
// "deEngine"; docs/array.md, rules 4 to 8.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/nvme/command.hpp>
#include <gnstor/nvme/vendor.hpp>

#include "deengine/access/grant.hpp"
#include "deengine/engine_types.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gnstor::deengine {

class ShardPort;
class VolumeRegistry;

class Engine {
  public:
    /// Recovers the drive from flash and metadata; an empty flash is a new drive. `report` may be null.
    static Result<std::unique_ptr<Engine>> mount(Flash& flash, MetadataStore& metadata,
                                                 const EngineOptions& options, CompletionSink& sink,
                                                 RecoveryReport* report = nullptr);
    /// With one shard for each of `flashes`: views of one store, each with the geometry of the whole store
    /// and its own sync state. The number of shards must not change between mounts.
    static Result<std::unique_ptr<Engine>> mount(std::span<Flash* const> flashes, MetadataStore& metadata,
                                                 const EngineOptions& options, CompletionSink& sink,
                                                 RecoveryReport* report = nullptr);
    /// With shards that the caller mounts and runs: calls `shards` once, with the arguments of their mount.
    using MountShards = std::function<Result<std::unique_ptr<ShardPort>>(
        const EngineOptions&, const VolumeRegistry&, CompletionSink&, RecoveryReport&)>;
    static Result<std::unique_ptr<Engine>> mount(std::span<Flash* const> flashes, const MountShards& shards,
                                                 MetadataStore& metadata, const EngineOptions& options,
                                                 CompletionSink& sink, RecoveryReport* report = nullptr);
    /// Without close(), leaves the flash as a kill does.
    ~Engine();

    /// Submits an I/O command. `data` is local memory, valid until the completion (read: destination, write:
    /// source, dataset management: ranges). `tag` is returned with the completion; it must be below 2^63.
    void submit(const nvme::Command& command, Requester from, std::span<std::byte> data, std::uint64_t tag,
                std::uint64_t now_ns);
    /// A hint: this read or write is submitted soon. Prefetches its map entry.
    void prefetch(const nvme::Command& command) const;
    /// A second hint, after prefetch() of the whole batch: looks the block up and prefetches its page's
    /// record, for a read also the first of its data.
    void prefetch_page(const nvme::Command& command) const;
    /// Whether this thread moves the data of the commands that it submits (else the shards' threads do).
    [[nodiscard]] bool moves_data_itself() const;
    /// FLUSH of all volumes and clients: for the shutdown of a controller.
    void flush(std::uint64_t tag);
    /// Passes the clocks' readings, before commands are submitted at this moment: either clock may end the
    /// grant (grant.hpp). Without calls the wall clock stands still.
    void observe(const GrantTime& now);
    /// Whether a grant is valid now; without one, data commands are refused.
    [[nodiscard]] bool granted(std::uint64_t now_ns) const;
    /// A vendor admin command (nvme/vendor.hpp, nvme/fencing.hpp).
    void submit_admin(const nvme::Command& command, Requester from, std::span<std::byte> data,
                      std::uint64_t tag, std::uint64_t now_ns);
    /// Completes commands that waited for time or durability; returns how many.
    std::uint32_t poll(std::uint64_t now_ns);

    /// A clean shutdown: answers pending commands, makes everything durable and writes a checkpoint, so that
    /// the next mount replays nothing. No command may follow.
    Result<void> close();

    /// Inconsistencies between the shards' tables and flash; empty: none. Slow: for simulation and tests.
    [[nodiscard]] std::vector<std::string> audit() const;
    /// The medium below the flash had no room for the checkpoint that ends a mount: blocks can be read,
    /// writes are refused as on a full drive, volumes can be deleted. poll() retries once a second
    /// (recovered_checkpoint.hpp).
    [[nodiscard]] bool unsettled() const;
    [[nodiscard]] const EngineCounters& counters() const;
    [[nodiscard]] std::uint64_t capacity_blocks() const;  ///< offered to users, over-provisioning excluded
    [[nodiscard]] std::uint32_t map_version() const;      ///< 0: none since boot
    /// The persistent state as it would be stored now; for simulation and tests.
    [[nodiscard]] std::vector<std::byte> firmware_state() const;

  private:
    struct Impl;
    explicit Engine(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::deengine
