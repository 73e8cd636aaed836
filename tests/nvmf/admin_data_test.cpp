// admin_data_test.cpp: what an admin command brings is fetched once, into memory of the target's own, or not
// at all: its sender may change it between two looks.
#include "loop_rig.hpp"
#include "stock_host.hpp"

namespace gnstor::nvmf {
namespace {

TEST(AdminData, DataLargerThanTheTargetsBufferIsNotFetched) {
    RigOptions o;
    o.target.ports = {{"4420", ""}};
    LoopRig rig(o);
    StockOptions stock;
    stock.subsystem_nqn = rig.target().subsystem_nqn(0);
    stock.host_nqn = std::string{kAdminHostNqn};
    StockHost host(rig.host_nic(), stock);
    ASSERT_TRUE(nvme::ok(host.connect_admin().result()));
    host.enable();
    Buffer memory(rig.host_nic(), 2u << 20);
    const auto run = [&](std::uint8_t opcode, std::uint32_t bytes) {
        nvme::Command command = stock_command(opcode);
        command.data = memory.sgl(0, bytes);
        EXPECT_TRUE(host.admin().try_post(command));
        return await_response(host.admin().queue(), simt::now_ns() + 100 * kSecond).value().result();
    };
    // Firmware download, and a vendor command that there is not: of any length.
    for (const std::uint8_t opcode : {0x11, 0xFD}) {
        const std::uint64_t before = rig.node_nic().counters().rdma_reads;
        const nvme::Status of_a_page = run(opcode, 4096);
        EXPECT_EQ(rig.node_nic().counters().rdma_reads, before + 1) << "opcode " << int{opcode};
        EXPECT_FALSE(nvme::ok(of_a_page));
        for (const std::uint32_t bytes : {4097u, 8192u, 1u << 20})
            EXPECT_EQ(run(opcode, bytes), of_a_page) << "opcode " << int{opcode} << ", " << bytes << " bytes";
        EXPECT_EQ(rig.node_nic().counters().rdma_reads, before + 1) << "opcode " << int{opcode};
    }
}

}  // namespace
}  // namespace gnstor::nvmf
