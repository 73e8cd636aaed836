// doctor_facts.cpp: facts out of proc, sys, dev and the array's folder.
#include "cli/doctor_facts.hpp"

#include "cli/store_files.hpp"
#include "rdma/wire/udp/udp_wire.hpp"
#include "ssd/flash/store_format.hpp"

#include <arpa/inet.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace gnstor::cli {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> first_line(const fs::path& file) {
    std::ifstream in(file);
    std::string line;
    if (!std::getline(in, line)) return std::nullopt;
    while (!line.empty() && (line.back() == ' ' || line.back() == '\n')) line.pop_back();
    return line;
}

std::optional<std::uint64_t> number_in(const fs::path& file) {
    const auto line = first_line(file);
    if (!line || line->empty() || !std::isdigit(static_cast<unsigned char>(line->front())))
        return std::nullopt;
    return std::strtoull(line->c_str(), nullptr, 10);
}

std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    std::error_code failed;
    for (auto it = fs::directory_iterator(folder, failed); !failed && it != fs::directory_iterator();
         it.increment(failed))
        names.push_back(it->path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

/// An IP address as 16 bytes, IPv4 mapped into IPv6; nothing for other text.
std::optional<std::array<unsigned char, 16>> address_bytes(const std::string& text) {
    std::array<unsigned char, 16> bytes{};
    bytes[10] = bytes[11] = 0xff;
    if (::inet_pton(AF_INET, text.c_str(), bytes.data() + 12) == 1) return bytes;
    if (::inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1) return bytes;
    return std::nullopt;
}

/// The tables in /proc/net have addresses as hexadecimal 32-bit words in host byte order.
std::array<unsigned char, 16> table_address(const std::string& digits) {
    std::array<unsigned char, 16> bytes{};
    if (digits.size() == 8) bytes[10] = bytes[11] = 0xff;
    const std::size_t words = digits.size() / 8;
    for (std::size_t w = 0; w < words && w < 4; ++w) {
        const auto word =
            static_cast<std::uint32_t>(std::strtoul(digits.substr(8 * w, 8).c_str(), nullptr, 16));
        std::memcpy(bytes.data() + (words == 1 ? 12 : 4 * w), &word, sizeof word);
    }
    return bytes;
}

bool is_any(const std::array<unsigned char, 16>& address) {
    return address == address_bytes("0.0.0.0") || address == address_bytes("::");
}

/// Inodes of the sockets in /proc/net/udp and udp6 that occupy the RoCE port at this address.
std::vector<std::string> sockets_of_port(const fs::path& root, const std::string& address) {
    const auto wanted = address_bytes(address);
    std::vector<std::string> inodes;
    for (const char* table : {"proc/net/udp", "proc/net/udp6"}) {
        std::ifstream in(root / table);
        std::string line;
        std::getline(in, line);  // the heading
        while (std::getline(in, line)) {
            std::istringstream words(line);
            std::string word, local, inode;
            words >> word >> local;
            for (int i = 0; i < 8 && words >> inode; ++i) {
            }
            const auto colon = local.find(':');
            if (colon == std::string::npos || inode.empty()) continue;
            if (std::strtoul(local.c_str() + colon + 1, nullptr, 16) != rdma::kRocePort) continue;
            const auto held = table_address(local.substr(0, colon));
            if (!wanted || is_any(*wanted) || is_any(held) || held == *wanted) inodes.push_back(inode);
        }
    }
    return inodes;
}

/// Finds the process that has one of these sockets open, among those whose descriptors this user may read. A
/// process that is no part of an array is reported first; then an unknown holder; then a part of an array.
void find_holder(const fs::path& root, PortFacts& port) {
    const std::vector<std::string> inodes = sockets_of_port(root, port.address);
    std::vector<std::string> unseen = inodes;
    for (const std::string& process : names_in(root / "proc")) {
        if (inodes.empty()) return;
        if (process.empty() || !std::isdigit(static_cast<unsigned char>(process.front()))) continue;
        const fs::path folder = root / "proc" / process;
        for (const std::string& fd : names_in(folder / "fd")) {
            std::error_code failed;
            const std::string target = fs::read_symlink(folder / "fd" / fd, failed).string();
            for (const std::string& inode : inodes) {
                if (failed || target != "socket:[" + inode + "]") continue;
                std::erase(unseen, inode);
                port.holder_known = true;
                port.holder_pid = std::strtoll(process.c_str(), nullptr, 10);
                port.holder = first_line(folder / "comm").value_or("?");
                if (port.holder.rfind("gnstor", 0) != 0) return;
            }
        }
    }
    if (!unseen.empty()) port.holder_known = false;
}

std::vector<RdmaDevice> rdma_devices(const fs::path& root) {
    std::vector<RdmaDevice> all;
    const fs::path folder = root / "sys/class/infiniband";
    for (const std::string& name : names_in(folder)) {
        RdmaDevice device;
        device.name = name;
        std::error_code failed;
        device.software = !fs::exists(folder / name / "device", failed);
        device.roce = first_line(folder / name / "ports/1/link_layer").value_or("Ethernet") == "Ethernet";
        device.interface = first_line(folder / name / "ports/1/gid_attrs/ndevs/0").value_or("");
        all.push_back(std::move(device));
    }
    return all;
}

std::vector<InterfaceFacts> interfaces(const DoctorSources& s, const std::vector<PortFacts>& ports) {
    std::vector<InterfaceFacts> all;
    for (const LocalAddress& local : s.local_addresses()) {
        const bool wanted = std::any_of(ports.begin(), ports.end(), [&](const PortFacts& port) {
            const bool any = port.address == "0.0.0.0" || port.address == "::";
            // The loopback interface has every address of 127.0.0.0/8, not only the one listed.
            return any ? !local.loopback
                       : port.address == local.address ||
                             (local.loopback && port.address.rfind("127.", 0) == 0);
        });
        const bool known = std::any_of(all.begin(), all.end(),
                                       [&](const InterfaceFacts& i) { return i.name == local.interface; });
        if (!wanted || known) continue;
        const auto mtu = number_in(s.root / "sys/class/net" / local.interface / "mtu");
        if (mtu) all.push_back({local.interface, static_cast<std::uint32_t>(*mtu), local.loopback});
    }
    return all;
}

/// The word in brackets of a sysfs file that lists all choices: "always [madvise] never".
std::optional<std::string> chosen_word(const fs::path& file) {
    const auto line = first_line(file);
    if (!line) return std::nullopt;
    const auto from = line->find('['), to = line->find(']');
    if (from == std::string::npos || to == std::string::npos || to < from) return std::nullopt;
    return line->substr(from + 1, to - from - 1);
}

/// A line "KEY:   NUMBER" of proc/meminfo.
std::optional<std::uint64_t> memory_line(const fs::path& root, const std::string& key) {
    std::ifstream in(root / "proc/meminfo");
    for (std::string line; std::getline(in, line);)
        if (line.rfind(key + ":", 0) == 0) return std::strtoull(line.c_str() + key.size() + 1, nullptr, 10);
    return std::nullopt;
}

/// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  …": the word that begins with a digit and has
/// a dot.
std::string gpu_driver(const fs::path& root) {
    const auto line = first_line(root / "proc/driver/nvidia/version");
    if (!line) return "";
    std::istringstream words(*line);
    for (std::string word; words >> word;)
        if (std::isdigit(static_cast<unsigned char>(word.front())) != 0 &&
            word.find('.') != std::string::npos)
            return word;
    return "of an unknown version";
}

std::vector<StoreFile> stores_in(const fs::path& directory) {
    std::vector<StoreFile> all;
    const auto files = store_files(directory);
    if (!files.ok()) return all;
    for (const fs::path& file : *files) {
        StoreFile store;
        store.path = file.string();
        struct stat info {};
        if (::stat(store.path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
            const auto length = static_cast<std::uint64_t>(info.st_size);
            const std::uint64_t present = static_cast<std::uint64_t>(info.st_blocks) * 512;
            store.not_yet_on_disk = length > present ? length - present : 0;
        }
        // The superblock is written only once, so it can be read while a drive uses the store.
        ssd::Superblock head{};
        std::ifstream in(store.path, std::ios::binary);
        in.read(reinterpret_cast<char*>(&head), sizeof head);
        store.is_store = in && std::memcmp(head.magic, ssd::kStoreMagic.data(), sizeof head.magic) == 0;
        store.format_version = head.format_version;
        all.push_back(std::move(store));
    }
    return all;
}

}  // namespace

DoctorFacts read_facts(const DoctorSources& s, const std::vector<std::string>& addresses,
                       const fs::path& directory) {
    DoctorFacts f;
    for (const std::string& address : addresses.empty() ? std::vector<std::string>{"0.0.0.0"} : addresses) {
        PortFacts port;
        port.address = address;
        port.bind_error = s.bind_roce_port(address);
        if (port.bind_error != 0) find_holder(s.root, port);
        f.ports.push_back(std::move(port));
    }
    f.raw_socket_error = s.open_raw_socket();
    std::error_code failed;
    f.program = fs::read_symlink(s.root / "proc/self/exe", failed).string();
    if (failed) f.program = "gnstor";
    f.rdma_devices = rdma_devices(s.root);
    f.interfaces = interfaces(s, f.ports);
    std::tie(f.locked_memory, f.may_lock_anyway) = s.locked_memory();
    f.nft = s.run({"nft", "list", "ruleset"});
    f.iptables = s.run({"iptables", "-S"});
    // Without a requested address, peers may use IPv4 or IPv6.
    if (addresses.empty() || std::any_of(addresses.begin(), addresses.end(), [](const std::string& address) {
            return address.find(':') != std::string::npos;
        }))
        f.ip6tables = s.run({"ip6tables", "-S"});
    f.transparent_pages = chosen_word(s.root / "sys/kernel/mm/transparent_hugepage/enabled");
    f.shared_pages = chosen_word(s.root / "sys/kernel/mm/transparent_hugepage/shmem_enabled");
    f.huge_pages = memory_line(s.root, "HugePages_Total");
    f.huge_pages_free = memory_line(s.root, "HugePages_Free");
    f.receive_buffer_max = number_in(s.root / "proc/sys/net/core/rmem_max");
    f.send_buffer_max = number_in(s.root / "proc/sys/net/core/wmem_max");
    f.gpu_device = fs::exists(s.root / "dev/nvidiactl", failed);
    f.gpu_driver = gpu_driver(s.root);
    f.nvcc = s.find_nvcc();
    f.store_format = ssd::kStoreFormatVersion;
    f.oldest_store_format = ssd::kOldestStoreFormatVersion;
    f.directory = directory.string();
    f.stores = stores_in(directory);
    f.free_bytes = s.free_bytes(directory, f.free_trouble);
    return f;
}

}  // namespace gnstor::cli
