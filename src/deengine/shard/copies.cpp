#include "deengine/shard/copies.hpp"

#include <algorithm>
#include <cstring>

namespace gnstor::deengine {
namespace {

using nvme::CopyKind;
using nvme::CopyRecord;
using nvme::Status;

std::byte* contents_of(const ShardCommand& c, std::uint32_t i) {
    return c.data + std::size_t{c.blocks} * sizeof(CopyRecord) + std::size_t{i} * nvme::kBlockBytes;
}

}  // namespace

void Copies::read(const ShardCommand& c) {
    for (std::uint32_t i = 0; i < c.blocks; ++i) {
        CopyRecord record{};
        std::byte* contents = contents_of(c, i);
        read_one(c, i, record, contents);
        if (record.kind != CopyKind::kData) std::memset(contents, 0, nvme::kBlockBytes);
        std::memcpy(c.data + std::size_t{i} * sizeof(record), &record, sizeof(record));
    }
}

/// Here every older epoch is closed, and of this one all changes up to the floor are resolved.
void Copies::read_absent(const ShardCommand& c, CopyRecord& record) const {
    record.kind = CopyKind::kAbsent;
    record.epoch = c.volume_epoch;
    record.sequence = state_.floors.resolved(c.volume, c.volume_epoch);
}

void Copies::read_one(const ShardCommand& c, std::uint32_t i, CopyRecord& record, std::byte* contents) {
    const BlockKey key = make_key(c.volume, c.first + i);
    record.kind = CopyKind::kUnreadable;
    if (!state_.doubts.empty() && reads_.in_doubt(key)) return;
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
    const CopyWindows::Window* window =
        state_.windows.find(static_cast<std::uint32_t>(c.sequence), c.volume, c.first, c.blocks);
    if (window == nullptr) return Status::kCommandSequenceError;
    if (c.floor < window->epoch && state_.options.mutation != Mutation::kCopyOlderEpoch)
        return Status::kCommandSequenceError;
    for (const CopyRecord& r : records_) {
        if (r.kind > CopyKind::kTombstone || r.epoch < c.epoch) return Status::kInvalidField;
        // The volume's next epoch has reached the donor and not this drive: soon.
        if (r.epoch > c.volume_epoch) return Status::kNotGranted;
        // A tombstone of sequence 0 stands for what older epochs left (remove_resolved()).
        if (r.kind == CopyKind::kData && r.sequence == 0) return Status::kInvalidField;
    }
    for (std::uint32_t i = 0; i < c.blocks; ++i)
        if (const Status s = write_one(c, i, *window); !ok(s)) return s;
    return Status::kSuccess;
}

Status Copies::write_one(const ShardCommand& c, std::uint32_t i, const CopyWindows::Window& window) {
    const CopyRecord& r = records_[i];
    ShardCommand one = c;
    one.first = c.first + i;
    one.blocks = 1;
    one.room = c.room > i ? c.room - i : 0;
    Status status = Status::kSuccess;
    if (r.kind == CopyKind::kAbsent) {
        status = remove_resolved(c, r, one);
    } else {
        const bool trimmed_since = WriteOrder{r.epoch, r.sequence, r.content} <= window.trimmed[i];
        if (!trimmed_since || state_.options.mutation == Mutation::kCopyOverTrim) status = put(c, i, one);
    }
    return ok(status) ? check_readable(c, make_key(c.volume, one.first)) : status;
}

Status Copies::put(const ShardCommand& c, std::uint32_t i, ShardCommand& one) {
    const CopyRecord& r = records_[i];
    one.epoch = r.epoch;
    one.sequence = r.sequence;
    one.op = ShardOp::kTrim;
    one.data = nullptr;
    if (r.kind == CopyKind::kData) {
        std::memcpy(block_.data(), contents_of(c, i), nvme::kBlockBytes);
        if (content_crc_of(block_.data()) != r.content) return Status::kDataTransferError;
        one.op = ShardOp::kWrite;
        one.data = block_.data();
    }
    return changes_.put_copy(one);
}

/// A version of its own that the drive lost or doubts, and that is not resolved, is not repaired by the donor's older one.
/// Once it is resolved, the donor has it, or what replaced it, or it was never acknowledged.
Status Copies::check_readable(const ShardCommand& c, BlockKey key) {
    if (!state_.doubts.empty()) {
        const nvme::Epoch epoch = std::min(static_cast<nvme::Epoch>(c.floor), c.volume_epoch);
        state_.doubts.settle(key, {epoch, state_.floors.resolved(c.volume, epoch), ~0u});
        if (reads_.in_doubt(key)) return Status::kDoubtful;
    }
    const auto entry = state_.map.find(key);
    if (!entry) return Status::kSuccess;
    PageOob oob{};
    const bool known = has_data(state_.flash.read_oob(entry->page, oob)) && oob.kind == PageKind::kData;
    return known ? Status::kSuccess : Status::kUnrecoveredReadError;
}

Status Copies::remove_resolved(const ShardCommand& c, const CopyRecord& absent, ShardCommand& one) {
    // What the donor's writer has declared resolved is resolved here as well: nothing older arrives any more.
    if (absent.sequence != 0) pruner_.set_floor(c.volume, absent.epoch, absent.sequence);
    if (!state_.map.find(make_key(c.volume, one.first))) return Status::kSuccess;
    if (state_.options.mutation == Mutation::kCopyKeepsResolved) return Status::kSuccess;
    one.op = ShardOp::kTrim;
    one.data = nullptr;
    one.epoch = absent.epoch;
    one.sequence = absent.sequence;
    return changes_.put_copy(one);
}

}  // namespace gnstor::deengine
