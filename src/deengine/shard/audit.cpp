// audit.cpp: the comparisons of audit.hpp.
#include "deengine/shard/audit.hpp"

#include <fmt/core.h>

namespace gnstor::deengine {
namespace {

constexpr std::size_t kFindingsMax = 16;

/// Collects findings up to kFindingsMax.
class Findings {
  public:
    template <class... Args>
    void add(fmt::format_string<Args...> format, Args&&... args) {
        if (list_.size() < kFindingsMax) list_.push_back(fmt::format(format, std::forward<Args>(args)...));
    }
    std::vector<std::string> take() { return std::move(list_); }

  private:
    std::vector<std::string> list_;
};

/// Compares the record of a mapped page with the map. A record that cannot be read is no finding.
void audit_page(const ShardState& shard, BlockKey key, PageNumber page, Findings& findings) {
    const std::uint32_t unit = shard.pool.unit_of(page);
    const UnitInfo& info = shard.pool.info(unit);
    if (info.system || info.state == UnitState::kFree || page % shard.pages_per_unit >= info.next)
        findings.add(
            "block {}:{} is mapped to page {}, but the unit of that page does not hold the page (state {}, "
            "next page {})",
            key_volume(key), key_block(key), page, static_cast<int>(info.state), info.next);
    PageOob oob{};
    if (!has_data(shard.flash.read_oob(page, oob))) return;
    if (make_key(oob.vid, oob.vba) != key)
        findings.add(
            "block {}:{} is mapped to page {}, but the record of that page names block {}:{} (kind {})",
            key_volume(key), key_block(key), page, oob.vid, oob.vba, static_cast<int>(oob.kind));
    if (oob.unit_serial != info.serial)
        findings.add("page {} of block {}:{} has a record of unit serial {}, but its unit has serial {}",
                     page, key_volume(key), key_block(key), oob.unit_serial, info.serial);
    // An older one may stay until the floor of a closed epoch drops it (Changes::leaves_tombstone_).
    const auto trimmed = shard.tombstones.find(key);
    if (trimmed && WriteOrder::of(oob).number() <= trimmed->number())
        findings.add("block {}:{} is mapped although a tombstone covers it", key_volume(key), key_block(key));
}

void audit_units(const ShardState& shard, const std::vector<std::uint32_t>& mapped, Findings& findings) {
    for (std::uint32_t i = 0; i < shard.range.units; ++i) {
        const UnitInfo& info = shard.pool.info(shard.range.first_unit + i);
        if (!info.system && info.valid != mapped[i])
            findings.add("unit {} counts {} valid pages, but blocks are mapped to {} of its pages",
                         shard.range.first_unit + i, info.valid, mapped[i]);
    }
    if (shard.pool.valid_pages() != shard.map.size())
        findings.add("all units together count {} valid pages, but {} blocks are mapped",
                     shard.pool.valid_pages(), shard.map.size());
}

void audit_tombstones(const ShardState& shard, Findings& findings) {
    BlockKey end = 0;
    shard.tombstones.for_each([&](const Tombstone& t) {
        if (t.first < end)
            findings.add("the tombstone at block {}:{} overlaps the tombstone before it", key_volume(t.first),
                         key_block(t.first));
        if (t.blocks == 0 || key_volume(t.first) != key_volume(t.first + t.blocks - 1))
            findings.add("the tombstone at block {}:{} has {} blocks, which is not a range within one volume",
                         key_volume(t.first), key_block(t.first), t.blocks);
        end = t.first + t.blocks;
    });
}

/// A doubt that is settled must be gone.
void audit_doubts(const ShardState& shard, Findings& findings) {
    shard.doubts.for_each([&](BlockKey key, const WriteOrder& order) {
        WriteOrder present = shard.tombstones.find(key).value_or(WriteOrder{});
        PageOob oob{};
        if (const auto entry = shard.map.find(key);
            entry && has_data(shard.flash.read_oob(entry->page, oob)) && oob.kind == PageKind::kData)
            present = WriteOrder::of(oob);
        if (present >= order)
            findings.add(
                "block {}:{} is in doubt although its present version is not older than the doubtful one",
                key_volume(key), key_block(key));
    });
}

}  // namespace

std::vector<std::string> audit(const ShardState& shard) {
    Findings findings;
    std::vector<std::uint32_t> mapped(shard.range.units);
    std::vector<bool> seen(std::size_t{shard.range.units} * shard.pages_per_unit);
    const PageNumber first = shard.range.first_unit * shard.pages_per_unit;
    shard.map.for_each([&](BlockKey key, MapEntry entry) {
        if (entry.page < first || entry.page - first >= seen.size()) {
            findings.add("block {}:{} is mapped to page {}, which belongs to another shard", key_volume(key),
                         key_block(key), entry.page);
            return;
        }
        if (seen[entry.page - first]) findings.add("two blocks are mapped to page {}", entry.page);
        seen[entry.page - first] = true;
        ++mapped[(entry.page - first) / shard.pages_per_unit];
        audit_page(shard, key, entry.page, findings);
    });
    audit_units(shard, mapped, findings);
    audit_tombstones(shard, findings);
    audit_doubts(shard, findings);
    return findings.take();
}

}  // namespace gnstor::deengine
