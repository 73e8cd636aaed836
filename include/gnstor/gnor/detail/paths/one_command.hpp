// one_command.hpp: a request that is one command, and the drives that a plain map names for it. CPU and GPU
// lanes.
//
// Used by the fast paths: of a single lane (single_lane.hpp), and of a group whose members have a request
// each (together.hpp). All of it is values, so that lanes keep it in registers.
#pragma once

#include <gnstor/gnor/detail/queues/posting.hpp>

namespace gnstor::gnor {

/// A read or a write of whole blocks, or of sectors of one block, from or to registered memory.
struct OneCommand {
    nvme::IoOpcode opcode;
    std::uint8_t first_sector, sectors;
    std::uint32_t block, blocks;
    std::uint64_t address;
    std::uint64_t sequence;

    GN_HD
    std::uint32_t bytes() const {
        return sectors != 0 ? sectors * nvme::kSectorBytes : blocks * nvme::kBlockBytes;
    }
    /// Whether it is a valid request of one command (if it is invalid, Cursor says why).
    GN_HD
    bool is_one(const placement::VolumeGeometry& geometry) const {
        const bool whole = sectors == 0 && first_sector == 0;
        const bool part = opcode == nvme::IoOpcode::kRead && blocks == 1 && sectors != 0 &&
                          first_sector + sectors <= static_cast<int>(nvme::kSectorsPerBlock);
        const std::uint64_t end = std::uint64_t{block} + blocks;
        return (whole || part) && blocks != 0 && end <= geometry.capacity_blocks &&
               (end - 1) >> geometry.chunk_shift == block >> geometry.chunk_shift && address % 4 == 0;
    }
};

/// Slots of the array that a command goes to; `count` 0: none, or more than there is room for.
template <std::uint32_t kMost>
struct Chosen {
    std::uint32_t slot[kMost] = {};
    std::uint32_t count = 0;
};

/// Chosen by the ranks of all of a chunk's replicas.
template <std::uint32_t kMost>
GN_HD GN_INLINE Chosen<kMost> choose_ranked(std::uint64_t members, std::uint64_t in,
                                            const placement::VolumeGeometry& geometry, const OneCommand& r) {
    Chosen<kMost> out;
    const bool read = r.opcode == nvme::IoOpcode::kRead;
    const auto replicas = placement::place_plain(members, geometry, r.block >> geometry.chunk_shift);
    GN_DEVICE_UNROLL
    for (std::uint32_t i = 0; i < placement::kMaxReplicas; ++i) {
        if (i >= replicas.count) continue;
        if (read && (out.count != 0 || ((in >> replicas.slot[i]) & 1) == 0)) continue;
        GN_DEVICE_UNROLL
        for (std::uint32_t k = 0; k < kMost; ++k)
            if (k == out.count) out.slot[k] = replicas.slot[i];
        ++out.count;
    }
    if (out.count > kMost) out.count = 0;
    return out;
}

/// The same, not inlined: for callers that seldom need it.
template <std::uint32_t kMost>
GN_HD GN_NOINLINE Chosen<kMost> choose_ranked_apart(std::uint64_t members, std::uint64_t in,
                                                    placement::VolumeGeometry geometry, OneCommand r) {
    return choose_ranked<kMost>(members, in, geometry, r);
}

/// As choose_targets (lane_work.hpp), for a plain map: a read's first replica that is in, or all of a
/// write's.
template <std::uint32_t kMost>
GN_HD GN_INLINE Chosen<kMost> choose_plain(std::uint64_t members, std::uint64_t in,
                                           const placement::VolumeGeometry& geometry, const OneCommand& r) {
    const bool read = r.opcode == nvme::IoOpcode::kRead;
    if (read && geometry.replicas != 0 && members != 0 && (members & ~in) == 0) {
        Chosen<kMost> out;
        out.slot[0] = placement::place_first(members, geometry, r.block >> geometry.chunk_shift);
        out.count = 1;
        return out;
    }
    // One drive: a read, and a map with drives that are not in, which is rare.
    if constexpr (kMost == 1) return choose_ranked_apart<kMost>(members, in, geometry, r);
    return choose_ranked<kMost>(members, in, geometry, r);
}

/// Fills the command's slot as begin_step does, except for its targets and its control word.
GN_HD
inline void describe(CommandSlot& slot, const OneCommand& r, nvme::MapVersion version, std::uint32_t lkey,
                     std::uint32_t rkey) {
    slot.next = kNone;
    slot.opcode = static_cast<std::uint8_t>(r.opcode);
    slot.first_sector = r.first_sector;
    slot.sectors = r.sectors;
    slot.attempts = 0;
    slot.map_version = version;
    slot.block = r.block;
    slot.blocks = r.blocks;
    slot.pool_first = kNone;
    slot.lkey = lkey;
    slot.rkey = rkey;
    slot.buffer = r.address;
    slot.sequence = r.sequence;
    slot.request = 0;
    slot.held_run = kNone;
}

/// The capsule fields of the command.
GN_HD
inline CapsuleFields capsule_of(const OneCommand& r, nvme::MapVersion version, std::uint16_t command_id,
                                std::uint32_t rkey) {
    return CapsuleFields{
        .opcode = r.opcode,
        .first_sector = r.first_sector,
        .sectors = r.sectors,
        .command_id = command_id,
        .block = r.block,
        .blocks = r.blocks,
        .map_version = version,
        .sequence = r.sequence,
        .wire = r.address,
        .bytes = r.bytes(),
        .rkey = rkey,
    };
}

}  // namespace gnstor::gnor
