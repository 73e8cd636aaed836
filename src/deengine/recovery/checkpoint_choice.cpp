// checkpoint_choice.cpp: finding the journal, and loading a checkpoint.
#include "deengine/recovery/checkpoint_choice.hpp"

namespace gnstor::deengine {

void CheckpointChoice::find_journal() {
    for (std::uint32_t u = input_.range.first_unit; u < input_.end_unit; ++u) {
        FoundUnit& unit = units_[u];
        if (!unit.system || unit.serial == 0) continue;
        for (std::uint32_t i = 0; i < input_.pages_per_unit; ++i) {
            PageOob oob{};
            const PageNumber page = u * input_.pages_per_unit + i;
            const FoundUnits::Record record = units_.read_record(page, oob);
            if (record == FoundUnits::Record::kErased) continue;
            unit.end = i + 1;
            if (record != FoundUnits::Record::kGood || oob.kind != PageKind::kSystem ||
                oob.unit_serial != unit.serial)
                continue;
            journal_.add(page, oob);
        }
    }
    journal_.sort();
    findings_.report.journal_pages += journal_.places().size();
    const std::span<const JournalPlace> places = journal_.places();
    for (auto it = places.rbegin(); it != places.rend(); ++it) {
        const JournalPlace& place = *it;
        // An END that cannot be read was torn by a cut, or is a damaged part: LogReplay decides.
        if (place.type == JournalPage::kCheckpointEnd && journal_.read(place) != nullptr &&
            !was_replaced(place))
            ends_.push_back(place);
        if (place.type != JournalPage::kCheckpointBegin) continue;
        const JournalHeader* header = journal_.read(place);
        // A BEGIN that cannot be read has used one id, too: ids rise by one.
        highest_id_ = header != nullptr ? std::max(highest_id_, header->checkpoint) : highest_id_ + 1;
    }
}

/// Whether this END's number was given to another page later: every program of the END had failed, its
/// checkpoint was given up, and what the failed programs left can be read only by chance.
bool CheckpointChoice::was_replaced(const JournalPlace& end) {
    for (const JournalPlace& twin : journal_.find(end.number)) {
        if (twin.page == end.page) return false;
        if (journal_.read(twin) != nullptr) return twin.type != JournalPage::kCheckpointEnd;
    }
    return false;
}

/// The checkpoint before the loaded one stays as the spare.
void CheckpointChoice::find_spare() {
    for (const JournalPlace& other : ends_)
        if (other.number < loaded_.begin && spare_ == 0)
            if (const JournalHeader* header = journal_.read(other); header != nullptr) {
                spare_ = header->checkpoint;
                spare_begin_ = journal_.entry<CheckpointEnd>(0).begin;
            }
}

/// Drops what the checkpoint holds of volumes that do not exist.
void CheckpointChoice::drop_dead(ShardState& state) {
    const VolumeRegistry& lives = input_.lives;
    state.tombstones.drop_if(
        [&](const Tombstone& t) { return !lives.lives(key_volume(t.first), t.epoch, key_block(t.first)); });
    for (const VolumeFloor& f : loaded_.floors)
        if (lives.lives(f.volume, f.epoch, 0)) {
            state.floors.raise(f.volume, f.epoch, f.floor);
            state.floors.seen(f.volume, f.epoch, f.highest);
            // The checkpoint does not tell which trims had left no tombstone. All later ones are in the journal, and get one.
            state.floors.trimmed_untold(f.volume, f.epoch, f.highest);
        } else if (input_.options.mutation != Mutation::kApplyOutdatedPage) {
            lost_records_.note_dropped(f.volume, f.epoch);
            // Map entries carry no epoch: all that the checkpoint maps is of the same volume as the floor.
            // The log may lack the purge record: flash may have failed before the volume was deleted.
            state.map.erase_if([&](BlockKey key, MapEntry) { return key_volume(key) == f.volume; });
        }
}

Result<void> CheckpointChoice::load(const JournalPlace& end, ShardState& state) {
    CheckpointBegin want{};
    want.first_unit = input_.range.first_unit;
    want.units = input_.range.units;
    want.pages_per_unit = input_.pages_per_unit;
    want.buckets = state.map.buckets();
    want.page_bits = state.map.page_bits();
    GN_ASSIGN(loaded_, load_checkpoint(journal_, end, want, input_.flash.geometry().pages(), state.map,
                                       state.tombstones));
    bool inside = true;
    state.map.for_each_page([&](PageNumber page) { inside = inside && input_.has_page(page); });
    if (!inside)
        return error(Errc::kCorrupt, "checkpoint {}: the block map maps a block to a page of another shard",
                     loaded_.id);
    find_spare();
    drop_dead(state);
    note_id(loaded_.id);
    findings_.report.checkpoint = std::max(findings_.report.checkpoint, loaded_.id);
    return {};
}

Result<void> CheckpointChoice::load_none() {
    loaded_ = {};
    loaded_.units.resize(input_.range.units);
    spare_ = 0;
    findings_.note_change();
    const bool has_data = std::ranges::any_of(
        units_.all(), [](const FoundUnit& unit) { return unit.serial != 0 && !unit.system; });
    const bool from_first = !journal_.empty() && journal_.places().front().number == 1;
    const bool first_mount = !has_data && std::ranges::all_of(journal_.places(), [](const JournalPlace& p) {
        return p.group == 1;
    });
    if (!first_mount && !from_first)
        return error(Errc::kCorrupt,
                     "shard {} holds data but no whole checkpoint, and its journal does not reach back to "
                     "its first page: it is not known where the blocks are; read its blocks from replicas on "
                     "other drives, where there are any",
                     input_.range.index);
    return {};
}

}  // namespace gnstor::deengine
