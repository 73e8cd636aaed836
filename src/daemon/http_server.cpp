#include "daemon/http_server.hpp"

#include "daemon/http_exchange.hpp"
#include "daemon/waiting_room.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <httplib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>

namespace gnstor::daemon {
namespace {

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

/// Whether somebody accepts connections at a Unix socket.
bool answers(const std::filesystem::path& path) {
    const Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.native().size());
    // EAGAIN: its queue is full, so somebody listens.
    return ::connect(probe.fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
           errno == EAGAIN;
}

/// Threads that are joined, when what they were given is done.
struct Pool {
    explicit Pool(std::size_t count) : threads(count) {}
    ~Pool() { threads.shutdown(); }
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;
    httplib::ThreadPool threads;
};

}  // namespace

struct HttpServer::Impl {
    explicit Impl(HttpService& s) : service(s) {}
    HttpService& service;
    HttpServerOptions options;
    ExchangeServer server;
    std::unique_ptr<WaitingRoom> room;
    std::unique_ptr<Pool> pool;  ///< gives back to the room: gone before it
    std::unique_ptr<Descriptor> lock;
    int port = 0;
    int listening = -1;  ///< the server's socket
    bool bound = false;

    void configure();
    Result<void> take_socket_path();
    Result<void> listen_unix();
    Result<void> listen_tcp();
    Result<void> open_room();
    void serve(std::size_t place, const WholeRequest& request);
    void put(const Response& response, httplib::Response& out) const;
};

void HttpServer::Impl::put(const Response& response, httplib::Response& out) const {
    out.status = response.status;
    out.set_content(response.body, response.content_type.c_str());
    if (!response.allow.empty()) out.set_header("Allow", response.allow.c_str());
    if (!response.challenge.empty()) out.set_header("WWW-Authenticate", response.challenge.c_str());
}

void HttpServer::Impl::configure() {
    // Every path goes to the one function (the routes are the document's), before httplib would read a body.
    server.set_pre_routing_handler([this](const httplib::Request& in, httplib::Response& out) {
        constexpr std::array kServed = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};
        if (std::find(kServed.begin(), kServed.end(), in.method) == kServed.end())
            return httplib::Server::HandlerResponse::Unhandled;
        put(service.handle(Request{in.method, in.target, in.get_header_value("Content-Type"), in.body,
                                   in.get_header_value("Authorization"), in.get_header_value("Origin")},
                           options.token),
            out);
        return httplib::Server::HandlerResponse::Handled;
    });
    // What httplib refuses by itself: lines that are no HTTP.
    server.set_error_handler([this](const httplib::Request&, httplib::Response& out) {
        if (!out.body.empty()) return;
        put(service.refuse(out.status, out.status >= 500 ? "internal" : "invalid_argument",
                           "this is not an HTTP request that " + options.program +
                               " understands, or not all of it came"),
            out);
    });
    server.set_exception_handler([this](const httplib::Request&, httplib::Response& out, std::exception_ptr) {
        put(service.refuse(500, "internal",
                           "a defect in " + options.program + ": the request was not carried out"),
            out);
    });
    // What its answers say of it.
    server.set_keep_alive_timeout(
        std::max<time_t>(1, std::chrono::duration_cast<std::chrono::seconds>(options.idle).count()));
    // Not SO_REUSEPORT, httplib's default: a second daemon on the port would silently take half of the
    // connections.
    server.set_socket_options([this](socket_t fd) {
        listening = fd;
        // bind() makes the file with no more than this: whatever the umask, nobody connects before the chmod.
        if (!options.socket.empty()) ::fchmod(fd, options.socket_mode);
        const int yes = 1;
        ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
}

Result<void> HttpServer::Impl::take_socket_path() {
    const std::string path = options.socket.string();
    if (path.size() >= sizeof(sockaddr_un::sun_path))
        return error(
            Errc::kInvalidArgument,
            "the socket path {} has {} characters; a Unix socket takes {}: choose a shorter one with "
            "--socket",
            path, path.size(), sizeof(sockaddr_un::sun_path) - 1);
    const std::string lock_path = path + ".lock";
    lock = std::make_unique<Descriptor>(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (lock->fd < 0)
        return error(Errc::kIo, "{} cannot make {}: {}", options.program, lock_path, std::strerror(errno));
    const Error in_use =
        error(Errc::kBusy, "another {} answers at {}; {}", options.program, path, options.elsewhere);
    if (::flock(lock->fd, LOCK_EX | LOCK_NB) != 0) return in_use;
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0) return {};
    if (!S_ISSOCK(info.st_mode))
        return error(Errc::kExists, "{} is there and is not a socket; remove it or choose another --socket",
                     path);
    if (answers(options.socket)) return in_use;
    if (::unlink(path.c_str()) != 0)
        return error(Errc::kIo, "the stale socket {} cannot be removed: {}", path, std::strerror(errno));
    return {};
}

Result<void> HttpServer::Impl::listen_unix() {
    if (options.socket_mode != 0600 && options.socket_mode != 0660)
        return error(Errc::kInvalidArgument,
                     "a socket has mode 0600 or 0660, not {:04o}: it is all that guards it",
                     options.socket_mode);
    GN_TRY(take_socket_path());
    server.set_address_family(AF_UNIX);
    if (!server.bind_to_port(options.socket.c_str(), 80))
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
    errno = 0;
    if (options.port == 0)
        port = server.bind_to_any_port(options.host.c_str());
    else
        port = server.bind_to_port(options.host.c_str(), options.port) ? options.port : -1;
    if (port <= 0)
        return error(errno == EADDRINUSE ? Errc::kBusy : Errc::kIo,
                     "{} cannot listen on {}:{} ({}); if another process holds the port, choose another one "
                     "(--listen)",
                     options.program, options.host, options.port,
                     errno == 0 ? "no such address" : std::strerror(errno));
    return {};
}

Result<void> HttpServer::Impl::open_room() {
    ::listen(listening, 128);  // httplib's backlog of 5 turns clients away on a Unix socket
    pool = std::make_unique<Pool>(options.threads);
    room = std::make_unique<WaitingRoom>(
        WaitingRoomOptions{options.connections, server.requests_a_connection(), options.idle, options.request,
                           options.answer},
        WaitingRoom::Host{[this](std::size_t place, WholeRequest request) {
                              (void)pool->threads.enqueue(
                                  [this, place, request = std::move(request)] { serve(place, request); });
                          },
                          [this](const HttpRefusal& refusal, bool with_body) {
                              return closing_answer(
                                  service.refuse(refusal.status, refusal.code, refusal.message), with_body);
                          }});
    return room->start(listening);
}

void HttpServer::Impl::serve(std::size_t place, const WholeRequest& request) {
    HttpAnswer answer;  // none, and the connection ends
    try {
        answer = server.answer(request);
    } catch (const std::exception&) {  // httplib passes on what it has no memory for
    }
    room->give_back(place, std::move(answer));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<HttpServer>> HttpServer::start(HttpService& service,
                                                      const HttpServerOptions& options) {
    auto impl = std::make_unique<Impl>(service);
    impl->options = options;
    impl->configure();
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
    impl_->server.close_listener();
    if (impl_->bound) ::unlink(impl_->options.socket.c_str());
    impl_->lock.reset();
}

int HttpServer::port() const {
    return impl_->port;
}

}  // namespace gnstor::daemon
