// waiting_room.hpp: the connections of an HTTP server, and the one thread that waits for all of them.
//
// It accepts, reads until a request is whole, hands that over, sends the answer, and waits for the next
// request. So no thread of the server's pool ever waits for a peer: one that connects and is silent, sends
// half a request or does not take its answer costs a place here and no more. Invariants
//   * a place is free, or its connection is in one of the states of `Stage`; a place being served is touched
//     by nobody until give_back();
//   * every stage but `serving`, which the service bounds, has a deadline, and what is kept of a connection
//     has a bound: kMaxHeadBytes twice (as it came, and what it says), kMaxBodyBytes, one piece more, and
//     one answer;
//   * where all places are taken, a newcomer gets that of the connection that has waited longest, never of
//     one that is being served or answered. Where all are, it hears 503. What a connection asked before
//     counts for nothing: that takes no token, and the one that has not asked yet would be the next to go.
// The thread owns the places; give_back() and stop() may come from any thread.
#pragma once

#include <gnstor/base/result.hpp>

#include "daemon/http/http_service.hpp"
#include "daemon/http/request_framing.hpp"

#include <poll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace gnstor::daemon {

struct WaitingRoomOptions {
    std::size_t places = 256;
    std::size_t requests = 5;                   ///< that one connection may bring, one after the other
    std::chrono::milliseconds idle{1000};       ///< between requests
    std::chrono::milliseconds request{10'000};  ///< from its first byte to its last
    std::chrono::milliseconds answer{30'000};   ///< to be taken by the client
};

class WaitingRoom {
  public:
    struct Host {
        /// Has the request carried out elsewhere, and give_back() called with its place. Must not wait.
        std::function<void(std::size_t place, Request request)> serve;
        /// The answer to what is no request to be served. Must not wait.
        std::function<Response(const HttpRefusal& refusal)> refuse;
    };

    WaitingRoom(const WaitingRoomOptions& options, Host host);
    ~WaitingRoom();  ///< stops
    WaitingRoom(const WaitingRoom&) = delete;
    WaitingRoom& operator=(const WaitingRoom&) = delete;

    /// Accepts from `listener`, not its owner, from now on. Once.
    Result<void> start(int listener);

    /// None: the connection ends without an answer.
    void give_back(std::size_t place, std::optional<Response> response);
    /// Accepts no more, ends what waits, and returns when all that is served has been answered (within a few
    /// seconds of its end).
    void stop();

  private:
    using Clock = std::chrono::steady_clock;
    enum class Stage { kFree, kReading, kServing, kAnswering, kDraining };
    struct Place {
        int fd = -1;
        Stage stage = Stage::kFree;
        Clock::time_point since{}, until{};  ///< of this wait
        RequestFraming framing;
        std::string in, out;    ///< what came and was not served; what is to be sent
        std::size_t sent = 0;   ///< of `out`
        std::size_t asked = 0;  ///< whole requests that it has brought
        std::size_t drained = 0;
        bool more = false;       ///< requests may follow the answer
        bool continued = false;  ///< has been told to send the body
    };

    void run();
    [[nodiscard]] bool empty() const;
    void wait();
    void take_back();
    void end_overdue();
    void leave();

    void accept_some();
    bool make_place();
    Place* longest_waiting();
    void turn_away(int fd) const;

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
    const std::string keep_alive_;  // what answers say of the two
    const Host host_;
    std::vector<Place> places_;
    std::vector<pollfd> polled_;
    std::vector<std::size_t> polled_places_;  // of each but the first two of them
    std::array<char, 16384> piece_{};
    Clock::time_point accept_from_{};
    bool leaving_ = false;

    std::mutex mutex_;  // guards the two below
    std::vector<std::pair<std::size_t, std::optional<Response>>> given_back_;
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace gnstor::daemon
