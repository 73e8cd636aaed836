// cpu_meter.cpp: see cpu_meter.hpp.
#include "bench/cpu_meter.hpp"

#include <ctime>

namespace gnstor::bench {

CpuMeter::Reading CpuMeter::read() const {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return {static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9, hardware_()};
}

double CpuMeter::initiator_seconds() const {
    double seconds = after_.process_seconds - before_.process_seconds;
    for (const EngineThread& thread : after_.hardware)
        seconds -= static_cast<double>(thread.cpu_time_ns) / 1e9;
    for (const EngineThread& thread : before_.hardware)
        seconds += static_cast<double>(thread.cpu_time_ns) / 1e9;
    return seconds;
}

}  // namespace gnstor::bench
