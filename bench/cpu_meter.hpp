// cpu_meter.hpp: CPU time of the process, and of those threads of it that emulate hardware, between two
// moments: what is left is the initiator's. Host, one thread.
//
// All clocks are read at both moments, in the same order, so that both sides of the difference cover the same
// time: a clock that is read earlier or later than the others can make the initiator's time negative. A
// negative difference is not set to zero, so that such an error is visible.
#pragma once

#include <gnstor/embedded_array.hpp>

#include <functional>
#include <vector>

namespace gnstor::bench {

/// CPU time of the calling thread.
[[nodiscard]] double thread_cpu_seconds();

class CpuMeter {
  public:
    /// `hardware`: threads of this process, always in the same order; later ones may come to them.
    explicit CpuMeter(std::function<std::vector<EngineThread>()> hardware) : hardware_(std::move(hardware)) {}

    /// Right before lanes start, and right after the last one has ended.
    void begin() { before_ = read(); }
    void end() { after_ = read(); }

    [[nodiscard]] const std::vector<EngineThread>& hardware_before() const { return before_.hardware; }
    [[nodiscard]] const std::vector<EngineThread>& hardware_after() const { return after_.hardware; }
    /// Of the process less its emulated hardware.
    [[nodiscard]] double initiator_seconds() const;

  private:
    struct Reading {
        double process_seconds = 0;
        std::vector<EngineThread> hardware;
    };
    [[nodiscard]] Reading read() const;

    const std::function<std::vector<EngineThread>()> hardware_;
    Reading before_, after_;
};

}  // namespace gnstor::bench
