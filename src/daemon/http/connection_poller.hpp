// connection_poller.hpp: the connections of an HTTP server, and the one thread that polls them all.
//
// It accepts connections, does their TLS handshakes, reads until a request is complete, hands that over,
// sends the answer, and waits for the next request. So no thread of the server's pool waits for a peer: a
// client that sends nothing, half a handshake or half a request, or does not read its answer occupies only a
// place here.
// Invariants
//   * a place is free, or its connection is in one of the states of `Stage`; while it is being served, this
//     thread does not touch it until give_back();
//   * every stage but `serving`, which the service bounds, has a deadline. The memory of a connection is
//     bounded: kMaxHeadBytes twice (as received, and parsed), kMaxBodyBytes, one more piece, and one answer;
//     under TLS also OpenSSL's handshake message (at most 128 KiB) and two records;
//   * if all places are taken, a new connection replaces the one that has waited longest for a handshake or a
//     request, never one that is being served or answered. If all are, it gets 503 (under TLS, which would
//     need a handshake first, it is closed). Earlier requests of a connection give it no priority: they need
//     no token, and otherwise a connection without a request yet would be the next to be closed;
//   * no byte of HTTP is sent or taken before the handshake is complete, except the refusal of a client that
//     speaks plain HTTP to a server with TLS.
// The thread owns the places; give_back() and stop() may come from any thread.
#pragma once

#include <gnstor/base/result.hpp>

#include "daemon/http/byte_stream.hpp"
#include "daemon/http/http_service.hpp"
#include "daemon/http/request_parser.hpp"

#include <poll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace gnstor::daemon {

struct WaitingRoomOptions {
    std::size_t places = 256;
    std::size_t requests = 5;                   ///< that one connection may send, one after the other
    std::chrono::milliseconds idle{1000};       ///< between requests
    std::chrono::milliseconds request{10'000};  ///< from a request's first byte to its last
    std::chrono::milliseconds answer{30'000};   ///< until the client has received it
    /// Null: plain HTTP. A handshake has the times of a request: `idle` for its first byte, `request` for
    /// all.
    std::shared_ptr<const TlsServer> tls{};
};

class ConnectionPoller {
  public:
    struct Host {
        /// Starts serving the request on another thread, which must call give_back() with its place. Must not
        /// block.
        std::function<void(std::size_t place, Request request)> serve;
        /// Makes the answer to bytes that are no valid request. Must not block.
        std::function<Response(const HttpRefusal& refusal)> refuse;
    };

    ConnectionPoller(const WaitingRoomOptions& options, Host host);
    ~ConnectionPoller();  ///< calls stop()
    ConnectionPoller(const ConnectionPoller&) = delete;
    ConnectionPoller& operator=(const ConnectionPoller&) = delete;

    /// Accepts from `listener`, which the caller owns, from now on. Call once.
    Result<void> start(int listener);

    /// Ends the serving of a place. No response: closes the connection without an answer.
    void give_back(std::size_t place, std::optional<Response> response);
    /// Accepts no more, closes idle connections, and returns when all requests being served have been
    /// answered (within a few seconds after the last one ends).
    void stop();

  private:
    using Clock = std::chrono::steady_clock;
    enum class Stage { kFree, kHandshake, kReading, kServing, kAnswering, kDraining };
    struct Place {
        ByteStream bytes;
        Stage stage = Stage::kFree;
        short events = 0;                    ///< what poll() waits for
        Clock::time_point since{}, until{};  ///< when this stage began, and its deadline
        RequestParser framing;
        std::string in, out;    ///< received but not yet served; still to be sent
        std::size_t sent = 0;   ///< bytes of `out`
        std::size_t asked = 0;  ///< complete requests received
        std::size_t drained = 0;
        bool greeted = false;    ///< the first byte of a handshake has come
        bool more = false;       ///< requests may follow the answer
        bool continued = false;  ///< 100 Continue was sent
    };

    void run();
    [[nodiscard]] bool empty() const;
    void wait();
    void take_back();
    void end_overdue();
    void leave();

    void accept_some();
    bool make_place();
    static bool is_waiting(Stage stage);
    Place* longest_waiting();
    void turn_away(int fd) const;
    void go_on(Place& place);

    void begin(Place& place, int fd);
    void shake_hands(Place& place);
    bool is_greeting(Place& place);
    void begin_request(Place& place);
    void receive(Place& place);
    void look(Place& place);
    void refuse(Place& place, const HttpRefusal& refusal);
    void begin_answer(Place& place, const Response& response);
    void send(Place& place);
    void begin_draining(Place& place);
    void drain(Place& place);
    static void end(Place& place);

    int listener_ = -1, wake_ = -1;
    const WaitingRoomOptions options_;
    const std::string keep_alive_;  // value of the Keep-Alive header
    const Host host_;
    std::vector<Place> places_;
    std::vector<pollfd> polled_;
    std::vector<std::size_t> polled_places_;  // the place of each entry of polled_, but for the first two
    std::array<char, kTlsRecordBytes> piece_{};
    Clock::time_point accept_from_{};
    bool leaving_ = false;

    std::mutex mutex_;  // guards the two below
    std::vector<std::pair<std::size_t, std::optional<Response>>> given_back_;
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace gnstor::daemon
