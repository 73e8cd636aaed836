// health.hpp: what is wrong with an array: findings with a code, what each means for data, and what to do.
//
// Pure: reads what the daemon shows of itself (ArrayInfo). A code never changes its meaning, so that alerts can
// be tied to it; docs/operations.md lists them all.
#pragma once

#include "daemon/decisions/inspector.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gnstor::daemon {

/// Error: something that users ask for fails, or is about to. Warning: nothing fails yet.
enum class Severity : std::uint8_t { kOk, kWarning, kError };

struct HealthCode {
    std::string_view name;  ///< GNS_ and capitals
    Severity severity;
    std::string_view meaning;  ///< for data and its users, as sentences
    std::string_view action;   ///< what an operator does, as sentences
    /// It comes from what SSDs say of themselves (SsdReadings), so it is known only after they were asked.
    bool from_readings = false;
};

struct HealthFinding {
    const HealthCode* code;
    std::string summary;               ///< one line
    std::vector<std::string> details;  ///< a line for each SSD, volume or change concerned
};

/// From this share of an SSD's capacity on it is nearly full, and full, in percent.
inline constexpr std::uint32_t kNearFullPercent = 85, kFullPercent = 95;
/// Less available spare than this, in percent, is a finding (Available Spare Threshold of the drives).
inline constexpr std::uint32_t kSpareLowPercent = 10;

inline constexpr std::size_t kDetailsMax = 100;  ///< lines of a finding; one more says how many are left out

/// All codes, in the order in which findings are reported.
[[nodiscard]] std::span<const HealthCode> health_codes();
/// Errors first, then warnings.
[[nodiscard]] std::vector<HealthFinding> health_of(const ArrayInfo& info);
/// The worst severity of all findings.
[[nodiscard]] Severity worst_of(const std::vector<HealthFinding>& findings);
/// "ok", "warning", "error".
[[nodiscard]] std::string_view name_of(Severity severity);

/// Whether a volume of so many replicas may have chunks with every replica on an SSD that does not serve, or
/// is being filled (placement.hpp: one replica a failure domain, and more only where there are too few domains).
[[nodiscard]] bool may_lack_all_replicas(const std::vector<SsdInfo>& ssds, std::uint32_t replicas);

}  // namespace gnstor::daemon
