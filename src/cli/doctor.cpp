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
            fmt::format("{} is taken, by the kernel or by a process that is not to be seen", where),
            "look as root with 'ss -ulpn sport = 4791' and 'rdma link', or give the array another address"};
}

DoctorFinding check_port(const DoctorFacts& f) {
    for (const PortFacts& port : f.ports) {
        if (port.bind_error == 0) continue;
        if (port.bind_error == EADDRNOTAVAIL)
            return {"udp-port", Verdict::kProblem,
                    fmt::format("{} is no address of this machine", port.address),
                    "choose one that 'ip address' lists"};
        if (port.bind_error != EADDRINUSE)
            return {"udp-port", Verdict::kProblem,
                    fmt::format("UDP port 4791 of {} cannot be bound: {}", port.address,
                                std::strerror(port.bind_error)),
                    "choose an address that 'ip address' lists, as a user who may bind it"};
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
    if (!v4) return {"raw-socket", Verdict::kGood, "not needed: IPv6 has no identification", ""};
    if (f.raw_socket_error == 0)
        return {"raw-socket", Verdict::kGood, "this program may open one: Linux hosts (rxe) are understood",
                ""};
    const std::string found = fmt::format(
        "none can be opened ({}): packets of Linux hosts (rxe) are dropped for their ICRC; "
        "GNStor's own programs need none",
        std::strerror(f.raw_socket_error));
    if (f.raw_socket_error != EPERM && f.raw_socket_error != EACCES)
        return {"raw-socket", Verdict::kWarning, found,
                "see whether this kernel or container has raw IPv4 sockets at all"};
    return {"raw-socket", Verdict::kWarning, found,
            fmt::format("where Linux hosts are to connect to a node or gateway of this machine: 'setcap "
                        "cap_net_raw+ep {}', or run it as root",
                        f.program)};
}

DoctorFinding check_rdma(const DoctorFacts& f) {
    for (const RdmaDevice& d : f.rdma_devices)
        if (d.roce && !d.software)
            return {"roce-device", Verdict::kWarning,
                    fmt::format("{} on {} is a RoCE adapter: it may take packets to port 4791 before a "
                                "socket sees them",
                                d.name, d.interface.empty() ? "an unknown interface" : d.interface),
                    "give the array an address of another interface, or switch RoCE off there "
                    "('devlink dev param set … name enable_roce value false')"};
    return {"roce-device", Verdict::kGood, "no RoCE adapter stands before the socket", ""};
}

DoctorFinding check_mtu(const DoctorFacts& f) {
    const InterfaceFacts* least = nullptr;
    for (const InterfaceFacts& i : f.interfaces)
        if (least == nullptr || i.mtu < least->mtu) least = &i;
    if (least == nullptr)
        return {"mtu", Verdict::kUnknown, "no interface carries the address",
                "name an address of this machine with --address"};
    const std::string found = fmt::format("{} has an MTU of {}", least->name, least->mtu);
    const std::string raise = fmt::format("'ip link set {} mtu {}', where switch and peers take it",
                                          least->name, std::max(kMtuBest, 4200u));
    if (least->mtu < kMtuLeast)
        return {"mtu", Verdict::kProblem, fmt::format("{}: no RoCE packet fits", found), raise};
    if (least->mtu < kMtuBest)
        return {"mtu", Verdict::kWarning,
                fmt::format("{}: packets of {} bytes, where a block could be one", found,
                            least->mtu < 2048 + kHeaderBytes ? 1024 : 2048),
                raise};
    return {"mtu", Verdict::kGood, fmt::format("{}: a block fits into a packet", found), ""};
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
            return {"firewall", Verdict::kProblem,
                    fmt::format("{} drops what no rule accepts, and none accepts UDP port 4791", tool),
                    remedy};
    }
    if (!f.nft && !f.iptables && !f.ip6tables)
        return {"firewall", Verdict::kUnknown, "the firewall's rules cannot be read",
                "look as root, with nft or iptables installed; peers must reach UDP port 4791"};
    return {"firewall", Verdict::kGood, "no rule keeps UDP port 4791 away, as far as they can be read", ""};
}

DoctorFinding check_buffers(const DoctorFacts& f) {
    if (!f.receive_buffer_max || !f.send_buffer_max)
        return {"socket-buffers", Verdict::kUnknown, "net.core.rmem_max and wmem_max cannot be read",
                "look with 'sysctl net.core.rmem_max net.core.wmem_max'"};
    for (const auto& [name, value] :
         {std::pair("rmem_max", *f.receive_buffer_max), std::pair("wmem_max", *f.send_buffer_max)})
        if (value < kSocketBufferWanted)
            return {"socket-buffers", Verdict::kWarning,
                    fmt::format("net.core.{} is {}: bursts are dropped and sent again", name,
                                format_bytes(value)),
                    fmt::format("'sysctl -w net.core.{}={}', and in /etc/sysctl.d to stay", name,
                                2 * kSocketBufferWanted)};
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
            "'ulimit -l unlimited', LimitMEMLOCK=infinity in the unit, or a memlock line in "
            "/etc/security/limits.conf"};
}

DoctorFinding check_pages(const DoctorFacts& f) {
    if (!f.transparent_pages)
        return {"huge-pages", Verdict::kWarning, "this kernel has no transparent huge pages",
                "use a kernel with CONFIG_TRANSPARENT_HUGEPAGE; all works without, large maps slower"};
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
        return {"gpu", Verdict::kWarning, "no GPU is to be seen: kernels run on CPU lanes",
                "where there is one, install NVIDIA's driver; in a container pass the device through"};
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
            fmt::format("a GPU with driver {}, but this program was built without GPU lanes", f.gpu_driver),
            f.nvcc.empty() ? "build with './run', which brings a compiler (nvcc), or install one"
                           : fmt::format("build it again with GN_CUDA=ON; {} is there", f.nvcc)};
    return {"gpu", Verdict::kGood, fmt::format("driver {}", f.gpu_driver), ""};
}

DoctorFinding check_nvcc(const DoctorFacts& f) {
    if (f.nvcc.empty())
        return {"nvcc", Verdict::kWarning, "no nvcc: kernels for a GPU cannot be built here",
                "'./run' installs PyPI's compiler where there is a GPU; or put a CUDA toolkit's bin on PATH"};
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
            return {"versions", Verdict::kProblem, fmt::format("{} is no store", s.path),
                    "bring the store back that was there; 'gnstor ssd check' says what is left of it"};
        if (s.format_version != f.store_format)
            return {"versions", Verdict::kProblem,
                    fmt::format("{} has format {}; this program knows {}", s.path, s.format_version,
                                f.store_format),
                    s.format_version > f.store_format ? "use the newer program that wrote it"
                                                      : "use the program that wrote it to copy it out"};
    }
    if (!f.daemon_trouble.empty())
        return {"versions", Verdict::kProblem,
                fmt::format("the daemon's version cannot be asked for: {}", f.daemon_trouble),
                "see gnstord.log; 'gnstor down' and 'gnstor up' start it anew"};
    if (const std::vector<std::string> others = of_other_versions(f); !others.empty())
        return {"versions", Verdict::kProblem,
                fmt::format("this program is of version {}, {}", f.program_version, fmt::join(others, ", ")),
                "start what differs again with this program ('gnstor down', 'gnstor up'; what was started by "
                "hand, by hand), or use the program of its version"};
    for (const PartFacts& part : f.parts)
        if (part.version.empty())
            return {"versions", Verdict::kUnknown,
                    fmt::format("{} does not say of which version it is", part.what),
                    "an older program may have started it: start it again with this one"};
    return {"versions", Verdict::kGood,
            fmt::format("program {}, {}{}, {} of format {}", f.program_version,
                        f.daemon_version ? "the daemon the same" : "no daemon runs",
                        f.parts.empty() ? "" : fmt::format(", {} nodes or gateways too", f.parts.size()),
                        counted(f.stores.size(), "store"), f.store_format),
            ""};
}

DoctorFinding check_space(const DoctorFacts& f) {
    if (!f.daemon_read_only.empty())
        return {"free-space", Verdict::kProblem, "gnstord: " + f.daemon_read_only,
                fmt::format("make room where {} lies, and see that it may be written to", f.directory)};
    if (!f.free_bytes)
        return {"free-space", Verdict::kProblem,
                fmt::format("the file system of {} cannot be asked: {}", f.directory, f.free_trouble),
                "name the array's folder with --dir"};
    std::uint64_t may_grow = 0;
    for (const StoreFile& s : f.stores) may_grow += s.not_yet_on_disk;
    const std::string found = fmt::format("{} free where {} lies", format_bytes(*f.free_bytes), f.directory);
    if (*f.free_bytes < kFreeBytesLeast)
        return {"free-space", Verdict::kProblem, found + ": writes will be refused",
                "make room there, or move the array (stopped) to a larger file system"};
    if (*f.free_bytes < may_grow)
        return {"free-space", Verdict::kWarning,
                fmt::format("{}; its sparse stores may grow by {}", found, format_bytes(may_grow)),
                "make room before they do: writes to a full disk are Capacity Exceeded"};
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
