// socket_closer.cpp: see socket_closer.hpp.
#include "rdma/wire/shm/socket_closer.hpp"

#include "rdma/wire/shm/messages.hpp"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

namespace gnstor::rdma::shm {
namespace {
constexpr std::chrono::seconds kLastWait{1};
}  // namespace

struct SocketCloser::State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Socket> waiting;  // guarded by the mutex, like the rest
    bool stopping = false, ended = false;
};

SocketCloser::SocketCloser()
    : state_(std::make_shared<State>()), thread_([state = state_] {
          ::pthread_setname_np(::pthread_self(), "gn-shm-close");
          loop(*state);
      }) {}

SocketCloser::~SocketCloser() {
    bool ended = false;
    {
        std::unique_lock lock(state_->mutex);
        state_->stopping = true;
        state_->changed.notify_all();
        ended = state_->changed.wait_for(lock, kLastWait, [this] { return state_->ended; });
    }
    ended ? thread_.join() : thread_.detach();
}

void SocketCloser::add(Socket socket) {
    const std::lock_guard lock(state_->mutex);
    state_->waiting.push_back(std::move(socket));
    state_->changed.notify_all();
}

bool SocketCloser::full() const {
    const std::lock_guard lock(state_->mutex);
    return state_->waiting.size() >= kRoom;
}

void SocketCloser::loop(State& state) {
    std::unique_lock lock(state.mutex);
    for (;;) {
        state.changed.wait(lock, [&] { return state.stopping || !state.waiting.empty(); });
        if (state.waiting.empty()) break;
        Socket one = std::move(state.waiting.front());
        state.waiting.pop_front();
        lock.unlock();
        {
            const Socket last = std::move(one);
            Request unheard;
            (void)last.receive(std::as_writable_bytes(std::span(&unheard, 1)), 0);
        }
        lock.lock();
    }
    state.ended = true;
    state.changed.notify_all();
}

}  // namespace gnstor::rdma::shm
