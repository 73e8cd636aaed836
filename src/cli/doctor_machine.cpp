// doctor_machine.cpp: the system calls behind doctor_facts.hpp.
#include "cli/doctor_facts.hpp"

#include "rdma/wire/udp/udp_wire.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/capability.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

extern char** environ;

namespace gnstor::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kCommandDeadline{5};

struct SocketAddress {
    sockaddr_storage bytes{};
    socklen_t length = 0;
};

/// Nothing for text that is no IP address.
std::optional<SocketAddress> socket_address(const std::string& text, std::uint16_t port) {
    SocketAddress out;
    auto& v4 = reinterpret_cast<sockaddr_in&>(out.bytes);
    auto& v6 = reinterpret_cast<sockaddr_in6&>(out.bytes);
    if (::inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
        v4.sin_family = AF_INET;
        v4.sin_port = htons(port);
        out.length = sizeof v4;
    } else if (::inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) == 1) {
        v6.sin6_family = AF_INET6;
        v6.sin6_port = htons(port);
        out.length = sizeof v6;
    } else {
        return std::nullopt;
    }
    return out;
}

int bind_roce_port(const std::string& address) {
    const auto where = socket_address(address, rdma::kRocePort);
    if (!where) return EADDRNOTAVAIL;
    const int fd = ::socket(where->bytes.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return errno;
    const int failed =
        ::bind(fd, reinterpret_cast<const sockaddr*>(&where->bytes), where->length) == 0 ? 0 : errno;
    ::close(fd);
    return failed;
}

int open_raw_socket() {
    const int fd = ::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_UDP);
    if (fd < 0) return errno;
    ::close(fd);
    return 0;
}

std::vector<LocalAddress> local_addresses() {
    std::vector<LocalAddress> all;
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return all;
    for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
        if (at->ifa_addr == nullptr) continue;
        const int family = at->ifa_addr->sa_family;
        if (family != AF_INET && family != AF_INET6) continue;
        const void* bytes =
            family == AF_INET
                ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr)
                : &reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr;
        std::array<char, INET6_ADDRSTRLEN> text{};
        if (::inet_ntop(family, bytes, text.data(), text.size()) == nullptr) continue;
        all.push_back({at->ifa_name, text.data(), (at->ifa_flags & IFF_LOOPBACK) != 0});
    }
    ::freeifaddrs(list);
    return all;
}

std::pair<std::optional<std::uint64_t>, bool> locked_memory() {
    bool capable = false;
    std::ifstream in("/proc/self/status");
    for (std::string line; std::getline(in, line);)
        if (line.rfind("CapEff:", 0) == 0)
            capable = ((std::strtoull(line.c_str() + 7, nullptr, 16) >> CAP_IPC_LOCK) & 1u) != 0;
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return {std::nullopt, capable};
    return {limit.rlim_cur == RLIM_INFINITY ? ~0ull : std::uint64_t{limit.rlim_cur}, capable};
}

std::string on_path(const std::string& program, const std::string& more) {
    const char* path = std::getenv("PATH");
    const std::string all = (path == nullptr ? std::string() : std::string(path) + ":") + more;
    for (std::size_t begin = 0; begin <= all.size();) {
        const std::size_t end = std::min(all.find(':', begin), all.size());
        const std::string file = all.substr(begin, end - begin) + "/" + program;
        if (end > begin && ::access(file.c_str(), X_OK) == 0) return file;
        begin = end + 1;
    }
    return "";
}

std::optional<std::uint64_t> free_bytes(const fs::path& directory, std::string& trouble) {
    // For a folder that does not exist yet: its nearest parent that does.
    std::error_code failed;
    fs::path where = fs::absolute(directory, failed);
    while (!fs::exists(where, failed) && where.has_relative_path()) where = where.parent_path();
    struct statvfs info {};
    if (::statvfs(where.c_str(), &info) == 0)
        return static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize;
    trouble = std::strerror(errno);
    return std::nullopt;
}

/// Reads to the end of the stream; nullopt on an error or if the deadline passes first.
std::optional<std::string> read_all(int fd, std::chrono::steady_clock::time_point deadline) {
    std::string all;
    for (;;) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            deadline - std::chrono::steady_clock::now());
        pollfd wait{fd, POLLIN, 0};
        if (left.count() <= 0 || ::poll(&wait, 1, static_cast<int>(left.count())) <= 0) return std::nullopt;
        std::array<char, 4096> buffer;
        const ssize_t got = ::read(fd, buffer.data(), buffer.size());
        if (got < 0) return std::nullopt;
        if (got == 0) return all;
        all.append(buffer.data(), static_cast<std::size_t>(got));
    }
}

}  // namespace

std::optional<std::string> output_of(const std::vector<std::string>& command,
                                     std::chrono::milliseconds deadline) {
    const std::string program = on_path(command.front(), "/usr/sbin:/sbin:/usr/local/sbin");
    if (program.empty()) return std::nullopt;
    std::vector<std::string> words = command;
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, ends[1], 1);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    pid_t pid = 0;
    const bool started = ::posix_spawn(&pid, program.c_str(), &files, nullptr, argv.data(), environ) == 0;
    posix_spawn_file_actions_destroy(&files);
    ::close(ends[1]);
    std::optional<std::string> output;
    if (started) {
        output = read_all(ends[0], std::chrono::steady_clock::now() + deadline);
        if (!output) ::kill(pid, SIGKILL);
        int status = 0;
        ::waitpid(pid, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) output.reset();
    }
    ::close(ends[0]);
    return output;
}

DoctorSources machine() {
    DoctorSources s;
    s.bind_roce_port = bind_roce_port;
    s.open_raw_socket = open_raw_socket;
    s.local_addresses = local_addresses;
    s.run = [](const std::vector<std::string>& command) { return output_of(command, kCommandDeadline); };
    s.locked_memory = locked_memory;
    s.find_nvcc = [] { return on_path("nvcc", "/usr/local/cuda/bin"); };
    s.free_bytes = free_bytes;
    return s;
}

}  // namespace gnstor::cli
