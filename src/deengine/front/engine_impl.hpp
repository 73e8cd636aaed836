// engine_impl.hpp: the front of an engine; bodies in engine.cpp (I/O), admin.cpp (vendor commands) and
// mount.cpp.
//
// Invariants
//   * a command is checked and sent to its shards within one submit(); a shard executes it at once, or
//     answers earlier ones first; admin changes go through all shards' barrier (settle()), so that no change
//     of permission, epoch or map lies between check and effect (the commit point: docs/design.md,
//     "deEngine");
//   * a command is in one shard, or in parts that count down in `joins`; the last part completes the command;
//   * state is stored before it is current.
// One owner thread.
#pragma once

#include "deengine/access/active_map.hpp"
#include "deengine/front/command_check.hpp"
#include "deengine/front/engine.hpp"
#include "deengine/front/firmware_state.hpp"
#include "deengine/front/shard_port.hpp"

#include <map>
#include <set>
#include <vector>

namespace gnstor::deengine {

struct Engine::Impl final : CompletionSink, VolumeRegistry {
    Impl(MetadataStore& metadata_in, const EngineOptions& options_in, CompletionSink& sink_in,
         FirmwareState state_in);

    // engine.cpp
    void submit(const nvme::Command& command, Requester from, std::span<std::byte> data, std::uint64_t tag,
                std::uint64_t now_ns);
    void prefetch(const nvme::Command& command) const;
    void prefetch_page(const nvme::Command& command) const;
    void on_complete(std::uint64_t tag, nvme::Status status, std::uint64_t result) override;
    void send(ShardCommand& command);
    void send_parts(ShardCommand& command, std::span<const nvme::DsmRange> ranges);
    void send_extents(ShardCommand command);
    void flush(ShardCommand& command);
    void execute(std::uint32_t shard, const ShardCommand& command);
    /// Blocks that may still be added to the map: capacity less mapped blocks.
    [[nodiscard]] std::uint64_t room() const;
    [[nodiscard]] std::uint32_t shard_of(nvme::VolumeId volume, nvme::BlockAddress block) const;
    std::uint64_t join(std::uint64_t tag, std::uint32_t parts);
    void settle_recovery();
    void refresh_counters();

    // admin.cpp
    nvme::Status admin(const nvme::Command& command, Requester from, std::span<std::byte> data,
                       std::uint64_t now_ns, std::uint32_t& dw0);
    nvme::Status check_term(std::uint64_t term, std::uint32_t& dw0) const;
    nvme::Status grant_ask(const nvme::Command& command, Requester from, std::uint64_t now_ns,
                           std::uint32_t& dw0);
    [[nodiscard]] GrantTime clocks_at(std::uint64_t now_ns) const;
    nvme::Status volume_change(const nvme::Command& command, std::span<const std::byte> data);
    [[nodiscard]] bool has_former_life(const nvme::VolumeRecord& record) const;
    void end_former_life(nvme::VolumeId vid);
    nvme::Status volume_delete(nvme::VolumeId vid, std::uint64_t term);
    nvme::Status volume_list(const nvme::Command& command, std::span<std::byte> data, std::uint32_t& dw0);
    nvme::Status map_set(const nvme::Command& command, std::span<const std::byte> data, std::uint64_t now_ns,
                         std::uint32_t& dw0);
    [[nodiscard]] bool is_valid_map(const nvme::MapSet& set) const;
    [[nodiscard]] bool moves_slot(const nvme::MapSet& set) const;
    nvme::Status floor(const nvme::Command& command, Requester from, std::uint32_t& dw0);
    bool store_and_swap(FirmwareState&& next);

    // mount.cpp
    [[nodiscard]] std::vector<std::pair<nvme::VolumeId, nvme::Epoch>> living() const override;
    [[nodiscard]] bool explains(nvme::VolumeId volume, nvme::Epoch epoch) const override;
    [[nodiscard]] bool lives(nvme::VolumeId volume, nvme::Epoch epoch,
                             nvme::BlockAddress block) const override;

    /// A command that was split into parts.
    struct Join {
        std::uint64_t tag;
        std::uint32_t parts;
        nvme::Status status;
        std::uint64_t result;
    };
    static constexpr std::uint64_t kPartTag = 1ull << 63;  ///< set in tags of parts; callers' tags are below

    MetadataStore& metadata;
    const EngineOptions options;
    CompletionSink& sink;
    FirmwareState state;
    ActiveMap active_map;
    std::uint64_t wall_ns = 0;  ///< as last observed
    CommandCheck check;
    std::unique_ptr<ShardPort> port;
    InlinePort* inline_port = nullptr;  ///< `port`, if the shards run on this thread: no virtual call
    std::uint32_t shards = 1;
    std::uint64_t capacity = 0;
    bool unsettled = false;  ///< a shard is unsettled, or on_settled() has not returned true
    bool told_settled = false;
    std::set<nvme::VolumeId> purges_due;  ///< deleted; ShardPort::record_purge() must be called again
    std::map<nvme::VolumeId, nvme::Epoch> in_doubt;  ///< RecoveryReport::volumes_in_doubt of the mount
    EngineCounters own{};                            ///< of commands; the shards count blocks and pages
    EngineCounters counters{};                       ///< both, as of refresh_counters()
    std::vector<Join> joins;
    std::vector<std::uint32_t> free_joins;
};

}  // namespace gnstor::deengine
