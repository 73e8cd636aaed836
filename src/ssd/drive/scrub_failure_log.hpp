// scrub_failure_log.hpp: the log lines of a drive's scrub.
#pragma once

#include <gnstor/base/log.hpp>

#include "deengine/front/engine.hpp"

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace gnstor::ssd {

/// Logs each page that fails the scrub once, however often the scrub finds it. Called from the threads of all
/// service units.
class ScrubFailureLog {
  public:
    void tell(const std::string& serial, const deengine::ScrubError& bad) {
        const std::lock_guard lock(mutex_);
        if (told_.size() > kToldMax || !told_.emplace(bad.page, bad.key).second) return;
        if (told_.size() > kToldMax)
            log_error(
                "SSD {}: scrub: more pages fail their checksums; further pages are not logged, only counted "
                "(scrub_bad_pages)",
                serial);
        else if (bad.known)
            log_error(
                "SSD {}: scrub: flash page {} fails its checksums: reads of block {} of volume {} fail on "
                "this SSD; other replicas have the block, and writing it again repairs it",
                serial, bad.page, static_cast<std::uint32_t>(bad.key), bad.key >> 32);
        else
            log_error("SSD {}: scrub: the record of flash page {} cannot be read", serial, bad.page);
    }

  private:
    static constexpr std::size_t kToldMax = 100;  ///< log lines; further pages are only counted
    std::mutex mutex_;
    std::set<std::pair<deengine::PageNumber, std::uint64_t>> told_;
};

}  // namespace gnstor::ssd
