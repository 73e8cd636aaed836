// lost_records.cpp: records of data pages that are lost in a kill, in both copies, and what may be known of
// them.
//
// Only where the drive is bound to notice (DEENGINE: docs/store-format.md, "Recovery", 3): a record that is
// damaged; one that is gone before a good one of its unit; the last ones of a unit, of which the journal says
// that they were there. And only where something else in the unit must be mapped, for else it looks as an
// erasure leaves it that was cut. Then the mount is refused, or no read gives an older version, or zeroes, as
// if it were the newest.
#include "deengine/sim/world.hpp"

#include "deengine/log/journal.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

namespace gnstor::deengine::sim {
namespace {

/// So many pages the unit of this serial held, as the journal says.
std::uint32_t pages_told(const Medium& medium, std::uint32_t view, std::uint32_t serial) {
    const FlashGeometry& g = medium.options().geometry;
    const UnitSlice slice = units_of_shard(g.units, view, medium.options().views);
    std::uint64_t begin = 0;  // of the newest checkpoint: what is before it is not looked at any more
    std::uint32_t told = 0;
    for (const bool looks : {false, true})
        for (PageNumber p = slice.first * g.pages_per_unit;
             p < (slice.first + slice.units) * g.pages_per_unit; ++p) {
            const MediumPage& page = medium.page(p);
            if (!is_whole(page) || page.oob.kind != PageKind::kSystem) continue;
            JournalHeader header{};
            std::memcpy(&header, page.data->bytes, sizeof(header));
            if (!looks && header.type == JournalPage::kCheckpointBegin)
                begin = std::max(begin, header.number);
            if (!looks || header.type != JournalPage::kLog || header.number < begin) continue;
            if (header.open_user == serial) told = std::max<std::uint32_t>(told, header.user_pages);
            if (header.open_collector == serial) told = std::max<std::uint32_t>(told, header.collector_pages);
        }
    return told;
}

}  // namespace

/// Pages with bad records, as a kill tears them.
std::map<PageNumber, PageOob> World::bad_records(const Medium& image) {
    std::map<PageNumber, PageOob> bad;
    for (PageNumber p = 0; p < image.options().geometry.pages(); ++p)
        if (image.page(p).recorded && !holds_record(image.page(p))) bad[p] = image.page(p).oob;
    return bad;
}

/// What a mount of this image may call lost: records that were taken, or a bad one that no mount before has
/// seen; after a power cut contents that are damaged, which may be a copy's.
bool World::may_lose_records(const Medium& image) const {
    if (records_gone_ || record_rot_) return true;
    if (!config_.engine.same_boot) {
        for (PageNumber p = 0; p < image.options().geometry.pages(); ++p)
            if (holds_record(image.page(p)) && !is_whole(image.page(p))) return true;
        return false;
    }
    return std::ranges::any_of(bad_records(image), [&](const auto& bad) {
        const auto known = known_bad_.find(bad.first);
        return known == known_bad_.end() || std::memcmp(&known->second, &bad.second, sizeof(PageOob)) != 0;
    });
}

void World::lose_records() {
    const FlashGeometry& g = config_.medium.geometry;
    for (int tries = 0; tries < 50; ++tries) {
        const auto p = static_cast<PageNumber>(cuts_.below(g.pages()));
        const MediumPage& page = medium_->page(p);
        if (!holds_record(page) || page.oob.kind != PageKind::kData) continue;
        const PageNumber end = (p / g.pages_per_unit + 1) * g.pages_per_unit;
        std::uint32_t view = 0;
        while (units_of_shard(g.units, view + 1, config_.medium.views).first <= p / g.pages_per_unit) ++view;
        const bool followed = p + 1 < end && holds_record(medium_->page(p + 1)) &&
                              medium_->page(p + 1).oob.kind == PageKind::kData &&
                              medium_->page(p + 1).oob.unit_serial == page.oob.unit_serial;
        const bool told = pages_told(*medium_, view, page.oob.unit_serial) > p % g.pages_per_unit;
        const std::uint64_t dice = cuts_.below(3);
        if (dice == 0 && lose_from(p, p, "damaged")) return;
        if (dice == 1 && followed && lose_from(p, p + 1, "gone")) return;
        if (dice == 2 && told && lose_from(p, end, "gone, and all behind it")) return;
    }
}

/// `end` == `page`: its record is damaged.
bool World::lose_from(PageNumber page, PageNumber end, const char* what) {
    const std::uint32_t per_unit = config_.medium.geometry.pages_per_unit;
    const PageNumber first = page - page % per_unit;
    const PageNumber behind = std::max(end, page + 1);
    bool counts = false;
    for (PageNumber p = first; p < first + per_unit && !counts; ++p)
        counts = (p < page || p >= behind) && must_be_mapped(oracle_, *medium_, p);
    if (!counts) return false;
    for (PageNumber p = page; p < behind; ++p) {
        const PageOob oob = medium_->page(p).oob;
        const bool block = holds_record(medium_->page(p)) && oob.kind == PageKind::kData;
        const auto volume = oracle_.volumes.find(oob.vid);
        if (block && volume != oracle_.volumes.end()) volume->second.blocks[oob.vba].damaged = next_tag_;
        if (end == page) {
            medium_->rot_record(p);
        } else if (medium_->page(p).recorded) {
            medium_->lose_record(p);
        }
    }
    note(fmt::format("the record of page {} is {}", page, what));
    ++counters_.records_lost;
    records_gone_ = true;  // and the mount may refuse, for that reason
    return true;
}

}  // namespace gnstor::deengine::sim
