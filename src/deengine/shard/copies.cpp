#include "deengine/shard/copies.hpp"

#include <algorithm>
#include <cstring>

namespace gnstor::deengine {
namespace {

using nvme::CopyKind;
using nvme::CopyRecord;
using nvme::Status;
using nvme::SurveyExtent;

constexpr std::uint32_t kAhead = 12;  ///< how far a survey looks ahead in the map
constexpr std::uint32_t kStampBits = 24;

/// Whether the donor had, when it was read, this version or what counts in its place.
bool is_resolved(const CopyRecord& r, const WriteOrder& order) {
    return order.epoch < r.resolved_epoch ||
           (order.epoch == r.resolved_epoch && order.sequence <= r.resolved());
}

std::byte* contents_of(const ShardCommand& c, std::uint32_t i) {
    return c.data + nvme::copy_contents_at(c.blocks, i);
}

}  // namespace

void Copies::survey(const ShardCommand& c) {
    const bool changes_only = static_cast<nvme::SurveyKind>(c.sequence) == nvme::SurveyKind::kChanges;
    std::byte* to = c.data;
    for (std::uint32_t done = 0; done < c.blocks; done += nvme::kExtentBlocks, to += sizeof(SurveyExtent)) {
        SurveyExtent extent{};
        const std::uint32_t first = c.first + done;
        tell_floor(c, extent);
        if (changes_only)
            tell_changes(c, first, extent);
        else
            survey_blocks(c, first, std::min(nvme::kExtentBlocks, c.blocks - done), extent);
        std::memcpy(to, &extent, sizeof(extent));
    }
}

void Copies::tell_floor(const ShardCommand& c, SurveyExtent& extent) const {
    if (const VolumeFloor* f = state_.floors.find(c.volume); f != nullptr && f->epoch == c.volume_epoch) {
        extent.floor = f->floor;
        extent.highest = f->highest;
    }
    extent.floor = std::max(extent.floor, c.floor);
}

/// A block in doubt may have any version.
void Copies::tell_changes(const ShardCommand& c, std::uint32_t first, SurveyExtent& extent) {
    const ChangedExtents* changed = state_.floors.changed(c.volume, c.volume_epoch, extent.floor);
    if (changed == nullptr || !state_.doubts.empty()) {
        extent.next_changed = std::uint64_t{first} + nvme::kExtentBlocks;
        return;
    }
    if (!changed->has(first)) extent.flags = nvme::kExtentUnchanged;
    extent.next_changed = changed->next(first);
}

void Copies::survey_blocks(const ShardCommand& c, std::uint32_t first, std::uint32_t blocks,
                           SurveyExtent& extent) {
    const auto differs = [&extent](std::uint32_t i) { extent.groups |= 1u << i / nvme::kSurveyGroupBlocks; };
    state_.tombstones.for_each_within(make_key(c.volume, first), blocks,
                                      [&](std::uint32_t i, std::uint32_t end) {
                                          for (; i < end; ++i) differs(i);
                                      });
    for (std::uint32_t i = 0; i < blocks; ++i) {
        const BlockKey key = make_key(c.volume, first + i);
        if (i + kAhead < blocks) state_.map.prefetch(make_key(c.volume, first + i + kAhead));
        const auto entry = state_.map.find(key);
        if (entry) extent.present[i / 8] |= static_cast<std::uint8_t>(1u << i % 8);
        if (!state_.doubts.empty() && reads_.in_doubt(key)) differs(i);
        if (entry && is_above_floor(c, entry->page, extent.floor)) differs(i);
    }
}

/// Whether the page may hold a version that is not resolved.
bool Copies::is_above_floor(const ShardCommand& c, PageNumber page, std::uint64_t floor) const {
    PageOob oob{};
    const bool known = has_data(state_.flash.read_oob(page, oob)) && oob.kind == PageKind::kData;
    // With the floor of a comparison that not every drive has yet, all of the epoch counts.
    if (floor == nvme::kClosedFloor) floor = 0;
    return !known || (oob.epoch == c.volume_epoch && oob.sequence > floor);
}

void Copies::read(const ShardCommand& c) {
    for (std::uint32_t i = 0; i < c.blocks; ++i) {
        CopyRecord record{};
        std::byte* contents = contents_of(c, i);
        read_one(c, i, record, contents);
        const std::uint64_t resolved = std::max(state_.floors.resolved(c.volume, c.volume_epoch), c.floor);
        record.resolved_epoch = c.volume_epoch;
        record.resolved_low = static_cast<std::uint32_t>(resolved);
        record.resolved_high = static_cast<std::uint32_t>(resolved >> 32);
        if (record.kind != CopyKind::kData) std::memset(contents, 0, nvme::kBlockBytes);
        std::memcpy(c.data + std::size_t{i} * sizeof(record), &record, sizeof(record));
    }
}

/// Here every older epoch is closed, and of this one all changes up to the floor are resolved.
void Copies::read_absent(const ShardCommand& c, CopyRecord& record) const {
    record.kind = CopyKind::kAbsent;
    record.epoch = c.volume_epoch;
    record.sequence = std::max(state_.floors.resolved(c.volume, c.volume_epoch), c.floor);
}

void Copies::read_one(const ShardCommand& c, std::uint32_t i, CopyRecord& record, std::byte* contents) {
    const BlockKey key = make_key(c.volume, c.first + i);
    record.kind = CopyKind::kUnreadable;
    if (!state_.doubts.empty() && reads_.in_doubt(key)) {
        record.in_doubt = 1;
        return;
    }
    const auto entry = state_.map.find(key);
    if (!entry) {
        const auto trimmed = state_.tombstones.find(key);
        if (!trimmed) return read_absent(c, record);
        record.kind = CopyKind::kTombstone;
        record.epoch = trimmed->epoch;
        record.sequence = trimmed->sequence;
        record.content = trimmed->crc;
        return;
    }
    PageOob oob{};
    const bool known = has_data(state_.flash.read_oob(entry->page, oob)) && oob.kind == PageKind::kData;
    if (!known || !ok(reads_.read_block(key, contents))) return;
    const WriteOrder order = WriteOrder::of(oob);
    record.epoch = order.epoch;
    record.sequence = order.sequence;
    record.content = order.crc;
    record.kind = CopyKind::kData;
}

Status Copies::write(const ShardCommand& c) {
    // Copied: the sender may still change the data.
    records_.resize(c.blocks);
    std::memcpy(records_.data(), c.data, records_.size() * sizeof(CopyRecord));
    const bool closed = c.sequence == nvme::kCopyClosed;
    const CopyWindows::Window* window =
        closed ? nullptr
               : state_.windows.find(static_cast<std::uint32_t>(c.sequence), c.volume, c.first, c.blocks);
    if (!closed) {
        if (window == nullptr) return Status::kCommandSequenceError;
        if (c.floor < window->epoch) return Status::kCommandSequenceError;
    }
    if (const Status s = check_records(c, window); !ok(s)) return s;
    for (std::uint32_t i = 0; i < c.blocks; ++i) {
        if (c.op == ShardOp::kCopyMend && is_sound(make_key(c.volume, c.first + i))) continue;
        if (const Status s = write_one(c, i, window); !ok(s)) return s;
    }
    return Status::kSuccess;
}

/// Whether the block can be read here.
bool Copies::is_sound(BlockKey key) {
    if (!state_.doubts.empty() && reads_.in_doubt(key)) return false;
    return ok(reads_.read_block(key, block_.data()));
}

Status Copies::check_records(const ShardCommand& c, const CopyWindows::Window* window) const {
    for (const CopyRecord& r : records_) {
        if (r.kind == CopyKind::kUnchanged && window == nullptr) continue;
        if (r.kind > CopyKind::kTombstone || r.epoch < c.epoch) return Status::kInvalidField;
        // The volume's next epoch has reached the donor and not this drive: soon.
        if (r.epoch > c.volume_epoch) return Status::kNotGranted;
        // A tombstone of sequence 0 stands for what older epochs left (remove_resolved()).
        if (r.kind == CopyKind::kData && r.sequence == 0) return Status::kInvalidField;
    }
    return Status::kSuccess;
}

Status Copies::write_one(const ShardCommand& c, std::uint32_t i, const CopyWindows::Window* window) {
    const CopyRecord& r = records_[i];
    if (r.kind == CopyKind::kUnchanged) return Status::kSuccess;
    ShardCommand one = c;
    one.first = c.first + i;
    one.blocks = 1;
    one.room = c.room > i ? c.room - i : 0;
    Status status = Status::kSuccess;
    if (r.kind == CopyKind::kAbsent) {
        // The donor may have lost the block: what is known to have been here is not removed.
        if (c.op == ShardOp::kCopyMend && stored(make_key(c.volume, one.first)))
            return Status::kUnrecoveredReadError;
        status = remove_resolved(c, r, one);
    } else {
        const WriteOrder trimmed = window != nullptr ? window->trimmed[i] : WriteOrder{};
        const bool trimmed_since = WriteOrder{r.epoch, r.sequence, r.content} <= trimmed &&
                                   (!is_resolved(r, trimmed) || keeps_newer());
        if (!trimmed_since || state_.options.mutation == Mutation::kCopyOverTrim)
            status = put(c, i, trimmed, one);
    }
    return ok(status) ? check_readable(c, r, make_key(c.volume, one.first)) : status;
}

/// Nothing: the block has no version here, or one whose order is not known.
std::optional<WriteOrder> Copies::stored(BlockKey key) {
    const auto entry = state_.map.find(key);
    if (!entry) return state_.tombstones.find(key);
    PageOob oob{};
    const bool known = has_data(state_.flash.read_oob(entry->page, oob)) && is_known_page(oob) &&
                       oob.kind != PageKind::kLostOrder;
    return known ? std::optional(WriteOrder::of(oob)) : std::nullopt;
}

/// An order above every order that was put or written in the epoch so far. Groups go up over restarts; one has far fewer
/// copies than the counter's 2^24.
std::uint64_t Copies::next_stamp() {
    const std::uint64_t group = state_.groups.current();
    stamps_ = group == stamp_group_ ? stamps_ + 1 : 0;
    stamp_group_ = group;
    return nvme::kFirstStamp | group << kStampBits | (stamps_ & ((1u << kStampBits) - 1));
}

/// Whether a reader finds here what the donor has, under whatever order. A page that has rotted since is not that.
bool Copies::reads_alike(const CopyRecord& r, BlockKey key, const WriteOrder& own) {
    const bool data = state_.map.find(key).has_value();
    if (r.kind != CopyKind::kData) return !data;
    return data && own.crc == r.content && ok(reads_.read_block(key, block_.data()));
}

/// The order under which the donor's version is put. `trimmed`: the newest trim that the window knows of.
WriteOrder Copies::order_to_put(const ShardCommand& c, const CopyRecord& r, BlockKey key,
                                const WriteOrder& trimmed) {
    const WriteOrder donors{r.epoch, r.sequence, r.content};
    const nvme::Epoch epoch = std::min(r.resolved_epoch, c.volume_epoch);
    const WriteOrder own = std::max(stored(key).value_or(WriteOrder{}), trimmed);
    if (own == donors || epoch == 0 || keeps_newer() || reads_alike(r, key, own)) return donors;
    // A drive that is *in* had a newer version, which cannot be read any more: the donor's does not take its place.
    if (c.op == ShardOp::kCopyMend && own > donors && own.crc != r.content) return donors;
    // The newest epoch of which the donor lacks nothing that counts, and that no writer is in. Of a closed volume it is what
    // was found newest among all replicas.
    const bool ended =
        c.sequence == nvme::kCopyClosed || epoch < r.resolved_epoch || r.resolved() == nvme::kClosedFloor;
    const nvme::Epoch closed = ended ? epoch : epoch - 1;
    if (donors.epoch <= closed && own.epoch <= closed) {
        const bool stamped = own.epoch == closed && own.sequence >= nvme::kFirstStamp;
        return {closed, std::max(next_stamp(), stamped ? own.sequence + 1 : 0), r.content};
    }
    const bool only_here = own > donors && is_resolved(r, own);
    return only_here ? WriteOrder{epoch, r.resolved(), r.content} : donors;
}

Status Copies::put(const ShardCommand& c, std::uint32_t i, const WriteOrder& trimmed, ShardCommand& one) {
    const CopyRecord& r = records_[i];
    const WriteOrder order = order_to_put(c, r, make_key(c.volume, one.first), trimmed);
    one.epoch = order.epoch;
    one.sequence = order.sequence;
    one.op = ShardOp::kTrim;
    one.data = nullptr;
    if (r.kind == CopyKind::kData) {
        std::memcpy(block_.data(), contents_of(c, i), nvme::kBlockBytes);
        if (content_crc_of(block_.data()) != r.content) return Status::kDataTransferError;
        one.op = ShardOp::kWrite;
        one.data = block_.data();
    }
    return changes_.put_copy(one, {r.resolved_epoch, r.resolved()}, c.sequence == nvme::kCopyClosed);
}

/// A version of its own that the drive lost or doubts, and that is not resolved, is not repaired by the donor's older one.
/// Once it is resolved, the donor has it, or what replaced it, or it was never acknowledged.
Status Copies::check_readable(const ShardCommand& c, const CopyRecord& r, BlockKey key) {
    if (!state_.doubts.empty()) {
        // Of a closed volume the version was chosen among all replicas: it is valid even if this drive has lost a newer one.
        const bool closed = c.sequence == nvme::kCopyClosed;
        const nvme::Epoch epoch = std::min(static_cast<nvme::Epoch>(c.floor), c.volume_epoch);
        state_.doubts.settle(
            key, closed ? WriteOrder{epoch, ~0ull, ~0u} : WriteOrder{r.resolved_epoch, r.resolved(), ~0u});
        if (reads_.in_doubt(key)) return Status::kDoubtful;
    }
    const auto entry = state_.map.find(key);
    if (!entry) return Status::kSuccess;
    PageOob oob{};
    const bool known = has_data(state_.flash.read_oob(entry->page, oob)) && oob.kind == PageKind::kData;
    if (!known) return Status::kUnrecoveredReadError;
    // A newer version of its own, which may have rotted.
    return changes_.superseded_whole() ? reads_.read_block(key, block_.data()) : Status::kSuccess;
}

Status Copies::remove_resolved(const ShardCommand& c, const CopyRecord& absent, ShardCommand& one) {
    // What the donor's writer has declared resolved is resolved here as well: nothing older arrives any more. The floor of a
    // comparison comes from the one who compares alone: it says that this drive's blocks are equal to the others'.
    if (absent.sequence != 0 && absent.sequence != nvme::kClosedFloor)
        pruner_.set_floor(c.volume, absent.epoch, absent.sequence);
    if (!state_.map.find(make_key(c.volume, one.first))) return Status::kSuccess;
    if (state_.options.mutation == Mutation::kCopyKeepsResolved) return Status::kSuccess;
    one.op = ShardOp::kTrim;
    one.data = nullptr;
    one.epoch = absent.epoch;
    const bool decided = c.sequence == nvme::kCopyClosed || absent.sequence == nvme::kClosedFloor;
    one.sequence = decided ? next_stamp() : absent.sequence;
    return changes_.put_copy(one, {absent.resolved_epoch, absent.resolved()},
                             c.sequence == nvme::kCopyClosed);
}

}  // namespace gnstor::deengine
