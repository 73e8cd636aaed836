// vendor_commands.hpp: the vendor's admin commands: VOLUME ADD, CHMOD, DELETE, LIST, MAP SET, FLOOR
// (nvme/vendor.hpp); GRANT ASK (nvme/fencing.hpp).
//
// A change is made on a copy of the state, stored, and then swapped in, so that an acknowledged change is
// durable and a refused one has no effect. Before a change is acknowledged, all commands pending under the
// old state are answered (docs/array.md, rule 2: a barrier through all shards). Terms: a newer term is stored
// together with the change that carries it; a term older than the newest seen, or too far above it, is
// refused. VOLUME LIST is answered under any term and raises none, so that a daemon that lost its store can
// learn the newest term.
// One owner thread: the front's.
#pragma once

#include <gnstor/nvme/vendor.hpp>

#include "deengine/access/active_map.hpp"
#include "deengine/engine_types.hpp"
#include "deengine/front/stored_state.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <span>

namespace gnstor::deengine {

class ShardPort;

class VendorCommands {
  public:
    /// `unsettled`: Engine::unsettled(), read when a volume is added.
    VendorCommands(const EngineOptions& options, StoredState& state, ActiveMap& active_map,
                   const bool& unsettled)
        : options_(options), state_(state), active_map_(active_map), unsettled_(unsettled) {}
    /// Once, after the mount; `in_doubt`: RecoveryReport::volumes_in_doubt.
    void begin(ShardPort& port, std::map<nvme::VolumeId, nvme::Epoch> in_doubt) {
        port_ = &port;
        in_doubt_ = std::move(in_doubt);
    }
    void observe(const GrantTime& now) { wall_ns_ = now.wall_ns; }

    /// The status to answer; `dw0`: of the completion.
    nvme::Status run(const nvme::Command& command, Requester from, std::span<std::byte> data,
                     std::uint64_t now_ns, std::uint32_t& dw0);
    /// Whether the command's term is not older than the drive's, and plausible. Changes nothing.
    nvme::Status check_term(const nvme::Command& command, std::uint32_t& dw0) const;

  private:
    nvme::Status check_term(std::uint64_t term, std::uint32_t& dw0) const;
    nvme::Status grant_ask(const nvme::Command& command, Requester from, std::uint64_t now_ns,
                           std::uint32_t& dw0);
    [[nodiscard]] GrantTime clocks_at(std::uint64_t now_ns) const;
    nvme::Status volume_change(const nvme::Command& command, std::span<const std::byte> data);
    [[nodiscard]] bool has_former_life(const nvme::VolumeRecord& record) const;
    void end_former_life(nvme::VolumeId vid);
    nvme::Status volume_delete(nvme::VolumeId vid, std::uint64_t term);
    nvme::Status volume_list(const nvme::Command& command, std::span<std::byte> data,
                             std::uint32_t& dw0) const;
    nvme::Status map_get(std::span<std::byte> data) const;
    nvme::Status map_set(const nvme::Command& command, std::span<const std::byte> data, std::uint64_t now_ns,
                         std::uint32_t& dw0);
    [[nodiscard]] bool is_valid_map(const nvme::MapSet& set) const;
    [[nodiscard]] bool moves_slot(const nvme::MapSet& set) const;
    nvme::Status floor(const nvme::Command& command, Requester from, std::uint32_t& dw0);

    const EngineOptions& options_;
    StoredState& state_;
    ActiveMap& active_map_;
    const bool& unsettled_;
    ShardPort* port_ = nullptr;
    std::uint64_t wall_ns_ = 0;            ///< as last observed
    std::set<nvme::VolumeId> purges_due_;  ///< deleted; ShardPort::record_purge() must be called again
    std::map<nvme::VolumeId, nvme::Epoch> in_doubt_;
};

}  // namespace gnstor::deengine
