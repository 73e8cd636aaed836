// model_figures.hpp: what a profile says of one kind of operation through a whole array. Pure.
#pragma once

#include "embedded/profile.hpp"

#include <cstdint>

namespace gnstor::bench {

struct ModelFigures {
    double drives_per_second = 0;   ///< operations a second that the SSDs together allow; 0: not modelled
    double network_per_second = 0;  ///< and the network
    double latency_ns = 0;          ///< of an idle array, without what the software adds

    /// The lower of both; 0: nothing is modelled.
    [[nodiscard]] double limit() const;
};

/// Blocks are spread evenly over `ssds`; a write goes to `replicas` of them.
ModelFigures figures_of(const embedded::Profile& profile, bool write, std::uint32_t bytes, std::uint32_t ssds,
                        std::uint32_t replicas);

}  // namespace gnstor::bench
