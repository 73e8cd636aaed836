// rebuild.hpp: fills a rebuilding slot with the blocks of its chunks, range by range, from the replicas that are *in*.
// docs/array.md, rule 12; the commands: gnstor/nvme/copy.hpp.
//
// Pure logic: the caller decides when the next command is sent, and sends it through CopyPort.
// Invariants
//   * a Rebuild is made for one version of the map, once that version is in force, for the volumes that existed then:
//   writes of later volumes, and later writes of these, reach the rebuilding slot by themselves;
//   * a range is read from donors only after its window is open on the target;
//   * a range is done when every block of it was read from some donor and COPY WRITE was answered with success;
//   * a block that no donor can read keeps the rebuild from ending: the slot does not become *in*, and stuck() says
//   which range it is. Such ranges are tried again after all others.
// One caller at a time.
#pragma once

#include <gnstor/nvme/copy.hpp>
#include <gnstor/nvme/vendor.hpp>
#include <gnstor/placement/placement.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace gnstor::daemon {

/// Blocks of one chunk that are copied together.
struct CopyRange {
    nvme::VolumeId volume = 0;
    nvme::BlockAddress first = 0;
    std::uint32_t blocks = 0;
};

/// How a rebuild reaches the drive of a slot. Each call ends within a bounded time; a drive without an answer is
/// kQueueError or kTimedOut.
class CopyPort {
  public:
    virtual ~CopyPort() = default;
    /// `window` is set on success.
    virtual nvme::Status copy_open(std::uint32_t slot, const CopyRange& range, std::uint32_t& window) = 0;
    virtual nvme::Status copy_read(std::uint32_t slot, const CopyRange& range, std::span<std::byte> data) = 0;
    virtual nvme::Status copy_write(std::uint32_t slot, const CopyRange& range, std::uint32_t window,
                                    std::span<std::byte> data) = 0;
};

/// Rules that the simulator breaks on purpose.
enum class RebuildMutation : std::uint8_t {
    kNone,
    kReadBeforeOpen,  ///< donors are read before the window is open
    kForgetStuck,     ///< a range with a block that no donor can read is left out
    kSkipLastRange,   ///< the slot is full before its last range is copied
};

struct RebuildProgress {
    std::uint64_t blocks_total = 0;  ///< blocks of the slot's chunks, whether written or not
    std::uint64_t blocks_done = 0;
    std::uint64_t blocks_copied = 0;  ///< of them: had a version on a donor
    std::uint64_t retries = 0;        ///< commands that were refused, or got no answer
};

class Rebuild {
  public:
    static constexpr std::uint32_t kRangeBlocks = 16;

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
    /// Ranges with a block that no donor could read at the last attempt.
    [[nodiscard]] const std::deque<CopyRange>& stuck() const { return stuck_; }

  private:
    enum class Phase : std::uint8_t { kNext, kOpen, kRead, kWrite };
    struct Part {
        placement::VolumeGeometry geometry;
        std::uint64_t next = 0;  ///< block at which the search for the slot's next range begins
    };

    bool take_range();
    bool take_new_range();
    void begin(const CopyRange& range);
    Step open(CopyPort& port);
    Step read(CopyPort& port);
    Step write(CopyPort& port);
    Step end_range();
    void drop_volume(nvme::VolumeId volume);
    void merge(std::span<const std::byte> data);
    [[nodiscard]] bool complete() const;
    Step refused();

    const placement::ArrayMap map_;
    const std::uint32_t slot_;
    const RebuildMutation mutation_;
    std::vector<Part> parts_;
    std::size_t part_ = 0;
    std::deque<CopyRange> stuck_;
    std::size_t stuck_left_ = 0;  ///< of stuck_: not tried again yet in this round
    Phase phase_ = Phase::kNext;
    CopyRange range_;
    placement::Replicas replicas_{};
    std::uint32_t donor_ = 0;  ///< index in replicas_ of the next donor
    std::uint32_t window_ = 0;
    std::vector<std::byte> data_;  ///< what COPY WRITE sends
    std::vector<std::byte> donor_data_;
    std::vector<bool> read_;  ///< by block of the range: a donor could read it
    RebuildProgress progress_;
};

}  // namespace gnstor::daemon
