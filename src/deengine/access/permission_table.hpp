// permission_table.hpp: this drive's record of each volume, and the rules for changing it (vendor.hpp).
//
// Invariants
//   * VIDs and names are unique, records are valid (validate()), sorted by VID;
//   * the epoch of a VID never goes back, not even across a deletion (docs/array.md, rule 15): last epochs
//     of deleted VIDs stay;
//   * an epoch has at most one nonzero writer ever: another writer needs a higher epoch (rule 6);
//   * revisions never go back, and equal revision means equal bytes.
// Value type (a change is made on a copy, stored, then swapped in); pure. Owned by one thread.
#pragma once

#include <gnstor/nvme/vendor.hpp>

#include "deengine/mutation.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace gnstor::deengine {

struct Volume {
    nvme::VolumeRecord record{};
    /// Sequences of the current epoch up to here are refused (docs/array.md, rule 8).
    std::uint64_t floor = 0;

    /// False for every client once the deletion has begun.
    [[nodiscard]] bool may_read(nvme::ClientId client) const;
    /// Only for clients that may read.
    [[nodiscard]] bool may_write(nvme::ClientId client) const {
        return client != 0 && record.writer == client;
    }
};

class PermissionTable {
  public:
    PermissionTable();

    /// Null if there is none. Valid until the next change.
    [[nodiscard]] const Volume* find(nvme::VolumeId vid) const;
    [[nodiscard]] Volume* find(nvme::VolumeId vid);
    [[nodiscard]] std::span<const Volume> volumes() const { return volumes_; }
    /// VID to the last epoch of its deleted volume.
    [[nodiscard]] const std::map<nvme::VolumeId, nvme::Epoch>& deleted() const { return deleted_; }

    nvme::Status add(const nvme::VolumeRecord& record, std::uint32_t max_volumes, std::uint32_t mdts_blocks,
                     Mutation mutation = Mutation::kNone);
    nvme::Status chmod(const nvme::VolumeRecord& record, std::uint32_t mdts_blocks);
    nvme::Status remove(nvme::VolumeId vid);
    void set_deleted(nvme::VolumeId vid, nvme::Epoch last_epoch) { deleted_[vid] = last_epoch; }

    /// Checks every field alone, not against other volumes.
    static bool validate(const nvme::VolumeRecord& record, std::uint32_t mdts_blocks);

  private:
    static constexpr std::uint16_t kNone = 0xFFFF;
    /// Enters the positions of the volumes at `from` and behind it into index_.
    void reindex(std::size_t from);

    std::vector<Volume> volumes_;
    std::vector<std::uint16_t> index_;  ///< by VID: position in volumes_
    std::map<nvme::VolumeId, nvme::Epoch> deleted_;
};

}  // namespace gnstor::deengine
