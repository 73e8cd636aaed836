// recovery.cpp: the table of steps, what each has its parts do, and the last ones: units go back to the pool,
// and what was recovered is written as a checkpoint.
//
// Until that checkpoint is durable, an interrupted recovery must find what this one found: so recovery
// programs in the newest group found, and takes only units without valid pages.
#include "deengine/recovery/recovery.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace gnstor::deengine {
namespace {

/// Serials that are skipped: units whose first pages a power cut lost may have had them.
///
/// On a medium where an unreadable page stays unreadable this changes nothing (mutation no-serial-gap): the
/// next serial is above every serial that anything readable names, because all of these are counted:
///   * records of pages: the highest of each unit; pages with lower ones in it do not count;
///   * headers of journal pages (open units, next serial), parts of the loaded checkpoint included
///   (LoadedCheckpoint::next_serial);
///   * log records (bad units, torn pages) and a checkpoint's unit table: the header of their page has a next
///   serial above those that they name, because a unit is opened before anything is recorded of it.
/// So nothing readable names the first use of a serial that is given out twice; stamps, tables and lists that
/// are read later mean its second unit. The gap is for a page whose read fails in one recovery and succeeds
/// in a later one.
constexpr std::uint32_t kSerialGap = 64;

}  // namespace

constexpr Step<ShardRecovery> ShardRecovery::kSteps[] = {
    {"read units", &ShardRecovery::read_units, nullptr},
    {"find journal", &ShardRecovery::find_journal, nullptr},
    {"load checkpoint", &ShardRecovery::load_newest_checkpoint, &ShardRecovery::drop_map},
    {"read log", &ShardRecovery::read_log, nullptr},
    {"check young pages", &ShardRecovery::judge_young_pages, nullptr},
    {"replay log", &ShardRecovery::replay_log, nullptr},
    {"apply young pages", &ShardRecovery::apply_young_pages, nullptr},
    {"drop stale entries", &ShardRecovery::drop_stale_entries, nullptr},
    {"settle doubts", &ShardRecovery::settle_doubts, nullptr},
    {"record lost records", &ShardRecovery::tell_lost_records, nullptr},
    {"count valid pages", &ShardRecovery::count_valid_pages, nullptr},
    {"write checkpoint", &ShardRecovery::write_checkpoint, nullptr},
    {"start", &ShardRecovery::start, &ShardRecovery::stop},
};

ShardRecovery::ShardRecovery(Flash& flash, const ShardRange& range, const EngineOptions& options,
                             const VolumeRegistry& lives, CompletionSink& sink, RecoveryReport& report)
    : input_(flash, range, options, lives),
      sink_(sink),
      findings_(report, range.index),
      ages_(input_.only_killed),
      units_(input_, findings_),
      gaps_(input_.only_killed),
      doubts_(input_, findings_, units_),
      lost_records_(input_, findings_, ages_, units_, open_units_),
      choice_(input_, findings_, units_, lost_records_),
      log_(input_, findings_, ages_, units_, open_units_, gaps_, doubts_, choice_),
      judge_(input_, findings_, ages_, units_, open_units_, lost_records_, doubts_),
      versions_(input_, findings_, ages_, units_, lost_records_) {}

Result<std::unique_ptr<Shard::Impl>> ShardRecovery::run() {
    make_empty();
    GN_TRY(run_steps(*this, std::span<const Step<ShardRecovery>>(kSteps), "recovery"));
    return std::move(impl_);
}

void ShardRecovery::make_empty() {
    impl_ = std::make_unique<Shard::Impl>(input_.flash, input_.range, input_.options, sink_);
}

Result<void> ShardRecovery::read_units() {
    units_.read();
    return {};
}

Result<void> ShardRecovery::find_journal() {
    choice_.find_journal();
    return {};
}

Result<void> ShardRecovery::load_newest_checkpoint() {
    GN_TRY(load_first_whole());
    ages_.set_begin(choice_.loaded().group);
    units_.mark_young(choice_.loaded().units);
    return {};
}

Result<void> ShardRecovery::load_first_whole() {
    for (const JournalPlace& end : choice_.ends()) {
        Result<void> loaded = choice_.load(end, *impl_);
        if (loaded.ok() || loaded.error().code != Errc::kCorrupt) return loaded;
        findings_.add(fmt::format("{}: an older checkpoint is used", loaded.error().message));
        findings_.report.spare_checkpoint = true;
        findings_.note_change();
        make_empty();
    }
    return choice_.load_none();
}

void ShardRecovery::drop_map() {
    impl_.reset();
}

Result<void> ShardRecovery::read_log() {
    units_.scan_young(ages_);
    log_.read();
    const JournalGaps::Loss loss = gaps_.judge(choice_.journal(), choice_.last_end(), ages_, findings_);
    if (loss.pages == 0) return {};
    findings_.add(
        fmt::format("{} journal pages that were durable cannot be read; the first of them is number {}",
                    loss.pages, loss.first));
    if (input_.options.accept_loss) return {};
    return error(Errc::kCorrupt,
                 "shard {}: page {} of its journal was durable and cannot be read: it is not known which "
                 "blocks were trimmed; read its blocks from replicas on other drives, where there are any, "
                 "or give up the trims in that page with `gnstor ssd recover STORE --accept-loss --write`",
                 input_.range.index, loss.first);
}

Result<void> ShardRecovery::judge_young_pages() {
    judge_.judge();
    lost_records_.judge_tails(choice_.loaded().units);
    return {};
}

Result<void> ShardRecovery::replay_log() {
    return log_.replay(*impl_);
}

Result<void> ShardRecovery::apply_young_pages() {
    GN_TRY(versions_.apply_young(*impl_));
    return lost_records_.judge_suspects(impl_->map);
}

Result<void> ShardRecovery::drop_stale_entries() {
    versions_.drop_stale(impl_->map, choice_.loaded().units);
    return {};
}

Result<void> ShardRecovery::settle_doubts() {
    doubts_.drop_settled(*impl_, versions_.lost());
    lost_records_.settle(doubts_);
    return doubts_.hand_over(*impl_, versions_.lost());
}

/// Every mount reports them: what an earlier mount lost stays in doubt.
Result<void> ShardRecovery::tell_lost_records() {
    for (const auto& [volume, epoch] : impl_->doubts.lost()) {
        nvme::Epoch& told = findings_.report.volumes_in_doubt[volume];
        told = std::max(told, epoch);
        findings_.add(
            fmt::format("newer versions of blocks of volume {} may be lost: each of its blocks whose present "
                        "version is of epoch {} or an earlier one is in doubt; reads ask another replica",
                        volume, epoch));
    }
    return {};
}

/// Checks that each page is mapped once, and restores every unit's state.
Result<void> ShardRecovery::count_valid_pages() {
    std::vector<bool> named(input_.pages, false);
    bool twice = false;
    impl_->map.for_each_page([&](PageNumber page) {
        twice = twice || named[page - input_.first_page];
        named[page - input_.first_page] = true;
        ++findings_.report.pages_mapped;
    });
    if (twice)
        return error(Errc::kCorrupt,
                     "shard {}: the block map maps two blocks to the same page; read its blocks from "
                     "replicas on other drives, where there are any",
                     input_.range.index);
    restore_units();
    impl_->map.for_each_page([&](PageNumber page) { impl_->pool.validate(page); });
    findings_.report.tombstones += impl_->tombstones.size();
    findings_.report.memory_bytes += impl_->map.memory_bytes() +
                                     std::uint64_t{input_.range.units} * sizeof(UnitInfo) +
                                     impl_->tombstones.size() * 96;
    return {};
}

void ShardRecovery::restore_units() {
    journal_units_.plan(input_, choice_, ages_, units_, gaps_);
    std::vector<bool> valid(input_.range.units, false), torn(input_.range.units, false);
    impl_->map.for_each_page(
        [&](PageNumber page) { valid[input_.unit_of(page) - input_.range.first_unit] = true; });
    for (const PageNumber page : units_.torn_pages())
        torn[input_.unit_of(page) - input_.range.first_unit] = true;
    for (std::uint32_t u = input_.range.first_unit; u < input_.end_unit; ++u) {
        const FoundUnit& unit = units_[u];
        const CheckpointUnit& then = choice_.loaded().units[u - input_.range.first_unit];
        UnitInfo info;
        info.serial = std::max(unit.serial, then.serial);
        info.next = unit.end;
        info.erases = then.erases + (unit.serial > then.serial ? 1 : 0);
        info.group = ages_.newest();
        if (!unit.programmed) {
            info.next = 0;
        } else if (journal_units_.keeps(u)) {
            info.system = true;
            const bool last = journal_units_.is_last(u);
            info.state = last && unit.end < input_.pages_per_unit ? UnitState::kOpen : UnitState::kSealed;
        } else if (valid[u - input_.range.first_unit] || !unit.system || journal_units_.is_held(u)) {
            // Without valid pages: emptied, and free when this recovery's checkpoint is durable. A unit that
            // was open is programmed further, or cuts would leave a full drive with ever more half used
            // units; but not if its last records are lost, because flash would program those pages next.
            const bool was_open = unit.young_from < input_.pages_per_unit &&
                                  unit.end < input_.pages_per_unit && unit.end == units_.end_of(u);
            info.state = was_open ? UnitState::kOpen : UnitState::kSealed;
            if (unit.is_remains() && unit.serial != 0) info.next = input_.pages_per_unit;
            // If it were erased before a checkpoint records the doubt or the loss, a cut would hide both.
            info.held = !unit.system &&
                        (torn[u - input_.range.first_unit] || unit.serial == 0 || lost_records_.any());
        }
        if (unit.bad) info.state = UnitState::kRetiring;
        impl_->pool.restore(u, info);
    }
}

void ShardRecovery::add_findings() {
    std::vector<LogRecord> records;
    std::vector<PageNumber> torn(units_.torn_pages().begin(), units_.torn_pages().end());
    std::ranges::sort(torn);
    if (input_.options.mutation == Mutation::kTornNotRecorded) torn.clear();
    for (const PageNumber page : torn) {
        const std::uint32_t serial = units_.of_page(page).serial;
        if (!records.empty() && records.back().first + records.back().blocks == page &&
            records.back().sequence == serial) {
            ++records.back().blocks;
            continue;
        }
        LogRecord record{};
        record.type = LogType::kTorn;
        record.first = page;
        record.blocks = 1;
        record.sequence = serial;
        records.push_back(record);
    }
    for (const JournalGaps::Gap& gap : gaps_.all()) {
        LogRecord record{};
        record.type = LogType::kGap;
        record.sequence = gap.first;
        record.blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(gap.count, ~0u));
        records.push_back(record);
    }
    for (const nvme::VolumeId volume : versions_.dead_volumes())
        records.push_back(ShardLog::purge_record(volume));
    impl_->checkpoint.add_records(records);
}

Result<void> ShardRecovery::sync() {
    if (input_.flash.sync(SyncLevel::kPower) == FlashStatus::kOk) return {};
    return error(Errc::kIo,
                 "shard {}: the pages on flash cannot be made durable; check the disk under the store for "
                 "errors, and open the drive again",
                 input_.range.index);
}

Result<void> ShardRecovery::put_lost_blocks() {
    UnitPool& pool = impl_->pool;
    if (input_.options.mutation == Mutation::kLostBlockNotPut) return {};
    for (const BlockKey key : versions_.lost()) {
        // No collection here: it would begin new groups before the checkpoint.
        if (!pool.has_page(Stream::kCollector)) pool.durable(impl_->groups.current());
        const bool room = pool.has_page(Stream::kCollector);
        const VolumeFloor* seen = impl_->floors.find(key_volume(key));
        PageOob oob{};
        oob.vid = key_volume(key);
        oob.vba = key_block(key);
        oob.kind = PageKind::kLostOrder;
        oob.epoch = seen != nullptr ? seen->epoch : 0;
        oob.sequence = seen != nullptr ? seen->highest : 0;
        oob.version = kOobVersion;
        oob.group = impl_->groups.current();
        PageNumber page = kNoPage;
        const auto ticket = impl_->map.reserve(key);
        if (!room || !ticket ||
            impl_->changes.program(Stream::kCollector, kLostOrderPage.bytes, oob, page) !=
                nvme::Status::kSuccess)
            return error(Errc::kNoSpace,
                         "shard {}: no flash page is free to record that block {} of volume {} is lost; read "
                         "its blocks from replicas on other drives, where there are any",
                         input_.range.index, key_block(key), key_volume(key));
        impl_->map.commit(*ticket, {page, false});
    }
    return {};
}

/// Sets groups, serials, journal numbers and checkpoint ids above every one that was found.
void ShardRecovery::restore_journal() {
    Shard::Impl& shard = *impl_;
    const LoadedCheckpoint& loaded = choice_.loaded();
    std::uint32_t serial = std::max(loaded.next_serial, open_units_.next_serial());
    for (const FoundUnit& unit : units_.all()) serial = std::max(serial, unit.serial + 1);
    shard.groups.restore(ages_.newest(), ages_.newest() - 1);
    shard.pool.start(serial + (input_.options.mutation == Mutation::kNoSerialGap ? 0 : kSerialGap));
    std::uint64_t last_number = choice_.journal().last_number();
    for (const JournalGaps::Gap& gap : gaps_.all())
        last_number = std::max(last_number, gap.first + gap.count - 1);
    shard.journal.restore(last_number + 1);
    for (const JournalUnits::KeptUnit& unit : journal_units_.kept())
        shard.journal.note_unit(unit.unit, unit.first);
    shard.checkpoint.restore(loaded.id, loaded.begin, choice_.spare(), choice_.spare_begin());
    shard.checkpoint.restore_floors(loaded.floors, {});
    shard.checkpoint.restore_begun(choice_.highest_id());
}

Result<void> ShardRecovery::write_checkpoint() {
    // What a killed process left is complete, but perhaps not stable yet: sync before anything relies on it.
    if (input_.options.mutation != Mutation::kSkipFirstSync) GN_TRY(sync());
    restore_journal();
    if (choice_.loaded().id != 0 && !findings_.changed()) {
        impl_->pool.release_held(ages_.newest());
        return {};
    }
    add_findings();
    impl_->pruner.drop_all_resolved();  // the log may have more tombstones than the table ever held at once
    GN_TRY(put_lost_blocks());
    const Result<void> written = impl_->recovered.write();
    // Nothing is served before the first checkpoint of a store, or one that gives up data, is written. Pages
    // for lost blocks are in the newest group, in which an unsettled shard must have programmed nothing.
    if (written.ok() || !impl_->schedule.no_room_below() || choice_.loaded().id == 0 ||
        input_.options.accept_loss || !versions_.lost().empty())
        return written;
    impl_->recovered.postpone();
    findings_.add(
        fmt::format("{}; nothing is lost, blocks can be read, and writes are refused until the disk has room",
                    written.error().message));
    return {};
}

Result<void> ShardRecovery::start() {
    if (impl_->recovered
            .pending()) {  // poll() starts it when its checkpoint is written; surveys are answered before
        impl_->floors.forget_notes();
        return {};
    }
    impl_->start(ages_.newest());
    return {};
}

void ShardRecovery::stop() {
    impl_.reset();
}

Result<std::unique_ptr<Shard>> Shard::mount(Flash& flash, const ShardRange& range,
                                            const EngineOptions& options, const VolumeRegistry& lives,
                                            CompletionSink& sink, RecoveryReport& report) {
    GN_ASSIGN(std::unique_ptr<Impl> impl, ShardRecovery(flash, range, options, lives, sink, report).run());
    return std::unique_ptr<Shard>(new Shard(std::move(impl)));
}

}  // namespace gnstor::deengine
