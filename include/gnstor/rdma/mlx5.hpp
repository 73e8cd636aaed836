// mlx5.hpp: memory layout of the NIC's data path: send entries, receive entries, completions, doorbell
// records.
//
// It is the layout of ConnectX adapters (NVIDIA, "Ethernet Adapters Programming Manual" (PRM), chapters
// 7.4 "Work queues" and 7.13 "Completion queues"; rdma-core's providers/mlx5, against whose
// infiniband/mlx5dv.h the tests check), restricted to what this system uses: one 64-byte basic block per
// send entry (control + up to 3 segments of 16 bytes), one data segment per receive entry, 64-byte
// completions. Every multi-byte field is big endian. Structures consist of 32- and 64-bit words so that
// the atomics of simt/ can access each.
//
// Layout only; used by CPU lanes, GPU lanes and the NIC.
#pragma once

#include <gnstor/base/endian.hpp>
#include <gnstor/base/target.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace gnstor::rdma::mlx5 {

/// Send opcodes. PRM, "Send WQE construction"; MLX5_OPCODE_*.
enum SendOpcode : std::uint8_t {
    kNop = 0x00,
    kSendInvalidate = 0x01,
    kRdmaWrite = 0x08,
    kSend = 0x0a,
    kRdmaRead = 0x10,
};

/// Completion opcodes (op_own bits 7:4). MLX5_CQE_*.
enum CqeOpcode : std::uint8_t {
    kCqeRequest = 0,         ///< a send entry is done
    kCqeSend = 2,            ///< a SEND arrived
    kCqeSendInvalidate = 4,  ///< a SEND_WITH_INVALIDATE arrived; the key is in `imm_inval_pkey`
    kCqeRequestError = 13,   ///< a send entry failed: see `syndrome`
    kCqeResponseError = 14,  ///< a receive failed: see `syndrome`
    kCqeInvalid = 15,        ///< never written
};

/// Why a completion is an error. MLX5_CQE_SYNDROME_*.
enum Syndrome : std::uint8_t {
    kSyndromeNone = 0x00,
    kLocalLengthError = 0x01,
    kLocalQpOperationError = 0x02,
    kLocalProtectionError = 0x04,
    kFlushed = 0x05,  ///< the queue pair went to error before this entry was executed
    kBadResponse = 0x10,
    kLocalAccessError = 0x11,
    kRemoteInvalidRequest = 0x12,
    kRemoteAccessError = 0x13,
    kRemoteOperationError = 0x14,
    kTransportRetryExceeded = 0x15,
    kRnrRetryExceeded = 0x16,  ///< the peer had posted no receive
    kRemoteAborted = 0x22,
};

inline constexpr std::uint8_t kInitialOpOwn = 0xF1;    ///< a completion never written: invalid, owner bit 1
inline constexpr std::uint8_t kInlineScatter32 = 0x4;  ///< op_own bit 2: message in bytes 0-31
inline constexpr std::uint8_t kCompletionUpdate = 2 << 2;  ///< fm_ce_se: MLX5_WQE_CTRL_CQ_UPDATE
inline constexpr std::uint32_t kSendEntryBytes = 64;
inline constexpr std::uint32_t kInlineScatterBytes = 32;
inline constexpr std::uint32_t kIndexMask = 0xFFFF;       ///< doorbell counters and wqe indices have 16 bits
inline constexpr std::uint32_t kConsumerMask = 0xFFFFFF;  ///< completion-queue consumer indices have 24 bits
inline constexpr std::uint32_t kQpNumberMask = 0xFFFFFF;
inline constexpr std::uint32_t kReceiveRecord = 0;  ///< receive counter, in the doorbell record
inline constexpr std::uint32_t kSendRecord = 1;     ///< send counter, in the doorbell record

/// First segment of every send entry. mlx5_wqe_ctrl_seg.
struct alignas(16) ControlSegment {
    std::uint32_t opmod_idx_opcode;  ///< be32: opmod 31:24, index of the entry's first block 23:8, opcode 7:0
    std::uint32_t qpn_ds;  ///< be32: queue pair number 31:8, size in 16-byte segments (with this one) 5:0
    std::uint32_t signature_fm_ce_se;  ///< bytes: signature (0), reserved (0) x 2, fm_ce_se
    std::uint32_t imm;                 ///< be32: the key that SEND_WITH_INVALIDATE invalidates
};
static_assert(sizeof(ControlSegment) == 16 && offsetof(ControlSegment, qpn_ds) == 4, "mlx5_wqe_ctrl_seg");
static_assert(offsetof(ControlSegment, signature_fm_ce_se) == 8 && offsetof(ControlSegment, imm) == 12,
              "mlx5_wqe_ctrl_seg");

/// Where RDMA WRITE and READ act on the peer. mlx5_wqe_raddr_seg.
struct alignas(16) RemoteAddressSegment {
    std::uint64_t address;   ///< be64
    std::uint32_t rkey;      ///< be32
    std::uint32_t reserved;  ///< 0
};
static_assert(sizeof(RemoteAddressSegment) == 16 && offsetof(RemoteAddressSegment, rkey) == 8,
              "mlx5_wqe_raddr_seg");

/// Local memory: a gather element of a send, or a whole receive entry. mlx5_wqe_data_seg.
struct alignas(16) DataSegment {
    std::uint32_t byte_count;  ///< be32; hardware reads 0 as 2^31, so the software NIC refuses 0
    std::uint32_t lkey;        ///< be32
    std::uint64_t address;     ///< be64
};
static_assert(sizeof(DataSegment) == 16 && offsetof(DataSegment, lkey) == 4, "mlx5_wqe_data_seg");
static_assert(offsetof(DataSegment, address) == 8, "mlx5_wqe_data_seg");

/// 16 bytes of a send entry after the control segment.
union alignas(16) EntrySegment {
    DataSegment data;
    RemoteAddressSegment remote;
};

/// One send entry: one basic block (MLX5_SEND_WQE_BB). SEND: up to 3 data segments. WRITE, READ: remote, then
/// up to 2.
struct alignas(64) SendEntry {
    ControlSegment control;
    EntrySegment segment[3];
};
static_assert(sizeof(SendEntry) == kSendEntryBytes && offsetof(SendEntry, segment) == 16,
              "a send entry is one basic block");
static_assert(std::is_trivially_copyable_v<SendEntry>, "entries are copied as raw bytes");

/// A completion. mlx5_cqe64; the error form is mlx5_err_cqe. The NIC writes the last word last, with a
/// release.
struct alignas(64) Cqe64 {
    std::uint32_t inline_data[8];  ///< the message itself, with kInlineScatter32
    std::uint32_t srqn_uidx;
    std::uint32_t imm_inval_pkey;  ///< be32
    std::uint32_t app;
    std::uint32_t byte_cnt;  ///< be32: bytes of the message
    std::uint32_t timestamp_high;
    std::uint32_t timestamp_low;  ///< error form: byte 2 (of 4) vendor syndrome, byte 3 syndrome
    std::uint32_t sop_drop_qpn;   ///< be32: send opcode 31:24 (requests), queue pair number 23:0
    std::uint32_t counter_own;    ///< bytes 0-1: be16 wqe_counter; 2: signature; 3: op_own
};
static_assert(sizeof(Cqe64) == 64 && offsetof(Cqe64, imm_inval_pkey) == 36, "mlx5_cqe64");
static_assert(offsetof(Cqe64, byte_cnt) == 44 && offsetof(Cqe64, timestamp_high) == 48, "mlx5_cqe64");
static_assert(offsetof(Cqe64, timestamp_low) == 52 && offsetof(Cqe64, sop_drop_qpn) == 56, "mlx5_cqe64");
static_assert(offsetof(Cqe64, counter_own) == 60, "op_own is the last byte of the last word");
static_assert(offsetof(Cqe64, sop_drop_qpn) % 8 == 0,
              "sop_drop_qpn must be aligned to 8 bytes: it is loaded together with the last word");

// Fields of the words of a completion; arguments are the words as loaded, unconverted.
GN_HD
constexpr std::uint8_t op_own(std::uint32_t counter_own) {
    return static_cast<std::uint8_t>(counter_own >> 24);
}
GN_HD
constexpr std::uint8_t cqe_opcode(std::uint32_t counter_own) {
    return static_cast<std::uint8_t>(counter_own >> 28);
}
GN_HD
constexpr std::uint32_t cqe_owner(std::uint32_t counter_own) {
    return (counter_own >> 24) & 1u;
}
GN_HD
constexpr bool cqe_inline32(std::uint32_t counter_own) {
    return (op_own(counter_own) & kInlineScatter32) != 0;
}
GN_HD
constexpr bool cqe_is_error(std::uint32_t counter_own) {
    return cqe_opcode(counter_own) == kCqeRequestError || cqe_opcode(counter_own) == kCqeResponseError;
}
GN_HD
constexpr std::uint16_t cqe_wqe_counter(std::uint32_t counter_own) {
    return be16(static_cast<std::uint16_t>(counter_own & 0xFFFFu));
}
GN_HD
constexpr std::uint8_t cqe_syndrome(std::uint32_t timestamp_low) {
    return static_cast<std::uint8_t>(timestamp_low >> 24);
}
GN_HD
constexpr std::uint32_t cqe_qpn(std::uint32_t sop_drop_qpn) {
    return be32(sop_drop_qpn) & kQpNumberMask;
}
GN_HD
constexpr std::uint32_t make_counter_own(std::uint16_t wqe_counter, std::uint8_t op_own_byte) {
    return static_cast<std::uint32_t>(be16(wqe_counter)) | (static_cast<std::uint32_t>(op_own_byte) << 24);
}
/// Value of the last word of a completion that was never written.
inline constexpr std::uint32_t kInitialCounterOwn = make_counter_own(0, kInitialOpOwn);

// Segment builders. `segments` includes the control segment.
GN_HD
constexpr ControlSegment make_control(std::uint16_t index, std::uint8_t opcode, std::uint32_t qpn,
                                      std::uint8_t segments, std::uint32_t invalidate_rkey = 0) {
    return ControlSegment{be32((static_cast<std::uint32_t>(index) << 8) | opcode),
                          be32((qpn << 8) | segments), static_cast<std::uint32_t>(kCompletionUpdate) << 24,
                          be32(invalidate_rkey)};
}
GN_HD
constexpr DataSegment make_data(std::uint64_t address, std::uint32_t bytes, std::uint32_t lkey) {
    return DataSegment{be32(bytes), be32(lkey), be64(address)};
}
GN_HD
constexpr RemoteAddressSegment make_remote(std::uint64_t address, std::uint32_t rkey) {
    return RemoteAddressSegment{be64(address), be32(rkey), 0};
}

// Fields of a control segment.
GN_HD
constexpr std::uint8_t control_opcode(const ControlSegment& c) {
    return static_cast<std::uint8_t>(be32(c.opmod_idx_opcode));
}
GN_HD
constexpr std::uint16_t control_index(const ControlSegment& c) {
    return static_cast<std::uint16_t>(be32(c.opmod_idx_opcode) >> 8);
}
GN_HD
constexpr std::uint32_t control_qpn(const ControlSegment& c) {
    return be32(c.qpn_ds) >> 8;
}
GN_HD
constexpr std::uint32_t control_segments(const ControlSegment& c) {
    return be32(c.qpn_ds) & 0x3Fu;
}
GN_HD
constexpr std::uint8_t control_fm_ce_se(const ControlSegment& c) {
    return static_cast<std::uint8_t>(c.signature_fm_ce_se >> 24);
}
GN_HD
constexpr std::uint8_t control_signature(const ControlSegment& c) {
    return static_cast<std::uint8_t>(c.signature_fm_ce_se);
}

/// Value for the bell register: the first 8 bytes of the newest entry's control segment, as they lie in
/// memory.
GN_HD
constexpr std::uint64_t bell_value(const ControlSegment& c) {
    return static_cast<std::uint64_t>(c.opmod_idx_opcode) | (static_cast<std::uint64_t>(c.qpn_ds) << 32);
}
GN_HD
constexpr std::uint16_t bell_index(std::uint64_t bell) {
    return static_cast<std::uint16_t>(be32(static_cast<std::uint32_t>(bell)) >> 8);
}
GN_HD
constexpr std::uint32_t bell_qpn(std::uint64_t bell) {
    return be32(static_cast<std::uint32_t>(bell >> 32)) >> 8;
}

}  // namespace gnstor::rdma::mlx5
