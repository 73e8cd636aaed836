// last_wait.hpp: waits that cannot be given up: another thread, or the kernel, still uses memory that is
// freed right after the wait.
//
// While a wait lasts it logs, at intervals, what it waits for. After the last interval it ends the process: a
// defect with a name is better than a silent hang, and much better than freed memory that another thread
// writes to.
#pragma once

#include <gnstor/base/log.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <string_view>

namespace gnstor {

struct LastWait {
    std::chrono::milliseconds complain_every{10'000};
    // Longer than the longest legitimate wait: the barrier of a drive on a hanging disk gives the drive up
    // after 300 s, and says so (service_units.cpp).
    std::uint32_t complaints_most = 36;

    /// Waits until done(), with the lock that guards it. `what` begins the message: what does not answer, and
    /// why.
    template <class Done>
    void operator()(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, Done done,
                    std::string_view what) const {
        for (std::uint32_t complaints = 1; !changed.wait_for(lock, complain_every, done); ++complaints)
            complain(complaints, what);
    }
    /// The same for callers that wait themselves: called after each `complain_every` without success.
    void complain(std::uint32_t complaints, std::string_view what) const {
        log_error("{}, for {} s", what,
                  std::chrono::duration_cast<std::chrono::seconds>(complain_every * complaints).count());
        if (complaints < complaints_most) return;
        log_error("{}: this process is terminated, because the memory that the wait protects cannot be freed",
                  what);
        std::abort();
    }
};

}  // namespace gnstor
