// store_mount.cpp: mounts the drive's firmware on a view, without any host.
#include "ssd/tools/store_mount.hpp"

#include <gnstor/base/crc32c.hpp>
#include <gnstor/base/shell_word.hpp>

#include "deengine/front/engine.hpp"
#include "deengine/front/shard_port.hpp"
#include "ssd/drive/backbone.hpp"

#include <algorithm>
#include <array>
#include <chrono>

namespace gnstor::ssd {
namespace {

using deengine::PageKind;
using deengine::PageOob;
using deengine::Shard;

class Nobody final : public deengine::CompletionSink {
  public:
    void on_complete(std::uint64_t, nvme::Status, std::uint64_t) override {}
};

/// A drive's firmware mounted on a store. Members are destroyed last to first: the engine before its flash.
struct Mounted {
    Nobody nobody;
    FlashParts flash;
    std::vector<const Shard*> shards;  ///< owned by the engine
    std::unique_ptr<deengine::Engine> engine;
    Recovered recovered;
};

/// Mounts as ssd::Drive does, but keeps pointers to the shards.
Result<std::unique_ptr<Mounted>> mount(FlashParts parts, deengine::MetadataStore& metadata,
                                       const StoreIdentity& identity, bool accept_loss) {
    auto mounted = std::make_unique<Mounted>();
    Mounted& m = *mounted;
    m.flash = std::move(parts);
    std::vector<deengine::Flash*> flashes;
    for (const auto& part : m.flash) flashes.push_back(part.get());
    const auto count = static_cast<std::uint32_t>(flashes.size());
    deengine::EngineOptions options;
    std::copy(identity.incarnation.begin(), identity.incarnation.end(), options.ssd_uuid);
    options.over_provisioning_percent = identity.over_provisioning_percent;
    options.accept_loss = accept_loss;
    options.same_boot = identity.same_boot;
    options.block_limit = identity.capacity_bytes / nvme::kBlockBytes;
    const auto mount_shards =
        [&](const deengine::EngineOptions& of_shard, const deengine::VolumeRegistry& lives,
            deengine::CompletionSink& sink,
            deengine::RecoveryReport& sum) -> Result<std::unique_ptr<deengine::ShardPort>> {
        std::vector<std::unique_ptr<Shard>> shards;
        for (std::uint32_t i = 0; i < count; ++i) {
            const UnitRange units = UnitRange::of(flashes[i]->geometry().units, i, count);
            deengine::RecoveryReport report{};
            GN_ASSIGN(std::unique_ptr<Shard> shard,
                      Shard::mount(*flashes[i], {i, count, units.first, units.units}, of_shard, lives, sink,
                                   report));
            deengine::add_report(sum, std::move(report));
            m.shards.push_back(shard.get());
            shards.push_back(std::move(shard));
        }
        return std::unique_ptr<deengine::ShardPort>(
            std::make_unique<deengine::InlinePort>(std::move(shards)));
    };
    const auto begin = std::chrono::steady_clock::now();
    GN_ASSIGN(m.engine, deengine::Engine::mount(flashes, mount_shards, metadata, options, m.nobody,
                                                &m.recovered.report));
    m.recovered.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    for (const Shard* shard : m.shards) m.recovered.mapped_blocks += shard->mapped_blocks();
    return mounted;
}

/// What a recovery of this store lacks, if the losses are accepted; a sentence each.
std::vector<std::string> losses(const StoreView& view) {
    std::vector<std::string> all;
    if (const auto metadata = view.metadata_loss(); metadata)
        all.push_back(
            fmt::format("the metadata is damaged: {}; the older copy is used, and pages of volumes that it "
                        "does not know are dropped; those volumes are in doubt when they are added again",
                        *metadata));
    if (const auto journal = view.journal_loss(); journal) all.push_back(describe(*journal));
    return all;
}

Error refuse_untrusted(const std::filesystem::path& path) {
    return error(Errc::kState,
                 "the store {} may lack acknowledged writes; it is not recovered: start its drive, which "
                 "sets the contents aside and begins empty",
                 path.string());
}

Result<std::unique_ptr<Mounted>> mount_sound(StoreView& view, bool accept_loss) {
    GN_TRY(view.check_metadata(accept_loss));
    std::vector<std::string> lost;
    if (accept_loss)
        lost = losses(view);
    else if (const auto missing = view.journal_loss(); missing)
        return refuse_loss(view.path(), *missing);
    const Superblock& s = view.superblock();
    StoreIdentity identity;
    identity.capacity_bytes = s.capacity_bytes;
    identity.over_provisioning_percent = s.over_provisioning_percent;
    const Result<BootRecord> boot = view.boot();
    identity.same_boot = boot.ok() && was_only_killed(boot.value(), host_boot_id());
    GN_ASSIGN(std::unique_ptr<Mounted> mounted,
              mount(view.parts(s.service_units), view, identity, accept_loss));
    mounted->recovered.accepted_losses = std::move(lost);
    return mounted;
}

/// The error of a damaged store advises a recovery, which an untrusted store refuses: the error of an
/// untrusted store says that instead.
Result<std::unique_ptr<Mounted>> mount(StoreView& view, bool accept_loss) {
    Result<std::unique_ptr<Mounted>> mounted = mount_sound(view, accept_loss);
    if (mounted.ok()) return mounted;
    const Result<BootRecord> boot = view.boot();
    if (boot.ok() && !trusted(boot.value(), host_boot_id())) return refuse_untrusted(view.path());
    return mounted;
}

bool is_lost(PageKind kind) {
    return kind == PageKind::kLost || kind == PageKind::kLostOrder;
}

/// Reads the page of one block as a reader would.
void check_block(const StoreView& view, deengine::Flash& flash, nvme::VolumeId volume,
                 nvme::BlockAddress block, deengine::PageNumber page, BlockCheck& result) {
    PageOob oob{};
    std::array<std::byte, nvme::kBlockBytes> data;
    std::array<std::uint32_t, nvme::kSectorsPerBlock> crcs{};
    const deengine::BlockKey key = deengine::make_key(volume, block);
    if (!deengine::has_data(flash.read_oob(page, oob))) return result.unreadable.push_back({page, key});
    if (deengine::make_key(oob.vid, oob.vba) != key || (oob.kind != PageKind::kData && !is_lost(oob.kind))) {
        result.findings.push_back(
            {Severity::kDamage, view.record_offset(page),
             fmt::format("block {} of volume {} is mapped to page {}, but the record of that page names "
                         "block {} of volume {} (kind {})",
                         block, volume, page, oob.vba, oob.vid, static_cast<unsigned>(oob.kind))});
        return;
    }
    if (is_lost(oob.kind)) {
        result.findings.push_back(
            {Severity::kDamage, view.record_offset(page),
             fmt::format("block {} of volume {} is lost: reads of it fail until it is written "
                         "again",
                         block, volume)});
        return;
    }
    if (!deengine::has_data(flash.read(page, 0, nvme::kSectorsPerBlock, data.data(), crcs.data())) ||
        !std::equal(crcs.begin(), crcs.end(), oob.sector_crc))
        result.unreadable.push_back({page, key});
}

}  // namespace

Result<Recovered> recover_view(StoreView& view, bool accept_loss) {
    GN_ASSIGN(const BootRecord boot, view.boot());
    if (boot.state == BootState::kEmptying)
        return error(Errc::kState,
                     "the store {} was being emptied when its process ended, so there is nothing to recover; "
                     "start its drive, which completes the emptying",
                     view.path().string());
    GN_ASSIGN(const std::unique_ptr<Mounted> mounted, mount(view, accept_loss));
    if (!trusted(boot, host_boot_id())) {
        auto& findings = mounted->recovered.report.findings;
        findings.insert(
            findings.begin(),
            "the store was open with durability 'process' when its host stopped: acknowledged writes may be "
            "missing from this recovery, and a drive started on the store begins empty");
    }
    return std::move(mounted->recovered);
}

Result<Recovered> recover_store(const std::filesystem::path& path, bool accept_loss) {
    std::vector<std::string> lost;
    {
        GN_ASSIGN(const std::unique_ptr<StoreView> view, StoreView::open(path));
        GN_ASSIGN(const BootRecord boot, view->boot());
        if (!trusted(boot, host_boot_id())) return refuse_untrusted(path);
        if (accept_loss) lost = losses(*view);
    }
    DriveOptions options;
    options.file = path;
    GN_ASSIGN(const std::unique_ptr<Store> store, open_backbone(options, BootMode::kPower, accept_loss));
    const StoreIdentity identity = store->identity();
    GN_ASSIGN(FlashParts parts, store->parts(identity.service_units));
    GN_ASSIGN(const std::unique_ptr<Mounted> mounted,
              mount(std::move(parts), store->metadata(), identity, accept_loss));
    if (mounted->engine->unsettled())
        return error(Errc::kNoSpace,
                     "the disk under the store {} is full, and has no room for the checkpoint of the "
                     "recovery; nothing is lost; make room on that disk and recover the store again",
                     path.string());
    GN_TRY(mounted->engine->close());
    if (!store->note_recovered() || !store->end_use())
        return error(Errc::kIo, "the store {} was recovered, but could not be closed cleanly", path.string());
    mounted->recovered.accepted_losses = std::move(lost);
    return std::move(mounted->recovered);
}

BlockCheck check_blocks(StoreView& view, StoreCheck& check) {
    BlockCheck result;
    const auto mounted = mount(view, false);
    if (!mounted.ok()) {
        result.findings.push_back(
            {Severity::kDamage, 0, "the firmware refuses the store: " + mounted.error().message});
        return result;
    }
    check.mounted = true;
    check.recovery = (*mounted)->recovered.report;
    if (check.recovery.spare_checkpoint)
        result.findings.push_back({Severity::kDamage, view.superblock().data_offset,
                                   "the newest checkpoint is damaged; the recovery uses the checkpoint "
                                   "before it and the journal after that"});
    if (const std::uint64_t doubtful = check.recovery.blocks_doubtful; doubtful != 0)
        result.findings.push_back(
            {Severity::kNote, view.superblock().data_offset,
             fmt::format(
                 "{} blocks are in doubt: their newest versions were torn by a power cut, or were damaged "
                 "later; reads ask the other replicas first (`gnstor ssd recover {} --explain` names them)",
                 doubtful, shell_word(view.path().string()))});
    if (const std::uint64_t lost = check.recovery.records_lost; lost != 0)
        result.findings.push_back(
            {Severity::kDamage, view.superblock().oob_offset,
             fmt::format(
                 "page records are lost in {} places, and it is not known which blocks they described",
                 lost)});
    for (const auto& [volume, epoch] : check.recovery.volumes_in_doubt)
        result.findings.push_back(
            {Severity::kDamage, view.superblock().oob_offset,
             fmt::format("page records are lost that may have described blocks of volume {}: each of its "
                         "blocks whose present version is of epoch {} or an earlier one is in doubt; reads "
                         "ask the other replicas first",
                         volume, epoch)});
    for (std::size_t i = 0; i < (*mounted)->shards.size(); ++i) {
        const Shard& shard = *(*mounted)->shards[i];
        for (const std::string& disagreement : shard.audit())
            result.findings.push_back({Severity::kDamage, 0, disagreement});
        shard.for_each_block([&](nvme::VolumeId volume, nvme::BlockAddress block, deengine::PageNumber page) {
            ++check.blocks;
            check_block(view, *(*mounted)->flash[i], volume, block, page, result);
        });
    }
    std::sort(result.unreadable.begin(), result.unreadable.end(),
              [](const UnreadableBlock& a, const UnreadableBlock& b) { return a.page < b.page; });
    return result;
}

}  // namespace gnstor::ssd
