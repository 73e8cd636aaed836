#include "cli/spool.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <streambuf>
#include <vector>

namespace gnstor::cli {
namespace {

constexpr std::size_t kSpoolStepBytes = 1u << 20;

class MemorySpool final : public Spool {
  public:
    explicit MemorySpool(const std::string& text) : bytes_(text.size()), stream_(text) {}
    std::istream& stream() override { return stream_; }
    [[nodiscard]] std::uint64_t bytes() const override { return bytes_; }

  private:
    const std::uint64_t bytes_;
    std::istringstream stream_;
};

/// Reads a file descriptor from its beginning.
class FileBuffer final : public std::streambuf {
  public:
    explicit FileBuffer(int fd) : fd_(fd), step_(kSpoolStepBytes) {}

  protected:
    int_type underflow() override {
        ssize_t n = 0;
        do n = ::pread(fd_, step_.data(), step_.size(), at_);
        while (n < 0 && errno == EINTR);
        if (n <= 0) return traits_type::eof();
        at_ += n;
        setg(step_.data(), step_.data(), step_.data() + n);
        return traits_type::to_int_type(*gptr());
    }

  private:
    const int fd_;
    off_t at_ = 0;
    std::vector<char> step_;
};

class FileSpool final : public Spool {
  public:
    explicit FileSpool(int fd) : fd_(fd), buffer_(fd), stream_(&buffer_) {}
    ~FileSpool() override { ::close(fd_); }
    FileSpool(const FileSpool&) = delete;
    FileSpool& operator=(const FileSpool&) = delete;
    std::istream& stream() override { return stream_; }
    [[nodiscard]] std::uint64_t bytes() const override { return bytes_; }

    [[nodiscard]] bool append(const char* data, std::size_t size) {
        while (size > 0) {
            const ssize_t n = ::pwrite(fd_, data, size, static_cast<off_t>(bytes_));
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return false;
            data += n;
            size -= static_cast<std::size_t>(n);
            bytes_ += static_cast<std::uint64_t>(n);
        }
        return true;
    }

  private:
    const int fd_;
    std::uint64_t bytes_ = 0;
    FileBuffer buffer_;
    std::istream stream_;
};

Result<std::unique_ptr<FileSpool>> open_file(const std::filesystem::path& folder) {
    int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) {  // a file system without O_TMPFILE
        std::string name = (folder / "put.spool-XXXXXX").string();
        fd = ::mkostemp(name.data(), O_CLOEXEC);
        if (fd >= 0) ::unlink(name.c_str());
    }
    if (fd < 0)
        return error(Errc::kIo, "a temporary file for the input cannot be created in {}: {}", folder.string(),
                     std::strerror(errno));
    return std::make_unique<FileSpool>(fd);
}

}  // namespace

Result<std::unique_ptr<Spool>> Spool::read(std::istream& from, const std::filesystem::path& folder,
                                           std::uint64_t bytes_max, const std::string& too_long,
                                           std::uint64_t memory_bytes) {
    std::string memory;
    std::unique_ptr<FileSpool> file;
    std::vector<char> step(kSpoolStepBytes);
    for (;;) {
        from.read(step.data(), static_cast<std::streamsize>(step.size()));
        const auto got = static_cast<std::size_t>(from.gcount());
        if (got == 0) break;
        const std::uint64_t total = (file ? file->bytes() : memory.size()) + got;
        if (total > bytes_max) return error(Errc::kNoSpace, "{}", too_long);
        if (!file && total <= memory_bytes) {
            memory.append(step.data(), got);
            continue;
        }
        bool kept = true;
        if (!file) {
            GN_ASSIGN(file, open_file(folder));
            kept = file->append(memory.data(), memory.size());
            std::string().swap(memory);
        }
        if (!kept || !file->append(step.data(), got))
            return error(Errc::kIo, "the input cannot be kept in a temporary file in {}: {}", folder.string(),
                         std::strerror(errno));
    }
    if (from.bad()) return error(Errc::kIo, "the input cannot be read to its end");
    if (file) return std::unique_ptr<Spool>(std::move(file));
    return std::unique_ptr<Spool>(std::make_unique<MemorySpool>(memory));
}

}  // namespace gnstor::cli
