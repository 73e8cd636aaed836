#include "daemon/http/connection_poller.hpp"

#include "daemon/http/http_answer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <tuple>

namespace gnstor::daemon {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kDrainBytes = 16 * kMaxBodyBytes;
constexpr auto kDrainTime = 1000ms;
constexpr auto kLeaveTime = 2000ms;  // for unsent answers when the server stops
// Pause before the next accept() after one that failed and left its connection queued.
constexpr auto kAcceptPause = 100ms;
constexpr int kAcceptsAtOnce = 64;  // accepted before other connections are polled again
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr char kHandshakeRecord = 22;  // first byte of a TLS connection: RFC 8446, 5.1
constexpr std::string_view kSpeaksTls =
    "this port speaks TLS: write https:// in place of http://. If the request had a token, it has crossed "
    "the network in clear text: make a new one (remove the server's token file and restart it)";

/// OpenSSL writes without MSG_NOSIGNAL; a peer that has closed its connection must not end this process.
void block_sigpipe_in_this_thread() {
    sigset_t pipe;
    ::sigemptyset(&pipe);
    ::sigaddset(&pipe, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
}

}  // namespace

ConnectionPoller::ConnectionPoller(const WaitingRoomOptions& options, Host host)
    : options_(options),
      keep_alive_(fmt::format("timeout={}, max={}",
                              std::max<long long>(1, options.idle / std::chrono::seconds(1)),
                              options.requests)),
      host_(std::move(host)),
      places_(std::max<std::size_t>(options.places, 1)) {
    polled_.reserve(places_.size() + 2);
    polled_places_.reserve(places_.size());
}

ConnectionPoller::~ConnectionPoller() {
    stop();
    if (wake_ >= 0) ::close(wake_);
}

Result<void> ConnectionPoller::start(int listener) {
    listener_ = listener;
    wake_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    const int flags = ::fcntl(listener, F_GETFL);
    if (wake_ < 0 || flags < 0 || ::fcntl(listener, F_SETFL, flags | O_NONBLOCK) != 0)
        return error(Errc::kIo, "the HTTP server cannot wait for connections: {}", std::strerror(errno));
    thread_ = std::thread([this] { run(); });
    return {};
}

void ConnectionPoller::give_back(std::size_t place, std::optional<Response> response) {
    {
        const std::scoped_lock lock(mutex_);
        given_back_.emplace_back(place, std::move(response));
    }
    (void)::eventfd_write(wake_, 1);
}

void ConnectionPoller::stop() {
    if (!thread_.joinable()) return;
    {
        const std::scoped_lock lock(mutex_);
        stop_ = true;
    }
    (void)::eventfd_write(wake_, 1);
    thread_.join();
}

void ConnectionPoller::run() {
    block_sigpipe_in_this_thread();
    for (;;) {
        wait();  // first: data that has arrived counts, even if the deadline has passed meanwhile
        take_back();
        end_overdue();
        if (leaving_ && empty()) return;
    }
}

bool ConnectionPoller::empty() const {
    return std::all_of(places_.begin(), places_.end(),
                       [](const Place& place) { return place.stage == Stage::kFree; });
}

void ConnectionPoller::take_back() {
    std::vector<std::pair<std::size_t, std::optional<Response>>> taken;
    bool stop = false;
    {
        const std::scoped_lock lock(mutex_);
        taken.swap(given_back_);
        stop = stop_;
    }
    if (stop && !leaving_) leave();
    for (const auto& [index, response] : taken) {
        Place& place = places_[index];
        if (response)
            begin_answer(place, *response);
        else
            end(place);
    }
}

void ConnectionPoller::leave() {
    leaving_ = true;
    ::shutdown(listener_, SHUT_RDWR);  // the kernel refuses new connections from here on
    for (Place& place : places_) {
        if (place.stage != Stage::kServing && place.stage != Stage::kAnswering) end(place);
        if (place.stage == Stage::kAnswering) place.until = std::min(place.until, Clock::now() + kLeaveTime);
    }
}

void ConnectionPoller::end_overdue() {
    const Clock::time_point now = Clock::now();
    for (Place& place : places_) {
        if (place.stage == Stage::kFree || place.stage == Stage::kServing || now < place.until) continue;
        if (place.stage == Stage::kReading && !place.in.empty())
            refuse(place, {408, "timed_out", "the whole request did not arrive in time"});
        else
            end(place);
    }
}

void ConnectionPoller::wait() {
    const bool accepts = !leaving_ && Clock::now() >= accept_from_;
    Clock::time_point until = Clock::now() + 60s;
    if (!leaving_ && !accepts) until = std::min(until, accept_from_);
    polled_.assign({{wake_, POLLIN, 0}, {accepts ? listener_ : -1, POLLIN, 0}});
    polled_places_.clear();
    for (const Place& place : places_) {
        if (place.stage == Stage::kFree || place.stage == Stage::kServing) continue;
        polled_.push_back({place.bytes.fd(), place.events, 0});
        polled_places_.push_back(static_cast<std::size_t>(&place - places_.data()));
        until = std::min(until, place.until);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    if (::poll(polled_.data(), polled_.size(), static_cast<int>(std::max<long long>(0, left.count()))) <= 0)
        return;
    eventfd_t woken = 0;
    if (polled_[0].revents != 0) (void)::eventfd_read(wake_, &woken);
    for (std::size_t i = 2; i < polled_.size(); ++i) {
        if (polled_[i].revents != 0) go_on(places_[polled_places_[i - 2]]);
    }
    // Last: requests that have arrived are taken before a connection is closed to make room.
    if (polled_[1].revents != 0) accept_some();
}

/// Does what the connection was polled for.
void ConnectionPoller::go_on(Place& place) {
    switch (place.stage) {
        case Stage::kHandshake:
            shake_hands(place);
            break;
        case Stage::kReading:
            receive(place);
            break;
        case Stage::kAnswering:
            send(place);
            break;
        case Stage::kDraining:
            drain(place);
            break;
        case Stage::kFree:
        case Stage::kServing:
            break;
    }
}

void ConnectionPoller::accept_some() {
    bool tried = false;
    for (int i = 0; i < kAcceptsAtOnce; ++i) {
        const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED) continue;
            if (errno == EAGAIN || errno == EWOULDBLOCK) return;
            if (errno == EMFILE && !std::exchange(tried, true) && make_place()) continue;
            accept_from_ = Clock::now() + kAcceptPause;
            return;
        }
        const auto is_free = [](const Place& place) { return place.stage == Stage::kFree; };
        auto place = std::find_if(places_.begin(), places_.end(), is_free);
        if (place == places_.end() && make_place())
            place = std::find_if(places_.begin(), places_.end(), is_free);
        if (place == places_.end()) {
            turn_away(fd);
            continue;
        }
        tried = false;
        begin(*place, fd);
    }
}

bool ConnectionPoller::is_waiting(Stage stage) {
    return stage == Stage::kHandshake || stage == Stage::kReading || stage == Stage::kDraining;
}

bool ConnectionPoller::make_place() {
    // Each iteration takes one place out of the waiting stages.
    while (Place* const place = longest_waiting()) {
        // What it waits for may have come meanwhile.
        if (place->stage == Stage::kHandshake) shake_hands(*place);
        if (place->stage == Stage::kReading) receive(*place);
        if (is_waiting(place->stage)) end(*place);
        if (place->stage == Stage::kFree) return true;
    }
    return false;
}

ConnectionPoller::Place* ConnectionPoller::longest_waiting() {
    Place* found = nullptr;
    const auto order = [](const Place& place) {
        return std::tuple(place.stage != Stage::kDraining, place.since);
    };
    for (Place& place : places_)
        if (is_waiting(place.stage))
            if (found == nullptr || order(place) < order(*found)) found = &place;
    return found;
}

void ConnectionPoller::turn_away(int fd) const {
    ByteStream bytes(fd, nullptr);
    if (options_.tls) return;
    // If the answer does not fit the socket buffer, it is dropped: the buffer of a new connection is empty.
    (void)bytes.write(
        http_answer(host_.refuse({503, "busy", "too many connections at once; try again"}), true, ""));
}

void ConnectionPoller::begin(Place& place, int fd) {
    place.bytes = ByteStream(fd, options_.tls.get());
    if (!options_.tls) {
        begin_request(place);
        return receive(place);  // the request has often arrived already
    }
    place.stage = Stage::kHandshake;
    place.events = POLLIN;
    place.since = Clock::now();
    place.until = place.since + options_.idle;
    shake_hands(place);
}

/// Whether the peer begins a handshake; if not, the place has been dealt with.
bool ConnectionPoller::is_greeting(Place& place) {
    char first = 0;
    const ByteStream::Moved moved = place.bytes.peek(first);
    if (moved.state == ByteStream::State::kLater) return false;
    if (moved.state != ByteStream::State::kMoved) return end(place), false;
    place.greeted = true;
    place.until = Clock::now() + options_.request;
    if (first == kHandshakeRecord || std::isupper(static_cast<unsigned char>(first)) == 0) return true;
    place.bytes.drop_tls();  // a method of HTTP begins with a capital letter
    refuse(place, {400, "invalid_argument", std::string(kSpeaksTls)});
    return false;
}

void ConnectionPoller::shake_hands(Place& place) {
    if (!place.greeted && !is_greeting(place)) return;
    const ByteStream::Moved moved = place.bytes.handshake();
    if (moved.state == ByteStream::State::kLater) {
        place.events = moved.wants;
        return;
    }
    // Drained, so that the peer receives the alert that says why.
    if (moved.state != ByteStream::State::kMoved) return begin_draining(place);
    begin_request(place);
    receive(place);  // the request often follows at once
}

void ConnectionPoller::begin_request(Place& place) {
    place.stage = Stage::kReading;
    place.events = POLLIN;
    place.framing = {};
    place.continued = false;
    place.since = Clock::now();
    place.until = place.since + (place.in.empty() ? options_.idle : options_.request);
    if (!place.in.empty()) look(place);  // more bytes came with the previous request
}

void ConnectionPoller::receive(Place& place) {
    const ByteStream::Moved moved = place.bytes.read(piece_);
    if (moved.state == ByteStream::State::kLater) {
        place.events = moved.wants;
        return;
    }
    if (moved.state == ByteStream::State::kFailed) return end(place);
    if (moved.state == ByteStream::State::kEnded && place.in.empty()) return end(place);
    if (moved.state == ByteStream::State::kEnded)
        return refuse(place,
                      {400, "invalid_argument", "the connection ended before the whole request arrived"});
    if (place.in.empty()) place.until = Clock::now() + options_.request;
    place.events = POLLIN;
    place.in.append(piece_.data(), moved.bytes);
    look(place);
}

void ConnectionPoller::look(Place& place) {
    const RequestParser::State state = place.framing.look(place.in);
    if (state == RequestParser::State::kRefused) return refuse(place, place.framing.refusal());
    if (state == RequestParser::State::kMore) {
        if (!place.framing.wants_continue() || std::exchange(place.continued, true)) return;
        // Everything sent before has left, so these few bytes fit, unless the client does not read.
        if (place.bytes.write(kContinue).bytes != kContinue.size()) end(place);
        return;
    }
    Request request = place.framing.request();
    request.body = place.in.substr(place.framing.head_bytes(), place.framing.body_bytes());
    place.in.erase(0, place.framing.head_bytes() + place.framing.body_bytes());
    place.more = ++place.asked < options_.requests && place.framing.keeps_connection();
    place.stage = Stage::kServing;
    host_.serve(static_cast<std::size_t>(&place - places_.data()), std::move(request));
}

void ConnectionPoller::refuse(Place& place, const HttpRefusal& refusal) {
    place.more = false;
    begin_answer(place, host_.refuse(refusal));
}

void ConnectionPoller::begin_answer(Place& place, const Response& response) {
    place.stage = Stage::kAnswering;
    place.out = http_answer(response, place.framing.answer_has_body(),
                            place.more ? std::string_view(keep_alive_) : "");
    place.sent = 0;
    place.until = Clock::now() + (leaving_ ? std::min<std::chrono::milliseconds>(options_.answer, kLeaveTime)
                                           : options_.answer);
    send(place);
}

void ConnectionPoller::send(Place& place) {
    while (place.sent < place.out.size()) {
        const ByteStream::Moved moved = place.bytes.write(std::string_view(place.out).substr(place.sent));
        if (moved.state == ByteStream::State::kLater) {
            place.events = moved.wants;
            return;
        }
        if (moved.state != ByteStream::State::kMoved) return end(place);
        place.sent += moved.bytes;
    }
    place.out = {};
    if (leaving_) return end(place);
    if (place.more) return begin_request(place);
    begin_draining(place);
}

// If the connection closed while the client still sends, the client could miss the answer: its data is read
// for a short time and up to a limit.
void ConnectionPoller::begin_draining(Place& place) {
    place.bytes.end_writing();
    place.stage = Stage::kDraining;
    place.events = POLLIN;
    place.in = {};
    place.since = Clock::now();
    place.until = place.since + kDrainTime;
}

void ConnectionPoller::drain(Place& place) {
    const ByteStream::Moved moved = place.bytes.drain(piece_);
    if (moved.state == ByteStream::State::kLater) return;
    place.drained += moved.bytes;
    if (moved.state != ByteStream::State::kMoved || place.drained >= kDrainBytes) end(place);
}

void ConnectionPoller::end(Place& place) {
    place = Place{};  // closes the connection
}

}  // namespace gnstor::daemon
