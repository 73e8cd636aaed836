// copies.hpp: executes the commands that compare and copy blocks on one shard: reads blocks with their versions, and puts
// another drive's versions where nothing newer is. docs/array.md, rules 11 and 12; gnstor/nvme/copy.hpp.
//
// Invariants
//   * a version is put with its own order, so that a write that is older or newer finds the same order on each
//   replica;
//   * but what is put of an epoch that is closed, or of a closed volume, gets a *stamp*: an order in that epoch above all that
//   the drive has seen of it. For this drive may have, or have had, a version that the donor lacks, of a writer that was
//   lost while the drive was out: with its own order the donor's version would lose against that one, here or at the next
//   recovery, which also reads the records of trims that no tombstone tells of any more. The same holds in the present
//   epoch for a version here that was resolved where the donor was read. Each stamp is used once: of two copies of a block
//   the later one counts, also after a recovery;
//   * what a record says of contents is checked against the contents before anything is put;
//   * a block that the donor does not have is removed here if its version is resolved: the donor carried that version
//   out, too, so something newer must have removed it there. A version above the donor's floor stays;
//   * a donor is in the window's epoch or a later one, so that a change of an older epoch, whose tombstone may be gone
//   here, cannot take effect there any more;
//   * success means that the block can be read: not lost, and not in doubt.
// Models: tests/model/rebuild_window.pml, tests/model/close_compare.pml. One owner thread.
#pragma once

#include "deengine/shard/changes.hpp"
#include "deengine/shard/shard_state.hpp"

#include <functional>
#include <optional>
#include <vector>

namespace gnstor::deengine {

class Copies {
  public:
    /// `in_doubt` and `read_block`: of the shard.
    struct Reads {
        std::function<bool(BlockKey)> in_doubt;
        std::function<nvme::Status(BlockKey, std::byte*)> read_block;
    };
    Copies(ShardState& state, Changes& changes, TombstonePruner& pruner, Reads reads)
        : state_(state),
          changes_(changes),
          pruner_(pruner),
          reads_(std::move(reads)),
          block_(nvme::kBlockBytes) {}

    /// COPY SURVEY: fills the command's data.
    void survey(const ShardCommand& c);
    /// COPY READ: fills the command's data.
    void read(const ShardCommand& c);
    /// COPY WRITE; kCopyMend: blocks that can be read here stay as they are. `c.sequence`: the window's number; `c.epoch`: the oldest epoch of the volume's life; `c.floor`: the
    /// donor's epoch of the volume when it was read.
    nvme::Status write(const ShardCommand& c);

  private:
    void tell_floor(const ShardCommand& c, nvme::SurveyExtent& extent) const;
    void tell_changes(const ShardCommand& c, std::uint32_t first, nvme::SurveyExtent& extent);
    void survey_blocks(const ShardCommand& c, std::uint32_t first, std::uint32_t blocks,
                       nvme::SurveyExtent& extent);
    [[nodiscard]] bool is_above_floor(const ShardCommand& c, PageNumber page, std::uint64_t floor) const;
    [[nodiscard]] std::optional<WriteOrder> stored(BlockKey key);
    [[nodiscard]] WriteOrder order_to_put(const ShardCommand& c, const nvme::CopyRecord& r, BlockKey key,
                                          const WriteOrder& trimmed);
    [[nodiscard]] bool reads_alike(const nvme::CopyRecord& r, BlockKey key, const WriteOrder& own);
    std::uint64_t next_stamp();
    [[nodiscard]] bool keeps_newer() const { return state_.options.mutation == Mutation::kCopyKeepsNewer; }
    [[nodiscard]] bool is_sound(BlockKey key);
    void read_one(const ShardCommand& c, std::uint32_t i, nvme::CopyRecord& record, std::byte* contents);
    void read_absent(const ShardCommand& c, nvme::CopyRecord& record) const;
    nvme::Status remove_resolved(const ShardCommand& c, const nvme::CopyRecord& absent, ShardCommand& one);
    [[nodiscard]] nvme::Status check_records(const ShardCommand& c, const CopyWindows::Window* window) const;
    /// `window`: null if the volume is closed.
    nvme::Status write_one(const ShardCommand& c, std::uint32_t i, const CopyWindows::Window* window);
    nvme::Status put(const ShardCommand& c, std::uint32_t i, const WriteOrder& trimmed, ShardCommand& one);
    nvme::Status check_readable(const ShardCommand& c, const nvme::CopyRecord& r, BlockKey key);

    ShardState& state_;
    Changes& changes_;
    TombstonePruner& pruner_;
    Reads reads_;
    std::vector<nvme::CopyRecord> records_;
    std::uint64_t stamp_group_ = 0;  ///< durability group of the last stamp
    std::uint64_t stamps_ = 0;       ///< stamps of that group, less one
    std::vector<std::byte> block_;   ///< one page: contents that are checked, then put
};

}  // namespace gnstor::deengine
