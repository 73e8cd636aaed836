#include "gateway/record_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace gnstor::gateway {

namespace {

constexpr std::size_t kReadMost = 2 * kLossRecordBytes;

Error failed(const char* what, const std::filesystem::path& path) {
    return error(Errc::kIo, "the gateway's record {} cannot be {}: {}", path.string(), what,
                 std::strerror(errno));
}

/// Writes the whole record at the start of the file.
bool write_whole(int fd, const LossRecordBytes& bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
        const ssize_t n = ::pwrite(fd, bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += static_cast<std::size_t>(n);
    }
    return true;
}

}  // namespace

Result<std::unique_ptr<RecordFile>> RecordFile::open(const std::filesystem::path& path) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return failed("opened", path);
    std::unique_ptr<RecordFile> file(new RecordFile(path, fd));
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0)
        return error(Errc::kBusy, "another gateway uses the record {}; stop that gateway first",
                     path.string());
    struct stat about {};
    if (::fstat(fd, &about) != 0) return failed("checked", path);
    if (about.st_size != 0) return file;
    // Allocates the space, as zeroes, before the first answer; zeroes mean: no record yet.
    if (!write_whole(fd, LossRecordBytes{}) || ::fsync(fd) != 0) return failed("created", path);
    const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
    const int of_folder = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool stable = of_folder >= 0 && ::fsync(of_folder) == 0;
    if (of_folder >= 0) ::close(of_folder);
    if (!stable) return failed("made durable in its folder", path);
    return file;
}

RecordFile::~RecordFile() {
    ::close(fd_);
}

Result<std::optional<LossRecord>> RecordFile::read() const {
    std::vector<std::byte> bytes(kReadMost);
    std::size_t size = 0;
    while (size < bytes.size()) {
        const ssize_t n = ::pread(fd_, bytes.data() + size, bytes.size() - size, static_cast<off_t>(size));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return failed("read", path_);
        if (n == 0) break;
        size += static_cast<std::size_t>(n);
    }
    bytes.resize(size);
    const bool blank = size == kLossRecordBytes &&
                       std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
    if (blank) return std::optional<LossRecord>();
    GN_ASSIGN(const LossRecord record, decode_loss_record(bytes));
    return std::optional(record);
}

Result<void> RecordFile::write(const LossRecord& record) {
    if (!write_whole(fd_, encode_loss_record(record)) || ::fdatasync(fd_) != 0)
        return failed("written", path_);
    return {};
}

}  // namespace gnstor::gateway
