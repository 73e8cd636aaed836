// doctor.cpp: the checks, one function each.
#include "cli/doctor.hpp"

#include "cli/output.hpp"
#include "daemon/http/build_name.hpp"

#include <gnstor/base/units.hpp>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace gnstor::cli {
namespace {

using Findings = std::vector<DoctorFinding>;

constexpr std::uint64_t kLockedMemoryWanted = 64ull << 20;  // io_uring of direct stores, a client's pools
constexpr std::uint64_t kSocketBufferWanted = 8ull << 20;   // a window of every connection, at once
constexpr std::uint64_t kFreeBytesLeast = 256ull << 20;
// Around a RoCE payload: IPv6, UDP, BTH, RETH, ICRC, immediate data.
constexpr std::uint32_t kHeaderBytes = 40 + 8 + 12 + 16 + 4 + 4;
constexpr std::uint32_t kMtuLeast = 1024 + kHeaderBytes, kMtuBest = 4096 + kHeaderBytes;

std::string software_devices(const DoctorFacts& f) {
    std::vector<std::string> names;
    for (const RdmaDevice& d : f.rdma_devices)
        if (d.roce && d.software) names.push_back(d.name);
    return fmt::format("{}", fmt::join(names, ", "));
}

DoctorFinding port_in_use(const DoctorFacts& f, const PortFacts& port) {
    const std::string where = fmt::format("UDP port 4791 of {}", port.address);
    if (port.holder_known && port.holder.rfind("gnstor", 0) == 0)
        return {"udp-port", Verdict::kGood,
                fmt::format("{} is taken by {} (process {}), a part of an array", where, port.holder,
                            port.holder_pid),
                ""};
    if (port.holder_known)
        return {"udp-port", Verdict::kProblem,
                fmt::format("{} is taken by {} (process {})", where, port.holder, port.holder_pid),
                fmt::format("stop process {}, or give the array another address of this machine (--address, "
                            "--listen)",
                            port.holder_pid)};
    if (const std::string devices = software_devices(f); !devices.empty())
        return {"udp-port", Verdict::kProblem,
                fmt::format("{} is taken by the kernel's RoCE device {}", where, devices),
                fmt::format("remove it ('rdma link delete {}') or move it into a network namespace of its "
                            "own",
                            devices.substr(0, devices.find(',')))};
    return {"udp-port", Verdict::kProblem,
            fmt::format("{} is taken by the kernel or by a process that this user cannot see", where),
            "run as root 'ss -ulpn sport = 4791' and 'rdma link', or give the array another address"};
}

DoctorFinding check_port(const DoctorFacts& f) {
    for (const PortFacts& port : f.ports) {
        if (port.bind_error == 0) continue;
        if (port.bind_error == EADDRNOTAVAIL)
            return {"udp-port", Verdict::kProblem,
                    fmt::format("{} is not an address of this machine", port.address),
                    "choose an address that 'ip address' lists"};
        if (port.bind_error != EADDRINUSE)
            return {"udp-port", Verdict::kProblem,
                    fmt::format("UDP port 4791 of {} cannot be bound: {}", port.address,
                                std::strerror(port.bind_error)),
                    "choose an address that 'ip address' lists, and run as a user who may bind the port"};
        DoctorFinding finding = port_in_use(f, port);
        if (finding.verdict != Verdict::kGood || &port == &f.ports.back()) return finding;
    }
    std::vector<std::string> addresses;
    for (const PortFacts& port : f.ports) addresses.push_back(port.address);
    return {"udp-port", Verdict::kGood,
            fmt::format("UDP port 4791 is free on {}", fmt::join(addresses, ", ")), ""};
}

/// The ICRC covers the identification field of the IPv4 header, which only a raw socket can read
/// (wire/udp/socket.cpp).
DoctorFinding check_raw_socket(const DoctorFacts& f) {
    const bool v4 = std::any_of(f.ports.begin(), f.ports.end(), [](const PortFacts& port) {
        return port.address.find(':') == std::string::npos;
    });
    if (!v4)
        return {"raw-socket", Verdict::kGood, "not needed: IPv6 packets have no identification field", ""};
    if (f.raw_socket_error == 0)
        return {"raw-socket", Verdict::kGood,
                "this program may open a raw socket, so it accepts packets of Linux hosts (rxe)", ""};
    const std::string found = fmt::format(
        "no raw socket can be opened ({}): packets of Linux hosts (rxe) fail the ICRC check and are dropped; "
        "GNStor's own programs need no raw socket",
        std::strerror(f.raw_socket_error));
    if (f.raw_socket_error != EPERM && f.raw_socket_error != EACCES)
        return {"raw-socket", Verdict::kWarning, found,
                "check whether this kernel or container supports raw IPv4 sockets"};
    return {"raw-socket", Verdict::kWarning, found,
            fmt::format("if Linux hosts are to connect to a node or gateway of this machine, run 'setcap "
                        "cap_net_raw+ep {}', or run the program as root",
                        f.program)};
}

DoctorFinding check_rdma(const DoctorFacts& f) {
    for (const RdmaDevice& d : f.rdma_devices)
        if (d.roce && !d.software)
            return {"roce-device", Verdict::kWarning,
                    fmt::format("{} on {} is a RoCE adapter: it may take packets to UDP port 4791 before a "
                                "socket receives them",
                                d.name, d.interface.empty() ? "an unknown interface" : d.interface),
                    "give the array an address of another interface, or switch RoCE off there "
                    "('devlink dev param set … name enable_roce value false')"};
    return {"roce-device", Verdict::kGood, "no RoCE adapter can take packets before the socket receives them",
            ""};
}

DoctorFinding check_mtu(const DoctorFacts& f) {
    const InterfaceFacts* least = nullptr;
    for (const InterfaceFacts& i : f.interfaces)
        if (least == nullptr || i.mtu < least->mtu) least = &i;
    if (least == nullptr)
        return {"mtu", Verdict::kUnknown, "no network interface has the address",
                "name an address of this machine with --address"};
    const std::string found = fmt::format("{} has an MTU of {}", least->name, least->mtu);
    const std::string raise = fmt::format("'ip link set {} mtu {}', if the switch and the peers support it",
                                          least->name, std::max(kMtuBest, 4200u));
    if (least->mtu < kMtuLeast)
        return {"mtu", Verdict::kProblem, fmt::format("{}: no RoCE packet fits", found), raise};
    if (least->mtu < kMtuBest)
        return {"mtu", Verdict::kWarning,
                fmt::format("{}: RoCE packets carry {} bytes, so a block of 4096 bytes needs several packets",
                            found, least->mtu < 2048 + kHeaderBytes ? 1024 : 2048),
                raise};
    return {"mtu", Verdict::kGood, fmt::format("{}: a block fits into one packet", found), ""};
}

DoctorFinding check_firewall(const DoctorFacts& f) {
    const FirewallWord nft = f.nft ? read_nft(*f.nft) : FirewallWord::kNothing;
    const FirewallWord tables = f.iptables ? read_iptables(*f.iptables) : FirewallWord::kNothing;
    const FirewallWord tables6 = f.ip6tables ? read_iptables(*f.ip6tables) : FirewallWord::kNothing;
    for (const auto& [word, tool] :
         {std::pair(nft, "nftables"), std::pair(tables, "iptables"), std::pair(tables6, "ip6tables")}) {
        const std::string remedy =
            tool[0] == 'n'
                ? "accept it: 'nft insert rule inet filter input udp dport 4791 accept' (in your own table)"
                : fmt::format("accept it: '{} -I INPUT -p udp --dport 4791 -j ACCEPT'", tool);
        if (word == FirewallWord::kDropRule)
            return {"firewall", Verdict::kProblem, fmt::format("a rule of {} drops UDP port 4791", tool),
                    remedy};
        if (word == FirewallWord::kDropPolicy)
            return {
                "firewall", Verdict::kProblem,
                fmt::format("{} drops packets that no rule accepts, and no rule accepts UDP port 4791", tool),
                remedy};
    }
    if (!f.nft && !f.iptables && !f.ip6tables)
        return {
            "firewall", Verdict::kUnknown, "the firewall's rules cannot be read",
            "run 'gnstor doctor' as root, with nft or iptables installed; peers must reach UDP port 4791"};
    return {"firewall", Verdict::kGood, "no readable firewall rule drops UDP port 4791", ""};
}

DoctorFinding check_buffers(const DoctorFacts& f) {
    if (!f.receive_buffer_max || !f.send_buffer_max)
        return {"socket-buffers", Verdict::kUnknown, "net.core.rmem_max and wmem_max cannot be read",
                "look with 'sysctl net.core.rmem_max net.core.wmem_max'"};
    for (const auto& [name, value] :
         {std::pair("rmem_max", *f.receive_buffer_max), std::pair("wmem_max", *f.send_buffer_max)})
        if (value < kSocketBufferWanted)
            return {
                "socket-buffers", Verdict::kWarning,
                fmt::format("net.core.{} is {}: bursts are dropped and sent again", name,
                            format_bytes(value)),
                fmt::format(
                    "'sysctl -w net.core.{}={}', and the same in /etc/sysctl.d to keep it after a restart",
                    name, 2 * kSocketBufferWanted)};
    return {"socket-buffers", Verdict::kGood,
            fmt::format("receive {}, send {}", format_bytes(*f.receive_buffer_max),
                        format_bytes(*f.send_buffer_max)),
            ""};
}

DoctorFinding check_locked_memory(const DoctorFacts& f) {
    if (!f.locked_memory)
        return {"locked-memory", Verdict::kUnknown, "the limit of locked memory cannot be read",
                "look with 'ulimit -l'"};
    if (*f.locked_memory == ~0ull || f.may_lock_anyway)
        return {"locked-memory", Verdict::kGood,
                f.may_lock_anyway ? "this user may lock memory without a limit" : "without a limit", ""};
    const std::string found = fmt::format("at most {} may be locked", format_bytes(*f.locked_memory));
    if (*f.locked_memory >= kLockedMemoryWanted) return {"locked-memory", Verdict::kGood, found, ""};
    return {"locked-memory", Verdict::kWarning, found + ": stores with --direct may not open",
            "'ulimit -l unlimited', LimitMEMLOCK=infinity in the systemd unit, or a memlock line in "
            "/etc/security/limits.conf"};
}

DoctorFinding check_pages(const DoctorFacts& f) {
    if (!f.transparent_pages)
        return {"huge-pages", Verdict::kWarning, "this kernel has no transparent huge pages",
                "use a kernel with CONFIG_TRANSPARENT_HUGEPAGE; without it everything works, but large block "
                "maps are slower"};
    if (*f.transparent_pages == "never")
        return {"huge-pages", Verdict::kWarning,
                "transparent huge pages are off: block maps and pools miss the TLB",
                "'echo madvise > /sys/kernel/mm/transparent_hugepage/enabled'"};
    std::string found = fmt::format("transparent huge pages: {}", *f.transparent_pages);
    if (f.huge_pages && f.huge_pages_free)
        found += *f.huge_pages == 0
                     ? ", none reserved (vm.nr_hugepages): pools that want huge pages get transparent ones"
                     : fmt::format(", reserved {}, free {}: pools that want huge pages take these first",
                                   *f.huge_pages, *f.huge_pages_free);
    // No code calls madvise() on shared pools (simt/shared_file.hpp), so "advise" means "never" for them.
    if (f.shared_pages)
        found += fmt::format(
            ", of shared memory: {} ({})", *f.shared_pages,
            *f.shared_pages == "always" || *f.shared_pages == "within_size" || *f.shared_pages == "force"
                ? "pools that processes share may have them"
                : "pools that processes share have small pages; 'within_size' in "
                  "/sys/kernel/mm/transparent_hugepage/shmem_enabled gives them large ones");
    return {"huge-pages", Verdict::kGood, found, ""};
}

DoctorFinding check_gpu(const DoctorFacts& f) {
    if (!f.gpu_device && f.gpu_driver.empty())
        return {
            "gpu", Verdict::kWarning, "no GPU was found: kernels run on CPU lanes",
            "if this machine has a GPU, install NVIDIA's driver; in a container, pass the device through"};
    if (f.gpu_driver.empty())
        return {"gpu", Verdict::kProblem, "there is a GPU, but no driver is loaded",
                "load it ('modprobe nvidia'), or install NVIDIA's driver for this kernel"};
    if (!f.gpu_device)
        return {"gpu", Verdict::kProblem,
                fmt::format("NVIDIA's driver {} is loaded, but there is no device node", f.gpu_driver),
                "pass the GPU through to this container, or run 'nvidia-modprobe -u'"};
    if (!f.built_for_gpu)
        return {
            "gpu", Verdict::kWarning,
            fmt::format("this machine has a GPU with driver {}, but this program was built without GPU lanes",
                        f.gpu_driver),
            f.nvcc.empty() ? "build with './run', which installs the compiler nvcc, or install a CUDA toolkit"
                           : fmt::format("build it again with GN_CUDA=ON; nvcc is at {}", f.nvcc)};
    return {"gpu", Verdict::kGood, fmt::format("driver {}", f.gpu_driver), ""};
}

DoctorFinding check_nvcc(const DoctorFacts& f) {
    if (f.nvcc.empty())
        return {"nvcc", Verdict::kWarning, "no nvcc: kernels for a GPU cannot be built here",
                "on a machine with a GPU, './run' installs nvcc from PyPI; or put the bin folder of a CUDA "
                "toolkit on PATH"};
    return {"nvcc", Verdict::kGood, f.nvcc, ""};
}

/// gnstord, nodes and gateways whose version differs from this program's, each with its version.
std::vector<std::string> of_other_versions(const DoctorFacts& f) {
    std::vector<std::string> others;
    if (f.daemon_version && !daemon::same_build(*f.daemon_version, f.program_version))
        others.push_back(fmt::format("gnstord of {}", *f.daemon_version));
    for (const PartFacts& part : f.parts)
        if (!part.version.empty() && !daemon::same_build(part.version, f.program_version))
            others.push_back(fmt::format("{} of {}", part.what, part.version));
    return others;
}

DoctorFinding check_versions(const DoctorFacts& f) {
    for (const StoreFile& s : f.stores) {
        if (!s.is_store)
            return {"versions", Verdict::kProblem, fmt::format("{} is not the store of an SSD", s.path),
                    "put the original store back; 'gnstor ssd check' shows what can still be read of it"};
        if (s.format_version < f.oldest_store_format || s.format_version > f.store_format)
            return {"versions", Verdict::kProblem,
                    fmt::format("{} has format {}; this program knows {} to {}", s.path, s.format_version,
                                f.oldest_store_format, f.store_format),
                    s.format_version > f.store_format ? "use the newer program that wrote it"
                                                      : "use the program that wrote it to copy its data out"};
    }
    if (!f.daemon_trouble.empty())
        return {"versions", Verdict::kProblem,
                fmt::format("gnstord cannot be asked for its version: {}", f.daemon_trouble),
                "see gnstord.log; restart gnstord with 'gnstor down' and 'gnstor up'"};
    if (const std::vector<std::string> others = of_other_versions(f); !others.empty())
        return {"versions", Verdict::kProblem,
                fmt::format("this program is of version {}, {}", f.program_version, fmt::join(others, ", ")),
                "restart the processes of other versions with this program ('gnstor down', 'gnstor up'; "
                "nodes and gateways that were started by hand, by hand), or use the gnstor of their version"};
    for (const PartFacts& part : f.parts)
        if (part.version.empty())
            return {"versions", Verdict::kUnknown, fmt::format("{} does not report its version", part.what),
                    "it may run an older program: restart it with this program"};
    return {"versions", Verdict::kGood,
            fmt::format("program {}, {}{}, {} (formats {} to {} are known)", f.program_version,
                        f.daemon_version ? "the daemon the same" : "no daemon runs",
                        f.parts.empty() ? "" : fmt::format(", {} nodes or gateways too", f.parts.size()),
                        counted(f.stores.size(), "store"), f.oldest_store_format, f.store_format),
            ""};
}

DoctorFinding check_space(const DoctorFacts& f) {
    if (!f.daemon_read_only.empty())
        return {"free-space", Verdict::kProblem, "gnstord: " + f.daemon_read_only,
                fmt::format("free disk space in the file system of {}, and check that the folder is writable",
                            f.directory)};
    if (!f.free_bytes)
        return {"free-space", Verdict::kProblem,
                fmt::format("the free space of the file system of {} cannot be read: {}", f.directory,
                            f.free_trouble),
                "name the array's folder with --dir"};
    std::uint64_t may_grow = 0;
    for (const StoreFile& s : f.stores) may_grow += s.not_yet_on_disk;
    const std::string found =
        fmt::format("{} free in the file system of {}", format_bytes(*f.free_bytes), f.directory);
    if (*f.free_bytes < kFreeBytesLeast)
        return {"free-space", Verdict::kProblem, found + ": writes will be refused",
                "free disk space there, or stop the array and move it to a larger file system"};
    if (*f.free_bytes < may_grow)
        return {"free-space", Verdict::kWarning,
                fmt::format("{}; its sparse stores may grow by {}", found, format_bytes(may_grow)),
                "free disk space before they do: writes to a full disk fail with Capacity Exceeded"};
    return {"free-space", Verdict::kGood, found, ""};
}

constexpr std::array kChecks = {check_port,     check_raw_socket, check_rdma,          check_mtu,
                                check_firewall, check_buffers,    check_locked_memory, check_pages,
                                check_gpu,      check_nvcc,       check_versions,      check_space};

}  // namespace

std::string_view verdict_name(Verdict verdict) {
    switch (verdict) {
        case Verdict::kGood:
            return "ok";
        case Verdict::kUnknown:
            return "unknown";
        case Verdict::kWarning:
            return "warning";
        case Verdict::kProblem:
            break;
    }
    return "PROBLEM";
}

std::vector<DoctorFinding> diagnose(const DoctorFacts& facts) {
    Findings all;
    for (const auto& check : kChecks) all.push_back(check(facts));
    return all;
}

}  // namespace gnstor::cli
