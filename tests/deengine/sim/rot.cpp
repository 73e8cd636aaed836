// rot.cpp: pages that go bad after they were certain, and syncs that fail.
//
// Contents of any data page: of one that a cut might have torn the drive must say that its block is in doubt.
// Records, and pages of the journal, only where the drive is bound to tell rot from a tear: whatever a cut
// leaves, two groups above the page's own are there, and of a bad record also a page behind it, in its unit
// (a page of the journal: the next number), that is of none of the last two groups. With less a bad record is
// byte for byte what a tear leaves of one that nobody was promised (DEENGINE: docs/store-format.md,
// "Recovery", 3; docs/reliability.md).
#include "deengine/sim/world.hpp"

#include "deengine/log/journal.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace gnstor::deengine::sim {
namespace {

/// What every image of a cut of this mode shows of a shard.
class CertainPages {
  public:
    CertainPages(const Medium& medium, CutMode mode, std::uint32_t shard)
        : medium_(medium), uncertain_(medium.uncertain_pages(mode)) {
        const FlashGeometry& g = medium.options().geometry;
        const UnitSlice units = units_of_shard(g.units, shard, medium.options().views);
        per_unit_ = g.pages_per_unit;
        begin_ = units.first * per_unit_;
        end_ = begin_ + units.units * per_unit_;
        for (PageNumber p = begin_; p < end_; ++p)
            if (holds_record(p) && !uncertain_[p]) newest_ = std::max(newest_, oob(p).group);
    }

    /// Certain, and not of the last two groups that any recovery will find.
    [[nodiscard]] bool is_old(PageNumber p) const {
        return holds_record(p) && !uncertain_[p] && oob(p).group + 2 <= newest_;
    }
    [[nodiscard]] bool holds_record(PageNumber p) const {
        return gnstor::deengine::sim::holds_record(medium_.page(p));
    }
    /// Whether this page's record would be missed if it were bad.
    [[nodiscard]] bool shows_bad_record(PageNumber p) const {
        if (oob(p).kind == PageKind::kSystem) return is_old_number(oob(p).sequence + 1);
        const PageNumber end = (p / per_unit_ + 1) * per_unit_;
        for (PageNumber next = p + 1; next < end; ++next)
            if (holds_record(next) && oob(next).unit_serial == oob(p).unit_serial) return is_old(next);
        return medium_.page(end - 1).recorded && was_complete(oob(p).unit_serial);
    }

  private:
    [[nodiscard]] const PageOob& oob(PageNumber p) const { return medium_.page(p).oob; }
    [[nodiscard]] bool is_old_number(std::uint64_t number) const {
        for (PageNumber p = begin_; p < end_; ++p)
            if (holds_record(p) && oob(p).kind == PageKind::kSystem && oob(p).sequence == number)
                return is_old(p);
        return false;
    }
    /// A page of the log says that nothing was programmed in this unit any more.
    [[nodiscard]] bool was_complete(std::uint32_t serial) const {
        for (PageNumber p = begin_; p < end_; ++p) {
            if (!is_old(p) || oob(p).kind != PageKind::kSystem || !medium_.page(p).data) continue;
            if (oob(p).epoch != static_cast<std::uint32_t>(JournalPage::kLog)) continue;
            JournalHeader header{};
            std::memcpy(&header, medium_.page(p).data->bytes, sizeof(header));
            if (serial < header.next_serial && serial != header.open_user && serial != header.open_collector)
                return true;
        }
        return false;
    }

    const Medium& medium_;
    std::vector<bool> uncertain_;
    std::uint32_t per_unit_ = 0;
    PageNumber begin_ = 0;
    PageNumber end_ = 0;
    std::uint32_t newest_ = 0;
};

/// No other page holds this version of its block.
bool holds_alone(const Medium& image, PageNumber p) {
    const PageOob& oob = image.page(p).oob;
    for (PageNumber q = 0; q < image.options().geometry.pages(); ++q) {
        const PageOob& other = image.page(q).oob;
        if (q != p && holds_record(image.page(q)) && other.vid == oob.vid && other.vba == oob.vba &&
            WriteOrder::of(other) == WriteOrder::of(oob))
            return false;
    }
    return true;
}

}  // namespace

/// Whether a recovery of this image is bound to map the page: it alone holds the newest version of its block
/// that was ever sent, and that was promised.
bool must_be_mapped(const Oracle& oracle, const Medium& image, PageNumber p) {
    const MediumPage& page = image.page(p);
    if (!holds_record(page) || page.oob.kind != PageKind::kData) return false;
    const BlockState* block = oracle.find_block(page.oob.vid, page.oob.vba);
    const WriteOrder order = WriteOrder::of(page.oob);
    return block != nullptr && block->durable == order &&
           std::ranges::none_of(block->versions, [&](const Version& v) { return v.order > order; }) &&
           holds_alone(image, p);
}

/// A page that is certain goes bad. Which block it is of is known here; its reads may fail from now on.
void World::rot() {
    const FlashGeometry& g = config_.medium.geometry;
    if (config_.rot_journal != 0 && random_.below(1000) < config_.rot_journal) return rot_checkpoint();
    if (config_.rot_lonely) return rot_lonely_record();
    if (config_.rot_moving) return rot_moving();
    for (int tries = 0; tries < 20; ++tries)
        if (rot_page(static_cast<PageNumber>(random_.below(g.pages())))) return;
}

/// A part of the newest checkpoint goes bad, not the one that names what cuts tore, and the power with it:
/// the next boot begins at the checkpoint before.
void World::rot_checkpoint() {
    const FlashGeometry& g = config_.medium.geometry;
    std::uint64_t newest = 0;
    PageNumber end = kNoPage;
    for (PageNumber p = 0; p < g.pages(); ++p) {
        const MediumPage& page = medium_->page(p);
        if (!holds_record(page) || page.rotten_data || page.oob.kind != PageKind::kSystem) continue;
        if (page.oob.epoch != static_cast<std::uint32_t>(JournalPage::kCheckpointUnits)) continue;
        if (page.oob.sequence >= newest) newest = page.oob.sequence, end = p;
    }
    if (end != kNoPage && rot_page(end)) crash_armed_ = true;
}

/// The record of a young page goes bad that is the last one of its block, and the power with it. Where the
/// checkpoint names the page that it was copied from, that one is gone: the block is lost.
void World::rot_lonely_record() {
    const CertainPages certain(*medium_, config_.cut_mode(), 0);
    std::map<std::pair<nvme::VolumeId, nvme::BlockAddress>, std::uint32_t> copies;
    std::uint64_t begin = 0;
    std::uint32_t group = 0;
    for (PageNumber p = 0; p < config_.medium.geometry.pages(); ++p) {
        if (!certain.holds_record(p)) continue;
        const PageOob& oob = medium_->page(p).oob;
        if (oob.kind == PageKind::kData) ++copies[{oob.vid, oob.vba}];
        const bool is_begin = oob.kind == PageKind::kSystem &&
                              oob.epoch == static_cast<std::uint32_t>(JournalPage::kCheckpointBegin);
        if (is_begin && oob.sequence >= begin) begin = oob.sequence, group = oob.group;
    }
    std::vector<PageNumber> lonely;
    for (PageNumber p = 0; p < config_.medium.geometry.pages(); ++p) {
        if (!certain.holds_record(p)) continue;
        const PageOob& oob = medium_->page(p).oob;
        if (oob.kind == PageKind::kData && oob.group >= group && certain.is_old(p) &&
            certain.shows_bad_record(p) && copies[{oob.vid, oob.vba}] == 1)
            lonely.push_back(p);
    }
    if (lonely.empty()) return;
    const PageNumber p = lonely[random_.below(lonely.size())];
    const PageOob& oob = medium_->page(p).oob;
    const auto volume = oracle_.volumes.find(oob.vid);
    if (volume != oracle_.volumes.end()) volume->second.blocks[oob.vba].damaged = next_tag_;
    note(fmt::format("page {} rots: volume {} block {}, its record, and no other holds that block", p,
                     oob.vid, oob.vba));
    ++counters_.rotten;
    record_rot_ = true;
    medium_->rot_record(p);
    crash_armed_ = true;
}

/// A byte flips in a page that alone holds the newest version of its block, that no cut can tear any more,
/// and that was programmed since the newest checkpoint began: the block is lost for certain.
void World::rot_moving() {
    const CertainPages certain(*medium_, config_.cut_mode(), 0);
    std::uint32_t group = 0;
    for (PageNumber p = 0; p < config_.medium.geometry.pages(); ++p) {
        const PageOob& oob = medium_->page(p).oob;
        if (certain.holds_record(p) && oob.kind == PageKind::kSystem &&
            oob.epoch == static_cast<std::uint32_t>(JournalPage::kCheckpointBegin))
            group = std::max(group, oob.group);
    }
    const auto is_newest = [&](PageNumber p) {
        const PageOob& oob = medium_->page(p).oob;
        const BlockState* block = oracle_.find_block(oob.vid, oob.vba);
        const auto newer = [&](const Version& v) { return v.order > WriteOrder::of(oob); };
        return block != nullptr && std::ranges::none_of(block->versions, newer) && holds_alone(*medium_, p);
    };
    // In the unit with fewest such pages, which the collector takes soon.
    const std::uint32_t per_unit = config_.medium.geometry.pages_per_unit;
    std::map<std::uint32_t, std::vector<PageNumber>> by_unit;
    for (PageNumber p = 0; p < config_.medium.geometry.pages(); ++p) {
        const MediumPage& page = medium_->page(p);
        if (certain.holds_record(p) && page.oob.kind == PageKind::kData && page.oob.group >= group &&
            certain.is_old(p) && is_whole(page) && is_newest(p))
            by_unit[p / per_unit].push_back(p);
    }
    if (by_unit.empty()) return;
    const std::vector<PageNumber>& pages =
        std::ranges::min_element(by_unit, {}, [](const auto& unit) { return unit.second.size(); })->second;
    const PageNumber p = pages[random_.below(pages.size())];
    const PageOob& oob = medium_->page(p).oob;
    const auto volume = oracle_.volumes.find(oob.vid);
    if (volume == oracle_.volumes.end()) return;
    BlockState& block = volume->second.blocks[oob.vba];
    block.damaged = next_tag_;
    block.gone = WriteOrder::of(oob);
    note(fmt::format("page {} rots: volume {} block {}", p, oob.vid, oob.vba));
    ++counters_.rotten;
    medium_->flip_byte(p, static_cast<std::uint32_t>(random_.below(nvme::kBlockBytes)));
}

bool World::rot_page(PageNumber p) {
    const FlashGeometry& g = config_.medium.geometry;
    std::uint32_t shard = 0;
    while (units_of_shard(g.units, shard + 1, config_.medium.views).first <= p / g.pages_per_unit) ++shard;
    const CertainPages certain(*medium_, config_.cut_mode(), shard);
    const MediumPage& page = medium_->page(p);
    const bool journal = page.oob.kind == PageKind::kSystem;
    if (!journal && page.oob.kind != PageKind::kData) return false;
    if (journal && !config_.rot_records) return false;
    // Of a young page the contents alone: the drive must call its block doubtful, or fail its reads.
    const bool young = !certain.is_old(p);
    if (young && (journal || !certain.holds_record(p))) return false;
    counters_.rotten_young += young ? 1 : 0;
    const auto volume = oracle_.volumes.find(page.oob.vid);
    if (!journal && volume != oracle_.volumes.end()) {
        const auto block = volume->second.blocks.find(page.oob.vba);
        if (block != volume->second.blocks.end()) {
            block->second.damaged = next_tag_;
            if (!young && is_whole(page) && holds_alone(*medium_, p))
                block->second.gone = WriteOrder::of(page.oob);
        }
    }
    if (journal && page.oob.epoch == static_cast<std::uint32_t>(JournalPage::kCheckpointRecords))
        damage_torn_blocks();
    ++counters_.rotten;
    const bool record = !young && config_.rot_records && config_.rot_journal == 0 && random_.below(2) == 0 &&
                        certain.shows_bad_record(p);
    note(fmt::format("page {} rots: volume {} block {} kind {}{}", p, page.oob.vid, page.oob.vba,
                     static_cast<int>(page.oob.kind), record ? ", its record" : ""));
    record_rot_ = record_rot_ || record || journal;
    if (record) {
        medium_->rot_record(p);
    } else if (random_.below(2) == 0) {
        medium_->rot_data(p);
    } else {
        medium_->flip_byte(p, static_cast<std::uint32_t>(random_.below(nvme::kBlockBytes)));
    }
    return true;
}

/// What an earlier cut tore is named in the checkpoint of the recovery that found it, and nowhere else. Where
/// that part rots and an older checkpoint is used, a torn page with a good record is one that rotted: its
/// block's reads fail, for nobody can tell that it was never promised (docs/array.md, rule 9: data or an
/// error).
void World::damage_torn_blocks() {
    for (PageNumber p = 0; p < medium_->options().geometry.pages(); ++p) {
        const MediumPage& page = medium_->page(p);
        if (!holds_record(page) || page.oob.kind != PageKind::kData) continue;
        const auto volume = oracle_.volumes.find(page.oob.vid);
        if (is_whole(page) || volume == oracle_.volumes.end()) continue;
        const auto block = volume->second.blocks.find(page.oob.vba);
        if (block != volume->second.blocks.end()) block->second.damaged = next_tag_;
    }
}

/// Where a bad record is all that counts in its unit, the unit looks as a cut erasure leaves it: what lies in
/// it is dropped, and an older version of the block may show (DEENGINE: docs/store-format.md, "Recovery", 3).
void World::forgive_lost_records(const Medium& image) {
    const FlashGeometry& g = image.options().geometry;
    for (PageNumber p = 0; p < g.pages(); ++p) {
        const MediumPage& page = image.page(p);
        if (!page.recorded || !page.rotten_record || page.oob.kind != PageKind::kData) continue;
        const BlockState* block = oracle_.find_block(page.oob.vid, page.oob.vba);
        if (block == nullptr || WriteOrder::of(page.oob) < block->durable || !holds_alone(image, p)) continue;
        const PageNumber first = p - p % g.pages_per_unit;
        bool counts = false;
        for (PageNumber q = first; q < first + g.pages_per_unit && !counts; ++q)
            counts = must_be_mapped(oracle_, image, q);
        if (!counts) forgiven_.insert({page.oob.vid, page.oob.vba});
    }
}

/// The medium says that a sync failed: nothing is promised any more until the next boot.
void World::break_syncs() {
    note("syncs fail from now on");
    ++counters_.syncs_failed;
    syncs_fail_ = true;
    medium_->fail_syncs(true);
}

}  // namespace gnstor::deengine::sim
