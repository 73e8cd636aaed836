// log_pages_test.cpp: what a host reads in a drive's log pages is its own: addresses name volumes and
// clients.
#include "loop_rig.hpp"

#include <gnstor/nvme/identify.hpp>

namespace gnstor::nvmf {
namespace {

using nvme::IoOpcode;
using nvme::Status;

constexpr nvme::ClientId kStranger = kWriter + 1;

template <class Page>
Page log_page(HostController& host, nvme::LogPage which) {
    nvme::Command c{};
    c.opcode = static_cast<std::uint8_t>(nvme::AdminOpcode::kGetLogPage);
    c.flags = nvme::kFlagsSgl;
    c.namespace_id = 0xFFFFFFFFu;
    c.cdw10 = static_cast<std::uint32_t>(which) | ((sizeof(Page) / 4 - 1) << 16);
    Page page{};
    const auto bytes = std::as_writable_bytes(std::span(&page, 1));
    const auto answer = host.admin(c, bytes, Direction::kToHost);
    EXPECT_TRUE(answer.ok() && nvme::ok(answer->result()));
    return page;
}
using ErrorPage = std::array<nvme::ErrorLogEntry, 16>;
ErrorPage errors_of(HostController& host) {
    return log_page<ErrorPage>(host, nvme::LogPage::kError);
}
/// Low 64 bits of the health log's number of errors.
std::uint64_t errors_counted(HostController& host) {
    const auto health = log_page<nvme::HealthLog>(host, nvme::LogPage::kHealth);
    std::uint64_t low = 0;
    std::memcpy(&low, &health.error_entries, sizeof low);
    return low;
}

TEST(LogPages, AHostReadsItsOwnErrorsAndTheAdminHostThoseOfAll) {
    LoopRig rig;
    rig.make_volume();
    auto writer = rig.connect(rig.host()).value();
    auto stranger = rig.connect(rig.host(client_host_nqn(kStranger))).value();
    auto admin = rig.connect(rig.host(std::string{kAdminHostNqn})).value();
    IoClient its(rig.host_nic(), *writer, 1);
    IoClient others(rig.host_nic(), *stranger, 3);
    const auto beyond = fields(kCapacityBlocks, 1);
    ASSERT_EQ(its.status(io(IoOpcode::kRead, beyond, its.buffer.sgl(0, 4096))), Status::kLbaOutOfRange);
    ASSERT_EQ(its.status(io(IoOpcode::kRead, beyond, its.buffer.sgl(0, 4096))), Status::kLbaOutOfRange);

    EXPECT_EQ(errors_of(*stranger)[0].error_count, 0u)
        << "the log shows VID, client and block of another host's command";
    EXPECT_EQ(errors_counted(*stranger), 0u);
    const ErrorPage mine = errors_of(*writer);
    EXPECT_EQ(mine[0].error_count, 2u);
    EXPECT_EQ(mine[0].sq_id, 1u);
    EXPECT_EQ(mine[0].command_id, 101u) << "as the host numbered it (IoClient)";
    EXPECT_EQ(mine[1].command_id, 100u);
    EXPECT_EQ(nvme::from_field(static_cast<std::uint16_t>(mine[0].status >> 1)), Status::kLbaOutOfRange);
    EXPECT_EQ(mine[0].lba >> 48, kVolume);
    EXPECT_EQ(mine[2].error_count, 0u);
    EXPECT_EQ(errors_counted(*writer), 2u);

    nvme::IoFields theirs = fields(5, 1);
    theirs.client = kStranger;
    ASSERT_EQ(others.status(io(IoOpcode::kRead, theirs, others.buffer.sgl(0, 4096))), Status::kAccessDenied);
    EXPECT_EQ(errors_of(*writer)[0].error_count, 2u);
    const ErrorPage of_stranger = errors_of(*stranger);
    EXPECT_EQ(of_stranger[0].error_count, 1u) << "the error count must not reveal commands of others";
    EXPECT_EQ(of_stranger[0].sq_id, 3u);

    const ErrorPage all = errors_of(*admin);
    EXPECT_EQ(all[0].error_count, 3u);
    EXPECT_EQ((all[0].lba >> 32) & 0xFFFFu, kStranger);
    EXPECT_EQ((all[2].lba >> 32) & 0xFFFFu, kWriter);
    EXPECT_EQ(errors_counted(*admin), 3u);
}

TEST(LogPages, ANewControllerReadsNoErrorLogOfAnEarlierOne) {
    LoopRig rig;
    rig.make_volume();
    std::uint16_t first_id = 0;
    {
        auto writer = rig.connect(rig.host()).value();
        first_id = writer->controller_id();
        IoClient client(rig.host_nic(), *writer, 1);
        ASSERT_EQ(client.status(io(IoOpcode::kRead, fields(kCapacityBlocks, 1), client.buffer.sgl(0, 4096))),
                  Status::kLbaOutOfRange);
        EXPECT_EQ(errors_counted(*writer), 1u);
    }
    ASSERT_TRUE(eventually([&] { return rig.target().connections_open() == 0; }));
    auto stranger = rig.connect(rig.host(client_host_nqn(kStranger))).value();
    EXPECT_NE(stranger->controller_id(), first_id);
    EXPECT_EQ(errors_of(*stranger)[0].error_count, 0u);
    auto admin = rig.connect(rig.host(std::string{kAdminHostNqn})).value();
    EXPECT_EQ(errors_of(*admin)[0].error_count, 1u) << "the drive has not forgotten";
}

}  // namespace
}  // namespace gnstor::nvmf
