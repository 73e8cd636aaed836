// cpu_meter.cpp: see cpu_meter.hpp.
#include "bench/cpu_meter.hpp"

#include <ctime>

namespace gnstor::bench {

namespace {

double seconds_of(clockid_t clock) {
    timespec t{};
    clock_gettime(clock, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

}  // namespace

double thread_cpu_seconds() {
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

CpuMeter::Reading CpuMeter::read() const {
    return {seconds_of(CLOCK_PROCESS_CPUTIME_ID), hardware_()};
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
