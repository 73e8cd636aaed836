// serving_processes.cpp: finds processes by the kernel's socket tables, and reads their CPU time.
#include "daemon/remote/serving_processes.hpp"

#include "daemon/http/socket_table.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <system_error>

namespace gnstor::daemon {
namespace {

namespace fs = std::filesystem;

/// An address as /proc/net prints it: 32-bit words in host byte order, hexadecimal.
std::string in_table_form(const std::string& address) {
    std::array<std::uint32_t, 4> words{};
    std::size_t count = 0;
    if (::inet_pton(AF_INET, address.c_str(), words.data()) == 1)
        count = 1;
    else if (::inet_pton(AF_INET6, address.c_str(), words.data()) == 1)
        count = 4;
    std::string text;
    for (std::size_t i = 0; i < count; ++i) text += fmt::format("{:08X}", words[i]);
    return text;
}

template <class Number>
std::optional<Number> number(std::string_view text) {
    Number value{};
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
    return value;
}

std::string text_of(const fs::path& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
}

std::optional<ServingProcess> look_at(pid_t pid) {
    clockid_t clock{};
    timespec t{};
    if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &t) != 0) return std::nullopt;
    std::string name = text_of(fmt::format("/proc/{}/comm", pid));
    while (!name.empty() && name.back() == '\n') name.pop_back();
    return ServingProcess{
        pid, name,
        static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec)};
}

constexpr std::string_view kSocketLink = "socket:[";

std::set<std::uint64_t> sockets_of(pid_t pid) {
    std::set<std::uint64_t> inodes;
    std::error_code failed;
    for (auto it = fs::directory_iterator(fmt::format("/proc/{}/fd", pid), failed);
         !failed && it != fs::directory_iterator(); it.increment(failed)) {
        std::error_code gone;
        const std::string link = fs::read_symlink(it->path(), gone).string();
        if (!link.starts_with(kSocketLink)) continue;
        const std::string_view rest = std::string_view(link).substr(kSocketLink.size());
        if (const auto inode = number<std::uint64_t>(rest.substr(0, rest.find(']')))) inodes.insert(*inode);
    }
    return inodes;
}

bool holds_one_of(const fs::path& process, const std::set<std::string>& sockets) {
    std::error_code failed;
    for (auto it = fs::directory_iterator(process / "fd", failed); !failed && it != fs::directory_iterator();
         it.increment(failed)) {
        std::error_code gone;
        if (sockets.contains(fs::read_symlink(it->path(), gone).string())) return true;
    }
    return false;
}

}  // namespace

std::set<std::uint64_t> inodes_bound_to(std::string_view table, const std::vector<std::string>& addresses,
                                        std::uint16_t port) {
    std::set<std::string> wanted;
    for (const std::string& address : addresses) wanted.insert(in_table_form(address));
    wanted.erase("");
    std::set<std::uint64_t> inodes;
    for (const SocketRow& row : read_socket_table(table))
        if (row.port == port && wanted.contains(row.address)) inodes.insert(row.inode);
    return inodes;
}

std::vector<ServingProcess> processes_bound_to(const std::vector<std::string>& addresses,
                                               std::uint16_t port) {
    std::set<std::string> sockets;
    for (const char* table : {"/proc/net/udp", "/proc/net/udp6"})
        for (const std::uint64_t inode : inodes_bound_to(text_of(table), addresses, port))
            sockets.insert(fmt::format("socket:[{}]", inode));
    std::vector<ServingProcess> found;
    if (sockets.empty()) return found;
    std::error_code failed;
    for (auto it = fs::directory_iterator("/proc", failed); !failed && it != fs::directory_iterator();
         it.increment(failed)) {
        const auto pid = number<pid_t>(it->path().filename().string());
        if (!pid || !holds_one_of(it->path(), sockets)) continue;
        if (auto process = look_at(*pid)) found.push_back(std::move(*process));
    }
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.pid < b.pid; });
    return found;
}

std::vector<std::string> listening_paths(std::string_view table, const std::set<std::uint64_t>& inodes) {
    constexpr std::uint64_t kListening = 1u << 16;  // __SO_ACCEPTCON
    std::vector<std::string> paths;
    std::istringstream lines{std::string(table)};
    for (std::string line; std::getline(lines, line);) {
        std::istringstream in(line);
        // Num, RefCount, Protocol, Flags, Type, St, Inode, Path
        std::string skipped, flags_word, inode_word, path;
        if (!(in >> skipped >> skipped >> skipped >> flags_word >> skipped >> skipped >> inode_word))
            continue;
        std::getline(in >> std::ws, path);
        std::uint64_t flags = 0;
        const auto parsed =
            std::from_chars(flags_word.data(), flags_word.data() + flags_word.size(), flags, 16);
        const auto inode = number<std::uint64_t>(inode_word);
        if (parsed.ec != std::errc() || (flags & kListening) == 0 || !inode || !inodes.contains(*inode))
            continue;
        if (!path.empty()) paths.push_back(path);
    }
    return paths;
}

std::optional<NodeShm> shm_of_node(const std::string& address, std::uint16_t port) {
    for (const ServingProcess& process : processes_bound_to({address}, port))
        for (const std::string& path : listening_paths(text_of("/proc/net/unix"), sockets_of(process.pid)))
            if (fs::path(path).filename() == kNodeShmSocket) return NodeShm{path, process.pid};
    return std::nullopt;
}

std::vector<ServingProcess> process_listening_at(const fs::path& socket) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string where = socket.string();
    if (where.size() >= sizeof address.sun_path) return {};
    std::memcpy(address.sun_path, where.c_str(), where.size());
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return {};
    ucred peer{};
    socklen_t bytes = sizeof peer;
    const bool known = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                       ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.pid > 0;
    ::close(fd);
    if (!known) return {};
    auto process = look_at(peer.pid);
    return process ? std::vector<ServingProcess>{*process} : std::vector<ServingProcess>{};
}

}  // namespace gnstor::daemon
