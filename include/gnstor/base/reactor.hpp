// reactor.hpp: a thread that runs pollers, and sleeps when none has work.
//
// The adaptive engine thread (docs/design.md, "The NIC"): it spins while there is work, then backs off to
// sleeps, so that an idle array uses under 2 % of a core. Work may arrive through plain memory (a GPU's
// doorbell), which cannot wake a thread: sleeps are therefore short and bounded (ReactorOptions). A watched
// file descriptor (a socket) that becomes ready ends a sleep at once. Each Poller is polled by one reactor
// thread at a time.
#pragma once

#include <gnstor/base/result.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gnstor {

/// A source of work. poll() is called by its reactor's thread alone, and must not block.
class Poller {
  public:
    virtual ~Poller() = default;
    /// Does a bounded amount of work; returns how much it did (0: idle).
    virtual std::uint32_t poll() = 0;
};

struct ReactorOptions {
    std::uint32_t spin_us = 50;             ///< idle time before the first sleep
    std::uint32_t sleep_min_us = 50;        ///< first sleep; doubles while idle
    std::uint32_t sleep_max_us = 2000;      ///< longest sleep: bounds latency after an idle time
    std::uint32_t deep_after_us = 500'000;  ///< idle time after which sleeps may grow to sleep_deep_us
    std::uint32_t sleep_deep_us = 10'000;   ///< longest sleep after that; 0: sleep_max_us
};

class Reactor {
  public:
    /// Starts the thread (named `name`, at most 15 characters).
    static Result<std::unique_ptr<Reactor>> start(std::string name, ReactorOptions options = {});
    /// Stops and joins the thread. All pollers must have been removed.
    ~Reactor();
    Reactor(const Reactor&) = delete;
    Reactor& operator=(const Reactor&) = delete;

    /// Any thread. The poller is polled from soon on.
    void add(Poller& poller);
    /// Any thread but the reactor's own. On return the poller is not being polled and never will be again.
    void remove(Poller& poller);
    /// Runs `work` on the reactor's thread between polls and waits for it; from the reactor's own thread runs
    /// it at once.
    void run(const std::function<void()>& work);
    /// From now on a sleep ends when `fd` becomes readable or has an error; some poller must read what
    /// arrives, or the thread never sleeps. Any thread; `fd` stays open until unwatch().
    void watch(int fd);
    /// On return the thread does not watch `fd` any more. Any thread.
    void unwatch(int fd);
    /// Wakes the thread from a sleep; any thread, cheap when it is awake.
    void wake() noexcept;
    /// CPU time the thread has used, in nanoseconds; any thread.
    [[nodiscard]] std::uint64_t cpu_time_ns() const;
    /// Wall time, in nanoseconds, of rounds in which a poller did work, since the thread was started; any
    /// thread. The rest of the time the thread polled without finding work, or slept. A round during which
    /// the thread lost its core counts in full.
    [[nodiscard]] std::uint64_t busy_time_ns() const;
    [[nodiscard]] const std::string& name() const noexcept;

  private:
    struct Impl;
    explicit Reactor(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace gnstor
