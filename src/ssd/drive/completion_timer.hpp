// completion_timer.hpp: delays the completions of a drive with a timing model: the model computes when each
// is due, and a timing wheel holds it until then.
//
// Owned by the thread that owns the drive's queues; time is an argument. A drive without timing has no
// CompletionTimer.
#pragma once

#include <gnstor/base/timing_wheel.hpp>
#include <gnstor/nvme/command.hpp>

#include "ssd/options/timing_model.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace gnstor::ssd {

class CompletionTimer {
  public:
    struct Answer {
        std::uint64_t tag;
        nvme::Status status;
        std::uint64_t result;  ///< DW0, and DW1 in the upper half
    };

    CompletionTimer(const DriveTiming& timing, std::uint32_t bytes_max) : model_(timing, bytes_max) {}
    void reserve(std::size_t answers) { wheel_.reserve(answers); }

    /// Describes a command for the timing model; false: not timed (only reads and writes are).
    [[nodiscard]] static bool request_of(const nvme::Command& command, TimingModel::Request& request);
    void schedule(std::uint64_t now_ns, std::span<const TimingModel::Request> batch,
                  std::span<std::uint64_t> due_ns) {
        model_.schedule(now_ns, batch, due_ns);
    }

    void hold(std::uint64_t now_ns, std::uint64_t due_ns, const Answer& answer) {
        wheel_.add(now_ns, due_ns, answer);
    }
    [[nodiscard]] bool pop(std::uint64_t now_ns, Answer& answer) { return wheel_.pop(now_ns, answer); }
    [[nodiscard]] bool idle() const { return wheel_.empty(); }
    /// Removes the completions whose tag `matches`, before they are due.
    template <class Matches>
    void take_of(Matches&& matches, std::vector<Answer>& into) {
        wheel_.take_if([&](const Answer& a) { return matches(a.tag); },
                       [&](const Answer& a) { into.push_back(a); });
    }

  private:
    TimingModel model_;
    TimingWheel<Answer> wheel_;
};

}  // namespace gnstor::ssd
