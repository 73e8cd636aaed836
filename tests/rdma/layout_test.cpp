// layout_test.cpp: our structures against infiniband/mlx5dv.h, the independent oracle: offsets, entries that
// the device poster fills for random inputs, completions that the NIC writes.
#include "rdma/nic/completion_queue.hpp"
#include "rdma/rig.hpp"

#include <infiniband/mlx5dv.h>

#include <rapidcheck/gtest.h>

namespace gnstor::rdma::test {
namespace {

static_assert(sizeof(mlx5::ControlSegment) == sizeof(mlx5_wqe_ctrl_seg));
static_assert(offsetof(mlx5::ControlSegment, qpn_ds) == offsetof(mlx5_wqe_ctrl_seg, qpn_ds));
static_assert(offsetof(mlx5::ControlSegment, signature_fm_ce_se) == offsetof(mlx5_wqe_ctrl_seg, signature));
static_assert(offsetof(mlx5::ControlSegment, imm) == offsetof(mlx5_wqe_ctrl_seg, imm));
static_assert(sizeof(mlx5::DataSegment) == sizeof(mlx5_wqe_data_seg));
static_assert(offsetof(mlx5::DataSegment, address) == offsetof(mlx5_wqe_data_seg, addr));
static_assert(sizeof(mlx5::RemoteAddressSegment) == sizeof(mlx5_wqe_raddr_seg));
static_assert(offsetof(mlx5::RemoteAddressSegment, rkey) == offsetof(mlx5_wqe_raddr_seg, rkey));
static_assert(sizeof(mlx5::Cqe64) == sizeof(mlx5_cqe64));
static_assert(offsetof(mlx5::Cqe64, imm_inval_pkey) == offsetof(mlx5_cqe64, imm_inval_pkey));
static_assert(offsetof(mlx5::Cqe64, byte_cnt) == offsetof(mlx5_cqe64, byte_cnt));
static_assert(offsetof(mlx5::Cqe64, sop_drop_qpn) == offsetof(mlx5_cqe64, sop_drop_qpn));
static_assert(offsetof(mlx5::Cqe64, counter_own) == offsetof(mlx5_cqe64, wqe_counter));
static_assert(offsetof(mlx5_cqe64, op_own) == 63 && offsetof(mlx5_err_cqe, syndrome) == 55);
static_assert(mlx5::kSendEntryBytes == MLX5_SEND_WQE_BB &&
              mlx5::kCompletionUpdate == MLX5_WQE_CTRL_CQ_UPDATE);
static_assert(+mlx5::kSend == MLX5_OPCODE_SEND && +mlx5::kSendInvalidate == MLX5_OPCODE_SEND_INVAL);
static_assert(+mlx5::kRdmaWrite == MLX5_OPCODE_RDMA_WRITE && +mlx5::kRdmaRead == MLX5_OPCODE_RDMA_READ);
static_assert(+mlx5::kNop == MLX5_OPCODE_NOP && mlx5::kInlineScatter32 == MLX5_INLINE_SCATTER_32);
static_assert(+mlx5::kCqeRequest == MLX5_CQE_REQ && +mlx5::kCqeSend == MLX5_CQE_RESP_SEND);
static_assert(+mlx5::kCqeSendInvalidate == MLX5_CQE_RESP_SEND_INV && +mlx5::kCqeInvalid == MLX5_CQE_INVALID);
static_assert(+mlx5::kCqeRequestError == MLX5_CQE_REQ_ERR && +mlx5::kCqeResponseError == MLX5_CQE_RESP_ERR);
static_assert(+mlx5::kLocalLengthError == MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR);
static_assert(+mlx5::kLocalQpOperationError == MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
static_assert(+mlx5::kLocalProtectionError == MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
static_assert(+mlx5::kFlushed == MLX5_CQE_SYNDROME_WR_FLUSH_ERR);
static_assert(+mlx5::kRemoteInvalidRequest == MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR);
static_assert(+mlx5::kRemoteAccessError == MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
static_assert(+mlx5::kRemoteOperationError == MLX5_CQE_SYNDROME_REMOTE_OP_ERR);
static_assert(+mlx5::kTransportRetryExceeded == MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
static_assert(+mlx5::kRnrRetryExceeded == MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR);

/// A send queue without a NIC behind it.
struct BareQueue {
    alignas(64) mlx5::SendEntry ring[8];
    mlx5::Cqe64 completion;
    std::uint32_t record[2] = {};
    std::uint64_t bell = 0;
    SendQueueState state{};
    std::uint32_t ready[8] = {};
    SendQueueRef ref(std::uint32_t qpn) {
        completion.counter_own = mlx5::kInitialCounterOwn;
        return {ring, record, &bell, &completion, &state, ready, 3, qpn};
    }
};

RC_GTEST_PROP(Layout, EveryEntryOfThePosterEqualsOneThatMlx5dvBuilds, ()) {
    BareQueue bare;
    std::memset(bare.ring, 0xA5, sizeof bare.ring);
    const auto qpn = *rc::gen::inRange<std::uint32_t>(0, 1u << 24);
    const SendQueueRef queue = bare.ref(qpn);
    const auto opcode = *rc::gen::element<std::uint8_t>(mlx5::kSend, mlx5::kSendInvalidate, mlx5::kRdmaWrite,
                                                        mlx5::kRdmaRead, mlx5::kNop);
    const bool remote = opcode == mlx5::kRdmaWrite || opcode == mlx5::kRdmaRead;
    const auto parts = opcode == mlx5::kNop ? 0 : *rc::gen::inRange(1, remote ? 3 : 4);
    const auto index = *rc::gen::arbitrary<std::uint64_t>() >> 8;
    std::uint64_t address[3];
    std::uint32_t bytes[3], lkey[3];
    mlx5::DataSegment data[3];
    for (int i = 0; i < 3; ++i) {
        address[i] = *rc::gen::arbitrary<std::uint64_t>();
        bytes[i] = *rc::gen::arbitrary<std::uint32_t>();
        lkey[i] = *rc::gen::arbitrary<std::uint32_t>();
        data[i] = mlx5::make_data(address[i], bytes[i], lkey[i]);
    }
    const auto far = *rc::gen::arbitrary<std::uint64_t>();
    const auto rkey = *rc::gen::arbitrary<std::uint32_t>();
    SendTicket ticket{index, SendOutcome::kGranted, 0};
    const auto at = mlx5::make_remote(far, rkey);
    if (opcode == mlx5::kNop) queue.fill_nop(ticket);
    if (opcode == mlx5::kSend && parts == 1) queue.fill_send(ticket, data[0]);
    if (opcode == mlx5::kSend && parts == 2) queue.fill_send(ticket, data[0], data[1]);
    if (opcode == mlx5::kSend && parts == 3) queue.fill_send(ticket, data[0], data[1], data[2]);
    if (opcode == mlx5::kSendInvalidate && parts == 1) queue.fill_send_invalidate(ticket, rkey, data[0]);
    if (opcode == mlx5::kSendInvalidate && parts == 2)
        queue.fill_send_invalidate(ticket, rkey, data[0], data[1]);
    if (opcode == mlx5::kSendInvalidate && parts == 3)
        queue.fill_send_invalidate(ticket, rkey, data[0], data[1], data[2]);
    if (opcode == mlx5::kRdmaWrite && parts == 1) queue.fill_write(ticket, at, data[0]);
    if (opcode == mlx5::kRdmaWrite && parts == 2) queue.fill_write(ticket, at, data[0], data[1]);
    if (opcode == mlx5::kRdmaRead && parts == 1) queue.fill_read(ticket, at, data[0]);
    if (opcode == mlx5::kRdmaRead && parts == 2) queue.fill_read(ticket, at, data[0], data[1]);

    alignas(64) unsigned char expected[64] = {};
    const int segments = 1 + (remote ? 1 : 0) + parts;
    mlx5dv_set_ctrl_seg(reinterpret_cast<mlx5_wqe_ctrl_seg*>(expected), static_cast<std::uint16_t>(index),
                        opcode, 0, qpn, MLX5_WQE_CTRL_CQ_UPDATE, static_cast<std::uint8_t>(segments), 0,
                        htobe32(opcode == mlx5::kSendInvalidate ? rkey : 0));
    unsigned char* next = expected + 16;
    if (remote) {
        auto* const raddr = reinterpret_cast<mlx5_wqe_raddr_seg*>(next);
        raddr->raddr = htobe64(far);
        raddr->rkey = htobe32(rkey);
        next += 16;
    }
    for (int i = 0; i < parts; ++i, next += 16)
        mlx5dv_set_data_seg(reinterpret_cast<mlx5_wqe_data_seg*>(next), bytes[i], lkey[i], address[i]);
    RC_ASSERT(std::memcmp(&bare.ring[index % 8], expected, 64) == 0);
}

RC_GTEST_PROP(Layout, EveryCompletionOfTheNicReadsCorrectlyWithMlx5dv, ()) {
    mlx5::Cqe64 ring[4];
    std::uint32_t record = 0;
    CompletionQueue cq({ring, 4, &record, false});
    for (const mlx5::Cqe64& cqe : ring) {
        mlx5_cqe64 theirs;
        std::memcpy(&theirs, &cqe, 64);
        RC_ASSERT(theirs.op_own == 0xF1);
    }
    const auto turns = *rc::gen::inRange<std::uint32_t>(1, 40);
    for (std::uint32_t turn = 0; turn < turns; ++turn) {
        CompletionFields fields;
        fields.qpn = *rc::gen::inRange<std::uint32_t>(0, 1u << 24);
        fields.wqe_counter = *rc::gen::arbitrary<std::uint16_t>();
        fields.opcode = *rc::gen::element<std::uint8_t>(0, 2, 4, 13, 14);
        const bool error = fields.opcode >= 13;
        fields.syndrome =
            error ? *rc::gen::element<std::uint8_t>(1, 2, 4, 5, 0x12, 0x13, 0x14, 0x16) : std::uint8_t{0};
        fields.bytes = *rc::gen::inRange<std::uint32_t>(0, 33);
        fields.invalidated_rkey = *rc::gen::arbitrary<std::uint32_t>();
        std::byte data[32];
        for (std::byte& b : data) b = static_cast<std::byte>(*rc::gen::arbitrary<std::uint8_t>());
        const bool inlined = !error && *rc::gen::arbitrary<bool>();
        if (inlined) fields.inline_data = data;
        RC_ASSERT(cq.write(fields));
        mlx5_cqe64 theirs;
        std::memcpy(&theirs, &ring[turn % 4], 64);
        RC_ASSERT(mlx5dv_get_cqe_opcode(&theirs) == fields.opcode);
        RC_ASSERT(mlx5dv_get_cqe_owner(&theirs) == ((turn / 4) & 1));
        RC_ASSERT(mlx5dv_get_cqe_se(&theirs) == 0);
        RC_ASSERT(mlx5dv_get_cqe_format(&theirs) == (inlined ? 1 : 0));
        RC_ASSERT(be16toh(theirs.wqe_counter) == fields.wqe_counter);
        RC_ASSERT((be32toh(theirs.sop_drop_qpn) & 0xFFFFFF) == fields.qpn);
        RC_ASSERT(be32toh(theirs.byte_cnt) == fields.bytes);
        RC_ASSERT(be32toh(theirs.imm_inval_pkey) == fields.invalidated_rkey);
        mlx5_err_cqe bad;
        std::memcpy(&bad, &theirs, 64);
        RC_ASSERT(bad.syndrome == fields.syndrome);
        if (inlined) RC_ASSERT(std::memcmp(&theirs, data, fields.bytes) == 0);
        record = be32((turn + 1) & 0xFFFFFF);
    }
    // And a fifth without consuming any overruns.
    record = be32(turns);
    for (int i = 0; i < 4; ++i) RC_ASSERT(cq.write({}));
    RC_ASSERT(!cq.write({}));
    RC_ASSERT(cq.overrun());
}

}  // namespace
}  // namespace gnstor::rdma::test
