// deengine.hpp: `bench deengine`, what a drive's firmware costs a command: map, check, copy, whole path.
// Host.
//
// Each part gives groups of steps; the steps of a group run in turn within every repeat, so that what
// disturbs the machine disturbs all of them alike.
#pragma once

#include "result.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gnstor::bench {

struct DeEngineOptions {
    std::vector<std::string> parts{"map", "check", "copy", "path", "collect", "recover"};
    std::uint32_t repeats = 7;
    std::uint64_t map_slots = 16u << 20;      ///< of the block map alone
    std::uint64_t path_blocks = 12u << 20;    ///< mapped in each engine that has null flash
    std::uint64_t wear_blocks = 1u << 20;     ///< of a full drive that is overwritten
    std::uint64_t recover_blocks = 4u << 20;  ///< of a full drive that is opened again: 16 GiB
    std::uint64_t data_bytes = 1u << 30;      ///< held by each engine that has memory flash; copied from
    std::uint32_t cores = 2;                  ///< most engines at once, each on a thread of its own
    std::uint64_t seed = 1;
    std::string json;
    std::vector<std::string> command;
};

/// False: something was wrong in what was read back.
Result<bool> run_deengine(const DeEngineOptions& options);

namespace deengine_bench {

inline constexpr std::uint32_t kBatch = 32;

/// One thing to measure; `run` is called once a repeat.
struct Step {
    nlohmann::json parameters;
    std::function<Result<Repeat>()> run;
};
/// Runs every step once a repeat, in turn.
Result<std::vector<Case>> measure(const std::string& title, std::uint32_t repeats, std::vector<Step> steps);

Result<std::vector<Case>> measure_map(const DeEngineOptions& options);
Result<std::vector<Case>> measure_check(const DeEngineOptions& options);
Result<std::vector<Case>> measure_copy(const DeEngineOptions& options);
Result<std::vector<Case>> measure_path(const DeEngineOptions& options);
Result<std::vector<Case>> measure_collect(const DeEngineOptions& options);
Result<std::vector<Case>> measure_recover(const DeEngineOptions& options);

/// The compiler must have `value` ready here, and may assume nothing of memory behind.
template <class T>
void keep_value(const T& value) {
    asm("" : : "r,m"(value) : "memory");  // without outputs it is never left out
}

/// Memory that begins at a block's border, as flash pages and I/O buffers do.
struct alignas(4096) AlignedBlock {
    std::byte bytes[4096];
};

class Stopwatch {
  public:
    Stopwatch() : begin_(std::chrono::steady_clock::now()) {}
    [[nodiscard]] double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    }

  private:
    std::chrono::steady_clock::time_point begin_;
};

/// Times of many short slices of equal work. Their middle one is what counts: another program's turn on the
/// core falls into a few of them.
class Slices {
  public:
    void add(double seconds) { seconds_.push_back(seconds); }
    [[nodiscard]] double middle() {
        std::nth_element(seconds_.begin(), seconds_.begin() + seconds_.size() / 2, seconds_.end());
        return seconds_[seconds_.size() / 2];
    }

  private:
    std::vector<double> seconds_;
};

inline Repeat repeat_of(double seconds, std::uint64_t operations, std::uint64_t bytes = 0) {
    Repeat r;
    r.seconds = seconds;
    r.operations = operations;
    r.bytes = bytes;
    return r;
}

}  // namespace deengine_bench
}  // namespace gnstor::bench
