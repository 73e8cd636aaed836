#include "ssd/store_view.hpp"

#include <gnstor/base/crc32c.hpp>

#include "ssd/flash_array.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gnstor::ssd {
namespace {

/// A range of the units of a view.
class ViewFlash final : public FlashArray {
  public:
    ViewFlash(deengine::FlashGeometry geometry, std::byte* data, std::byte* records, std::byte* record_copies,
              UnitRange range) {
        attach(geometry, data, records, record_copies, range);
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
        return error(Errc::kBusy, "the store {} is in use: {}; stop what serves it first", path.string(),
                     errno == EWOULDBLOCK ? "a drive has it open" : errno_text());
    GN_ASSIGN(const Superblock superblock, read_superblock(fd.get(), path));
    std::unique_ptr<StoreView> view(new StoreView(std::move(fd), path, superblock));
    // Private, and without a reservation: only what is written takes memory.
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
            base + superblock_.record_copies_offset(), UnitRange::of(superblock_.units, i, count)));
    return made;
}

std::array<CopyFacts, 2> StoreView::boot_copies() const {
    std::array<CopyFacts, 2> facts{};
    for (std::size_t i = 0; i < 2; ++i) {
        BootRecord r{};
        std::memcpy(&r, mapping_.data() + kBootOffset + i * sizeof r, sizeof r);
        facts[i].head_whole = facts[i].body_whole =
            std::equal(kBootMagic.begin(), kBootMagic.end(), r.magic) && r.generation != 0 &&
            r.crc == crc32c(&r, offsetof(BootRecord, crc));
        facts[i].generation = facts[i].head_whole ? r.generation : 0;
    }
    return facts;
}

const std::byte* StoreView::slot(int index) const {
    return mapping_.data() + superblock_.metadata_offset +
           static_cast<std::uint64_t>(index) * superblock_.metadata_bytes;
}

std::array<CopyFacts, 2> StoreView::metadata_copies() const {
    std::array<CopyFacts, 2> facts{};
    for (int i = 0; i < 2; ++i) {
        CopyFacts& f = facts[static_cast<std::size_t>(i)];
        const HeaderCopies found = headers(i);
        const MetadataHeader& h = found.header;
        f.head_whole = found.whole;
        f.head_twice = found.both_whole;
        if (!f.head_whole) continue;
        f.generation = h.generation;
        f.bytes = h.length;
        f.body_whole = h.blob_crc == crc32c(slot(i) + sizeof h, h.length);
    }
    return facts;
}

bool StoreView::metadata_rotten() const {
    return headers(0).rotten || headers(1).rotten;
}

HeaderCopies StoreView::headers(int index) const {
    MetadataHeader first{};
    MetadataHeader second{};
    std::memcpy(&first, slot(index), sizeof first);
    std::memcpy(&second, slot(index) + superblock_.metadata_bytes - sizeof second, sizeof second);
    return compare_headers(first, second, capacity());
}

std::uint64_t StoreView::metadata_missing() const {
    const auto known = boot();
    if (!known.ok() || known.value().state == BootState::kEmptying) return 0;
    std::uint64_t newest = 0;
    for (const CopyFacts& copy : metadata_copies())
        if (copy.body_whole) newest = std::max(newest, copy.generation);
    return known.value().metadata_generation > newest ? known.value().metadata_generation : 0;
}

std::optional<JournalLoss> StoreView::journal_loss() const {
    const auto known = boot();
    if (!known.ok() || known.value().state == BootState::kEmptying) return {};
    const std::uint64_t pages = superblock_.geometry().pages();
    JournalPages found{};
    for (std::uint64_t p = 0; p < pages; ++p) {
        const auto page = static_cast<deengine::PageNumber>(p);
        const RecordCopies copies = record(page);
        std::uint64_t& newest = found[superblock_.service_unit_of(page)];
        newest = std::max(newest, journal_page_of(reinterpret_cast<const std::byte*>(&copies.counts), page));
    }
    return find_loss(known.value(), found);
}

int StoreView::newest_metadata() const {
    const auto copies = metadata_copies();
    if (!copies[0].head_whole && !copies[1].head_whole) return -1;
    return copies[1].generation > copies[0].generation ? 1 : 0;
}

std::vector<std::byte> StoreView::load() {
    if (stored_) return blob_;
    const int newest = newest_metadata();
    if (newest < 0) return {};
    const std::byte* blob = slot(newest) + sizeof(MetadataHeader);
    return {blob, blob + metadata_copies()[static_cast<std::size_t>(newest)].bytes};
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
