// command.hpp: the 64-byte command and the 16-byte completion, with GNStor's fields.
//
// Standard layout from NVMe Base 2.0, 3.3.3.1 (submission queue entry) and 3.3.3.2 (completion queue entry);
// NVM Command Set 1.0, 3.2; keyed SGLs from NVMe Base 2.0, 4.1.2.1 (data transport: NVMe RDMA Transport 1.0).
// GNStor's meaning of reserved and protection-information fields: docs/design.md, "The command". Little
// endian. CPU and GPU lanes.
#pragma once

#include <gnstor/base/target.hpp>
#include <gnstor/nvme/status.hpp>

#include <cstddef>
#include <cstdint>

namespace gnstor::nvme {

inline constexpr std::uint32_t kSectorBytes = 512;
inline constexpr std::uint32_t kBlockBytes = 4096;
inline constexpr std::uint32_t kSectorsPerBlock = kBlockBytes / kSectorBytes;

using VolumeId = std::uint16_t;      ///< VID; 0 is reserved
using ClientId = std::uint16_t;      ///< 0: no client (plain NVMe-oF host)
using BlockAddress = std::uint32_t;  ///< VBA: block number within a volume
using Epoch = std::uint32_t;
using MapVersion = std::uint32_t;

/// I/O opcodes (NVM Command Set 1.0, figure 22).
enum class IoOpcode : std::uint8_t {
    kFlush = 0x00,
    kWrite = 0x01,
    kRead = 0x02,
    kWriteZeroes = 0x08,
    kDatasetManagement = 0x09,
};

/// Admin opcodes (Base 2.0, figure 138), and GNStor's vendor ones: bits 1:0 give the data direction (01 host
/// to drive, 10 drive to host, 00 none).
enum class AdminOpcode : std::uint8_t {
    kGetLogPage = 0x02,
    kIdentify = 0x06,
    kAbort = 0x08,
    kSetFeatures = 0x09,
    kGetFeatures = 0x0A,
    kAsyncEventRequest = 0x0C,
    kKeepAlive = 0x18,
    kFabrics = 0x7F,
    kVolumeAdd = 0xC1,
    kVolumeChmod = 0xC5,
    kVolumeDelete = 0xC8,
    kVolumeList = 0xCE,
    kMapSet = 0xD1,
    kFloor = 0xD4,
    kClean = 0xD8,
    kDelta = 0xDA,
    kHostSet = 0xDD,
    kMapGet = 0xDE,
};

/// SGL descriptor type and sub type, one byte (Base 2.0, figures 113 to 119).
inline constexpr std::uint8_t kSglDataBlockAddress = 0x00;  ///< data block, address
inline constexpr std::uint8_t kSglDataBlockOffset = 0x01;   ///< data block, offset: in-capsule data
inline constexpr std::uint8_t kSglKeyedAddress = 0x40;      ///< keyed data block, address
inline constexpr std::uint8_t kSglKeyedInvalidate =
    0x4F;  ///< keyed data block, address, invalidate the key after

/// 16-byte SGL descriptor; which fields count depends on `type` (last byte).
struct SglDescriptor {
    std::uint64_t address;       ///< bus address, or offset into the capsule's data
    std::uint8_t length_key[7];  ///< keyed: length (3 bytes), key (4); unkeyed: length (4), reserved (3)
    std::uint8_t type;

    GN_HD
    static SglDescriptor keyed(std::uint64_t address, std::uint32_t length, std::uint32_t key) {
        return from_words(address, (length & 0xFFFFFFull) | (std::uint64_t{key} << 24) |
                                       (std::uint64_t{kSglKeyedAddress} << 56));
    }
    GN_HD
    static SglDescriptor unkeyed(std::uint8_t type, std::uint64_t address, std::uint32_t length) {
        return from_words(address, length | (std::uint64_t{type} << 56));
    }
    /// Little endian, as both processors are. Two 8-byte stores: after stores of single bytes, a wide load of
    /// the copy would stall on store forwarding.
    GN_HD
    static SglDescriptor from_words(std::uint64_t address, std::uint64_t rest) {
        SglDescriptor d;
        d.address = address;
        __builtin_memcpy(reinterpret_cast<char*>(&d) + sizeof(address), &rest, sizeof(rest));
        return d;
    }
    GN_HD
    bool is_keyed() const { return (type & 0xF0u) == 0x40u; }
    GN_HD
    std::uint32_t length() const {
        std::uint32_t v =
            length_key[0] | (std::uint32_t{length_key[1]} << 8) | (std::uint32_t{length_key[2]} << 16);
        if (!is_keyed()) v |= std::uint32_t{length_key[3]} << 24;
        return v;
    }
    GN_HD
    std::uint32_t key() const {
        return length_key[3] | (std::uint32_t{length_key[4]} << 8) | (std::uint32_t{length_key[5]} << 16) |
               (std::uint32_t{length_key[6]} << 24);
    }
};
static_assert(sizeof(SglDescriptor) == 16, "an SGL descriptor is 16 bytes");
static_assert(offsetof(SglDescriptor, type) == 15, "the SGL identifier is the last byte");

/// Submission queue entry; every command begins like this. Base 2.0, 3.3.3.1.
struct Command {
    std::uint8_t opcode;
    std::uint8_t flags;  ///< bits 7:6 PSDT: 01b SGL, as NVMe-oF demands
    std::uint16_t command_id;
    std::uint32_t namespace_id;
    std::uint32_t cdw2;
    std::uint32_t cdw3;
    std::uint64_t metadata;
    SglDescriptor data;
    std::uint32_t cdw10;
    std::uint32_t cdw11;
    std::uint32_t cdw12;
    std::uint32_t cdw13;
    std::uint32_t cdw14;
    std::uint32_t cdw15;
};
static_assert(sizeof(Command) == 64, "a submission queue entry is 64 bytes");
static_assert(offsetof(Command, command_id) == 2 && offsetof(Command, namespace_id) == 4, "CDW0 and NSID");
static_assert(offsetof(Command, data) == 24, "the data pointer is CDW6 to CDW9");
static_assert(offsetof(Command, cdw10) == 40, "SLBA is CDW10 and CDW11");
static_assert(offsetof(Command, cdw15) == 60, "CDW15 ends the entry");

inline constexpr std::uint8_t kFlagsSgl = 0x40;

/// Completion queue entry. Base 2.0, 3.3.3.2. DW3 (command id and status) is written last.
struct Completion {
    std::uint32_t dw0;
    std::uint32_t dw1;
    std::uint16_t sq_head;
    std::uint16_t sq_id;
    std::uint16_t command_id;
    std::uint16_t status;  ///< bit 0 phase (0 over fabrics), bits 15:1 status field

    GN_HD
    Status result() const { return from_field(static_cast<std::uint16_t>(status >> 1)); }
    GN_HD
    void set_result(Status s) { status = static_cast<std::uint16_t>(to_field(s) << 1); }
};
static_assert(sizeof(Completion) == 16, "a completion queue entry is 16 bytes");
static_assert(offsetof(Completion, command_id) == 12 && offsetof(Completion, status) == 14, "DW3");

/// GNStor's fields of an I/O command, decoded. docs/design.md, "The command".
struct IoFields {
    VolumeId volume = 0;
    ClientId client = 0;
    BlockAddress block = 0;         ///< first block; 0 for flush and dataset management
    std::uint32_t blocks = 1;       ///< 1 .. 65536 (NLB + 1)
    Epoch epoch = 0;                ///< CDW2
    MapVersion map_version = 0;     ///< CDW3
    std::uint8_t first_sector = 0;  ///< read of part of one block; else 0
    std::uint8_t sectors = 0;       ///< 0: whole blocks; else 1 .. 8, blocks == 1
    std::uint64_t sequence = 0;     ///< writes, write zeroes, trims: CDW14-15
    bool fua = false;               ///< CDW12 bit 30
    /// Read of one block: if the block is doubtful (Status::kDoubtful), answer with its older version. CDW13
    /// bit 16. A reader sets it once every *in* replica has answered Doubtful, and sends the read to the
    /// replica with the newest of the older versions (vendor.hpp).
    bool accept_older = false;

    GN_HD
    bool operator==(const IoFields& o) const {
        return volume == o.volume && client == o.client && block == o.block && blocks == o.blocks &&
               epoch == o.epoch && map_version == o.map_version && first_sector == o.first_sector &&
               sectors == o.sectors && sequence == o.sequence && fua == o.fua &&
               accept_older == o.accept_older;
    }
};

/// Fills everything but command id and data pointer. CDW10-11 SLBA: VID 63:48, client 47:32, VBA 31:0; CDW12:
/// NLB (0's based) 15:0, FUA 30; CDW13: first sector 7:0, sectors 15:8, accept older 16. For trims:
/// encode_trim(); their ranges are data (nvme::DsmRange).
GN_HD
inline Command encode_io(IoOpcode opcode, const IoFields& f) {
    Command c{};
    c.opcode = static_cast<std::uint8_t>(opcode);
    c.flags = kFlagsSgl;
    c.namespace_id = 1;
    c.cdw2 = f.epoch;
    c.cdw3 = f.map_version;
    c.cdw10 = f.block;
    c.cdw11 = (std::uint32_t{f.volume} << 16) | f.client;
    c.cdw12 = ((f.blocks - 1) & 0xFFFFu) | (f.fua ? 1u << 30 : 0u);
    c.cdw13 =
        std::uint32_t{f.first_sector} | (std::uint32_t{f.sectors} << 8) | (f.accept_older ? 1u << 16 : 0u);
    c.cdw14 = static_cast<std::uint32_t>(f.sequence);
    c.cdw15 = static_cast<std::uint32_t>(f.sequence >> 32);
    return c;
}
/// Decodes in place: returning the structure by value would copy fields just stored one by one with wide
/// loads, which stall on store forwarding.
GN_HD
inline void decode_io(const Command& c, IoFields& f) {
    f.volume = static_cast<VolumeId>(c.cdw11 >> 16);
    f.client = static_cast<ClientId>(c.cdw11 & 0xFFFFu);
    f.block = c.cdw10;
    f.blocks = (c.cdw12 & 0xFFFFu) + 1;
    f.epoch = c.cdw2;
    f.map_version = c.cdw3;
    f.first_sector = static_cast<std::uint8_t>(c.cdw13 & 0xFFu);
    f.sectors = static_cast<std::uint8_t>((c.cdw13 >> 8) & 0xFFu);
    f.sequence = c.cdw14 | (static_cast<std::uint64_t>(c.cdw15) << 32);
    f.fua = ((c.cdw12 >> 30) & 1u) != 0;
    f.accept_older = ((c.cdw13 >> 16) & 1u) != 0;
}
GN_HD
inline IoFields decode_io(const Command& c) {
    IoFields f;
    decode_io(c, f);
    return f;
}

/// One range of dataset management (NVM Command Set 1.0, 3.2.3, figure 36). GNStor: `start` is the VBA in
/// bits 31:0; VID, client, epoch, map version and sequence come from the command. CDW10 7:0: number of
/// ranges, 0's based; CDW11 bit 2: AD. VID and client of a dataset management command are in CDW12 (VID
/// 31:16, client 15:0), because CDW10-11 are taken.
struct DsmRange {
    std::uint32_t attributes;
    std::uint32_t blocks;
    std::uint64_t start;
};
static_assert(sizeof(DsmRange) == 16, "a dataset management range is 16 bytes");

GN_HD
inline Command encode_trim(const IoFields& f, std::uint32_t ranges) {
    Command c = encode_io(IoOpcode::kDatasetManagement, f);
    c.cdw10 = (ranges - 1) & 0xFFu;
    c.cdw11 = 1u << 2;
    c.cdw12 = (std::uint32_t{f.volume} << 16) | f.client;
    c.cdw13 = 0;
    return c;
}
GN_HD
inline IoFields decode_trim(const Command& c) {
    IoFields f;
    f.volume = static_cast<VolumeId>(c.cdw12 >> 16);
    f.client = static_cast<ClientId>(c.cdw12 & 0xFFFFu);
    f.blocks = 1;
    f.epoch = c.cdw2;
    f.map_version = c.cdw3;
    f.sequence = c.cdw14 | (static_cast<std::uint64_t>(c.cdw15) << 32);
    return f;
}

}  // namespace gnstor::nvme
