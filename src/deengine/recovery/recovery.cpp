// recovery.cpp: the table of steps, and the first and last of them: reading units, handing the shard over.
#include "deengine/recovery/recovery.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace gnstor::deengine {

constexpr Step<ShardRecovery> ShardRecovery::kSteps[] = {
    {"read units", &ShardRecovery::read_units, nullptr},
    {"find journal", &ShardRecovery::find_journal, nullptr},
    {"load checkpoint", &ShardRecovery::load_newest_checkpoint, &ShardRecovery::drop_map},
    {"read log", &ShardRecovery::read_log, nullptr},
    {"judge young pages", &ShardRecovery::judge_young_pages, nullptr},
    {"replay log", &ShardRecovery::replay_log, nullptr},
    {"apply young pages", &ShardRecovery::apply_young_pages, nullptr},
    {"drop stale entries", &ShardRecovery::drop_stale_entries, nullptr},
    {"settle doubts", &ShardRecovery::settle_doubts, nullptr},
    {"tell lost records", &ShardRecovery::tell_lost_records, nullptr},
    {"count valid pages", &ShardRecovery::count_valid_pages, nullptr},
    {"write checkpoint", &ShardRecovery::write_checkpoint, nullptr},
    {"start", &ShardRecovery::start, &ShardRecovery::stop},
};

ShardRecovery::ShardRecovery(Flash& flash, const ShardRange& range, const EngineOptions& options,
                             const VolumeRegistry& lives, CompletionSink& sink, RecoveryReport& report)
    : flash_(flash),
      range_(range),
      options_(options),
      only_killed_(options.same_boot),
      lives_(lives),
      sink_(sink),
      report_(report),
      pages_per_unit_(flash.geometry().pages_per_unit),
      first_page_(range.first_unit * pages_per_unit_),
      journal_(flash),
      found_(range.units),
      torn_(std::size_t{range.units} * pages_per_unit_, false),
      scratch_(nvme::kBlockBytes) {}

Result<std::unique_ptr<Shard::Impl>> ShardRecovery::run() {
    impl_ = std::make_unique<Shard::Impl>(flash_, range_, options_, sink_);
    GN_TRY(run_steps(*this, std::span<const Step<ShardRecovery>>(kSteps), "recovery"));
    return std::move(impl_);
}

ShardRecovery::Record ShardRecovery::read_record(PageNumber page, PageOob& oob) {
    const FlashStatus status = flash_.read_oob(page, oob);
    const bool believed = options_.mutation == Mutation::kIgnoreOobCrc;
    if (!has_data(status) && !(believed && status == FlashStatus::kUncorrectable)) return Record::kBad;
    if (status == FlashStatus::kOk && oob.kind == PageKind::kErased) return Record::kErased;
    const bool ours =
        oob.version == kOobVersion && (oob.kind == PageKind::kSystem || oob.kind == PageKind::kData ||
                                       oob.kind == PageKind::kLost || oob.kind == PageKind::kLostOrder);
    return ours ? Record::kGood : Record::kBad;
}

bool ShardRecovery::is_readable(PageNumber page, const PageOob& oob) {
    return is_intact(flash_, page, oob, scratch_.data());
}

void ShardRecovery::mark_torn(PageNumber page) {
    if (torn_[page - first_page_]) return;
    torn_[page - first_page_] = true;
    torn_pages_.push_back(page);
    ++report_.pages_torn;
}

void ShardRecovery::find(std::string what) {
    if (report_.findings.size() < RecoveryReport::kMaxFindings) {
        report_.findings.push_back(fmt::format("shard {}: {}", range_.index, what));
    } else {
        ++report_.findings_left_out;
    }
}

/// Reads all records, because a unit is of the highest serial in it: a power cut may lose an erase and keep a
/// program after it. Pages with a lower serial are from before that erase, and none of them was valid.
Result<void> ShardRecovery::read_units() {
    for (std::uint32_t u = range_.first_unit; u < range_.first_unit + range_.units; ++u) {
        FoundUnit& unit = found(u);
        unit.failed_from = unit.full_at = pages_per_unit_;
        unit.bad = flash_.is_bad(u);
        for (std::uint32_t i = 0; i < pages_per_unit_; ++i) {
            PageOob oob{};
            const Record record = read_record(u * pages_per_unit_ + i, oob);
            if (record == Record::kErased) continue;
            unit.programmed = true;
            unit.end = i + 1;
            if (record == Record::kBad || oob.unit_serial <= unit.serial) continue;
            unit.serial = oob.unit_serial;
            unit.system = oob.kind == PageKind::kSystem;
        }
        if (unit.programmed && unit.serial == 0) {
            ++report_.units_half_erased;
            find(fmt::format(
                "unit {} has no readable record: it is erased before it is used, unless a block is "
                "mapped there",
                u));
        }
        if (unit.bad) ++report_.units_bad;
    }
    return {};
}

/// Every mount reports them: what an earlier mount lost stays in doubt.
Result<void> ShardRecovery::tell_lost_records() {
    for (const auto& [volume, epoch] : impl_->doubts.lost()) {
        nvme::Epoch& told = report_.volumes_in_doubt[volume];
        told = std::max(told, epoch);
        find(
            fmt::format("newer versions of blocks of volume {} may be lost: each of its blocks whose present "
                        "version is of epoch {} or an earlier one is in doubt; another replica tells",
                        volume, epoch));
    }
    return {};
}

/// Checks that each page is mapped once, and restores every unit's state.
Result<void> ShardRecovery::count_valid_pages() {
    std::vector<bool> named(torn_.size(), false);
    bool twice = false;
    impl_->map.for_each_page([&](PageNumber page) {
        twice = twice || named[page - first_page_];
        named[page - first_page_] = true;
        ++report_.pages_mapped;
    });
    if (twice)
        return error(Errc::kCorrupt,
                     "shard {}: the block map names one page for two blocks; read its blocks from replicas "
                     "on other drives, where there are any",
                     range_.index);
    restore_units();
    impl_->map.for_each_page([&](PageNumber page) { impl_->pool.validate(page); });
    report_.tombstones += impl_->tombstones.size();
    report_.memory_bytes += impl_->map.memory_bytes() + std::uint64_t{range_.units} * sizeof(UnitInfo) +
                            impl_->tombstones.size() * 96;
    return {};
}

Result<void> ShardRecovery::start() {
    if (impl_->recovered.pending()) return {};  // poll() starts it when its checkpoint is written
    impl_->start(loaded_.group + static_cast<std::uint32_t>(newest_));
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
