// firmware_state.hpp: the persistent state of a drive, and its serialised form in the MetadataStore.
//
// Value type: an admin command changes a copy, stores it, and only then makes it the current one
// (transactional). Layout, little endian: header {magic, format version, total bytes, counts}, term, newest
// map, volumes with floors, last epochs of deleted VIDs, retired units, CRC-32C of all that. Pure. Owned by
// one thread.
#pragma once

#include <gnstor/base/result.hpp>
#include <gnstor/nvme/vendor.hpp>

#include "deengine/access/permission_table.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace gnstor::deengine {

struct FirmwareState {
    std::uint64_t term = 0;            ///< newest term of a daemon (docs/array.md, rule 1)
    std::uint32_t newest_slot = 0;     ///< of the newest map: the slot this drive fills
    placement::ArrayMap newest_map{};  ///< newest ever activated; version 0: none
    PermissionTable permissions;
    std::vector<std::uint32_t> retired_units;

    [[nodiscard]] std::vector<std::byte> serialise() const;
    /// An empty blob is a new drive. Records are checked as by VOLUME ADD: a good CRC does not prove them
    /// valid.
    static Result<FirmwareState> parse(std::span<const std::byte> blob, std::uint32_t max_volumes,
                                       std::uint32_t mdts_blocks, std::uint32_t units,
                                       Mutation mutation = Mutation::kNone);
};

}  // namespace gnstor::deengine
