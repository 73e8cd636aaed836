// doctor.hpp: what stands in the way of an array on this machine: facts in, findings with their remedies out.
// Pure: facts are read by doctor_facts.cpp (or made by tests), findings are shown by doctor_command.cpp.
//
// Invariants: every check yields exactly one finding; whatever is not `kGood` says what to do. `kProblem`:
// that part of the product does not work; `kWarning`: it works, slower or with a risk; `kUnknown`: not
// readable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gnstor::cli {

/// A UDP address that the udp wire would take.
struct PortFacts {
    std::string address;        ///< "0.0.0.0", or the one asked for
    int bind_error = 0;         ///< errno of an attempt to bind port 4791 there; 0: it is free
    bool holder_known = false;  ///< the process below; else nobody's that can be seen: the kernel's
    std::int64_t holder_pid = 0;
    std::string holder{};  ///< its name
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
    bool is_store = true;  ///< its magic fits
    std::uint32_t format_version = 0;
    std::uint64_t not_yet_on_disk = 0;  ///< bytes of its length that the sparse file has no space for yet
};

/// A process of the array beside gnstord: a node, a gateway.
struct PartFacts {
    std::string what;     ///< for people: which, where
    std::string version;  ///< of its program; empty: it does not say
};

struct DoctorFacts {
    std::vector<PortFacts> ports;
    int raw_socket_error = 0;  ///< errno of an attempt to open one (IPv4, UDP); 0: this program may
    std::string program;       ///< this program's file
    std::vector<RdmaDevice> rdma_devices;
    std::vector<InterfaceFacts> interfaces;        ///< that carry the addresses asked for
    std::optional<std::uint64_t> locked_memory;    ///< the limit in bytes, ~0: none; nothing: not readable
    bool may_lock_anyway = false;                  ///< CAP_IPC_LOCK
    std::optional<std::string> nft, iptables;      ///< their rules as text; nothing: not readable
    std::optional<std::string> ip6tables;          ///< likewise; not asked for where all addresses are IPv4
    std::optional<std::string> transparent_pages;  ///< the chosen word: always, madvise, never
    std::optional<std::string> shared_pages;       ///< the same of shmem_enabled
    std::optional<std::uint64_t> huge_pages,
        huge_pages_free;  ///< reserved (HugePages_Total), and free of these
    std::optional<std::uint64_t> receive_buffer_max, send_buffer_max;  ///< net.core.?mem_max
    bool gpu_device = false;                                           ///< the NVIDIA device node
    std::string gpu_driver, nvcc;                                      ///< version, path; empty: none
    bool built_for_gpu = false;                                        ///< this program
    std::string program_version;
    std::optional<std::string> daemon_version;  ///< of a gnstord that answers; nothing: none does
    std::string daemon_trouble;                 ///< one is there, but does not answer: why
    std::string daemon_read_only;               ///< why it can store no change; empty: it can, or none runs
    std::vector<PartFacts> parts;               ///< that run
    std::uint32_t store_format = 0;             ///< that this program reads and writes
    std::string directory;                      ///< of the array
    std::vector<StoreFile> stores;              ///< in there
    std::optional<std::uint64_t> free_bytes;    ///< of its file system, to this user
    std::string free_trouble;                   ///< why that is not known
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

/// What rules of a firewall say about incoming UDP packets to port 4791.
enum class FirewallWord : std::uint8_t { kNothing, kAccept, kDropRule, kDropPolicy };
FirewallWord read_nft(std::string_view ruleset);       ///< of `nft list ruleset`
FirewallWord read_iptables(std::string_view listing);  ///< of `iptables -S`

}  // namespace gnstor::cli
