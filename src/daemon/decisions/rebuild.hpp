// rebuild.hpp: fills a rebuilding slot with the blocks of its chunks, range by range, from the replicas that are *in*.
// docs/array.md, rule 12; the commands: gnstor/nvme/copy.hpp.
//
// Pure logic: the caller decides when the next command is sent, and sends it through CopyPort.
// Invariants
//   * a Rebuild is made for one version of the map, once that version is in force, for the volumes that existed then:
//   writes of later volumes, and later writes of these, reach the rebuilding slot by themselves;
//   * a range is left out if no drive has anything in it: no block, tombstone or doubt. The donors are asked first, then the
//   target, which has got the donors' floor before: a write that comes to the target alone afterwards is refused, unless
//   it is newer than all that the donors have seen, and then it reaches them as well;
//   * a range is read from donors only after its window is open on the target;
//   * a range is done when every block of it was read from some donor and COPY WRITE was answered with success;
//   * a range with a block that no donor can read, or that the target refuses, keeps the rebuild from ending: the slot
//   does not become *in*, and stuck() says which range it is. Such ranges are tried again after all others.
// Models: tests/model/rebuild_window.pml, and of the map around it tests/model/map_out.pml. One caller at a time.
#pragma once

#include <gnstor/nvme/copy.hpp>
#include <gnstor/nvme/vendor.hpp>
#include <gnstor/placement/placement.hpp>

#include "daemon/decisions/ssd_port.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

namespace gnstor::daemon {

/// Blocks of one chunk that are copied together.
struct CopyRange {
    nvme::VolumeId volume = 0;
    nvme::BlockAddress first = 0;
    std::uint32_t blocks = 0;
};

/// The blocks of one COPY SURVEY: from `first`, a multiple of nvme::kExtentBlocks, as many as the command takes.
[[nodiscard]] CopyRange survey_window(const placement::VolumeGeometry& geometry, std::uint64_t first);

/// The window that a range is written through, and the lowest epoch of the donors that it was read from. Of a closed
/// volume: nvme::kCopyClosed and the volume's epoch.
struct CopySource {
    std::uint32_t window = 0;
    nvme::Epoch epoch = 0;
};

/// How a rebuild, or a comparison of replicas (reconcile.hpp), reaches the drive of a slot. Each call ends within a bounded
/// time; a drive without an answer is kQueueError or kTimedOut.
class CopyPort {
  public:
    virtual ~CopyPort() = default;
    /// `window` is set on success.
    virtual nvme::Status copy_open(std::uint32_t slot, const CopyRange& range, std::uint32_t& window) = 0;
    /// `source`: {} unless the volume is closed. `epoch`: of the volume on that drive.
    virtual nvme::Status copy_read(std::uint32_t slot, const CopyRange& range, const CopySource& source,
                                   std::span<std::byte> data, nvme::Epoch& epoch) = 0;
    virtual nvme::Status copy_write(std::uint32_t slot, const CopyRange& range, const CopySource& source,
                                    std::span<std::byte> data) = 0;
    /// `range`: of whole extents, at most nvme::kSurveyExtentsMax, but for the last of the volume. `epoch`: as copy_read().
    /// Firmware that does not know kind kChanges answers as to kBlocks.
    virtual nvme::Status copy_survey(std::uint32_t slot, const CopyRange& range, nvme::SurveyKind kind,
                                     std::span<nvme::SurveyExtent> extents, nvme::Epoch& epoch) = 0;
    /// All sequences of the volume's epoch up to `floor` are resolved.
    virtual nvme::Status set_floor(std::uint32_t slot, nvme::VolumeId volume, nvme::Epoch epoch,
                                   std::uint64_t floor) = 0;
};

/// Whether a drive gave no answer, or refused for the moment alone: it lacks a grant, or the newest map.
[[nodiscard]] bool is_for_now(nvme::Status why);

/// The drives of an array by slot; null: no drive. The ports outlive it.
class SsdCopyPort final : public CopyPort {
  public:
    SsdCopyPort(std::vector<SsdPort*> by_slot, std::uint64_t term, nvme::MapVersion version)
        : by_slot_(std::move(by_slot)), term_(term), version_(version) {}
    nvme::Status copy_open(std::uint32_t slot, const CopyRange& range, std::uint32_t& window) override;
    nvme::Status copy_read(std::uint32_t slot, const CopyRange& range, const CopySource& source,
                           std::span<std::byte> data, nvme::Epoch& epoch) override;
    nvme::Status copy_write(std::uint32_t slot, const CopyRange& range, const CopySource& source,
                            std::span<std::byte> data) override;
    nvme::Status copy_survey(std::uint32_t slot, const CopyRange& range, nvme::SurveyKind kind,
                             std::span<nvme::SurveyExtent> extents, nvme::Epoch& epoch) override;
    nvme::Status set_floor(std::uint32_t slot, nvme::VolumeId volume, nvme::Epoch epoch,
                           std::uint64_t floor) override;

  private:
    nvme::Status send(std::uint32_t slot, nvme::CopyOpcode opcode, const CopyRange& range,
                      const CopySource& source, std::span<std::byte> data, std::uint32_t& dw0);

    std::vector<SsdPort*> by_slot_;
    std::uint64_t term_;
    nvme::MapVersion version_;
};

/// Rules that the simulator breaks on purpose.
enum class RebuildMutation : std::uint8_t {
    kNone,
    kReadBeforeOpen,  ///< donors are read before the window is open
    kForgetStuck,     ///< a range with a block that no donor can read is left out
    kSkipLastRange,   ///< the slot is full before its last range is copied
    kDonorsOnly,      ///< the target is not asked what it has
};

struct RebuildProgress {
    std::uint64_t blocks_total = 0;  ///< of all volumes, whether written or not, and on whichever slots
    std::uint64_t blocks_done = 0;  ///< of them: copied, or not placed on the slot; not those of stuck ranges
    std::uint64_t blocks_copied = 0;                ///< had a version on a donor
    nvme::Status refusal = nvme::Status::kSuccess;  ///< the last one; success: there was none
};

class Rebuild {
  public:
    /// 33 KiB of data: an admin command moves at most 64 KiB.
    static constexpr std::uint32_t kRangeBlocks = 8;
    /// A range that the target has refused so often waits until all others were tried.
    static constexpr std::uint32_t kAttempts = 4;

    Rebuild(const placement::ArrayMap& map, std::uint32_t slot, std::span<const nvme::VolumeRecord> volumes,
            RebuildMutation mutation = RebuildMutation::kNone);

    enum class Step : std::uint8_t {
        kWorked,  ///< a command was answered as hoped
        kWaits,   ///< a drive does not answer or refuses for now: call again later
        kDone     ///< every range is done
    };
    /// Sends at most one command.
    Step step(CopyPort& port);

    [[nodiscard]] std::uint32_t slot() const { return slot_; }
    [[nodiscard]] nvme::MapVersion version() const { return map_.version; }
    [[nodiscard]] const RebuildProgress& progress() const { return progress_; }
    /// Leaves out volumes for which `gone(volume, birth epoch)`: they were deleted, and their VID may live again.
    template <class Gone>
    void drop_if(Gone gone) {
        for (const Part& part : parts_)
            if (!part.dropped && gone(part.geometry.volume, part.birth_epoch))
                drop_volume(part.geometry.volume);
    }
    /// Begins with the volume's ranges again: donors have got versions that no client wrote (reconcile.hpp).
    void again(nvme::VolumeId volume);
    /// Ranges that a donor could not read, or the target refused, at the last attempt.
    [[nodiscard]] const std::deque<CopyRange>& stuck() const { return stuck_; }

  private:
    enum class Phase : std::uint8_t { kNext, kSurvey, kFloor, kOpen, kRead, kWrite };
    struct Part {
        placement::VolumeGeometry geometry;
        nvme::Epoch birth_epoch;
        std::uint64_t next = 0;  ///< block at which the search for the slot's next range begins
        bool dropped = false;
    };

    bool take_range();
    bool take_new_range();
    [[nodiscard]] bool is_surveyed(const Part& part) const;
    void begin_survey(const Part& part);
    Step survey(CopyPort& port);
    Step floor(CopyPort& port);
    [[nodiscard]] bool has_anything(const CopyRange& range) const;
    void begin(const CopyRange& range);
    Step open(CopyPort& port);
    Step read(CopyPort& port);
    Step write(CopyPort& port);
    Step end_range();
    void drop_volume(nvme::VolumeId volume);
    std::uint64_t forget_ranges(nvme::VolumeId volume);
    void merge(std::span<const std::byte> data);
    [[nodiscard]] bool complete() const;
    Step refused(nvme::Status why);
    Step refused_by_target(nvme::Status why);
    Step stick(nvme::Status why);

    const placement::ArrayMap map_;
    const std::uint32_t slot_;
    const RebuildMutation mutation_;
    std::vector<Part> parts_;
    std::size_t part_ = 0;
    std::deque<CopyRange> stuck_;
    std::size_t stuck_left_ = 0;  ///< of stuck_: not tried again yet in this round
    Phase phase_ = Phase::kNext;
    CopyRange surveyed_;                ///< the extents that were asked for last; blocks 0: none
    std::vector<std::uint32_t> asked_;  ///< slots to ask, in this order
    std::size_t next_asked_ = 0;
    std::vector<nvme::SurveyExtent> extents_;
    std::vector<bool> anything_;  ///< by group of nvme::kSurveyGroupBlocks of surveyed_
    nvme::Epoch floor_epoch_ = 0;
    std::uint64_t floor_ = 0;  ///< of the donors, in floor_epoch_
    bool all_closed_ = false;  ///< each donor in floor_epoch_ has the floor of a comparison
    CopyRange range_;
    placement::Replicas replicas_{};
    std::uint32_t donor_ = 0;  ///< index in replicas_ of the next donor
    CopySource source_;
    std::uint32_t attempts_ = 0;   ///< of this range that the target refused
    std::vector<std::byte> data_;  ///< what COPY WRITE sends
    std::vector<std::byte> donor_data_;
    std::vector<bool> read_;  ///< by block of the range: a donor could read it
    RebuildProgress progress_;
};

}  // namespace gnstor::daemon
