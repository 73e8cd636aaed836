#include "ssd/flash/direct/direct_store.hpp"

#include "ssd/flash/direct/aligned_buffer.hpp"
#include "ssd/flash/direct/direct_flash.hpp"
#include "ssd/flash/record_copies.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace gnstor::ssd {

namespace {

constexpr std::size_t kLoadBytes = 1u << 20;

/// The logical block size of direct I/O on this descriptor; of a file, 512 if a read at offset 512 succeeds.
Result<std::uint32_t> logical_block_of(int fd, const StoreFile& file) {
    int bytes = 0;
    if (file.is_device()) {
        if (::ioctl(fd, BLKSSZGET, &bytes) != 0) {
            return error(Errc::kIo, "cannot learn the block size of {}: {}", file.path().string(),
                         errno_text());
        }
    } else {
        AlignedBuffer probe(kStorePage);
        bytes = ::pread(fd, probe.data(), 512, 512) == 512 ? 512 : 4096;
    }
    if (bytes != 512 && bytes != 4096) {
        return error(Errc::kUnsupported,
                     "the device {} has blocks of {} bytes; a store needs blocks of 512 or 4096 bytes",
                     file.path().string(), bytes);
    }
    return static_cast<std::uint32_t>(bytes);
}

/// Replaces each record of `line`, whose first record is that of `page`, with the valid one of its two
/// copies.
RecordDamage unite_copies(std::byte* line, const std::byte* copies, deengine::PageNumber page,
                          DriveSeed drive) {
    RecordDamage damage;
    for (std::size_t at = 0; at < kStorePage; at += sizeof(deengine::PageOob)) {
        const RecordCopies found = compare_records(line + at, copies + at, page++, drive);
        std::memcpy(line + at, &found.counts, sizeof found.counts);
        damage.add(found);
    }
    return damage;
}

}  // namespace

Result<std::unique_ptr<DirectStore>> DirectStore::over(std::unique_ptr<StoreFile> file,
                                                       DirectOptions options) {
    // Otherwise an opening after a kill would take missing records for damage.
    if (!file->may_be_changed_by(BootBackbone::kDirect))
        return error(Errc::kState,
                     "the store {} cannot be used for direct I/O: its boot record does not say that it is "
                     "used directly",
                     file->path().string());
    std::unique_ptr<DirectStore> store(new DirectStore);
    DirectFile& s = store->shared_;
    s.options = std::move(options);
    s.options.staged_pages = std::clamp(s.options.staged_pages, 1u, 2048u);
    // Reopens the same file, even if its name refers to another file by now.
    const std::string again = fmt::format("/proc/self/fd/{}", file->fd());
    s.direct = FileDescriptor(above_standard(::open(again.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC)));
    if (s.direct.get() < 0) {
        if (errno == EINVAL) {
            return error(Errc::kUnsupported,
                         "the file system of {} does not support O_DIRECT; leave --direct out, or put the "
                         "store on another file system",
                         file->path().string());
        }
        return error(Errc::kIo, "cannot open the store {} for direct I/O: {}", file->path().string(),
                     errno_text());
    }
    GN_ASSIGN(s.logical_block, logical_block_of(s.direct.get(), *file));
    s.file = std::move(file);
    GN_TRY(store->load_records());
    return store;
}

Result<void> DirectStore::load_records() {
    const Superblock& s = shared_.superblock();
    const std::size_t bytes = s.records_bytes();
    void* at =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        return error(Errc::kNoSpace, "no memory for the records of the store {}: {} bytes",
                     shared_.file->path().string(), bytes);
    }
    shared_.records = Mapping(at, bytes);
    AlignedBuffer chunk(kLoadBytes), copies(kLoadBytes);
    const AlignedBuffer zeroes(kStorePage);
    const DriveSeed drive = seed_of(s);
    RecordDamage damage;
    for (std::size_t done = 0; done < bytes; done += kLoadBytes) {
        const std::size_t now = std::min(kLoadBytes, bytes - done);
        const int fd = shared_.direct.get();
        if (!read_all(fd, chunk.data(), now, s.oob_offset + done) ||
            !read_all(fd, copies.data(), now, s.record_copies_offset() + done)) {
            return error(code_of_read(), "cannot read the records of the store {}: {}",
                         shared_.file->path().string(), errno_text());
        }
        for (std::size_t p = 0; p < now; p += kStorePage) {
            std::byte* const line = chunk.data() + p;
            const auto first = static_cast<deengine::PageNumber>((done + p) / sizeof(deengine::PageOob));
            if (std::memcmp(line, copies.data() + p, kStorePage) != 0) {
                const RecordDamage here = unite_copies(line, copies.data() + p, first, drive);
                damage.add(here);
                // Neither of two contradicting copies is trusted: both stay on the medium until the line is
                // written for another reason, so that a check can name them.
                if (here.contradicting == 0)
                    shared_.to_mend.push_back(static_cast<std::uint32_t>((done + p) / kStorePage));
            }
            // Pages of zeroes stay unmapped: only records of programmed pages use memory.
            if (std::memcmp(line, zeroes.data(), kStorePage) == 0) continue;
            std::memcpy(shared_.records.data() + done + p, line, kStorePage);
            note_journal_pages(line, first);
        }
    }
    shared_.file->note_record_damage(damage);
    return {};
}

void DirectStore::note_journal_pages(const std::byte* line, deengine::PageNumber first) {
    const std::uint64_t pages = shared_.superblock().geometry().pages();
    const DriveSeed drive = seed_of(shared_.superblock());
    for (std::uint32_t i = 0; i < DirectFlash::kRecordsPerLine && first + i < pages; ++i)
        shared_.file->note_found_journal(
            first + i, find_journal_page(line + i * sizeof(deengine::PageOob), first + i, drive));
}

Result<FlashParts> DirectStore::parts(std::uint32_t count) {
    const Superblock& s = shared_.superblock();
    if (count > 1 && s.pages_per_unit % DirectFlash::kRecordsPerLine != 0) {
        return error(Errc::kInvalidArgument,
                     "the store {} has erase units of {} pages, which {} service units cannot share with "
                     "direct I/O; format it with units of a multiple of {} pages, or leave --direct out",
                     shared_.file->path().string(), s.pages_per_unit, count, DirectFlash::kRecordsPerLine);
    }
    if (count == s.service_units) GN_TRY(shared_.file->check_journals());
    FlashParts made;
    for (std::uint32_t i = 0; i < count; ++i) {
        GN_ASSIGN(std::unique_ptr<IoQueue> queue,
                  open_io_queue(shared_.direct.get(), DirectFlash::queue_depth(shared_.options),
                                shared_.options.queue, shared_.on_sync_end));
        queue_kind_ = queue->kind();
        if (shared_.options.around) queue = shared_.options.around(std::move(queue));
        made.push_back(
            std::make_unique<DirectFlash>(shared_, UnitRange::of(s.units, i, count), std::move(queue)));
    }
    return made;
}

std::string DirectStore::describe() const {
    return fmt::format("{} {}, direct I/O by {}, blocks of {} bytes",
                       shared_.file->is_device() ? "device" : "file", shared_.file->path().string(),
                       queue_kind_, shared_.logical_block);
}

}  // namespace gnstor::ssd
