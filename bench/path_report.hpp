// path_report.hpp: what `bench path` says of itself: heading, table, raw result. Host.
#pragma once

#include "path.hpp"
#include "path_lanes.hpp"
#include "repeat.hpp"

namespace gnstor::bench {

/// What a run is about, and came to, beside options and cases.
struct PathSummary {
    LaneShape shape{};
    std::string lanes;        ///< in words
    std::string gpu;          ///< empty on CPU lanes
    std::string wire;         ///< between lanes and SSDs, in words
    std::string fio;          ///< what stands in the table, or why nothing does
    std::string load_before;  ///< average of the machine
    Judgement judgement;
    std::uint64_t compared_blocks = 0;
};

void print_heading(const PathOptions& options, const PathSummary& summary);
void print_results(const PathOptions& options, const PathSummary& summary, const std::vector<Case>& cases);
/// In the schema of docs/runs.
nlohmann::json result_of(const PathOptions& options, const PathSummary& summary,
                         const std::vector<Case>& cases);

}  // namespace gnstor::bench
