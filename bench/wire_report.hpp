// wire_report.hpp: what `bench wire` says of its cases: the table, and how they stand to what is aimed at.
// Host.
//
// Targets: shm at 80 % of loop; udp at half of what UDP sockets move in messages of 64 KiB; no packet lost
// because a socket of ours was full. The first two are a matter of the machine and are only said; the last
// is a promise (the wire paces what it sends), and the run fails where it is broken.
#pragma once

#include "result.hpp"

#include <string>
#include <vector>

namespace gnstor::bench::wire_bench {

/// One case's GB/s over another's of the same repeat.
struct Ratio {
    std::string what;    ///< the case, in words
    std::string beside;  ///< the one that it is held against
    double median = 0, least = 0, most = 0;
    double target = 0;  ///< 0: none is aimed at
    [[nodiscard]] bool met() const { return median >= target; }
};

struct Verdicts {
    std::vector<Ratio> ratios;
    std::uint64_t receive_overruns = 0, retransmissions = 0;  ///< of all repeats of the udp wire
};

Verdicts judge(const std::vector<Case>& cases);

std::string wire_table(const std::vector<Case>& cases);
std::string text_of(const Verdicts& verdicts);
nlohmann::json to_json(const Verdicts& verdicts);
/// kIo: packets were lost by our own overrun.
Result<void> promise_kept(const Verdicts& verdicts);

}  // namespace gnstor::bench::wire_bench
