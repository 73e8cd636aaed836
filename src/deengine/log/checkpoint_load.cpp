// checkpoint_load.cpp: END says where BEGIN is; the parts between them are read once, in order.
#include "deengine/log/checkpoint_load.hpp"

#include <gnstor/base/crc32c.hpp>

#include <algorithm>

namespace gnstor::deengine {
namespace {

class Loader {
  public:
    Loader(JournalIndex& journal, const CheckpointBegin& want, std::uint64_t pages, BlockMap& map,
           Tombstones& tombstones)
        : journal_(journal), want_(want), pages_(pages), map_(map), tombstones_(tombstones) {}

    Result<LoadedCheckpoint> load(const JournalPlace& place);

  private:
    Result<void> read_begin(std::uint32_t group);
    Result<void> read_part(const JournalHeader& header);
    Result<void> read_units(const JournalHeader& header);
    Result<void> read_map(const JournalHeader& header);
    Result<void> read_tombstones(const JournalHeader& header);
    void read_moved(const JournalHeader& header);
    void read_floors(const JournalHeader& header);
    Result<void> finish();
    [[nodiscard]] Error damaged(std::uint64_t number, const char* why) const {
        return error(Errc::kCorrupt, "checkpoint {}, journal page {}: {}", out_.id, number, why);
    }

    JournalIndex& journal_;
    const CheckpointBegin& want_;
    const std::uint64_t pages_;
    BlockMap& map_;
    Tombstones& tombstones_;
    LoadedCheckpoint out_;
    std::uint32_t next_bucket_ = 0;
    std::vector<CheckpointMoved> moved_;
};

Result<LoadedCheckpoint> Loader::load(const JournalPlace& place) {
    const JournalHeader* header = journal_.read(place);
    if (header == nullptr) return damaged(place.number, "the end page of the checkpoint cannot be read");
    out_.id = header->checkpoint;
    out_.end = place.number;
    out_.next_serial = std::max(out_.next_serial, header->next_serial);
    const auto end = journal_.entry<CheckpointEnd>(0);
    if (out_.id == 0 || end.begin == 0 || end.begin >= place.number || end.parts > place.number - end.begin ||
        end.parts == 0)
        return damaged(place.number, "the end page of the checkpoint names an impossible first page");
    out_.begin = end.begin;
    std::uint32_t crc = 0;
    // A number may occur twice; its places are adjacent, the preferred one first.
    std::uint64_t done = 0;
    for (const JournalPlace& p : journal_.places()) {
        if (p.number < end.begin || p.number == done) continue;
        if (p.number >= place.number) break;
        if (p.type == JournalPage::kLog) continue;
        header = journal_.read(p);
        if (header == nullptr) {
            const auto twins = journal_.find(p.number);
            if (twins.size() > 1 && &p != &twins.back()) continue;
            return damaged(p.number, "the page cannot be read");
        }
        done = p.number;
        if (header->checkpoint != out_.id || header->part != out_.parts.size())
            return damaged(p.number, "the page is not the next part of this checkpoint");
        out_.parts.push_back(p.number);
        out_.next_serial = std::max(out_.next_serial, header->next_serial);
        crc = crc32c(&p.oob_crc, sizeof(p.oob_crc), crc);
        if (header->type == JournalPage::kCheckpointBegin) {
            GN_TRY(read_begin(p.group));
        } else {
            GN_TRY(read_part(*header));
        }
    }
    if (out_.parts.size() != end.parts) return damaged(place.number, "a part of the checkpoint is missing");
    if (crc != end.crc)
        return damaged(place.number,
                       "the checksum over the parts of the checkpoint does not match its end page");
    GN_TRY(finish());
    return std::move(out_);
}

Result<void> Loader::read_begin(std::uint32_t group) {
    const auto begin = journal_.entry<CheckpointBegin>(0);
    if (out_.parts.size() != 1) return damaged(out_.parts.back(), "the checkpoint has a second begin page");
    if (begin.first_unit != want_.first_unit || begin.units != want_.units ||
        begin.pages_per_unit != want_.pages_per_unit || begin.buckets != want_.buckets ||
        begin.page_bits != want_.page_bits)
        return error(Errc::kInvalidArgument,
                     "a shard of the store has units {} .. {} of {} pages and {} map buckets, but the mount "
                     "expects units {} .. {} of {} pages and {} buckets: mount the store with as many "
                     "service units as it was formatted for",
                     begin.first_unit, begin.first_unit + begin.units - 1, begin.pages_per_unit,
                     begin.buckets, want_.first_unit, want_.first_unit + want_.units - 1,
                     want_.pages_per_unit, want_.buckets);
    out_.group = group;
    return {};
}

Result<void> Loader::read_part(const JournalHeader& header) {
    if (out_.parts.size() < 2)
        return damaged(header.number, "a part comes before the begin page of the checkpoint");
    switch (header.type) {
        case JournalPage::kCheckpointUnits:
            return read_units(header);
        case JournalPage::kCheckpointMap:
            return read_map(header);
        case JournalPage::kCheckpointTombstones:
            return read_tombstones(header);
        case JournalPage::kCheckpointMoved:
            read_moved(header);
            return {};
        case JournalPage::kCheckpointFloors:
            read_floors(header);
            return {};
        case JournalPage::kCheckpointRecords:
            return {};  // replayed with the log
        default:
            return damaged(header.number, "the part is of an unknown kind");
    }
}

Result<void> Loader::read_units(const JournalHeader& header) {
    if (header.count > JournalIndex::most<CheckpointUnit>() || header.first != out_.units.size() ||
        header.count > want_.units - out_.units.size())
        return damaged(header.number, "the part lists erase units that the shard does not have");
    for (std::uint32_t i = 0; i < header.count; ++i) {
        const auto unit = journal_.entry<CheckpointUnit>(i);
        if (unit.next > want_.pages_per_unit || unit.state > UnitState::kRetired)
            return damaged(header.number, "the part lists an erase unit in an impossible state");
        out_.units.push_back(unit);
    }
    return {};
}

Result<void> Loader::read_map(const JournalHeader& header) {
    if (header.count > kBucketsPerPart || header.first != next_bucket_ ||
        header.count > want_.buckets - next_bucket_)
        return damaged(header.number,
                       "the map buckets of the part do not follow those of the part before it");
    map_.copy_in(next_bucket_, header.count, journal_.payload().data());
    next_bucket_ += header.count;
    return {};
}

Result<void> Loader::read_tombstones(const JournalHeader& header) {
    if (header.count > JournalIndex::most<CheckpointTombstone>())
        return damaged(header.number, "the part claims more tombstones than a page holds");
    for (std::uint32_t i = 0; i < header.count; ++i) {
        const auto t = journal_.entry<CheckpointTombstone>(i);
        if (t.blocks == 0 || t.first >> 48 != 0 || (t.first & 0xFFFFFFFFull) + t.blocks > (1ull << 32))
            return damaged(header.number, "the part has a tombstone outside of any volume");
        tombstones_.add({t.first, t.blocks, t.epoch, t.sequence, t.born});
    }
    return {};
}

void Loader::read_moved(const JournalHeader& header) {
    for (std::uint32_t i = 0; i < header.count && i < JournalIndex::most<CheckpointMoved>(); ++i)
        moved_.push_back(journal_.entry<CheckpointMoved>(i));
}

void Loader::read_floors(const JournalHeader& header) {
    for (std::uint32_t i = 0; i < header.count && i < JournalIndex::most<CheckpointFloor>(); ++i) {
        const auto f = journal_.entry<CheckpointFloor>(i);
        out_.floors.push_back({f.volume, f.epoch, f.floor, f.highest, f.floor});
    }
}

Result<void> Loader::finish() {
    if (next_bucket_ != want_.buckets || out_.units.size() != want_.units)
        return damaged(out_.end, "the checkpoint does not contain the whole block map or unit table");
    if (const char* why = map_.settle_loaded(pages_); why != nullptr)
        return error(Errc::kCorrupt, "checkpoint {}: the block map holds {}", out_.id, why);
    // Later moves of a key override earlier ones.
    for (const CheckpointMoved& m : moved_)
        if (m.key >> 48 != 0 || m.page >= pages_ || !map_.put_moved(m.key, {m.page, m.tombstone != 0}))
            return error(Errc::kCorrupt,
                         "checkpoint {}: a moved entry of the block map is impossible (its key or page does "
                         "not exist, or its bucket is full)",
                         out_.id);
    return {};
}

}  // namespace

Result<LoadedCheckpoint> load_checkpoint(JournalIndex& journal, const JournalPlace& place,
                                         const CheckpointBegin& want, std::uint64_t pages, BlockMap& map,
                                         Tombstones& tombstones) {
    return Loader(journal, want, pages, map, tombstones).load(place);
}

}  // namespace gnstor::deengine
