// http_server.hpp: an HttpService on a Unix socket, or on TCP. Owns the listening socket, its lock file, the
// thread that waits for connections (waiting_room.hpp) and a pool of threads that serve them.
//
// A Unix socket is guarded by a lock file beside it (<socket>.lock): whoever holds it owns the path, so a
// socket file that is left over from a killed daemon is replaced, and a living daemon's never. Whoever may
// open it may act as any client: its mode guards it, a token (daemon/http/access.hpp) guards TCP. start() and
// stop() from one thread; requests run on the pool's threads.
#pragma once

#include <gnstor/base/result.hpp>

#include "daemon/http/http_service.hpp"

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

namespace gnstor::daemon {

struct HttpServerOptions {
    std::filesystem::path socket;     ///< Unix socket; empty: TCP
    std::string program = "gnstord";  ///< as messages call who serves
    std::string elsewhere = "stop it ('gnstor down') or choose another --socket";  ///< where it is taken
    std::string host = "127.0.0.1";
    int port = 0;                 ///< TCP; 0: any free one
    std::string token{};          ///< TCP: what requests have to bring; never empty there
    unsigned socket_mode = 0600;  ///< of the Unix socket: 0600, or 0660 for a group
    unsigned threads = 8;
    /// At once, those that wait for a thread included. One more takes the place of one that waits for a
    /// request; where all of them are served, it gets 503.
    unsigned connections = 256;
    std::chrono::milliseconds idle{1000};       ///< how long a silent connection is kept
    std::chrono::milliseconds request{10'000};  ///< how long a request may take to arrive
    std::chrono::milliseconds answer{30'000};   ///< how long an answer may take to be fetched
};

class HttpServer {
  public:
    /// Listens and serves from now on. `service` must outlive it. kBusy: somebody else answers there.
    static Result<std::unique_ptr<HttpServer>> start(HttpService& service, const HttpServerOptions& options);
    /// Stops.
    ~HttpServer();
    /// Takes no new connections, ends those that wait, finishes requests under way (bounded by the drives'
    /// timeouts, and 2 s for their answers), joins.
    void stop();
    [[nodiscard]] int port() const;  ///< TCP: the one that was taken

  private:
    struct Impl;
    explicit HttpServer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::daemon
