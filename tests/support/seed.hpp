// seed.hpp: one seed for a test program: GN_SEED from the environment, else fixed, so that a red run can be
// replayed.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace gnstor::test {

/// The seed of this run. `usual` is used where GN_SEED is not set. Printed once, where it is first asked for.
inline std::uint64_t run_seed(std::uint64_t usual = 1) {
    static const std::uint64_t seed = [usual] {
        const char* text = std::getenv("GN_SEED");
        const std::uint64_t chosen = text != nullptr ? std::strtoull(text, nullptr, 0) : usual;
        std::printf("[   SEED   ] %llu (replay: GN_SEED=%llu)\n", static_cast<unsigned long long>(chosen),
                    static_cast<unsigned long long>(chosen));
        return chosen;
    }();
    return seed;
}

}  // namespace gnstor::test
