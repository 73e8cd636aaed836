// shard_write.cpp: writes, zeroes and trims: compares orders and reserves room for the whole command, then
// changes page after page. ARRAY.md, rules 7, 8 and 13.
//
// The collector may run whenever a page is needed: a plan stays valid by key and ticket, never by page.
#include "deengine/shard/shard_impl.hpp"

#include <cassert>
#include <cstring>

namespace gnstor::deengine {
namespace {

using nvme::Status;

void sector_crcs(const std::byte* data, std::uint32_t (&crcs)[nvme::kSectorsPerBlock]) {
    for (std::uint32_t s = 0; s < nvme::kSectorsPerBlock; ++s)
        crcs[s] = crc32c(data + std::size_t{s} * nvme::kSectorBytes, nvme::kSectorBytes);
}

}  // namespace

/// Checks the floor again: the shard may know a newer one than the front (its log outlives the front's
/// memory).
Status Shard::Impl::check_order(const ShardCommand& c) {
    if (broken) return Status::kWriteFault;
    VolumeFloor& entry = floors.at(c.volume, c.volume_epoch);
    if (entry.epoch != c.epoch) return Status::kSuccess;
    entry.floor = std::max(entry.floor, c.floor);
    if (c.sequence <= entry.floor) return Status::kCommandSequenceError;
    entry.highest = std::max(entry.highest, c.sequence);
    return Status::kSuccess;
}

/// plan_write() refuses what it can foresee, without any effect. Later a page may still be missing: flash
/// fails, or the collector would need what the journal holds. Blocks before it are then written, as with any
/// failed command: its sender sends it again, or the outcome is not known.
Status Shard::Impl::write(const ShardCommand& c) {
    superseded_whole = true;
    if (const Status s = check_order(c); !ok(s)) return s;
    if (const Status s = plan_write(c); !ok(s)) return s;
    for (std::uint32_t i = 0; i < c.blocks; ++i)
        if (const Status s = write_block(c, i); !ok(s)) {
            cancel_plan(i, c.blocks);
            return s;
        }
    return Status::kSuccess;
}

Status Shard::Impl::plan_write(const ShardCommand& c) {
    const std::uint64_t limit = page_limit();
    const std::uint64_t free = limit > pool.valid_pages() ? limit - pool.valid_pages() : 0;
    std::uint64_t inserts = 0;
    std::size_t splits = 0;
    for (std::uint32_t i = 0; i < c.blocks; ++i) {
        const BlockKey key = make_key(c.volume, c.first + i);
        PlannedBlock& block = planned[i];
        block = {Action::kSuperseded, {}, kNoPage};
        Status failed = Status::kSuccess;
        if (const auto entry = map.find(key)) {
            block.action = compare_with_stored(entry->page, c);
            block.old_page = entry->page;
            if (block.action == Action::kUnknownOrder) failed = Status::kUnrecoveredReadError;
        } else {
            const auto trimmed = tombstones.find(key);
            const WriteNumber mine{c.epoch, c.sequence};
            const bool older = trimmed && mine < trimmed->number();
            if (older && options.mutation != Mutation::kSkipNewerCheck) continue;
            if (trimmed && !tombstone_room(c.volume, ++splits) && tombstones.find(key)) {
                ++counters.tombstones_full;
                ++counters.busy;
                failed = Status::kBusy;
            } else if (++inserts > free || inserts > c.room) {
                failed = Status::kCapacityExceeded;
            } else if (const auto ticket = map.reserve(key)) {
                const bool same = trimmed && mine <= trimmed->number();
                block.action = same ? Action::kInsertIfWins : Action::kInsert;
                block.ticket = *ticket;
            } else {
                failed = Status::kCapacityExceeded;
            }
        }
        if (ok(failed)) continue;
        cancel_plan(0, i + 1);
        return failed == Status::kUnrecoveredReadError ? lose_block(key, planned[i].old_page, c) : failed;
    }
    return Status::kSuccess;
}

void Shard::Impl::cancel_plan(std::uint32_t from, std::uint32_t end) {
    for (std::uint32_t i = from; i < end; ++i)
        if (planned[i].action == Action::kInsert || planned[i].action == Action::kInsertIfWins)
            map.cancel(planned[i].ticket);
}

Shard::Impl::Action Shard::Impl::compare_with_stored(PageNumber page, const ShardCommand& c) {
    if (options.mutation == Mutation::kSkipNewerCheck) [[unlikely]]
        return Action::kReplace;
    PageOob oob;
    if (!has_data(flash.read_oob(page, oob)) || !is_known_page(oob)) return Action::kUnknownOrder;
    const std::strong_ordering order =
        WriteNumber{c.epoch, c.sequence} <=> WriteNumber{oob.epoch, oob.sequence};
    if (oob.kind == PageKind::kLostOrder && c.epoch == oob.epoch) {
        // A bound, not an order: the error stays until the floor has passed it (ARRAY.md, rule 13).
        const VolumeFloor* floor = floors.find(c.volume);
        const bool passed = floor != nullptr && floor->epoch == oob.epoch && floor->floor >= oob.sequence;
        return passed && order > 0 ? Action::kReplace : Action::kUnknownOrder;
    }
    if (order == 0) return Action::kSameOrder;
    return order > 0 ? Action::kReplace : Action::kSuperseded;
}

/// The same sequence twice: a duplicate, a buffer that changed, or the repair of a page that rotted. Only
/// here the contents decide; they are copied first, because the sender may still change them.
bool Shard::Impl::same_order_wins(const ShardCommand& c, std::uint32_t i) {
    const BlockKey key = make_key(c.volume, c.first + i);
    std::memcpy(scratch.data(), c.data + std::size_t{i} * nvme::kBlockBytes, nvme::kBlockBytes);
    std::uint32_t crcs[nvme::kSectorsPerBlock];
    sector_crcs(scratch.data(), crcs);
    const WriteOrder mine{c.epoch, c.sequence, content_crc(crcs)};
    if (planned[i].action == Action::kInsertIfWins) return mine > tombstones.find(key).value_or(WriteOrder{});
    const PageNumber stored = map.find(key)->page;
    PageOob oob;
    if (!has_data(flash.read_oob(stored, oob))) return false;
    const WriteOrder theirs = order_of_page(flash, stored, oob, read_scratch.data());
    if (mine != theirs) return mine > theirs;
    return oob.kind == PageKind::kLost || !is_readable(stored, oob);
}

bool Shard::Impl::is_readable(PageNumber page, const PageOob& oob) {
    std::uint32_t crcs[nvme::kSectorsPerBlock];
    return has_data(flash.read(page, 0, nvme::kSectorsPerBlock, read_scratch.data(), crcs)) &&
           std::memcmp(crcs, oob.sector_crc, sizeof(crcs)) == 0;
}

Status Shard::Impl::write_block(const ShardCommand& c, std::uint32_t i) {
    PlannedBlock& block = planned[i];
    const BlockKey key = make_key(c.volume, c.first + i);
    const std::byte* data = c.data + std::size_t{i} * nvme::kBlockBytes;
    if (block.action == Action::kSameOrder || block.action == Action::kInsertIfWins) {
        const bool wins = same_order_wins(c, i);
        const bool insert = block.action == Action::kInsertIfWins;
        if (!wins && insert) map.cancel(block.ticket);
        block.action = !wins ? Action::kSuperseded : insert ? Action::kInsert : Action::kReplace;
        data = scratch.data();
    }
    if (block.action == Action::kSuperseded) {
        ++counters.superseded;
        return Status::kSuccess;
    }
    superseded_whole = false;
    PageOob oob{};
    oob.vid = c.volume;
    oob.vba = c.first + i;
    oob.kind = PageKind::kData;
    oob.sequence = c.sequence;
    oob.epoch = c.epoch;
    PageNumber page = kNoPage;
    if (const Status s = program(Stream::kUser, data, oob, page); !ok(s)) return s;
    if (block.action == Action::kInsert) {
        map.commit(block.ticket, {page, false});
        block.action = Action::kReplace;  // nothing to cancel any more
        tombstones.remove(key);
    } else {
        const PageNumber old_page = map.find(key)->page;
        (void)map.update(key, {page, false});
        forget_page(old_page);
    }
    doubts.settle(key, WriteOrder::of(oob));
    ++counters.blocks_written;
    return Status::kSuccess;
}

void Shard::Impl::forget_page(PageNumber page) {
    if (options.mutation == Mutation::kCollectorForgetsMap) [[unlikely]] {
        // The mutated collector has freed this page already, and another block may be there now.
        if (pool.info(pool.unit_of(page)).valid == 0 || pool.info(pool.unit_of(page)).system) return;
    }
    pool.invalidate(page, groups.current);
    if (options.mutation == Mutation::kFreeUnitEarly) [[unlikely]]
        pool.durable(groups.current);
}

/// The stored record cannot be read: programs a page that marks the block as lost, with the highest order
/// seen in this volume as its bound. The present write is refused: it may be the older version.
Status Shard::Impl::lose_block(BlockKey key, PageNumber stored, const ShardCommand& c) {
    ++counters.media_errors;
    PageOob oob;
    const bool known = has_data(flash.read_oob(stored, oob)) && is_known_page(oob);
    if (known) return Status::kUnrecoveredReadError;  // marked as lost before, with its bound
    oob = lost_order(key);
    oob.epoch = c.volume_epoch;
    PageNumber page = kNoPage;
    if (!ok(program(Stream::kUser, zeroes.data(), oob, page))) return Status::kUnrecoveredReadError;
    const PageNumber old_page = map.find(key)->page;
    (void)map.update(key, {page, false});
    forget_page(old_page);
    ++counters.lost_blocks;
    return Status::kUnrecoveredReadError;
}

Status Shard::Impl::program(Stream stream, const std::byte* data, PageOob& oob, PageNumber& page) {
    if (stream == Stream::kUser) {
        if (!cut_made_up && pool.open_unit(stream) == kNoUnit) make_up_for_cut();
        pay_for_user_page();
    }
    for (std::uint32_t attempt = 0; attempt < kProgramAttempts; ++attempt) {
        page = pool.next_page(stream);
        if (page == kNoPage && make_room(stream)) page = pool.next_page(stream);
        record_bad_units();
        if (page == kNoPage) {
            if (broken) return Status::kWriteFault;
            // The journal frees units when a checkpoint is complete.
            const bool journals = journal_holds_room();
            checkpoint_asked = checkpoint_asked || (journals && !checkpoint.active());
            return journals || checkpoint.active() ? Status::kBusy : Status::kCapacityExceeded;
        }
        oob.version = kOobVersion;
        oob.unit_serial = pool.serial_of(page);
        oob.group = groups.current;
        note_programmed();
        const FlashStatus status = flash.program(page, data, oob);
        if (status == FlashStatus::kOk) {
            pool.programmed(stream, page);
            ++counters.pages_programmed;
            return Status::kSuccess;
        }
        if (status != FlashStatus::kNoRoom) {
            (void)pool.failed(stream, page);
            record_bad_units();
        } else if (!exchange_open_unit(stream)) {
            // The unit is good: only the disk below is full, and may have room again later.
            return Status::kCapacityExceeded;
        }
    }
    return Status::kWriteFault;
}

/// Programs no page: a log record says what is trimmed, and which order keeps older versions from coming
/// back.
Status Shard::Impl::trim(const ShardCommand& c) {
    if (const Status s = check_order(c); !ok(s)) return s;
    if (log_is_crowded()) {
        checkpoint_asked = true;
        ++counters.busy;
        return Status::kBusy;
    }
    if (!pool.has_page(Stream::kSystem) && !make_room(Stream::kSystem)) return Status::kCapacityExceeded;
    std::uint32_t runs = 0;
    if (const Status s = plan_trim(c, runs); !ok(s)) return s;
    if (!journal_takes(runs)) return Status::kCapacityExceeded;
    const std::size_t growth = runs + tombstones.overlapping(make_key(c.volume, c.first), c.blocks) + 1;
    const bool room_for_it = tombstone_room(c.volume, growth);
    if (!room_for_it && !is_next(c)) {
        ++counters.tombstones_full;
        ++counters.busy;
        return Status::kBusy;
    }
    for (std::uint32_t i = 0; i < c.blocks;) {
        if (planned[i].action == Action::kSuperseded) {
            ++counters.superseded;
            ++i;
            continue;
        }
        std::uint32_t end = i + 1;
        while (end < c.blocks && planned[end].action != Action::kSuperseded) ++end;
        if (!trim_run(c, i, end - i, room_for_it)) return Status::kCapacityExceeded;
        i = end;
    }
    return Status::kSuccess;
}

Status Shard::Impl::plan_trim(const ShardCommand& c, std::uint32_t& runs) {
    bool in_run = false;
    for (std::uint32_t i = 0; i < c.blocks; ++i) {
        const BlockKey key = make_key(c.volume, c.first + i);
        PlannedBlock& block = planned[i];
        block = {Action::kInsert, {}, kNoPage};
        if (const auto entry = map.find(key)) {
            block.old_page = entry->page;
            block.action = compare_with_stored(entry->page, c);
            if (block.action == Action::kUnknownOrder) return lose_block(key, entry->page, c);
            // Equal sequence: the CRC of the tombstone's (empty) content is compared with that of the
            // block's.
            if (block.action == Action::kSameOrder) {
                PageOob oob;
                const bool newer = has_data(flash.read_oob(entry->page, oob)) &&
                                   WriteOrder::of_tombstone(c.epoch, c.sequence) >
                                       order_of_page(flash, entry->page, oob, read_scratch.data());
                const bool always = options.mutation == Mutation::kSameOrderTrimWins;
                block.action = newer || always ? Action::kReplace : Action::kSuperseded;
            }
        } else if (const auto there = tombstones.find(key);
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

/// `remembers`: the table has room for the tombstone; if not, nothing older can arrive (floors.cpp).
bool Shard::Impl::trim_run(const ShardCommand& c, std::uint32_t first, std::uint32_t blocks, bool remembers) {
    LogRecord record{};
    record.type = LogType::kTombstone;
    record.volume = c.volume;
    record.first = c.first + first;
    record.blocks = blocks;
    record.epoch = c.epoch;
    record.sequence = c.sequence;
    const bool trims_well = options.mutation != Mutation::kTrimWithoutTombstone;
    if (trims_well && !log(record)) return false;
    for (std::uint32_t i = first; i < first + blocks; ++i) {
        const BlockKey key = make_key(c.volume, c.first + i);
        if (trims_well) doubts.settle(key, WriteOrder::of_tombstone(c.epoch, c.sequence));
        if (planned[i].action != Action::kReplace) continue;
        const PageNumber page = map.find(key)->page;
        (void)map.erase(key);
        forget_page(page);
    }
    if (trims_well && remembers)
        tombstones.add(
            {make_key(c.volume, c.first + first), blocks, c.epoch, c.sequence, checkpoint.begun_last()});
    return true;
}

}  // namespace gnstor::deengine
