#include "daemon/http/http_server.hpp"

#include "daemon/http/connection_poller.hpp"
#include "daemon/http/ip_address.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace gnstor::daemon {
namespace {

constexpr int kBacklog = 128;

/// A file descriptor that closes itself.
struct Descriptor {
    int fd = -1;
    explicit Descriptor(int f) : fd(f) {}
    ~Descriptor() {
        if (fd >= 0) ::close(fd);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
};

/// take_socket_path() has checked that `path` fits.
sockaddr_un unix_address(const std::filesystem::path& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.native().size());
    return address;
}

/// The TCP port of a socket; IPv4 and IPv6 addresses have it at the same offset.
int port_of(int socket) {
    static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
    sockaddr_in6 address{};
    socklen_t size = sizeof(address);
    return ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? ntohs(address.sin6_port)
                                                                                    : 0;
}

/// Whether a process accepts connections at a Unix socket.
bool answers(const std::filesystem::path& path) {
    const Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const sockaddr_un address = unix_address(path);
    // EAGAIN: its backlog is full, so a process listens.
    return ::connect(probe.fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
           errno == EAGAIN;
}

/// Threads that run queued tasks; the destructor runs the remaining ones before it joins.
class Pool {
  public:
    explicit Pool(std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) threads_.emplace_back([this] { run(); });
    }
    ~Pool() {
        {
            const std::scoped_lock lock(mutex_);
            over_ = true;
        }
        changed_.notify_all();
        for (std::thread& one : threads_) one.join();
    }
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;
    void give(std::function<void()> task) {
        {
            const std::scoped_lock lock(mutex_);
            tasks_.push_back(std::move(task));
        }
        changed_.notify_one();
    }

  private:
    void run() {
        for (std::unique_lock lock(mutex_);; lock.lock()) {
            changed_.wait(lock, [this] { return over_ || !tasks_.empty(); });
            if (tasks_.empty()) return;
            const std::function<void()> task = std::move(tasks_.front());
            tasks_.pop_front();
            lock.unlock();
            task();
        }
    }
    std::mutex mutex_;  // guards tasks_ and over_
    std::deque<std::function<void()>> tasks_;
    bool over_ = false;
    std::condition_variable changed_;
    std::vector<std::thread> threads_;
};

}  // namespace

struct HttpServer::Impl {
    Impl(HttpService& s, const HttpServerOptions& o) : service(s), options(o) {}
    HttpService& service;
    const HttpServerOptions options;
    std::optional<Descriptor> lock, listener;
    std::unique_ptr<ConnectionPoller> room;
    std::unique_ptr<Pool> pool;  ///< calls the room, so it is destroyed first
    int port = 0;
    bool bound = false;

    Result<void> take_socket_path();
    bool open_listener(const sockaddr* address, socklen_t size);
    Result<void> listen_unix();
    Result<void> listen_tcp();
    Result<void> open_room();
    void serve(std::size_t place, const Request& request);
};

Result<void> HttpServer::Impl::take_socket_path() {
    const std::string path = options.socket.string();
    if (path.size() >= sizeof(sockaddr_un::sun_path))
        return error(
            Errc::kInvalidArgument,
            "the socket path {} has {} characters; a Unix socket takes {}: choose a shorter one with "
            "--socket",
            path, path.size(), sizeof(sockaddr_un::sun_path) - 1);
    const std::string lock_path = path + ".lock";
    lock.emplace(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (lock->fd < 0)
        return error(Errc::kIo, "{} cannot create the lock file {}: {}", options.program, lock_path,
                     std::strerror(errno));
    const Error in_use =
        error(Errc::kBusy, "another {} answers at {}; {}", options.program, path, options.elsewhere);
    if (::flock(lock->fd, LOCK_EX | LOCK_NB) != 0) return in_use;
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0) return {};
    if (!S_ISSOCK(info.st_mode))
        return error(Errc::kExists, "{} exists and is not a socket; remove it or choose another --socket",
                     path);
    if (answers(options.socket)) return in_use;
    if (::unlink(path.c_str()) != 0)
        return error(Errc::kIo, "the stale socket {} cannot be removed: {}", path, std::strerror(errno));
    return {};
}

/// Opens the listener; false: see errno.
bool HttpServer::Impl::open_listener(const sockaddr* address, socklen_t size) {
    const int fd = listener.emplace(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0)).fd;
    if (fd < 0) return false;
    const int yes = 1, no = 0;
    // A umask can only narrow this mode, so no other user can connect between bind() and chmod().
    if (address->sa_family == AF_UNIX) ::fchmod(fd, options.socket_mode);
    // No SO_REUSEPORT: a second daemon on the port would silently take half of the connections.
    if (address->sa_family != AF_UNIX) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (address->sa_family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
    return ::bind(fd, address, size) == 0 && ::listen(fd, kBacklog) == 0;
}

Result<void> HttpServer::Impl::listen_unix() {
    if (options.socket_mode != 0600 && options.socket_mode != 0660)
        return error(Errc::kInvalidArgument,
                     "a socket has mode 0600 or 0660, not {:04o}: the mode is its only protection",
                     options.socket_mode);
    GN_TRY(take_socket_path());
    const sockaddr_un address = unix_address(options.socket);
    if (!open_listener(reinterpret_cast<const sockaddr*>(&address), sizeof(address)))
        return error(Errc::kIo, "{} cannot listen on {}: {}", options.program, options.socket.string(),
                     std::strerror(errno));
    bound = true;
    struct stat info {};
    if (::chmod(options.socket.c_str(), options.socket_mode) != 0 ||
        ::stat(options.socket.c_str(), &info) != 0 || (info.st_mode & 0777u) != options.socket_mode)
        return error(
            Errc::kPermission,
            "the socket {} cannot be given mode {:04o}: its file system has no modes; choose another "
            "place with --socket",
            options.socket.string(), options.socket_mode);
    return {};
}

Result<void> HttpServer::Impl::listen_tcp() {
    if (options.token.empty())
        return error(Errc::kInvalidArgument, "{} does not listen on {}:{} without a token", options.program,
                     options.host, options.port);
    const FoundAddresses all = addresses_of(options.host, options.port);
    int why = 0;
    const addrinfo* one = all.get();
    // Checked here too, where it is decided which address is served.
    const bool plain_is_wrong = !options.tls && !options.clear_text;
    for (const addrinfo* any = one; any != nullptr && plain_is_wrong; any = any->ai_next)
        if (!is_loopback_address(any->ai_addr))
            return error(Errc::kInvalidArgument,
                         "{} does not serve plain HTTP on {}:{}, which other machines reach: the token would "
                         "cross the network in clear text",
                         options.program, options.host, options.port);
    for (; one != nullptr && !open_listener(one->ai_addr, one->ai_addrlen); one = one->ai_next) why = errno;
    if (one == nullptr)
        return error(why == EADDRINUSE ? Errc::kBusy : Errc::kIo,
                     "{} cannot listen on {}:{} ({}); if another process holds the port, choose another one "
                     "(--listen)",
                     options.program, options.host, options.port,
                     why == 0 ? "no such address" : std::strerror(why));
    port = port_of(listener->fd);
    return {};
}

Result<void> HttpServer::Impl::open_room() {
    pool = std::make_unique<Pool>(options.threads);
    room = std::make_unique<ConnectionPoller>(
        WaitingRoomOptions{.places = options.connections,
                           .idle = options.idle,
                           .request = options.request,
                           .answer = options.answer,
                           .tls = options.tls},
        ConnectionPoller::Host{[this](std::size_t place, Request request) {
                                   pool->give([this, place, request = std::move(request)] {
                                       serve(place, request);
                                   });
                               },
                               [this](const HttpRefusal& refusal) {
                                   return service.refuse(refusal.status, refusal.code, refusal.message);
                               }});
    return room->start(listener->fd);
}

void HttpServer::Impl::serve(std::size_t place, const Request& request) {
    std::optional<Response> response;  // stays empty if memory for a response runs out
    try {
        try {
            response = service.handle(request, options.token);
        } catch (const std::exception&) {
            response = service.refuse(500, "internal",
                                      "a defect in " + options.program + ": the request was not carried out");
        }
    } catch (const std::exception&) {
    }
    room->give_back(place, std::move(response));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpService& service,
                                                      const HttpServerOptions& options) {
    auto impl = std::make_unique<Impl>(service, options);
    GN_TRY(options.socket.empty() ? impl->listen_tcp() : impl->listen_unix());
    GN_TRY(impl->open_room());
    return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::~HttpServer() {
    stop();
}

void HttpServer::stop() {
    if (!impl_->room) return;
    impl_->room->stop();
    impl_->pool.reset();
    impl_->room.reset();
    impl_->listener.reset();
    if (impl_->bound) ::unlink(impl_->options.socket.c_str());
    impl_->lock.reset();
}

int HttpServer::port() const {
    return impl_->port;
}

}  // namespace gnstor::daemon
