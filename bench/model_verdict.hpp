// model_verdict.hpp: whether what was achieved is what a profile says, or what the host can do. Pure.
//
// The host works partly while modelled time passes (what a drive does with the data), partly before and after
// (what a lane does): what it adds to the latency of an operation lies between nothing and all of it. All of
// it is what one operation takes that is alone: one lane, nothing else under way, nothing that limits. Of
// many at once each would take longer by its waiting for the others, and a band as wide as that accepts
// anything.
#pragma once

#include <cmath>

namespace gnstor::bench {

inline constexpr double kHostShare = 0.85;  ///< of its saturation: above, a case is the host's
inline constexpr double kNear = 0.03;

struct Band {
    double least, most;
    /// 1 inside; else over the bound that it missed.
    [[nodiscard]] double ratio(double value) const {
        return value < least ? value / least : value > most ? value / most : 1;
    }
    [[nodiscard]] bool near(double value) const { return std::abs(ratio(value) - 1) <= kNear; }
};

/// Of one case: what profile and host together say.
struct Expectation {
    Band per_second;
    Band latency_ns;         ///< least: the profile's; most: with what the host adds to an operation alone
    bool idle;               ///< nothing queues in the model: latency has a value to be held against
    double host_per_second;  ///< what the host does where nothing limits
    /// Likewise: latency of an operation among as many as this case has; 0: not known.
    double host_crowded_ns = 0;

    [[nodiscard]] bool wants_all_of_the_host() const {
        return per_second.most > kHostShare * host_per_second;
    }
};

enum class Verdict {
    kWithin,
    kRateOutside,
    kLatencyOutside,
    kRateOfTheHost,    ///< the case wants nearly all that the host does
    kLatencyOfTheHost  ///< later than alone, but no later than the host makes as many without a limit
};
Verdict verdict_of(const Expectation& said, double per_second, double p50_ns);
/// As kept in results, and shown.
const char* words_of(Verdict verdict);
[[nodiscard]] constexpr bool is_outside(Verdict verdict) {
    return verdict == Verdict::kRateOutside || verdict == Verdict::kLatencyOutside;
}

}  // namespace gnstor::bench
