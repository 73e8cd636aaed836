// oracle.hpp: what each block of each volume may read as, whatever the drive did in between. Knows nothing of
// pages.
//
// Every version that was ever sent for a block and not refused is kept, in the order of docs/array.md, rule
// 7, as long as it may still be seen. Two bounds say how old a version may be that is read:
//   live     the newest that was acknowledged, or seen by a read, since the boot;
//   durable  the newest that a cut must not take: acknowledged with the promise that the mode gives.
// After a cut `live` falls to `durable`; what the first reads then show becomes both. Invariants tested by
// it: docs/array.md, "Invariants", 4, 5, 7, 11, 13. Pure.
#pragma once

#include <gnstor/nvme/vendor.hpp>

#include "deengine/sim/contents.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace gnstor::deengine::sim {

struct Version {
    WriteOrder order;
    ContentId content = 0;
    std::uint32_t claims = 0;  ///< commands that may have brought it
};

struct BlockState {
    WriteOrder live;
    WriteOrder durable;
    std::vector<Version> versions{Version{{}, 0, 1}};  ///< never written reads as zeroes
    /// The medium took a page of it: reads may fail until a write that was sent later goes well. 0: no, else
    /// the tag of the next command then.
    std::uint64_t damaged = 0;
    /// The tag of the change that ended the last damage; 0: there was none.
    std::uint64_t damage_ended = 0;
    /// Of the rotten version, where no cut could tear it and no other page held it: its reads fail, and a cut
    /// makes no doubt of that.
    std::optional<WriteOrder> gone;
    /// A cut may have torn versions up to this one, newer than what is shown: the drive may answer Doubtful
    /// until that or a newer one is acknowledged.
    std::optional<WriteOrder> doubtful;

    void end_damage(std::uint64_t tag) {
        if (damaged != 0) damage_ended = tag;
        damaged = 0;
    }
    /// Whether it may have been damaged when the drive executed the command with this tag: a command that was
    /// sent before the one that ended the damage may be answered after it.
    [[nodiscard]] bool was_damaged(std::uint64_t tag) const { return damaged != 0 || tag < damage_ended; }

    void send(const WriteOrder& order, ContentId content);
    void refuse(const WriteOrder& order, ContentId content);
    void acknowledge(const WriteOrder& order, bool durable_now);
    void make_durable(const WriteOrder& order);
    /// The least version, not older than the bound, that these sectors may be of; null: none.
    [[nodiscard]] const Version* find(const std::byte* bytes, std::uint32_t first, std::uint32_t sectors,
                                      bool after_cut) const;
    /// Something newer than this may have been torn, or rotted.
    [[nodiscard]] bool may_be_doubtful(const Version& shown) const;
    /// The drive may say so of a block of which a page has rotted.
    [[nodiscard]] bool damage_may_be_doubtful() const;
    /// A read since the boot showed it.
    void see(const WriteOrder& order);
    void cut() { live = durable; }
    /// The drive was mounted and shows this: whatever else was uncertain is gone, but for versions that look
    /// alike (zeroes).
    void settle(const Version& shown);

  private:
    void prune();
};

struct VolumeState {
    nvme::VolumeRecord record{};
    std::uint64_t life = 0;
    std::uint64_t next_sequence = 1;
    std::uint64_t floor = 0;  ///< the newest that the drive acknowledged
    std::set<std::uint64_t> unresolved;
    std::map<nvme::BlockAddress, BlockState> blocks;
};

/// An admin command that was sent and not answered: a cut may leave the old state or the new one.
struct PendingAdmin {
    enum class Kind : std::uint8_t { kAdd, kChmod, kDelete } kind;
    nvme::VolumeRecord record;
};

struct Oracle {
    std::map<nvme::VolumeId, VolumeState> volumes;
    std::map<nvme::VolumeId, nvme::Epoch> deleted;  ///< last epochs
    std::optional<PendingAdmin> admin;
    nvme::MapSet map{};  ///< the newest that was sent

    [[nodiscard]] VolumeState* find(nvme::VolumeId vid, std::uint64_t life);
    /// Null: nothing was sent there in its present life.
    [[nodiscard]] const BlockState* find_block(nvme::VolumeId vid, nvme::BlockAddress vba) const;
    /// Whether the drive's list of records is the one before or the one behind the pending command. Empty:
    /// it is; `took` says which.
    [[nodiscard]] std::string check_records(const std::vector<nvme::VolumeRecord>& records, bool& took) const;
    void apply(const PendingAdmin& done);
    [[nodiscard]] std::uint64_t blocks_held() const;  ///< blocks that may be mapped, at most
};

/// What a page holds that it must not hold, of contents 0 .. `contents`: for messages.
std::string describe(const BlockState& block, const std::byte* bytes, ContentId contents);

}  // namespace gnstor::deengine::sim
