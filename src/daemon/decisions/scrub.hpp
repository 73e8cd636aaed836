// scrub.hpp: compares the replicas of a volume, block by block, and mends what one of them cannot read. docs/array.md,
// rule 13; the commands: gnstor/nvme/copy.hpp.
//
// A drive finds contents that do not fit their checksums, but it cannot know that its valid block is not the one that the
// other replicas have. The scrub reads the versions of every block that some replica has:
//   * a block that a replica cannot read, or doubts, is put there again from the newest replica that can. The drive takes it
//   only in place of a block that it cannot read, and only if nothing newer is there;
//   * versions that differ although both are resolved, with valid checksums on both, are reported, and never changed: which
//   one is right is not known, and one of the drives has broken its promise;
//   * versions that are not resolved may differ for a while. They are looked at again, and left for the next pass if they
//   stay so.
//
// When a difference is proven. A replica that is *in* holds, of all versions up to its floor, the newest (rule 8). COPY READ
// tells the floor with the versions. So if replica X has a newer version than Y, at or below Y's floor, then Y lacks an
// acknowledged version. That holds also if clients wrote between the two reads. If Y has no version of the block, the order
// of its removal is not known: it may be a trim without a tombstone, which is at most one above Y's floor
// (TombstonePruner::is_next()). So X is read again, until X's floor is above the floor that Y had: by then X would have
// carried the trim out, too. While a
// volume has no writer and its replicas were compared, every difference is proven. One with a writer that writes nothing
// keeps its floor: there, a missing block is found after the writer's end.
//
// Pure logic: the caller decides when the next command is sent, and sends it through CopyPort.
// Invariants
//   * made for one version of the map and of the volume's record, which are in force; the record has a writer, or the
//   replicas were compared since it had one (reconcile.hpp removes blocks without tombstones). Only slots that are *in* are
//   asked;
//   * no sound block of any drive is changed.
// One caller at a time.
#pragma once

#include "daemon/decisions/rebuild.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <vector>

namespace gnstor::daemon {

/// Rules that the simulator breaks on purpose.
enum class ScrubMutation : std::uint8_t {
    kNone,
    kFloorIgnored,  ///< every difference is reported, resolved or not
    kNoMend,        ///< what cannot be read is left
    kTrustAbsence,  ///< a block that one replica lacks is reported at the first look
};

/// Two replicas that both read a block well, and not alike.
struct ScrubDifference {
    nvme::BlockAddress block = 0;
    std::uint32_t newer_slot = 0, older_slot = 0;
};

struct ScrubCounts {
    std::uint64_t blocks = 0;      ///< compared: of all replicas of a range that has data
    std::uint64_t bytes = 0;       ///< that the drives sent
    std::uint64_t mended = 0;      ///< replicas of blocks that were put again
    std::uint64_t unreadable = 0;  ///< blocks that no replica can read
    std::uint64_t refused = 0;     ///< replicas of blocks that the drive did not take, or did not tell of
    std::uint64_t unresolved = 0;  ///< blocks whose versions differed, and were not resolved
    std::uint64_t different = 0;   ///< blocks whose resolved versions differ

    void add(const ScrubCounts& o);
};

class Scrub {
  public:
    static constexpr std::uint32_t kRangeBlocks = Rebuild::kRangeBlocks;
    /// How often a range is read, and a block put, before it is left for the next pass.
    static constexpr std::uint32_t kLooks = 6;
    /// Mends that may be refused as doubtful in a row: a drive that lost records doubts every block of a volume.
    static constexpr std::uint32_t kDoubtfulMax = 16;
    static constexpr std::size_t kDifferencesMax = 100;  ///< that are kept by name

    /// Begins at the extent of block `first`.
    Scrub(const placement::ArrayMap& map, const nvme::VolumeRecord& record, std::uint64_t first = 0,
          ScrubMutation mutation = ScrubMutation::kNone);

    enum class Step : std::uint8_t {
        kWorked,  ///< a command was carried out
        kWaits,  ///< a drive does not answer or refuses for now, or versions are not resolved: call again later
        kDone    ///< the whole volume was looked at
    };
    /// Sends at most one command.
    Step step(CopyPort& port);

    [[nodiscard]] nvme::VolumeId volume() const { return geometry_.volume; }
    [[nodiscard]] nvme::MapVersion version() const { return map_.version; }
    [[nodiscard]] std::uint64_t revision() const { return revision_; }  ///< of the volume's record
    /// Everything before this block was looked at. Another Scrub of the volume begins here.
    [[nodiscard]] std::uint64_t position() const;
    [[nodiscard]] const ScrubCounts& counts() const { return counts_; }
    /// Of what lies before position(), but for what was mended and sent behind it.
    [[nodiscard]] ScrubCounts settled_counts() const;
    /// The first kDifferencesMax.
    [[nodiscard]] const std::vector<ScrubDifference>& differences() const { return differences_; }

  private:
    enum class Phase : std::uint8_t { kSurvey, kNext, kRead, kNextMend, kOpen, kDonors, kWrite, kEnd };
    struct Replica {
        std::uint32_t slot;
        std::vector<nvme::CopyRecord> records{};
    };
    /// A replica of a block that cannot be read.
    struct Bad {
        std::uint32_t slot;
        nvme::BlockAddress block;
    };
    /// A block that one replica has, and another has not, when it was first seen so.
    struct Missing {
        nvme::CopyRecord version;  ///< of the replica that has it
        nvme::CopyRecord absent;   ///< the other's answer
    };

    /// A range whose versions were not resolved.
    struct Later {
        CopyRange range;
        std::uint32_t looks;
        std::map<nvme::BlockAddress, Missing> missing;
    };

    void begin_window(std::uint64_t first);
    Step survey(CopyPort& port);
    void find_ranges();
    bool take_range();
    bool take_later();
    void begin_range(const CopyRange& range);
    Step read(CopyPort& port);
    Step end_look();
    void judge_block(std::uint32_t i);
    [[nodiscard]] bool is_proven(const nvme::CopyRecord& newer, const nvme::CopyRecord& older,
                                 nvme::BlockAddress block);
    void note_bad(std::uint32_t i);
    Step open(CopyPort& port);
    Step read_donor(CopyPort& port);
    Step write(CopyPort& port);
    Step end_mend(nvme::Status status);
    Step leave_bad();
    [[nodiscard]] bool is_in(std::uint32_t slot) const;
    [[nodiscard]] std::vector<std::uint32_t> slots_of(nvme::BlockAddress block) const;

    const placement::ArrayMap map_;
    const placement::VolumeGeometry geometry_;
    const std::uint64_t revision_;
    const bool closed_;  ///< the volume has no writer, and its replicas were compared
    const ScrubMutation mutation_;
    std::vector<std::uint32_t> slots_;  ///< that are *in*

    Phase phase_ = Phase::kEnd;
    CopyRange window_{};
    std::size_t next_slot_ = 0;
    std::vector<bool> anything_;    ///< by group of kSurveyGroupBlocks of the window: some drive has data
    std::deque<CopyRange> ranges_;  ///< of the window
    std::deque<Later> later_;       ///< of the window
    std::size_t round_left_ = 0;    ///< of later_, those that have their turn before the next pause
    std::set<nvme::BlockAddress> proven_;  ///< blocks of the window that are reported
    ScrubCounts before_window_;

    CopyRange range_{};
    std::uint32_t looks_ = 0;
    std::vector<Replica> replicas_;
    std::size_t next_replica_ = 0;
    std::map<nvme::BlockAddress, Missing> missing_;
    bool look_again_ = false;
    std::uint32_t open_questions_ = 0;  ///< blocks of this look that are not resolved

    std::deque<Bad> bad_;
    std::vector<std::uint32_t> donors_;
    std::size_t next_donor_ = 0;
    CopySource source_{};
    std::vector<std::byte> data_, best_;  ///< of one block: an answer, and the newest so far
    bool any_donor_ = false;
    std::uint32_t mend_tries_ = 0;
    std::uint32_t doubtful_mends_ = 0;  ///< in a row that the drives refused as doubtful

    ScrubCounts counts_;
    std::vector<ScrubDifference> differences_;
};

}  // namespace gnstor::daemon
