// Statuses: every code survives the wire, every code has a name, Do Not Retry says what docs/design.md, "The
// command", says.
#include <gnstor/nvme/command.hpp>
#include <gnstor/nvme/fabrics.hpp>
#include <gnstor/nvme/status.hpp>

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace n = gnstor::nvme;
using n::Status;

TEST(Status, EveryTypeAndCodeSurvivesTheCompletionWithAnyPhase) {
    for (std::uint32_t v = 0; v < 0x800; ++v) {
        const auto s = static_cast<Status>(v);
        n::Completion c{};
        c.set_result(s);
        EXPECT_EQ(c.status & 1u, 0u) << "the phase is the queue's";
        EXPECT_EQ(c.result(), s);
        c.status |= 1u;
        EXPECT_EQ(c.result(), s);
        const bool dnr = (c.status & 0x8000u) != 0;
        EXPECT_EQ(dnr, v != 0 && !n::may_retry(s)) << v;
    }
}

TEST(Status, MoreRetryDelayAndDoNotRetryDoNotChangeWhatIsRead) {
    for (std::uint32_t v = 0; v < 0x800; ++v)
        for (std::uint32_t high = 0; high < 16; ++high)
            EXPECT_EQ(n::from_field(static_cast<std::uint16_t>(v | (high << 11))), static_cast<Status>(v));
}

TEST(Status, OnlyThreeVendorStatusesAskForARetry) {
    std::set<std::uint32_t> retry;
    for (std::uint32_t v = 0; v < 0x800; ++v)
        if (n::may_retry(static_cast<Status>(v))) retry.insert(v);
    EXPECT_EQ(retry, (std::set<std::uint32_t>{0x7C0, 0x7C1, 0x7C4}));
}

TEST(Status, EveryNamedStatusHasAnotherName) {
    std::set<std::string> names;
    int named = 0;
    const auto count = [&](std::uint32_t v) {
        const std::string name = n::status_name(static_cast<Status>(v));
        if (name == "unknown status") return;
        ++named;
        EXPECT_TRUE(names.insert(name).second) << name << " names two statuses";
    };
    for (std::uint32_t v = 0; v < 0x800; ++v) count(v);
    for (std::uint32_t v = 0x10000; v < 0x10020; ++v) count(v);
    std::printf("statuses: %d named, 2048 codes sent and read (floor 50)\n", named);
    EXPECT_GE(named, 50);
    EXPECT_STREQ(n::status_name(Status::kAccessDenied), "Access Denied");
    EXPECT_STREQ(n::status_name(static_cast<Status>(0x7FF)), "unknown status");
}

TEST(Status, EveryRdmaRejectReasonHasAName) {
    std::set<std::string> names;
    for (std::uint16_t v = 1; v <= 8; ++v)
        names.insert(n::rdma_reject_name(static_cast<n::RdmaRejectStatus>(v)));
    EXPECT_EQ(names.size(), 8u);
    EXPECT_STREQ(n::rdma_reject_name(static_cast<n::RdmaRejectStatus>(0)), "unknown reason");
}
