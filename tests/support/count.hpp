// count.hpp: what a test program did, in the form that the floors are held against (docs/testing.md,
// "Floors").
#pragma once

#include <cstdint>
#include <cstdio>

namespace gnstor::test {

/// Equal names are added up over the programs of a stage.
inline void count(const char* name, std::uint64_t done) {
    std::printf("GN_COUNT %s=%llu\n", name, static_cast<unsigned long long>(done));
}

}  // namespace gnstor::test
