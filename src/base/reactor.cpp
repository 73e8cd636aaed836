// reactor.cpp: the adaptive engine thread.
//
// Owns: the thread, its lists of pollers and of watched file descriptors (touched by that thread alone), and
// a queue of requests (add, remove, run) that other threads fill under a mutex. One word, which is also the
// futex, says whether the thread is awake, notified or asleep. While file descriptors are watched, the thread
// sleeps in ppoll() instead, and an eventfd ends that sleep.
#include <gnstor/base/log.hpp>
#include <gnstor/base/reactor.hpp>

#include "base/last_wait.hpp"

#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <mutex>
#include <thread>
#include <utility>

namespace gnstor {
namespace {

constexpr std::uint32_t kAwake = 0;
constexpr std::uint32_t kNotified = 1;  // wake() was called since the last round began
constexpr std::uint32_t kAsleep = 2;
constexpr std::uint32_t kAsleepWatching = 3;

// Idle rounds with only a pause instruction, before the thread begins to yield its core.
constexpr std::uint32_t kRelaxedRounds = 16;

std::uint64_t monotonic_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

void relax_core() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/// A clock that takes some nanoseconds to read; busy_time_ns() finds its unit.
std::uint64_t ticks() {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return monotonic_ns();
#endif
}

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t while_value, std::uint32_t microseconds) {
    const timespec t{static_cast<time_t>(microseconds / 1'000'000u),
                     static_cast<long>(microseconds % 1'000'000u) * 1000};
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_PRIVATE, while_value, &t, nullptr,
            0);
}

void futex_wake_one(std::atomic<std::uint32_t>& word) {
    syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

}  // namespace

struct Reactor::Impl {
    enum class Kind { kAdd, kRemove, kRun };
    struct Request {
        Kind kind;
        Poller* poller;
        const std::function<void()>* work;
        bool* done;  // of the waiting caller; guarded by `mutex`; null when nobody waits
    };

    std::string name;
    ReactorOptions options;
    std::thread thread;
    std::vector<Poller*> pollers;  // the reactor's thread alone; null: removed during a round
    // Ticks of rounds with work. Only the reactor's thread writes; relaxed, as nothing is ordered by it.
    std::atomic<std::uint64_t> busy_ticks{0};
    const std::uint64_t started_ns = monotonic_ns(), started_ticks = ticks();

    std::atomic<std::uint32_t> word{kAwake};
    std::atomic<bool> has_requests{false};
    std::atomic<bool> stopping{false};
    std::mutex mutex;
    std::condition_variable answered;
    std::vector<Request> requests;  // guarded by `mutex`

    // The eventfd, then the watched descriptors; the reactor's thread alone. Empty: none was ever watched.
    std::vector<pollfd> watched;
    // The eventfd that wake() writes. Set once, before the thread can be kAsleepWatching; open as long as the
    // reactor.
    std::atomic<int> event{-1};

    ~Impl() {
        if (event.load(std::memory_order_relaxed) >= 0) ::close(event.load(std::memory_order_relaxed));
    }

    [[nodiscard]] bool on_own_thread() const { return std::this_thread::get_id() == thread.get_id(); }

    void wake() noexcept {
        // Already notified: the round that takes the notification is still to come. If that round does not
        // see this thread's work yet, a later one does: the reactor spins again (loop()), and every sleep is
        // bounded.
        if (word.load(std::memory_order_relaxed) == kNotified) return;
        // Release: work published before is seen by the round after loop()'s exchange, which acquires.
        const std::uint32_t was = word.exchange(kNotified, std::memory_order_acq_rel);
        if (was == kAsleep) futex_wake_one(word);
        if (was == kAsleepWatching) {
            const std::uint64_t one = 1;
            // Cannot fail: the reactor's thread reads the eventfd's count, so it does not overflow.
            [[maybe_unused]] const auto written =
                ::write(event.load(std::memory_order_relaxed), &one, sizeof one);
        }
    }

    void post(Request request) {
        {
            const std::lock_guard lock(mutex);
            requests.push_back(request);
            // Pairs with the acquire load in serve_requests(); the list itself is guarded by the mutex.
            has_requests.store(true, std::memory_order_release);
        }
        wake();
    }

    void post_and_wait(Kind kind, Poller* poller, const std::function<void()>* work) {
        bool done = false;
        post(Request{kind, poller, work, &done});
        std::unique_lock lock(mutex);
        // Returning earlier would let the caller free what the thread still uses.
        LastWait{}(
            answered, lock, [&] { return done; },
            "reactor " + name +
                ": a request has not been answered, because one of the pollers of this reactor blocks");
    }

    void perform(const Request& request) {
        switch (request.kind) {
            case Kind::kAdd:
                pollers.push_back(request.poller);
                break;
            case Kind::kRemove:
                std::erase(pollers, request.poller);
                break;
            case Kind::kRun:
                (*request.work)();
                break;
        }
    }

    void serve_requests() {
        // Acquire: pairs with post(). A request missed here is served in the next round, as post() wakes
        // afterwards.
        if (!has_requests.load(std::memory_order_acquire)) return;
        std::vector<Request> batch;
        {
            const std::lock_guard lock(mutex);
            batch.swap(requests);
            has_requests.store(false, std::memory_order_relaxed);
        }
        for (const Request& request : batch) {
            perform(request);
            if (request.done == nullptr) continue;
            const std::lock_guard lock(mutex);
            *request.done = true;
            answered.notify_all();
        }
    }

    std::uint32_t poll_all() {
        std::uint32_t work = 0;
        bool removed = false;
        for (std::size_t i = 0; i < pollers.size(); ++i) {
            if (pollers[i] != nullptr) work += pollers[i]->poll();
            removed = removed || pollers[i] == nullptr;  // removed by a poller, from within poll()
        }
        if (removed) std::erase(pollers, nullptr);
        return work;
    }

    void watch(int fd) {
        if (watched.empty()) {
            const int made = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
            if (made < 0) {
                log_warn(
                    "reactor {}: cannot create an event descriptor ({}); arriving packets are noticed only "
                    "when a sleep of at most {} us ends",
                    name, std::strerror(errno), std::max(options.sleep_max_us, options.sleep_deep_us));
                return;
            }
            event.store(made, std::memory_order_relaxed);
            watched.push_back({made, POLLIN, 0});
        }
        watched.push_back({fd, POLLIN, 0});
    }

    void unwatch(int fd) {
        if (watched.empty()) return;
        // The event descriptor is the first and stays.
        watched.erase(std::remove_if(watched.begin() + 1, watched.end(),
                                     [fd](const pollfd& one) { return one.fd == fd; }),
                      watched.end());
    }

    // As sleep(), but a watched descriptor that is ready ends it too, with true.
    bool sleep_watching(std::uint32_t microseconds) {
        std::uint32_t expected = kAwake;
        // Pairs with wake(), as in sleep().
        if (!word.compare_exchange_strong(expected, kAsleepWatching, std::memory_order_acq_rel)) return true;
        const timespec t{static_cast<time_t>(microseconds / 1'000'000u),
                         static_cast<long>(microseconds % 1'000'000u) * 1000};
        const int ready = ppoll(watched.data(), watched.size(), &t, nullptr);
        const bool notified = word.exchange(kAwake, std::memory_order_acq_rel) == kNotified;
        if (notified || watched.front().revents != 0) {
            // wake() may write only after this: then the next sleep ends at once, which does no harm.
            std::uint64_t count = 0;
            [[maybe_unused]] const auto got = ::read(watched.front().fd, &count, sizeof count);
        }
        return notified || ready > 0;
    }

    // Sleeps at most `microseconds`; true if wake() was called, also before the thread could fall asleep.
    bool sleep(std::uint32_t microseconds) {
        if (watched.size() > 1) return sleep_watching(microseconds);
        std::uint32_t expected = kAwake;
        // Pairs with wake(): either wake() sees kAsleep and wakes the futex, or this fails on kNotified.
        if (!word.compare_exchange_strong(expected, kAsleep, std::memory_order_acq_rel)) return true;
        futex_wait(word, kAsleep, microseconds);
        return word.exchange(kAwake, std::memory_order_acq_rel) == kNotified;
    }

    // Returns the time at which the round ended: it is the beginning of a busy thread's next round, so that
    // the clock is read once per round.
    std::uint64_t count_busy(std::uint64_t began) {
        const std::uint64_t now = ticks();
        busy_ticks.store(busy_ticks.load(std::memory_order_relaxed) + (now - began),
                         std::memory_order_relaxed);
        return now;
    }

    [[nodiscard]] std::uint32_t longest_sleep_us(std::uint64_t idle_since) const {
        const bool deep = monotonic_ns() - idle_since >= std::uint64_t{options.deep_after_us} * 1000u;
        return deep ? std::max(options.sleep_max_us, options.sleep_deep_us) : options.sleep_max_us;
    }

    void loop() {
        std::uint64_t idle_since = monotonic_ns();
        std::uint32_t idle_rounds = 0;
        std::uint32_t sleep_us = 0;  // 0: still spinning
        std::uint64_t round_began = 0;
        bool worked = false;
        // Acquire: pairs with ~Reactor, whose wake() follows the store.
        while (!stopping.load(std::memory_order_acquire)) {
            // Cleared before the round, so that a wake() during it prevents the sleep after it.
            if (word.load(std::memory_order_relaxed) == kNotified) {
                word.exchange(kAwake, std::memory_order_acq_rel);
                // The work of the latest of several wake() calls may be seen only some rounds later.
                sleep_us = 0;
                idle_rounds = 0;
            }
            serve_requests();
            if (!worked) round_began = ticks();
            worked = poll_all() != 0;
            if (worked) {
                round_began = count_busy(round_began);
                idle_rounds = 0;
                sleep_us = 0;
                continue;
            }
            if (idle_rounds++ == 0) idle_since = monotonic_ns();
            if (sleep_us == 0 && monotonic_ns() - idle_since < std::uint64_t{options.spin_us} * 1000u) {
                if (idle_rounds < kRelaxedRounds)
                    relax_core();
                else
                    sched_yield();
                continue;
            }
            sleep_us =
                sleep_us == 0 ? options.sleep_min_us : std::min(sleep_us * 2, longest_sleep_us(idle_since));
            if (sleep(sleep_us)) {
                // Woken: spin for a while before sleeping again.
                sleep_us = 0;
                idle_rounds = 0;
            }
        }
        serve_requests();
    }
};

Reactor::Reactor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Reactor>> Reactor::start(std::string name, ReactorOptions options) {
    if (name.empty() || name.size() > 15)
        return error(Errc::kInvalidArgument, "reactor name '{}' must have 1 to 15 characters", name);
    constexpr std::uint32_t kSleepLimitUs = 1'000'000;
    if (options.sleep_min_us == 0 || options.sleep_min_us > options.sleep_max_us ||
        options.sleep_max_us > kSleepLimitUs || options.sleep_deep_us > kSleepLimitUs)
        return error(Errc::kInvalidArgument,
                     "reactor {}: sleeps of {} to {} us are out of range; give 1 <= sleep_min_us <= "
                     "sleep_max_us <= {}",
                     name, options.sleep_min_us, options.sleep_max_us, kSleepLimitUs);
    auto impl = std::make_unique<Impl>();
    impl->name = std::move(name);
    impl->options = options;
    try {
        // The lock holds the new thread back until `thread` is assigned: on_own_thread() compares with it.
        const std::lock_guard lock(impl->mutex);
        impl->thread = std::thread([p = impl.get()] {
            { const std::lock_guard started(p->mutex); }
            pthread_setname_np(pthread_self(), p->name.c_str());
            p->loop();
        });
    } catch (const std::system_error& e) {
        return error(Errc::kNoSpace, "cannot start the thread of reactor {}: {}", impl->name, e.what());
    }
    return std::unique_ptr<Reactor>(new Reactor(std::move(impl)));
}

Reactor::~Reactor() {
    impl_->stopping.store(true, std::memory_order_release);  // pairs with loop()
    impl_->wake();
    impl_->thread.join();
    if (!impl_->pollers.empty())
        log_error("reactor {} was stopped with {} pollers still on it; remove them first", impl_->name,
                  impl_->pollers.size());
}

void Reactor::add(Poller& poller) {
    if (impl_->on_own_thread()) {
        impl_->pollers.push_back(&poller);
        return;
    }
    impl_->post(Impl::Request{Impl::Kind::kAdd, &poller, nullptr, nullptr});
}

void Reactor::remove(Poller& poller) {
    if (impl_->on_own_thread()) {
        // Allowed here although the header excludes it: the current round skips the null entry.
        std::replace(impl_->pollers.begin(), impl_->pollers.end(), &poller, static_cast<Poller*>(nullptr));
        return;
    }
    impl_->post_and_wait(Impl::Kind::kRemove, &poller, nullptr);
}

void Reactor::run(const std::function<void()>& work) {
    if (impl_->on_own_thread()) {
        work();
        return;
    }
    impl_->post_and_wait(Impl::Kind::kRun, nullptr, &work);
}

void Reactor::watch(int fd) {
    run([this, fd] { impl_->watch(fd); });
}

void Reactor::unwatch(int fd) {
    run([this, fd] { impl_->unwatch(fd); });
}

void Reactor::wake() noexcept {
    impl_->wake();
}

std::uint64_t Reactor::cpu_time_ns() const {
    clockid_t clock;
    timespec t{};
    if (pthread_getcpuclockid(impl_->thread.native_handle(), &clock) != 0 || clock_gettime(clock, &t) != 0)
        return 0;
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

std::uint64_t Reactor::busy_time_ns() const {
    const std::uint64_t passed = ticks() - impl_->started_ticks;
    if (passed == 0) return 0;
    const double ns_a_tick =
        static_cast<double>(monotonic_ns() - impl_->started_ns) / static_cast<double>(passed);
    const std::uint64_t busy = impl_->busy_ticks.load(std::memory_order_relaxed);
    return static_cast<std::uint64_t>(static_cast<double>(busy) * ns_a_tick);
}

const std::string& Reactor::name() const noexcept {
    return impl_->name;
}

}  // namespace gnstor
