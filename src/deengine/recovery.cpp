// recovery.cpp: mounting a drive: state from the metadata store, block map from a scan of every out-of-band
// record.
//
// The newest (epoch, sequence, CRC) of each block wins, whatever the order of pages; a torn record is as if
// never written; pages of unknown volumes, of earlier lives of a VID or beyond a capacity are dropped. Two
// pages of one order exist where a program failed half way and was repeated elsewhere: the one whose data
// passes its CRCs is taken.
#include "deengine/engine_impl.hpp"

#include <cstring>

namespace gnstor::deengine {

Result<std::unique_ptr<Engine>> Engine::mount(Flash& flash, MetadataStore& metadata,
                                              const EngineOptions& options, CompletionSink& sink,
                                              RecoveryReport* report) {
    const FlashGeometry g = flash.geometry();
    if (g.units == 0 || g.pages_per_unit == 0 || g.pages() >= kNoPage)
        return error(Errc::kInvalidArgument,
                     "a drive cannot have {} erase units of {} pages; give it 1 .. 2^32 - 2 pages", g.units,
                     g.pages_per_unit);
    if (options.mdts_blocks == 0 || options.mdts_blocks > 65536)
        return error(Errc::kInvalidArgument, "the largest command cannot have {} blocks; use 1 .. 65536",
                     options.mdts_blocks);
    const std::vector<std::byte> blob = metadata.load();
    GN_ASSIGN(FirmwareState state,
              FirmwareState::parse(blob, options.max_volumes, options.mdts_blocks, g.units));
    auto impl = std::make_unique<Impl>(flash, metadata, options, sink, std::move(state));
    RecoveryReport local{};
    GN_TRY(impl->recover(local));
    if (blob.empty() && local.pages_scanned != 0)
        return error(Errc::kCorrupt,
                     "the flash holds {} programmed pages but the metadata is empty; the store lost a part "
                     "(format it to start anew)",
                     local.pages_scanned);
    if (report != nullptr) *report = local;
    return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Result<void> Engine::Impl::recover(RecoveryReport& report) {
    const FlashGeometry g = flash.geometry();
    for (const std::uint32_t unit : state.retired_units) allocator.set_retired(unit);
    for (std::uint32_t unit = 0; unit < g.units; ++unit) {
        std::uint32_t next = 0;
        for (std::uint32_t i = 0; i < g.pages_per_unit; ++i) {
            const PageNumber page = unit * g.pages_per_unit + i;
            PageOob oob{};
            const FlashStatus status = flash.read_oob(page, oob);
            if (status == FlashStatus::kOk && oob.kind == PageKind::kErased) continue;
            next = i + 1;  // behind everything that was touched, torn pages too
            ++report.pages_scanned;
            if (status != FlashStatus::kOk || !is_known_page(oob)) {
                ++report.pages_torn;
                continue;
            }
            if (!recover_page(page, oob, report))
                return error(Errc::kInternal,
                             "the block map has no room for page {} at {} of {} slots; this is a defect",
                             page, blocks.size(), blocks.slots());
        }
        allocator.set_programmed(unit, next);
    }
    report.volumes = state.permissions.volumes().size();
    blocks.for_each([&](BlockKey, MapEntry entry) {
        ++report.pages_mapped;
        if (entry.tombstone) ++report.tombstones;
    });
    if (report.pages_mapped != blocks.size())
        return error(Errc::kInternal, "recovery mapped {} pages but counts {}; this is a defect",
                     report.pages_mapped, blocks.size());
    allocator.start();
    // A process that was killed leaves pages that are whole, but perhaps not stable yet: no answer may speak
    // of them before the first sync.
    unsynced = report.pages_scanned != 0;
    refresh_gauges();
    return {};
}

bool Engine::Impl::recover_page(PageNumber page, const PageOob& oob, RecoveryReport& report) {
    const Volume* volume = state.permissions.find(oob.vid);
    if (volume == nullptr || oob.epoch < volume->record.birth_epoch ||
        oob.vba >= volume->record.geometry.capacity_blocks) {
        ++report.pages_outdated;
        return true;
    }
    const BlockKey key = make_key(oob.vid, oob.vba);
    const MapEntry entry{page, oob.kind == PageKind::kTombstone};
    if (const auto stored = blocks.find(key)) {
        ++report.pages_outdated;
        if (!wins(page, oob, stored->page)) return true;
        blocks.update(key, entry);
        allocator.invalidate(stored->page);
    } else {
        // Keys never outnumber pages, so the table is at most 0.9 full and the search finds room.
        const auto ticket = blocks.reserve(key);
        if (!ticket) return false;
        blocks.commit(*ticket, entry);
    }
    allocator.validate(page);
    return true;
}

bool Engine::Impl::wins(PageNumber page, const PageOob& oob, PageNumber stored) {
    PageOob other{};
    if (flash.read_oob(stored, other) != FlashStatus::kOk) return true;
    const WriteOrder mine = WriteOrder::of(oob);
    const WriteOrder theirs = WriteOrder::of(other);
    if (mine != theirs) return mine > theirs;
    return !is_readable(stored, other) && is_readable(page, oob);
}

bool Engine::Impl::is_readable(PageNumber page, const PageOob& oob) {
    if (oob.kind == PageKind::kTombstone) return true;
    std::uint32_t crcs[nvme::kSectorsPerBlock];
    return flash.read(page, 0, nvme::kSectorsPerBlock, scratch.data(), crcs) == FlashStatus::kOk &&
           std::memcmp(crcs, oob.sector_crc, sizeof(crcs)) == 0;
}

}  // namespace gnstor::deengine
