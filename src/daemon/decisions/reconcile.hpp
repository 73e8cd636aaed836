// reconcile.hpp: makes the replicas of a volume equal after its writer's epoch has ended. docs/array.md, rule 11; the
// commands: gnstor/nvme/copy.hpp.
//
// A writer that is lost may leave a change on some of its replicas. A change that is resolved is on all of them (rule 8), so
// only blocks with a version above the floor on some replica can differ, and blocks that a trim above the floor removed
// without a tombstone. Each drive tells first in which extents such changes were: the others are not looked at. Then it tells
// which blocks of these extents they are; these blocks are read from every replica, and the newest version is put where it
// is missing. Then everything is resolved: FLOOR tells the drives so.
//
// Pure logic: the caller decides when the next command is sent, and sends it through CopyPort. Model:
// tests/model/close_compare.pml.
// Invariants
//   * made for a volume that no client can write: its record without a writer is in force, in an epoch that stays until
//   this has ended; and for one version of the map, which is in force;
//   * every slot that is written is asked and takes the floor, and those that are *in* are compared. A drive that does not
//   answer is waited for. The blocks of a slot that is rebuilding are copied again afterwards (Rebuild::again());
//   * no drive takes the floor before every range was made equal, or was found to be one that a replica refuses, because
//   it has no room: such ranges are counted, and the replicas differ there;
//   * if nothing is unresolved, no drive takes it either, unless a slot of the map is out or rebuilding;
//   * a drive that is rebuilding takes the floor last, when its blocks are to be copied again. As long as some drive lacks
//   the floor, everything is compared anew: this is not forgotten if the comparison begins again.
// One caller at a time.
#pragma once

#include "daemon/decisions/rebuild.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

namespace gnstor::daemon {

/// Rules that the simulator breaks on purpose.
enum class ReconcileMutation : std::uint8_t {
    kNone,
    kNoComparison,  ///< the floor alone is sent
    kIgnoreAbsent,  ///< blocks that some replica does not have are not compared
    kFirstRange,    ///< ends after one range
};

class Reconcile {
  public:
    static constexpr std::uint32_t kRangeBlocks = nvme::kSurveyGroupBlocks;

    /// `record`: without a writer. `thorough`: looks at every block, also where nothing was changed: an earlier comparison left
    /// ranges that differ.
    Reconcile(const placement::ArrayMap& map, const nvme::VolumeRecord& record, bool thorough = false,
              ReconcileMutation mutation = ReconcileMutation::kNone);

    enum class Step : std::uint8_t {
        kWorked,  ///< a command was answered as hoped
        kWaits,   ///< a drive does not answer or refuses for now: call again later
        kEqual    ///< the replicas are equal, but for `left()` ranges
    };
    /// Sends at most one command.
    Step step(CopyPort& port);

    [[nodiscard]] nvme::VolumeId volume() const { return geometry_.volume; }
    [[nodiscard]] nvme::Epoch epoch() const { return epoch_; }
    [[nodiscard]] nvme::MapVersion version() const { return map_.version; }
    /// True once, after the step with which the last slot that is *in* took the floor: the caller has the blocks of a slot
    /// that is rebuilding copied again (Rebuild::again()). Never, if nothing was unresolved.
    [[nodiscard]] bool take_compared() { return std::exchange(compared_, false); }
    /// Blocks that were put on a replica.
    [[nodiscard]] std::uint64_t blocks_put() const { return blocks_put_; }
    [[nodiscard]] std::uint64_t ranges_compared() const { return ranges_compared_; }
    /// Ranges that a replica refuses, for example because it has no room.
    [[nodiscard]] std::size_t left() const { return left_; }
    [[nodiscard]] nvme::Status left_refusal() const { return left_refusal_; }
    /// A drive's firmware does not know COPY SURVEY, so nothing was compared.
    [[nodiscard]] bool is_unsupported() const { return unsupported_; }
    /// After kWaits: the slot that did not answer, or refused for now.
    [[nodiscard]] std::uint32_t waits_for() const { return waits_for_; }
    [[nodiscard]] nvme::Status refusal() const { return refusal_; }

  private:
    enum class Phase : std::uint8_t { kSurvey, kNext, kRead, kWrite, kFloor, kEnd };
    /// One replica of the present range.
    struct Replica {
        std::uint32_t slot;
        std::vector<std::byte> data{};  ///< of COPY READ
        std::vector<nvme::CopyRecord> records{};
    };

    Step survey(CopyPort& port);
    void end_survey();
    [[nodiscard]] bool has_changes() const;
    [[nodiscard]] std::uint64_t next_changed() const;
    void begin_window(std::uint64_t first);
    void find_ranges();
    void find_ranges_of(const CopyRange& chunk);
    [[nodiscard]] bool differs(const CopyRange& range, const placement::Replicas& replicas) const;
    [[nodiscard]] bool take_range();
    Step read(CopyPort& port);
    void choose();
    void compose(std::size_t replica);
    Step write(CopyPort& port);
    Step floor(CopyPort& port);
    Step refused(std::uint32_t slot, nvme::Status why);
    [[nodiscard]] bool is_newer(const Replica& a, const Replica& b, std::uint32_t block) const;
    [[nodiscard]] bool is_equal(const Replica& a, const Replica& b, std::uint32_t block) const;
    [[nodiscard]] bool is_compared(std::uint32_t slot) const;

    const placement::ArrayMap map_;
    const placement::VolumeGeometry geometry_;
    const nvme::Epoch epoch_;
    const bool thorough_;
    const ReconcileMutation mutation_;
    std::vector<std::uint32_t> slots_;  ///< those that are written: first those that are *in*
    std::size_t compared_slots_ = 0;    ///< of slots_, those that are *in*

    Phase phase_ = Phase::kSurvey;
    CopyRange window_{};             ///< of the extents that are surveyed together
    std::uint64_t next_window_ = 0;  ///< first block of the next one
    nvme::SurveyKind kind_ = nvme::SurveyKind::kChanges;
    std::size_t next_slot_ = 0;
    std::vector<std::vector<nvme::SurveyExtent>> surveys_;  ///< by index in slots_; of the present window
    std::uint64_t floor_ = 0, highest_ = 0;                 ///< of all drives; floor_: the writer's
    bool any_closed_ = false,
         any_open_ = false;         ///< drives that have, and have not, the floor of a comparison
    std::deque<CopyRange> ranges_;  ///< of the present window
    std::size_t left_ = 0;          ///< ranges that some replica refuses

    CopyRange range_;
    std::vector<Replica> replicas_;
    std::size_t next_replica_ = 0;
    std::vector<std::size_t> winner_;  ///< by block of the range: index in replicas_, or kNone
    std::vector<std::byte> data_;      ///< what COPY WRITE sends
    std::uint32_t composed_ = 0;       ///< blocks that data_ changes
    bool range_is_left_ = false;       ///< a replica has refused the present range

    std::uint64_t blocks_put_ = 0, ranges_compared_ = 0;
    bool compared_ = false;  ///< and the caller was not told
    bool unsupported_ = false;
    std::uint32_t waits_for_ = 0;
    nvme::Status refusal_ = nvme::Status::kSuccess, left_refusal_ = nvme::Status::kSuccess;
};

}  // namespace gnstor::daemon
