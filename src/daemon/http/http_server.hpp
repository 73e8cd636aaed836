// http_server.hpp: serves an HttpService on a Unix socket or on TCP. Owns the listening socket, its lock
// file, the thread that waits for connections (connection_poller.hpp) and a pool of threads that serve
// requests.
//
// A lock file beside a Unix socket (<socket>.lock) guards its path: only its holder may replace the socket
// file, so one left over by a killed daemon is replaced, and one of a running daemon never. A user who may
// open the socket may act as any client, so its mode must protect it. A token (daemon/http/access.hpp)
// protects TCP, and TLS the token: an address that other machines reach is served without TLS only if the
// options say so. Call start() and stop() from one thread; requests run on the pool's threads.
#pragma once

#include <gnstor/base/result.hpp>

#include "daemon/http/http_service.hpp"
#include "daemon/http/tls_server.hpp"

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

namespace gnstor::daemon {

struct HttpServerOptions {
    std::filesystem::path socket;     ///< Unix socket; empty: TCP
    std::string program = "gnstord";  ///< the server's name in messages
    /// Advice if the socket is in use.
    std::string elsewhere = "stop it ('gnstor down') or choose another --socket";
    std::string host = "127.0.0.1";
    int port = 0;                 ///< TCP; 0: any free one
    std::string token{};          ///< TCP: token that requests must carry; never empty there
    unsigned socket_mode = 0600;  ///< of the Unix socket: 0600, or 0660 for a group
    unsigned threads = 8;
    /// Connections at once, including those that wait for a thread. Another one replaces the connection that
    /// has waited longest for a request; if all are being served, it gets 503.
    unsigned connections = 256;
    std::chrono::milliseconds idle{1000};       ///< how long a silent connection is kept
    std::chrono::milliseconds request{10'000};  ///< how long a request may take to arrive
    std::chrono::milliseconds answer{30'000};   ///< how long the client may take to receive an answer
    std::shared_ptr<const TlsServer> tls{};     ///< TCP: its certificate and key; null: plain HTTP
    bool clear_text = false;  ///< TCP: plain HTTP is allowed on an address that is not a loopback address
};

class HttpServer {
  public:
    /// Listens and serves from now on. `service` must outlive it. kBusy: another process serves there.
    static Result<std::unique_ptr<HttpServer>> start(HttpService& service, const HttpServerOptions& options);
    /// Calls stop().
    ~HttpServer();
    /// Accepts no more connections, closes idle ones, finishes requests in progress (bounded by the drives'
    /// timeouts, plus 2 s for sending answers), joins the threads.
    void stop();
    [[nodiscard]] int port() const;  ///< TCP: the port in use

  private:
    struct Impl;
    explicit HttpServer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor::daemon
