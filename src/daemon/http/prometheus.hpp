// prometheus.hpp: writes Prometheus' text format 0.0.4. Pure, but for the process's CPU time.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <utility>

namespace gnstor::daemon {

/// Number of requests by route (as in the OpenAPI document), method and status.
using RequestCounts = std::map<std::tuple<std::string, std::string, int>, std::uint64_t>;

class PrometheusText {
  public:
    /// Escapes a label's value: backslash, quote and newline.
    [[nodiscard]] static std::string label(const std::string& text);

    void family(const char* name, const char* type, const char* help) {
        fmt::format_to(std::back_inserter(text_), "# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
    }
    template <class Value>
    void sample(const std::string& name, const std::string& labels, Value value) {
        if (labels.empty())
            fmt::format_to(std::back_inserter(text_), "{} {}\n", name, value);
        else
            fmt::format_to(std::back_inserter(text_), "{}{{{}}} {}\n", name, labels, value);
    }
    template <class Value>
    void one(const char* name, const char* type, const char* help, Value value) {
        family(name, type, help);
        sample(name, "", value);
    }
    /// Metrics that every serving process reports: its requests and its CPU time.
    void of_the_process(const std::string& program, const RequestCounts& counts);
    std::string take() { return std::move(text_); }

  private:
    std::string text_;
};

}  // namespace gnstor::daemon
