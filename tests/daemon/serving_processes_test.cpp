// serving_processes_test.cpp: the processes behind sockets are found, and no others.
#include "daemon/remote/serving_processes.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

using namespace gnstor;
using namespace gnstor::daemon;

namespace {

constexpr char kTable[] =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref\n"
    " 1234: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 4711 2 0 0\n"
    " 1235: 0200007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 4712 2 0 0\n"
    " 1236: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 4713 2 0 0\n"
    " 1237: 0000000000000000FFFF00000100007F:12B7 00000000:0000 07 0:0 0:0 0 0 0 4714\n";

TEST(ServingProcesses, SocketsAreThoseOfTheAddressAndPort) {
    using Inodes = std::set<std::uint64_t>;
    EXPECT_EQ(inodes_bound_to(kTable, {"127.0.0.1"}, 4791), Inodes{4711});
    EXPECT_EQ(inodes_bound_to(kTable, {"127.0.0.1", "127.0.0.2", "10.0.0.1"}, 4791), (Inodes{4711, 4712}));
    EXPECT_EQ(inodes_bound_to(kTable, {"127.0.0.1"}, 53), Inodes{4713});
    EXPECT_EQ(inodes_bound_to(kTable, {"::ffff:127.0.0.1"}, 4791), Inodes{4714});
    EXPECT_TRUE(inodes_bound_to(kTable, {}, 4791).empty());
    EXPECT_TRUE(inodes_bound_to(kTable, {"nonsense", ""}, 4791).empty());
}

TEST(ServingProcesses, InvalidLinesAreSkipped) {
    for (const char* table : {"", "\n\n", "a b c d e f g h i j k", " 1: 0100007F:12B7",
                              " 1: 0100007F:12B7 0 0 0 0 0 0 0 -1", " 1: 0100007F:12B7 0 0 0 0 0 0 0 4x"})
        EXPECT_TRUE(inodes_bound_to(table, {"127.0.0.1"}, 4791).empty()) << table;
}

TEST(ServingProcesses, UnixSocketsThatAreListenedAtAreFoundByTheirInode) {
    using Paths = std::vector<std::string>;
    constexpr char kUnix[] =
        "Num       RefCount Protocol Flags    Type St Inode Path\n"
        "000000000557866e: 00000002 00000000 00000000 0005 03 100 /a/node.shm\n"
        "000000003e627329: 00000002 00000000 00010000 0005 01 101 /a/node.shm\n"
        "000000003e627330: 00000002 00000000 00010000 0001 01 102 /with a space/x.sock\n"
        "000000003e627331: 00000002 00000000 00010000 0001 01 103\n"
        "000000003e627332: 00000002 00000000 nonsense 0001 01 104 /b\n"
        "000000003e627333: 00000002 00000000 00010000 0001 01 -1 /c\n"
        "a b\n\n";
    EXPECT_EQ(listening_paths(kUnix, {100, 101}), Paths{"/a/node.shm"});
    EXPECT_EQ(listening_paths(kUnix, {102, 103, 104}), Paths{"/with a space/x.sock"});
    EXPECT_EQ(listening_paths(kUnix, {}), Paths{});
    EXPECT_EQ(listening_paths("", {1}), Paths{});
    EXPECT_FALSE(shm_of_node("127.0.0.1", 1).has_value()) << "no process serves on that port";
}

TEST(ServingProcesses, ThisProcessIsFoundByItsUdpSocketWithItsCpuTime) {
    const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
    socklen_t bytes = sizeof at;
    ASSERT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &bytes), 0);
    const std::uint16_t port = ::ntohs(at.sin_port);
    const auto found = processes_bound_to({"127.0.0.1", "10.1.2.3"}, port);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].pid, ::getpid());
    EXPECT_FALSE(found[0].name.empty());
    EXPECT_GT(found[0].cpu_time_ns, 0u);
    EXPECT_LE(found[0].cpu_time_ns, processes_bound_to({"127.0.0.1"}, port)[0].cpu_time_ns);
    EXPECT_TRUE(processes_bound_to({"127.0.0.2"}, port).empty());
    ::close(fd);
    EXPECT_TRUE(processes_bound_to({"127.0.0.1"}, port).empty());
}

TEST(ServingProcesses, ThisProcessIsFoundByItsUnixSocket) {
    std::string name = (std::filesystem::temp_directory_path() / "gn-serving-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    const std::filesystem::path path = std::filesystem::path(name) / "s";
    EXPECT_TRUE(process_listening_at(path).empty());
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::strcpy(at.sun_path, path.c_str());
    ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
    ASSERT_EQ(::listen(fd, 4), 0);
    const auto found = process_listening_at(path);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].pid, ::getpid());
    ::close(fd);
    EXPECT_TRUE(process_listening_at(path).empty()) << "no process listens on a stale socket";
    EXPECT_TRUE(process_listening_at(std::string(300, 'x')).empty());
    std::filesystem::remove_all(name);
}

}  // namespace
