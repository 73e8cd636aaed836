#include "ssd/file_store.hpp"

#include <gnstor/base/crc32c.hpp>
#include <gnstor/base/uuid.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace gnstor::ssd {

using deengine::FlashStatus;

namespace {

std::string errno_text() {
    return std::strerror(errno);
}

/// posix_fallocate without its fallback of writing zeroes; a file system that cannot reserve is taken as it
/// is.
bool allocate(int fd, std::uint64_t offset, std::uint64_t bytes) {
    int rc = 0;
    do {
        rc = ::fallocate(fd, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes));
    } while (rc != 0 && errno == EINTR);
    return rc == 0 || errno == EOPNOTSUPP;
}

Result<void> lock(int fd, const std::filesystem::path& path) {
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return {};
    if (errno == EWOULDBLOCK) {
        return error(Errc::kBusy, "the store {} is in use by another process; stop that one first",
                     path.string());
    }
    return error(Errc::kIo, "cannot lock the store {}: {}", path.string(), errno_text());
}

bool write_all(int fd, const void* bytes, std::size_t count, off_t at) {
    const auto* p = static_cast<const char*>(bytes);
    while (count > 0) {
        const ssize_t n = ::pwrite(fd, p, count, at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p += n;
        at += n;
        count -= static_cast<std::size_t>(n);
    }
    return true;
}

Result<Superblock> make_superblock(const NewStore& what, const std::filesystem::path& path) {
    const std::uint64_t pages = what.geometry.pages();
    if (pages == 0 || pages >= deengine::kNoPage) {
        return error(Errc::kInvalidArgument,
                     "cannot make the store {} with {} flash pages; choose 1 to 2^32 - 2 (up to 16 TiB)",
                     path.string(), pages);
    }
    if (what.metadata_bytes < kStorePage || what.metadata_bytes % kStorePage != 0 ||
        what.metadata_bytes > (1u << 30)) {
        return error(Errc::kInvalidArgument,
                     "cannot make the store {}: metadata slots of {} bytes are not a multiple of {}",
                     path.string(), what.metadata_bytes, kStorePage);
    }
    Superblock s{};
    std::copy(kStoreMagic.begin(), kStoreMagic.end(), s.magic);
    s.format_version = kStoreFormatVersion;
    s.page_bytes = nvme::kBlockBytes;
    const Uuid uuid = Uuid::random();
    std::copy(uuid.bytes.begin(), uuid.bytes.end(), s.uuid);
    s.units = what.geometry.units;
    s.pages_per_unit = what.geometry.pages_per_unit;
    s.oob_bytes = sizeof(deengine::PageOob);
    s.metadata_bytes = what.metadata_bytes;
    const StoreLayout layout = StoreLayout::of(what.geometry, what.metadata_bytes);
    s.metadata_offset = layout.metadata_offset;
    s.oob_offset = layout.oob_offset;
    s.data_offset = layout.data_offset;
    s.file_bytes = layout.file_bytes;
    s.capacity_bytes = what.capacity_bytes;
    s.over_provisioning_percent = what.over_provisioning_percent;
    std::string serial = what.serial;
    if (serial.empty()) {
        serial = "GN";
        for (int i = 0; i < 8; ++i) serial += fmt::format("{:02X}", s.uuid[i]);
    }
    serial.resize(sizeof s.serial, ' ');
    std::copy(serial.begin(), serial.end(), s.serial);
    s.crc = crc32c(&s, offsetof(Superblock, crc));
    return s;
}

/// Makes the name durable: fsync of the directory.
void sync_directory(const std::filesystem::path& path) {
    const auto parent = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
    const FileDescriptor dir(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (dir.get() >= 0) (void)::fsync(dir.get());
}

/// Fills a fresh file: superblock, length, room for all but the pages.
Result<void> write_new_store(int fd, const Superblock& s, const std::filesystem::path& path) {
    if (::ftruncate(fd, static_cast<off_t>(s.file_bytes)) != 0) {
        return error(Errc::kNoSpace,
                     "cannot make the store {} of {} bytes: {}; choose a smaller capacity or another place",
                     path.string(), s.file_bytes, errno_text());
    }
    if (!allocate(fd, 0, s.data_offset)) {
        return error(Errc::kNoSpace, "no room for the first {} bytes of the store {}: {}", s.data_offset,
                     path.string(), errno_text());
    }
    if (!write_all(fd, &s, sizeof s, 0) || ::fsync(fd) != 0) {
        return error(Errc::kIo, "cannot write the superblock of the store {}: {}", path.string(),
                     errno_text());
    }
    return {};
}

}  // namespace

FileDescriptor::~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
}

Result<Superblock> read_superblock(int fd, const std::filesystem::path& path) {
    struct stat st {};
    if (::fstat(fd, &st) != 0) return error(Errc::kIo, "cannot examine {}: {}", path.string(), errno_text());
    if (!S_ISREG(st.st_mode))
        return error(Errc::kInvalidArgument, "{} is not a regular file, so it is no store", path.string());
    const auto size = static_cast<std::uint64_t>(st.st_size);
    Superblock s{};
    if (size < sizeof s || ::pread(fd, &s, sizeof s, 0) != static_cast<ssize_t>(sizeof s)) {
        return error(Errc::kCorrupt, "{} is no GNStor store: it has {} bytes and a superblock alone has {}",
                     path.string(), size, sizeof s);
    }
    if (!std::equal(kStoreMagic.begin(), kStoreMagic.end(), s.magic)) {
        return error(Errc::kCorrupt, "{} is no GNStor store: its first bytes are not the magic of one",
                     path.string());
    }
    // The version is looked at before the checksum: a newer format may place its checksum elsewhere.
    if (s.format_version > kStoreFormatVersion) {
        return error(Errc::kUnsupported,
                     "the store {} has format version {}, this program knows up to {}; use a newer gnstor",
                     path.string(), s.format_version, kStoreFormatVersion);
    }
    if (s.format_version == 0 || s.crc != crc32c(&s, offsetof(Superblock, crc))) {
        return error(
            Errc::kCorrupt,
            "the superblock of the store {} is damaged: its checksum does not match; the array must rebuild"
            " this drive",
            path.string());
    }
    const std::uint64_t pages = std::uint64_t{s.units} * s.pages_per_unit;
    if (pages == 0 || pages >= deengine::kNoPage || s.page_bytes != nvme::kBlockBytes ||
        s.oob_bytes != sizeof(deengine::PageOob) || s.metadata_bytes < kStorePage ||
        s.metadata_bytes % kStorePage != 0 || s.metadata_bytes > (1u << 30)) {
        return error(
            Errc::kCorrupt,
            "the superblock of the store {} names an impossible geometry ({} units of {} pages of {} bytes)",
            path.string(), s.units, s.pages_per_unit, s.page_bytes);
    }
    const StoreLayout layout = StoreLayout::of({s.units, s.pages_per_unit}, s.metadata_bytes);
    if (s.metadata_offset != layout.metadata_offset || s.oob_offset != layout.oob_offset ||
        s.data_offset != layout.data_offset || s.file_bytes != layout.file_bytes) {
        return error(Errc::kCorrupt,
                     "the superblock of the store {} places its areas where its geometry does not",
                     path.string());
    }
    if (s.capacity_bytes > pages * nvme::kBlockBytes) {
        return error(Errc::kCorrupt, "the store {} promises {} bytes but has only {} pages", path.string(),
                     s.capacity_bytes, pages);
    }
    if (size < s.file_bytes) {
        return error(Errc::kCorrupt,
                     "the store {} is truncated: {} bytes of {} are there; the array must rebuild this drive",
                     path.string(), size, s.file_bytes);
    }
    return s;
}

Result<std::unique_ptr<FileStore>> FileStore::map(FileDescriptor fd, const std::filesystem::path& path) {
    GN_ASSIGN(const Superblock superblock, read_superblock(fd.get(), path));
    void* at = ::mmap(nullptr, superblock.file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    if (at == MAP_FAILED) return error(Errc::kIo, "cannot map the store {}: {}", path.string(), errno_text());
    Mapping mapping(at, superblock.file_bytes);
    // A copy of a store may have lost the room that creation had reserved.
    if (!allocate(fd.get(), 0, superblock.data_offset)) {
        return error(Errc::kNoSpace, "no room for the records of the store {}: {}; free some disk space",
                     path.string(), errno_text());
    }
    std::unique_ptr<FileStore> store(new FileStore(std::move(fd), superblock));
    store->mapping_ = std::move(mapping);
    std::byte* base = store->mapping_.data();
    store->attach({superblock.units, superblock.pages_per_unit}, base + superblock.data_offset,
                  base + superblock.oob_offset);
    if (store->newest_metadata_damaged())
        return error(
            Errc::kCorrupt,
            "the metadata of the store {} is damaged: its newest copy fails its checksum, and an older one "
            "would undo what was acknowledged since; the array must rebuild this drive",
            path.string());
    store->scan_write_pointers();
    return store;
}

Result<std::unique_ptr<FileStore>> FileStore::open(const std::filesystem::path& path) {
    FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (fd.get() < 0) {
        const Errc code =
            errno == ENOENT ? Errc::kNotFound : (errno == EACCES ? Errc::kPermission : Errc::kIo);
        return error(code, "cannot open the store {}: {}", path.string(), errno_text());
    }
    GN_TRY(lock(fd.get(), path));
    return map(std::move(fd), path);
}

Result<std::unique_ptr<FileStore>> FileStore::create(const std::filesystem::path& path,
                                                     const NewStore& what) {
    if (what.serial.size() > sizeof(Superblock::serial)) {
        return error(Errc::kInvalidArgument, "the serial number '{}' is longer than 20 characters",
                     what.serial);
    }
    GN_ASSIGN(const Superblock superblock, make_superblock(what, path));
    std::string beside = path.string() + ".new-XXXXXX";
    FileDescriptor fd(::mkostemp(beside.data(), O_CLOEXEC));
    if (fd.get() < 0) {
        return error(Errc::kIo,
                     "cannot make the store {}: {}; does its folder exist, and may it be written to?",
                     path.string(), errno_text());
    }
    Result<void> made = lock(fd.get(), beside);
    if (made.ok()) made = write_new_store(fd.get(), superblock, path);
    if (made.ok() && ::renameat2(AT_FDCWD, beside.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) != 0) {
        // Some file systems know no RENAME_NOREPLACE: a hard link refuses a taken name just as well.
        const bool linked = errno == EINVAL && ::link(beside.c_str(), path.c_str()) == 0;
        if (!linked) {
            made = error(errno == EEXIST ? Errc::kExists : Errc::kIo, "cannot name the new store {}: {}",
                         path.string(), errno_text());
        }
        (void)::unlink(beside.c_str());
    } else if (!made.ok()) {
        (void)::unlink(beside.c_str());
    }
    GN_TRY(std::move(made));
    sync_directory(path);
    return map(std::move(fd), path);
}

FlashStatus FileStore::program(deengine::PageNumber page, const std::byte* data, deengine::PageOob& oob) {
    dirty_ = true;
    return FlashArray::program(page, data, oob);
}

FlashStatus FileStore::erase(std::uint32_t unit) {
    dirty_ = true;
    return FlashArray::erase(unit);
}

FlashStatus FileStore::copy_back(deengine::PageNumber from, deengine::PageNumber to, deengine::PageOob& oob,
                                 std::uint32_t* crcs) {
    dirty_ = true;
    return FlashArray::copy_back(from, to, oob, crcs);
}

FlashStatus FileStore::sync(deengine::SyncLevel level) {
    if (level == deengine::SyncLevel::kKill) return failed_ ? FlashStatus::kProgramFailed : FlashStatus::kOk;
    if (!dirty_ && !failed_) return FlashStatus::kOk;
    return sync_file() ? FlashStatus::kOk : FlashStatus::kProgramFailed;
}

bool FileStore::sync_file() {
    failed_ = failed_ || ::fdatasync(fd_.get()) != 0;
    if (failed_) return false;
    dirty_ = false;
    return true;
}

bool FileStore::reserve_unit(std::uint32_t unit) {
    const std::uint64_t bytes = std::uint64_t{superblock_.pages_per_unit} * nvme::kBlockBytes;
    return allocate(fd_.get(), superblock_.data_offset + unit * bytes, bytes);
}

void FileStore::release_unit(std::uint32_t unit) {
    const std::uint64_t bytes = std::uint64_t{superblock_.pages_per_unit} * nvme::kBlockBytes;
    // Only gives disk space back: where it is refused nothing is lost.
    (void)::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      static_cast<off_t>(superblock_.data_offset + unit * bytes), static_cast<off_t>(bytes));
}

std::byte* FileStore::slot(std::uint32_t index) const {
    return mapping_.data() + superblock_.metadata_offset + std::uint64_t{index} * superblock_.metadata_bytes;
}

std::size_t FileStore::capacity() const {
    return superblock_.metadata_bytes - sizeof(MetadataHeader);
}

bool FileStore::header_valid(std::uint32_t index, MetadataHeader& header) const {
    std::memcpy(&header, slot(index), sizeof header);
    return std::equal(kMetadataMagic.begin(), kMetadataMagic.end(), header.magic) && header.generation != 0 &&
           header.crc == crc32c(&header, offsetof(MetadataHeader, crc)) && header.length <= capacity();
}

bool FileStore::slot_valid(std::uint32_t index, MetadataHeader& header) const {
    return header_valid(index, header) &&
           header.blob_crc == crc32c(slot(index) + sizeof header, header.length);
}

/// A header is written when its blob is on the medium, and the older slot alone is written to: whole header,
/// other blob, newest generation is no torn write. Going back to the older copy would undo what was
/// acknowledged: deletions, epochs, volumes and with them their blocks.
bool FileStore::newest_metadata_damaged() const {
    MetadataHeader headers[2] = {};
    const bool valid[2] = {header_valid(0, headers[0]), header_valid(1, headers[1])};
    if (!valid[0] && !valid[1]) return false;
    const std::uint32_t newest =
        valid[1] && (!valid[0] || headers[1].generation > headers[0].generation) ? 1 : 0;
    MetadataHeader ignored{};
    return !slot_valid(newest, ignored);
}

std::vector<std::byte> FileStore::load() {
    MetadataHeader newest{};
    const std::byte* blob = nullptr;
    for (std::uint32_t i = 0; i < 2; ++i) {
        MetadataHeader header{};
        if (slot_valid(i, header) && header.generation > newest.generation) {
            newest = header;
            blob = slot(i) + sizeof header;
        }
    }
    if (blob == nullptr) return {};
    return {blob, blob + newest.length};
}

bool FileStore::store(std::span<const std::byte> blob) {
    if (blob.size() > capacity() || failed_) return false;
    MetadataHeader headers[2] = {};
    const bool valid[2] = {slot_valid(0, headers[0]), slot_valid(1, headers[1])};
    const std::uint64_t generation[2] = {valid[0] ? headers[0].generation : 0,
                                         valid[1] ? headers[1].generation : 0};
    const std::uint32_t target =
        generation[0] <= generation[1] ? 0 : 1;  // the older one, or the one that is not valid
    MetadataHeader next{};
    std::copy(kMetadataMagic.begin(), kMetadataMagic.end(), next.magic);
    next.generation = std::max(generation[0], generation[1]) + 1;
    next.length = blob.size();
    next.blob_crc = crc32c(blob.data(), blob.size());
    next.crc = crc32c(&next, offsetof(MetadataHeader, crc));
    // The slot is void, then holds the blob, then says so; each step on the medium before the next.
    std::memset(slot(target), 0, sizeof next);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (!blob.empty()) std::memcpy(slot(target) + sizeof next, blob.data(), blob.size());
    if (!sync_file()) return false;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    std::memcpy(slot(target), &next, sizeof next);
    return sync_file();
}

}  // namespace gnstor::ssd
