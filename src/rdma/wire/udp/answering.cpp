#include "rdma/wire/udp/answering.hpp"

#include "base/last_wait.hpp"

#include <fmt/format.h>

#include <pthread.h>

#include <algorithm>
#include <utility>

namespace gnstor::rdma::udp {
AnsweringThread::AnsweringThread(std::function<void(const PendingArrival&, const ArrivalReply&)> answered)
    : answered_(std::move(answered)), thread_([this] {
          pthread_setname_np(pthread_self(), "gn-udp-accept");
          loop();
      }) {}

AnsweringThread::~AnsweringThread() {
    stop();
}

void AnsweringThread::stop() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
}

void AnsweringThread::ask(PendingArrival arrival) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(arrival));
    changed_.notify_all();
}

void AnsweringThread::forget(roce::CmId id) {
    const std::lock_guard lock(mutex_);
    std::erase_if(queue_, [id](const PendingArrival& one) { return one.id == id; });
}

std::vector<PendingArrival> AnsweringThread::withdraw(std::uint16_t port) {
    std::vector<PendingArrival> forgotten;
    std::unique_lock lock(mutex_);
    for (PendingArrival& one : queue_) {
        if (one.port == port) forgotten.push_back(std::move(one));
    }
    std::erase_if(queue_, [port](const PendingArrival& one) { return one.port == port; });
    const auto free = [&] { return !in_call_ || port_in_call_ != port; };
    // Returning would let the caller free what the call uses.
    LastWait{}(
        changed_, lock, free,
        fmt::format("udp wire: the acceptor of port {} has not returned from a connection request", port));
    return forgotten;
}

void AnsweringThread::loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
        if (stopping_) return;
        const PendingArrival arrival = std::move(queue_.front());
        queue_.pop_front();
        in_call_ = true;
        port_in_call_ = arrival.port;
        lock.unlock();
        answered_(arrival, arrival.acceptor->on_arrival({arrival.peer, arrival.private_data}));
        lock.lock();
        in_call_ = false;
        changed_.notify_all();
    }
}

}  // namespace gnstor::rdma::udp
