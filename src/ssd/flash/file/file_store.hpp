// file_store.hpp: flash and metadata of a drive in one mapped file. docs/store-format.md.
//
// Invariants
//   * nothing is mapped before the file's length was checked against its superblock, and room is allocated
//   before it is stored to: no SIGBUS from a short file or a full disk;
//   * what is stored survives a kill at once, and power loss when a sync (fdatasync, on a thread of the
//   store's own) has ended; programs and reads go on meanwhile.
// One owner thread for each flash (the whole, or each part). The file's lock and head: store_file.hpp.
#pragma once

#include <gnstor/base/result.hpp>

#include "ssd/flash/file/mapping.hpp"
#include "ssd/flash/file/store_file.hpp"
#include "ssd/flash/flash_array.hpp"
#include "ssd/flash/store.hpp"
#include "ssd/flash/sync_worker.hpp"

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>

namespace gnstor::ssd {

/// What all flashes over one mapped store share.
class MappedFile {
  public:
    static Result<std::unique_ptr<MappedFile>> map(std::unique_ptr<StoreFile> file);
    StoreFile& file() { return *file_; }
    [[nodiscard]] std::byte* data() const { return mapping_.data() + file_->superblock().data_offset; }
    [[nodiscard]] std::byte* records() const { return mapping_.data() + file_->superblock().oob_offset; }
    [[nodiscard]] std::byte* record_copies() const {
        return mapping_.data() + file_->superblock().record_copies_offset();
    }
    /// Any thread; started by the first that asks.
    SyncWorker& worker();
    void on_sync_end(std::function<void()> call) { on_sync_end_ = std::move(call); }

  private:
    std::unique_ptr<StoreFile> file_;
    Mapping mapping_;
    std::function<void()> on_sync_end_;
    std::once_flag started_;
    std::optional<SyncWorker> worker_;  // last: it syncs the file
};

/// A range of a mapped store's units.
class MappedFlash : public FlashArray {
  public:
    MappedFlash(MappedFile& file, UnitRange range);
    deengine::FlashStatus program(deengine::PageNumber page, const std::byte* data,
                                  deengine::PageOob& oob) override;
    deengine::FlashStatus erase(std::uint32_t unit) override;
    deengine::FlashStatus copy_back(deengine::PageNumber from, deengine::PageNumber to,
                                    deengine::PageOob& oob, std::uint32_t* crcs) override;
    /// kPower: fdatasync, on the store's thread; nothing to do when nothing was stored. Once it has failed it
    /// fails until the store is opened again.
    deengine::FlashStatus sync_begin(deengine::SyncLevel level) override;
    deengine::SyncState sync_poll() override;
    using deengine::Flash::sync;
    deengine::FlashStatus sync(deengine::SyncLevel level) override;

    /// What was found of its records at its construction.
    [[nodiscard]] const RecordDamage& record_damage() const { return record_damage_; }

  protected:
    bool reserve_unit(std::uint32_t unit) override;
    void drop_data(std::uint32_t unit) override;

  private:
    /// Before anything of it changes. False: nothing may.
    [[nodiscard]] bool begin_changes();

    MappedFile& shared_;
    RecordDamage record_damage_;
    std::uint64_t unit_bytes_;
    std::uint64_t ticket_ = 0;  // of the sync in flight; 0: none, or one that needed nothing
    bool in_flight_ = false;
    bool dirty_ = true;  // stored to since the last sync; at opening by a process that may have been killed
};

/// Holds the file below the flash that is a base class beside it.
struct MappedFileHolder {
    std::unique_ptr<MappedFile> held;
};

class FileStore final : private MappedFileHolder,
                        public MappedFlash,
                        public deengine::MetadataStore,
                        public Store {
  public:
    /// Opens a store; errors as StoreFile::open. Its boot record is left alone: for a look, not for a drive.
    static Result<std::unique_ptr<FileStore>> open(const std::filesystem::path& path);
    /// The same for a drive: see StoreFile::open_for_use.
    static Result<std::unique_ptr<FileStore>> open_for_use(const std::filesystem::path& path,
                                                           const BootRequest& request);
    /// Makes a store; errors as StoreFile::create. Returns it open and locked.
    static Result<std::unique_ptr<FileStore>> create(const std::filesystem::path& path, const NewStore& what);
    static Result<std::unique_ptr<FileStore>> over(std::unique_ptr<StoreFile> file);
    ~FileStore() override = default;

    [[nodiscard]] const Superblock& superblock() const { return shared().file().superblock(); }
    [[nodiscard]] StoreFile& file() { return shared().file(); }

    [[nodiscard]] std::vector<std::byte> load() override { return shared().file().load(); }
    [[nodiscard]] bool store(std::span<const std::byte> blob) override { return shared().file().store(blob); }
    [[nodiscard]] std::size_t capacity() const override { return shared().file().capacity(); }

    [[nodiscard]] StoreIdentity identity() const override { return identity_of(shared().file()); }
    [[nodiscard]] deengine::MetadataStore& metadata() override { return *this; }
    Result<FlashParts> parts(std::uint32_t count) override;
    void on_sync_end(std::function<void()> call) override { shared().on_sync_end(std::move(call)); }
    [[nodiscard]] bool note_recovered() override;
    [[nodiscard]] bool end_use() override;
    [[nodiscard]] std::string describe() const override;

  private:
    explicit FileStore(std::unique_ptr<MappedFile> file);
    [[nodiscard]] MappedFile& shared() const { return *held; }
};

}  // namespace gnstor::ssd
