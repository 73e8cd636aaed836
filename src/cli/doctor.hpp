// doctor.hpp: checks whether an array can run on this machine: facts in, findings with remedies out. Pure:
// facts are read by doctor_facts.cpp (or made by tests), findings are shown by doctor_command.cpp.
//
// Invariants: every check yields exactly one finding; every finding but `kGood` has a remedy. `kProblem`:
// that part of the product does not work; `kWarning`: it works, slower or with a risk; `kUnknown`: the facts
// could not be read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gnstor::cli {

/// An address at which the udp wire would bind UDP port 4791.
struct PortFacts {
    std::string address;        ///< "0.0.0.0", or the one asked for
    int bind_error = 0;         ///< errno of an attempt to bind port 4791 there; 0: it is free
    bool holder_known = false;  ///< the process below; false: the kernel, or a process hidden from us
    std::int64_t holder_pid = 0;
    std::string holder{};  ///< name of that process
};

/// A device of /sys/class/infiniband.
struct RdmaDevice {
    std::string name, interface;
    bool software = false;  ///< rxe, siw: no PCI device behind it; it binds the UDP port as a socket does
    bool roce = true;       ///< link layer Ethernet
};

struct InterfaceFacts {
    std::string name;
    std::uint32_t mtu = 0;
    bool loopback = false;
};

struct StoreFile {
    std::string path;
    bool is_store = true;  ///< its magic number is right
    std::uint32_t format_version = 0;
    std::uint64_t not_yet_on_disk = 0;  ///< bytes of its length that the sparse file has no space for yet
};

/// A process of the array beside gnstord: a node, a gateway.
struct PartFacts {
    std::string what;     ///< display text: name, address, process id
    std::string version;  ///< of its program; empty: not reported
};

struct DoctorFacts {
    std::vector<PortFacts> ports;
    int raw_socket_error = 0;  ///< errno of opening a raw socket (IPv4, UDP); 0: it opened
    std::string program;       ///< path of this program
    std::vector<RdmaDevice> rdma_devices;
    std::vector<InterfaceFacts> interfaces;        ///< that have the requested addresses
    std::optional<std::uint64_t> locked_memory;    ///< the limit in bytes, ~0: none; nullopt: not readable
    bool may_lock_anyway = false;                  ///< CAP_IPC_LOCK
    std::optional<std::string> nft, iptables;      ///< their rules as text; nullopt: not readable
    std::optional<std::string> ip6tables;          ///< likewise; not read if all addresses are IPv4
    std::optional<std::string> transparent_pages;  ///< the setting: always, madvise or never
    std::optional<std::string> shared_pages;       ///< the setting of shmem_enabled
    std::optional<std::uint64_t> huge_pages,
        huge_pages_free;  ///< reserved (HugePages_Total), and free of these
    std::optional<std::uint64_t> receive_buffer_max, send_buffer_max;  ///< net.core.?mem_max
    bool gpu_device = false;                                           ///< there is an NVIDIA device node
    std::string gpu_driver, nvcc;                                      ///< version, path; empty: none
    bool built_for_gpu = false;                                        ///< this program has GPU lanes
    std::string program_version;
    std::optional<std::string> daemon_version;  ///< of the gnstord that answers; nullopt: none does
    std::string daemon_trouble;                 ///< why a running gnstord does not answer; empty: it does
    std::string daemon_read_only;               ///< why gnstord is read-only; empty: it is not, or none runs
    std::vector<PartFacts> parts;               ///< nodes and gateways that run
    std::uint32_t oldest_store_format = 0;      ///< oldest format version of a store that this program uses
    std::uint32_t store_format = 0;             ///< newest one, that of new stores
    std::string directory;                      ///< folder of the array
    std::vector<StoreFile> stores;              ///< in that folder
    std::optional<std::uint64_t> free_bytes;    ///< free on its file system for this user
    std::string free_trouble;                   ///< why free_bytes is unknown
};

enum class Verdict : std::uint8_t { kGood, kUnknown, kWarning, kProblem };
std::string_view verdict_name(Verdict verdict);

struct DoctorFinding {
    std::string check;
    Verdict verdict = Verdict::kGood;
    std::string found, remedy;
};

/// One finding a check, always in the same order.
std::vector<DoctorFinding> diagnose(const DoctorFacts& facts);

/// What a firewall does with incoming UDP packets to port 4791.
enum class FirewallWord : std::uint8_t { kNothing, kAccept, kDropRule, kDropPolicy };
FirewallWord read_nft(std::string_view ruleset);       ///< `ruleset`: output of `nft list ruleset`
FirewallWord read_iptables(std::string_view listing);  ///< `listing`: output of `iptables -S`

}  // namespace gnstor::cli
