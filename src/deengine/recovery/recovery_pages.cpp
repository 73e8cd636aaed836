// recovery_pages.cpp: the pages programmed since the checkpoint began: which of them count, and what they
// change.
//
// All pages are judged before any is applied, so that no comparison of orders meets a torn page.
#include "deengine/recovery/recovery.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace gnstor::deengine {
namespace {

bool is_lost_kind(const PageOob& oob) {
    return oob.kind == PageKind::kLost || oob.kind == PageKind::kLostOrder;
}

}  // namespace

Result<void> ShardRecovery::judge_young_pages() {
    for (std::uint32_t u = range_.first_unit; u < range_.first_unit + range_.units; ++u) {
        if (found(u).serial == 0 || !is_remains(u)) continue;
        ++report_.units_half_erased;
        find(fmt::format("unit {} was half erased: what is left in it was erased before", u));
    }
    for (const std::uint32_t u : young_) judge_unit(u);
    judge_lost_tails();
    return {};
}

/// Pages of a unit are programmed in order, so a page with a bad record, or a hole, is not younger than the
/// next good one.
void ShardRecovery::judge_unit(std::uint32_t u) {
    const FoundUnit& unit = found(u);
    std::vector<PageNumber> bad_records;
    for (std::uint32_t i = unit.young_from; i < unit.end; ++i) {
        const PageNumber page = u * pages_per_unit_ + i;
        PageOob oob{};
        const Record record = read_record(page, oob);
        if (i >= unit.failed_from) {
            tear(page, record == Record::kGood ? &oob : nullptr, "its program failed, as the log says");
            continue;
        }
        if (record != Record::kGood || oob.unit_serial != unit.serial) {
            bad_records.push_back(page);
            continue;
        }
        judge_bad_records(bad_records, oob);
        bad_records.clear();
        // A failed program may leave a good record; in a unit known to be bad, that is its last page.
        const bool may_have_failed = unit.bad && i + 1 == unit.last_good;
        if (options_.mutation == Mutation::kIgnoreOobCrc) continue;
        if (!is_old(oob.group) || may_have_failed) judge_contents(page, oob, may_have_failed);
    }
    for (const PageNumber bad : bad_records) {
        PageOob oob{};
        const bool hole = read_record(bad, oob) == Record::kErased;
        const bool counts = !hole && !is_torn(bad) && !unit.bad;
        if (counts && tail_was_complete(unit.serial)) {
            suspects_.push_back({bad, "the log shows that its unit was complete before the last two groups"});
        } else if (counts && only_killed_ && bad % pages_per_unit_ + 1 != unit.end) {
            suspects_.push_back({bad, "a killed process tears the last page of a unit alone"});
        } else if (counts && only_killed_ && !may_be_open(unit.serial)) {
            // An erasure clears records from the last to the first; the kill may have interrupted one.
            suspects_.push_back({bad, "the journal says that its unit was full", true});
        } else if (counts && only_killed_) {
            lose_unknown(
                fmt::format("page {} (unit {}) was being programmed by a process that was killed, or "
                            "its record has rotted",
                            bad, u));
        }
        tear(bad, nullptr, "a cut left no good record of it");
    }
}

/// Judges pages without a good record that lie before one with the record `next`.
void ShardRecovery::judge_bad_records(std::span<const PageNumber> pages, const PageOob& next) {
    const bool old = is_whole(next.group);
    for (const PageNumber bad : pages) {
        if ((old || only_killed_) && !is_torn(bad))
            suspects_.push_back({bad, "later pages of its unit show that it was durable", !old});
        tear(bad, nullptr, old ? "of an older group, see below" : "a cut left no good record of it");
    }
}

/// Judges a page with a good record that may be torn. A killed process leaves no such page, because the
/// record follows the contents, except where a program failed: is_bad() tells that of the unit
/// (Flash::survives_kill).
void ShardRecovery::judge_contents(PageNumber page, const PageOob& oob, bool failed) {
    if (is_torn(page) || is_readable(page, oob)) return;
    const bool known_failed = failed && is_old(oob.group);
    const bool block = oob.kind == PageKind::kData && lives_.lives(oob.vid, oob.epoch, oob.vba);
    if (only_killed_ && !failed) {
        ++report_.pages_unreadable;
        find(fmt::format("page {} (unit {}) holds block {} of volume {} and cannot be read", page,
                         unit_of(page), oob.vba, oob.vid));
        return;
    }
    tear(page, &oob,
         known_failed ? "its program failed" : "its contents are not those that its record tells");
    if (block && !known_failed && options_.mutation != Mutation::kForgetDoubt)
        doubts_.add(make_key(oob.vid, oob.vba), WriteOrder::of(oob));
}

void ShardRecovery::note_doubt(const LogRecord& record) {
    if (record.type == LogType::kLostRecords) return doubts_.add_lost(record.volume, record.epoch);
    doubts_.add(make_key(record.volume, record.first), {record.epoch, record.sequence, record.blocks});
}

WriteOrder ShardRecovery::present_order(BlockKey key) {
    PageOob oob{};
    if (const auto entry = impl_->map.find(key))
        return read_record(entry->page, oob) == Record::kGood ? order_of(entry->page, oob) : WriteOrder{};
    return impl_->tombstones.find(key).value_or(WriteOrder{});
}

/// A newer version, or a readable copy of the doubtful one, settles a doubt. A block that is lost reads as an
/// error anyway.
Result<void> ShardRecovery::settle_doubts() {
    doubts_.drop_if([&](BlockKey key, const WriteOrder& order) {
        return !lives_.lives(key_volume(key), order.epoch, key_block(key)) || present_order(key) >= order ||
               std::ranges::find(lost_, key) != lost_.end();
    });
    settle_lost_records();
    GN_TRY(bound_doubts());
    doubts_.for_each([&](BlockKey key, const WriteOrder& order) {
        impl_->doubts.add(key, order);
        find(
            fmt::format("block {} of volume {} is in doubt: its version of sequence {} is torn or rotten; "
                        "another replica tells, and the older version is kept",
                        key_block(key), key_volume(key), order.sequence));
    });
    report_.blocks_doubtful += impl_->doubts.size();
    return {};
}

/// No doubt may be forgotten, so nothing is mounted with more of them than a checkpoint has room for: nothing
/// was changed, and the older versions are all there. With accept_loss the rest become media errors.
Result<void> ShardRecovery::bound_doubts() {
    const std::size_t most = Doubts::capacity(torn_.size());
    if (doubts_.size() <= most) return {};
    if (!options_.accept_loss)
        return error(Errc::kCorrupt,
                     "shard {}: {} blocks are in doubt, their newest versions torn or rotten, and there is "
                     "room to remember {}; nothing was changed; read its blocks from replicas on other "
                     "drives, where there are any, or give up what the other {} hold, older versions "
                     "included, with `gnstor ssd recover STORE --accept-loss --write`",
                     range_.index, doubts_.size(), most, doubts_.size() - most);
    std::size_t kept = 0;
    doubts_.drop_if([&](BlockKey key, const WriteOrder&) {
        if (++kept <= most) return false;
        (void)impl_->map.erase(key);
        impl_->tombstones.remove(key);
        lost_.push_back(key);
        return true;
    });
    report_.blocks_lost += kept - most;
    changed_ = true;
    return {};
}

/// Takes the page as never written; reports it once.
void ShardRecovery::tear(PageNumber page, const PageOob* oob, const char* why) {
    if (is_torn(page)) return;
    mark_torn(page);
    const std::string what = oob == nullptr ? std::string()
                                            : fmt::format(", sequence {} of block {} of volume {}",
                                                          oob->sequence, oob->vba, oob->vid);
    find(fmt::format("page {} (unit {}){} is torn and as if never written: {}", page, unit_of(page), what,
                     why));
}

/// Whether the last pages of a unit were programmed before the last two groups.
bool ShardRecovery::tail_was_complete(std::uint32_t serial) const {
    return last_old_stamp_ && serial < last_old_stamp_->next_serial && serial != last_old_stamp_->open_user &&
           serial != last_old_stamp_->open_collector;
}

/// A unit whose erasure was interrupted looks the same, but nothing in it is valid: all its blocks were
/// durably superseded before. (A unit in which only the bad page was valid looks the same, too, and is taken
/// for one.)
Result<void> ShardRecovery::judge_suspects() {
    if (suspects_.empty()) return {};
    const auto valid_units = [this] {
        std::vector<bool> valid(range_.units, false);
        impl_->map.for_each_page([&](PageNumber page) { valid[unit_of(page) - range_.first_unit] = true; });
        return valid;
    };
    std::vector<bool> valid = valid_units();
    std::set<std::uint32_t> looked_at;
    std::set<std::uint32_t> emptied;
    for (const Suspect& suspect : suspects_) {
        const std::uint32_t u = unit_of(suspect.page);
        if (!valid[u - range_.first_unit] || !looked_at.insert(u).second) continue;
        if (take_copies_of(u)) emptied.insert(u);
    }
    valid = valid_units();
    for (const std::uint32_t u : emptied) valid[u - range_.first_unit] = false;
    std::uint32_t half_erased = kNoUnit;
    for (const Suspect& suspect : suspects_) {
        const std::uint32_t u = unit_of(suspect.page);
        if (valid[u - range_.first_unit] && suspect.doubt) {
            lose_unknown(fmt::format("page {} (unit {}) has no record: {}", suspect.page, u, suspect.why));
        } else if (valid[u - range_.first_unit]) {
            GN_TRY(lose_record(suspect.page, suspect.why));
        } else if (half_erased != u) {
            half_erased = u;
            ++report_.units_half_erased;
            find(fmt::format("unit {} was half erased, and nothing in it is valid", u));
        }
    }
    return {};
}

/// A page and its copy of the same group cannot be ordered. If every valid page of this unit has such a twin
/// in another one, the twins are the copies and this unit was empty: the twins count. Likewise if a twin is
/// of a later group and its contents have rotted, but then the page in this unit counts. In that case the cut
/// may instead have torn the twin before it was acknowledged, and the record missing here has rotted: this is
/// reported as a lost record.
bool ShardRecovery::take_copies_of(std::uint32_t u) {
    const std::uint32_t serial = found(u).serial;
    const bool collects = std::ranges::find(stamps_, serial, &Stamp::open_collector) != stamps_.end();
    std::uint32_t valid = 0;
    impl_->map.for_each_page([&](PageNumber page) { valid += unit_of(page) == u ? 1 : 0; });
    struct Copy {
        PageNumber counts;
        bool damaged;
    };
    std::map<BlockKey, Copy> copies;
    for (const std::uint32_t other : young_) {
        for (std::uint32_t i = found(other).young_from; i < found(other).end && other != u; ++i) {
            const PageNumber page = other * pages_per_unit_ + i;
            PageOob oob{};
            PageOob original{};
            if (read_record(page, oob) != Record::kGood) continue;
            if (oob.unit_serial != found(other).serial || oob.kind == PageKind::kSystem) continue;
            const BlockKey key = make_key(oob.vid, oob.vba);
            const auto entry = impl_->map.find(key);
            if (!entry || unit_of(entry->page) != u) continue;
            if (read_record(entry->page, original) != Record::kGood) continue;
            const bool torn = is_torn(page) || !is_readable(page, oob);
            const std::int64_t later = since_begin(oob.group) - since_begin(original.group);
            if (torn ? later <= 0 : (later != 0 || collects)) continue;
            if (order_of(entry->page, original) != order_of(page, oob)) continue;
            if (torn) {
                copies.try_emplace(key, Copy{entry->page, true});
            } else {
                copies.insert_or_assign(key, Copy{page, false});
            }
        }
    }
    if (copies.size() != valid) return false;
    const auto damaged = std::ranges::count_if(copies, [](const auto& copy) { return copy.second.damaged; });
    if (damaged != 0)
        lose_unknown(
            fmt::format("unit {} was half erased, or a record in it has rotted: {} of the {} pages "
                        "that were copied from it have damaged contents",
                        u, damaged, valid));
    for (const auto& [key, copy] : copies) impl_->map.update(key, {copy.counts, false});
    return true;
}

Result<void> ShardRecovery::lose_record(PageNumber page, const char* why) {
    find(
        fmt::format("page {} (unit {}) was durable and its record cannot be read: {}; which block it held is "
                    "not known",
                    page, unit_of(page), why));
    ++report_.pages_unreadable;
    if (options_.accept_loss) return {};
    return error(
        Errc::kCorrupt,
        "shard {}: the record of page {} (unit {}) cannot be read although {}: which block it held is not "
        "known; read its blocks from replicas on other drives, where there are any, or give that block up "
        "with `gnstor ssd recover STORE --accept-loss --write`",
        range_.index, page, unit_of(page), why);
}

Result<void> ShardRecovery::apply_young_pages() {
    for (const std::uint32_t u : young_) {
        const FoundUnit& unit = found(u);
        for (std::uint32_t i = unit.young_from; i < unit.end; ++i) {
            const PageNumber page = u * pages_per_unit_ + i;
            PageOob oob{};
            if (is_torn(page) || read_record(page, oob) != Record::kGood) continue;
            if (oob.unit_serial != unit.serial || oob.kind == PageKind::kSystem) continue;
            GN_TRY(apply_page(page, oob));
        }
    }
    return judge_suspects();
}

Result<void> ShardRecovery::apply_page(PageNumber page, const PageOob& oob) {
    const bool applies_outdated = options_.mutation == Mutation::kApplyOutdatedPage;
    if (!applies_outdated && !lives_.lives(oob.vid, oob.epoch, oob.vba)) {
        ++report_.pages_outdated;
        note_dropped(oob.vid, oob.epoch);
        find(fmt::format(
            "page {} (unit {}) is dropped: volume {} does not exist, or block {} or epoch {} are not "
            "of its present life",
            page, unit_of(page), oob.vid, oob.vba, oob.epoch));
        return {};
    }
    const BlockKey key = make_key(oob.vid, oob.vba);
    impl_->floors.seen(oob.vid, oob.epoch, oob.sequence);
    const auto tombstone = impl_->tombstones.find(key);
    if (tombstone && order_of(page, oob) <= *tombstone) {
        ++report_.pages_outdated;
        return {};
    }
    if (const auto entry = impl_->map.find(key)) {
        if (entry->page == page) return {};
        ++report_.pages_outdated;
        if (beats(page, oob, entry->page, key)) impl_->map.update(key, {page, false});
        return {};
    }
    const auto ticket = impl_->map.reserve(key);
    if (!ticket)
        return error(Errc::kInternal,
                     "shard {}: the block map has no room for page {} at {} of {} slots; this is a defect",
                     range_.index, page, impl_->map.size(), impl_->map.slots());
    impl_->map.commit(*ticket, {page, false});
    impl_->tombstones.remove(key);
    return {};
}

/// Whether a young page takes the place of the one that the map names.
bool ShardRecovery::beats(PageNumber page, const PageOob& oob, PageNumber stored, BlockKey key) {
    PageOob other{};
    // A stored page that cannot be read, or holds another block now, was programmed before this one and is
    // superseded.
    if (is_torn(stored) || is_remains(unit_of(stored)) || read_record(stored, other) != Record::kGood)
        return true;
    const std::uint32_t stored_serial = found(unit_of(stored)).serial;
    if (make_key(other.vid, other.vba) != key || other.kind == PageKind::kSystem ||
        other.unit_serial != stored_serial)
        return true;
    // A bound has no contents to compare.
    const bool bound = oob.kind == PageKind::kLostOrder || other.kind == PageKind::kLostOrder;
    const WriteOrder mine = bound ? WriteOrder::of(oob) : order_of(page, oob);
    const WriteOrder theirs = bound ? WriteOrder::of(other) : order_of(stored, other);
    const bool same_sequence = mine.number() == theirs.number();
    const bool same_write = mine == theirs || mine.crc == 0 || theirs.crc == 0;
    // A lost page stands for one that could not be read: contents of the same write replace it.
    if (same_sequence && same_write && is_lost_kind(oob) != is_lost_kind(other))
        return is_lost_kind(oob) ? !is_readable(stored, other) : is_readable(page, oob);
    if (mine != theirs) return mine > theirs;
    // The collector's copy, or a program repeated after a failure, counts rather than its original, whose
    // unit may be free already. But a rotten page is copied with its bad contents, and the block may have
    // been repaired since in a unit that was opened earlier: of the two the one that can be read counts
    // (ARRAY.md, rule 13).
    if (!programmed_later(page, oob, stored, other))
        return !is_readable(stored, other) && is_readable(page, oob);
    return is_readable(page, oob) || !is_readable(stored, other);
}

/// A guess within one group: units stay open for long, so the unit opened later need not be the one
/// programmed later.
bool ShardRecovery::programmed_later(PageNumber page, const PageOob& oob, PageNumber stored,
                                     const PageOob& other) {
    if (stored % pages_per_unit_ < found(unit_of(stored)).young_from) return true;
    if (oob.group != other.group) return since_begin(oob.group) > since_begin(other.group);
    return oob.unit_serial != other.unit_serial ? oob.unit_serial > other.unit_serial : page > stored;
}

/// A checkpoint's slices are of different moments: an entry may name a page of a unit that was erased since.
/// Superseded entries have been replaced by now; entries that are left were acknowledged and their pages are
/// gone.
Result<void> ShardRecovery::drop_stale_entries() {
    std::uint64_t dead = 0;
    impl_->map.erase_if([&](BlockKey key, MapEntry entry) {
        const bool checked = options_.mutation != Mutation::kApplyOutdatedPage;
        if (checked && !lives_.lives(key_volume(key), ~nvme::Epoch{0}, key_block(key))) {
            dead_volumes_.insert(key_volume(key));
            PageOob oob{};
            if (read_record(entry.page, oob) == Record::kGood && make_key(oob.vid, oob.vba) == key)
                note_dropped(oob.vid, oob.epoch);
            ++dead;
            return true;
        }
        if (!is_stale(entry.page, key)) return false;
        lost_.push_back(key);
        return true;
    });
    report_.pages_outdated += dead;
    report_.blocks_lost += lost_.size();
    for (const nvme::VolumeId volume : dead_volumes_)
        find(fmt::format("volume {} exists no more: its blocks are dropped", volume));
    for (const BlockKey key : lost_)
        find(fmt::format(
            "block {} of volume {} was acknowledged and its page is gone: its reads fail until it is "
            "written again",
            key_block(key), key_volume(key)));
    if (dead != 0 || !lost_.empty()) changed_ = true;
    return {};
}

bool ShardRecovery::is_stale(PageNumber page, BlockKey key) {
    const std::uint32_t u = unit_of(page);
    const FoundUnit& unit = found(u);
    const CheckpointUnit& then = loaded_.units[u - range_.first_unit];
    const std::uint32_t index = page % pages_per_unit_;
    if (unit.serial != 0 && unit.serial == then.serial && index < unit.young_from)
        return unit.system || index >= then.next;
    PageOob oob{};
    const Record record = read_record(page, oob);
    if (is_remains(u) && record == Record::kBad) {
        ++report_.pages_unreadable;
        find(fmt::format("page {} (unit {}) holds block {} of volume {} and cannot be read", page, u,
                         key_block(key), key_volume(key)));
        return false;
    }
    return record != Record::kGood || is_torn(page) || is_remains(u) || unit.system ||
           oob.unit_serial != unit.serial || make_key(oob.vid, oob.vba) != key;
}

}  // namespace gnstor::deengine
