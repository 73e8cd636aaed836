// fabrics.hpp: NVMe over Fabrics commands, controller properties, and the private data of RDMA connections.
//
// NVMe Base 2.0, 3.1.3 (properties), 6.2 to 6.6 (Fabrics commands: Connect 6.3, Property Get 6.5, Property
// Set 6.6); NVMe RDMA Transport 1.0, section 3.2 (connection establishment: private data of REQ, REP, REJ).
// Little endian; CPU code. The commands of in-band authentication are in src/nvmf/auth.
#pragma once

#include <gnstor/nvme/command.hpp>
#include <gnstor/nvme/identify.hpp>

#include <cstddef>
#include <cstdint>

namespace gnstor::nvme {

/// Fabrics command types, byte 4 of a command with opcode 7Fh. Base 2.0, figure 384.
enum class FabricsType : std::uint8_t {
    kPropertySet = 0x00,
    kConnect = 0x01,
    kPropertyGet = 0x04,
    kAuthenticationSend = 0x05,
    kAuthenticationReceive = 0x06,
    kDisconnect = 0x08,
};
inline FabricsType fabrics_type(const Command& c) {
    return static_cast<FabricsType>(c.namespace_id & 0xFFu);
}

/// Connect command. Base 2.0, 6.3, figure 386. The data is ConnectData.
struct ConnectCommand {
    std::uint8_t opcode;  ///< 7Fh
    std::uint8_t flags;
    std::uint16_t command_id;
    std::uint8_t type;  ///< FabricsType::kConnect
    std::uint8_t reserved5[19];
    SglDescriptor data;
    std::uint16_t record_format;  ///< 0
    std::uint16_t queue_id;       ///< 0: admin queue
    std::uint16_t sq_size;        ///< 0's based
    std::uint8_t attributes;      ///< kConnect... bits
    std::uint8_t reserved47;
    std::uint32_t keep_alive_ms;  ///< 0: no keep-alive timer
    std::uint8_t reserved52[12];
};
static_assert(sizeof(ConnectCommand) == 64 && offsetof(ConnectCommand, type) == 4);
static_assert(offsetof(ConnectCommand, data) == 24 && offsetof(ConnectCommand, record_format) == 40);
static_assert(offsetof(ConnectCommand, queue_id) == 42 && offsetof(ConnectCommand, sq_size) == 44);
static_assert(offsetof(ConnectCommand, attributes) == 46 && offsetof(ConnectCommand, keep_alive_ms) == 48);
inline constexpr std::uint8_t kConnectPriorityMask = 0x03;      ///< ssd::Priority of an I/O queue
inline constexpr std::uint8_t kConnectDisableSqFlow = 1u << 2;  ///< host asks to disable SQ flow control
inline constexpr std::uint16_t kNoSqFlow = 0xFFFF;  ///< SQ head in the response to such a Connect: granted

/// Data of Connect. Base 2.0, figure 387.
struct ConnectData {
    std::uint8_t host_id[16];
    std::uint16_t controller_id;  ///< FFFFh: any (dynamic model); I/O queues: the id that the admin queue got
    std::uint8_t reserved18[238];
    char subsystem_nqn[kNqnBytes];
    char host_nqn[kNqnBytes];
    std::uint8_t reserved768[256];
};
static_assert(sizeof(ConnectData) == 1024 && offsetof(ConnectData, controller_id) == 16);
static_assert(offsetof(ConnectData, subsystem_nqn) == 256 && offsetof(ConnectData, host_nqn) == 512);
inline constexpr std::uint16_t kAnyController = 0xFFFF;
inline constexpr std::uint16_t kAnyStaticController = 0xFFFE;

/// DW0 of a successful Connect response: 15:0 the controller id, 31:16 AUTHREQ. Base 2.0, figure 388. ATR:
/// the queue must authenticate in-band before any other command. ASCR: over a secure channel, which is not
/// offered here.
inline constexpr std::uint32_t kConnectAuthenticate = 1u << 17;
inline constexpr std::uint32_t kConnectSecureChannel = 1u << 18;

/// DW0 of a Connect response with status Connect Invalid Parameters: which parameter. Base 2.0, figure 389.
inline constexpr std::uint32_t connect_bad_parameter(std::uint16_t offset, bool in_data) {
    return offset | (in_data ? 1u << 16 : 0u);
}

/// Property Get and Property Set. Base 2.0, 6.5 and 6.6, figures 394 and 396.
struct PropertyCommand {
    std::uint8_t opcode;
    std::uint8_t flags;
    std::uint16_t command_id;
    std::uint8_t type;
    std::uint8_t reserved5[35];
    std::uint8_t attributes;  ///< 2:0 0: 4 bytes, 1: 8 bytes
    std::uint8_t reserved41[3];
    std::uint32_t offset;
    std::uint64_t value;  ///< Property Set only; Property Get answers in DW0 and DW1
    std::uint8_t reserved56[8];
};
static_assert(sizeof(PropertyCommand) == 64 && offsetof(PropertyCommand, type) == 4);
static_assert(offsetof(PropertyCommand, attributes) == 40 && offsetof(PropertyCommand, offset) == 44);
static_assert(offsetof(PropertyCommand, value) == 48);

/// Offsets of the properties that NVMe-oF keeps. Base 2.0, 3.1.3, figure 33.
enum class Property : std::uint32_t { kCap = 0x00, kVs = 0x08, kCc = 0x14, kCsts = 0x1C, kNssr = 0x20 };
/// Size of a property in bytes: CAP has 8, the others 4; 0: no such property.
constexpr std::uint32_t property_bytes(std::uint32_t offset) {
    switch (static_cast<Property>(offset)) {
        case Property::kCap:
            return 8;
        case Property::kVs:
        case Property::kCc:
        case Property::kCsts:
        case Property::kNssr:
            return 4;
    }
    return 0;
}

/// CAP, controller capabilities. Base 2.0, 3.1.3.1, figure 34.
struct Capabilities {
    std::uint16_t max_queue_entries = 0;  ///< MQES 15:0, 0's based
    bool contiguous_queues = true;        ///< CQR 16: fabrics demand 1
    bool weighted_round_robin = false;    ///< AMS 17
    std::uint8_t timeout_500ms = 0;       ///< TO 31:24
    bool nvm_command_set = true;          ///< CSS 37
    std::uint8_t page_size_min = 0;       ///< MPSMIN 51:48, 2^(12+n)
    std::uint8_t page_size_max = 0;       ///< MPSMAX 55:52
    bool operator==(const Capabilities&) const = default;

    [[nodiscard]] constexpr std::uint64_t encode() const {
        return std::uint64_t{max_queue_entries} | (std::uint64_t{contiguous_queues} << 16) |
               (std::uint64_t{weighted_round_robin} << 17) | (std::uint64_t{timeout_500ms} << 24) |
               (std::uint64_t{nvm_command_set} << 37) | (std::uint64_t{page_size_min & 0xFu} << 48) |
               (std::uint64_t{page_size_max & 0xFu} << 52);
    }
    static constexpr Capabilities decode(std::uint64_t v) {
        Capabilities c;
        c.max_queue_entries = static_cast<std::uint16_t>(v);
        c.contiguous_queues = ((v >> 16) & 1) != 0;
        c.weighted_round_robin = ((v >> 17) & 1) != 0;
        c.timeout_500ms = static_cast<std::uint8_t>(v >> 24);
        c.nvm_command_set = ((v >> 37) & 1) != 0;
        c.page_size_min = static_cast<std::uint8_t>((v >> 48) & 0xF);
        c.page_size_max = static_cast<std::uint8_t>((v >> 52) & 0xF);
        return c;
    }
};

/// VS, version. Base 2.0, 3.1.3.2: major 31:16, minor 15:8, tertiary 7:0.
inline constexpr std::uint32_t kVersion20 = 0x00020000;

/// CC, controller configuration. Base 2.0, 3.1.3.5, figure 46.
struct Configuration {
    bool enable = false;             ///< EN 0
    std::uint8_t command_set = 0;    ///< CSS 6:4
    std::uint8_t page_size = 0;      ///< MPS 10:7, 2^(12+n)
    std::uint8_t arbitration = 0;    ///< AMS 13:11; 1: weighted round robin with urgent
    std::uint8_t shutdown = 0;       ///< SHN 15:14; 1 normal, 2 abrupt
    std::uint8_t sq_entry_log2 = 0;  ///< IOSQES 19:16; 6
    std::uint8_t cq_entry_log2 = 0;  ///< IOCQES 23:20; 4
    bool operator==(const Configuration&) const = default;

    [[nodiscard]] constexpr std::uint32_t encode() const {
        return std::uint32_t{enable} | ((command_set & 7u) << 4) | ((page_size & 15u) << 7) |
               ((arbitration & 7u) << 11) | ((shutdown & 3u) << 14) | ((sq_entry_log2 & 15u) << 16) |
               ((cq_entry_log2 & 15u) << 20);
    }
    static constexpr Configuration decode(std::uint32_t v) {
        Configuration c;
        c.enable = (v & 1) != 0;
        c.command_set = static_cast<std::uint8_t>((v >> 4) & 7);
        c.page_size = static_cast<std::uint8_t>((v >> 7) & 15);
        c.arbitration = static_cast<std::uint8_t>((v >> 11) & 7);
        c.shutdown = static_cast<std::uint8_t>((v >> 14) & 3);
        c.sq_entry_log2 = static_cast<std::uint8_t>((v >> 16) & 15);
        c.cq_entry_log2 = static_cast<std::uint8_t>((v >> 20) & 15);
        return c;
    }
};

/// CSTS, controller status. Base 2.0, 3.1.3.6, figure 47.
struct ControllerStatus {
    bool ready = false;         ///< RDY 0
    bool fatal = false;         ///< CFS 1
    std::uint8_t shutdown = 0;  ///< SHST 3:2; 0 normal, 1 occurring, 2 complete
    bool operator==(const ControllerStatus&) const = default;

    [[nodiscard]] constexpr std::uint32_t encode() const {
        return std::uint32_t{ready} | (std::uint32_t{fatal} << 1) | ((shutdown & 3u) << 2);
    }
    static constexpr ControllerStatus decode(std::uint32_t v) {
        return {(v & 1) != 0, (v & 2) != 0, static_cast<std::uint8_t>((v >> 2) & 3)};
    }
};

/// Private data of the RDMA connection manager's REQ. RDMA Transport 1.0, figure 3. 32 bytes.
struct RdmaConnectRequest {
    std::uint16_t record_format;  ///< 0
    std::uint16_t queue_id;
    std::uint16_t host_receive_queue_size;  ///< HRQSIZE: entries of the host's RDMA receive queue
    std::uint16_t host_send_queue_size;     ///< HSQSIZE: 0's based for I/O submission (Linux: sqsize)
    std::uint16_t controller_id;            ///< defined by later revisions; 0 in earlier ones
    std::uint8_t reserved10[22];
};
static_assert(sizeof(RdmaConnectRequest) == 32 && offsetof(RdmaConnectRequest, queue_id) == 2);
static_assert(offsetof(RdmaConnectRequest, host_receive_queue_size) == 4);
static_assert(offsetof(RdmaConnectRequest, host_send_queue_size) == 6);

/// Private data of REP. RDMA Transport 1.0, figure 4. 32 bytes.
struct RdmaConnectReply {
    std::uint16_t record_format;
    std::uint16_t controller_receive_queue_size;  ///< CRQSIZE
    std::uint8_t reserved4[28];
};
static_assert(sizeof(RdmaConnectReply) == 32);

/// Private data of REJ. RDMA Transport 1.0, figure 5. 4 bytes.
struct RdmaConnectReject {
    std::uint16_t record_format;
    std::uint16_t status;  ///< RdmaRejectStatus
};
static_assert(sizeof(RdmaConnectReject) == 4);

/// RDMA Transport 1.0, figure 6.
enum class RdmaRejectStatus : std::uint16_t {
    kInvalidLength = 0x01,
    kInvalidRecordFormat = 0x02,
    kInvalidQueueId = 0x03,
    kInvalidHostSendQueueSize = 0x04,
    kInvalidHostReceiveQueueSize = 0x05,
    kNoResources = 0x06,
    kInvalidIrd = 0x07,
    kInvalidOrd = 0x08,
};
const char* rdma_reject_name(RdmaRejectStatus s) noexcept;

}  // namespace gnstor::nvme
