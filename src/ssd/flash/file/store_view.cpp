#include "ssd/flash/file/store_view.hpp"

#include <gnstor/base/crc32c.hpp>

#include "ssd/flash/flash_array.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gnstor::ssd {
namespace {

/// Flash over a range of a view's units.
class ViewFlash final : public FlashArray {
  public:
    ViewFlash(deengine::FlashGeometry geometry, std::byte* data, std::byte* records, std::byte* record_copies,
              UnitRange range, DriveSeed drive) {
        attach(geometry, data, records, record_copies, range, drive);
        (void)scan_records();
    }
};

}  // namespace

Result<std::unique_ptr<StoreView>> StoreView::open(const std::filesystem::path& path) {
    FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (fd.get() < 0) {
        const Errc code =
            errno == ENOENT ? Errc::kNotFound : (errno == EACCES ? Errc::kPermission : Errc::kIo);
        return error(code, "cannot open the store {}: {}", path.string(), errno_text());
    }
    // Pairs with the exclusive lock of a drive (store_file.cpp).
    if (!lock_soon(fd.get(), LOCK_SH))
        return error(Errc::kBusy, "the store {} is in use: {}; stop the process that serves it first",
                     path.string(), errno == EWOULDBLOCK ? "a drive has it open" : errno_text());
    GN_ASSIGN(const Superblock superblock, read_superblock(fd.get(), path));
    std::unique_ptr<StoreView> view(new StoreView(std::move(fd), path, superblock));
    // Private, and without a reservation: only pages that are written take memory.
    void* at = ::mmap(nullptr, superblock.file_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                      view->fd_.get(), 0);
    if (at == MAP_FAILED) return error(Errc::kIo, "cannot map the store {}: {}", path.string(), errno_text());
    view->mapping_ = Mapping(at, superblock.file_bytes);
    return view;
}

FlashParts StoreView::parts(std::uint32_t count) {
    FlashParts made;
    std::byte* const base = mapping_.data();
    for (std::uint32_t i = 0; i < count; ++i)
        made.push_back(std::make_unique<ViewFlash>(
            superblock_.geometry(), base + superblock_.data_offset, base + superblock_.oob_offset,
            base + superblock_.record_copies_offset(), UnitRange::of(superblock_.units, i, count), drive_));
    return made;
}

std::array<BootCopy, 2> StoreView::boot_copies() const {
    std::array<BootCopy, 2> facts{};
    for (std::size_t i = 0; i < 2; ++i) {
        BootRecord r{};
        std::memcpy(&r, mapping_.data() + kBootOffset + i * sizeof r, sizeof r);
        facts[i].whole = is_whole(r, drive_);
        facts[i].generation = facts[i].whole ? r.generation : 0;
    }
    return facts;
}

const std::byte* StoreView::slot(int index) const {
    return mapping_.data() + superblock_.metadata_offset +
           static_cast<std::uint64_t>(index) * superblock_.metadata_bytes;
}

MetadataSlots StoreView::metadata_copies() const {
    MetadataSlots slots{};
    for (int i = 0; i < 2; ++i) {
        MetadataSlot& f = slots[static_cast<std::size_t>(i)];
        MetadataHeader first{};
        MetadataHeader second{};
        std::memcpy(&first, slot(i), sizeof first);
        std::memcpy(&second, slot(i) + superblock_.metadata_bytes - sizeof second, sizeof second);
        const HeaderCopies found = compare_headers(first, second, capacity(), drive_);
        const MetadataHeader& h = found.header;
        f.rotten = found.rotten;
        f.head_whole = found.whole;
        f.head_twice = found.both_whole;
        if (!f.head_whole) continue;
        f.generation = h.generation;
        f.bytes = h.length;
        f.body_whole = h.blob_crc == crc32c(slot(i) + sizeof h, h.length);
    }
    return slots;
}

std::uint64_t StoreView::generation_told() const {
    const auto known = boot();
    return known.ok() && known.value().state != BootState::kEmptying ? known.value().metadata_generation : 0;
}

Result<void> StoreView::check_metadata(bool accept_loss) const {
    return ssd::check_metadata(path_, metadata_copies(), generation_told(), accept_loss);
}

std::optional<std::string> StoreView::metadata_loss() const {
    return ssd::metadata_loss(metadata_copies(), generation_told());
}

std::uint64_t StoreView::metadata_missing() const {
    const std::uint64_t told = generation_told();
    return told > newest_whole_generation(metadata_copies()) ? told : 0;
}

std::optional<JournalLoss> StoreView::journal_loss() const {
    const auto known = boot();
    if (!known.ok() || known.value().state == BootState::kEmptying) return {};
    const std::uint64_t pages = superblock_.geometry().pages();
    FoundJournals found{};
    for (std::uint64_t p = 0; p < pages; ++p) {
        const auto page = static_cast<deengine::PageNumber>(p);
        const RecordCopies copies = record(page);
        found[superblock_.service_unit_of(page)].add(
            find_journal_page(reinterpret_cast<const std::byte*>(&copies.counts), page, drive_));
    }
    return find_loss(known.value(), found);
}

std::vector<std::byte> StoreView::load() {
    if (stored_) return blob_;
    const MetadataSlots slots = metadata_copies();
    const int newest = newest_whole_slot(slots);
    if (newest < 0) return {};
    const std::byte* blob = slot(newest) + sizeof(MetadataHeader);
    return {blob, blob + slots[static_cast<std::size_t>(newest)].bytes};
}

bool StoreView::store(std::span<const std::byte> blob) {
    if (blob.size() > capacity()) return false;
    blob_.assign(blob.begin(), blob.end());
    return stored_ = true;
}

std::size_t StoreView::capacity() const {
    return metadata_capacity(superblock_.metadata_bytes);
}

}  // namespace gnstor::ssd
