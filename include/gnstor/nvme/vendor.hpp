// vendor.hpp: payloads of GNStor's vendor admin commands. Little endian, versioned, checksummed by whoever
// stores them.
//
// Every vendor command carries the daemon's term in CDW14-15; a drive that has seen a newer one answers
// kStaleTerm (ARRAY.md, rule 1). Only the controller of the array's admin host NQN may issue them, and FLOOR
// the volume's writer; others get Access Denied.
//
//   VOLUME ADD     data VolumeRecord.  The VID must be free and `birth_epoch` above every epoch of its
//   earlier life. VOLUME CHMOD   data VolumeRecord.  Replaces length, readers, writer and epoch of a volume;
//   geometry and name must match;
//                  the epoch may not go back. Acknowledged after a barrier: no command of the old state
//                  commits afterwards.
//   VOLUME DELETE  CDW10 VID.          Purges the volume; answered when none of its blocks can come back.
//   VOLUME LIST    CDW10 first index, CDW11 bytes of the buffer. Returns VolumeListHeader, then records in
//                  order of VID. Answered under any term, and raises none: it is how a daemon that lost its
//                  store learns the newest term. DW0: the highest epoch of any volume deleted from this
//                  drive, above which a VID may be used again.
//   MAP SET        data MapSet.        Activates a map behind a barrier; grants service for `grant_ms` (0:
//                  without end). CDW10 is the nonce of a GRANT ASK (fencing.hpp, which has terms, too).
//   FLOOR          CDW10 VID, CDW11 epoch, CDW12-13 floor. All sequences of the epoch up to the floor are
//                  resolved: the drive refuses them from now on, and forgets what it remembered for them
//                  (ARRAY.md, rule 8). A lower one than before changes nothing. From a writer the term does
//                  not count. DW0: how many tombstones the drive remembers now, of all volumes.
//
// Doubtful (ARRAY.md, rule 18), the status of a read, is a vendor status with a payload. Where it answers a
// read of one block, or of a part of one, DW0 and DW1 of the completion hold the order of the version that
// this drive would give (present_order(), low half in DW0); else they are 0. So whoever is answered Doubtful
// by every replica that is *in* knows which of them has the newest of the older versions, and sends that one
// the read again with *accept older* (CDW13 bit 16): of one block, or it is refused (Invalid Field).
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

/// Everything a drive knows of a volume; identical on every drive. 384 bytes.
struct VolumeRecord {
    std::uint32_t record_version;  ///< kVolumeRecordVersion
    Epoch epoch;                   ///< raised at every opening for writing
    placement::VolumeGeometry geometry;
    std::uint64_t byte_length;  ///< what the user says the contents' length is; at most the capacity
    Epoch birth_epoch;          ///< blocks of lower epochs belong to an earlier life of this VID
    ClientId owner;
    ClientId writer;  ///< who may write in `epoch`; 0: nobody
    std::uint32_t reader_count;
    std::uint32_t flags;                  ///< bit 0: any client may read
    char name[kMaxVolumeName + 1];        ///< zero terminated
    char owner_name[kMaxVolumeName + 1];  ///< so that records can be rebuilt from drives
    ClientId readers[kMaxReaders];
    std::uint64_t revision;  ///< raised by gnstord at every change of the record: equal revision, equal bytes
    std::uint32_t
        slot_count;  ///< of the map when the record changed: a rebuild notices SSDs that are missing
    /// Of the map's failure domains when the record changed, or 0: each slot its own
    /// (daemon/decisions/failure_domains.hpp).
    std::uint32_t domains_check;
    std::uint8_t reserved[56];
};
static_assert(sizeof(VolumeRecord) == 384, "VOLUME ADD carries 384 bytes");
inline constexpr std::uint32_t kVolumeWorldReadable = 1u;  ///< any client may read
/// A deletion was begun and must be finished, whoever finds it.
inline constexpr std::uint32_t kVolumeDeleting = 2u;
/// Any client may open it for writing, one at a time.
inline constexpr std::uint32_t kVolumeAnyWriter = 4u;

struct VolumeListHeader {
    std::uint32_t total;     ///< volumes on this drive
    std::uint32_t returned;  ///< records that follow
    std::uint64_t term;      ///< newest term this drive has seen
};
static_assert(sizeof(VolumeListHeader) == 16, "records follow at byte 16");

struct MapSet {
    std::uint32_t slot;      ///< the slot this drive fills, or 0xFFFFFFFF
    std::uint32_t grant_ms;  ///< 0: until the next MAP SET
    placement::ArrayMap map;
};

/// Epoch and sequence of a version in 64 bits that compare as the two do: bits 63:58 how many bits the epoch
/// has, below them the epoch without its highest bit, and in what is left the sequence, or all ones where it
/// has no room: from 2^43 on in epochs below 2^16. Two such versions of one epoch look alike. 0: none.
constexpr std::uint64_t present_order(Epoch epoch, std::uint64_t sequence) {
    constexpr int kLengthBits = 6;
    const int length = std::bit_width(epoch);
    const int below = length > 1 ? length - 1 : 0;
    const int room = 64 - kLengthBits - below;
    const std::uint64_t most = (std::uint64_t{1} << room) - 1;
    const std::uint64_t rest = epoch & ((std::uint64_t{1} << below) - 1);
    return static_cast<std::uint64_t>(length) << (64 - kLengthBits) | rest << room | std::min(sequence, most);
}

/// FLOOR, as a writer sends it.
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
