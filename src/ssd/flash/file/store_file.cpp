#include "ssd/flash/file/store_file.hpp"

#include <gnstor/base/crc32c.hpp>
#include <gnstor/base/log.hpp>
#include <gnstor/base/steps.hpp>

#include "ssd/flash/store.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace gnstor::ssd {

namespace {

Result<void> lock(int fd, const std::filesystem::path& path) {
    if (lock_soon(fd, LOCK_EX)) return {};
    if (errno == EWOULDBLOCK) {
        return error(Errc::kBusy, "the store {} is in use by another process; stop that one first",
                     path.string());
    }
    return error(Errc::kIo, "cannot lock the store {}: {}", path.string(), errno_text());
}

bool is_block_device(const std::filesystem::path& path) {
    struct stat st {};
    return ::stat(path.c_str(), &st) == 0 && S_ISBLK(st.st_mode);
}

/// Whether the name still refers to the file that was opened under it: the holder of the lock may have set
/// the file aside while this process waited.
bool still_named(int fd, const std::filesystem::path& path) {
    struct stat opened {};
    struct stat named {};
    return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
           opened.st_ino == named.st_ino;
}

/// Makes the name durable: fsync of the directory.
void sync_directory(const std::filesystem::path& path) {
    const auto parent = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
    const FileDescriptor dir(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (dir.get() >= 0) (void)::fsync(dir.get());
}

/// Writes a new file: superblock, boot record, length, disk space for everything but the pages.
Result<void> write_new_file(int fd, const Superblock& s, const std::filesystem::path& path) {
    if (::ftruncate(fd, static_cast<off_t>(s.file_bytes)) != 0) {
        return error(Errc::kNoSpace,
                     "cannot make the store {} of {} bytes: {}; choose a smaller capacity or another place",
                     path.string(), s.file_bytes, errno_text());
    }
    if (!reserve_room(fd, 0, s.data_offset)) {
        return error(Errc::kNoSpace, "no room for the first {} bytes of the store {}: {}", s.data_offset,
                     path.string(), errno_text());
    }
    BootRecord boot = new_boot_record();
    if (!write_boot_record(fd, boot, seed_of(s)) || !write_all(fd, &s, sizeof s, 0) || ::fsync(fd) != 0) {
        return error(Errc::kIo, "cannot write the superblock of the store {}: {}", path.string(),
                     errno_text());
    }
    return {};
}

std::string hex(const std::uint8_t* bytes, std::size_t count) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) text += fmt::format("{:02x}", bytes[i]);
    return text;
}

}  // namespace

Result<void> StoreFile::read_head() {
    GN_ASSIGN(superblock_, read_superblock(fd_.get(), path_));
    GN_ASSIGN(boot_, read_boot_record(fd_.get(), path_, seed_of(superblock_)));
    struct stat st {};
    is_device_ = ::fstat(fd_.get(), &st) == 0 && S_ISBLK(st.st_mode);
    // A copy of a store may have lost the disk space that creation had reserved.
    if (!reserve_room(fd_.get(), 0, superblock_.data_offset)) {
        return error(Errc::kNoSpace, "no room for the records of the store {}: {}; free some disk space",
                     path_.string(), errno_text());
    }
    return {};
}

Result<std::unique_ptr<StoreFile>> StoreFile::open_locked(const std::filesystem::path& path) {
    const int exclusive = is_block_device(path) ? O_EXCL : 0;
    FileDescriptor fd(above_standard(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | exclusive)));
    if (fd.get() < 0) {
        if (errno == EBUSY) {
            return error(Errc::kBusy,
                         "the device {} is in use: mounted, or open exclusively by another process",
                         path.string());
        }
        const Errc code =
            errno == ENOENT ? Errc::kNotFound : (errno == EACCES ? Errc::kPermission : Errc::kIo);
        return error(code, "cannot open the store {}: {}", path.string(), errno_text());
    }
    GN_TRY(lock(fd.get(), path));
    if (!still_named(fd.get(), path)) {
        return error(Errc::kBusy, "the store {} was just replaced by another process; try again",
                     path.string());
    }
    std::unique_ptr<StoreFile> store(new StoreFile(std::move(fd), path));
    GN_TRY(store->read_head());
    return store;
}

Result<void> StoreFile::check_contents() const {
    if (boot_.state == BootState::kEmptying) {
        return error(Errc::kState,
                     "the store {} was being emptied when its process ended; start its drive, which "
                     "completes the emptying",
                     path_.string());
    }
    return {};
}

/// The newest metadata must be present: an older copy would undo what was acknowledged since.
Result<void> StoreFile::check_metadata(bool accept_loss) const {
    return ssd::check_metadata(path_, slots(), boot_.metadata_generation, accept_loss);
}

Result<std::unique_ptr<StoreFile>> StoreFile::open(const std::filesystem::path& path) {
    GN_ASSIGN(std::unique_ptr<StoreFile> store, open_locked(path));
    GN_TRY(store->check_contents());
    GN_TRY(store->check_metadata(false));
    return store;
}

Result<std::unique_ptr<StoreFile>> StoreFile::open_for_use(const std::filesystem::path& path,
                                                           const BootRequest& request) {
    GN_ASSIGN(std::unique_ptr<StoreFile> store, open_locked(path));
    if (!trusted(store->boot_, request.host_boot)) {
        GN_ASSIGN(store, set_aside(std::move(store)));
    }
    GN_TRY(store->check_contents());
    GN_TRY(store->check_metadata(request.accept_loss));
    store->gives_up_metadata_ = !store->check_metadata(false).ok();
    store->accepts_loss_ = request.accept_loss;
    store->good_slot_ = newest_whole_slot(store->slots()) == 0 ? 0 : 1;
    GN_TRY(store->plan_use(request));
    return store;
}

BootBackbone StoreFile::backbone(BackboneKind kind) const {
    const bool direct = kind == BackboneKind::kDirect || (kind == BackboneKind::kAuto && is_device_);
    return direct ? BootBackbone::kDirect : BootBackbone::kMapped;
}

bool StoreFile::sync() {
    // One at a time, and a failure is flagged before the next may begin: Linux reports lost pages only once,
    // to one caller.
    const std::lock_guard lock(sync_mutex_);
    if (!failed() && ::fdatasync(fd_.get()) != 0) fail();
    return !failed();
}

bool StoreFile::may_be_changed_by(BootBackbone which) const {
    if (use_.load(std::memory_order_relaxed) != Use::kNone) return backbone(request_.backbone) == which;
    return boot_.state != BootState::kOpen || boot_.backbone == which;
}

Result<void> StoreFile::plan_use(const BootRequest& request) {
    if (request.mode == BootMode::kProcess && request.host_boot.is_nil()) {
        return error(Errc::kUnsupported,
                     "this host does not report its boot id (/proc/sys/kernel/random/boot_id), without which "
                     "the store {} cannot be used with durability 'process'; use 'power'",
                     path_.string());
    }
    was_only_killed_ = was_only_killed(boot_, request.host_boot);
    request_ = request;
    use_.store(Use::kPlanned, std::memory_order_relaxed);
    return {};
}

Result<void> StoreFile::begin_use(const BootRequest& request) {
    GN_TRY(plan_use(request));
    const std::lock_guard lock(use_mutex_);
    if (!record_open(request.mode))
        return error(Errc::kIo, "cannot write the boot record of the store {}: {}", path_.string(),
                     errno_text());
    use_.store(Use::kServing, std::memory_order_relaxed);
    return {};
}

/// While a mount programs pages, the boot record says *power*, even if *process* is planned: another service
/// unit may still refuse the store, and the host may stop at that moment. The next opening then trusts the
/// store, and rightly: record_open() has synced everything acknowledged before, a recovery may be interrupted
/// at any instant, and nothing is acknowledged in the planned mode yet.
bool StoreFile::begin_planned_changes() {
    const std::lock_guard lock(use_mutex_);
    if (use_.load(std::memory_order_relaxed) != Use::kPlanned) return true;
    const bool failed_before = failed();
    if (record_open(BootMode::kPower)) return true;
    if (!failed_before)
        log_error("the store {}: its boot record cannot be written ({}), so the store accepts no changes",
                  path_.string(), errno_text());
    return false;
}

/// Called once per planned use. Syncs everything that an earlier process left in the kernel before it writes
/// the record, so that the mode holds for all of it.
bool StoreFile::record_open(BootMode mode) {
    boot_.recovered = was_only_killed_ || boot_.state == BootState::kClean ? 1 : 0;
    generation_ = std::max(generation_, newest_whole_generation(slots()));
    boot_.metadata_generation =
        gives_up_metadata_ ? kMetadataGivenUp : std::max(boot_.metadata_generation, generation_);
    // An older program may have recorded a part of a checkpoint: replace it before the mount abandons that
    // part.
    for (std::size_t i = 0; i < found_.size(); ++i)
        if (boot_.journal_pages[i] == found_[i].newest) boot_.journal_pages[i] = found_[i].lasting;
    boot_.mode = mode;
    boot_.backbone = backbone(request_.backbone);
    boot_.state = BootState::kOpen;
    std::copy(request_.host_boot.bytes.begin(), request_.host_boot.bytes.end(), boot_.host_boot_id);
    if (!sync() || !write_boot_record(fd_.get(), boot_, seed_of(superblock_))) {
        fail();
        return false;
    }
    // Release: pairs with begin_changes().
    use_.store(Use::kMounting, std::memory_order_release);
    return true;
}

void StoreFile::note_record_damage(const RecordDamage& damage) const {
    if (damage.rotten != 0)
        log_warn(
            "the store {}: on {} of its pages one of the two copies of the page record was damaged and has "
            "been replaced by the other copy; the medium under the store loses data",
            path_.string(), damage.rotten);
    if (damage.contradicting != 0)
        log_error(
            "the store {}: on {} of its pages the two copies of the page record contradict each other, and "
            "neither copy can be proved correct: these pages count as damaged; `gnstor ssd check` lists them",
            path_.string(), damage.contradicting);
}

Result<void> StoreFile::check_journals() const {
    const std::optional<JournalLoss> loss = find_loss(boot_, found_);
    if (!loss || accepts_loss_) return {};
    return refuse_loss(path_, *loss);
}

/// Copies the journal positions into the boot record; the caller then syncs and writes it. False: no change.
bool StoreFile::take_journal_pages() {
    const JournalPages now = journals_.now();
    bool changed = false;
    for (std::size_t i = 0; i < now.size(); ++i) {
        // An accepted loss also lowers a position, so that the next opening does not look for the lost page.
        if (accepts_loss_ ? boot_.journal_pages[i] == now[i] : boot_.journal_pages[i] >= now[i]) continue;
        boot_.journal_pages[i] = now[i];
        changed = true;
    }
    return changed;
}

bool StoreFile::note_recovered() {
    if (!begin_changes()) return false;
    const std::lock_guard lock(use_mutex_);
    const bool mounting = use_.load(std::memory_order_relaxed) == Use::kMounting;
    if (!take_journal_pages() && boot_.recovered == 1 && !mounting) return true;
    boot_.recovered = 1;
    if (mounting) {
        boot_.mode = request_.mode;
        use_.store(Use::kServing, std::memory_order_relaxed);
    }
    if (sync() && write_boot_record(fd_.get(), boot_, seed_of(superblock_))) return true;
    fail();
    return false;
}

/// Writes the older copy that the drive used as the newest one, over the damaged slot: the next opening finds
/// no damage. Writes nothing if that copy is no longer readable.
Result<void> StoreFile::renew_older_metadata() {
    const MetadataSlots found = slots();
    if (!newest_damaged(found)) return {};
    const int used = newest_whole_slot(found);
    const Slot older = used < 0 ? Slot{} : read_slot(static_cast<std::uint32_t>(used));
    if (!older.body_whole)
        return error(Errc::kIo,
                     "the older copy of the metadata of the store {}, from which it was recovered, cannot be "
                     "read any more; nothing was written over it",
                     path_.string());
    if (store(older.blob)) return {};
    return error(Errc::kIo, "cannot write the metadata of the store {}: {}", path_.string(), errno_text());
}

Result<void> StoreFile::end_use() {
    if (!begin_changes())
        return error(Errc::kState, "the store {} cannot be closed cleanly: its boot record cannot be written",
                     path_.string());
    if (gives_up_metadata_) GN_TRY(renew_older_metadata());
    const std::lock_guard lock(use_mutex_);
    (void)take_journal_pages();
    if (boot_.state != BootState::kOpen)
        return error(Errc::kState, "the store {} cannot be closed cleanly: it is not open", path_.string());
    const bool failed_before = failed();
    if (!sync())
        return error(
            Errc::kIo, "the store {} cannot be closed cleanly: {}", path_.string(),
            failed_before ? "a write to it has failed" : "its file cannot be synchronized to the medium");
    boot_.state = BootState::kClean;
    // Not the generation on the medium: the newest copy may have rotted since it was stored.
    boot_.metadata_generation = generation_;
    if (!write_boot_record(fd_.get(), boot_, seed_of(superblock_))) {
        fail();
        return error(Errc::kIo, "cannot write the boot record of the store {}: {}", path_.string(),
                     errno_text());
    }
    return {};
}

Result<std::unique_ptr<StoreFile>> StoreFile::create(const std::filesystem::path& path,
                                                     const NewStore& what) {
    if (is_block_device(path)) return format_device(path, what);
    return create_file(path, what);
}

namespace {

/// Creates a store file under a temporary name first, so that under its final name it is complete or absent.
class FileFormatter {
  public:
    FileFormatter(const std::filesystem::path& path, const NewStore& what)
        : path_(path), what_(what), beside_(path.string() + ".new-XXXXXX") {}

    Result<void> plan();
    Result<void> make_file();
    void remove_file() { (void)::unlink(beside_.c_str()); }
    Result<void> take_lock() { return lock(fd_.get(), beside_); }
    Result<void> write_areas() { return write_new_file(fd_.get(), superblock_, path_); }
    Result<void> give_name();
    Result<void> sync_folder() {
        sync_directory(path_);
        return {};
    }
    FileDescriptor take() { return std::move(fd_); }

    static const Step<FileFormatter> kSteps[];

  private:
    const std::filesystem::path& path_;
    const NewStore& what_;
    std::string beside_;
    Superblock superblock_{};
    FileDescriptor fd_;
};

constexpr Step<FileFormatter> FileFormatter::kSteps[] = {
    {"plan areas", &FileFormatter::plan, nullptr},
    {"make file", &FileFormatter::make_file, &FileFormatter::remove_file},
    {"lock", &FileFormatter::take_lock, nullptr},
    {"write head and areas", &FileFormatter::write_areas, nullptr},
    {"give the file its name", &FileFormatter::give_name, nullptr},
    {"make the name stable", &FileFormatter::sync_folder, nullptr},
};

Result<void> FileFormatter::plan() {
    GN_ASSIGN(superblock_, make_superblock(what_, path_));
    return {};
}

Result<void> FileFormatter::make_file() {
    fd_ = FileDescriptor(above_standard(::mkostemp(beside_.data(), O_CLOEXEC)));
    if (fd_.get() >= 0) return {};
    return error(Errc::kIo, "cannot make the store {}: {}; does its folder exist, and may it be written to?",
                 path_.string(), errno_text());
}

Result<void> FileFormatter::give_name() {
    if (what_.replace) {
        if (::rename(beside_.c_str(), path_.c_str()) == 0) return {};
        return error(Errc::kIo, "cannot give the new store its name {}: {}", path_.string(), errno_text());
    }
    if (::renameat2(AT_FDCWD, beside_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) == 0) return {};
    // Some file systems lack RENAME_NOREPLACE: a hard link also fails if the name is taken.
    if (errno != EINVAL || ::link(beside_.c_str(), path_.c_str()) != 0)
        return error(errno == EEXIST ? Errc::kExists : Errc::kIo, "cannot give the new store its name {}: {}",
                     path_.string(), errno_text());
    remove_file();
    return {};
}

}  // namespace

Result<std::unique_ptr<StoreFile>> StoreFile::create_file(const std::filesystem::path& path,
                                                          const NewStore& what) {
    FileFormatter formatter(path, what);
    GN_TRY(run_steps(formatter, std::span<const Step<FileFormatter>>(FileFormatter::kSteps),
                     "formatting a store"));
    std::unique_ptr<StoreFile> store(new StoreFile(formatter.take(), path));
    GN_TRY(store->read_head());
    return store;
}

Result<std::unique_ptr<StoreFile>> StoreFile::format_device(const std::filesystem::path& path,
                                                            const NewStore& what) {
    if (!what.replace) {
        return error(Errc::kExists,
                     "{} is a block device: formatting destroys its contents, so it is done only on explicit "
                     "request; use gnstor ssd format",
                     path.string());
    }
    GN_ASSIGN(const Superblock superblock, make_superblock(what, path));
    FileDescriptor fd(above_standard(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_EXCL)));
    if (fd.get() < 0) {
        return error(errno == EBUSY ? Errc::kBusy : Errc::kIo,
                     "cannot take the device {}: {}; is it mounted, or in use by another program?",
                     path.string(), errno_text());
    }
    GN_TRY(lock(fd.get(), path));
    GN_ASSIGN(const std::uint64_t room, store_room(fd.get(), path));
    if (room < superblock.file_bytes) {
        return error(Errc::kNoSpace,
                     "the device {} has {} bytes, the store needs {}; choose a smaller capacity",
                     path.string(), room, superblock.file_bytes);
    }
    BootRecord boot = new_boot_record();
    // The superblock last: a device that was formatted in part is no store.
    const bool written = zero_all(fd.get(), 0, superblock.data_offset) && ::fdatasync(fd.get()) == 0 &&
                         write_boot_record(fd.get(), boot, seed_of(superblock)) &&
                         write_all(fd.get(), &superblock, sizeof superblock, 0) && ::fdatasync(fd.get()) == 0;
    if (!written) return error(Errc::kIo, "cannot format the device {}: {}", path.string(), errno_text());
    std::unique_ptr<StoreFile> store(new StoreFile(std::move(fd), path));
    GN_TRY(store->read_head());
    return store;
}

/// Replaces the store by an empty new incarnation. docs/array.md, rule 10: a drive that comes back erases
/// nothing before others hold its data, so a file keeps its contents under another name. A device has no
/// other name.
Result<std::unique_ptr<StoreFile>> StoreFile::set_aside(std::unique_ptr<StoreFile> store) {
    const std::string old = hex(store->boot_.incarnation, sizeof store->boot_.incarnation);
    constexpr const char* kWhy =
        "was open with durability 'process' when the host stopped, so acknowledged writes may be missing";
    std::error_code ignored;
    const std::filesystem::path path = std::filesystem::canonical(store->path_, ignored);
    const std::filesystem::path aside = path.string() + ".untrusted-" + old.substr(0, 8);
    const bool emptying = store->boot_.state == BootState::kEmptying;
    if (!store->is_device_ && !emptying && !path.empty() &&
        (::link(path.c_str(), aside.c_str()) == 0 || errno == EEXIST)) {
        NewStore empty = recipe_of(store->superblock_);
        empty.replace = true;
        GN_ASSIGN(std::unique_ptr<StoreFile> fresh, create_file(path, empty));
        log_error(
            "the store {} {}: its contents (incarnation {}) are now in {}, and the drive continues empty as "
            "a new incarnation; keep that file: it is the only copy of its data unless SSDs of other hosts "
            "hold the replicas, and nothing fills the drive again",
            path.string(), kWhy, old, aside.string());
        return fresh;
    }
    GN_TRY(store->empty());
    log_error(
        "the store {} {}: it was emptied, and the drive continues as a new incarnation (the old one was {})",
        store->path_.string(), kWhy, old);
    return store;
}

/// Drops all contents in place and renews the incarnation. Records kEmptying first, so that the next opening
/// completes this after a kill.
Result<void> StoreFile::empty() {
    boot_.state = BootState::kEmptying;
    const std::uint64_t from = superblock_.metadata_offset;
    bool done = write_boot_record(fd_.get(), boot_, seed_of(superblock_)) &&
                zero_all(fd_.get(), from, superblock_.data_offset - from) &&
                reserve_room(fd_.get(), from, superblock_.data_offset - from) && ::fdatasync(fd_.get()) == 0;
    if (done && !is_device_)  // only frees disk space
        (void)zero_all(fd_.get(), superblock_.data_offset, superblock_.file_bytes - superblock_.data_offset);
    const std::uint64_t generation = boot_.generation;
    boot_ = new_boot_record();
    boot_.generation = generation;
    done = done && write_boot_record(fd_.get(), boot_, seed_of(superblock_));
    if (!done) return error(Errc::kIo, "cannot empty the store {}: {}", path_.string(), errno_text());
    return {};
}

StoreIdentity identity_of(const StoreFile& file) {
    const Superblock& s = file.superblock();
    StoreIdentity id{.serial = serial_of(s),
                     .capacity_bytes = s.capacity_bytes,
                     .over_provisioning_percent = s.over_provisioning_percent,
                     .service_units = s.service_units};
    std::copy(std::begin(s.drive_uuid), std::end(s.drive_uuid), id.drive_uuid.begin());
    const BootRecord& boot = file.boot();
    std::copy(std::begin(boot.incarnation), std::end(boot.incarnation), id.incarnation.begin());
    id.same_boot = file.was_only_killed_before();
    return id;
}

// The firmware's metadata: two slots.

std::uint64_t StoreFile::slot_offset(std::uint32_t index) const {
    return superblock_.metadata_offset + std::uint64_t{index} * superblock_.metadata_bytes;
}

std::uint64_t StoreFile::second_header_offset(std::uint32_t index) const {
    return slot_offset(index) + superblock_.metadata_bytes - sizeof(MetadataHeader);
}

std::size_t StoreFile::capacity() const {
    return metadata_capacity(superblock_.metadata_bytes);
}

StoreFile::Slot StoreFile::read_slot(std::uint32_t index) const {
    Slot slot;
    MetadataHeader copies[2] = {};
    if (!read_all(fd_.get(), &copies[0], sizeof copies[0], slot_offset(index)) ||
        !read_all(fd_.get(), &copies[1], sizeof copies[1], second_header_offset(index)))
        return slot;
    const HeaderCopies found = compare_headers(copies[0], copies[1], capacity(), seed_of(superblock_));
    const MetadataHeader& h = found.header;
    slot.rotten = found.rotten;
    slot.head_whole = found.whole;
    slot.head_twice = found.both_whole;
    if (!slot.head_whole) return slot;
    slot.generation = h.generation;
    slot.bytes = h.length;
    slot.blob.resize(h.length);
    slot.body_whole =
        read_all(fd_.get(), slot.blob.data(), slot.blob.size(), slot_offset(index) + sizeof h) &&
        h.blob_crc == crc32c(slot.blob.data(), slot.blob.size());
    return slot;
}

MetadataSlots StoreFile::slots() const {
    return {read_slot(0), read_slot(1)};
}

std::vector<std::byte> StoreFile::load() {
    const int slot = newest_whole_slot(slots());
    return slot < 0 ? std::vector<std::byte>{} : read_slot(static_cast<std::uint32_t>(slot)).blob;
}

bool StoreFile::store(std::span<const std::byte> blob) {
    if (blob.size() > capacity() || failed() || !begin_changes()) return false;
    const MetadataSlots found = slots();
    const std::uint64_t generation[2] = {found[0].body_whole ? found[0].generation : 0,
                                         found[1].body_whole ? found[1].generation : 0};
    // The older slot, or an invalid one; if neither is readable now, not the one that was good.
    const bool none = generation[0] == 0 && generation[1] == 0;
    const std::uint32_t index = none ? 1 - good_slot_ : generation[0] <= generation[1] ? 0 : 1;
    const std::uint64_t target = slot_offset(index);
    const std::uint64_t second = second_header_offset(index);
    MetadataHeader next{};
    const MetadataHeader nothing{};
    std::copy(kMetadataMagic.begin(), kMetadataMagic.end(), next.magic);
    next.generation = std::max({generation_, generation[0], generation[1]}) + 1;
    next.length = blob.size();
    next.blob_crc = crc32c(blob.data(), blob.size());
    next.crc = metadata_header_crc(next, seed_of(superblock_));
    // Clear the slot's headers and write the blob; write the new headers only when both are on the medium.
    const bool stored = write_all(fd_.get(), &nothing, sizeof nothing, target) &&
                        write_all(fd_.get(), &nothing, sizeof nothing, second) &&
                        write_all(fd_.get(), blob.data(), blob.size(), target + sizeof next) && sync() &&
                        write_all(fd_.get(), &next, sizeof next, target) &&
                        write_all(fd_.get(), &next, sizeof next, second) && sync();
    if (!stored) fail();
    good_slot_ = stored ? index : good_slot_;
    generation_ = next.generation;
    return stored;
}

}  // namespace gnstor::ssd
