// Every offset and size of our wire structures against libnvme's own headers, which other people wrote from
// the same specification.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdio>

#if GN_WITH_LIBNVME
#include <nvme/types.h>
#undef unix
#include <gnstor/nvme/command.hpp>
#include <gnstor/nvme/discovery.hpp>
#include <gnstor/nvme/fabrics.hpp>
#include <gnstor/nvme/features.hpp>
#include <gnstor/nvme/identify.hpp>
#include <gnstor/nvme/status.hpp>

namespace {

namespace n = gnstor::nvme;
using Libnvme_lbaf = struct nvme_lbaf;
using Libnvme_ns_id_desc = struct nvme_ns_id_desc;
using Libnvme_dsm_range = struct nvme_dsm_range;
int compared = 0;

class OracleCount : public ::testing::Environment {
  public:
    void TearDown() override {
        std::printf("libnvme oracle: %d fields, sizes and codes compared (floor 1250)\n", compared);
        std::printf("GN_COUNT nvme_oracle_comparisons=%llu\n", static_cast<unsigned long long>(compared));
        EXPECT_GE(compared, 1250);
    }
};
const auto* const kCount = ::testing::AddGlobalTestEnvironment(new OracleCount);

#define SAME_SIZE(ours, theirs)                  \
    do {                                         \
        ++compared;                              \
        EXPECT_EQ(sizeof(ours), sizeof(theirs)); \
    } while (false)
// A field: same place, same width.
#define SAME(ours, our_field, theirs, their_field)                                                    \
    do {                                                                                              \
        ++compared;                                                                                   \
        EXPECT_EQ(offsetof(ours, our_field), offsetof(theirs, their_field)) << #ours "::" #our_field; \
        EXPECT_EQ(sizeof(ours::our_field), sizeof(theirs::their_field)) << #ours "::" #our_field;     \
    } while (false)
#define SAME_NAME(ours, theirs, field) SAME(ours, field, theirs, field)
#define SAME_VALUE(ours, theirs)                                                                            \
    do {                                                                                                    \
        ++compared;                                                                                         \
        EXPECT_EQ(static_cast<unsigned long long>(ours), static_cast<unsigned long long>(theirs)) << #ours; \
    } while (false)

TEST(LibnvmeOracle, IdentifyControllerHasEveryFieldWhereLibnvmeHasIt) {
    using C = n::IdentifyController;
    using L = struct nvme_id_ctrl;
    SAME_SIZE(C, L);
    SAME_NAME(C, L, vid);
    SAME_NAME(C, L, ssvid);
    SAME_NAME(C, L, sn);
    SAME_NAME(C, L, mn);
    SAME_NAME(C, L, fr);
    SAME_NAME(C, L, rab);
    SAME_NAME(C, L, ieee);
    SAME_NAME(C, L, cmic);
    SAME_NAME(C, L, mdts);
    SAME_NAME(C, L, cntlid);
    SAME_NAME(C, L, ver);
    SAME_NAME(C, L, rtd3r);
    SAME_NAME(C, L, rtd3e);
    SAME_NAME(C, L, oaes);
    SAME_NAME(C, L, ctratt);
    SAME_NAME(C, L, rrls);
    SAME_NAME(C, L, cntrltype);
    SAME_NAME(C, L, fguid);
    SAME(C, crdt[0], L, crdt1);
    SAME(C, crdt[2], L, crdt3);
    SAME_NAME(C, L, oacs);
    SAME_NAME(C, L, acl);
    SAME_NAME(C, L, aerl);
    SAME_NAME(C, L, frmw);
    SAME_NAME(C, L, lpa);
    SAME_NAME(C, L, elpe);
    SAME_NAME(C, L, npss);
    SAME_NAME(C, L, avscc);
    SAME_NAME(C, L, apsta);
    SAME_NAME(C, L, wctemp);
    SAME_NAME(C, L, cctemp);
    SAME_NAME(C, L, kas);
    SAME_NAME(C, L, sqes);
    SAME_NAME(C, L, cqes);
    SAME_NAME(C, L, maxcmd);
    SAME_NAME(C, L, nn);
    SAME_NAME(C, L, oncs);
    SAME_NAME(C, L, fuses);
    SAME_NAME(C, L, fna);
    SAME_NAME(C, L, vwc);
    SAME_NAME(C, L, awun);
    SAME_NAME(C, L, awupf);
    SAME_NAME(C, L, icsvscc);
    SAME_NAME(C, L, nwpc);
    SAME_NAME(C, L, acwu);
    SAME_NAME(C, L, ocfs);
    SAME_NAME(C, L, sgls);
    SAME_NAME(C, L, mnan);
    SAME_NAME(C, L, subnqn);
    SAME_NAME(C, L, ioccsz);
    SAME_NAME(C, L, iorcsz);
    SAME_NAME(C, L, icdoff);
    SAME_NAME(C, L, fcatt);
    SAME_NAME(C, L, msdbd);
    SAME_NAME(C, L, ofcs);
    SAME_NAME(C, L, dctype);
    SAME_NAME(C, L, psd);
    SAME(C, vendor, L, vs);
}

TEST(LibnvmeOracle, IdentifyForCommandSetsHasEveryFieldWhereLibnvmeHasIt) {
    using C = n::IdentifyControllerNvm;
    using L = struct nvme_id_ctrl_nvm;
    SAME_SIZE(C, L);
    SAME_NAME(C, L, vsl);
    SAME_NAME(C, L, wzsl);
    SAME_NAME(C, L, wusl);
    SAME_NAME(C, L, dmrl);
    SAME_NAME(C, L, dmrsl);
    SAME_NAME(C, L, dmsl);
    using Any = n::IdentifyNamespaceIndependent;
    using LAny = struct nvme_id_independent_id_ns;
    SAME_SIZE(Any, LAny);
    SAME_NAME(Any, LAny, nsfeat);
    SAME_NAME(Any, LAny, nmic);
    SAME_NAME(Any, LAny, rescap);
    SAME_NAME(Any, LAny, fpi);
    SAME_NAME(Any, LAny, anagrpid);
    SAME_NAME(Any, LAny, nsattr);
    SAME_NAME(Any, LAny, nvmsetid);
    SAME_NAME(Any, LAny, endgid);
    SAME_NAME(Any, LAny, nstat);
}

TEST(LibnvmeOracle, TheDiscoveryLogHasEveryFieldWhereLibnvmeHasIt) {
    using H = n::DiscoveryLogHeader;
    using LH = struct nvmf_discovery_log;
    SAME_SIZE(H, LH);
    SAME(H, generation, LH, genctr);
    SAME(H, records, LH, numrec);
    SAME(H, record_format, LH, recfmt);
    using C = n::DiscoveryEntry;
    using L = struct nvmf_disc_log_entry;
    SAME_SIZE(C, L);
    SAME(C, transport, L, trtype);
    SAME(C, family, L, adrfam);
    SAME(C, subtype, L, subtype);
    SAME(C, requirements, L, treq);
    SAME(C, port_id, L, portid);
    SAME(C, controller_id, L, cntlid);
    SAME(C, admin_entries_max, L, asqsz);
    SAME(C, flags, L, eflags);
    SAME(C, service, L, trsvcid);
    SAME(C, subsystem_nqn, L, subnqn);
    SAME(C, address, L, traddr);
    SAME(C, rdma, L, tsas);
    EXPECT_EQ(n::kTreqSqFlowOptional, NVMF_TREQ_DISABLE_SQFLOW);
    EXPECT_EQ(n::kRdmaProviderRoceV2, NVMF_RDMA_PRTYPE_ROCEV2);
    EXPECT_EQ(n::kRdmaReliableConnected, NVMF_RDMA_QPTYPE_CONNECTED);
    EXPECT_EQ(n::kRdmaCm, NVMF_RDMA_CMS_RDMA_CM);
    EXPECT_EQ(n::kLogPageDiscovery, NVME_LOG_LID_DISCOVER);
}

TEST(LibnvmeOracle, IdentifyNamespaceHasEveryFieldWhereLibnvmeHasIt) {
    using C = n::IdentifyNamespace;
    using L = struct nvme_id_ns;
    SAME_SIZE(C, L);
    SAME_NAME(C, L, nsze);
    SAME_NAME(C, L, ncap);
    SAME_NAME(C, L, nuse);
    SAME_NAME(C, L, nsfeat);
    SAME_NAME(C, L, nlbaf);
    SAME_NAME(C, L, flbas);
    SAME_NAME(C, L, mc);
    SAME_NAME(C, L, dpc);
    SAME_NAME(C, L, dps);
    SAME_NAME(C, L, nmic);
    SAME_NAME(C, L, rescap);
    SAME_NAME(C, L, fpi);
    SAME_NAME(C, L, dlfeat);
    SAME_NAME(C, L, nawun);
    SAME_NAME(C, L, nawupf);
    SAME_NAME(C, L, nacwu);
    SAME_NAME(C, L, nabsn);
    SAME_NAME(C, L, nabo);
    SAME_NAME(C, L, nabspf);
    SAME_NAME(C, L, noiob);
    SAME_NAME(C, L, nvmcap);
    SAME_NAME(C, L, anagrpid);
    SAME_NAME(C, L, nsattr);
    SAME_NAME(C, L, nvmsetid);
    SAME_NAME(C, L, endgid);
    SAME_NAME(C, L, nguid);
    SAME_NAME(C, L, eui64);
    SAME_NAME(C, L, lbaf);
    SAME_SIZE(n::LbaFormat, Libnvme_lbaf);
    SAME_NAME(n::LbaFormat, Libnvme_lbaf, ms);
    SAME_NAME(n::LbaFormat, Libnvme_lbaf, ds);
    SAME_NAME(n::LbaFormat, Libnvme_lbaf, rp);
    SAME_SIZE(n::NamespaceDescriptor, Libnvme_ns_id_desc);
    SAME_VALUE(n::kDescriptorEui64, NVME_NIDT_EUI64);
    SAME_VALUE(n::kDescriptorNguid, NVME_NIDT_NGUID);
    SAME_VALUE(n::kDescriptorUuid, NVME_NIDT_UUID);
}

TEST(LibnvmeOracle, LogPagesHaveEveryFieldWhereLibnvmeHasIt) {
    using E = n::ErrorLogEntry;
    using LE = struct nvme_error_log_page;
    SAME_SIZE(E, LE);
    SAME_NAME(E, LE, error_count);
    SAME(E, sq_id, LE, sqid);
    SAME(E, command_id, LE, cmdid);
    SAME(E, status, LE, status_field);
    SAME(E, parameter_location, LE, parm_error_location);
    SAME_NAME(E, LE, lba);
    SAME(E, namespace_id, LE, nsid);
    SAME(E, vendor, LE, vs);
    SAME(E, transport_type, LE, trtype);
    SAME(E, command_specific, LE, cs);
    using H = n::HealthLog;
    using LH = struct nvme_smart_log;
    SAME_SIZE(H, LH);
    SAME_NAME(H, LH, critical_warning);
    SAME_NAME(H, LH, temperature);
    SAME(H, available_spare, LH, avail_spare);
    SAME(H, spare_threshold, LH, spare_thresh);
    SAME(H, percentage_used, LH, percent_used);
    SAME_NAME(H, LH, data_units_read);
    SAME_NAME(H, LH, data_units_written);
    SAME_NAME(H, LH, host_reads);
    SAME_NAME(H, LH, host_writes);
    SAME(H, busy_minutes, LH, ctrl_busy_time);
    SAME_NAME(H, LH, power_cycles);
    SAME_NAME(H, LH, power_on_hours);
    SAME_NAME(H, LH, unsafe_shutdowns);
    SAME_NAME(H, LH, media_errors);
    SAME(H, error_entries, LH, num_err_log_entries);
    using F = n::FirmwareSlotLog;
    using LF = struct nvme_firmware_slot;
    SAME_SIZE(F, LF);
    SAME_NAME(F, LF, afi);
    SAME(F, revision, LF, frs);
    using S = n::CommandsSupportedLog;
    using LS = struct nvme_cmd_effects_log;
    SAME_SIZE(S, LS);
    SAME(S, admin, LS, acs);
    SAME(S, io, LS, iocs);
    SAME_SIZE(n::DsmRange, Libnvme_dsm_range);
    SAME(n::DsmRange, attributes, Libnvme_dsm_range, cattr);
    SAME(n::DsmRange, blocks, Libnvme_dsm_range, nlb);
    SAME(n::DsmRange, start, Libnvme_dsm_range, slba);
}

TEST(LibnvmeOracle, ConnectDataHasEveryFieldWhereLibnvmeHasIt) {
    using C = n::ConnectData;
    using L = struct nvmf_connect_data;
    SAME_SIZE(C, L);
    SAME(C, host_id, L, hostid);
    SAME(C, controller_id, L, cntlid);
    SAME(C, subsystem_nqn, L, subsysnqn);
    SAME(C, host_nqn, L, hostnqn);
}

TEST(LibnvmeOracle, OpcodesIdentifiersAndStatusCodesAreLibnvmes) {
    SAME_VALUE(n::IoOpcode::kFlush, nvme_cmd_flush);
    SAME_VALUE(n::IoOpcode::kWrite, nvme_cmd_write);
    SAME_VALUE(n::IoOpcode::kRead, nvme_cmd_read);
    SAME_VALUE(n::IoOpcode::kWriteZeroes, nvme_cmd_write_zeroes);
    SAME_VALUE(n::IoOpcode::kDatasetManagement, nvme_cmd_dsm);
    SAME_VALUE(n::AdminOpcode::kGetLogPage, nvme_admin_get_log_page);
    SAME_VALUE(n::AdminOpcode::kIdentify, nvme_admin_identify);
    SAME_VALUE(n::AdminOpcode::kAbort, nvme_admin_abort_cmd);
    SAME_VALUE(n::AdminOpcode::kSetFeatures, nvme_admin_set_features);
    SAME_VALUE(n::AdminOpcode::kGetFeatures, nvme_admin_get_features);
    SAME_VALUE(n::AdminOpcode::kAsyncEventRequest, nvme_admin_async_event);
    SAME_VALUE(n::AdminOpcode::kKeepAlive, nvme_admin_keep_alive);
    SAME_VALUE(n::AdminOpcode::kFabrics, nvme_admin_fabrics);
    SAME_VALUE(n::FabricsType::kPropertySet, nvme_fabrics_type_property_set);
    SAME_VALUE(n::FabricsType::kConnect, nvme_fabrics_type_connect);
    SAME_VALUE(n::FabricsType::kPropertyGet, nvme_fabrics_type_property_get);
    SAME_VALUE(n::FabricsType::kAuthenticationSend, nvme_fabrics_type_auth_send);
    SAME_VALUE(n::FabricsType::kAuthenticationReceive, nvme_fabrics_type_auth_receive);
    SAME_VALUE(n::FabricsType::kDisconnect, nvme_fabrics_type_disconnect);
    SAME_VALUE(n::Property::kCap, NVME_REG_CAP);
    SAME_VALUE(n::Property::kVs, NVME_REG_VS);
    SAME_VALUE(n::Property::kCc, NVME_REG_CC);
    SAME_VALUE(n::Property::kCsts, NVME_REG_CSTS);
    SAME_VALUE(n::Feature::kVolatileWriteCache, NVME_FEAT_FID_VOLATILE_WC);
    SAME_VALUE(n::Feature::kNumberOfQueues, NVME_FEAT_FID_NUM_QUEUES);
    SAME_VALUE(n::Feature::kAsyncEventConfiguration, NVME_FEAT_FID_ASYNC_EVENT);
    SAME_VALUE(n::Feature::kKeepAliveTimer, NVME_FEAT_FID_KATO);
    SAME_VALUE(n::LogPage::kError, NVME_LOG_LID_ERROR);
    SAME_VALUE(n::LogPage::kHealth, NVME_LOG_LID_SMART);
    SAME_VALUE(n::LogPage::kFirmwareSlot, NVME_LOG_LID_FW_SLOT);
    SAME_VALUE(n::LogPage::kCommandsSupported, NVME_LOG_LID_CMD_EFFECTS);
    SAME_VALUE(n::Status::kInvalidOpcode, NVME_SC_INVALID_OPCODE);
    SAME_VALUE(n::Status::kInvalidField, NVME_SC_INVALID_FIELD);
    SAME_VALUE(n::Status::kCommandIdConflict, NVME_SC_CMDID_CONFLICT);
    SAME_VALUE(n::Status::kDataTransferError, NVME_SC_DATA_XFER_ERROR);
    SAME_VALUE(n::Status::kInternalError, NVME_SC_INTERNAL);
    SAME_VALUE(n::Status::kAborted, NVME_SC_ABORT_REQ);
    SAME_VALUE(n::Status::kInvalidNamespace, NVME_SC_INVALID_NS);
    SAME_VALUE(n::Status::kCommandSequenceError, NVME_SC_CMD_SEQ_ERROR);
    SAME_VALUE(n::Status::kInvalidSglCount, NVME_SC_SGL_INVALID_COUNT);
    SAME_VALUE(n::Status::kDataSglLengthInvalid, NVME_SC_SGL_INVALID_DATA);
    SAME_VALUE(n::Status::kSglTypeInvalid, NVME_SC_SGL_INVALID_TYPE);
    SAME_VALUE(n::Status::kSglOffsetInvalid, NVME_SC_SGL_INVALID_OFFSET);
    SAME_VALUE(n::Status::kHostIdInconsistent, NVME_SC_HOSTID_FORMAT);
    SAME_VALUE(n::Status::kKeepAliveExpired, NVME_SC_KAT_EXPIRED);
    SAME_VALUE(n::Status::kKeepAliveInvalid, NVME_SC_KAT_INVALID);
    SAME_VALUE(n::Status::kNamespaceWriteProtected, NVME_SC_NS_WRITE_PROTECTED);
    SAME_VALUE(n::Status::kTransientTransportError, NVME_SC_TRAN_TPORT_ERROR);
    SAME_VALUE(n::Status::kLbaOutOfRange, NVME_SC_LBA_RANGE);
    SAME_VALUE(n::Status::kCapacityExceeded, NVME_SC_CAP_EXCEEDED);
    const auto specific = [](int code) { return 0x100 | code; };
    SAME_VALUE(n::Status::kInvalidQueueId, specific(NVME_SC_QID_INVALID));
    SAME_VALUE(n::Status::kInvalidQueueSize, specific(NVME_SC_QUEUE_SIZE));
    SAME_VALUE(n::Status::kAsyncEventLimitExceeded, specific(NVME_SC_ASYNC_LIMIT));
    SAME_VALUE(n::Status::kInvalidLogPage, specific(NVME_SC_INVALID_LOG_PAGE));
    SAME_VALUE(n::Status::kFeatureNotSaveable, specific(NVME_SC_FEATURE_NOT_SAVEABLE));
    SAME_VALUE(n::Status::kFeatureNotChangeable, specific(NVME_SC_FEATURE_NOT_CHANGEABLE));
    SAME_VALUE(n::Status::kConnectIncompatibleFormat, specific(NVME_SC_CONNECT_FORMAT));
    SAME_VALUE(n::Status::kConnectControllerBusy, specific(NVME_SC_CONNECT_CTRL_BUSY));
    SAME_VALUE(n::Status::kConnectInvalidParameters, specific(NVME_SC_CONNECT_INVALID_PARAM));
    SAME_VALUE(n::Status::kConnectRestartDiscovery, specific(NVME_SC_CONNECT_RESTART_DISC));
    SAME_VALUE(n::Status::kConnectInvalidHost, specific(NVME_SC_CONNECT_INVALID_HOST));
    SAME_VALUE(n::Status::kWriteFault, 0x200 | NVME_SC_WRITE_FAULT);
    SAME_VALUE(n::Status::kUnrecoveredReadError, 0x200 | NVME_SC_READ_ERROR);
    SAME_VALUE(n::Status::kAccessDenied, 0x200 | NVME_SC_ACCESS_DENIED);
    SAME_VALUE(n::Status::kHostPathError, 0x300 | NVME_SC_HOST_PATH_ERROR);
}

TEST(LibnvmeOracle, PropertiesDecodeAsLibnvmesMacrosDo) {
    for (unsigned i = 0; i < 64; ++i) {
        const std::uint64_t v = 0x9E3779B97F4A7C15ull * (i + 1);
        const n::Capabilities cap = n::Capabilities::decode(v);
        SAME_VALUE(cap.max_queue_entries, NVME_CAP_MQES(v));
        SAME_VALUE(cap.contiguous_queues, NVME_CAP_CQR(v));
        SAME_VALUE(cap.weighted_round_robin, NVME_CAP_AMS(v) & NVME_CAP_AMS_WRR);
        SAME_VALUE(cap.timeout_500ms, NVME_CAP_TO(v));
        SAME_VALUE(cap.nvm_command_set, NVME_CAP_CSS(v) & NVME_CAP_CSS_NVM);
        SAME_VALUE(cap.page_size_min, NVME_CAP_MPSMIN(v));
        SAME_VALUE(cap.page_size_max, NVME_CAP_MPSMAX(v));
        const auto w = static_cast<std::uint32_t>(v >> 32);
        const n::Configuration cc = n::Configuration::decode(w);
        SAME_VALUE(cc.enable, NVME_CC_EN(w));
        SAME_VALUE(cc.command_set, NVME_CC_CSS(w));
        SAME_VALUE(cc.page_size, NVME_CC_MPS(w));
        SAME_VALUE(cc.arbitration, NVME_CC_AMS(w));
        SAME_VALUE(cc.shutdown, NVME_CC_SHN(w));
        SAME_VALUE(cc.sq_entry_log2, NVME_CC_IOSQES(w));
        SAME_VALUE(cc.cq_entry_log2, NVME_CC_IOCQES(w));
        const n::ControllerStatus csts = n::ControllerStatus::decode(w);
        SAME_VALUE(csts.ready, NVME_CSTS_RDY(w));
        SAME_VALUE(csts.fatal, NVME_CSTS_CFS(w));
        SAME_VALUE(csts.shutdown, NVME_CSTS_SHST(w));
    }
}

}  // namespace

#else

TEST(LibnvmeOracle, IsSkippedWithoutLibnvmesHeaders) {
    std::printf("libnvme oracle: SKIPPED, <nvme/types.h> was not found (Debian and Ubuntu: libnvme-dev)\n");
    GTEST_SKIP();
}

#endif
