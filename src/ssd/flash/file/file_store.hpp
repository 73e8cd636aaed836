// file_store.hpp: a drive's flash and metadata in one mapped file. docs/store-format.md.
//
// Invariants
//   * nothing is mapped before the file's length was checked against its superblock, and disk space is
//     allocated before it is stored to: no SIGBUS from a short file or a full disk;
//   * stored data survives a kill at once, and power loss when a sync (fdatasync, on the store's own thread)
//     has ended; programs and reads continue meanwhile.
// One owner thread for each flash (the whole, or each part). The file's lock and head: store_file.hpp.
#pragma once

#include <gnstor/base/result.hpp>

#include "ssd/flash/file/store_file.hpp"
#include "ssd/flash/flash_array.hpp"
#include "ssd/flash/mapping.hpp"
#include "ssd/flash/store.hpp"
#include "ssd/flash/sync_worker.hpp"

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>

namespace gnstor::ssd {

/// State that all flashes over one mapped store share.
class MappedFile {
  public:
    static Result<std::unique_ptr<MappedFile>> map(std::unique_ptr<StoreFile> file);
    StoreFile& file() { return *file_; }
    [[nodiscard]] std::byte* data() const { return mapping_.data() + file_->superblock().data_offset; }
    [[nodiscard]] std::byte* records() const { return mapping_.data() + file_->superblock().oob_offset; }
    [[nodiscard]] std::byte* record_copies() const {
        return mapping_.data() + file_->superblock().record_copies_offset();
    }
    /// Any thread; the first call starts the worker.
    SyncWorker& worker();
    void on_sync_end(std::function<void()> call) { on_sync_end_ = std::move(call); }

  private:
    std::unique_ptr<StoreFile> file_;
    Mapping mapping_;
    std::function<void()> on_sync_end_;
    std::once_flag started_;
    std::optional<SyncWorker> worker_;  // last: its thread syncs file_
};

/// Flash over a range of a mapped store's units.
class MappedFlash : public FlashArray {
  public:
    MappedFlash(MappedFile& file, UnitRange range);
    deengine::FlashStatus program(deengine::PageNumber page, const std::byte* data,
                                  deengine::PageOob& oob) override;
    deengine::FlashStatus erase(std::uint32_t unit) override;
    deengine::FlashStatus copy_back(deengine::PageNumber from, deengine::PageNumber to,
                                    deengine::PageOob& oob, std::uint32_t* crcs) override;
    /// kPower: fdatasync, on the store's thread; nothing to do if nothing was stored. After a failure it
    /// fails until the store is opened again.
    deengine::FlashStatus sync_begin(deengine::SyncLevel level) override;
    deengine::SyncState sync_poll() override;
    using deengine::Flash::sync;
    deengine::FlashStatus sync(deengine::SyncLevel level) override;

    /// Damage that was found in its records at construction.
    [[nodiscard]] const RecordDamage& record_damage() const { return record_damage_; }

  protected:
    bool reserve_unit(std::uint32_t unit) override;
    void drop_data(std::uint32_t unit) override;

  private:
    /// Call before any change. False: no change is allowed.
    [[nodiscard]] bool begin_changes();

    MappedFile& shared_;
    RecordDamage record_damage_;
    bool zero_range_keeps_space_ = false;  ///< of the file system: FALLOC_FL_ZERO_RANGE frees nothing
    std::uint64_t unit_bytes_;
    std::uint64_t ticket_ = 0;  // of the sync in flight; 0: none, or one with nothing to do
    bool in_flight_ = false;
    bool dirty_ = true;  // stored to since the last sync; at opening: perhaps by a killed process
};

/// Holds the file. A base class, so that the file is constructed before the flash beside it and outlives it.
struct MappedFileHolder {
    std::unique_ptr<MappedFile> held;
};

class FileStore final : private MappedFileHolder,
                        public MappedFlash,
                        public deengine::MetadataStore,
                        public Store {
  public:
    /// Opens a store for inspection: its boot record stays unchanged. Errors as StoreFile::open.
    static Result<std::unique_ptr<FileStore>> open(const std::filesystem::path& path);
    /// The same for a drive that will serve it: see StoreFile::open_for_use.
    static Result<std::unique_ptr<FileStore>> open_for_use(const std::filesystem::path& path,
                                                           const BootRequest& request);
    /// Creates a store; errors as StoreFile::create. Returns it open and locked.
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
