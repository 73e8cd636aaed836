// file_store.hpp: flash and metadata of a drive in one mapped file. docs/store-format.md.
//
// Invariants
//   * the file is locked (flock, exclusive) while a FileStore lives: two processes never have one store open;
//   * nothing is mapped before the file's length was checked against its superblock, and room is allocated
//   before it is
//     stored to: no SIGBUS from a short file or a full disk;
//   * a new store appears under its name whole or not at all (written beside it, then renamed).
// One owner thread.
#pragma once

#include <gnstor/base/result.hpp>

#include "ssd/flash_array.hpp"
#include "ssd/mapping.hpp"
#include "ssd/store_format.hpp"

#include <filesystem>
#include <memory>
#include <string>

namespace gnstor::ssd {

/// A file descriptor, closed at the end. Move only.
class FileDescriptor {
  public:
    explicit FileDescriptor(int fd = -1) : fd_(fd) {}
    FileDescriptor(FileDescriptor&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
    FileDescriptor& operator=(FileDescriptor&& o) noexcept {
        std::swap(fd_, o.fd_);
        return *this;
    }
    ~FileDescriptor();
    [[nodiscard]] int get() const { return fd_; }

  private:
    int fd_;
};

struct NewStore {
    deengine::FlashGeometry geometry;
    std::uint64_t capacity_bytes;
    std::uint32_t over_provisioning_percent = 7;
    std::uint32_t metadata_bytes = kStoreMetadataBytes;
    std::string serial;  ///< at most 20 characters; empty: derived from the UUID
};

/// Reads and checks the superblock of an open store file: kCorrupt with a sentence that says what is wrong,
/// or the superblock.
Result<Superblock> read_superblock(int fd, const std::filesystem::path& path);

class FileStore final : public FlashArray, public deengine::MetadataStore {
  public:
    /// Opens a store; kNotFound, kBusy (another process has it), kCorrupt, kUnsupported (a newer format),
    /// kIo.
    static Result<std::unique_ptr<FileStore>> open(const std::filesystem::path& path);
    /// Makes a store; kExists if the name is taken. Returns it open and locked.
    static Result<std::unique_ptr<FileStore>> create(const std::filesystem::path& path, const NewStore& what);
    ~FileStore() override = default;

    [[nodiscard]] const Superblock& superblock() const { return superblock_; }

    deengine::FlashStatus program(deengine::PageNumber page, const std::byte* data,
                                  deengine::PageOob& oob) override;
    deengine::FlashStatus erase(std::uint32_t unit) override;
    /// fdatasync of the file, which takes mapped pages along (Linux); nothing to do when nothing was stored.
    /// Once it has failed it fails until the store is opened again: Linux tells of lost pages once.
    deengine::FlashStatus copy_back(deengine::PageNumber from, deengine::PageNumber to,
                                    deengine::PageOob& oob, std::uint32_t* crcs) override;
    using deengine::Flash::sync;
    deengine::FlashStatus sync(deengine::SyncLevel level) override;

    [[nodiscard]] std::vector<std::byte> load() override;
    [[nodiscard]] bool store(std::span<const std::byte> blob) override;
    [[nodiscard]] std::size_t capacity() const override;

  protected:
    bool reserve_unit(std::uint32_t unit) override;
    void release_unit(std::uint32_t unit) override;

  private:
    FileStore(FileDescriptor fd, const Superblock& superblock)
        : fd_(std::move(fd)), superblock_(superblock) {}
    static Result<std::unique_ptr<FileStore>> map(FileDescriptor fd, const std::filesystem::path& path);
    [[nodiscard]] bool sync_file();
    [[nodiscard]] std::byte* slot(std::uint32_t index) const;
    /// The header of a slot if it is whole.
    [[nodiscard]] bool header_valid(std::uint32_t index, MetadataHeader& header) const;
    /// The same, and its blob is whole too.
    [[nodiscard]] bool slot_valid(std::uint32_t index, MetadataHeader& header) const;
    [[nodiscard]] bool newest_metadata_damaged() const;

    FileDescriptor fd_;
    Superblock superblock_;
    Mapping mapping_;
    bool dirty_ = true;    // stored to since the last sync; at opening by a process that may have been killed
    bool failed_ = false;  // a sync failed: what it was to write may be lost, whatever the next one says
};

}  // namespace gnstor::ssd
