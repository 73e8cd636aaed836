// greedy_curve.hpp: expected write amplification of greedy collection; tests and benchmarks compare the
// collector with it.
//
// P. Desnoyers, "Analytic Modeling of SSD Write Performance", SYSTOR 2012. Pure.
#pragma once

#include <cmath>

namespace gnstor::deengine {

/// Lambert's W, the branch above -1, for -1/e <= x < 0.
inline double lambert_w(double x) {
    double w = x > -0.3 ? x : -1 + std::sqrt(2 * (1 + std::exp(1.0) * x));
    for (int i = 0; i < 100; ++i) w -= (w * std::exp(w) - x) / (std::exp(w) * (w + 1));
    return w;
}

/// Greedy collection under uniform random writes, units of many pages; `spare` is physical over user pages.
inline double greedy_amplification(double spare) {
    return spare / (spare + lambert_w(-spare * std::exp(-spare)));
}

/// Write amplification of greedy collection under uniform random writes to units of n pages; alpha is
/// physical over user pages.
inline double greedy_amplification(double alpha, double n) {
    const double stretch = 1 + 1 / (2 * n);
    const double x = 0.5 - n / alpha * lambert_w(-stretch * alpha * std::exp(-stretch * alpha));
    return n / (n - (x - 1));
}

}  // namespace gnstor::deengine
