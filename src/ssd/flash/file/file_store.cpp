#include "ssd/flash/file/file_store.hpp"

#include <gnstor/base/crc32c.hpp>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>

namespace gnstor::ssd {

using deengine::FlashStatus;
using deengine::SyncLevel;
using deengine::SyncState;

namespace {

constexpr std::chrono::seconds kSyncDeadline{120};

/// File systems that turn the range into unwritten space in place. XFS frees the space and allocates it again
/// in a second transaction: on a full disk another program could take it in between.
bool keeps_space_in_zero_range(int fd) {
    struct statfs system {};
    return ::fstatfs(fd, &system) == 0 &&
           (system.f_type == EXT4_SUPER_MAGIC || system.f_type == BTRFS_SUPER_MAGIC);
}

}  // namespace

Result<std::unique_ptr<MappedFile>> MappedFile::map(std::unique_ptr<StoreFile> file) {
    const std::uint64_t bytes = file->superblock().file_bytes;
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd(), 0);
    if (at == MAP_FAILED)
        return error(Errc::kIo, "cannot map the store {}: {}", file->path().string(), errno_text());
    auto mapped = std::make_unique<MappedFile>();
    mapped->mapping_ = Mapping(at, bytes);
    mapped->file_ = std::move(file);
    return mapped;
}

SyncWorker& MappedFile::worker() {
    std::call_once(started_, [this] {
        worker_.emplace([this] { return file_->sync(); });
        worker_->on_end(on_sync_end_);
    });
    return *worker_;
}

MappedFlash::MappedFlash(MappedFile& file, UnitRange range) : shared_(file) {
    const Superblock& s = file.file().superblock();
    unit_bytes_ = std::uint64_t{s.pages_per_unit} * nvme::kBlockBytes;
    zero_range_keeps_space_ = keeps_space_in_zero_range(file.file().fd());
    attach(s.geometry(), file.data(), file.records(), file.record_copies(), range, seed_of(s));
    record_damage_ = scan_records();
    if (file.file().superblock().service_units == 1 || range.units < s.units)
        file.file().note_found_journal(range.first * s.pages_per_unit, scanned_journal());
}

bool MappedFlash::begin_changes() {
    if (!shared_.file().begin_changes()) return false;
    dirty_ = true;
    mend_records();
    return true;
}

FlashStatus MappedFlash::program(deengine::PageNumber page, const std::byte* data, deengine::PageOob& oob) {
    if (!begin_changes()) return FlashStatus::kProgramFailed;
    const FlashStatus status = FlashArray::program(page, data, oob);
    if (const std::uint64_t number = journal_page_of(oob); status == FlashStatus::kOk && number != 0)
        shared_.file().note_journal_page(page, number);
    return status;
}

FlashStatus MappedFlash::erase(std::uint32_t unit) {
    if (!begin_changes()) return FlashStatus::kProgramFailed;
    return FlashArray::erase(unit);
}

FlashStatus MappedFlash::copy_back(deengine::PageNumber from, deengine::PageNumber to, deengine::PageOob& oob,
                                   std::uint32_t* crcs) {
    if (!begin_changes()) return FlashStatus::kProgramFailed;
    return FlashArray::copy_back(from, to, oob, crcs);
}

FlashStatus MappedFlash::sync_begin(SyncLevel level) {
    if (in_flight_) return FlashStatus::kRefused;
    if (shared_.file().failed()) return FlashStatus::kProgramFailed;
    in_flight_ = true;
    ticket_ = 0;
    if (level == SyncLevel::kKill || !dirty_) return FlashStatus::kOk;
    mend_records();
    // Cleared before the sync: what is stored meanwhile may be missed by this sync and belongs to the next.
    dirty_ = false;
    fence_streamed_copies();  // the sync runs on another thread
    ticket_ = shared_.worker().ask();
    return FlashStatus::kOk;
}

SyncState MappedFlash::sync_poll() {
    if (!in_flight_) return SyncState::kIdle;
    const SyncWorker::State state = ticket_ == 0 ? SyncWorker::State::kDone : shared_.worker().look(ticket_);
    if (state == SyncWorker::State::kBusy) return SyncState::kBusy;
    in_flight_ = false;
    return state == SyncWorker::State::kDone ? SyncState::kDone : SyncState::kFailed;
}

FlashStatus MappedFlash::sync(SyncLevel level) {
    if (shared_.file().failed()) return FlashStatus::kProgramFailed;
    if (level == SyncLevel::kKill || !dirty_) return FlashStatus::kOk;
    mend_records();
    dirty_ = false;
    fence_streamed_copies();  // the sync runs on another thread
    SyncWorker& worker = shared_.worker();
    if (worker.wait(worker.ask(), kSyncDeadline) == SyncWorker::State::kDone) return FlashStatus::kOk;
    shared_.file().fail();
    return FlashStatus::kProgramFailed;
}

bool MappedFlash::reserve_unit(std::uint32_t unit) {
    return reserve_room(shared_.file().fd(), shared_.file().superblock().data_offset + unit * unit_bytes_,
                        unit_bytes_);
}

void MappedFlash::drop_data(std::uint32_t unit) {
    // Only saves the next programs from reading old data: nothing is lost without it.
    if (!zero_range_keeps_space_) return;
    (void)::fallocate(shared_.file().fd(), FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
                      static_cast<off_t>(shared_.file().superblock().data_offset + unit * unit_bytes_),
                      static_cast<off_t>(unit_bytes_));
}

FileStore::FileStore(std::unique_ptr<MappedFile> file)
    : MappedFileHolder{std::move(file)}, MappedFlash(*held, {0, held->file().superblock().units}) {}

Result<std::unique_ptr<FileStore>> FileStore::over(std::unique_ptr<StoreFile> file) {
    GN_ASSIGN(std::unique_ptr<MappedFile> mapped, MappedFile::map(std::move(file)));
    return std::unique_ptr<FileStore>(new FileStore(std::move(mapped)));
}

Result<std::unique_ptr<FileStore>> FileStore::open(const std::filesystem::path& path) {
    GN_ASSIGN(std::unique_ptr<StoreFile> file, StoreFile::open(path));
    return over(std::move(file));
}

Result<std::unique_ptr<FileStore>> FileStore::open_for_use(const std::filesystem::path& path,
                                                           const BootRequest& request) {
    GN_ASSIGN(std::unique_ptr<StoreFile> file, StoreFile::open_for_use(path, request));
    return over(std::move(file));
}

Result<std::unique_ptr<FileStore>> FileStore::create(const std::filesystem::path& path,
                                                     const NewStore& what) {
    GN_ASSIGN(std::unique_ptr<StoreFile> file, StoreFile::create(path, what));
    return over(std::move(file));
}

Result<FlashParts> FileStore::parts(std::uint32_t count) {
    FlashParts made;
    RecordDamage damage;
    for (std::uint32_t i = 0; i < count; ++i) {
        auto part = std::make_unique<MappedFlash>(*held, UnitRange::of(geometry().units, i, count));
        damage.add(part->record_damage());
        made.push_back(std::move(part));
    }
    held->file().note_record_damage(damage);
    if (count == superblock().service_units) GN_TRY(held->file().check_journals());
    return made;
}

bool FileStore::note_recovered() {
    return held->file().note_recovered();
}

bool FileStore::end_use() {
    return held->file().end_use().ok();
}

std::string FileStore::describe() const {
    return fmt::format("mapped file {}", held->file().path().string());
}

}  // namespace gnstor::ssd
