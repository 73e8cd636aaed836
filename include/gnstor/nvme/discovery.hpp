// discovery.hpp: the discovery log page: the subsystems and their addresses. Little endian; CPU code.
//
// NVMe Base 2.0, 3.1.2.3 (discovery controllers), 5.16.1.23 (log page 70h); NVMe RDMA Transport 1.0, 3.3
// (transport specific address subtype). The tests compare with libnvme's types.h.
#pragma once

#include <gnstor/nvme/identify.hpp>

#include <cstddef>
#include <cstdint>

namespace gnstor::nvme {

inline constexpr std::uint8_t kLogPageDiscovery = 0x70;
inline constexpr std::uint8_t kControllerTypeDiscovery = 2;

enum class TransportType : std::uint8_t { kRdma = 1, kFibreChannel = 2, kTcp = 3, kIntraHost = 254 };
enum class AddressFamily : std::uint8_t { kIpv4 = 1, kIpv6 = 2, kInfiniBand = 3, kIntraHost = 254 };
enum class SubsystemType : std::uint8_t { kReferral = 1, kNvm = 2, kCurrentDiscovery = 3 };
inline constexpr std::uint8_t kTreqSecureNotRequired = 2;     ///< bits 1:0
inline constexpr std::uint8_t kTreqSqFlowOptional = 1u << 2;  ///< a host may ask to disable SQ flow control
inline constexpr std::uint16_t kDynamicControllers = 0xFFFF;

/// Transport specific address subtype of the RDMA transport.
struct RdmaAddressSubtype {
    std::uint8_t qp_type;   ///< 1: reliable connected
    std::uint8_t provider;  ///< 4: RoCE v2
    std::uint8_t cm;        ///< 1: RDMA_CM, IP based addresses
    std::uint8_t reserved3[5];
    std::uint16_t partition_key;  ///< InfiniBand addresses only
    std::uint8_t reserved10[246];
};
static_assert(sizeof(RdmaAddressSubtype) == 256 && offsetof(RdmaAddressSubtype, partition_key) == 8);
inline constexpr std::uint8_t kRdmaReliableConnected = 1;
inline constexpr std::uint8_t kRdmaProviderRoceV2 = 4;
inline constexpr std::uint8_t kRdmaCm = 1;

/// One record: a subsystem at a port. Address and service are padded with blanks.
struct DiscoveryEntry {
    std::uint8_t transport;  ///< TransportType
    std::uint8_t family;     ///< AddressFamily
    std::uint8_t subtype;    ///< SubsystemType
    std::uint8_t requirements;
    std::uint16_t port_id;
    std::uint16_t controller_id;  ///< kDynamicControllers
    std::uint16_t admin_entries_max;
    std::uint16_t flags;
    std::uint8_t reserved12[20];
    char service[32];
    std::uint8_t reserved64[192];
    char subsystem_nqn[kNqnBytes];
    char address[256];
    RdmaAddressSubtype rdma;
};
static_assert(sizeof(DiscoveryEntry) == 1024, "a record is 1024 bytes");
static_assert(offsetof(DiscoveryEntry, port_id) == 4 && offsetof(DiscoveryEntry, admin_entries_max) == 8);
static_assert(offsetof(DiscoveryEntry, service) == 32 && offsetof(DiscoveryEntry, subsystem_nqn) == 256);
static_assert(offsetof(DiscoveryEntry, address) == 512 && offsetof(DiscoveryEntry, rdma) == 768);

/// Records follow at byte 1024.
struct DiscoveryLogHeader {
    std::uint64_t generation;  ///< changes whenever the records change
    std::uint64_t records;
    std::uint16_t record_format;  ///< 0
    std::uint8_t reserved18[1006];
};
static_assert(sizeof(DiscoveryLogHeader) == 1024 && offsetof(DiscoveryLogHeader, record_format) == 16);

}  // namespace gnstor::nvme
