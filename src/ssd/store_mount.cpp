// store_mount.cpp: shards mounted on a view, as the drive's firmware does it, with nobody to answer to.
#include "ssd/store_mount.hpp"

#include <gnstor/base/crc32c.hpp>

#include "deengine/firmware_state.hpp"
#include "deengine/shard.hpp"
#include "ssd/backbone.hpp"

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
    void on_complete(std::uint64_t, nvme::Status, std::uint32_t) override {}
};

class Lives final : public deengine::VolumeLives {
  public:
    explicit Lives(const deengine::PermissionTable& table) : table_(table) {}
    [[nodiscard]] bool lives(nvme::VolumeId volume, nvme::Epoch epoch,
                             nvme::BlockAddress block) const override {
        const deengine::Volume* v = table_.find(volume);
        return v != nullptr && epoch >= v->record.birth_epoch && block < v->record.geometry.capacity_blocks;
    }

  private:
    const deengine::PermissionTable& table_;
};

/// All shards of a store; what they stand on comes first and goes last.
struct Mounted {
    Nobody nobody;
    FlashParts flash;
    std::vector<std::unique_ptr<Shard>> shards;
    Recovered recovered;
};

Result<std::unique_ptr<Mounted>> mount(FlashParts parts, deengine::MetadataStore& metadata,
                                       const StoreIdentity& identity, bool accept_loss) {
    auto mounted = std::make_unique<Mounted>();
    mounted->flash = std::move(parts);
    const std::uint32_t all_units = mounted->flash.front()->geometry().units;
    const auto count = static_cast<std::uint32_t>(mounted->flash.size());
    const auto begin = std::chrono::steady_clock::now();
    deengine::EngineOptions options;
    options.over_provisioning_percent = identity.over_provisioning_percent;
    options.accept_loss = accept_loss;
    options.block_limit = identity.capacity_bytes / nvme::kBlockBytes;
    GN_ASSIGN(
        const deengine::FirmwareState state,
        deengine::FirmwareState::parse(metadata.load(), options.max_volumes, options.mdts_blocks, all_units));
    const Lives lives(state.permissions);
    for (std::uint32_t i = 0; i < count; ++i) {
        const UnitRange units = UnitRange::of(all_units, i, count);
        const deengine::ShardRange range{i, count, units.first, units.units};
        GN_ASSIGN(std::unique_ptr<Shard> shard, Shard::mount(*mounted->flash[i], range, options, lives,
                                                             mounted->nobody, mounted->recovered.report));
        mounted->recovered.mapped_blocks += shard->mapped_blocks();
        mounted->shards.push_back(std::move(shard));
    }
    mounted->recovered.report.volumes = state.permissions.volumes().size();
    mounted->recovered.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return mounted;
}

Result<std::unique_ptr<Mounted>> mount(StoreView& view, bool accept_loss) {
    const Superblock& s = view.superblock();
    StoreIdentity identity;
    identity.capacity_bytes = s.capacity_bytes;
    identity.over_provisioning_percent = s.over_provisioning_percent;
    return mount(view.parts(s.service_units), view, identity, accept_loss);
}

/// Reads the page of one block as a reader would.
void check_block(const StoreView& view, deengine::Flash& flash, nvme::VolumeId volume,
                 nvme::BlockAddress block, deengine::PageNumber page, BlockCheck& result) {
    PageOob oob{};
    std::array<std::byte, nvme::kBlockBytes> data;
    std::array<std::uint32_t, nvme::kSectorsPerBlock> crcs{};
    const deengine::BlockKey key = deengine::make_key(volume, block);
    if (!deengine::has_data(flash.read_oob(page, oob))) return result.unreadable.push_back({page, key});
    if (deengine::make_key(oob.vid, oob.vba) != key ||
        (oob.kind != PageKind::kData && oob.kind != PageKind::kLost)) {
        result.findings.push_back(
            {Severity::kDamage, view.record_offset(page),
             fmt::format("block {} of volume {} is said to lie on page {}, whose record names "
                         "block {} of volume {} (kind {})",
                         block, volume, page, oob.vba, oob.vid, static_cast<unsigned>(oob.kind))});
        return;
    }
    if (oob.kind == PageKind::kLost) {
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
    GN_ASSIGN(const std::unique_ptr<Mounted> mounted, mount(view, accept_loss));
    return std::move(mounted->recovered);
}

Result<Recovered> recover_store(const std::filesystem::path& path, bool accept_loss) {
    {
        GN_ASSIGN(const std::unique_ptr<StoreView> view, StoreView::open(path));
        GN_ASSIGN(const BootRecord boot, view->boot());
        if (!trusted(boot, host_boot_id()))
            return error(
                Errc::kState,
                "the store {} may lack acknowledged writes; it is not recovered: start its drive, which sets "
                "the contents aside and begins empty",
                path.string());
    }
    DriveOptions options;
    options.file = path;
    GN_ASSIGN(const std::unique_ptr<Store> store, open_backbone(options, BootMode::kPower));
    const StoreIdentity identity = store->identity();
    GN_ASSIGN(FlashParts parts, store->parts(identity.service_units));
    GN_ASSIGN(const std::unique_ptr<Mounted> mounted,
              mount(std::move(parts), store->metadata(), identity, accept_loss));
    for (const std::unique_ptr<Shard>& shard : mounted->shards) GN_TRY(shard->close());
    if (!store->end_use())
        return error(Errc::kIo, "the store {} was recovered, but could not be closed", path.string());
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
