#include "ssd/tools/store_tool.hpp"

#include <gnstor/base/crc32c.hpp>
#include <gnstor/nvme/fencing.hpp>

#include "deengine/front/firmware_state.hpp"
#include "ssd/drive/admin.hpp"
#include "ssd/flash/file/file_store.hpp"
#include "ssd/flash/file/store_view.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>

namespace gnstor::ssd {

using deengine::FlashStatus;
using deengine::PageKind;
using deengine::PageNumber;
using deengine::PageOob;

namespace {

/// Counts pages by the kind that their records state.
void count_pages(const StoreView& view, StoreFacts& f) {
    for (std::uint64_t page = 0; page < f.geometry.pages(); ++page) {
        const PageOob oob = view.record(static_cast<PageNumber>(page)).counts;
        if (is_erased(oob)) {
            ++f.erased_pages;
        } else if (!is_whole(oob, static_cast<PageNumber>(page), view.drive_seed())) {
            ++f.damaged_records;
        } else if (oob.kind == PageKind::kSystem) {
            ++f.system_pages;
        } else if (oob.kind == PageKind::kLost || oob.kind == PageKind::kLostOrder) {
            ++f.lost_pages;
        } else {
            ++f.data_pages;
        }
    }
}

}  // namespace

Result<StoreFacts> inspect_store(const std::filesystem::path& path) {
    GN_ASSIGN(const std::unique_ptr<StoreView> view, StoreView::open(path));
    GN_ASSIGN(const BootRecord boot, view->boot());
    const Superblock& s = view->superblock();
    StoreFacts f{};
    f.format_version = s.format_version;
    std::copy(std::begin(s.drive_uuid), std::end(s.drive_uuid), f.drive_uuid.begin());
    std::copy(std::begin(boot.incarnation), std::end(boot.incarnation), f.incarnation.begin());
    f.serial = serial_of(s);
    f.mode = boot.mode;
    f.state = boot.state;
    f.trusted = trusted(boot, host_boot_id());
    f.service_units = s.service_units;
    f.geometry = s.geometry();
    f.capacity_bytes = s.capacity_bytes;
    f.file_bytes = s.file_bytes;
    f.over_provisioning_percent = s.over_provisioning_percent;
    f.metadata_bytes = view->load().size();
    count_pages(*view, f);
    return f;
}

std::string describe(const StoreFacts& f) {
    const char* const mode = f.mode == BootMode::kProcess ? "process" : "power";
    const char* const how = f.state == BootState::kClean  ? "closed cleanly"
                            : f.state == BootState::kOpen ? "not closed"
                                                          : "being emptied";
    return fmt::format(
        "format version      {}\n"
        "drive               {}\n"
        "incarnation         {}\n"
        "serial number       {}\n"
        "last use            durability '{}', {}{}\n"
        "capacity            {} bytes, over-provisioning {} %\n"
        "erase units         {} of {} pages, {} channels of {} dies, {} service units\n"
        "file                {} bytes\n"
        "metadata            {} bytes\n"
        "pages               {} data, {} system, {} lost, {} damaged records, {} erased\n",
        f.format_version, Uuid{f.drive_uuid}.to_string(), Uuid{f.incarnation}.to_string(), f.serial, mode,
        how, f.trusted ? "" : "; acknowledged writes may be missing, so a drive started on it begins empty",
        f.capacity_bytes, f.over_provisioning_percent, f.geometry.units, f.geometry.pages_per_unit,
        f.geometry.channels, f.geometry.dies_per_channel, f.service_units, f.file_bytes, f.metadata_bytes,
        f.data_pages, f.system_pages, f.lost_pages, f.damaged_records, f.erased_pages);
}

Result<std::uint64_t> reset_term(const std::filesystem::path& path, std::uint64_t term) {
    if (term == 0 || term > nvme::kTermOfDriveMost)
        return error(
            Errc::kInvalidArgument,
            "term {} is out of range: choose 1 to {}; give the term that 'gnstor status' shows, or 1", term,
            nvme::kTermOfDriveMost);
    // The lock is held to the end, so that no drive serves the store meanwhile.
    GN_ASSIGN(const std::unique_ptr<StoreFile> store, StoreFile::open(path));
    if (!trusted(store->boot(), host_boot_id()))
        return error(Errc::kState,
                     "the store {} may lack acknowledged writes: start its drive, which sets the contents "
                     "aside and begins empty",
                     path.string());
    const std::vector<std::byte> blob = store->load();
    if (blob.empty())
        return error(Errc::kNotFound, "no gnstord has ever used the store {}: it has no term to reset",
                     path.string());
    constexpr std::uint32_t kAnyVolumes = 0xFFFF;
    GN_ASSIGN(
        deengine::FirmwareState state,
        deengine::FirmwareState::parse(blob, kAnyVolumes, kMdtsBlocks, store->superblock().geometry().units));
    const std::uint64_t before = state.term;
    state.term = term;
    // A cleanly closed store is opened and closed as a drive would. The boot record of a killed one stays
    // unchanged, because it says what has to be recovered.
    const bool clean = store->boot().state == BootState::kClean;
    if (clean) GN_TRY(store->begin_use({}));
    if (!store->store(state.serialise()))
        return error(Errc::kIo, "cannot write the metadata of the store {}: {}", path.string(),
                     std::strerror(errno));
    if (clean) GN_TRY(store->end_use());
    return before;
}

Result<CorruptedByte> corrupt_byte(const std::filesystem::path& path, const PagePredicate& which,
                                   std::uint32_t byte_in_page) {
    if (byte_in_page >= nvme::kBlockBytes) {
        return error(Errc::kInvalidArgument, "a page has bytes 0 to {}, not {}", nvme::kBlockBytes - 1,
                     byte_in_page);
    }
    // The lock is held to the end, so that no drive serves the store meanwhile.
    GN_ASSIGN(const std::unique_ptr<FileStore> store, FileStore::open(path));
    CorruptedByte hit{};
    bool found = false;
    for (std::uint64_t i = 0; i < store->geometry().pages(); ++i) {
        const auto page = static_cast<PageNumber>(i);
        PageOob oob{};
        if (store->read_oob(page, oob) != FlashStatus::kOk || oob.kind != PageKind::kData ||
            !which(page, oob))
            continue;
        const auto rank = [](const PageOob& o, PageNumber p) {
            return std::make_tuple(o.epoch, o.sequence, p);
        };
        if (found && rank(oob, page) < rank(hit.oob, hit.page)) continue;
        hit.page = page;
        hit.oob = oob;
        found = true;
    }
    if (!found)
        return error(Errc::kNotFound, "cannot damage a page of the store {}: no page matches the request",
                     path.string());
    hit.file_offset =
        store->superblock().data_offset + std::uint64_t{hit.page} * nvme::kBlockBytes + byte_in_page;
    const FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (fd.get() < 0 || ::pread(fd.get(), &hit.before, 1, static_cast<off_t>(hit.file_offset)) != 1) {
        return error(Errc::kIo, "cannot read byte {} of the store {}: {}", hit.file_offset, path.string(),
                     std::strerror(errno));
    }
    hit.after = static_cast<std::uint8_t>(~hit.before);
    if (::pwrite(fd.get(), &hit.after, 1, static_cast<off_t>(hit.file_offset)) != 1) {
        return error(Errc::kIo, "cannot write byte {} of the store {}: {}", hit.file_offset, path.string(),
                     std::strerror(errno));
    }
    return hit;
}

Result<CorruptedByte> corrupt_block(const std::filesystem::path& path, nvme::VolumeId volume,
                                    nvme::BlockAddress block, std::uint32_t byte_in_page) {
    return corrupt_byte(
        path, [&](PageNumber, const PageOob& oob) { return oob.vid == volume && oob.vba == block; },
        byte_in_page);
}

Result<CorruptedByte> corrupt_nth_page(const std::filesystem::path& path, std::uint64_t n,
                                       std::uint32_t byte_in_page) {
    std::uint64_t seen = 0;
    return corrupt_byte(
        path, [&](PageNumber, const PageOob&) { return seen++ == n; }, byte_in_page);
}

}  // namespace gnstor::ssd
