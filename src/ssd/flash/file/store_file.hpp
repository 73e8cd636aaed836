// store_file.hpp: a drive's store as a locked file or block device: opening, creation, begin and end of use,
// and the firmware's metadata in it. A flash backbone accesses its records and pages (file_store.hpp,
// direct_store.hpp). docs/store-format.md.
//
// Invariants
//   * the store is locked (flock, and O_EXCL on a device) while a StoreFile lives: two processes never have
//     it open;
//   * a new store file appears under its name complete or not at all (written under a temporary name, then
//     renamed);
//   * opening for use does not change a store that may be used: a later refusal leaves it unchanged;
//   * nothing is programmed, erased or stored before begin_changes() has recorded in the boot record that the
//     store is open, by which backbone and in which boot of the host; no write is acknowledged before
//     note_recovered() has recorded the mode;
//   * at a clean close the boot record names the newest metadata generation that this process stored,
//     whatever the medium holds by then: the next opening detects it if that copy has rotted;
//   * contents that may lack acknowledged writes are never opened for use: they are renamed (a file) or
//     dropped (a device), and the store continues empty, as another incarnation.
// One thread at a time, except sync(), failed(), fail() and begin_changes(); the firmware's front calls
// load() and store().
#pragma once

#include <gnstor/base/result.hpp>

#include "ssd/flash/file/metadata_slots.hpp"
#include "ssd/flash/file/posix_file.hpp"
#include "ssd/flash/file/store_head.hpp"
#include "ssd/flash/journal_marks.hpp"
#include "ssd/flash/record_copies.hpp"
#include "ssd/options/drive_options.hpp"

#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>

namespace gnstor::ssd {

/// How a drive will use a store.
struct BootRequest {
    BootMode mode = BootMode::kPower;
    BackboneKind backbone = BackboneKind::kAuto;
    Uuid host_boot = host_boot_id();
    bool accept_loss = false;  ///< use older metadata where the newest is damaged
};

class StoreFile final : public deengine::MetadataStore {
  public:
    /// Opens a store, locked and checked, contents untouched. kNotFound, kBusy (another process has it),
    /// kCorrupt, kUnsupported (another format version), kState (it was being emptied: its drive must be
    /// started), kIo.
    static Result<std::unique_ptr<StoreFile>> open(const std::filesystem::path& path);
    /// The same for a drive that will serve the store: see plan_use. Contents that may lack acknowledged
    /// writes are set aside first.
    static Result<std::unique_ptr<StoreFile>> open_for_use(const std::filesystem::path& path,
                                                           const BootRequest& request);
    /// Creates a store; kExists if the name is taken (and always for a block device), unless what.replace is
    /// set: then the old contents are overwritten, a file's once the new file is complete. Returns it open
    /// and locked.
    static Result<std::unique_ptr<StoreFile>> create(const std::filesystem::path& path, const NewStore& what);

    /// Plans the use of the store. Nothing is written before the first change or the end of the mount.
    Result<void> plan_use(const BootRequest& request);
    /// Call before any change of the store. Records that the store is open, if use is planned and that was
    /// not recorded yet. False: it could not be recorded, and nothing may be changed. Any thread.
    [[nodiscard]] bool begin_changes() {
        // Acquire: pairs with record_open(): a change of the store comes after its boot record says *open*.
        return use_.load(std::memory_order_acquire) != Use::kPlanned || begin_planned_changes();
    }
    /// plan_use(), and records at once that the store is in use in that mode.
    Result<void> begin_use(const BootRequest& request);
    /// Call when the mount has ended and has found everything that an earlier power cut tore. Records the
    /// planned mode, in which writes are acknowledged from now on. False: it could not be recorded.
    [[nodiscard]] bool note_recovered();
    /// Notes what was found of the journal that `page` belongs to. Before check_journals(). One thread.
    void note_found_journal(deengine::PageNumber page, const FoundJournal& found) {
        found_[superblock_.service_unit_of(page)].add(found);
        journals_.note(superblock_, page, found.lasting);
    }
    /// Notes a lasting journal page that is programmed and held by the kernel, so that the next sync() makes
    /// it stable. Called by the service unit's thread.
    void note_journal_page(deengine::PageNumber page, std::uint64_t journal_page) {
        journals_.note(superblock_, page, journal_page);
    }
    /// Call when everything found is noted. kCorrupt: the boot record names a newer journal page, and its
    /// loss was not accepted.
    [[nodiscard]] Result<void> check_journals() const;
    /// Logs the number of records of which one copy is damaged, and of those whose copies contradict each
    /// other.
    void note_record_damage(const RecordDamage& damage) const;
    /// Makes everything written through fd() stable, and records that the store was closed.
    Result<void> end_use();

    /// fdatasync, mapped pages included. Any thread. After a failure, of this call or of anything else of the
    /// store, it fails until the store is opened again: the contents of the medium are no longer known.
    [[nodiscard]] bool sync();
    // Relaxed, both: the flag is only ever set; the mutex in sync() orders what must not miss it.
    [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_relaxed); }
    void fail() { failed_.store(true, std::memory_order_relaxed); }

    [[nodiscard]] int fd() const { return fd_.get(); }
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] const Superblock& superblock() const { return superblock_; }
    [[nodiscard]] const BootRecord& boot() const { return boot_; }
    /// was_only_killed(), of the boot record as plan_use() found it.
    [[nodiscard]] bool was_only_killed_before() const { return was_only_killed_; }
    [[nodiscard]] bool is_device() const { return is_device_; }
    /// The backbone that `kind` selects for this store: kMapped or kDirect.
    [[nodiscard]] BootBackbone backbone(BackboneKind kind) const;
    /// Whether changes by this backbone are planned or recorded, or the store is not in use.
    [[nodiscard]] bool may_be_changed_by(BootBackbone which) const;

    [[nodiscard]] std::vector<std::byte> load() override;
    [[nodiscard]] bool store(std::span<const std::byte> blob) override;
    [[nodiscard]] std::size_t capacity() const override;

  private:
    StoreFile(FileDescriptor fd, std::filesystem::path path) : fd_(std::move(fd)), path_(std::move(path)) {}
    static Result<std::unique_ptr<StoreFile>> open_locked(const std::filesystem::path& path);
    static Result<std::unique_ptr<StoreFile>> create_file(const std::filesystem::path& path,
                                                          const NewStore& what);
    static Result<std::unique_ptr<StoreFile>> format_device(const std::filesystem::path& path,
                                                            const NewStore& what);
    static Result<std::unique_ptr<StoreFile>> set_aside(std::unique_ptr<StoreFile> store);
    Result<void> read_head();
    [[nodiscard]] Result<void> check_contents() const;
    [[nodiscard]] Result<void> check_metadata(bool accept_loss) const;
    [[nodiscard]] bool take_journal_pages();
    [[nodiscard]] bool begin_planned_changes();
    [[nodiscard]] bool record_open(BootMode mode);
    Result<void> renew_older_metadata();
    Result<void> empty();

    /// Progress of the planned use.
    enum class Use : std::uint8_t {
        kNone,      ///< none planned: inspection, or an owner that needs no record of its use
        kPlanned,   ///< nothing has changed yet
        kMounting,  ///< changes of a mount are recorded, no write is acknowledged yet
        kServing,
    };

    struct Slot : MetadataSlot {
        std::vector<std::byte> blob;
    };
    [[nodiscard]] Slot read_slot(std::uint32_t index) const;
    [[nodiscard]] std::uint64_t slot_offset(std::uint32_t index) const;
    [[nodiscard]] std::uint64_t second_header_offset(std::uint32_t index) const;
    [[nodiscard]] MetadataSlots slots() const;

    FileDescriptor fd_;
    std::filesystem::path path_;
    Superblock superblock_{};
    BootRecord boot_{};
    bool is_device_ = false;
    bool was_only_killed_ = false;
    bool gives_up_metadata_ = false;  // opened for use although the newest is damaged
    bool accepts_loss_ = false;
    std::uint32_t good_slot_ = 1;  // metadata slot that was whole at the opening for use, or was stored last
    JournalMarks journals_;
    FoundJournals found_{};         ///< at the opening
    std::uint64_t generation_ = 0;  // of the newest metadata that this process found or stored
    BootRequest request_;           // the planned use
    std::mutex use_mutex_;          // guards boot_ while service units mount; taken before sync_mutex_
    std::atomic<Use> use_{Use::kNone};
    std::mutex sync_mutex_;
    std::atomic<bool> failed_{false};
};

}  // namespace gnstor::ssd
