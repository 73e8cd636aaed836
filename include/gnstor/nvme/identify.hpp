// identify.hpp: Identify data structures and log pages of a controller. Little endian; CPU code.
//
// NVMe Base 2.0, 5.17.2.1 (Identify Controller), 5.17.2.2 (active namespace list), 5.17.2.3 (namespace
// identification descriptors); NVM Command Set 1.0, 4.1.5.1 (Identify Namespace); Fabrics fields at 1792:
// Base 2.0, figure 275. Log pages: Base 2.0, 5.16.1.2 (error), 5.16.1.3 (SMART / health), 5.16.1.4 (firmware
// slot), 5.16.1.5 (changed namespaces), 5.16.1.6 (commands supported). Fields that GNStor leaves at zero are
// reserved arrays here; the tests compare the other fields with libnvme's types.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gnstor::nvme {

inline constexpr std::uint32_t kIdentifyBytes = 4096;
inline constexpr std::uint32_t kNqnBytes = 256;  ///< field size; a name has at most 223 bytes (Base 2.0, 4.5)

/// CNS values of Identify, CDW10 7:0 (Base 2.0, figure 273).
enum class IdentifyCns : std::uint8_t {
    kNamespace = 0x00,
    kController = 0x01,
    kActiveNamespaces = 0x02,
    kNamespaceDescriptors = 0x03,
    kNamespaceOfSet = 0x05,       ///< of the command set in CDW11 31:24
    kControllerOfSet = 0x06,      ///< of the command set in CDW11 31:24
    kNamespaceIndependent = 0x08  ///< of any command set
};

/// Identify Controller. Base 2.0, 5.17.2.1, figure 275. Strings are padded with blanks, not terminated
/// (except SUBNQN).
struct IdentifyController {
    std::uint16_t vid;
    std::uint16_t ssvid;
    char sn[20];
    char mn[40];
    char fr[8];
    std::uint8_t rab;  ///< log2 of the arbitration burst
    std::uint8_t ieee[3];
    std::uint8_t cmic;
    std::uint8_t mdts;  ///< log2 of the largest transfer, in CAP.MPSMIN pages
    std::uint16_t cntlid;
    std::uint32_t ver;
    std::uint32_t rtd3r;
    std::uint32_t rtd3e;
    std::uint32_t oaes;
    std::uint32_t ctratt;
    std::uint16_t rrls;
    std::uint8_t reserved102[9];
    std::uint8_t cntrltype;  ///< 1: I/O controller, 2: discovery
    std::uint8_t fguid[16];
    std::uint16_t crdt[3];  ///< retry delays, in 100 ms
    std::uint8_t reserved134[122];
    std::uint16_t oacs;
    std::uint8_t acl;   ///< concurrent aborts, 0's based
    std::uint8_t aerl;  ///< concurrent asynchronous event requests, 0's based
    std::uint8_t frmw;
    std::uint8_t lpa;
    std::uint8_t elpe;  ///< error log entries, 0's based
    std::uint8_t npss;
    std::uint8_t avscc;
    std::uint8_t apsta;
    std::uint16_t wctemp;
    std::uint16_t cctemp;
    std::uint8_t reserved270[50];
    std::uint16_t kas;  ///< keep alive granularity, in 100 ms
    std::uint8_t reserved322[190];
    std::uint8_t sqes;  ///< 7:4 largest, 3:0 required; log2 of bytes
    std::uint8_t cqes;
    std::uint16_t maxcmd;
    std::uint32_t nn;
    std::uint16_t oncs;
    std::uint16_t fuses;
    std::uint8_t fna;
    std::uint8_t vwc;     ///< bit 0: a volatile write cache is present
    std::uint16_t awun;   ///< 0's based
    std::uint16_t awupf;  ///< 0's based; 0: a power cut never tears one block
    std::uint8_t icsvscc;
    std::uint8_t nwpc;
    std::uint16_t acwu;
    std::uint16_t ocfs;
    std::uint32_t sgls;
    std::uint32_t mnan;
    std::uint8_t reserved544[224];
    char subnqn[kNqnBytes];
    std::uint8_t reserved1024[768];
    std::uint32_t ioccsz;  ///< largest command capsule of an I/O queue, in units of 16 bytes
    std::uint32_t iorcsz;  ///< largest response capsule, in units of 16 bytes
    std::uint16_t icdoff;  ///< offset of in-capsule data behind the entry, in units of 16 bytes
    std::uint8_t fcatt;    ///< bit 0: static controller model
    std::uint8_t msdbd;    ///< SGL data block descriptors per command
    std::uint16_t ofcs;
    std::uint8_t dctype;
    std::uint8_t reserved1807[241];
    std::uint8_t psd[32][32];  ///< power states
    std::uint8_t vendor[1024];
};
static_assert(sizeof(IdentifyController) == kIdentifyBytes, "Identify data is 4096 bytes");
static_assert(offsetof(IdentifyController, sn) == 4 && offsetof(IdentifyController, mn) == 24);
static_assert(offsetof(IdentifyController, fr) == 64 && offsetof(IdentifyController, rab) == 72);
static_assert(offsetof(IdentifyController, ieee) == 73 && offsetof(IdentifyController, cmic) == 76);
static_assert(offsetof(IdentifyController, mdts) == 77 && offsetof(IdentifyController, cntlid) == 78);
static_assert(offsetof(IdentifyController, ver) == 80 && offsetof(IdentifyController, rtd3r) == 84);
static_assert(offsetof(IdentifyController, rtd3e) == 88 && offsetof(IdentifyController, oaes) == 92);
static_assert(offsetof(IdentifyController, ctratt) == 96 && offsetof(IdentifyController, rrls) == 100);
static_assert(offsetof(IdentifyController, cntrltype) == 111 && offsetof(IdentifyController, fguid) == 112);
static_assert(offsetof(IdentifyController, crdt) == 128 && offsetof(IdentifyController, oacs) == 256);
static_assert(offsetof(IdentifyController, acl) == 258 && offsetof(IdentifyController, aerl) == 259);
static_assert(offsetof(IdentifyController, frmw) == 260 && offsetof(IdentifyController, lpa) == 261);
static_assert(offsetof(IdentifyController, elpe) == 262 && offsetof(IdentifyController, npss) == 263);
static_assert(offsetof(IdentifyController, avscc) == 264 && offsetof(IdentifyController, apsta) == 265);
static_assert(offsetof(IdentifyController, wctemp) == 266 && offsetof(IdentifyController, cctemp) == 268);
static_assert(offsetof(IdentifyController, kas) == 320 && offsetof(IdentifyController, sqes) == 512);
static_assert(offsetof(IdentifyController, cqes) == 513 && offsetof(IdentifyController, maxcmd) == 514);
static_assert(offsetof(IdentifyController, nn) == 516 && offsetof(IdentifyController, oncs) == 520);
static_assert(offsetof(IdentifyController, fuses) == 522 && offsetof(IdentifyController, fna) == 524);
static_assert(offsetof(IdentifyController, vwc) == 525 && offsetof(IdentifyController, awun) == 526);
static_assert(offsetof(IdentifyController, awupf) == 528 && offsetof(IdentifyController, icsvscc) == 530);
static_assert(offsetof(IdentifyController, nwpc) == 531 && offsetof(IdentifyController, acwu) == 532);
static_assert(offsetof(IdentifyController, ocfs) == 534 && offsetof(IdentifyController, sgls) == 536);
static_assert(offsetof(IdentifyController, mnan) == 540 && offsetof(IdentifyController, subnqn) == 768);
static_assert(offsetof(IdentifyController, ioccsz) == 1792 && offsetof(IdentifyController, iorcsz) == 1796);
static_assert(offsetof(IdentifyController, icdoff) == 1800 && offsetof(IdentifyController, fcatt) == 1802);
static_assert(offsetof(IdentifyController, msdbd) == 1803 && offsetof(IdentifyController, ofcs) == 1804);
static_assert(offsetof(IdentifyController, dctype) == 1806 && offsetof(IdentifyController, psd) == 2048);
static_assert(offsetof(IdentifyController, vendor) == 3072);

inline constexpr std::uint8_t kControllerTypeIo = 1;
inline constexpr std::uint32_t kCtrattHostId128 = 1u << 0;
inline constexpr std::uint32_t kOaesNamespaceAttribute = 1u << 8;  ///< namespace attribute notices are sent
inline constexpr std::uint16_t kOncsDatasetManagement = 1u << 2;
inline constexpr std::uint16_t kOncsWriteZeroes = 1u << 3;
inline constexpr std::uint8_t kLpaCommandsSupported = 1u << 1;
inline constexpr std::uint8_t kLpaExtendedData = 1u
                                                 << 2;  ///< Get Log Page with an offset and a 32-bit length
inline constexpr std::uint32_t kSglsSupported = 1u << 0;
inline constexpr std::uint32_t kSglsKeyed = 1u << 2;
inline constexpr std::uint32_t kSglsOffset = 1u << 20;  ///< the address may be an offset: in-capsule data

/// LBA format. NVM Command Set 1.0, figure 98.
struct LbaFormat {
    std::uint16_t ms;  ///< metadata bytes
    std::uint8_t ds;   ///< log2 of the block size
    std::uint8_t rp;   ///< relative performance, 0: best
};
static_assert(sizeof(LbaFormat) == 4);

/// Identify Namespace. NVM Command Set 1.0, 4.1.5.1, figure 97.
struct IdentifyNamespace {
    std::uint64_t nsze;  ///< blocks
    std::uint64_t ncap;
    std::uint64_t nuse;
    std::uint8_t nsfeat;
    std::uint8_t nlbaf;  ///< 0's based
    std::uint8_t flbas;
    std::uint8_t mc;
    std::uint8_t dpc;
    std::uint8_t dps;
    std::uint8_t nmic;  ///< bit 0: may be attached to several controllers at once
    std::uint8_t rescap;
    std::uint8_t fpi;
    std::uint8_t dlfeat;  ///< 2:0 001b: deallocated blocks read as zeroes; bit 3: write zeroes may deallocate
    std::uint16_t nawun;
    std::uint16_t nawupf;
    std::uint16_t nacwu;
    std::uint16_t nabsn;
    std::uint16_t nabo;
    std::uint16_t nabspf;
    std::uint16_t noiob;
    std::uint8_t nvmcap[16];
    std::uint8_t reserved64[28];
    std::uint32_t anagrpid;
    std::uint8_t reserved96[3];
    std::uint8_t nsattr;
    std::uint16_t nvmsetid;
    std::uint16_t endgid;
    std::uint8_t nguid[16];
    std::uint8_t eui64[8];
    LbaFormat lbaf[64];
    std::uint8_t reserved384[3712];
};
static_assert(sizeof(IdentifyNamespace) == kIdentifyBytes, "Identify data is 4096 bytes");
static_assert(offsetof(IdentifyNamespace, nsze) == 0 && offsetof(IdentifyNamespace, ncap) == 8);
static_assert(offsetof(IdentifyNamespace, nuse) == 16 && offsetof(IdentifyNamespace, nsfeat) == 24);
static_assert(offsetof(IdentifyNamespace, nlbaf) == 25 && offsetof(IdentifyNamespace, flbas) == 26);
static_assert(offsetof(IdentifyNamespace, mc) == 27 && offsetof(IdentifyNamespace, dpc) == 28);
static_assert(offsetof(IdentifyNamespace, dps) == 29 && offsetof(IdentifyNamespace, nmic) == 30);
static_assert(offsetof(IdentifyNamespace, rescap) == 31 && offsetof(IdentifyNamespace, fpi) == 32);
static_assert(offsetof(IdentifyNamespace, dlfeat) == 33 && offsetof(IdentifyNamespace, nawun) == 34);
static_assert(offsetof(IdentifyNamespace, nawupf) == 36 && offsetof(IdentifyNamespace, nacwu) == 38);
static_assert(offsetof(IdentifyNamespace, noiob) == 46 && offsetof(IdentifyNamespace, nvmcap) == 48);
static_assert(offsetof(IdentifyNamespace, anagrpid) == 92 && offsetof(IdentifyNamespace, nsattr) == 99);
static_assert(offsetof(IdentifyNamespace, nguid) == 104 && offsetof(IdentifyNamespace, eui64) == 120);
static_assert(offsetof(IdentifyNamespace, lbaf) == 128);

inline constexpr std::uint8_t kNsattrWriteProtected = 1u << 0;  ///< NSATTR: write protected now

/// Active namespace list: namespace ids in ascending order, zero ends it. Base 2.0, 5.17.2.2.
struct NamespaceList {
    std::uint32_t nsid[1024];
};
static_assert(sizeof(NamespaceList) == kIdentifyBytes);

/// Identify Controller of the NVM command set. NVM Command Set 1.0, 4.1.5.5. Zero: no limit beyond MDTS.
struct IdentifyControllerNvm {
    std::uint8_t vsl;
    std::uint8_t wzsl;  ///< write zeroes, log2 of CAP.MPSMIN pages
    std::uint8_t wusl;
    std::uint8_t dmrl;    ///< ranges per dataset management command
    std::uint32_t dmrsl;  ///< blocks per range
    std::uint64_t dmsl;   ///< blocks per command
    std::uint8_t reserved16[4080];
};
static_assert(sizeof(IdentifyControllerNvm) == kIdentifyBytes);
static_assert(offsetof(IdentifyControllerNvm, dmrl) == 3 && offsetof(IdentifyControllerNvm, dmsl) == 8);

/// Command-set independent Identify Namespace. Base 2.0, 5.17.2.8.
struct IdentifyNamespaceIndependent {
    std::uint8_t nsfeat;
    std::uint8_t nmic;
    std::uint8_t rescap;
    std::uint8_t fpi;
    std::uint32_t anagrpid;
    std::uint8_t nsattr;
    std::uint8_t reserved9;
    std::uint16_t nvmsetid;
    std::uint16_t endgid;
    std::uint8_t nstat;  ///< bit 0: ready
    std::uint8_t reserved15[4081];
};
static_assert(sizeof(IdentifyNamespaceIndependent) == kIdentifyBytes);
static_assert(offsetof(IdentifyNamespaceIndependent, nsattr) == 8);
static_assert(offsetof(IdentifyNamespaceIndependent, nstat) == 14);
inline constexpr std::uint8_t kNstatReady = 1;

/// Head of a namespace identification descriptor; `length` bytes follow. A zero length ends the list.
/// Base 2.0, figure 277.
struct NamespaceDescriptor {
    std::uint8_t type;    ///< 1 EUI64, 2 NGUID, 3 UUID, 4 command set
    std::uint8_t length;  ///< 8, 16, 16, 1
    std::uint16_t reserved;
};
static_assert(sizeof(NamespaceDescriptor) == 4);
inline constexpr std::uint8_t kDescriptorEui64 = 1;
inline constexpr std::uint8_t kDescriptorNguid = 2;
inline constexpr std::uint8_t kDescriptorUuid = 3;

/// Log page identifiers, Get Log Page CDW10 7:0 (Base 2.0, figure 202).
enum class LogPage : std::uint8_t {
    kError = 0x01,
    kHealth = 0x02,
    kFirmwareSlot = 0x03,
    kChangedNamespaces = 0x04,  ///< a NamespaceList
    kCommandsSupported = 0x05,
};

/// One error log entry. Base 2.0, figure 206.
struct ErrorLogEntry {
    std::uint64_t error_count;  ///< 0: unused entry
    std::uint16_t sq_id;
    std::uint16_t command_id;
    std::uint16_t status;  ///< as in the completion, phase bit included
    std::uint16_t parameter_location;
    std::uint64_t lba;
    std::uint32_t namespace_id;
    std::uint8_t vendor;
    std::uint8_t transport_type;
    std::uint8_t reserved30[2];
    std::uint64_t command_specific;
    std::uint8_t reserved40[24];
};
static_assert(sizeof(ErrorLogEntry) == 64 && offsetof(ErrorLogEntry, lba) == 16);
static_assert(offsetof(ErrorLogEntry, status) == 12 && offsetof(ErrorLogEntry, namespace_id) == 24);
static_assert(offsetof(ErrorLogEntry, command_specific) == 32);

/// A 128-bit little-endian counter of the health page; alignment 1.
struct Counter128 {
    std::uint8_t bytes[16];
    void set(std::uint64_t v) {
        for (std::size_t i = 0; i < 16; ++i)
            bytes[i] = i < 8 ? static_cast<std::uint8_t>(v >> (8 * i)) : std::uint8_t{0};
    }
    [[nodiscard]] std::uint64_t low() const {
        std::uint64_t v = 0;
        for (std::size_t i = 0; i < 8; ++i) v |= std::uint64_t{bytes[i]} << (8 * i);
        return v;
    }
};

/// SMART / health information. Base 2.0, figure 207.
struct HealthLog {
    std::uint8_t critical_warning;
    std::uint8_t temperature[2];  ///< kelvin
    std::uint8_t available_spare;
    std::uint8_t spare_threshold;
    std::uint8_t percentage_used;
    std::uint8_t endurance_group_warning;
    std::uint8_t reserved7[25];
    Counter128 data_units_read;  ///< thousands of 512 bytes, rounded up
    Counter128 data_units_written;
    Counter128 host_reads;
    Counter128 host_writes;
    Counter128 busy_minutes;
    Counter128 power_cycles;
    Counter128 power_on_hours;
    Counter128 unsafe_shutdowns;
    Counter128 media_errors;
    Counter128 error_entries;
    std::uint8_t reserved192[320];
};
static_assert(sizeof(HealthLog) == 512 && offsetof(HealthLog, data_units_read) == 32);
static_assert(offsetof(HealthLog, host_reads) == 64 && offsetof(HealthLog, power_cycles) == 112);
static_assert(offsetof(HealthLog, media_errors) == 160 && offsetof(HealthLog, error_entries) == 176);

inline constexpr std::uint8_t kHealthSpareLow = 1u << 0;  ///< critical_warning: spare below its threshold
inline constexpr std::uint8_t kHealthReadOnly = 1u << 3;  ///< critical_warning: all media is read only

/// Firmware slot information. Base 2.0, figure 210.
struct FirmwareSlotLog {
    std::uint8_t afi;  ///< 2:0 active slot
    std::uint8_t reserved1[7];
    char revision[7][8];
    std::uint8_t reserved64[448];
};
static_assert(sizeof(FirmwareSlotLog) == 512 && offsetof(FirmwareSlotLog, revision) == 8);

/// Commands supported and effects. Base 2.0, figure 211.
struct CommandsSupportedLog {
    std::uint32_t admin[256];
    std::uint32_t io[256];
    std::uint8_t reserved2048[2048];
};
static_assert(sizeof(CommandsSupportedLog) == 4096 && offsetof(CommandsSupportedLog, io) == 1024);
inline constexpr std::uint32_t kEffectSupported = 1u << 0;
inline constexpr std::uint32_t kEffectContentChange = 1u << 1;

}  // namespace gnstor::nvme
