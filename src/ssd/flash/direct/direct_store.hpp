// direct_store.hpp: a drive's backbone in a file or block device without the page cache: O_DIRECT, with
// io_uring if available. The format is the same as for the other backbones: docs/store-format.md.
//
// Owns the file, a second descriptor of it for direct I/O, and a copy in memory of all out-of-band records
// (64 bytes per programmed page, 1/64 of the data). Threads: as store.hpp; each part is a DirectFlash
// (direct_flash.hpp) with a queue of its own.
#pragma once

#include <gnstor/base/result.hpp>

#include "ssd/flash/direct/io_queue.hpp"
#include "ssd/flash/file/store_file.hpp"
#include "ssd/flash/mapping.hpp"
#include "ssd/flash/store.hpp"

#include <functional>
#include <memory>
#include <string>

namespace gnstor::ssd {

struct DirectOptions {
    IoQueueKind queue = IoQueueKind::kAuto;
    std::uint32_t staged_pages = 256;  ///< of each part: programs that may be in flight to the medium at once
    /// For tests: wraps the queue of each part.
    std::function<std::unique_ptr<IoQueue>(std::unique_ptr<IoQueue>)> around{};
};

/// State that the parts share.
struct DirectFile {
    std::unique_ptr<StoreFile> file;
    FileDescriptor direct;
    std::uint32_t logical_block = 512;  ///< the device's unit of atomic writing: 512 or 4096
    Mapping records;                    ///< of every page; zeroes for pages that are not programmed
    /// Lines (DirectFlash::kLineBytes) whose two copies differed when they were read, in rising order.
    std::vector<std::uint32_t> to_mend;
    DirectOptions options;
    std::function<void()> on_sync_end;

    [[nodiscard]] const Superblock& superblock() const { return file->superblock(); }
};

class DirectStore final : public Store {
  public:
    /// Over an open store. kUnsupported: its file system lacks O_DIRECT, or its blocks are too large.
    static Result<std::unique_ptr<DirectStore>> over(std::unique_ptr<StoreFile> file,
                                                     DirectOptions options = {});

    [[nodiscard]] StoreIdentity identity() const override { return identity_of(*shared_.file); }
    [[nodiscard]] deengine::MetadataStore& metadata() override { return *shared_.file; }
    /// kInvalidArgument: several parts, but the records of a unit do not fill whole pages.
    Result<FlashParts> parts(std::uint32_t count) override;
    void on_sync_end(std::function<void()> call) override { shared_.on_sync_end = std::move(call); }
    [[nodiscard]] bool note_recovered() override { return shared_.file->note_recovered(); }
    [[nodiscard]] bool end_use() override { return shared_.file->end_use().ok(); }
    [[nodiscard]] std::string describe() const override;

  private:
    DirectStore() = default;
    Result<void> load_records();
    void note_journal_pages(const std::byte* line, deengine::PageNumber first);

    DirectFile shared_;
    std::string queue_kind_ = "a queue that is not open yet";
};

}  // namespace gnstor::ssd
