// store_view.hpp: a read-only view of a store, as flash that can nevertheless be programmed: writes stay in
// this process's memory (a private mapping) and are lost with it.
//
// For `gnstor ssd info|check|recover`: firmware mounted on a view recovers as it would on the store itself,
// and the store stays unchanged byte for byte. A view holds a shared lock (flock), so that no drive serves
// the store meanwhile. One thread.
#pragma once

#include <gnstor/base/result.hpp>

#include "ssd/flash/file/metadata_slots.hpp"
#include "ssd/flash/file/posix_file.hpp"
#include "ssd/flash/file/store_head.hpp"
#include "ssd/flash/journal_marks.hpp"
#include "ssd/flash/mapping.hpp"
#include "ssd/flash/record_copies.hpp"
#include "ssd/flash/store.hpp"

#include <array>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

namespace gnstor::ssd {

/// One of the two copies of the boot record.
struct BootCopy {
    bool whole = false;
    std::uint64_t generation = 0;
};

class StoreView final : public deengine::MetadataStore {
  public:
    /// kNotFound, kPermission, kBusy (a drive has it open), kCorrupt, kUnsupported, kIo, as StoreFile::open;
    /// damage behind the superblock is not detected here.
    static Result<std::unique_ptr<StoreView>> open(const std::filesystem::path& path);

    /// The flash, cut into ranges for `count` service units, each usable separately. They must not outlive
    /// the view.
    [[nodiscard]] FlashParts parts(std::uint32_t count);

    [[nodiscard]] const Superblock& superblock() const { return superblock_; }
    [[nodiscard]] std::array<BootCopy, 2> boot_copies() const;
    /// The valid boot record; kCorrupt if both copies are damaged.
    [[nodiscard]] Result<BootRecord> boot() const { return read_boot_record(fd_.get(), path_, drive_); }
    [[nodiscard]] MetadataSlots metadata_copies() const;
    /// Whether a drive may use this metadata: metadata_slots.hpp.
    [[nodiscard]] Result<void> check_metadata(bool accept_loss) const;
    /// The metadata generation in the boot record (or kMetadataGivenUp), if every readable copy is older;
    /// else 0.
    [[nodiscard]] std::uint64_t metadata_missing() const;
    /// How the metadata is damaged: metadata_slots.hpp. Empty: the newest that existed is readable.
    [[nodiscard]] std::optional<std::string> metadata_loss() const;
    /// The journal page that the boot record names but no record reaches. Reads all records.
    [[nodiscard]] std::optional<JournalLoss> journal_loss() const;
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    [[nodiscard]] std::uint64_t record_offset(deengine::PageNumber page) const {
        return superblock_.oob_offset + std::uint64_t{page} * sizeof(deengine::PageOob);
    }
    [[nodiscard]] std::uint64_t page_offset(deengine::PageNumber page) const {
        return superblock_.data_offset + std::uint64_t{page} * nvme::kBlockBytes;
    }
    /// What the checksums of its records begin with.
    [[nodiscard]] DriveSeed drive_seed() const { return drive_; }
    /// The copies of a page's record, compared.
    [[nodiscard]] RecordCopies record(deengine::PageNumber page) const {
        const std::byte* first = mapping_.data() + record_offset(page);
        return compare_records(first, first + superblock_.records_bytes(), page, drive_);
    }
    [[nodiscard]] bool record_copies_differ(deengine::PageNumber first, std::uint32_t pages) const {
        const std::byte* at = mapping_.data() + record_offset(first);
        return std::memcmp(at, at + superblock_.records_bytes(), pages * sizeof(deengine::PageOob)) != 0;
    }
    /// Bytes of the store as this view sees them.
    [[nodiscard]] std::span<const std::byte> raw(std::uint64_t offset, std::size_t bytes) const {
        return {mapping_.data() + offset, bytes};
    }

    /// The newest readable copy; check_metadata() says whether it is the newest that existed.
    [[nodiscard]] std::vector<std::byte> load() override;
    [[nodiscard]] bool store(std::span<const std::byte> blob) override;
    [[nodiscard]] std::size_t capacity() const override;

  private:
    StoreView(FileDescriptor fd, std::filesystem::path path, const Superblock& superblock)
        : fd_(std::move(fd)), path_(std::move(path)), superblock_(superblock), drive_(seed_of(superblock)) {}
    [[nodiscard]] const std::byte* slot(int index) const;
    [[nodiscard]] std::uint64_t generation_told() const;

    FileDescriptor fd_;
    std::filesystem::path path_;
    Superblock superblock_;
    DriveSeed drive_;
    Mapping mapping_;
    std::vector<std::byte> blob_;  // stored through this view
    bool stored_ = false;
};

}  // namespace gnstor::ssd
