// ports_test.cpp: one port for many subsystems: Connect names which; and what the discovery controller behind
// the same port says of them.
#include "loop_rig.hpp"
#include "stock_host.hpp"

#include <gnstor/nvme/discovery.hpp>

namespace gnstor::nvmf {
namespace {

using nvme::Status;

class Ports : public ::testing::Test {
  protected:
    void SetUp() override {
        reactor_ = Reactor::start("node").value();
        Reactor* const reactors[] = {reactor_.get()};
        host_nic_ = rdma::SoftNic::open(wire_, "host", {.strict = true}, reactors).value();
        node_nic_ = rdma::SoftNic::open(wire_, "node", {.strict = true}, reactors).value();
        std::vector<SubsystemConfig> subsystems;
        for (int i = 0; i < 3; ++i) {
            ssd::DriveOptions drive;
            drive.capacity_bytes = 64u << 20;
            drives_.push_back(ssd::Drive::open(drive, *reactor_).value());
            SubsystemConfig config;
            config.device = drives_.back().get();
            config.service = i == 0 ? "ssd-0" : "";
            config.drive_reactor = reactor_.get();
            subsystems.push_back(config);
        }
        TargetOptions options;
        options.ports = {{"4420", "10.77.0.1"}, {"4421", "fd00::1"}};
        target_ = Target::open(*node_nic_, subsystems, options).value();
    }
    void TearDown() override {
        target_.reset();
        EXPECT_EQ(host_nic_->counters().strict_violations + node_nic_->counters().strict_violations, 0u);
    }
    HostOptions host(std::size_t drive, const std::string& service) const {
        HostOptions o;
        o.peer_address = "node";
        o.service = service;
        o.subsystem_nqn = target_->subsystem_nqn(drive);
        o.host_nqn = client_host_nqn(kWriter);
        o.host_id = {1};
        o.timeout_ms = 100'000;
        return o;
    }
    StockOptions discovery(std::uint32_t keep_alive_s = 0) const {
        StockOptions o;
        o.subsystem_nqn = std::string{kDiscoveryNqn};
        o.keep_alive_s = keep_alive_s;
        return o;
    }
    void connect_discovery(StockHost& stock) {
        ASSERT_EQ(stock.connect_admin().result(), Status::kSuccess);
        stock.enable();
    }

    std::unique_ptr<Reactor> reactor_;
    rdma::LoopWire wire_;
    std::unique_ptr<rdma::SoftNic> host_nic_, node_nic_;
    std::vector<std::unique_ptr<ssd::Drive>> drives_;
    std::unique_ptr<Target> target_;
};

TEST_F(Ports, ConnectNamesTheSubsystem) {
    for (const char* port : {"4420", "4421"})
        for (std::size_t i = 0; i < 3; ++i) {
            auto c = HostController::connect(*host_nic_, host(i, port));
            ASSERT_TRUE(c.ok()) << c.error().message;
            const auto identify = (*c)->identify_controller().value();
            EXPECT_EQ(std::string(identify.subnqn), target_->subsystem_nqn(i));
            EXPECT_EQ(std::string(identify.sn, drives_[i]->serial().size()), drives_[i]->serial());
            EXPECT_TRUE((*c)->open_io_queue(1, 16).ok()) << "I/O queues come by the same port";
        }
    EXPECT_TRUE(eventually([&] { return target_->connections_open() == 0; }));
    for (std::size_t i = 0; i < 3; ++i)
        EXPECT_EQ(target_->counters(target_->subsystem_nqn(i)).value().connections_accepted, 4u);
    EXPECT_TRUE(HostController::connect(*host_nic_, host(0, "ssd-0")).ok());
    EXPECT_FALSE(HostController::connect(*host_nic_, host(1, "ssd-0")).ok())
        << "a subsystem's own listener leads to it alone";
}

TEST_F(Ports, AnUnknownNameIsRefusedByFieldAndTheConnectionMayTryAgain) {
    StockOptions o;
    o.subsystem_nqn = "nqn.2026-11.io.gnstor:ssd:nowhere";
    StockHost stranger(*host_nic_, o);
    const auto refused = stranger.connect_admin();
    EXPECT_EQ(refused.result(), Status::kConnectInvalidParameters);
    EXPECT_EQ(refused.dw0, nvme::connect_bad_parameter(offsetof(nvme::ConnectData, subsystem_nqn), true));
    EXPECT_EQ(target_->counters("4420").value().refused, 1u);
    ConnectRequest again;
    again.sq_size = kStockAdminEntries - 1;
    again.host_id = {1};
    again.subsystem_nqn = target_->subsystem_nqn(2);
    again.host_nqn = kStockHostNqn;
    nvme::ConnectData data = connect_data(again);
    EXPECT_EQ(stranger.admin().keyed(connect_command(again), writable(data)).result(), Status::kSuccess);
    EXPECT_EQ(target_->counters("4420").value().connections_open, 0u) << "it is the subsystem's now";
    EXPECT_EQ(target_->counters(target_->subsystem_nqn(2)).value().connections_open, 1u);
}

TEST_F(Ports, AQueueIdIsHeldBySubsystemAndController) {
    auto a = HostController::connect(*host_nic_, host(0, "4420")).value();
    auto b = HostController::connect(*host_nic_, host(1, "4420")).value();
    EXPECT_EQ(a->controller_id(), b->controller_id()) << "ids are a subsystem's own";
    auto queue_a = a->open_io_queue(1, 16);
    auto queue_b = b->open_io_queue(1, 16);
    EXPECT_TRUE(queue_a.ok());
    EXPECT_TRUE(queue_b.ok());
    a.reset();
    EXPECT_TRUE(eventually([&] { return (*queue_a)->broken(); }));
    EXPECT_FALSE((*queue_b)->broken());
}

TEST_F(Ports, InvalidPortConfigurationsAreRefusedWhenTheTargetOpens) {
    const auto open = [&](auto change) {
        SubsystemConfig config;
        config.device = drives_[0].get();
        config.drive_reactor = reactor_.get();
        TargetOptions options;
        options.ports = {{"9999", ""}};
        std::vector<SubsystemConfig> subsystems{config};
        change(subsystems, options);
        const auto target = Target::open(*node_nic_, subsystems, options);
        return target.ok() ? std::optional<Errc>{} : target.error().code;
    };
    EXPECT_EQ(open([](auto&, auto&) {}), std::nullopt);
    EXPECT_EQ(open([](auto& s, auto&) { s.push_back(s[0]); }), Errc::kExists);
    EXPECT_EQ(open([](auto& s, auto&) { s[0].nqn = kDiscoveryNqn; }), Errc::kExists);
    EXPECT_EQ(open([](auto& s, auto&) { s[0].drive_reactor = nullptr; }), Errc::kInvalidArgument);
    EXPECT_EQ(open([](auto&, auto& o) { o.ports.clear(); }), Errc::kInvalidArgument);
    EXPECT_EQ(open([](auto&, auto& o) { o.ports[0].service = "4420"; }), Errc::kExists) << "taken";
    EXPECT_EQ(open([](auto&, auto& o) { o.ports[0].address = std::string(300, 'x'); }),
              Errc::kInvalidArgument);
}

TEST_F(Ports, TheDiscoveryLogHasARecordForEachSubsystemAtEachPort) {
    StockHost stock(*host_nic_, discovery());
    ASSERT_NO_FATAL_FAILURE(connect_discovery(stock));
    nvme::IdentifyController id{};
    ASSERT_EQ(stock.identify(1, 0, writable(id)).result(), Status::kSuccess);
    EXPECT_EQ(id.cntrltype, nvme::kControllerTypeDiscovery);
    EXPECT_EQ(std::string(id.subnqn), kDiscoveryNqn);
    EXPECT_EQ(id.cntlid, stock.controller_id());
    EXPECT_GE(id.maxcmd, 128) << "Linux clamps, with a warning";
    EXPECT_NE(id.sgls & nvme::kSglsKeyed, 0u) << "nvme-rdma wants them of every controller";
    EXPECT_EQ(id.oaes, 0u);
    // As libnvme reads it: 20 bytes of the header, the records in one go or by 4 KiB, the header again.
    std::vector<std::byte> head(20);
    ASSERT_EQ(stock.get_log(0x70, 0, head).result(), Status::kSuccess);
    nvme::DiscoveryLogHeader header{};
    std::memcpy(&header, head.data(), head.size());
    ASSERT_EQ(header.records, 6u);
    EXPECT_EQ(header.record_format, 0);
    std::vector<nvme::DiscoveryEntry> entries(header.records);
    const auto bytes = std::as_writable_bytes(std::span(entries));
    for (std::size_t at = 0; at < bytes.size(); at += 4096)
        ASSERT_EQ(stock
                      .get_log(0x70, 0, bytes.subspan(at, std::min<std::size_t>(4096, bytes.size() - at)),
                               1024 + at)
                      .result(),
                  Status::kSuccess);
    const std::uint64_t generation = header.generation;
    ASSERT_EQ(stock.get_log(0x70, 0, head).result(), Status::kSuccess);
    std::memcpy(&header, head.data(), head.size());
    EXPECT_EQ(header.generation, generation);
    const auto text = [](const auto& field) {
        std::string_view all(field, sizeof field);
        return std::string(all.substr(0, all.find_last_not_of(' ') + 1));
    };
    for (std::size_t i = 0; i < entries.size(); ++i) {
        const nvme::DiscoveryEntry& e = entries[i];
        const bool first = i < 3;
        EXPECT_EQ(e.transport, 1);
        EXPECT_EQ(e.family, first ? 1 : 2);
        EXPECT_EQ(e.subtype, 2);
        EXPECT_EQ(e.requirements, 6);
        EXPECT_EQ(e.port_id, first ? 1 : 2);
        EXPECT_EQ(e.controller_id, 0xFFFF);
        EXPECT_GE(e.admin_entries_max, 32);
        EXPECT_EQ(text(e.service), first ? "4420" : "4421");
        EXPECT_EQ(text(e.address), first ? "10.77.0.1" : "fd00::1");
        EXPECT_EQ(std::string(e.subsystem_nqn), target_->subsystem_nqn(i % 3));
        EXPECT_EQ(e.rdma.qp_type, 1);
        EXPECT_EQ(e.rdma.provider, 4);
        EXPECT_EQ(e.rdma.cm, 1);
        EXPECT_EQ(e.flags, 0) << "no explicit persistent connections";
        // What it names is there.
        StockOptions named;
        named.service = text(e.service);
        named.subsystem_nqn = e.subsystem_nqn;
        StockHost found(*host_nic_, named);
        EXPECT_EQ(found.connect_admin().result(), Status::kSuccess);
    }
    stock.shut_down();
}

TEST_F(Ports, ADiscoveryControllerServesItsFewCommandsAndRefusesAllElse) {
    StockHost stock(*host_nic_, discovery(120));
    ASSERT_NO_FATAL_FAILURE(connect_discovery(stock));
    EXPECT_EQ(stock.admin().keyed(stock_command(0x18), {}).result(), Status::kSuccess) << "keep-alive";
    std::vector<std::byte> page(4096, std::byte{0xEE});
    for (const std::uint8_t cns : {0x00, 0x02, 0x03, 0x05, 0x06, 0x08})
        EXPECT_EQ(stock.identify(cns, 1, page).result(), Status::kInvalidField) << int{cns};
    for (const std::uint8_t log : {0x00, 0x02, 0x04, 0x05, 0x0C})
        EXPECT_EQ(stock.get_log(log, 0, page).result(), Status::kInvalidLogPage) << int{log};
    ASSERT_EQ(stock.get_log(0x70, 0, page, 1024 + 5 * 1024).result(), Status::kSuccess);
    EXPECT_EQ(page[1024], std::byte{0}) << "zeroes behind the end";
    EXPECT_EQ(stock.get_log(0x70, 0, page, 1024 + 6 * 1024).result(), Status::kSuccess) << "the very end";
    EXPECT_EQ(stock.get_log(0x70, 0, page, 1024 + 6 * 1024 + 4).result(), Status::kInvalidField);
    EXPECT_EQ(stock.get_log(0x70, 0, page, 2).result(), Status::kInvalidField) << "dwords";
    EXPECT_EQ(stock.get_log(0x70, 0, page, ~std::uint64_t{3}).result(), Status::kInvalidField);
    EXPECT_EQ(stock.feature(true, nvme::Feature::kNumberOfQueues, 0x30003).result(), Status::kInvalidField);
    EXPECT_EQ(stock.feature(false, nvme::Feature::kNumberOfQueues, 0).result(), Status::kInvalidField);
    EXPECT_EQ(stock.feature(true, nvme::Feature::kAsyncEventConfiguration, 1u << 31).result(),
              Status::kSuccess);
    EXPECT_EQ(stock.feature(false, nvme::Feature::kAsyncEventConfiguration, 0).dw0, 1u << 31);
    EXPECT_EQ(stock.admin().keyed(stock_command(0x80), {}).result(), Status::kInvalidOpcode);
    nvme::Command event = stock_command(0x0C);
    stock.admin().post(event);
    nvme::Command abort = stock_command(0x08);
    abort.cdw10 = std::uint32_t{event.command_id} << 16;
    stock.admin().post(abort);
    for (int i = 0; i < 2; ++i) {
        const auto r = stock.admin().wait();
        EXPECT_EQ(r.result(), r.command_id == event.command_id ? Status::kAborted : Status::kSuccess);
    }
    stock.admin().post(event);  // held when the queue goes
    StockQueue io(*host_nic_, 128);
    const auto refused = stock.connect_io(io, 1);
    EXPECT_EQ(refused.result(), Status::kConnectInvalidParameters);
    EXPECT_EQ(refused.dw0, nvme::connect_bad_parameter(offsetof(nvme::ConnectCommand, queue_id), false));
}

TEST_F(Ports, SqFlowControlIsOffForHostsThatAskForIt) {
    for (const bool off : {false, true}) {
        StockOptions o;
        o.subsystem_nqn = target_->subsystem_nqn(0);
        o.disable_sq_flow = off;
        StockHost stock(*host_nic_, o);
        const auto connected = stock.connect_admin();
        ASSERT_EQ(connected.result(), Status::kSuccess);
        EXPECT_EQ(connected.sq_head, off ? nvme::kNoSqFlow : 1);
        for (std::uint32_t sent = 2; sent < 3 * kStockAdminEntries; ++sent) {
            const auto alive = stock.admin().keyed(stock_command(0x18), {});
            ASSERT_EQ(alive.sq_head, off ? 0 : sent % kStockAdminEntries);
        }
    }
}

}  // namespace
}  // namespace gnstor::nvmf
