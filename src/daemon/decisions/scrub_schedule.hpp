// scrub_schedule.hpp: passes of the scrub over all volumes: when they begin, which volume is next, how much is read, and
// what was found. scrub.hpp compares one volume.
//
// Pure logic: time, records and drives are arguments. Nothing of it is stored: a daemon that starts knows of no pass.
// Invariants
//   * a pass looks at the volumes that exist when it begins, each once; one that is deleted meanwhile is left out;
//   * between two ticks no more is read than the rate allows for the time since the last one, and one answer.
// One caller at a time.
#pragma once

#include "daemon/decisions/inspector.hpp"
#include "daemon/decisions/scrub.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>

namespace gnstor::daemon {

struct ScrubOptions {
    std::uint64_t every_ms = 0;     ///< from the end of a pass to the next one; 0: only start() begins one
    std::uint64_t bytes_per_s = 0;  ///< at least 1,000
};

class ScrubSchedule {
  public:
    using Volumes = std::map<nvme::VolumeId, nvme::VolumeRecord>;
    /// The first pass after a start begins within this time.
    static constexpr std::uint64_t kFirstPassMs = 3'600'000;
    /// The time for which may be read at once, if ticks are late.
    static constexpr std::uint64_t kBurstMs = 2'000;

    explicit ScrubSchedule(const ScrubOptions& options) : options_(options) {}

    /// Begins a pass, unless one is under way.
    void start(const Volumes& volumes, std::uint64_t now_ms);
    /// Begins a pass if it is time, and lets the scrub read for the time since the last call.
    void tick(const Volumes& volumes, std::uint64_t now_ms);
    /// Sends up to so many commands. `map`: in force. `may`: whether a volume may be scrubbed now. True: there is more to
    /// do at once.
    bool work(std::uint32_t commands, const placement::ArrayMap& map, const Volumes& volumes,
              const std::function<bool(const nvme::VolumeRecord&)>& may, CopyPort& port);
    [[nodiscard]] ScrubInfo info(const Volumes& volumes, std::uint64_t now_ms) const;
    [[nodiscard]] std::uint64_t passes() const { return passes_; }

  private:
    /// What is known of a volume in a pass.
    struct Progress {
        nvme::Epoch birth_epoch = 0;  ///< of the life of the VID that is scrubbed
        std::uint64_t position = 0;
        ScrubCounts counts{};
        std::optional<ScrubDifference> first{};
    };
    using Found = std::map<nvme::VolumeId, Progress>;

    bool choose(const placement::ArrayMap& map, const Volumes& volumes,
                const std::function<bool(const nvme::VolumeRecord&)>& may);
    void put_aside();
    void end_pass();
    [[nodiscard]] ScrubPassInfo pass_info(const Volumes& volumes, std::uint64_t now_ms) const;
    static void add_findings(const Found& found, const Volumes& volumes,
                             std::map<nvme::VolumeId, ScrubFindings>& to);

    const ScrubOptions options_;
    bool running_ = false, ticked_ = false;
    std::uint64_t now_ms_ = 0, began_ms_ = 0, ended_ms_ = 0, next_ms_ = 0;
    std::uint64_t may_read_ = 0;  ///< bytes until the next tick
    std::uint64_t passes_ = 0;
    Found found_;                    ///< of the present pass, or of the last one
    Found before_;                   ///< of the pass before a pass that is under way
    std::set<nvme::VolumeId> left_;  ///< volumes of the pass that have not had their turn
    std::optional<Scrub> scrub_;     ///< of the volume whose turn it is
    ScrubCounts total_;              ///< of all passes, but for what scrub_ has done
};

}  // namespace gnstor::daemon
