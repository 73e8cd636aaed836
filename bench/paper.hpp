// paper.hpp: `bench paper --figure N`: the microbenchmarks of the paper that this system comes from (its
// figures 9 to 13), on our stack. Host, one thread.
//
// A figure is a list of cases. Each measured case is written to the result file before the next begins, so a
// command that was stopped, or that reached its time limit, continues after the last written case when it is
// given again.
#pragma once

#include "load.hpp"

namespace gnstor::bench {

inline constexpr std::uint32_t kFirstFigure = 9, kLastFigure = 13;

struct PaperOptions {
    std::uint32_t figure = 9;
    std::vector<std::string> paths{"gnor", "strong-cpu", "gd-deengine", "gd", "basic"};
    LoadSettings settings;
    std::string json;            ///< the result, as far as it is; needed
    double limit_seconds = 450;  ///< no case is begun after so long
    std::vector<std::string> command;
};

/// What the figure shows, in words.
const char* figure_title(std::uint32_t figure);
/// Its cases for these paths. kInvalidArgument: no such figure, path.
Result<std::vector<LoadCase>> figure_cases(std::uint32_t figure, const std::vector<std::string>& paths);

/// False: something was wrong, and the cases in which it was are not kept.
Result<bool> run_paper(const PaperOptions& options);
/// The same by a runner; the settings are complete and steady.
Result<bool> measure_figure(const PaperOptions& options, const std::vector<LoadCase>& wanted,
                            CaseRunner& runner);

}  // namespace gnstor::bench
