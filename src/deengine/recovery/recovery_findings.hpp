// recovery_findings.hpp: what one shard's recovery adds to the report of its mount.
//
// Invariants: at most RecoveryReport::kMaxFindings lines; changed() is true if anything was found that the
// loaded checkpoint does not contain, so that a new one must be written. Lives during one mount.
#pragma once

#include "deengine/engine_types.hpp"

#include <fmt/core.h>

#include <string>

namespace gnstor::deengine {

class RecoveryFindings {
  public:
    RecoveryFindings(RecoveryReport& report_in, std::uint32_t shard) : report(report_in), shard_(shard) {}

    /// Adds a line.
    void add(const std::string& what) {
        if (report.findings.size() < RecoveryReport::kMaxFindings) {
            report.findings.push_back(fmt::format("shard {}: {}", shard_, what));
        } else {
            ++report.findings_left_out;
        }
    }
    void note_change() { changed_ = true; }
    [[nodiscard]] bool changed() const { return changed_; }

    RecoveryReport& report;

  private:
    const std::uint32_t shard_;
    bool changed_ = false;
};

}  // namespace gnstor::deengine
