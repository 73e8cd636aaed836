// socket.cpp: see socket.hpp.
#include "rdma/wire/shm/socket.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>

namespace gnstor::rdma::shm {
namespace {

constexpr time_t kSendSeconds = 5;

Result<sockaddr_un> address_of(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof address.sun_path)
        return error(Errc::kInvalidArgument, "'{}' cannot be the path of a Unix socket: give 1 to {} bytes",
                     path, sizeof address.sun_path - 1);
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    return address;
}

Result<Descriptor> open_socket() {
    Descriptor fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (fd.get() < 0) return error(Errc::kNoSpace, "cannot make a Unix socket: {}", std::strerror(errno));
    return fd;
}

const sockaddr* generic(const sockaddr_un& address) {
    return reinterpret_cast<const sockaddr*>(&address);
}

/// Whether `fd` becomes readable in time; restarts after signals.
bool readable(int fd, std::uint32_t timeout_ms) {
    using std::chrono::milliseconds;
    const auto deadline = std::chrono::steady_clock::now() + milliseconds(timeout_ms);
    for (;;) {
        const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
        const auto wait = std::clamp<std::int64_t>(left.count(), 0, std::numeric_limits<int>::max());
        pollfd one{.fd = fd, .events = POLLIN, .revents = 0};
        const int ready = ::poll(&one, 1, static_cast<int>(wait));
        if (ready >= 0 || errno != EINTR) return ready > 0;
    }
}

/// Takes all descriptors that came with a message: the first goes to `file`, if not null; the others are
/// closed. More than one can come, as alignment leaves room for more in the control buffer.
void take_files(msghdr& message, Descriptor* file) {
    for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
            Descriptor came(fd);
            if (file != nullptr && file->get() < 0) *file = std::move(came);
        }
    }
}

}  // namespace

Descriptor::~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
}

Result<Socket> Socket::connect(const std::string& path) {
    GN_ASSIGN(const sockaddr_un address, address_of(path));
    GN_ASSIGN(Descriptor fd, open_socket());
    // Also limits connect(), which blocks while the backlog of a hanging server is full.
    const timeval most{.tv_sec = kSendSeconds, .tv_usec = 0};
    if (::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most) != 0)
        return error(Errc::kIo, "cannot set the send timeout of a Unix socket: {}", std::strerror(errno));
    if (::connect(fd.get(), generic(address), sizeof address) != 0)
        return error(Errc::kNotFound, "no node serves shared memory at {}: {}", path,
                     errno == EAGAIN ? "its queue of waiting connections is full" : std::strerror(errno));
    return Socket(std::move(fd));
}

pid_t Socket::peer() const {
    ucred peer{};
    socklen_t bytes = sizeof peer;
    return ::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 ? peer.pid : 0;
}

Result<Socket> Socket::listen(const std::string& path, std::uint32_t mode) {
    GN_ASSIGN(const sockaddr_un address, address_of(path));
    if (Socket::connect(path).ok())
        return error(Errc::kBusy,
                     "cannot serve shared memory at {}: another process does so already; stop it, or choose "
                     "another path",
                     path);
    struct stat what {};
    if (::lstat(path.c_str(), &what) == 0) {
        if (!S_ISSOCK(what.st_mode))
            return error(Errc::kExists,
                         "cannot serve shared memory at {}: a file that is not a socket is there; remove it, "
                         "or choose another path",
                         path);
        ::unlink(path.c_str());
    }
    GN_ASSIGN(Descriptor fd, open_socket());
    // Mode of the socket before it has a name, then of the name: so that others can connect at no moment.
    if (::fchmod(fd.get(), 0600) != 0 || ::bind(fd.get(), generic(address), sizeof address) != 0 ||
        ::chmod(path.c_str(), static_cast<mode_t>(mode)) != 0 || ::listen(fd.get(), 16) != 0)
        return error(Errc::kIo, "cannot serve shared memory at {}: {}", path, std::strerror(errno));
    return Socket(std::move(fd));
}

Result<Socket> Socket::accept(std::uint32_t timeout_ms) const {
    if (!readable(fd_.get(), timeout_ms)) return error(Errc::kTimedOut, "no client connected in time");
    Descriptor fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (fd.get() < 0) return error(Errc::kIo, "cannot accept a connection: {}", std::strerror(errno));
    return Socket(std::move(fd));
}

Result<std::uint32_t> Socket::peer_user() const {
    ucred who{};
    socklen_t bytes = sizeof who;
    if (::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0)
        return error(Errc::kIo, "cannot read the user of the process that connected: {}",
                     std::strerror(errno));
    return who.uid;
}

Result<void> Socket::send(std::span<const std::byte> bytes, int file) const {
    iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(int))] = {};
    if (file >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr* const head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof file);
        std::memcpy(CMSG_DATA(head), &file, sizeof file);
    }
    ssize_t sent = 0;
    do {
        sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    if (sent == static_cast<ssize_t>(bytes.size())) return {};
    return error(Errc::kIo, "the other process has closed the connection: {}", std::strerror(errno));
}

Result<void> Socket::receive(std::span<std::byte> bytes, std::uint32_t timeout_ms, Descriptor* file) const {
    if (!readable(fd_.get(), timeout_ms))
        return error(Errc::kTimedOut, "the other process sent nothing for {} ms", timeout_ms);
    iovec piece{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(int))];
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t got = 0;
    do {
        got = ::recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC | MSG_TRUNC);
    } while (got < 0 && errno == EINTR);
    if (got >= 0) take_files(message, file);
    if (got <= 0) return error(Errc::kIo, "the other process is gone");
    if (got != static_cast<ssize_t>(bytes.size()) || (message.msg_flags & MSG_TRUNC) != 0)
        return error(Errc::kCorrupt, "a message has {} bytes instead of {}", got, bytes.size());
    return {};
}

bool Socket::silent() const {
    if (readable(fd_.get(), 0)) return false;
    stop_receiving();
    // A message may have come before that took effect.
    char none = 0;
    iovec piece{&none, 1};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    const ssize_t got = ::recvmsg(fd_.get(), &message, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 && (message.msg_flags & MSG_CTRUNC) == 0;
}

void Socket::shut_down() const {
    ::shutdown(fd_.get(), SHUT_RDWR);
}

void Socket::stop_receiving() const {
    ::shutdown(fd_.get(), SHUT_RD);
}

void Socket::stop_sending() const {
    ::shutdown(fd_.get(), SHUT_WR);
}

}  // namespace gnstor::rdma::shm
