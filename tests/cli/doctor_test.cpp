// doctor_test.cpp: every finding of `gnstor doctor` appears where its cause is, and goes with it: on facts
// that are made, and on facts that are read out of a machine made of files.
#include "cli/doctor.hpp"
#include "cli/doctor_facts.hpp"
#include "ssd/flash/store_format.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>

using namespace gnstor;
using namespace gnstor::cli;
namespace fs = std::filesystem;

namespace {

/// A machine where nothing stands in the way.
DoctorFacts healthy() {
    DoctorFacts f;
    f.ports = {{"10.0.0.1"}};
    f.program = "/bin/gnstor";
    f.interfaces = {{"eth0", 9000, false}};
    f.locked_memory = ~0ull;
    f.nft = "";
    f.iptables = "-P INPUT ACCEPT\n";
    f.transparent_pages = "madvise";
    f.receive_buffer_max = f.send_buffer_max = 64u << 20;
    f.gpu_device = f.built_for_gpu = true;
    f.gpu_driver = "580.65.06";
    f.nvcc = "/usr/local/cuda/bin/nvcc";
    f.program_version = "1.2.3+c0ffee0";
    f.daemon_version = "1.2.3+c0ffee0";
    f.oldest_store_format = 2;
    f.store_format = 3;
    f.directory = "/array";
    f.stores = {{"/array/ssd-0.store", true, 2, 1u << 20}};
    f.free_bytes = 100ull << 30;
    return f;
}

DoctorFinding finding(const DoctorFacts& facts, const std::string& check) {
    for (const DoctorFinding& f : diagnose(facts))
        if (f.check == check) return f;
    ADD_FAILURE() << "there is no check " << check;
    return {};
}

/// The one check finds it, with a remedy and these words; all others find the healthy machine.
void expect_found(const DoctorFacts& facts, const std::string& check, Verdict verdict,
                  const std::vector<std::string>& words) {
    for (const DoctorFinding& f : diagnose(facts)) {
        if (f.check != check) {
            EXPECT_EQ(f.verdict, Verdict::kGood) << f.check << ": " << f.found;
            continue;
        }
        EXPECT_EQ(f.verdict, verdict) << f.found;
        EXPECT_FALSE(f.remedy.empty()) << f.found;
        for (const std::string& word : words)
            EXPECT_NE((f.found + "\n" + f.remedy).find(word), std::string::npos)
                << word << " is not in: " << f.found << " / " << f.remedy;
    }
}

TEST(Doctor, FindsNothingOnAHealthyMachine) {
    const auto all = diagnose(healthy());
    EXPECT_EQ(all.size(), 12u);
    for (const DoctorFinding& f : all) {
        EXPECT_EQ(f.verdict, Verdict::kGood) << f.check << ": " << f.found;
        EXPECT_TRUE(f.remedy.empty()) << f.check;
        EXPECT_FALSE(f.found.empty()) << f.check;
    }
}

TEST(Doctor, NamesTheKernelDeviceThatHasThePort) {
    DoctorFacts f = healthy();
    f.ports[0].bind_error = EADDRINUSE;
    f.rdma_devices = {{"rxe0", "eth0", true, true}};
    expect_found(f, "udp-port", Verdict::kProblem, {"10.0.0.1", "rxe0", "rdma link delete rxe0"});
    f.rdma_devices.clear();
    expect_found(f, "udp-port", Verdict::kProblem, {"this user cannot see", "rdma link"});
}

TEST(Doctor, NamesTheProcessThatHoldsThePortUnlessItIsAGnstorProcess) {
    DoctorFacts f = healthy();
    f.ports[0] = {"10.0.0.1", EADDRINUSE, true, 4711, "tcpdumpd"};
    expect_found(f, "udp-port", Verdict::kProblem, {"tcpdumpd", "4711"});
    f.ports[0].holder = "gnstor";
    EXPECT_EQ(finding(f, "udp-port").verdict, Verdict::kGood);
    // One address of several that is ours hides no other.
    f.ports.push_back({"10.0.0.2", EADDRINUSE, true, 12, "other"});
    expect_found(f, "udp-port", Verdict::kProblem, {"10.0.0.2", "other"});
}

TEST(Doctor, ReportsAnAddressThatThisMachineDoesNotHave) {
    DoctorFacts f = healthy();
    f.ports[0].bind_error = EADDRNOTAVAIL;
    expect_found(f, "udp-port", Verdict::kProblem, {"not an address of this machine", "ip address"});
    f.ports[0].bind_error = EACCES;
    expect_found(f, "udp-port", Verdict::kProblem, {"cannot be bound"});
}

TEST(Doctor, WarnsIfPacketsOfLinuxHostsCannotBeVerified) {
    DoctorFacts f = healthy();
    f.raw_socket_error = EPERM;
    expect_found(f, "raw-socket", Verdict::kWarning,
                 {"rxe", "ICRC", "setcap cap_net_raw+ep /bin/gnstor", "as root"});
    f.raw_socket_error = EPROTONOSUPPORT;
    expect_found(f, "raw-socket", Verdict::kWarning, {"not supported", "raw IPv4 sockets"});
    f.ports = {{"fd00::1"}};
    EXPECT_EQ(finding(f, "raw-socket").verdict, Verdict::kGood) << "IPv6 needs no raw socket";
    f.ports.push_back({"10.0.0.1"});
    EXPECT_EQ(finding(f, "raw-socket").verdict, Verdict::kWarning);
}

TEST(Doctor, WarnsOfARoceAdapterButNotOfInfiniband) {
    DoctorFacts f = healthy();
    f.rdma_devices = {{"mlx5_0", "ens1", false, true}};
    expect_found(f, "roce-device", Verdict::kWarning, {"mlx5_0", "ens1"});
    f.rdma_devices[0].roce = false;
    EXPECT_EQ(finding(f, "roce-device").verdict, Verdict::kGood);
}

TEST(Doctor, RequiresAnMtuThatHoldsABlock) {
    DoctorFacts f = healthy();
    f.interfaces.push_back({"eth1", 1500, false});
    expect_found(f, "mtu", Verdict::kWarning,
                 {"eth1", "1500", "packets carry 1024 bytes", "ip link set eth1 mtu"});
    f.interfaces[1].mtu = 3000;
    expect_found(f, "mtu", Verdict::kWarning, {"packets carry 2048 bytes"});
    f.interfaces[1].mtu = 1000;
    expect_found(f, "mtu", Verdict::kProblem, {"no RoCE packet"});
    f.interfaces.clear();
    expect_found(f, "mtu", Verdict::kUnknown, {"--address"});
}

TEST(Doctor, FindsTheRuleThatDropsThePort) {
    DoctorFacts f = healthy();
    f.iptables = "-P INPUT ACCEPT\n-A INPUT -p udp -m udp --dport 4791 -j DROP\n";
    expect_found(f, "firewall", Verdict::kProblem, {"iptables", "-j ACCEPT"});
    f.iptables.reset();
    f.nft =
        "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; policy drop;\n"
        "\t\tct state established accept\n\t}\n}\n";
    expect_found(f, "firewall", Verdict::kProblem,
                 {"nftables", "no rule accepts UDP port 4791", "nft insert rule"});
    f.nft.reset();
    expect_found(f, "firewall", Verdict::kUnknown, {"as root"});
    f.iptables = "-P INPUT ACCEPT\n";
    f.ip6tables = "-P INPUT DROP\n";
    expect_found(f, "firewall", Verdict::kProblem, {"ip6tables drops packets that", "'ip6tables -I INPUT"});
}

TEST(Doctor, RequiresSocketBuffersForABurst) {
    DoctorFacts f = healthy();
    f.receive_buffer_max = 212992;
    expect_found(f, "socket-buffers", Verdict::kWarning, {"rmem_max", "208 KiB", "sysctl -w"});
    f = healthy();
    f.send_buffer_max = 212992;
    expect_found(f, "socket-buffers", Verdict::kWarning, {"wmem_max"});
    f.send_buffer_max.reset();
    expect_found(f, "socket-buffers", Verdict::kUnknown, {"sysctl"});
}

TEST(Doctor, RequiresEnoughLockableMemory) {
    DoctorFacts f = healthy();
    f.locked_memory = 8u << 20;
    expect_found(f, "locked-memory", Verdict::kWarning, {"8 MiB", "ulimit -l", "LimitMEMLOCK"});
    f.may_lock_anyway = true;
    EXPECT_EQ(finding(f, "locked-memory").verdict, Verdict::kGood);
    f.locked_memory.reset();
    expect_found(f, "locked-memory", Verdict::kUnknown, {"ulimit -l"});
}

TEST(Doctor, ReportsWhichPoolsGetHugePages) {
    DoctorFacts f = healthy();
    f.huge_pages = f.huge_pages_free = 0;
    f.shared_pages = "advise";
    const auto said = [&](const char* words) {
        EXPECT_NE(finding(f, "huge-pages").found.find(words), std::string::npos)
            << words << " is not in: " << finding(f, "huge-pages").found;
    };
    said("none reserved (vm.nr_hugepages)");
    said("of shared memory: advise (pools that processes share have small pages");
    f.huge_pages = 64;
    f.huge_pages_free = 3;
    f.shared_pages = "within_size";
    said("reserved 64, free 3");
    said("within_size (pools that processes share may have them)");
}

TEST(Doctor, RecommendsHugePages) {
    DoctorFacts f = healthy();
    f.transparent_pages = "never";
    expect_found(f, "huge-pages", Verdict::kWarning, {"madvise"});
    f.transparent_pages.reset();
    expect_found(f, "huge-pages", Verdict::kWarning, {"CONFIG_TRANSPARENT_HUGEPAGE"});
}

TEST(Doctor, ReportsWhatAGpuLacks) {
    DoctorFacts f = healthy();
    f.gpu_driver.clear();
    expect_found(f, "gpu", Verdict::kProblem, {"no driver", "modprobe"});
    f.gpu_device = false;
    expect_found(f, "gpu", Verdict::kWarning, {"CPU lanes"});
    f.gpu_driver = "580.1";
    expect_found(f, "gpu", Verdict::kProblem, {"580.1", "no device node"});
    f.gpu_device = true;
    f.built_for_gpu = false;
    expect_found(f, "gpu", Verdict::kWarning, {"GN_CUDA=ON"});
    f = healthy();
    f.nvcc.clear();
    expect_found(f, "nvcc", Verdict::kWarning, {"no nvcc", "./run"});
}

TEST(Doctor, ReportsProgramsOfDifferentVersions) {
    DoctorFacts f = healthy();
    f.daemon_version = "1.2.3+0ddba11";
    expect_found(f, "versions", Verdict::kProblem, {"1.2.3+0ddba11", "1.2.3+c0ffee0", "gnstor down"});
    f.daemon_version.reset();
    EXPECT_EQ(finding(f, "versions").verdict, Verdict::kGood);
    f.daemon_trouble = "gnstord does not answer";
    expect_found(f, "versions", Verdict::kProblem, {"does not answer"});
    f = healthy();
    for (const std::uint32_t known : {2u, 3u}) {
        f.stores[0].format_version = known;
        EXPECT_EQ(finding(f, "versions").verdict, Verdict::kGood) << known;
    }
    f.stores[0].format_version = 4;
    expect_found(f, "versions", Verdict::kProblem, {"ssd-0.store", "format 4", "newer program"});
    f.stores[0].format_version = 1;
    expect_found(f, "versions", Verdict::kProblem, {"format 1", "copy its data out"});
    f.stores[0].is_store = false;
    expect_found(f, "versions", Verdict::kProblem, {"is not the store of an SSD"});
}

TEST(Doctor, NamesANodeOfAnotherVersionAndIgnoresNodesOfUnknownVersion) {
    DoctorFacts f = healthy();
    f.parts = {{"node-0 at 10.0.0.1", "1.2.3"}, {"the gateway of disk at 10.0.0.3", "1.2.3"}};
    EXPECT_NE(finding(f, "versions").found.find("2 nodes or gateways too"), std::string::npos);
    f.parts.push_back({"node-1 at 10.0.0.2", "1.1.0"});
    expect_found(
        f, "versions", Verdict::kProblem,
        {"of version 1.2.3", "node-1 at 10.0.0.2 of 1.1.0", "restart the processes of other versions"});
    EXPECT_EQ(finding(f, "versions").found.find("node-0"), std::string::npos)
        << "only the node of another version may be named";
    f.daemon_version = "1.0.0";
    expect_found(f, "versions", Verdict::kProblem, {"gnstord of 1.0.0", "node-1"});
    f.daemon_version.reset();
    f.parts[2].version.clear();
    expect_found(f, "versions", Verdict::kUnknown, {"node-1", "does not report its version", "restart it"});
    f.parts[0].version = "1.2.2";
    expect_found(f, "versions", Verdict::kProblem, {"node-0 at 10.0.0.1 of 1.2.2"});
}

TEST(Doctor, RequiresDiskSpaceForTheFullSizeOfStores) {
    DoctorFacts f = healthy();
    f.free_bytes = 1u << 20;
    expect_found(f, "free-space", Verdict::kProblem, {"1 MiB free", "/array"});
    f.free_bytes = 1u << 30;
    f.stores[0].not_yet_on_disk = 2ull << 30;
    expect_found(f, "free-space", Verdict::kWarning, {"2 GiB", "Capacity Exceeded"});
    f.daemon_read_only = "the array is read-only: the disk is full";
    expect_found(f, "free-space", Verdict::kProblem, {"gnstord", "read-only", "free disk space"});
    f.daemon_read_only.clear();
    f.free_bytes.reset();
    f.free_trouble = "no such device";
    expect_found(f, "free-space", Verdict::kProblem, {"no such device", "--dir"});
}

/// A machine of files in a folder.
class DoctorFactsTest : public ::testing::Test {
  protected:
    void SetUp() override {
        char folder[] = "/tmp/gnstor-doctor-XXXXXX";
        ASSERT_NE(::mkdtemp(folder), nullptr);
        root = folder;
        sources.root = root;
        sources.bind_roce_port = [this](const std::string& address) { return bind_errors[address]; };
        sources.open_raw_socket = [this] { return raw_socket_error; };
        sources.local_addresses = [] {
            return std::vector<LocalAddress>{{"lo", "127.0.0.1", true}, {"eth7", "10.0.0.1", false}};
        };
        sources.run = [this](const std::vector<std::string>& command) { return outputs[command.front()]; };
        sources.locked_memory = [] { return std::pair(std::optional<std::uint64_t>(1000), false); };
        sources.find_nvcc = [] { return "/n/nvcc"; };
        sources.free_bytes = [](const fs::path&, std::string&) { return std::optional<std::uint64_t>(77); };
    }
    void TearDown() override { fs::remove_all(root); }
    void put(const std::string& file, const std::string& text) const {
        fs::create_directories((root / file).parent_path());
        std::ofstream(root / file, std::ios::binary) << text;
    }
    [[nodiscard]] DoctorFacts read(const std::vector<std::string>& addresses = {}) const {
        return read_facts(sources, addresses, root / "array");
    }

    fs::path root;
    DoctorSources sources;
    std::map<std::string, int> bind_errors;
    int raw_socket_error = 0;
    std::map<std::string, std::optional<std::string>> outputs;
};

TEST_F(DoctorFactsTest, WithoutProcAndSysAllFactsAreUnknownAndNoReadFails) {
    const DoctorFacts f = read();
    ASSERT_EQ(f.ports.size(), 1u);
    EXPECT_EQ(f.ports[0].address, "0.0.0.0");
    EXPECT_FALSE(f.nft || f.iptables || f.transparent_pages || f.receive_buffer_max || f.send_buffer_max);
    EXPECT_TRUE(f.rdma_devices.empty() && f.interfaces.empty() && f.stores.empty() && f.gpu_driver.empty());
    EXPECT_FALSE(f.gpu_device);
    EXPECT_EQ(f.free_bytes, 77u);
    EXPECT_EQ(diagnose(f).size(), 12u);
}

TEST_F(DoctorFactsTest, ReadsKernelTables) {
    put("proc/sys/net/core/rmem_max", "212992\n");
    put("proc/sys/net/core/wmem_max", "4194304\n");
    put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    put("sys/class/net/eth7/mtu", "1500\n");
    put("sys/class/net/lo/mtu", "65536\n");
    put("sys/class/infiniband/rxe0/ports/1/link_layer", "Ethernet\n");
    put("sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0", "eth7\n");
    put("sys/class/infiniband/mlx5_0/device/vendor", "0x15b3\n");
    put("sys/class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n");
    put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul\n");
    put("dev/nvidiactl", "");
    put("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size advise [never] deny force\n");
    put("proc/meminfo", "MemTotal:  9 kB\nHugePages_Total:      64\nHugePages_Free:        3\n");
    outputs["ip6tables"] = "six";
    outputs["nft"] = "table";
    const DoctorFacts f = read();
    EXPECT_EQ(f.receive_buffer_max, 212992u);
    EXPECT_EQ(f.send_buffer_max, 4194304u);
    EXPECT_EQ(f.transparent_pages, "madvise");
    EXPECT_EQ(f.shared_pages, "never");
    EXPECT_EQ(f.huge_pages, 64u);
    EXPECT_EQ(f.huge_pages_free, 3u);
    EXPECT_EQ(f.ip6tables, "six");
    EXPECT_EQ(read({"10.0.0.1", "fd00::1"}).ip6tables, "six");
    EXPECT_FALSE(read({"10.0.0.1"}).ip6tables) << "ip6tables must not be read if there is no IPv6 address";
    ASSERT_EQ(f.interfaces.size(), 1u) << "for the wildcard address, all interfaces except the loopback";
    EXPECT_EQ(f.interfaces[0].name, "eth7");
    EXPECT_EQ(f.interfaces[0].mtu, 1500u);
    ASSERT_EQ(read({"127.0.0.9"}).interfaces.size(), 1u);
    EXPECT_EQ(read({"127.0.0.9"}).interfaces[0].mtu, 65536u);
    ASSERT_EQ(f.rdma_devices.size(), 2u);
    EXPECT_TRUE(!f.rdma_devices[0].software && !f.rdma_devices[0].roce);
    EXPECT_TRUE(f.rdma_devices[1].software && f.rdma_devices[1].roce);
    EXPECT_EQ(f.rdma_devices[1].interface, "eth7");
    EXPECT_EQ(f.gpu_driver, "580.65.06");
    EXPECT_TRUE(f.gpu_device);
    EXPECT_EQ(f.nft, "table");
    EXPECT_FALSE(f.iptables);
}

TEST_F(DoctorFactsTest, ReportsWhetherARawSocketMayBeOpened) {
    EXPECT_EQ(read().raw_socket_error, 0);
    EXPECT_EQ(read().program, "gnstor") << "without /proc the path of the program is unknown";
    raw_socket_error = EPERM;
    fs::create_directories(root / "proc/self");
    fs::create_symlink("/opt/gnstor", root / "proc/self/exe");
    EXPECT_EQ(read().raw_socket_error, EPERM);
    EXPECT_EQ(read().program, "/opt/gnstor");
}

TEST_F(DoctorFactsTest, FindsTheProcessBehindThePort) {
    const std::string heading =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
    const std::string tail = " 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 ";
    // 12B7 is 4791; the first socket is of another port.
    put("proc/net/udp",
        heading + "  1: 0100007F:0035" + tail + "111 2\n  2: 0100007F:12B7" + tail + "222 2\n");
    put("proc/333/comm", "holder\n");
    fs::create_directories(root / "proc/333/fd");
    fs::create_symlink("socket:[111]", root / "proc/333/fd/3");
    fs::create_symlink("socket:[222]", root / "proc/333/fd/4");
    bind_errors["127.0.0.1"] = EADDRINUSE;
    DoctorFacts f = read({"127.0.0.1"});
    EXPECT_TRUE(f.ports[0].holder_known);
    EXPECT_EQ(f.ports[0].holder_pid, 333);
    EXPECT_EQ(f.ports[0].holder, "holder");
    fs::remove(root / "proc/333/fd/4");
    EXPECT_FALSE(read({"127.0.0.1"}).ports[0].holder_known) << "a socket of the kernel has no process";
    put("proc/net/udp", "\n \n x y\nsl local:\n");
    EXPECT_FALSE(read({"127.0.0.1"}).ports[0].holder_known);
}

TEST_F(DoctorFactsTest, ThePortHolderIsLookedUpByAddressAndAForeignProcessIsReportedFirst) {
    const std::string tail = " 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 ";
    const auto tables = [&](const std::string& v4, const std::string& v6) {
        put("proc/net/udp", "heading\n" + v4);
        put("proc/net/udp6", "heading\n" + v6);
    };
    const auto process = [&](const std::string& pid, const std::string& name, const std::string& inode) {
        put("proc/" + pid + "/comm", name + "\n");
        fs::create_directories(root / "proc" / pid / "fd");
        fs::create_symlink("socket:[" + inode + "]", root / "proc" / pid / "fd/3");
    };
    const auto holder = [&](const std::string& address) {
        bind_errors[address] = EADDRINUSE;
        const PortFacts port = read({address}).ports[0];
        return port.holder_known ? port.holder : "";
    };
    process("111", "gnstor", "11");
    process("222", "stranger", "22");
    const std::string ours = "1: 0100007F:12B7" + tail + "11 2\n",
                      other = "2: 0900007F:12B7" + tail + "22 2\n";
    tables(ours + other, "");
    EXPECT_EQ(holder("127.0.0.1"), "gnstor");
    EXPECT_EQ(holder("127.0.0.9"), "stranger");
    EXPECT_EQ(holder("127.0.0.5"), "") << "no process holds the port";
    EXPECT_EQ(holder("0.0.0.0"), "stranger") << "a GNStor process must not hide a foreign one";
    tables(ours, "2: 00000000000000000000000000000000:12B7" + tail + "22 2\n");
    EXPECT_EQ(holder("127.0.0.5"), "stranger") << "a socket on the wildcard address also holds this address";
    tables(ours, "2: 000000FD000000000000000001000000:12B7" + tail + "22 2\n");
    EXPECT_EQ(holder("fd00::1"), "stranger");
    EXPECT_EQ(holder("fd00::2"), "");
    EXPECT_EQ(holder("127.0.0.1"), "gnstor");
    fs::remove(root / "proc/222/fd/3");
    EXPECT_EQ(holder("0.0.0.0"), "") << "a process that cannot be inspected has no name";
}

TEST_F(DoctorFactsTest, ReadsTheSuperblocksOfStores) {
    ssd::Superblock head{};
    std::memcpy(head.magic, ssd::kStoreMagic.data(), sizeof head.magic);
    head.format_version = 9;
    put("array/ssd-0.store", std::string(reinterpret_cast<const char*>(&head), sizeof head));
    put("array/ssd-1.store", "short");
    put("array/other", "x");
    fs::resize_file(root / "array/ssd-0.store", 1u << 20);
    const DoctorFacts f = read();
    ASSERT_EQ(f.stores.size(), 2u);
    EXPECT_TRUE(f.stores[0].is_store);
    EXPECT_EQ(f.stores[0].format_version, 9u);
    EXPECT_GT(f.stores[0].not_yet_on_disk, 900'000u);
    EXPECT_FALSE(f.stores[1].is_store);
}

TEST(DoctorMachine, AProgramThatHangsOrFailsHasNoOutput) {
    using namespace std::chrono_literals;
    EXPECT_EQ(output_of({"echo", "word"}, 10s), "word\n");
    EXPECT_FALSE(output_of({"false"}, 10s));
    EXPECT_FALSE(output_of({"no-such-program-of-gnstor"}, 10s));
    EXPECT_FALSE(output_of({"sleep", "1000"}, 50ms));
}

TEST(DoctorMachine, APortInUseIsReportedAsInUse) {
    const DoctorSources m = machine();
    EXPECT_EQ(m.bind_roce_port("192.0.2.77"), EADDRNOTAVAIL);
    EXPECT_EQ(m.bind_roce_port("no address"), EADDRNOTAVAIL);
    const auto mine = m.local_addresses();
    EXPECT_FALSE(mine.empty());
    std::string trouble;
    EXPECT_TRUE(m.free_bytes("/tmp/not/yet/there", trouble)) << trouble;
}

}  // namespace
