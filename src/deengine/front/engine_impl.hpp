// engine_impl.hpp: what the front of an engine is made of.
//
// Invariants
//   * a command is checked and sent to its shards within one submit(); a shard executes it at once, or
//     answers earlier ones first; admin changes go through all shards' barrier (ShardPort::settle()), so that
//     no change of permission, epoch or map lies between check and effect (the commit point: docs/design.md,
//     "deEngine").
// One owner thread.
#pragma once

#include "deengine/access/active_map.hpp"
#include "deengine/front/command_check.hpp"
#include "deengine/front/command_router.hpp"
#include "deengine/front/copy_commands.hpp"
#include "deengine/front/engine.hpp"
#include "deengine/front/stored_state.hpp"
#include "deengine/front/vendor_commands.hpp"

namespace gnstor::deengine {

struct Engine::Impl {
    Impl(MetadataStore& metadata_in, const EngineOptions& options_in, CompletionSink& sink_in,
         FirmwareState state_in);

    void submit(const nvme::Command& command, Requester from, std::span<std::byte> data, std::uint64_t tag,
                std::uint64_t now_ns);
    void submit_copy(const nvme::Command& command, Requester from, std::span<std::byte> data,
                     std::uint64_t tag, std::uint64_t now_ns);
    void settle_recovery();
    void refresh_counters();

    const EngineOptions options;
    CompletionSink& sink;
    StoredState state;
    ActiveMap active_map;
    CommandCheck check;
    CommandRouter router;
    bool unsettled = false;  ///< a shard is unsettled, or on_settled() has not returned true
    bool told_settled = false;
    VendorCommands vendor;
    EngineCounters own{};       ///< of commands; the shards count blocks and pages
    EngineCounters counters{};  ///< both, as of refresh_counters()
};

}  // namespace gnstor::deengine
