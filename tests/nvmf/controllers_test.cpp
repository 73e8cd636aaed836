// controllers_test.cpp: associations, properties, keep-alive and features, with time as an argument.
#include "nvmf/target/controllers.hpp"

#include <gnstor/nvme/features.hpp>

#include <gtest/gtest.h>

#include <cstring>

namespace gnstor::nvmf {
namespace {

using nvme::Status;

constexpr const char* kSubsystem = "nqn.2026-11.io.gnstor:ssd:x";
constexpr std::uint64_t kMs = 1'000'000;

class ControllersTest : public ::testing::Test {
  protected:
    Controllers controllers_{kSubsystem,
                             {.queues = {.admin_entries_max = 32, .io_entries_max = 128, .io_queues_max = 8},
                              .controllers_max = 4}};

    static ConnectRequest request(std::uint16_t qid, std::uint16_t cntlid = nvme::kAnyController) {
        ConnectRequest r;
        r.queue_id = qid;
        r.sq_size = 31;
        r.keep_alive_ms = 1000;
        r.host_id = {1};
        r.controller_id = cntlid;
        r.subsystem_nqn = kSubsystem;
        r.host_nqn = client_host_nqn(9);
        return r;
    }
    ConnectOutcome connect(const ConnectRequest& r, std::uint64_t now = 0) {
        return controllers_.connect(r, {r.queue_id, 32, 0}, now);
    }
    static nvme::Command property(nvme::FabricsType type, std::uint32_t offset, std::uint8_t size,
                                  std::uint64_t value = 0) {
        nvme::PropertyCommand p{};
        p.opcode = 0x7F;
        p.flags = nvme::kFlagsSgl;
        p.type = static_cast<std::uint8_t>(type);
        p.attributes = size;
        p.offset = offset;
        p.value = value;
        nvme::Command c;
        std::memcpy(&c, &p, sizeof c);
        return c;
    }
    std::uint64_t get(std::uint16_t id, std::uint32_t offset, std::uint8_t size) {
        return controllers_.property_get(id, property(nvme::FabricsType::kPropertyGet, offset, size)).value;
    }
    PropertyOutcome set_cc(std::uint16_t id, nvme::Configuration c) {
        return controllers_.property_set(id, property(nvme::FabricsType::kPropertySet, 0x14, 0, c.encode()));
    }
    static nvme::Configuration enabled() {
        return {.enable = true, .arbitration = 1, .sq_entry_log2 = 6, .cq_entry_log2 = 4};
    }
    std::uint16_t ready_controller() {
        const auto id = connect(request(0)).binding.controller_id;
        (void)set_cc(id, enabled());
        return id;
    }
};

TEST_F(ControllersTest, TheHostNqnBindsTheClient) {
    EXPECT_EQ(connect(request(0)).binding.client, 9);
    auto r = request(0);
    r.host_nqn = kAdminHostNqn;
    EXPECT_TRUE(connect(r).binding.privileged);
    EXPECT_EQ(connect(r).binding.client, 0);
    r.host_nqn = "nqn.2014-08.org.nvmexpress:uuid:1";
    const auto o = connect(r);
    EXPECT_EQ(o.status, Status::kSuccess);
    EXPECT_EQ(o.binding.client, 0);
    EXPECT_FALSE(o.binding.privileged);
}

TEST_F(ControllersTest, AnIoQueueNeedsItsOwnHostsEnabledController) {
    const auto id = connect(request(0)).binding.controller_id;
    EXPECT_EQ(connect(request(1, id)).status, Status::kCommandSequenceError) << "not enabled yet";
    EXPECT_EQ(set_cc(id, enabled()).status, Status::kSuccess);
    EXPECT_TRUE(controllers_.ready(id));
    auto r = request(1, id);
    r.host_id = {2};
    EXPECT_EQ(connect(r).dw0, 0x10000u);
    r = request(1, id);
    r.host_nqn = client_host_nqn(10);
    EXPECT_EQ(connect(r).dw0, 0x10200u);
    r = request(1, id);
    r.subsystem_nqn = "nqn.2026-11.io.gnstor:ssd:y";
    EXPECT_EQ(connect(r).dw0, 0x10100u);
    EXPECT_EQ(connect(request(1, 77)).dw0, 0x10010u);
    EXPECT_EQ(connect(request(9, id)).dw0, 42u);
    r = request(1, id);
    r.sq_size = 32;  // the transport was made for 32 entries
    EXPECT_EQ(connect(r).dw0, 44u);
    EXPECT_EQ(controllers_.connect(request(1, id), {2, 32, 0}, 0).dw0, 42u);
    const auto ok = connect(request(1, id));
    EXPECT_EQ(ok.status, Status::kSuccess);
    EXPECT_EQ(ok.dw0, id);
    EXPECT_EQ(ok.binding.client, 9);
    EXPECT_FALSE(ok.binding.privileged);
    EXPECT_EQ(connect(request(1, id)).status, Status::kCommandSequenceError) << "queue 1 is there already";
    controllers_.disconnect(id, 1);
    EXPECT_EQ(connect(request(1, id)).status, Status::kSuccess);
}

TEST_F(ControllersTest, OnlyTheDynamicModelIsOffered) {
    EXPECT_EQ(connect(request(0, 1)).dw0, 0x10010u);
    EXPECT_EQ(connect(request(0, nvme::kAnyStaticController)).dw0, 0x10010u);
}

TEST_F(ControllersTest, AFullTableSaysBusy) {
    for (int i = 0; i < 4; ++i) EXPECT_EQ(connect(request(0)).status, Status::kSuccess);
    EXPECT_EQ(connect(request(0)).status, Status::kConnectControllerBusy);
    controllers_.disconnect(1, 0);
    const auto o = connect(request(0));
    EXPECT_EQ(o.status, Status::kSuccess);
    EXPECT_EQ(o.binding.controller_id, 5) << "ids are not given out again at once";
}

TEST_F(ControllersTest, PropertiesTellAndEnable) {
    const auto id = connect(request(0)).binding.controller_id;
    const auto cap = nvme::Capabilities::decode(get(id, 0, 1));
    EXPECT_EQ(cap.max_queue_entries, 127);
    EXPECT_TRUE(cap.contiguous_queues && cap.nvm_command_set && cap.weighted_round_robin);
    EXPECT_EQ(get(id, 8, 0), nvme::kVersion20);
    EXPECT_EQ(get(id, 0x1C, 0), 0u);
    EXPECT_EQ(set_cc(id, enabled()).status, Status::kSuccess);
    EXPECT_EQ(get(id, 0x1C, 0), 1u);
    EXPECT_EQ(get(id, 0x14, 0), enabled().encode());
    auto c = enabled();
    c.shutdown = 1;
    const PropertyOutcome told = set_cc(id, c);
    EXPECT_TRUE(told.close_io_queues);
    EXPECT_FALSE(told.reset) << "a shutdown is not a reset";
    ASSERT_NE(told.shutdown, 0u);
    EXPECT_EQ(get(id, 0x1C, 0), 0x5u)
        << "CSTS must say ready and shutdown in progress while the device flushes";
    EXPECT_EQ(set_cc(id, c).shutdown, 0u) << "the shutdown was already reported";
    controllers_.shutdown_ended(id, told.shutdown, true);
    EXPECT_EQ(get(id, 0x1C, 0), 0x9u) << "ready, shutdown complete";
    const auto disabled = set_cc(id, {});
    EXPECT_TRUE(disabled.close_io_queues);
    EXPECT_TRUE(disabled.reset);
    EXPECT_FALSE(set_cc(id, {}).reset) << "it is disabled";
    EXPECT_EQ(get(id, 0x1C, 0), 0u);
    // Another one, whose device does not manage it; the end of the first says nothing about it.
    ASSERT_EQ(set_cc(id, enabled()).status, Status::kSuccess);
    const PropertyOutcome again = set_cc(id, c);
    ASSERT_NE(again.shutdown, 0u);
    controllers_.shutdown_ended(id, told.shutdown, true);
    EXPECT_EQ(get(id, 0x1C, 0), 0x5u);
    controllers_.shutdown_ended(id, again.shutdown, false);
    EXPECT_EQ(get(id, 0x1C, 0), 0x7u) << "ready, fatal, and never complete";
}

TEST_F(ControllersTest, AConfigurationThatDoesNotFitIsFatal) {
    const auto id = connect(request(0)).binding.controller_id;
    auto c = enabled();
    c.sq_entry_log2 = 7;
    (void)set_cc(id, c);
    EXPECT_FALSE(controllers_.ready(id));
    EXPECT_EQ(get(id, 0x1C, 0), 2u);
    (void)set_cc(id, {});
    (void)set_cc(id, enabled());
    EXPECT_TRUE(controllers_.ready(id));
}

TEST_F(ControllersTest, OtherPropertiesAndSizesAreRefused) {
    const auto id = connect(request(0)).binding.controller_id;
    for (std::uint32_t offset = 0; offset < 0x100; ++offset)
        for (std::uint8_t size = 0; size < 8; ++size) {
            const bool good = (offset == 0 && size == 1) ||
                              ((offset == 8 || offset == 0x14 || offset == 0x1C) && size == 0);
            const auto o =
                controllers_.property_get(id, property(nvme::FabricsType::kPropertyGet, offset, size));
            EXPECT_EQ(o.status, good ? Status::kSuccess : Status::kInvalidField)
                << offset << " " << int{size};
            const auto s =
                controllers_.property_set(id, property(nvme::FabricsType::kPropertySet, offset, size));
            EXPECT_EQ(s.status, offset == 0x14 && size == 0 ? Status::kSuccess : Status::kInvalidField);
        }
    EXPECT_EQ(controllers_.property_get(99, property(nvme::FabricsType::kPropertyGet, 0, 1)).status,
              Status::kCommandSequenceError);
}

TEST_F(ControllersTest, AControllerThatFallsSilentExpires) {
    const auto id = connect(request(0), 0).binding.controller_id;
    (void)set_cc(id, enabled());
    EXPECT_TRUE(controllers_.expire(999 * kMs).empty());
    EXPECT_EQ(controllers_.keep_alive(id, 999 * kMs), Status::kSuccess);
    EXPECT_TRUE(controllers_.expire(1998 * kMs).empty());
    EXPECT_EQ(controllers_.expire(1999 * kMs), std::vector<std::uint16_t>{id});
    EXPECT_TRUE(controllers_.expire(5000 * kMs).empty()) << "reported once";
    EXPECT_EQ(controllers_.keep_alive(id, 2000 * kMs), Status::kKeepAliveExpired);
    EXPECT_FALSE(controllers_.ready(id));
    EXPECT_EQ(connect(request(1, id)).dw0, 0x10010u);
}

TEST_F(ControllersTest, KeepAliveTimeIsRoundedUpAndZeroMeansNever) {
    auto r = request(0);
    r.keep_alive_ms = 1;
    const auto id = connect(r, 0).binding.controller_id;
    EXPECT_TRUE(controllers_.expire(99 * kMs).empty());
    EXPECT_EQ(controllers_.expire(100 * kMs), std::vector<std::uint16_t>{id});
    r.keep_alive_ms = 0;
    (void)connect(r, 0);
    EXPECT_TRUE(controllers_.expire(~0ull).empty());
    r.keep_alive_ms = ~0u;
    (void)connect(r, 0);
    EXPECT_TRUE(controllers_.expire(1'000'000 * kMs).empty());
}

TEST_F(ControllersTest, TheNumberOfQueuesIsGrantedUpToTheLimitAndHeld) {
    const auto id = ready_controller();
    nvme::Command c{};
    c.cdw10 = 7;
    c.cdw11 = nvme::QueueCount{100, 100}.encode();
    EXPECT_EQ(controllers_.set_feature(id, c, 0).dw0, (nvme::QueueCount{8, 8}.encode()));
    c.cdw11 = nvme::QueueCount{2, 3}.encode();
    EXPECT_EQ(controllers_.set_feature(id, c, 0).dw0, (nvme::QueueCount{2, 2}.encode()));
    EXPECT_EQ(controllers_.get_feature(id, c).dw0, (nvme::QueueCount{2, 2}.encode()));
    EXPECT_EQ(connect(request(3, id)).dw0, 42u);
    EXPECT_EQ(connect(request(2, id)).status, Status::kSuccess);
    EXPECT_EQ(controllers_.set_feature(id, c, 0).status, Status::kCommandSequenceError);
    c.cdw10 = 6;
    EXPECT_FALSE(controllers_.set_feature(id, c, 0).handled) << "the write cache is the drive's";
}

TEST_F(ControllersTest, ADiscoveryControllerWithoutAKeepAliveTimeEndsWhenNothingComesForTwoMinutes) {
    Controllers discovery{kSubsystem, {}, ControllerKind::kDiscovery};
    auto r = request(0);
    r.keep_alive_ms = 0;
    const auto id = discovery.connect(r, {0, 32, 0}, 0).binding.controller_id;
    constexpr std::uint64_t kIdle = kDiscoveryIdleMs * kMs;
    EXPECT_TRUE(discovery.expire(kIdle - 1).empty());
    discovery.heard(id, kIdle - 1);
    EXPECT_TRUE(discovery.expire(2 * kIdle - 2).empty()) << "a command came";
    EXPECT_EQ(discovery.expire(2 * kIdle - 1), std::vector<std::uint16_t>{id});
    discovery.heard(id, 2 * kIdle);
    EXPECT_EQ(discovery.keep_alive(id, 2 * kIdle), Status::kKeepAliveExpired);
    // One that has asked for a time lives by that alone.
    r.keep_alive_ms = 1000;
    const auto other = discovery.connect(r, {0, 32, 0}, 0).binding.controller_id;
    discovery.heard(other, 999 * kMs);
    EXPECT_EQ(discovery.expire(1000 * kMs), std::vector<std::uint16_t>{other});
}

TEST_F(ControllersTest, NoFeatureCanBeSaved) {
    const auto id = ready_controller();
    nvme::Command c{};
    for (const auto feature : {nvme::Feature::kNumberOfQueues, nvme::Feature::kKeepAliveTimer,
                               nvme::Feature::kAsyncEventConfiguration}) {
        c.cdw10 = static_cast<std::uint32_t>(feature) | nvme::kFeatureSave;
        c.cdw11 = 1;
        const auto refused = controllers_.set_feature(id, c, 0);
        EXPECT_TRUE(refused.handled);
        EXPECT_EQ(refused.status, Status::kFeatureNotSaveable);
    }
    c.cdw10 = static_cast<std::uint32_t>(nvme::Feature::kKeepAliveTimer);
    EXPECT_EQ(controllers_.get_feature(id, c).dw0, 1000u) << "the feature must not be changed";
}

TEST_F(ControllersTest, TheKeepAliveTimeCanBeChanged) {
    const auto id = ready_controller();
    nvme::Command c{};
    c.cdw10 = 0x0F;
    c.cdw11 = 5000;
    EXPECT_EQ(controllers_.set_feature(id, c, 1000 * kMs).status, Status::kSuccess);
    EXPECT_EQ(controllers_.get_feature(id, c).dw0, 5000u);
    EXPECT_TRUE(controllers_.expire(5999 * kMs).empty());
    EXPECT_EQ(controllers_.expire(6000 * kMs).size(), 1u);
}

TEST_F(ControllersTest, PriorityCountsOnlyUnderWeightedRoundRobin) {
    const auto id = ready_controller();
    auto r = request(1, id);
    r.attributes = 1;
    EXPECT_EQ(connect(r).binding.priority, ssd::Priority::kHigh);
    const auto plain = connect(request(0)).binding.controller_id;
    auto c = enabled();
    c.arbitration = 0;
    (void)set_cc(plain, c);
    r.controller_id = plain;
    EXPECT_EQ(connect(r).binding.priority, ssd::Priority::kMedium);
}

TEST_F(ControllersTest, IdentifySpeaksForTheFabric) {
    const auto id = ready_controller();
    nvme::IdentifyController identify;
    std::memset(&identify, 0xEE, sizeof identify);
    controllers_.complete_identify(id, identify);
    EXPECT_EQ(identify.cntlid, id);
    EXPECT_STREQ(identify.subnqn, kSubsystem);
    EXPECT_EQ(identify.ioccsz, 260u);
    EXPECT_EQ(identify.iorcsz, 1u);
    EXPECT_EQ(identify.msdbd, 1u);
    EXPECT_EQ(identify.kas, 1u);
}

}  // namespace
}  // namespace gnstor::nvmf
