// Identify, log pages and features say what a Linux NVMe-oF host needs to hear, and refuse what they do not
// know.
#include "ssd/drive/admin.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace gnstor::ssd {
namespace {

using nvme::AdminOpcode;
using nvme::Command;
using nvme::Status;

class Admin : public ::testing::Test {
  protected:
    Admin() {
        DriveFacts facts;
        for (std::size_t i = 0; i < 16; ++i) facts.uuid[i] = static_cast<std::uint8_t>(0x10 + i);
        facts.serial = "GN42";
        facts.capacity_blocks = 1000;
        handler = std::make_unique<AdminHandler>(facts);
        facts.write_cache = true;
        cached = std::make_unique<AdminHandler>(facts);
        counters.reads = 5;
        counters.blocks_read = 1001;
    }
    AdminReply run(AdminOpcode op, std::uint32_t nsid, std::uint32_t cdw10, std::uint32_t cdw11 = 0,
                   const AdminHandler* h = nullptr, std::uint32_t cdw12 = 0) {
        Command c{};
        c.opcode = static_cast<std::uint8_t>(op);
        c.namespace_id = nsid;
        c.cdw10 = cdw10;
        c.cdw11 = cdw11;
        c.cdw12 = cdw12;
        data.assign(AdminHandler::data_bytes(c), std::byte{0xEE});
        return (h != nullptr ? *h : *handler).handle(c, features, data, counters, errors);
    }
    template <class T>
    T as() {
        T t;
        std::memcpy(&t, data.data(), sizeof t);
        return t;
    }
    std::unique_ptr<AdminHandler> handler;
    std::unique_ptr<AdminHandler> cached;
    ControllerFeatures features;
    deengine::EngineCounters counters{};
    ErrorLog errors;
    std::vector<std::byte> data;
};

TEST_F(Admin, AWriteProtectedNamespaceIsReportedInIdentifyAndHealth) {
    const auto attributes = [&] {
        EXPECT_EQ(run(AdminOpcode::kIdentify, 1, 0).status, Status::kSuccess);
        return as<nvme::IdentifyNamespace>().nsattr;
    };
    const auto warning = [&] {
        constexpr std::uint32_t kDwords = sizeof(nvme::HealthLog) / 4 - 1;
        EXPECT_EQ(run(AdminOpcode::kGetLogPage, 0xFFFFFFFFu, 2 | (kDwords << 16)).status, Status::kSuccess);
        return as<nvme::HealthLog>().critical_warning;
    };
    EXPECT_EQ(attributes(), 0);
    EXPECT_EQ(warning(), 0);
    handler->set_write_protected();
    EXPECT_EQ(attributes(), 1) << "NSATTR bit 0";
    EXPECT_EQ(warning(), 8) << "all media is read only";
}

TEST_F(Admin, IdentifyControllerDescribesADriveBehindRdma) {
    ASSERT_EQ(run(AdminOpcode::kIdentify, 0, 1).status, Status::kSuccess);
    const auto c = as<nvme::IdentifyController>();
    EXPECT_EQ(std::string(c.sn, 20), "GN42                ");
    EXPECT_EQ(c.mdts, 8);
    EXPECT_EQ(c.sqes, 0x66);
    EXPECT_EQ(c.cqes, 0x44);
    EXPECT_EQ(c.nn, 1u);
    EXPECT_EQ(c.oncs, 0x0C) << "dataset management and write zeroes";
    EXPECT_EQ(c.awupf, 0) << "one block";
    EXPECT_EQ(c.vwc, 0);
    EXPECT_EQ(c.sgls, 0x00100005u);
    EXPECT_EQ(c.ioccsz, 260u);
    EXPECT_EQ(c.iorcsz, 1u);
    EXPECT_EQ(c.icdoff, 0);
    EXPECT_EQ(c.msdbd, 1);
    EXPECT_NE(c.kas, 0);
    EXPECT_EQ(c.rtd3e, 30'000'000u) << "hosts must wait for a medium that syncs";
    EXPECT_EQ(c.ver, 0x00020000u);
    EXPECT_STREQ(c.subnqn, "nqn.2014-08.org.nvmexpress:uuid:10111213-1415-1617-1819-1a1b1c1d1e1f");
    EXPECT_EQ(cached->controller().vwc, 1);
}

TEST_F(Admin, IdentifyNamespaceHasFourKibibyteBlocksAndAName) {
    ASSERT_EQ(run(AdminOpcode::kIdentify, 1, 0).status, Status::kSuccess);
    const auto n = as<nvme::IdentifyNamespace>();
    EXPECT_EQ(n.nsze, 1000u);
    EXPECT_EQ(n.lbaf[0].ds, 12);
    EXPECT_EQ(n.lbaf[0].ms, 0);
    EXPECT_EQ(n.flbas, 0);
    EXPECT_EQ(n.nguid[0], 0x10);
    EXPECT_EQ(n.eui64[0], 0x18);
    EXPECT_EQ(run(AdminOpcode::kIdentify, 2, 0).status, Status::kInvalidNamespace);
    EXPECT_EQ(run(AdminOpcode::kIdentify, 0, 0).status, Status::kInvalidNamespace);
}

TEST_F(Admin, NamespaceListAndDescriptorsNameTheOneNamespace) {
    ASSERT_EQ(run(AdminOpcode::kIdentify, 0, 2).status, Status::kSuccess);
    auto list = as<nvme::NamespaceList>();
    EXPECT_EQ(list.nsid[0], 1u);
    EXPECT_EQ(list.nsid[1], 0u);
    ASSERT_EQ(run(AdminOpcode::kIdentify, 1, 2).status, Status::kSuccess);
    EXPECT_EQ(as<nvme::NamespaceList>().nsid[0], 0u) << "ids above 1";
    EXPECT_EQ(run(AdminOpcode::kIdentify, 0xFFFFFFFF, 2).status, Status::kInvalidNamespace);
    ASSERT_EQ(run(AdminOpcode::kIdentify, 1, 3).status, Status::kSuccess);
    EXPECT_EQ(as<nvme::NamespaceDescriptor>().type, nvme::kDescriptorUuid);
    EXPECT_EQ(as<nvme::NamespaceDescriptor>().length, 16);
    EXPECT_EQ(data[4], std::byte{0x10});
    EXPECT_EQ(data[40], std::byte{nvme::kDescriptorEui64});
    EXPECT_EQ(data[41], std::byte{8});
    EXPECT_EQ(data[44], std::byte{0x18}) << "as in Identify Namespace";
    EXPECT_EQ(data[52], std::byte{0}) << "a zero ends the list";
}

TEST_F(Admin, IdentifyForTheNvmCommandSetAndForAnyNamespace) {
    constexpr std::uint32_t kZoned = 2u << 24;
    ASSERT_EQ(run(AdminOpcode::kIdentify, 0, 6).status, Status::kSuccess);
    EXPECT_EQ(as<nvme::IdentifyControllerNvm>().dmrl, 0) << "no limits but those of Identify Controller";
    EXPECT_EQ(as<nvme::IdentifyControllerNvm>().dmrsl, 0u);
    EXPECT_EQ(as<nvme::IdentifyControllerNvm>().dmsl, 0u);
    EXPECT_EQ(run(AdminOpcode::kIdentify, 0, 6, kZoned).status, Status::kInvalidField);
    ASSERT_EQ(run(AdminOpcode::kIdentify, 1, 5).status, Status::kSuccess);
    EXPECT_EQ(data[0], std::byte{0});
    EXPECT_EQ(run(AdminOpcode::kIdentify, 1, 5, kZoned).status, Status::kInvalidField);
    EXPECT_EQ(run(AdminOpcode::kIdentify, 2, 5).status, Status::kInvalidNamespace);
    ASSERT_EQ(run(AdminOpcode::kIdentify, 1, 8).status, Status::kSuccess);
    const auto any = as<nvme::IdentifyNamespaceIndependent>();
    EXPECT_EQ(any.nstat, 1) << "ready, or Linux hides it";
    EXPECT_EQ(any.nmic, 1);
    EXPECT_EQ(any.nsattr, 0);
    handler->set_write_protected();
    ASSERT_EQ(run(AdminOpcode::kIdentify, 1, 8).status, Status::kSuccess);
    EXPECT_EQ(as<nvme::IdentifyNamespaceIndependent>().nsattr, 1);
    EXPECT_EQ(run(AdminOpcode::kIdentify, 2, 8).status, Status::kInvalidNamespace);
}

TEST_F(Admin, TheTemperatureThresholdIsTheCompositeOnesUpper) {
    EXPECT_EQ(run(AdminOpcode::kGetFeatures, 0, 4).dw0, handler->controller().wctemp);
    EXPECT_EQ(run(AdminOpcode::kGetFeatures, 0, 4, 1u << 20).dw0, 0u) << "under: none";
    EXPECT_EQ(run(AdminOpcode::kGetFeatures, 0, 4, 1u << 16).status, Status::kInvalidField) << "sensor 1";
}

TEST_F(Admin, UnknownIdentifyLogAndFeatureAreRefusedForEveryValue) {
    int refused = 0;
    for (std::uint32_t v = 0; v < 256; ++v) {
        if (v > 3 && v != 5 && v != 6 && v != 8) {
            EXPECT_EQ(run(AdminOpcode::kIdentify, 1, v).status, Status::kInvalidField);
            ++refused;
        }
        if (v != 1 && v != 2 && v != 3 && v != 5) {
            EXPECT_EQ(run(AdminOpcode::kGetLogPage, 0xFFFFFFFF, v).status, Status::kInvalidLogPage);
            ++refused;
        }
    }
    EXPECT_EQ(run(AdminOpcode::kGetFeatures, 0, 0x7F).status, Status::kInvalidField);
    EXPECT_EQ(run(AdminOpcode::kSetFeatures, 0, 0x7F).status, Status::kInvalidField);
    EXPECT_EQ(run(AdminOpcode::kFabrics, 0, 0).status, Status::kInvalidOpcode) << "nvmf's";
    EXPECT_GE(refused, 500);
}

TEST_F(Admin, HealthAndErrorLogsRecordEvents) {
    Command failed{};
    failed.command_id = 77;
    failed.cdw10 = 5;
    for (int i = 0; i < 20; ++i) errors.add(3, failed, Status::kAccessDenied);
    ASSERT_EQ(run(AdminOpcode::kGetLogPage, 0xFFFFFFFF, 2u | (127u << 16)).status, Status::kSuccess);
    ASSERT_EQ(data.size(), 512u);
    const auto h = as<nvme::HealthLog>();
    EXPECT_EQ(h.host_reads.low(), 5u);
    EXPECT_EQ(h.data_units_read.low(), 9u) << "1001 blocks are 8008 sectors: nine thousands, rounded up";
    EXPECT_EQ(h.error_entries.low(), 20u);
    ASSERT_EQ(run(AdminOpcode::kGetLogPage, 0xFFFFFFFF, 1u | (31u << 16)).status, Status::kSuccess);
    nvme::ErrorLogEntry e[2];
    std::memcpy(e, data.data(), sizeof e);
    EXPECT_EQ(e[0].error_count, 20u) << "newest first";
    EXPECT_EQ(e[1].error_count, 19u);
    EXPECT_EQ(e[0].command_id, 77);
    EXPECT_EQ(nvme::from_field(static_cast<std::uint16_t>(e[0].status >> 1)), Status::kAccessDenied);
}

TEST_F(Admin, AvailableSpareShrinksWithBadUnitsAndTooLittleIsAWarning) {
    const auto health = [&](std::uint64_t data_pages, std::uint64_t data_pages_new) {
        counters.data_pages = data_pages;
        counters.data_pages_new = data_pages_new;
        EXPECT_EQ(run(AdminOpcode::kGetLogPage, 0xFFFFFFFF, 2u | (127u << 16)).status, Status::kSuccess);
        return as<nvme::HealthLog>();
    };
    struct Case {
        std::uint64_t data_pages;
        int spare, warning;
    };
    // 1000 blocks are promised.
    for (const Case& c : {Case{3000, 100, 0}, Case{2999, 99, 0}, Case{2000, 50, 0}, Case{1200, 10, 0},
                          Case{1199, 9, 1}, Case{1001, 0, 1}, Case{1000, 0, 1}, Case{0, 0, 1}}) {
        const nvme::HealthLog h = health(c.data_pages, 3000);
        EXPECT_EQ(h.available_spare, c.spare) << c.data_pages;
        EXPECT_EQ(h.spare_threshold, 10);
        EXPECT_EQ(h.critical_warning, c.warning) << c.data_pages;
    }
    EXPECT_EQ(health(1000, 1000).available_spare, 100)
        << "a drive without any to spare, and without bad units";
    EXPECT_EQ(health(0, 0).critical_warning, 0) << "no flash";
    handler->set_write_protected();
    EXPECT_EQ(health(0, 3000).critical_warning, 9) << "one warning does not hide the other";
}

TEST_F(Admin, ALogPageMayBeReadInPiecesButNotFromBeyondItsEnd) {
    ASSERT_EQ(run(AdminOpcode::kGetLogPage, 0xFFFFFFFF, 3u | (1u << 16), 0, nullptr, 8).status,
              Status::kSuccess);
    EXPECT_EQ(std::memcmp(data.data(), "0.1.0   ", 8), 0);
    ASSERT_EQ(run(AdminOpcode::kGetLogPage, 0xFFFFFFFF, 3u | (255u << 16)).status, Status::kSuccess);
    EXPECT_EQ(data[1023], std::byte{0}) << "behind its end a page is zero, never the drive's memory";
    EXPECT_EQ(run(AdminOpcode::kGetLogPage, 0xFFFFFFFF, 3u, 0, nullptr, 516).status, Status::kInvalidField);
    EXPECT_EQ(run(AdminOpcode::kGetLogPage, 0xFFFFFFFF, 3u, 0, nullptr, 2).status, Status::kInvalidField);
}

TEST_F(Admin, FeaturesKeepWhatWasSet) {
    const AdminReply queues = run(AdminOpcode::kSetFeatures, 0, 7, nvme::QueueCount{9000, 4}.encode());
    ASSERT_EQ(queues.status, Status::kSuccess);
    EXPECT_EQ(nvme::QueueCount::decode(queues.dw0), (nvme::QueueCount{kMaxIoQueues, 4}));
    EXPECT_EQ(run(AdminOpcode::kGetFeatures, 0, 7).dw0, queues.dw0);
    EXPECT_EQ(run(AdminOpcode::kSetFeatures, 0, 7, 0xFFFF0000u).status, Status::kInvalidField);
    ASSERT_EQ(run(AdminOpcode::kSetFeatures, 0, 0x0F, 15000).status, Status::kSuccess);
    EXPECT_EQ(run(AdminOpcode::kGetFeatures, 0, 0x0F).dw0, 15000u);
    EXPECT_EQ(run(AdminOpcode::kGetFeatures, 0, 0x0F | (1u << 8)).dw0, 0u) << "default";
    EXPECT_EQ(run(AdminOpcode::kGetFeatures, 0, 0x0F | (3u << 8)).dw0, nvme::kFeatureChangeable);
    EXPECT_EQ(run(AdminOpcode::kGetFeatures, 0, 0x0F | (7u << 8)).status, Status::kInvalidField);
    EXPECT_EQ(run(AdminOpcode::kSetFeatures, 0, 0x0Fu | nvme::kFeatureSave, 1).status,
              Status::kFeatureNotSaveable);
    ASSERT_EQ(run(AdminOpcode::kSetFeatures, 0, 0x0B, 0x1FF).status, Status::kSuccess);
    EXPECT_EQ(run(AdminOpcode::kGetFeatures, 0, 0x0B).dw0, 0x1FFu);
}

TEST_F(Admin, AChangedNamespaceIsListedUntilItsHostHasReadTheLog) {
    constexpr std::uint32_t kPage = 4u | (1023u << 16), kRetain = 1u << 15;
    EXPECT_EQ(run(AdminOpcode::kGetLogPage, 0xFFFFFFFF, kPage).status, Status::kInvalidLogPage)
        << "of a drive, whose namespace never changes";
    DriveFacts facts = handler->facts();
    facts.tells_of_changes = true;
    const AdminHandler changing(facts);
    const auto first = [&](std::uint32_t cdw10) {
        EXPECT_EQ(run(AdminOpcode::kGetLogPage, 0xFFFFFFFF, cdw10, 0, &changing).status, Status::kSuccess);
        return as<nvme::NamespaceList>().nsid[0];
    };
    EXPECT_EQ(first(kPage), 0u);
    features.namespace_changed = true;
    features.notice_due = true;
    EXPECT_EQ(run(AdminOpcode::kGetLogPage, 0xFFFFFFFF, kPage, 0, &changing, 2).status,
              Status::kInvalidField);
    EXPECT_TRUE(features.namespace_changed && features.notice_due) << "nothing was read";
    EXPECT_EQ(first(kPage | kRetain), 1u);
    EXPECT_EQ(first(kPage), 1u);
    EXPECT_FALSE(features.notice_due) << "of what the host knows";
    EXPECT_EQ(first(kPage), 0u);
    EXPECT_EQ(changing.controller().oaes, 0x100u);
    EXPECT_EQ(handler->controller().oaes, 0u);
}

TEST_F(Admin, AVolatileWriteCacheIsReportedOnlyWhereThereIsOne) {
    EXPECT_EQ(run(AdminOpcode::kGetFeatures, 0, 6).status, Status::kInvalidField);
    EXPECT_EQ(run(AdminOpcode::kGetFeatures, 0, 6, 0, cached.get()).dw0, 1u);
    EXPECT_EQ(run(AdminOpcode::kSetFeatures, 0, 6, 1, cached.get()).status, Status::kSuccess);
    EXPECT_EQ(run(AdminOpcode::kSetFeatures, 0, 6, 0, cached.get()).status, Status::kFeatureNotChangeable);
}

}  // namespace
}  // namespace gnstor::ssd
