// stock_session_test.cpp: all that Linux 6.1 and 6.12 send to a new controller, in their order, and all that
// they check in the answers (drivers/nvme/host: core.c, fabrics.c, rdma.c); then what nvme-cli asks for, what
// a host without a GNStor name may do with a drive's namespace, and the way out.
#include "loop_rig.hpp"
#include "stock_host.hpp"
#include "support/count.hpp"

#include <algorithm>

namespace gnstor::nvmf {
namespace {

using nvme::AdminOpcode;
using nvme::IoOpcode;
using nvme::Status;

class StockSession : public ::testing::TestWithParam<std::uint32_t> {
  protected:
    StockSession() {
        TargetOptions target;
        target.ports = {{"4420", ""}};
        rig_ = std::make_unique<LoopRig>(RigOptions{.late_windows = GetParam(), .target = target});
        rig_->make_volume();
    }
    StockOptions options(std::string host_nqn = kStockHostNqn) const {
        StockOptions o;
        o.subsystem_nqn = rig_->target().subsystem_nqn(0);
        o.host_nqn = std::move(host_nqn);
        return o;
    }
    /// nvme_rdma_configure_admin_queue and nvme_init_ctrl_finish.
    void connect(StockHost& host) {
        const auto connected = host.connect_admin();
        ASSERT_EQ(connected.result(), Status::kSuccess);
        host.enable();
        ASSERT_EQ(host.identify(1, 0, writable(id_)).result(), Status::kSuccess);
        host.learn(id_);
    }
    std::unique_ptr<LoopRig> rig_;
    nvme::IdentifyController id_{};
};
INSTANTIATE_TEST_SUITE_P(Windows, StockSession, ::testing::Values(0u, 12u),
                         [](const auto& p) { return p.param == 0 ? "AtOnce" : "Late"; });

TEST_P(StockSession, IdentifyControllerPassesEveryCheckOfTheKernel) {
    StockHost host(rig_->host_nic(), options());
    ASSERT_NO_FATAL_FAILURE(connect(host));
    const auto cap = nvme::Capabilities::decode(host.cap());
    EXPECT_GE(cap.max_queue_entries, 127) << "or: queue_size > ctrl sqsize, clamping down";
    EXPECT_TRUE(cap.contiguous_queues);
    EXPECT_GT(cap.timeout_500ms, 0) << "how long the kernel waits for CSTS.RDY";
    EXPECT_EQ((host.cap() >> 37) & 0xFF, 1u) << "CSS: the NVM command set alone, so CC.CSS is 0";
    EXPECT_EQ((host.cap() >> 59) & 3, 0u) << "CRMS: else CRTO is read";
    EXPECT_EQ(host.vs(), 0x20000u);
    struct Check {
        const char* what;
        bool holds;
    };
    const Check checks[] = {
        {"Mismatching cntlid", id_.cntlid == host.controller_id()},
        {"keep-alive support is mandatory for fabrics", id_.kas != 0},
        {"I/O queue command capsule supported size < 4", id_.ioccsz >= 4},
        {"I/O queue response capsule supported size < 1", id_.iorcsz >= 1},
        {"maximum outstanding commands is 0", id_.maxcmd != 0},
        {"sqsize > ctrl maxcmd, clamping down", id_.maxcmd >= host.entries()},
        {"icdoff is not supported", id_.icdoff == 0},
        {"Mandatory keyed sgls are not supported", (id_.sgls & (1u << 2)) != 0},
        {"in-capsule data", (id_.sgls & (1u << 20)) != 0 && host.inline_bytes() == 4096},
        {"an I/O controller", id_.cntrltype == 1},
        {"missing or invalid SUBNQN field", std::string(id_.subnqn) == rig_->target().subsystem_nqn(0)},
        {"Duplicate cntlid with other controllers", (id_.cmic & 2) != 0},
        {"no ANA", (id_.cmic & 8) == 0 && id_.oaes == 0},
        {"mdts: 1 MiB", id_.mdts == 8},
        {"queue entry sizes", id_.sqes == 0x66 && id_.cqes == 0x44},
        {"namespaces", id_.nn == 1 && id_.mnan <= id_.nn},
        {"DSM and Write Zeroes; no Compare, reservations or Timestamp", id_.oncs == 0x0C},
        {"no Security, Format, namespace management or directives", id_.oacs == 0},
        {"no APST", id_.apsta == 0 && id_.npss == 0},
        {"no retry delays, so no Host Behavior Support", id_.crdt[0] == 0},
        {"one block is atomic", id_.awupf == 0},
        {"nothing volatile in memory", id_.vwc == 0},
        {"effects and extended log pages", (id_.lpa & 6) == 6},
        {"128-bit host id; no traffic based keep-alive, no extended formats", id_.ctratt == 1},
        {"fused commands: none", id_.fuses == 0},
    };
    for (const Check& check : checks) EXPECT_TRUE(check.holds) << check.what;
    for (const std::string_view field :
         {std::string_view(id_.sn, 20), std::string_view(id_.mn, 40), std::string_view(id_.fr, 8)}) {
        EXPECT_NE(field.find_first_not_of(' '), std::string_view::npos);
        EXPECT_EQ(field.find('\0'), std::string_view::npos) << "padded with blanks";
    }
    test::count("nvmf_stock_checks", std::size(checks));
}

TEST_P(StockSession, TheNamespaceIsScannedAsBothKernelsDo) {
    StockHost host(rig_->host_nic(), options());
    ASSERT_NO_FATAL_FAILURE(connect(host));
    nvme::CommandsSupportedLog effects{};
    ASSERT_EQ(host.get_log(0x05, 0, writable(effects)).result(), Status::kSuccess);
    for (const auto op : {0x00, 0x01, 0x02, 0x08, 0x09}) EXPECT_NE(effects.io[op] & 1, 0u) << op;
    for (const auto op : {0xC1, 0xC5, 0xC8, 0xCE, 0xD1, 0xD4, 0xDC, 0x06, 0x0C})
        EXPECT_NE(effects.admin[op] & 1, 0u) << op;
    for (const auto op : {0xD8, 0xDA})
        EXPECT_EQ(effects.admin[op], 0u) << op << ": CLEAN and DELTA are answered with Invalid Opcode";
    for (const auto each : effects.io) EXPECT_EQ(each & ~0x3u, 0u) << "no 'unusual effects'";
    nvme::IdentifyControllerNvm limits{};
    ASSERT_EQ(host.identify(0x06, 0, writable(limits)).result(), Status::kSuccess);
    nvme::HealthLog health{};
    ASSERT_EQ(host.get_log(0x02, 0xFFFFFFFF, writable(health)).result(), Status::kSuccess) << "hwmon";
    EXPECT_EQ(health.critical_warning, 0);
    EXPECT_EQ(host.feature(false, nvme::Feature::kTemperatureThreshold, 0).dw0, 343u);
    const auto granted = host.feature(true, nvme::Feature::kNumberOfQueues, 0x00010001);
    EXPECT_EQ(nvme::QueueCount::decode(granted.dw0), (nvme::QueueCount{2, 2}));

    nvme::NamespaceList list{};
    ASSERT_EQ(host.identify(0x02, 0, writable(list)).result(), Status::kSuccess);
    ASSERT_EQ(list.nsid[0], 1u);
    EXPECT_EQ(list.nsid[1], 0u);
    std::vector<std::byte> names(4096);
    ASSERT_EQ(host.identify(0x03, 1, names).result(), Status::kSuccess);
    std::uint32_t seen = 0;
    std::array<std::uint8_t, 16> uuid{}, nguid{};
    std::array<std::uint8_t, 8> eui64{};
    for (std::size_t at = 0; at + 4 <= names.size() && names[at + 1] != std::byte{0};
         at += 4 + static_cast<std::size_t>(names[at + 1])) {
        const auto type = static_cast<std::uint8_t>(names[at]);
        const auto copy = [&](auto& to) {
            ASSERT_EQ(static_cast<std::size_t>(names[at + 1]), to.size()) << "or: ctrl returned bogus length";
            std::memcpy(to.data(), &names[at + 4], to.size());
        };
        if (type == nvme::kDescriptorUuid) copy(uuid);
        if (type == nvme::kDescriptorNguid) copy(nguid);
        if (type == nvme::kDescriptorEui64) copy(eui64);
        ++seen;
    }
    EXPECT_EQ(seen, 3u);
    EXPECT_EQ(uuid, rig_->drive().uuid());
    nvme::IdentifyNamespaceIndependent any{};
    ASSERT_EQ(host.identify(0x08, 1, writable(any)).result(), Status::kSuccess) << "6.12";
    EXPECT_EQ(any.nstat & 1, 1) << "or the namespace is skipped";
    nvme::IdentifyNamespace ns{};
    ASSERT_EQ(host.identify(0x00, 1, writable(ns)).result(), Status::kSuccess);
    EXPECT_NE(ns.ncap, 0u) << "0: not attached";
    EXPECT_LE(ns.nuse, ns.ncap);
    EXPECT_EQ(ns.nsze, rig_->drive().capacity_blocks());
    EXPECT_EQ(ns.flbas & 0xF, 0);
    EXPECT_EQ(ns.lbaf[0].ds, 12);
    EXPECT_EQ(ns.lbaf[0].ms, 0) << "no metadata";
    EXPECT_EQ(ns.dps, 0);
    EXPECT_EQ(ns.nmic & 1, any.nmic & 1);
    EXPECT_EQ(std::memcmp(ns.nguid, nguid.data(), 16), 0) << "or: identifiers changed";
    EXPECT_EQ(std::memcmp(ns.eui64, eui64.data(), 8), 0);
    // What is refused here, and that cleanly: a kernel goes on with what it has.
    std::vector<std::byte> page(4096);
    const std::uint8_t unknown[] = {0x04, 0x07, 0x09, 0x10, 0x11, 0x12, 0x13,
                                    0x14, 0x15, 0x16, 0x17, 0x18, 0x1C};
    for (const std::uint8_t cns : unknown)
        EXPECT_EQ(host.identify(cns, 1, page).result(), Status::kInvalidField) << int{cns};
    EXPECT_EQ(host.identify(0x06, 0, page, 2).result(), Status::kInvalidField) << "zoned";
    EXPECT_EQ(host.identify(0x00, 2, page).result(), Status::kInvalidNamespace);
    EXPECT_EQ(host.get_log(0x0C, 0xFFFFFFFF, page).result(), Status::kInvalidLogPage) << "ANA";
    EXPECT_EQ(host.get_log(0x70, 0, page).result(), Status::kInvalidLogPage) << "of discovery controllers";
    EXPECT_EQ(host.feature(true, static_cast<nvme::Feature>(0x16), 0, std::span(page).first(512)).result(),
              Status::kInvalidField)
        << "Host Behavior Support";
    EXPECT_EQ(host.feature(true, static_cast<nvme::Feature>(0x0E), 0, std::span(page).first(8)).result(),
              Status::kInvalidField)
        << "Timestamp";
}

TEST_P(StockSession, UnsupportedPropertiesAreRefused) {
    StockHost host(rig_->host_nic(), options());
    ASSERT_NO_FATAL_FAILURE(connect(host));
    const auto get = [&](std::uint32_t offset, bool eight) {
        nvme::PropertyCommand wire{};
        wire.type = static_cast<std::uint8_t>(nvme::FabricsType::kPropertyGet);
        wire.offset = offset;
        wire.attributes = eight ? 1 : 0;
        return host.fabrics(wire).result();
    };
    EXPECT_EQ(get(0x68, false), Status::kInvalidField) << "CRTO";
    EXPECT_EQ(get(0x20, false), Status::kInvalidField) << "NSSR";
    EXPECT_EQ(get(0x00, false), Status::kInvalidField) << "CAP has 8 bytes";
    EXPECT_EQ(get(0x08, true), Status::kInvalidField) << "VS has 4";
    EXPECT_EQ(get(0x08, false), Status::kSuccess);
    nvme::PropertyCommand wire{};
    wire.type = static_cast<std::uint8_t>(nvme::FabricsType::kPropertySet);
    wire.offset = 0x1C;
    EXPECT_EQ(host.fabrics(wire).result(), Status::kInvalidField) << "CSTS cannot be set";
}

TEST_P(StockSession, AHostWithoutAClientNqnIsRefusedEveryIo) {
    StockHost host(rig_->host_nic(), options());
    ASSERT_NO_FATAL_FAILURE(connect(host));
    ASSERT_EQ(host.feature(true, nvme::Feature::kNumberOfQueues, 0).result(), Status::kSuccess);
    StockQueue io_queue(rig_->host_nic(), host.entries());
    ASSERT_EQ(host.connect_io(io_queue, 1).result(), Status::kSuccess);
    std::vector<std::byte> data(4096, std::byte{0xEE});
    const auto command = [](IoOpcode opcode, std::uint64_t slba) {
        nvme::Command c = stock_command(static_cast<std::uint8_t>(opcode));
        c.namespace_id = 1;
        c.cdw10 = static_cast<std::uint32_t>(slba);
        c.cdw11 = static_cast<std::uint32_t>(slba >> 32);
        return c;
    };
    // As the block layer would read it, with the kernel's hints, and as anybody may try by io-passthru.
    const std::uint64_t as_nobody = std::uint64_t{kVolume} << 48;
    const std::uint64_t as_owner = as_nobody | (std::uint64_t{kWriter} << 32);
    for (const std::uint64_t slba : {std::uint64_t{0}, std::uint64_t{100}, as_nobody, as_owner}) {
        for (const std::uint32_t hint : {0u, 7u}) {
            nvme::Command read = command(IoOpcode::kRead, slba);
            read.cdw13 = hint;
            EXPECT_FALSE(nvme::ok(io_queue.keyed(read, data).result())) << slba;
        }
        EXPECT_EQ(io_queue.keyed(command(IoOpcode::kRead, slba), data).result(), Status::kAccessDenied);
        EXPECT_EQ(io_queue.inline_write(command(IoOpcode::kWrite, slba), data).result(),
                  Status::kAccessDenied);
        EXPECT_EQ(io_queue.keyed(command(IoOpcode::kWriteZeroes, slba), {}).result(), Status::kAccessDenied);
        nvme::Command trim = command(IoOpcode::kDatasetManagement, 0);
        trim.cdw11 = 1u << 2;
        trim.cdw12 = static_cast<std::uint32_t>(slba >> 32);
        std::vector<std::byte> ranges(4096);  // room for all 256, whatever the count, as Linux has it
        ranges[4] = std::byte{1};
        EXPECT_EQ(io_queue.inline_write(trim, ranges).result(), Status::kAccessDenied);
    }
    EXPECT_TRUE(std::all_of(data.begin(), data.end(), [](std::byte b) { return b == std::byte{0xEE}; }))
        << "a refused read must return no data";
    // Vendor commands by admin-passthru.
    std::vector<std::byte> record(sizeof(nvme::VolumeRecord));
    for (const auto op : {AdminOpcode::kVolumeAdd, AdminOpcode::kVolumeChmod})
        EXPECT_EQ(host.admin().keyed(stock_command(static_cast<std::uint8_t>(op)), record).result(),
                  Status::kAccessDenied);
    EXPECT_EQ(host.admin().keyed(stock_command(0xC8), {}).result(), Status::kAccessDenied);
    nvme::Command list = stock_command(0xCE);
    list.cdw11 = 4096;
    EXPECT_EQ(host.admin().keyed(list, data).result(), Status::kAccessDenied);
    // The volume is as it was, for its owner.
    auto owner = rig_->connect(rig_->host()).value();
    IoClient client(rig_->host_nic(), *owner, 1);
    EXPECT_EQ(client.status(io(IoOpcode::kRead, fields(100, 1), client.buffer.sgl(0, 4096))),
              Status::kSuccess);
    EXPECT_EQ(client.buffer.data()[0], std::byte{0});
}

TEST_P(StockSession, AHostWithAClientsNameReadsAndWritesThatClientsVolumes) {
    StockHost host(rig_->host_nic(), options(client_host_nqn(kWriter)));
    ASSERT_NO_FATAL_FAILURE(connect(host));
    ASSERT_EQ(host.feature(true, nvme::Feature::kNumberOfQueues, 0).result(), Status::kSuccess);
    StockQueue queue(rig_->host_nic(), host.entries());
    ASSERT_EQ(host.connect_io(queue, 1).result(), Status::kSuccess);
    std::vector<std::byte> data(65536);
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 7 + i / 4096);
    const std::vector<std::byte> sent = data;
    EXPECT_EQ(
        queue.inline_write(nvme::encode_io(IoOpcode::kWrite, fields(0, 1, 1)), std::span(data).first(4096))
            .result(),
        Status::kSuccess);
    EXPECT_EQ(queue.keyed(nvme::encode_io(IoOpcode::kWrite, fields(16, 16, 2)), data).result(),
              Status::kSuccess);
    std::fill(data.begin(), data.end(), std::byte{0});
    EXPECT_EQ(queue.keyed(nvme::encode_io(IoOpcode::kRead, fields(16, 16)), data).result(), Status::kSuccess);
    EXPECT_EQ(data, sent);
    EXPECT_EQ(queue.keyed(nvme::encode_io(IoOpcode::kFlush, fields(0, 1)), {}).result(), Status::kSuccess);
    // What a kernel would not send.
    nvme::Command fused = nvme::encode_io(IoOpcode::kRead, fields(0, 1));
    fused.flags |= 1;
    EXPECT_EQ(queue.keyed(fused, std::span(data).first(4096)).result(), Status::kInvalidField);
    nvme::Command prp = nvme::encode_io(IoOpcode::kRead, fields(0, 1));
    prp.flags = 0;
    EXPECT_EQ(queue.keyed(prp, std::span(data).first(4096)).result(), Status::kInvalidField);
    EXPECT_EQ(
        queue.keyed(nvme::encode_io(IoOpcode::kRead, fields(0, 257)), std::span(data).first(4096)).result(),
        Status::kInvalidField)
        << "more than MDTS";
    EXPECT_EQ(
        queue.keyed(nvme::encode_io(IoOpcode::kRead, fields(0, 2)), std::span(data).first(4096)).result(),
        Status::kDataSglLengthInvalid);
    EXPECT_EQ(queue.inline_write(nvme::encode_io(IoOpcode::kRead, fields(0, 1)), std::span(data).first(4096))
                  .result(),
              Status::kSglTypeInvalid);
}

TEST_P(StockSession, EventsAbortKeepAliveAndShutdown) {
    StockHost host(rig_->host_nic(), options());
    ASSERT_NO_FATAL_FAILURE(connect(host));
    StockQueue io_queue(rig_->host_nic(), host.entries());
    ASSERT_EQ(host.feature(true, nvme::Feature::kNumberOfQueues, 0).result(), Status::kSuccess);
    ASSERT_EQ(host.connect_io(io_queue, 1).result(), Status::kSuccess);
    for (int i = 0; i < 40; ++i)
        ASSERT_EQ(host.admin().keyed(stock_command(0x18), {}).result(), Status::kSuccess) << "keep-alive";
    nvme::Command event = stock_command(0x0C);
    host.admin().post(event);
    nvme::Command abort = stock_command(0x08);
    abort.cdw10 =
        1 | (std::uint32_t{77} << 16);  // of an I/O queue, as nvme_rdma_timeout does not, but PCI does
    EXPECT_EQ(host.admin().keyed(abort, {}).dw0, 1u) << "not aborted";
    std::vector<nvme::ErrorLogEntry> errors(id_.elpe + 1u);
    ASSERT_EQ(host.get_log(0x01, 0xFFFFFFFF, std::as_writable_bytes(std::span(errors))).result(),
              Status::kSuccess);
    nvme::FirmwareSlotLog slot{};
    ASSERT_EQ(host.get_log(0x03, 0xFFFFFFFF, writable(slot)).result(), Status::kSuccess);
    EXPECT_EQ(slot.afi & 7, 1);
    EXPECT_EQ(std::memcmp(slot.revision[0], id_.fr, 8), 0);
    host.shut_down();
    EXPECT_TRUE(eventually([&] { return io_queue.queue().broken(); })) << "a shutdown ends its I/O queues";
}

}  // namespace
}  // namespace gnstor::nvmf
