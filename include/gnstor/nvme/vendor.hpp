// vendor.hpp: payloads of GNStor's vendor admin commands. Little endian, versioned; the side that stores one
// adds a checksum.
//
// Every vendor command carries the daemon's term in CDW14-15; a drive that has seen a newer term answers
// kStaleTerm (docs/array.md, rule 1). Only the controller of the array's admin host NQN may issue vendor
// commands, except FLOOR, which the volume's writer may issue too; others get Access Denied.
//
//   VOLUME ADD     data VolumeRecord. The VID must be free and `birth_epoch` above every epoch of an earlier
//                  volume with this VID.
//   VOLUME CHMOD   data VolumeRecord. Replaces length, readers, writer and epoch of a volume; geometry and
//                  name must match; the epoch may not go back. Acknowledged after a barrier: no command
//                  accepted under the old record commits afterwards.
//   VOLUME DELETE  CDW10 VID. Purges the volume; answered once none of its blocks can come back.
//   VOLUME LIST    CDW10 first index, CDW11 bytes of the buffer. Returns VolumeListHeader, then records in
//                  order of VID. Answered under any term and raises none, so that a daemon that lost its
//                  store learns the newest term. DW0: the highest epoch of any volume deleted from this
//                  drive; a VID may be used again with a higher epoch.
//   MAP SET        data MapSet. Activates a map behind a barrier; grants service for `grant_ms` (0: without
//                  end). CDW10 is the nonce of a GRANT ASK (fencing.hpp, also for terms).
//   MAP GET        returns MapSet: the newest map that this drive has stored, and the slot that it then filled;
//                  version 0: none. Answered under any term and raises none.
//   HOST SET       data HostSetPage (host_set.hpp): which clients have which generation of their key. The
//                  target in front of the drive takes it; no drive sees it.
//   FLOOR          CDW10 VID, CDW11 epoch, CDW12-13 floor. All sequences of the epoch up to the floor are
//                  resolved: from now on the drive refuses them, and drops the orders it kept for them
//                  (docs/array.md, rule 8). A floor below the present one changes nothing. The term is not
//                  checked when a writer sends FLOOR. DW0: number of tombstones in the drive now, of all
//                  volumes. A writer's floor is below kFirstStamp (copy.hpp). The daemon ends the epoch of a
//                  volume without a writer by kClosedFloor, which is answered when it is stored (rule 11).
//
// Doubtful (docs/array.md, rule 18), a vendor status of a read, has a payload. For a read of one block, or of
// a part of one, DW0 and DW1 of the completion hold the order of the version that this drive would return
// (present_order(), low half in DW0); for other reads they are 0. A reader that gets Doubtful from every *in*
// replica thus knows which replica has the newest of the older versions, and sends the read to that replica
// again with *accept older* (CDW13 bit 16). Such a read must be of one block, else Invalid Field.
#pragma once

#include <gnstor/nvme/command.hpp>
#include <gnstor/placement/placement.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>

namespace gnstor::nvme {

inline constexpr std::uint32_t kMaxVolumeName = 63;
inline constexpr std::uint32_t kMaxReaders = 64;
inline constexpr std::uint32_t kVolumeRecordVersion = 1;

/// A drive's record of a volume; identical on every drive. 384 bytes.
struct VolumeRecord {
    std::uint32_t record_version;  ///< kVolumeRecordVersion
    Epoch epoch;                   ///< raised at every opening for writing
    placement::VolumeGeometry geometry;
    std::uint64_t byte_length;  ///< length of the contents as set by the user; at most the capacity
    Epoch birth_epoch;          ///< blocks of lower epochs belong to an earlier volume with this VID
    ClientId owner;
    ClientId writer;  ///< the only client that may write in `epoch`; 0: none
    std::uint32_t reader_count;
    std::uint32_t flags;                  ///< bit 0: any client may read
    char name[kMaxVolumeName + 1];        ///< zero terminated
    char owner_name[kMaxVolumeName + 1];  ///< so that records can be rebuilt from drives
    ClientId readers[kMaxReaders];
    std::uint64_t revision;  ///< raised by gnstord at every change of the record: equal revision, equal bytes
    std::uint32_t
        slot_count;  ///< of the map when the record changed: a rebuild of the records notices missing SSDs
    /// Check value of the map's failure domains when the record changed
    /// (daemon/decisions/failure_domains.hpp); 0: each slot is a domain of its own.
    std::uint32_t domains_check;
    std::uint8_t reserved[56];
};
static_assert(sizeof(VolumeRecord) == 384, "VOLUME ADD carries 384 bytes");
inline constexpr std::uint32_t kVolumeWorldReadable = 1u;  ///< any client may read
/// A deletion was begun; a daemon that finds this flag must finish it.
inline constexpr std::uint32_t kVolumeDeleting = 2u;
/// Any client may open it for writing, one at a time.
inline constexpr std::uint32_t kVolumeAnyWriter = 4u;

struct VolumeListHeader {
    std::uint32_t total;     ///< volumes on this drive
    std::uint32_t returned;  ///< records that follow; kListIncomplete is added
    std::uint64_t term;      ///< newest term this drive has seen
};
static_assert(sizeof(VolumeListHeader) == 16, "records follow at byte 16");
/// In VolumeListHeader::returned: the drive's slot was not *in* in the newest map that it stored, so that it lacks
/// blocks. A daemon without records must not take it for a whole replica; one that does not know this flag refuses the
/// list.
inline constexpr std::uint32_t kListIncomplete = 1u << 31;

struct MapSet {
    std::uint32_t slot;      ///< the slot this drive fills, or 0xFFFFFFFF
    std::uint32_t grant_ms;  ///< 0: until the next MAP SET
    placement::ArrayMap map;
};

/// Packs epoch and sequence of a version into 64 bits that compare as the pair does: bits 63:58 the bit width
/// of the epoch, below them the epoch without its highest bit, in the remaining bits the sequence, saturated
/// to all ones if too large (from 2^43 on for epochs below 2^16). Saturated versions of one epoch compare
/// equal. 0: no version.
constexpr std::uint64_t present_order(Epoch epoch, std::uint64_t sequence) {
    constexpr int kLengthBits = 6;
    const int length = std::bit_width(epoch);
    const int below = length > 1 ? length - 1 : 0;
    const int room = 64 - kLengthBits - below;
    const std::uint64_t most = (std::uint64_t{1} << room) - 1;
    const std::uint64_t rest = epoch & ((std::uint64_t{1} << below) - 1);
    return static_cast<std::uint64_t>(length) << (64 - kLengthBits) | rest << room | std::min(sequence, most);
}

/// FLOOR as a writer sends it.
inline Command encode_floor(VolumeId volume, Epoch epoch, std::uint64_t floor) {
    Command c{};
    c.opcode = static_cast<std::uint8_t>(AdminOpcode::kFloor);
    c.flags = kFlagsSgl;
    c.cdw10 = volume;
    c.cdw11 = epoch;
    c.cdw12 = static_cast<std::uint32_t>(floor);
    c.cdw13 = static_cast<std::uint32_t>(floor >> 32);
    return c;
}

}  // namespace gnstor::nvme
