// model_verdict.cpp: see model_verdict.hpp.
#include "bench/model_verdict.hpp"

namespace gnstor::bench {

Verdict verdict_of(const Expectation& said, double per_second, double p50_ns) {
    if (said.wants_all_of_the_host()) return Verdict::kRateOfTheHost;
    if (!said.per_second.near(per_second)) return Verdict::kRateOutside;
    if (!said.idle || said.latency_ns.near(p50_ns)) return Verdict::kWithin;
    const Band crowded{said.latency_ns.least, said.latency_ns.least + said.host_crowded_ns};
    const bool is_late = p50_ns > said.latency_ns.most;
    return is_late && crowded.near(p50_ns) ? Verdict::kLatencyOfTheHost : Verdict::kLatencyOutside;
}

const char* words_of(Verdict verdict) {
    switch (verdict) {
        case Verdict::kWithin:
            return "within 3 %";
        case Verdict::kRateOutside:
            return "rate outside";
        case Verdict::kLatencyOutside:
            return "latency outside";
        case Verdict::kRateOfTheHost:
            return "bound by the host";
        case Verdict::kLatencyOfTheHost:
            break;
    }
    return "latency bound by the host";
}

}  // namespace gnstor::bench
