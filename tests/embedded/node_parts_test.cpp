// node_parts_test.cpp: addresses of nodes as people write them, and the file of what a daemon found at them.
#include "embedded/known_ssds.hpp"
#include "embedded/node_array.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

using namespace gnstor;
using namespace gnstor::embedded;
namespace fs = std::filesystem;

namespace node_parts_test {

TEST(NodeAddress, IsAnIpAddressWithOrWithoutAPort) {
    EXPECT_EQ(*parse_node_address("10.0.0.1"), (NodeAddress{"10.0.0.1", "4420"}));
    EXPECT_EQ(*parse_node_address("10.0.0.1:5000"), (NodeAddress{"10.0.0.1", "5000"}));
    EXPECT_EQ(*parse_node_address("fd00::1"), (NodeAddress{"fd00::1", "4420"}));
    EXPECT_EQ(*parse_node_address("[fd00::1]"), (NodeAddress{"fd00::1", "4420"}));
    EXPECT_EQ(*parse_node_address("[fd00::1]:5000"), (NodeAddress{"fd00::1", "5000"}));
    for (const char* bad :
         {"", ":", ":4420", "host", "host:4420", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:x",
          "10.0.0.1:1 ", "[fd00::1", "[fd00::1]4420", "[]:1", "10.0.0.1,10.0.0.2", "10.0.0.1 "}) {
        const auto refused = parse_node_address(bad);
        ASSERT_FALSE(refused.ok()) << bad;
        EXPECT_EQ(refused.error().code, Errc::kInvalidArgument) << bad;
    }
}

class KnownSsds : public ::testing::Test {
  protected:
    void SetUp() override {
        char folder[] = "/tmp/gnstor-known-XXXXXX";
        ASSERT_NE(::mkdtemp(folder), nullptr);
        dir = folder;
        file = dir / "nodes.json";
    }
    void TearDown() override { fs::remove_all(dir); }
    fs::path dir, file;
};

TEST_F(KnownSsds, AreReadAsTheyWereWritten) {
    EXPECT_TRUE(read_known(file)->empty()) << "no file: none are known";
    daemon::SsdIdentity ssd;
    ssd.uuid = {1, 2, 3, 4};
    ssd.nic_address = "10.0.1.7";  // not the node's own
    ssd.service = "4420";
    ssd.subsystem_nqn = "nqn.2026-11.io.gnstor:ssd:x";
    ssd.serial = "GN \"quoted\"";
    ssd.capacity_blocks = 1ull << 40;
    const std::vector<KnownNode> nodes = {{{"10.0.0.1", "4420"}, {ssd, ssd}}, {{"fd00::1", "5000"}, {}}};
    ASSERT_TRUE(write_known(file, nodes).ok());
    const auto read = read_known(file);
    ASSERT_TRUE(read.ok()) << read.error().message;
    ASSERT_EQ(read->size(), 2u);
    EXPECT_EQ(read->at(1).where, (NodeAddress{"fd00::1", "5000"}));
    ASSERT_EQ(read->at(0).ssds.size(), 2u);
    const daemon::SsdIdentity& back = read->at(0).ssds[1];
    EXPECT_EQ(back.uuid, ssd.uuid);
    EXPECT_EQ(back.nic_address, ssd.nic_address);
    EXPECT_EQ(back.service, ssd.service);
    EXPECT_EQ(back.subsystem_nqn, ssd.subsystem_nqn);
    EXPECT_EQ(back.serial, ssd.serial);
    EXPECT_EQ(back.capacity_blocks, ssd.capacity_blocks);
    EXPECT_EQ(std::distance(fs::directory_iterator(dir), fs::directory_iterator()), 1) << "remains";
}

TEST_F(KnownSsds, AnInvalidFileIsRefusedWithAnErrorThatNamesIt) {
    for (const char* text : {"", "{", "[]", "{}", R"({"nodes": 1})", R"({"nodes": [{}]})",
                             R"({"nodes": [{"address": "a", "port": "1", "ssds": [{"uuid": "x"}]}]})",
                             R"({"nodes": [{"address": 1, "port": "1", "ssds": []}]})"}) {
        std::ofstream(file) << text;
        const auto refused = read_known(file);
        ASSERT_FALSE(refused.ok()) << text;
        EXPECT_EQ(refused.error().code, Errc::kCorrupt);
        EXPECT_NE(refused.error().message.find("nodes.json"), std::string::npos);
    }
    EXPECT_FALSE(write_known(dir / "no" / "folder", {}).ok());
}

}  // namespace node_parts_test
