// store_file.hpp: a drive's store as a locked file or block device: opened, made, begun and ended, and the
// firmware's small state in it. What lies between, records and pages, is a flash backbone's (file_store.hpp,
// direct_store.hpp). docs/store-format.md.
//
// Invariants
//   * the store is locked (flock, and O_EXCL on a device) while a StoreFile lives: two processes never have
//   one open;
//   * a new store file appears under its name whole or not at all (written beside it, then renamed);
//   * opening for use changes nothing of a store that may be used: what refuses it later leaves it as it was;
//   * nothing is programmed, erased or stored before begin_changes() has put into the boot record that the
//   store is open, by which backbone and under which boot of the host; no write is acknowledged before
//   note_recovered() has put the mode there;
//   * the generation of metadata that the boot record names never falls behind what this process stored: rot
//   of the newest is not taken for the truth at the next opening;
//   * contents that may lack acknowledged writes are never opened for use: they leave under another name (a
//   file) or are dropped (a device), and the store goes on empty, as another incarnation.
// One thread at a time, but for sync(), failed(), fail() and begin_changes(); load() and store() belong to
// the firmware's front.
#pragma once

#include <gnstor/base/result.hpp>

#include "ssd/drive/drive_options.hpp"
#include "ssd/flash/file/journal_marks.hpp"
#include "ssd/flash/file/metadata_slots.hpp"
#include "ssd/flash/file/posix_file.hpp"
#include "ssd/flash/file/store_head.hpp"
#include "ssd/flash/record_copies.hpp"

#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>

namespace gnstor::ssd {

/// How a drive is going to use a store.
struct BootRequest {
    BootMode mode = BootMode::kPower;
    BackboneKind backbone = BackboneKind::kAuto;
    Uuid host_boot = host_boot_id();
    bool accept_loss = false;  ///< use older metadata where the newest is damaged
};

class StoreFile final : public deengine::MetadataStore {
  public:
    /// Locked and checked, contents untouched. kNotFound, kBusy (another process has it), kCorrupt,
    /// kUnsupported (another format version), kState (it was being emptied: its drive must be started), kIo.
    static Result<std::unique_ptr<StoreFile>> open(const std::filesystem::path& path);
    /// The same, for a drive that is going to serve it: see plan_use. What may lack acknowledged writes is
    /// set aside first.
    static Result<std::unique_ptr<StoreFile>> open_for_use(const std::filesystem::path& path,
                                                           const BootRequest& request);
    /// Makes a store; kExists if the name is taken (and always of a block device), unless what.replace: then
    /// what is there goes, a file when the new one is whole. Returns it open and locked.
    static Result<std::unique_ptr<StoreFile>> create(const std::filesystem::path& path, const NewStore& what);

    /// How the store is going to be used. Nothing is written before the first change, or the mount's end.
    Result<void> plan_use(const BootRequest& request);
    /// To be called before anything of the store changes. Records that it is open, if use is planned and that
    /// was not recorded yet. False: it could not be, and nothing may be changed. Any thread.
    [[nodiscard]] bool begin_changes() {
        // Acquire, pairs with record_open(): a change of the store comes after its boot record says *open*.
        return use_.load(std::memory_order_acquire) != Use::kPlanned || begin_planned_changes();
    }
    /// plan_use(), and records at once that the store is in use in that mode.
    Result<void> begin_use(const BootRequest& request);
    /// To be called when the mount has ended and has found everything that an earlier cut tore. Records the
    /// planned mode, in which writes are acknowledged from now on. False: it could not be recorded.
    [[nodiscard]] bool note_recovered();
    /// What is found of the journal to which a page belongs, before check_journals(). One thread.
    void note_found_journal(deengine::PageNumber page, const FoundJournal& found) {
        found_[superblock_.service_unit_of(page)].add(found);
        journals_.note(superblock_, page, found.lasting);
    }
    /// A lasting page of a journal is programmed and in the kernel's hands: what begin_use() and end_use()
    /// synchronize. The service unit's thread.
    void note_journal_page(deengine::PageNumber page, std::uint64_t journal_page) {
        journals_.note(superblock_, page, journal_page);
    }
    /// When all that is there is noted. kCorrupt: the boot record tells of more, and its loss was not
    /// accepted.
    [[nodiscard]] Result<void> check_journals() const;
    /// Says in the log of how many records one copy is damaged, or both contradict each other.
    void note_record_damage(const RecordDamage& damage) const;
    /// Makes everything written through fd() stable, and records that the store was closed.
    Result<void> end_use();

    /// fdatasync, which takes mapped pages along. Any thread. Once it, or anything else of the store, has
    /// failed it fails until the store is opened again: what the medium holds is not known any more.
    [[nodiscard]] bool sync();
    // Relaxed, both: one flag that only ever rises; what it must not miss is ordered by the mutex in sync().
    [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_relaxed); }
    void fail() { failed_.store(true, std::memory_order_relaxed); }

    [[nodiscard]] int fd() const { return fd_.get(); }
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] const Superblock& superblock() const { return superblock_; }
    [[nodiscard]] const BootRecord& boot() const { return boot_; }
    /// was_only_killed(), of the boot record as plan_use() found it.
    [[nodiscard]] bool was_only_killed_before() const { return was_only_killed_; }
    [[nodiscard]] bool is_device() const { return is_device_; }
    /// kMapped or kDirect: what this kind means for this store.
    [[nodiscard]] BootBackbone backbone(BackboneKind kind) const;
    /// Whether changes by this backbone are planned, or recorded, or the store is not in use.
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

    /// How far the planned use has come.
    enum class Use : std::uint8_t {
        kNone,      ///< none is planned: for a look, or its owner knows what it does
        kPlanned,   ///< nothing is changed yet
        kMounting,  ///< changes of a mount are recorded, nothing is acknowledged yet
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
    std::uint32_t good_slot_ = 1;  // of the metadata: read whole at the opening for use, or stored last
    JournalMarks journals_;
    FoundJournals found_{};         ///< at the opening
    std::uint64_t generation_ = 0;  // of the newest metadata that this process found or stored
    BootRequest request_;           // what is planned
    std::mutex use_mutex_;          // of boot_ while service units mount; taken before sync_mutex_
    std::atomic<Use> use_{Use::kNone};
    std::mutex sync_mutex_;
    std::atomic<bool> failed_{false};
};

}  // namespace gnstor::ssd
