// changes.cpp: plans of writes and trims, and their execution.
#include "deengine/shard/changes.hpp"

#include "deengine/log/lost_page.hpp"

#include <algorithm>
#include <cstring>

namespace gnstor::deengine {
namespace {

using nvme::Status;

}  // namespace

Changes::Changes(ShardState& state, ShardLog& log, Durability& durability, Collector& collector,
                 TombstonePruner& pruner, CheckpointSchedule& schedule)
    : state_(state),
      log_(log),
      durability_(durability),
      collector_(collector),
      pruner_(pruner),
      schedule_(schedule),
      planned_(state.options.mdts_blocks),
      contents_(nvme::kBlockBytes),
      stored_(nvme::kBlockBytes) {}

/// Checks the floor again: the shard may know a newer one than the front (its log outlives the front's
/// memory).
Status Changes::check_order(const ShardCommand& c) {
    if (durability_.broken()) return Status::kWriteFault;
    VolumeFloor& entry = state_.floors.at(c.volume, c.volume_epoch);
    if (entry.epoch != c.epoch) return Status::kSuccess;
    entry.floor = std::max(entry.floor, c.floor);
    if (c.sequence <= entry.floor) return Status::kCommandSequenceError;
    if (c.op == ShardOp::kWrite || state_.options.mutation != Mutation::kTrimNotNoted)
        state_.floors.note_change(entry, c.first, c.blocks, c.sequence);
    entry.highest = std::max(entry.highest, c.sequence);
    return Status::kSuccess;
}

Status Changes::write(const ShardCommand& c) {
    superseded_whole_ = true;
    leaves_tombstone_ = false;
    if (const Status s = check_order(c); !ok(s)) return s;
    return apply_write(c);
}

Status Changes::put_copy(const ShardCommand& c, const WriteNumber& resolved, bool closed) {
    superseded_whole_ = true;
    leaves_tombstone_ = false;
    if (durability_.broken()) return Status::kWriteFault;
    state_.floors.note_change(c.volume, c.epoch, c.first, c.blocks, c.sequence);
    state_.floors.seen(c.volume, c.epoch, c.sequence);
    copies_ = true;
    donor_resolved_ = resolved;
    closed_ = closed;
    const Status status = c.op == ShardOp::kWrite ? apply_write(c) : apply_trim(c);
    copies_ = closed_ = false;
    return status;
}

Status Changes::apply_write(const ShardCommand& c) {
    if (const Status s = plan_write(c); !ok(s)) return s;
    for (std::uint32_t i = 0; i < c.blocks; ++i)
        if (const Status s = write_block(c, i); !ok(s)) {
            cancel_plan(i, c.blocks);
            return s;
        }
    return Status::kSuccess;
}

Status Changes::plan_write(const ShardCommand& c) {
    const std::uint64_t free = state_.pages_left();
    std::uint64_t inserts = 0;
    std::size_t splits = 0;
    for (std::uint32_t i = 0; i < c.blocks; ++i) {
        const BlockKey key = make_key(c.volume, c.first + i);
        PlannedBlock& block = planned_[i];
        block = {Action::kSuperseded, {}, kNoPage};
        Status failed = Status::kSuccess;
        if (const auto entry = state_.map.find(key)) {
            block.action = compare_with_stored(entry->page, c);
            block.old_page = entry->page;
            if (block.action == Action::kUnknownOrder) failed = Status::kUnrecoveredReadError;
        } else {
            const auto trimmed = state_.tombstones.find(key);
            const WriteNumber mine{c.epoch, c.sequence};
            const bool older = trimmed && mine < trimmed->number();
            if (older && state_.options.mutation != Mutation::kSkipNewerCheck) continue;
            const bool crowded =
                trimmed && !pruner_.has_room(c.volume, ++splits) && state_.tombstones.find(key);
            leaves_tombstone_ = crowded && closed_;
            if (crowded && !closed_) {
                ++state_.counters.tombstones_full;
                ++state_.counters.busy;
                failed = Status::kBusy;
            } else if (++inserts > free || inserts > c.room) {
                failed = Status::kCapacityExceeded;
            } else if (const auto ticket = state_.map.reserve(key)) {
                const bool same = trimmed && mine <= trimmed->number();
                block.action = same ? Action::kInsertIfWins : Action::kInsert;
                block.ticket = *ticket;
            } else {
                failed = Status::kCapacityExceeded;
            }
        }
        if (ok(failed)) continue;
        cancel_plan(0, i + 1);
        return failed == Status::kUnrecoveredReadError ? lose_block(key, planned_[i].old_page, c) : failed;
    }
    return Status::kSuccess;
}

void Changes::cancel_plan(std::uint32_t from, std::uint32_t end) {
    for (std::uint32_t i = from; i < end; ++i)
        if (planned_[i].action == Action::kInsert || planned_[i].action == Action::kInsertIfWins)
            state_.map.cancel(planned_[i].ticket);
}

Changes::Action Changes::compare_with_stored(PageNumber page, const ShardCommand& c) const {
    if (state_.options.mutation == Mutation::kSkipNewerCheck) [[unlikely]]
        return Action::kReplace;
    PageOob oob;
    if (!has_data(state_.flash.read_oob(page, oob)) || !is_known_page(oob)) return Action::kUnknownOrder;
    if (oob.kind == PageKind::kLostOrder && copies_) {
        // Whatever the lost version was: if its bound was resolved when the donor was read, the donor had it, or what replaced
        // it. The floor may have risen since, by a version that the donor did not have then.
        const bool passed = WriteNumber{oob.epoch, oob.sequence} <= donor_resolved_;
        return closed_ || passed ? Action::kReplace : Action::kUnknownOrder;
    }
    const std::strong_ordering order =
        WriteNumber{c.epoch, c.sequence} <=> WriteNumber{oob.epoch, oob.sequence};
    if (oob.kind == PageKind::kLostOrder && c.epoch == oob.epoch) {
        // A bound, not an order: the error stays until the floor has passed it (docs/array.md, rule 13).
        const bool passed = state_.floors.resolved(c.volume, oob.epoch) >= oob.sequence;
        return passed && order > 0 ? Action::kReplace : Action::kUnknownOrder;
    }
    if (order == 0) return Action::kSameOrder;
    return order > 0 ? Action::kReplace : Action::kSuperseded;
}

/// The same sequence twice: a duplicate, a buffer that changed, or the repair of a page that rotted. Only
/// here the contents decide; they are copied first, because the sender may still change them.
bool Changes::same_order_wins(const ShardCommand& c, std::uint32_t i) {
    const BlockKey key = make_key(c.volume, c.first + i);
    std::memcpy(contents_.data(), c.data + std::size_t{i} * nvme::kBlockBytes, nvme::kBlockBytes);
    const WriteOrder mine{c.epoch, c.sequence, content_crc_of(contents_.data())};
    if (planned_[i].action == Action::kInsertIfWins)
        return mine > state_.tombstones.find(key).value_or(WriteOrder{});
    const PageNumber stored = state_.map.find(key)->page;
    PageOob oob;
    if (!has_data(state_.flash.read_oob(stored, oob))) return false;
    const WriteOrder theirs = order_of_page(state_.flash, stored, oob, stored_.data());
    if (mine != theirs) return mine > theirs;
    return oob.kind == PageKind::kLost || !is_intact(state_.flash, stored, oob, stored_.data());
}

Status Changes::write_block(const ShardCommand& c, std::uint32_t i) {
    PlannedBlock& block = planned_[i];
    const BlockKey key = make_key(c.volume, c.first + i);
    const std::byte* data = c.data + std::size_t{i} * nvme::kBlockBytes;
    if (block.action == Action::kSameOrder || block.action == Action::kInsertIfWins) {
        const bool wins = same_order_wins(c, i);
        const bool insert = block.action == Action::kInsertIfWins;
        if (!wins && insert) state_.map.cancel(block.ticket);
        block.action = !wins ? Action::kSuperseded : insert ? Action::kInsert : Action::kReplace;
        data = contents_.data();
    }
    if (block.action == Action::kSuperseded) {
        ++state_.counters.superseded;
        return Status::kSuccess;
    }
    superseded_whole_ = false;
    PageOob oob{};
    oob.vid = c.volume;
    oob.vba = c.first + i;
    oob.kind = PageKind::kData;
    oob.sequence = c.sequence;
    oob.epoch = c.epoch;
    PageNumber page = kNoPage;
    if (const Status s = program(Stream::kUser, data, oob, page); !ok(s)) return s;
    if (block.action == Action::kInsert) {
        state_.map.commit(block.ticket, {page, false});
        block.action = Action::kReplace;  // nothing to cancel any more
        if (!leaves_tombstone_) state_.tombstones.remove(key);
    } else {
        const PageNumber old_page = state_.map.find(key)->page;
        (void)state_.map.update(key, {page, false});
        state_.forget_page(old_page);
    }
    state_.doubts.settle(key, WriteOrder::of(oob));
    ++state_.counters.blocks_written;
    return Status::kSuccess;
}

/// The stored record cannot be read: programs a page that marks the block as lost, with the highest order
/// seen in this volume as its bound. The present write is refused: it may be the older version.
Status Changes::lose_block(BlockKey key, PageNumber stored, const ShardCommand& c) {
    ++state_.counters.media_errors;
    PageOob oob;
    const bool known = has_data(state_.flash.read_oob(stored, oob)) && is_known_page(oob);
    if (known) return Status::kUnrecoveredReadError;  // marked as lost before, with its bound
    oob = state_.floors.lost_order(key);
    state_.floors.note_change(oob.vid, oob.epoch, oob.vba, 1, oob.sequence);
    oob.epoch = c.volume_epoch;
    PageNumber page = kNoPage;
    if (!ok(program(Stream::kUser, kLostOrderPage.bytes, oob, page))) return Status::kUnrecoveredReadError;
    const PageNumber old_page = state_.map.find(key)->page;
    (void)state_.map.update(key, {page, false});
    state_.forget_page(old_page);
    ++state_.counters.lost_blocks;
    return Status::kUnrecoveredReadError;
}

Status Changes::program(Stream stream, const std::byte* data, PageOob& oob, PageNumber& page) {
    if (stream == Stream::kUser) collector_.prepare_user_page();
    for (std::uint32_t attempt = 0; attempt < kProgramAttempts; ++attempt) {
        page = state_.pool.next_page(stream);
        if (page == kNoPage && collector_.make_room(stream)) page = state_.pool.next_page(stream);
        log_.record_bad_units();
        if (page == kNoPage) {
            if (durability_.broken()) return Status::kWriteFault;
            // The journal frees units when a checkpoint is complete.
            const bool journals = log_.holds_surplus();
            if (journals && !state_.checkpoint.active()) schedule_.ask();
            return journals || state_.checkpoint.active() ? Status::kBusy : Status::kCapacityExceeded;
        }
        oob.version = kOobVersion;
        oob.unit_serial = state_.pool.serial_of(page);
        oob.group = state_.groups.current();
        state_.note_program();
        const FlashStatus status = state_.flash.program(page, data, oob);
        if (status == FlashStatus::kOk) {
            state_.pool.programmed(stream, page);
            ++state_.counters.pages_programmed;
            return Status::kSuccess;
        }
        if (status != FlashStatus::kNoRoom) {
            (void)state_.pool.failed(stream, page);
            log_.record_bad_units();
        } else if (!log_.exchange_open_unit(stream)) {
            // The unit is good: only the disk below is full, and may have room again later.
            return Status::kCapacityExceeded;
        }
    }
    return Status::kWriteFault;
}

Status Changes::trim(const ShardCommand& c) {
    if (const Status s = check_order(c); !ok(s)) return s;
    return apply_trim(c);
}

Status Changes::apply_trim(const ShardCommand& c) {
    if (log_.is_crowded()) {
        schedule_.ask();
        ++state_.counters.busy;
        return Status::kBusy;
    }
    if (!state_.pool.has_page(Stream::kSystem) && !collector_.make_room(Stream::kSystem))
        return Status::kCapacityExceeded;
    std::uint32_t runs = 0;
    if (const Status s = plan_trim(c, runs); !ok(s)) return s;
    if (!log_.takes(runs)) return Status::kCapacityExceeded;
    const std::size_t growth =
        runs + state_.tombstones.overlapping(make_key(c.volume, c.first), c.blocks) + 1;
    const bool room_for_it = pruner_.has_room(c.volume, growth);
    // Of a closed volume nothing older can arrive, so the record in the journal is enough.
    if (!room_for_it && !pruner_.is_next(c) && !closed_) {
        ++state_.counters.tombstones_full;
        ++state_.counters.busy;
        return Status::kBusy;
    }
    for (std::uint32_t i = 0; i < c.blocks;) {
        if (planned_[i].action == Action::kSuperseded) {
            ++state_.counters.superseded;
            ++i;
            continue;
        }
        std::uint32_t end = i + 1;
        while (end < c.blocks && planned_[end].action != Action::kSuperseded) ++end;
        if (!trim_run(c, i, end - i, room_for_it)) return Status::kCapacityExceeded;
        i = end;
    }
    return Status::kSuccess;
}

Status Changes::plan_trim(const ShardCommand& c, std::uint32_t& runs) {
    bool in_run = false;
    for (std::uint32_t i = 0; i < c.blocks; ++i) {
        const BlockKey key = make_key(c.volume, c.first + i);
        PlannedBlock& block = planned_[i];
        block = {Action::kInsert, {}, kNoPage};
        if (const auto entry = state_.map.find(key)) {
            block.old_page = entry->page;
            block.action = compare_with_stored(entry->page, c);
            if (block.action == Action::kUnknownOrder) return lose_block(key, entry->page, c);
            // Equal sequence: the CRC of the tombstone's (empty) content is compared with that of the
            // block's.
            if (block.action == Action::kSameOrder) {
                PageOob oob;
                const bool newer = has_data(state_.flash.read_oob(entry->page, oob)) &&
                                   WriteOrder::of_tombstone(c.epoch, c.sequence) >
                                       order_of_page(state_.flash, entry->page, oob, stored_.data());
                const bool always = state_.options.mutation == Mutation::kSameOrderTrimWins;
                block.action = newer || always ? Action::kReplace : Action::kSuperseded;
            }
        } else if (const auto there = state_.tombstones.find(key);
                   there && WriteOrder::of_tombstone(c.epoch, c.sequence) <= *there) {
            // Trimmed by this or a newer sequence already: no record is needed.
            block.action = Action::kSuperseded;
        }
        const bool kept = block.action == Action::kSuperseded;
        if (!kept && !in_run) ++runs;
        in_run = !kept;
    }
    return Status::kSuccess;
}

/// `remembers`: the table has room for the tombstone; if not, nothing older can arrive
/// (TombstonePruner::is_next()).
bool Changes::trim_run(const ShardCommand& c, std::uint32_t first, std::uint32_t blocks, bool remembers) {
    LogRecord record{};
    record.type = LogType::kTombstone;
    record.volume = c.volume;
    record.first = c.first + first;
    record.blocks = blocks;
    record.epoch = c.epoch;
    record.sequence = c.sequence;
    const bool trims_well = state_.options.mutation != Mutation::kTrimWithoutTombstone;
    if (trims_well && !log_.append(record)) return false;
    state_.windows.note_trim(c.volume, c.first + first, blocks,
                             WriteOrder::of_tombstone(c.epoch, c.sequence));
    for (std::uint32_t i = first; i < first + blocks; ++i) {
        const BlockKey key = make_key(c.volume, c.first + i);
        if (trims_well) state_.doubts.settle(key, WriteOrder::of_tombstone(c.epoch, c.sequence));
        if (planned_[i].action != Action::kReplace) continue;
        const PageNumber page = state_.map.find(key)->page;
        (void)state_.map.erase(key);
        state_.forget_page(page);
    }
    if (trims_well && !remembers) state_.floors.trimmed_untold(c.volume, c.epoch, c.sequence);
    if (trims_well && remembers)
        state_.tombstones.add({make_key(c.volume, c.first + first), blocks, c.epoch, c.sequence,
                               state_.checkpoint.begun_last()});
    return true;
}

}  // namespace gnstor::deengine
