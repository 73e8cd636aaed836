// last_wait.hpp: waits that cannot be given up: another thread, or the kernel, still uses memory that is
// freed right after them.
//
// They complain with their name as long as they last. At their end the process ends too: a defect with a name
// is better than a thread that hangs without one, and much better than memory that somebody else writes to.
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
    // Above what the longest honest work takes: the barrier of a drive over a disk that hangs gives the drive
    // up after 300 s, with words (service_units.cpp).
    std::uint32_t complaints_most = 36;

    /// Waits until done(), with the lock that guards it. `what` is a sentence without its end: who does not
    /// answer, and why.
    template <class Done>
    void operator()(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, Done done,
                    std::string_view what) const {
        for (std::uint32_t complaints = 1; !changed.wait_for(lock, complain_every, done); ++complaints)
            complain(complaints, what);
    }
    /// The same for those who look by themselves: after each `complain_every` in vain.
    void complain(std::uint32_t complaints, std::string_view what) const {
        log_error("{}, for {} s", what,
                  std::chrono::duration_cast<std::chrono::seconds>(complain_every * complaints).count());
        if (complaints < complaints_most) return;
        log_error("{}: the process ends, as its memory cannot be given back", what);
        std::abort();
    }
};

}  // namespace gnstor
