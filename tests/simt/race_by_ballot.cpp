// A deliberately wrong kernel, for ThreadSanitizer: a ballot is no memory barrier (only sync() is), so the
// neighbour's plain word is read in a race. Its test passes when the race is reported.
#include "support/test_warp.hpp"

#include <cstdio>
#include <vector>

int main() {
    using namespace gnstor::simt;
    std::vector<std::uint64_t> plain(32);
    const auto result = run_test_warps({.warps = 1, .lanes = 32, .seed = 1}, [&](Lane lane) {
        const MaskGroup g = warp(lane);
        plain[lane.index_in_warp] = lane.index_in_warp + 1;
        (void)g.ballot(true);
        if (plain[(lane.index_in_warp + 1) % 32] == 0) std::puts("not even seen");
    });
    return result.ok() ? 0 : 1;
}
